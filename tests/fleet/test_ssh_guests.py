"""Guests that are not like others: shells, homes, PATH, clocks, host names, rights, and each step made to fail in turn."""

# ruff: noqa: ASYNC110, ASYNC220 - looking at files and processes takes no time, and nothing else runs meanwhile

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from calyx_orch.commands.loopback import LoopbackFleet, LoopbackGuest, inventory_yaml
from calyx_orch.errors import AgentError
from calyx_orch.model import Connection
from calyx_orch.transport import OUTPUT_BYTES_MAX, Pool, connect
from calyx_orch.transport.put import put_command
from fleet.conftest import CASES, running, sshd_lines, until_gone
from fleet.disks import need_root
from fleet.test_ssh_sessions import EVERY_BYTE
from fleet.whole_runs import TINY, guests_up, left_processes, nothing_left, run, start_run

pytestmark = pytest.mark.fleet

DEEP = "x" * 60 + "/" + "y" * 60  # beyond what a path of a socket could hold
AS_NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups"


def need(*programs: str) -> None:
    """Skip aloud where a program is not installed; .ci/run installs them."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def forced(words: str) -> tuple[str, ...]:
    """Every session is these words, followed by what was asked for as one argument."""
    return (f'ForceCommand {words} "$SSH_ORIGINAL_COMMAND"',)


def changed(fleet: LoopbackFleet, name: str, line: str, *, body: str) -> str:
    """The fleet's inventory with one more line for a guest."""
    return inventory_yaml(fleet, body=body).replace(f"  {name}:\n", f"  {name}:\n    {line}\n")


# --- shells ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["fish", "tcsh", "dash", "bash"])
async def test_every_login_shell_hands_arguments_on_unharmed(
    shell: str, fleet: LoopbackFleet, pool: Pool, tmp_path: Path
) -> None:
    """Quotes, `!`, newlines and bytes that are no UTF-8, through the shells that quote differently."""
    need(shell)
    made = await fleet.add(shell, extra=forced(f"{shell} -c"), environment=_away_from_home(tmp_path))
    transport = await connect(fleet.connection(made), pool=pool)
    for argument in (EVERY_BYTE, "", "-n", "a'b\"c", "\\\\n \\' !! $HOME `id`", "two\nlines\n", "%s \\x41"):
        done = await transport.run(("printf", "%s|", argument, "end"), timeout_s=10)
        assert done.stdout == os.fsencode(argument) + b"|end|", (argument, done)
    await transport.put(b"data", str(made.home / "it's a file"), mode=0o600, timeout_s=10)
    assert (made.home / "it's a file").read_bytes() == b"data"
    await transport.close()


def _away_from_home(tmp_path: Path) -> dict[str, str]:
    """Where fish keeps what it keeps."""
    return {f"XDG_{name}_HOME": str(tmp_path / "xdg") for name in ("CONFIG", "DATA", "CACHE")}


