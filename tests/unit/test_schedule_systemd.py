"""The units: systemd itself reads them where it is installed, and their text is held by a golden file."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calyx_orch import cli
from calyx_orch.commands import installing
from calyx_orch.errors import UsageError
from calyx_orch.schedule import systemd

GOLDEN = Path(__file__).parent.parent / "golden" / "scheduler" / "units"
USER = systemd.Units(
    ("/usr/bin/true", "schedule", "daemon", "--store", "sqlite:////srv/a b/100%/s.sqlite"), ("/srv/a b", "/tmp")
)
SYSTEM = systemd.Units(("/usr/bin/true", "schedule", "daemon"), ("/tmp",), "/etc/calyx-orch.env", "daemon")


def written(folder: Path, units: systemd.Units) -> Path:
    (folder / f"{systemd.NAME}.service").write_text(systemd.service(units))
    (folder / f"{systemd.NAME}.timer").write_text(systemd.timer())
    return folder


@pytest.mark.parametrize(("units", "scope"), [(USER, "--user"), (SYSTEM, "--system")])
@pytest.mark.parametrize("kind", ["service", "timer"])
def test_systemd_reads_the_units_without_a_word(units: systemd.Units, scope: str, kind: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here: the golden texts below stand alone")
    written(tmp_path, units)
    done = subprocess.run(
        ["systemd-analyze", scope, "--recursive-errors=no", "--man=no", "verify", str(tmp_path / f"{systemd.NAME}.{kind}")],
        capture_output=True, text=True, timeout=60, env={"XDG_RUNTIME_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_systemd_does_not_know_is_found(tmp_path: Path) -> None:
    """The check above can fail."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    path = written(tmp_path, SYSTEM) / f"{systemd.NAME}.service"
    path.write_text(path.read_text().replace("ProtectSystem=strict", "ProtectSistem=strict"))
    done = subprocess.run(
        ["systemd-analyze", "--man=no", "verify", str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "ProtectSistem" in done.stderr


@pytest.mark.parametrize(("name", "text"), [
    ("user.service", systemd.service(USER)), ("system.service", systemd.service(SYSTEM)), ("timer", systemd.timer()),
])  # fmt: skip
def test_the_units_are_as_they_were_looked_at(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text()


def test_print_changes_nothing_and_a_password_is_never_in_a_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store = f"sqlite:///{tmp_path / 'store.sqlite'}"
    done = CliRunner().invoke(cli.app, ["schedule", "install", "--systemd", "--print", "--store", store])
    assert done.exit_code == 0, done.output
    assert f"--store {store}" in done.stdout
    written = [
        line.removeprefix("ReadWritePaths=") for line in done.stdout.splitlines() if line.startswith("ReadWritePaths=")
    ]
    assert written == [str(tmp_path), str(tmp_path / "cache" / "calyx-orch"), str(tmp_path / "state" / "calyx-orch")]
    assert not (tmp_path / "config").exists()
    with pytest.raises(UsageError, match="holds a password, which no unit may hold") as told:
        installing.install(
            system=False, print_only=True, store="postgresql://u:secret@127.0.0.1:1/d", environment_file=""
        )
    assert "secret" not in str(told.value)


def test_a_file_of_secrets_that_is_not_there_or_that_others_may_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written then: a daemon without its secrets would work on another store, in silence."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/true")
    monkeypatch.setattr(installing, "RUNNING", tmp_path)
    store, secrets = f"sqlite:///{tmp_path / 'store.sqlite'}", tmp_path / "secrets"
    for mode, says in ((None, "No such file or directory"), (0o644, "others may read or write it")):
        if mode is not None:
            secrets.write_text("HOOK=json://127.0.0.1/x\n")
            secrets.chmod(mode)
        with pytest.raises(UsageError, match=says):
            installing.install(system=False, print_only=False, store=store, environment_file=str(secrets))
        assert not (tmp_path / "config").exists()
    secrets.chmod(0o600)
    assert installing.install(system=False, print_only=False, store=store, environment_file=str(secrets)) == 0
    unit = (tmp_path / "config" / "systemd" / "user" / f"{systemd.NAME}.service").read_text()
    assert f"EnvironmentFile={secrets}\n" in unit


def test_a_unit_finds_a_store_that_was_named_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started in another directory, where the same address would be another store."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.app, ["schedule", "install", "--systemd", "--print", "--store", "sqlite:///a.sqlite"])
    assert done.exit_code == 0, done.output
    assert f"--store sqlite:///{tmp_path / 'a.sqlite'}\n" in done.stdout


def test_a_systemctl_that_fails_or_hangs_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(installing, "RUNNING", tmp_path)
    monkeypatch.setattr(installing, "SYSTEMCTL_TIMEOUT_S", 0.5)
    control = tmp_path / "systemctl"
    monkeypatch.setattr("shutil.which", lambda _: str(control))
    for does, says in (
        ("exit 3", "daemon-reload failed: exit code 3"),
        ("exec sleep 60", r"did not end within 0\.5 s"),
    ):
        control.write_text(f"#!/bin/sh\n{does}\n")
        control.chmod(0o755)
        with pytest.raises(UsageError, match=says):
            installing.install(
                system=False, print_only=False, store=f"sqlite:///{tmp_path / 's.sqlite'}", environment_file=""
            )


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--check"), ("next", "n"), ("history", "n"), ("report", "n"), ("pause", "n"), ("resume", "n"), ("remove", "n"),
        ("run-now", "n"),
    ],
)  # fmt: skip
def test_who_only_reads_makes_no_store(words: tuple[str, ...], tmp_path: Path) -> None:
    """A mistyped one would say that all is well."""
    store = tmp_path / "mistyped.sqlite"
    with pytest.raises(UsageError, match="there is no store at"):
        CliRunner().invoke(cli.app, ["schedule", *words, "--store", f"sqlite:///{store}"], catch_exceptions=False)
    assert not store.exists()


def test_a_file_with_an_address_is_found_by_a_daemon_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "i.yaml").write_text("guests: [{name: vm1, targets: {d: /d}}]\nworkloads: [quick]\n")
    (tmp_path / "ping").write_text("http://127.0.0.1:1/\n")
    store = ["--store", f"sqlite:///{tmp_path / 's.sqlite'}"]
    words = ["schedule", "add", "n", "i.yaml", "--cron", "30 2 * * *", "--ping", "file:ping", *store]
    assert CliRunner().invoke(cli.app, words, catch_exceptions=False).exit_code == 0
    listed = CliRunner().invoke(cli.app, ["schedule", "list", "--json", *store], catch_exceptions=False).stdout
    assert json.loads(listed)[0]["settings"]["ping"] == f"file:{tmp_path / 'ping'}"
