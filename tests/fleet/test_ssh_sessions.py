"""Programs and channels over a real sshd."""

# ruff: noqa: ASYNC110, ASYNC240 - processes of a guest can only be looked for

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from calyx_orch.commands.loopback import LoopbackFleet, LoopbackGuest
from calyx_orch.errors import AgentError, ReachError
from calyx_orch.model import Connection
from calyx_orch.transport import LINE_BYTES_MAX, Pool, connect
from fleet.conftest import running, sshd_lines, until_gone

pytestmark = pytest.mark.fleet
EVERY_BYTE = "".join(map(chr, range(1, 128))) + "é\udcff"
MARK = f"47.{os.getpid():07}"  # so long programs sleep that are looked for, and those of no other session of tests


async def test_arguments_of_any_bytes_arrive_unharmed(connection: Connection, pool: Pool) -> None:
    """Quotes, backslashes, newlines, `!` and bytes that are no UTF-8 reach the program as they were given."""
    transport = await connect(connection, pool=pool)
    for argument in (EVERY_BYTE, "", "-n", "a'b\"c", "\\\\n \\' !! $HOME `id`", "two\nlines\n"):
        done = await transport.run(("printf", "%s|", argument, "end"), timeout_s=10)
        assert done.stdout == os.fsencode(argument) + b"|end|", argument
    await transport.close()


async def test_output_that_is_no_utf8_is_only_bytes(connection: Connection, pool: Pool) -> None:
    """A byte that cannot be decoded neither raises nor closes the connection."""
    transport = await connect(connection, pool=pool)
    done = await transport.run(("printf", r"\377\200"), timeout_s=10)
    assert (done.status, done.stdout) == (0, b"\xff\x80")
    assert (await transport.run(("true",), timeout_s=10)).status == 0
    await transport.close()


async def test_status_and_both_outputs_are_told(connection: Connection, pool: Pool) -> None:
    transport = await connect(connection, pool=pool)
    done = await transport.run(("sh", "-c", "cat; echo err >&2; exit 3"), stdin=b"in", timeout_s=10)
    assert (done.status, done.stdout, done.stderr) == (3, b"in", b"err\n")
    killed = await transport.run(("sh", "-c", "kill -TERM $$"), timeout_s=10)
    assert killed.status == 128 + signal.SIGTERM
    await transport.close()


async def test_a_connection_that_breaks_during_a_command_is_a_failure(
    fleet: LoopbackFleet, guest: LoopbackGuest, connection: Connection, pool: Pool
) -> None:
    """An empty output with no status is not mistaken for success (case A-088)."""
    transport = await connect(connection, pool=pool)
    command = asyncio.create_task(transport.run(("sh", "-c", f"echo started; exec sleep {MARK}88"), timeout_s=30))
    while not running(f"sleep\x00{MARK}88"):
        await asyncio.sleep(0.01)
    await fleet.stop(guest)
    done = await command
    assert done.status is None
    with pytest.raises(ReachError, match="lost"):
        await transport.run(("true",), timeout_s=5)


async def test_a_command_that_hangs_is_given_up_after_its_time(connection: Connection, pool: Pool) -> None:
    transport = await connect(connection, pool=pool)
    with pytest.raises(AgentError, match="did not end within 0 s"):
        await transport.run(("sleep", "30"), timeout_s=0.2)
    assert (await transport.run(("true",), timeout_s=10)).status == 0
    await transport.close()


async def test_sessions_wait_for_their_turn_under_max_sessions(fleet: LoopbackFleet, pool: Pool) -> None:
    """Six commands at once where two sessions are allowed: all succeed, in turns (case A-061)."""
    narrow = await fleet.add("narrow", extra=sshd_lines("A-061"))
    transport = await connect(fleet.connection(narrow), pool=pool)
    done = await asyncio.gather(*(transport.run(("sh", "-c", f"echo {n}"), timeout_s=20) for n in range(6)))
    assert [each.stdout for each in done] == [b"%d\n" % n for n in range(6)]
    await transport.close()


