"""`calyx-orch schedule install`: the daemon as a service and a timer of systemd."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from calyx_orch.commands.schedule import schedules_of
from calyx_orch.errors import EXIT_FINE, UsageError
from calyx_orch.report import screen
from calyx_orch.schedule import rows, systemd
from calyx_orch.store import addresses, database

SYSTEMCTL_TIMEOUT_S = 60.0
RUNNING = Path("/run/systemd/system")  # is there while systemd is at work


def install(*, system: bool, print_only: bool, store: str | None, environment_file: str) -> int:
    """Write and enable the units of systemd, or print them. Raises UsageError when that fails, or would give secrets away."""
    environment_file = str(Path(environment_file).absolute()) if environment_file else ""
    made = _units(system=system, store=store, environment_file=environment_file)
    files = {f"{systemd.NAME}.service": systemd.service(made), f"{systemd.NAME}.timer": systemd.timer()}
    if print_only:
        screen.deliver("".join(f"# {name}\n{text}\n" for name, text in files.items()))
        return EXIT_FINE
    control = shutil.which("systemctl")
    if control is None or not RUNNING.is_dir():
        raise UsageError(
            "no systemd runs here: with --print the units are shown, and `calyx-orch schedule daemon` works without"
        )
    if environment_file:
        _guard(Path(environment_file))
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    folder = Path("/etc/systemd/system") if system else home / "systemd" / "user"
    try:
        for path in made.writes:  # systemd starts no unit that may write to what is not there
            Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write the units to {folder}: {error.strerror}") from error
    scope = [] if system else ["--user"]
    for words in (["daemon-reload"], ["enable", "--now", f"{systemd.NAME}.service", f"{systemd.NAME}.timer"]):
        if why := _trouble([control, *scope, *words]):
            raise UsageError(f"the units lie in {folder}, but systemctl {' '.join(words)} failed: {why}")
    screen.line(f"written to {folder} and started: {', '.join(files)}")
    if not system:
        screen.line("without a login it runs only where lingering is on: `loginctl enable-linger`")
    return EXIT_FINE


def _trouble(command: Sequence[str]) -> str:
    """Run a command of systemd. Returns why it failed, "" when it did not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SYSTEMCTL_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"it did not end within {SYSTEMCTL_TIMEOUT_S:g} s"
    return (done.stderr.strip() or f"exit code {done.returncode}") if done.returncode else ""


def _guard(environment_file: Path) -> None:
    """Raise UsageError for a file of secrets that is not there, or that others may read."""
    try:
        mode = environment_file.stat().st_mode
    except OSError as error:
        raise UsageError(f"--environment-file {environment_file}: {error.strerror}") from error
    if mode & 0o077:
        raise UsageError(
            f"--environment-file {environment_file}: others may read or write it, and it holds secrets: chmod 600 {environment_file}"
        )


def _units(*, system: bool, store: str | None, environment_file: str) -> systemd.Units:
    """What the daemon's units say here: it may write to the store, the run folders of the schedules, the cache and the set-ups."""
    from calyx_orch.runner import calibration

    url = _from_anywhere(store or database.default_url())
    command = _command(url, is_named=store is not None or not environment_file)
    with schedules_of(store, create=True) as schedules:
        runs = [rows.schedule_of(row).settings.runs for row in schedules.all()]
    writes = [str(file.parent)] if (file := _file(url)) is not None else []
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "calyx-orch"
    state = calibration.cache_path().parent
    writes = list(dict.fromkeys([*writes, *runs, str(cache), str(state)]))
    return systemd.Units(command, writes, environment_file, getpass.getuser() if system else "")


def _from_anywhere(url: str) -> str:
    """The address of a store that means the same from every directory: a unit is not started in this one."""
    file = _file(url)
    return url if file is None else f"sqlite:///{file}"


def _file(url: str) -> Path | None:
    """The file of a store on SQLite, by its whole path; None on PostgreSQL. Raises UsageError for what is no store."""
    address = addresses.parse(url)
    return Path(address.database or "").absolute() if address.drivername == addresses.SQLITE else None


def _command(url: str, *, is_named: bool) -> list[str]:
    """The daemon's argv, with the store where it `is_named` on it. Raises UsageError for one with a password."""
    command = [str(Path(sys.argv[0]).absolute()) if Path(sys.argv[0]).name == "calyx-orch" else sys.executable]
    command += [] if command[0].endswith("calyx-orch") else ["-m", "calyx_orch.cli"]
    command += ["schedule", "daemon"]
    if is_named:
        if database.shown(url) != url:
            raise UsageError(
                "the store's address holds a password, which no unit may hold: put CALYX_ORCH_STORE=... into a file of mode 0600 "
                "and name that with --environment-file"
            )
        command += ["--store", url]
    return command