async def test_odd_guests_are_measured_like_all_others(tmp_path: Path) -> None:
    """One run over all kinds; what was gone around is told, nothing is left.

    fish, csh, a banner, text around commands, one session, no SFTP, a small PATH and an empty one, no home, a home without
    exec, a directory deeper than a socket's path (cases A-061 to A-065, A-068, A-069, A-074).
    """
    need("fish", "tcsh")
    need_root("mount")
    empty_path = tmp_path / "empty-path"
    empty_path.write_text('#!/bin/sh\nexec /usr/bin/env -i HOME="$HOME" PATH= /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n')
    empty_path.chmod(0o755)
    async with guests_up(1, tmp_path) as fleet:
        await fleet.add("fish", extra=forced("fish -c"), environment=_away_from_home(tmp_path))
        await fleet.add("csh", extra=forced("tcsh -c"))
        await fleet.add("noisy", extra=(f"ForceCommand {CASES}/A-063/noisy2.sh",))
        await fleet.add("one-session", extra=("MaxSessions 1",))
        await fleet.add("no-sftp", extra=sshd_lines("A-065", "sshd_extra_broken.conf"))
        await fleet.add("small-path", extra=(f"ForceCommand {CASES}/A-064/cleanpath.sh",))
        await fleet.add("empty-path", extra=(f"ForceCommand {empty_path}",))
        homeless = await fleet.add("homeless", extra=sshd_lines("A-069"))
        noexec = await fleet.add("noexec")
        deep = await fleet.add("deep")
        text = changed(fleet, "deep", f"agent_dir: ~/{DEEP}", body=TINY)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "calyx-test", noexec.home], check=True)
        try:
            ended = await run(text, tmp_path)
        finally:
            subprocess.run(["umount", "-l", noexec.home], check=True)
        assert (deep.home / DEEP).is_dir()
        shutil.rmtree(deep.home / DEEP.split("/")[0])
        await nothing_left(fleet)
        journal = [json.loads(line) for line in (ended.folder / "journal.jsonl").read_text().splitlines()]
    for place in {Path(e["hello"]["path"]) for e in journal if e["event"] == "deployed"}:
        if place.is_relative_to("/var/tmp"):  # of the guests without a usable home
            place.unlink()
            place.parent.rmdir()
    assert ended.status == 0, ended.out + ended.err
    assert {outcome.state for outcome in ended.outcomes.values()} == {"measured"}
    assert len(ended.outcomes) == 11
    notes = {name: " ".join(outcome.notes) for name, outcome in ended.outcomes.items()}
    assert "Notice: only vfolder paths are persistent" in notes["noisy"]
    assert "HOME (/nonexistent) does not exist" in notes[homeless.name]
    assert "no program starts there (mounted noexec?)" in notes[noexec.name]
    told = {name for name, note in notes.items() if note}
    assert told == {"noisy", "homeless", "noexec"}, notes


# --- fio and PATH ------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_fio_is_found_beyond_path_and_its_absence_names_the_path(tmp_path: Path) -> None:
    """A-064: in ~/.local/bin with a PATH that has no fio at all; then nowhere, with the PATH that was seen."""
    need_root("unshare", "fio")
    fio = Path(shutil.which("fio") or "")
    hide = 'for f in $(which -a fio); do mount --bind /dev/null "$f"; done; exec "$0"'
    body = TINY.replace("baselines: none", "baselines: {engines: [fio-io_uring], when_missing: skip}")
    async with guests_up(1, tmp_path) as fleet:
        words = f"unshare --mount /bin/sh -c {shlex.quote(hide)} {CASES}/A-064/cleanpath.sh"
        local = await fleet.add("local", extra=(f"ForceCommand {words}",))
        await fleet.add("nowhere", extra=(f"ForceCommand {words}",))
        (local.home / ".local/bin").mkdir(parents=True)
        shutil.copy(fio, local.home / ".local/bin/fio")
        ended = await run(inventory_yaml(fleet, body=body), tmp_path)
        shutil.rmtree(local.home / ".local")
        await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    engines = {guest: {m.engine for m in ended.record.measurements if m.guest == guest} for guest in ended.outcomes}
    assert engines["local"] == {"calyx", "fio-io_uring"}
    assert engines["nowhere"] == {"calyx"}
    facts = json.loads((ended.folder / "facts.json").read_text())
    assert f"{local.home}/.local/bin/fio" in json.dumps(facts["local"]), "the absolute path is shown"
    assert "fio is not installed (looked in PATH /usr/bin:/bin" in " ".join(ended.outcomes["nowhere"].notes)


# --- each step made to fail --------------------------------------------------------------------------------------