async def test_no_free_session_is_said_so(fleet: LoopbackFleet, pool: Pool) -> None:
    """With MaxSessions 1 and a channel open, a command fails after its time with a reason, and works after the close."""
    single = await fleet.add("single", extra=("MaxSessions 1",))
    transport = await connect(fleet.connection(single), pool=pool)
    channel = await transport.open(("cat",))
    with pytest.raises(AgentError, match="MaxSessions"):
        await transport.run(("true",), timeout_s=0.5)
    await channel.close()
    assert (await transport.run(("true",), timeout_s=10)).status == 0
    await transport.close()


async def test_max_sessions_of_none_is_a_refusal(fleet: LoopbackFleet, pool: Pool) -> None:
    none = await fleet.add("none", extra=("MaxSessions 0",))
    transport = await connect(fleet.connection(none), pool=pool)
    with pytest.raises(ReachError, match="refuses to run a command"):
        await transport.run(("true",), timeout_s=10)
    await transport.close()


async def test_a_channel_carries_lines_both_ways(connection: Connection, pool: Pool) -> None:
    transport = await connect(connection, pool=pool)
    channel = await transport.open(("sh", "-c", "cat; echo last words >&2; exit 5"))
    await channel.send(b"one\ntw")
    assert await channel.receive() == b"one"
    await channel.send(b"o\nrest")
    assert await channel.receive() == b"two"
    await channel.close()
    assert [await channel.receive(), await channel.receive()] == [b"rest", None]
    assert (channel.exit_status, channel.stderr_tail()) == (5, b"last words\n")
    with pytest.raises(AgentError, match="ended"):
        await channel.send(b"x")
    await transport.close()


async def test_a_line_without_an_end_takes_no_memory(connection: Connection, pool: Pool) -> None:
    """64 MiB without a newline: an error, not a buffer."""
    transport = await connect(connection, pool=pool)
    channel = await transport.open(("sh", "-c", "head -c 67108864 /dev/zero; sleep 30"))
    with pytest.raises(AgentError, match=f"longer than {LINE_BYTES_MAX // 1024} KiB"):
        await channel.receive()
    await transport.close()


async def test_a_flood_of_lines_makes_the_guest_wait(connection: Connection, pool: Pool) -> None:
    """Lines that nobody takes are held back at the guest, and none is lost."""
    transport = await connect(connection, pool=pool)
    channel = await transport.open(("sh", "-c", "seq 1 2000000"))
    assert await channel.receive() == b"1"
    async with asyncio.timeout(10):
        while not channel._paused:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)  # for what comes all the same
    held = channel._lines.held_bytes  # type: ignore[attr-defined]
    assert held < 6 * 1024 * 1024, "16 MB were sent"
    last, count = b"", 1
    while (line := await channel.receive()) is not None:
        last, count = line, count + 1
    assert (last, count) == (b"2000000", 2_000_000)
    await transport.close()


