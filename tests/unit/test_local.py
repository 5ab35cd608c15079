"""The local machine as a guest, by real subprocesses."""

# ruff: noqa: ASYNC240 - a look into a directory of the test

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from calyx_orch.errors import AgentError, ReachError
from calyx_orch.model import Connection, TransportKind
from calyx_orch.transport import Pool, Transport, connect
from calyx_orch.transport.ssh.session import command_line

LOCAL = Connection(address="here", transport=TransportKind.LOCAL)


@pytest.fixture
async def here() -> AsyncIterator[Transport]:
    async with Pool() as pool:
        transport = await connect(LOCAL, pool=pool)
        yield transport
        await transport.close()


async def test_status_and_outputs_are_told(here: Transport) -> None:
    done = await here.run(("sh", "-c", r"cat; printf '\377' >&2; exit 3"), stdin=b"in", timeout_s=10)
    assert (done.status, done.stdout, done.stderr) == (3, b"in", b"\xff")
    assert (await here.run(("sh", "-c", "kill -KILL $$"), timeout_s=10)).status == 128 + signal.SIGKILL


async def test_a_program_that_reads_no_stdin_is_no_failure(here: Transport) -> None:
    assert (await here.run(("true",), stdin=b"x" * 10_000_000, timeout_s=10)).status == 0


async def test_a_program_that_is_not_there_is_told(here: Transport) -> None:
    with pytest.raises(AgentError, match="cannot start /no/such/program: No such file or directory"):
        await here.run(("/no/such/program",), timeout_s=10)


async def test_a_program_that_hangs_is_ended(here: Transport) -> None:
    with pytest.raises(AgentError, match="did not end within"):
        await here.run(("sh", "-c", "trap '' TERM; echo $$ > /dev/null; while :; do sleep 0.05; done"), timeout_s=0.1)


async def test_a_flood_of_output_is_cut(here: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calyx_orch.transport.local.OUTPUT_BYTES_MAX", 1000)
    assert (await here.run(("seq", "1", "100000"), timeout_s=10)).stdout == b"\n".join(
        b"%d" % n for n in range(1, 300)
    )[:1000]


async def test_a_channel_carries_lines_and_ends_with_stdin(here: Transport) -> None:
    channel = await here.open(("sh", "-c", "cat; echo bye >&2"))
    await channel.send(b"one\ntwo\nrest")
    assert [await channel.receive(), await channel.receive()] == [b"one", b"two"]
    await channel.close()
    assert (channel.exit_status, channel.stderr_tail()) == (0, b"bye\n")
    with pytest.raises(AgentError, match="ended"):
        await channel.send(b"x")


async def test_a_channel_to_a_program_that_will_not_end_is_closed(
    here: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calyx_orch.transport.local.CLOSE_TIMEOUT_S", 0.05)
    channel = await here.open(("sh", "-c", "trap '' TERM; echo $$; while :; do sleep 0.05; done"))
    pid = int(await channel.receive() or b"")
    await channel.close()
    assert channel.exit_status == 128 + signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_long_line_is_an_error(here: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calyx_orch.transport.local.CLOSE_TIMEOUT_S", 0.05)
    channel = await here.open(("sh", "-c", "head -c 1000000 /dev/zero; sleep 60"))
    with pytest.raises(AgentError, match="longer than 65 KiB"):
        await channel.receive()
    await asyncio.wait_for(channel.close(), 10)


async def test_a_file_is_put_whole_or_not_at_all(here: Transport, tmp_path: Path) -> None:
    await here.put(b"\x00\xff", str(tmp_path / "a b"), mode=0o640, timeout_s=10)
    assert (tmp_path / "a b").read_bytes() == b"\x00\xff"
    assert (tmp_path / "a b").stat().st_mode & 0o777 == 0o640
    (tmp_path / "file").touch()
    with pytest.raises(AgentError, match=r"cannot write .*/file/x: "):
        await here.put(b"x", str(tmp_path / "file" / "x"), mode=0o600, timeout_s=10)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a b", "file"]


async def test_a_jump_host_makes_no_sense_here() -> None:
    async with Pool() as pool:
        with pytest.raises(ReachError, match="cannot have a jump host"):
            await connect(Connection(address="here", transport=TransportKind.LOCAL, jump=Connection("x")), pool=pool)


@pytest.mark.parametrize(
    "argument", ["plain", "", "a b", "it's", '"', "$x `y`", "\\", "!", "a\nb\n", "é", "\udcff", "*", "~"]
)
def test_a_command_line_survives_a_shell(argument: str) -> None:
    """What the login shell hands on is what was meant, byte for byte."""
    line = command_line(("printf", "%s|", argument))
    told = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=True).stdout
    assert told == os.fsencode(argument) + b"|"
    inner = line.removeprefix("exec /bin/sh -c '").removesuffix("'")
    assert not set("'!\n") & set(inner), "what sh, csh and fish would each read differently"