FAIL_AT = """\
#!/bin/sh
case $SSH_ORIGINAL_COMMAND in
*calyx-probe*) step=probe ;;
*calyx-put*) step=put ;;
*calyx-agent-*) step=start ;;
*) step=other ;;
esac
[ $step = STEP ] && { echo "/etc/policy: $step is forbidden" >&2; exit 5; }
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""


async def test_a_step_that_fails_is_named_with_what_the_guest_said(tmp_path: Path) -> None:
    """A-057: probe, upload and start fail in turn: guest, step, status or command, and the words on stderr, one line each."""
    async with guests_up(1, tmp_path) as fleet:
        for step in ("probe", "put", "start"):
            script = tmp_path / step
            script.write_text(FAIL_AT.replace("STEP", step))
            script.chmod(0o755)
            await fleet.add(step, extra=(f"ForceCommand {script}",))
        await fleet.add("prepare")
        fleet.guests[-1].data.rmdir()
        fleet.guests[-1].data.write_text("a file where the target should be")
        ended = await run(inventory_yaml(fleet, body=TINY), tmp_path)
        assert fleet.guests[-1].data.read_text() == "a file where the target should be"
        fleet.guests[-1].data.unlink()
        await nothing_left(fleet)
    said = ended.out + ended.err
    assert ended.status == 3, said
    reasons = {name: outcome.reason for name, outcome in ended.outcomes.items() if outcome.state == "lost"}
    assert reasons["probe"] == (
        "the login runs no command (it says '/etc/policy: probe is forbidden', status 5): is it restricted?"
    )
    assert reasons["put"].startswith("cannot write /")
    assert "/etc/policy: put is forbidden" in reasons["put"]
    assert "the agent ended with status 5: /etc/policy: start is forbidden" in reasons["start"]
    assert "is no directory" in reasons["prepare"] or "not a directory" in reasons["prepare"].lower()
    assert {ended.outcomes[name].step for name in ("probe", "put", "start")} == {"deploy"}
    for name in reasons:
        assert len(ended.failure_lines(name)) == 1, said


async def test_a_sync_that_takes_long_has_a_time_of_its_own(tmp_path: Path) -> None:
    """A-058: the kernel takes 6 s for each `syncfs`: a round waits no longer than `settle`, and is measured all the same."""
    need("strace")
    slow = "strace -f -qq -o /dev/null -e trace=syncfs -e inject=syncfs:delay_enter=6000000 /bin/sh -c"
    async with guests_up(1, tmp_path) as fleet:
        await fleet.add("slow", extra=forced(slow))
        ended = await run(inventory_yaml(fleet, body=TINY.replace("settle: 0", "settle: 1s")), tmp_path)
        await nothing_left(fleet, within_s=15.0)  # strace waits for the call that it delays
    assert ended.status == 0, ended.out + ended.err
    heads = {path.parent.name: json.loads(path.read_text()) for path in ended.folder.glob("raw/*/*/messages.json")}
    settled = heads["slow"]["messages"]["settled"]
    assert settled["idle"] is False
    assert 0.9e9 < settled["waited_ns"] < 5e9


# --- clocks and names --------------------------------------------------------------------------------------------


async def test_guests_of_other_clocks_and_time_zones_start_together(tmp_path: Path) -> None:
    """A-054: monotonic clocks +3 s, -90 s and +1 h off, one in another time zone; one start line, no negative duration."""
    need_root("unshare")
    lines = (CASES / "A-054" / "skew.yaml").read_text().splitlines()
    given = {name: float(offset) for name, offset in (line.split(": ") for line in lines)}
    assert given == {"vm1": 0.0, "vm2": 3.0, "vm3": -90.0, "vm4": 3600.0}
    async with guests_up(1, tmp_path) as fleet:
        for name, offset in given.items():
            shift = ["unshare", "--time", "--fork", f"--monotonic={offset:.0f}", f"--boottime={offset:.0f}"]
            probe = subprocess.run([*shift, "true"], capture_output=True, text=True, timeout=20)
            if probe.returncode != 0:
                pytest.skip(f"no time namespaces here: {probe.stderr.strip()}")
            words = shlex.join([*shift, "--kill-child", "/bin/sh", "-c"])
            await fleet.add(name, extra=forced(words), environment={"TZ": "Asia/Tokyo"} if name == "vm2" else {})
        ended = await run(inventory_yaml(fleet, body=TINY), tmp_path)
        await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    heads = {path.parent.name: json.loads(path.read_text()) for path in ended.folder.glob("raw/*/*/messages.json")}
    offsets = {guest: head["clock"]["offset_ns"] / 1e9 for guest, head in heads.items()}
    for name, offset in given.items():
        assert offsets[name] == pytest.approx(offset, abs=0.5)
    assert all(m.window_end_ns > m.started_ns for m in ended.record.measurements if m.started_ns is not None)
    starts = [m.started_ns for m in ended.record.measurements if m.started_ns is not None]
    assert len(starts) == 5
    assert max(starts) - min(starts) < 50_000_000, "on one time axis"
    (whole,) = ended.summary.fleet
    assert whole.overlap is not None
    assert whole.overlap > 0.95


@pytest.mark.parametrize("names", [("10", "10", "10"), pytest.param(("10", "10", "localhost"), marks=pytest.mark.slow)])
async def test_guests_of_one_host_name_are_three_results(names: tuple[str, ...], tmp_path: Path) -> None:
    """A-056: cloned machines, by their kernel's host name and by `hostname`; what counts is the name in the inventory."""
    need_root("unshare")
    async with guests_up(1, tmp_path) as fleet:
        shims = f"{CASES}/A-056"
        for number, name in enumerate(names, start=1):
            inner = f'hostname {name}; PATH={shims}:$PATH exec /bin/sh -c "$0"'
            await fleet.add(f"vm{number}", extra=forced(f"unshare --uts /bin/sh -c {shlex.quote(inner)}"))
        ended = await run(inventory_yaml(fleet, body=TINY), tmp_path)
        await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    assert [ended.record.facts[f"vm{n}"]["hostname"] for n in (1, 2, 3)] == list(names)
    assert {m.guest for m in ended.record.measurements} == {"guest1", "vm1", "vm2", "vm3"}
    assert {path.name for path in ended.folder.glob("raw/*/*")} == {"guest1", "vm1", "vm2", "vm3"}