async def test_a_program_that_ignores_the_end_of_stdin_cannot_hold_us(
    connection: Connection, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing a channel ends within a bounded time, whatever the program does (case A-089)."""
    monkeypatch.setattr("calyx_orch.transport.ssh.session.CLOSE_TIMEOUT_S", 0.2)
    transport = await connect(connection, pool=pool)
    channel = await transport.open(("sh", "-c", f"trap '' TERM; echo up; exec sleep {MARK}89"))
    assert await channel.receive() == b"up"
    async with asyncio.timeout(5):
        await channel.close()
    await transport.close()
    for pid in running(f"sleep\x00{MARK}89"):
        os.kill(pid, signal.SIGKILL)


async def test_a_reader_of_stdin_ends_with_the_connection(connection: Connection, pool: Pool) -> None:
    """A program that reads its stdin, as the agent does, is gone after the connection was cut without a goodbye (A-090)."""
    transport = await connect(connection, pool=pool)
    channel = await transport.open(("sh", "-c", f"echo up; cat >/dev/null; : marker-{MARK}"))
    assert await channel.receive() == b"up"
    assert running(f"marker-{MARK}")
    transport._connection.abort()  # type: ignore[attr-defined]
    assert await channel.receive() is None
    assert channel.exit_status is None
    assert await until_gone(f"marker-{MARK}")


async def test_a_dead_connection_is_noticed(
    guest: LoopbackGuest, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest that is paused answers no keep-alive: its channel ends within KEEPALIVE_S * (KEEPALIVE_COUNT + 1) (case A-087)."""
    keepalive_s = 0.5
    monkeypatch.setattr("calyx_orch.transport.ssh.settings.KEEPALIVE_S", keepalive_s)
    async with Pool() as pool:
        transport = await connect(connection, pool=pool)
        channel = await transport.open(("cat",))
        await channel.send(b"up\n")
        assert await channel.receive() == b"up"
        assert guest.process is not None
        sessions = _children(guest.process.pid)
        for pid in sessions:
            os.kill(pid, signal.SIGSTOP)
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(5):
                assert await channel.receive() is None
            assert channel.exit_status is None
            assert asyncio.get_running_loop().time() - began < keepalive_s * 3.75
        finally:
            for pid in sessions:
                os.kill(pid, signal.SIGCONT)
        await transport.close()


def _children(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children] + [below for child in children for below in _children(int(child))]


async def test_a_file_is_put_whole_or_not_at_all(guest: LoopbackGuest, connection: Connection, pool: Pool) -> None:
    transport = await connect(connection, pool=pool)
    data = bytes(range(256)) * 5000
    path = guest.home / "it's a file"
    await transport.put(data, str(path), mode=0o700, timeout_s=20)
    assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o700
    with pytest.raises(AgentError, match=r"cannot write .*/missing/file: .*[Dd]irectory"):
        await transport.put(data, str(guest.home / "missing" / "file"), mode=0o700, timeout_s=20)
    assert [entry.name for entry in guest.home.iterdir()] == ["it's a file"]
    await transport.close()


async def test_a_running_program_can_be_replaced(guest: LoopbackGuest, connection: Connection, pool: Pool) -> None:
    """No `Text file busy`: the new file gets its own inode, the old program runs on (case A-073)."""
    transport = await connect(connection, pool=pool)
    path, program = guest.home / "program", Path("/bin/cat").read_bytes()
    await transport.put(program, str(path), mode=0o700, timeout_s=20)
    channel = await transport.open((str(path),))
    await channel.send(b"old\n")
    assert await channel.receive() == b"old"
    await transport.put(program + b"new", str(path), mode=0o700, timeout_s=20)
    await channel.send(b"still\n")
    assert await channel.receive() == b"still"
    assert path.read_bytes() == program + b"new"
    await channel.close()
    await transport.close()


async def test_a_server_without_sftp_takes_files(fleet: LoopbackFleet, pool: Pool) -> None:
    """Loopback guests have no SFTP subsystem at all; a broken one changes nothing either (case A-065)."""
    broken = await fleet.add("broken", extra=sshd_lines("A-065", "sshd_extra_broken.conf"))
    transport = await connect(fleet.connection(broken), pool=pool)
    await transport.put(b"data", str(broken.home / "file"), mode=0o600, timeout_s=20)
    assert (broken.home / "file").read_bytes() == b"data"
    await transport.close()


def test_a_port_of_the_fleet_is_free_again(tmp_path: Path) -> None:
    """After the fleet: no process of it, no file of it, and its port can be bound."""

    async def run() -> tuple[str, int, str]:
        async with LoopbackFleet(2, base=tmp_path) as fleet, Pool() as pool:
            transport = await connect(fleet.connection(fleet.guests[0]), pool=pool)
            await transport.open(("sh", "-c", f"trap '' TERM; setsid sleep {MARK}01 & sleep {MARK}02"))
            while len(running(f"sleep\x00{MARK}0")) < 2:
                await asyncio.sleep(0.01)
            return fleet.guests[0].address, fleet.guests[0].port, str(fleet.directory)

    address, port, directory = asyncio.run(run())
    assert not running(directory)
    assert not running(f"sleep\x00{MARK}0")
    assert list(tmp_path.glob("calyx-orch-guests-*")) == []
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, port))