# --- rights ------------------------------------------------------------------------------------------------------


@pytest.fixture
def open_base() -> Iterator[Path]:
    """A directory whose parents let every user pass."""
    base = Path(tempfile.mkdtemp(prefix="calyx-test-", dir="/var/tmp"))
    base.chmod(0o755)
    yield base
    shutil.rmtree(base)


def _give_to_nobody(fleet: LoopbackFleet, guest: LoopbackGuest) -> None:
    for path in (fleet.directory, guest.directory):
        path.chmod(0o755)
    for path in (guest.home, guest.data):
        os.chown(path, 65534, 65534)


async def test_the_agent_becomes_root_only_when_asked_to(open_base: Path) -> None:
    """`become: sudo -n` on one guest: its agent runs below sudo; the other's does not; where sudo would ask, that is told."""
    need_root("setpriv")
    need("sudo")
    async with guests_up(1, open_base) as fleet:
        root = await fleet.add("root")
        nobody = await fleet.add("nobody", extra=forced(f"{AS_NOBODY} /bin/sh -c"))
        text = inventory_yaml(fleet, body=TINY.replace("0.6s", "2s"))
        for name in ("root", "nobody"):
            text = text.replace(f"  {name}:\n", f"  {name}:\n    become: sudo -n\n")
        _give_to_nobody(fleet, nobody)
        started = await start_run(text, open_base)
        await started.until("round 1 of")
        words = left_processes(fleet).values()
        ended = await started.ended()
        await nothing_left(fleet)
    assert ended.status == 3, ended.out + ended.err
    assert any(line.startswith("sudo -n /") and str(root.home) in line for line in words), words
    assert not any("sudo" in line and f"{fleet.directory}/guest1/" in line for line in words), words
    states = {name: outcome.state for name, outcome in ended.outcomes.items()}
    assert states == {"guest1": "measured", "root": "measured", "nobody": "lost"}
    assert "password is required" in ended.outcomes["nobody"].reason


async def test_a_login_without_any_right_is_measured_as_any_other(open_base: Path) -> None:
    """No root on the guest: files, I/O and fio are those of a user who may do nothing else; nothing is asked of sudo."""
    need_root("setpriv", "fio")
    body = TINY.replace("baselines: none", "baselines: [fio-io_uring]")
    async with guests_up(1, open_base) as fleet:
        plain = await fleet.add("plain", extra=forced(f"{AS_NOBODY} /bin/sh -c"))
        _give_to_nobody(fleet, plain)
        ended = await run(inventory_yaml(fleet, body=body), open_base)
        await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    assert ended.record.facts["plain"]["uid"] == 65534
    assert {m.engine for m in ended.record.measurements if m.guest == "plain"} == {"calyx", "fio-io_uring"}


# --- many, large, deaf -------------------------------------------------------------------------------------------


async def test_thirty_guests_get_through_one_narrow_jump_host(fleet: LoopbackFleet, pool: Pool) -> None:
    """A-093: MaxStartups 3:100:5 and MaxSessions 10; all thirty run a command at once."""
    hop = await fleet.add("hop", extra=("MaxStartups 3:100:5", "MaxSessions 10"))
    target = replace(fleet.connection(fleet.guests[0]), jump=fleet.connection(hop))
    transports = await asyncio.gather(*(connect(target, pool=pool) for _ in range(30)))
    done = await asyncio.gather(*(way.run(("echo", str(n)), timeout_s=30) for n, way in enumerate(transports)))
    assert [each.stdout for each in done] == [b"%d\n" % n for n in range(30)]
    await asyncio.gather(*(way.close() for way in transports))


async def test_a_flood_is_read_in_bounded_memory(fleet: LoopbackFleet, pool: Pool) -> None:
    """A-095: 200 MiB from each of four guests at once: what is kept is OUTPUT_BYTES_MAX each, at 20 MiB/s or more from each."""
    guests = [fleet.guests[0], *[await fleet.add(f"more{n}") for n in range(3)]]
    ways = [await connect(fleet.connection(guest), pool=pool) for guest in guests]
    before = peak_mib(anew=True)
    command = ("head", "-c", str(200 << 20), "/dev/zero")
    began = asyncio.get_running_loop().time()
    done = await asyncio.gather(*(way.run(command, timeout_s=60) for way in ways))
    took = asyncio.get_running_loop().time() - began
    grown = peak_mib() - before
    assert [(each.status, len(each.stdout)) for each in done] == [(0, OUTPUT_BYTES_MAX)] * 4
    assert grown < 100, f"{grown} MiB"
    assert took < 200 / 20
    await asyncio.gather(*(way.close() for way in ways))


def peak_mib(*, anew: bool = False) -> int:
    """The most memory that this process held at once, since its beginning or since this was last asked `anew`."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) >> 10


async def test_a_transfer_that_is_cut_is_not_taken_for_whole(
    fleet: LoopbackFleet, guest: LoopbackGuest, connection: Connection, pool: Pool
) -> None:
    """A-095: the server dies in the middle of an upload: a failure, and neither the file nor half of it is there."""
    transport = await connect(connection, pool=pool)
    path = guest.home / "agent"
    put = asyncio.create_task(transport.put(bytes(200 << 20), str(path), mode=0o700, timeout_s=60))
    while not any(part.stat().st_size > 1 << 20 for part in guest.home.glob("agent.part.*")):
        await asyncio.sleep(0.005)
    await fleet.stop(guest)
    with pytest.raises(AgentError, match=f"the connection was lost while {path} was being written"):
        await put
    assert await until_gone(str(path))
    assert list(guest.home.iterdir()) == []
    short = subprocess.run(put_command(str(path), 10, 0o700), input=b"12345", capture_output=True)
    assert (short.returncode, short.stderr) == (1, b"only 5 of 10 bytes arrived\n")
    assert list(guest.home.iterdir()) == []
    unheard, tell = os.pipe()  # nobody hears of it any more, as after a cut
    with subprocess.Popen(put_command(str(path), 10, 0o700), stdin=subprocess.PIPE, stderr=tell) as process:
        os.close(unheard)
        process.communicate(b"12345")
    os.close(tell)
    assert list(guest.home.iterdir()) == []


async def test_a_server_that_is_deaf_to_signals_cannot_hold_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-089: a server that does nothing about signals: closing is bounded, and a reader of stdin ends by its end."""
    monkeypatch.setattr("calyx_orch.transport.ssh.session.CLOSE_TIMEOUT_S", 0.3)
    async with LoopbackFleet(1, base=tmp_path, sshd="") as deaf, Pool() as pool:
        transport = await connect(deaf.connection(deaf.guests[0]), pool=pool)
        sleeping = f"47.0895{os.getpid():07}"
        stuck = await transport.open(("sleep", sleeping))
        reader = await transport.open(("sh", "-c", f"cat >/dev/null; : marker-{sleeping}"))
        while not running(f"sleep\x00{sleeping}"):
            await asyncio.sleep(0.01)
        async with asyncio.timeout(5):
            await stuck.close()
            await reader.close()
        assert running(f"sleep\x00{sleeping}"), "this server did nothing"
        assert await until_gone(f"marker-{sleeping}")
        assert (await transport.run(("true",), timeout_s=5)).status == 0
        await transport.close()
    assert not running(f"sleep\x00{sleeping}")
