"""The local machine as a guest: the same seam over a real subprocess, so demo, tests and calibration need no SSH."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE
from collections.abc import Sequence

from calyx_orch.errors import AgentError, ReachError
from calyx_orch.model import Connection
from calyx_orch.transport import CLOSE_TIMEOUT_S, OUTPUT_BYTES_MAX, Channel, Completed, Transport
from calyx_orch.transport.lines import Capped, LineBuffer, Tail
from calyx_orch.transport.put import check_put, put_command

_READ_BYTES = 64 * 1024
END_KNOWN_WITHIN_S = 1.0


async def _start(argv: Sequence[str]) -> asyncio.subprocess.Process:
    try:
        # Its own session: Ctrl-C at the terminal is for the controller, which ends its guests in order.
        return await asyncio.create_subprocess_exec(*argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True)
    except OSError as error:
        raise AgentError(f"cannot start {argv[0]}: {error.strerror}") from None


def _status(returncode: int | None) -> int | None:
    return 128 - returncode if returncode is not None and returncode < 0 else returncode


class LocalTransport:
    """The local machine."""

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        """Run a program to its end; see Transport."""
        process = await _start(argv)
        out, err = Capped(OUTPUT_BYTES_MAX), Capped(OUTPUT_BYTES_MAX)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(_feed(process, stdin), _drain(process.stdout, out), _drain(process.stderr, err))
                await process.wait()
        except TimeoutError:
            raise AgentError(f"{argv[0]} did not end within {timeout_s:.0f} s") from None
        finally:
            await _end(process, 0.0)
        return Completed(_status(process.returncode), out.data, err.data)

    async def put(self, data: bytes, path: str, *, mode: int, timeout_s: float) -> None:
        """Write a file whole; see Transport."""
        check_put(await self.run(put_command(path, len(data), mode), stdin=data, timeout_s=timeout_s), path)

    async def open(self, argv: Sequence[str]) -> Channel:
        """Start a program and keep a line channel to it."""
        return LocalChannel(await _start(argv))

    async def close(self) -> None:
        """Nothing is held."""


class LocalChannel:
    """A line channel to a child process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lines = LineBuffer()
        self._tail = Tail()
        self._stderr = asyncio.create_task(_drain(process.stderr, self._tail))

    async def send(self, data: bytes) -> None:
        """Write to its stdin; see Channel."""
        stdin = self._process.stdin
        if stdin is None or stdin.is_closing():
            raise AgentError("the program has ended")
        try:
            stdin.write(data)
            await stdin.drain()
        except OSError:
            raise AgentError("the program has ended") from None

    async def receive(self) -> bytes | None:
        """One line of its stdout; see Channel."""
        stdout = self._process.stdout
        while not self._lines.is_ready:
            data = await stdout.read(_READ_BYTES) if stdout is not None else b""
            if data:
                self._lines.feed(data)
            else:
                with contextlib.suppress(TimeoutError):  # its end is known a moment after its last word
                    await asyncio.wait_for(self._process.wait(), END_KNOWN_WITHIN_S)
                self._lines.feed_eof()
        return self._lines.take()

    async def close(self) -> None:
        """Close stdin, wait, then TERM, then KILL."""
        drain = asyncio.create_task(_drain(self._process.stdout, None))
        try:
            await _end(self._process, CLOSE_TIMEOUT_S)
        finally:
            drain.cancel()
            await asyncio.wait({drain, self._stderr}, timeout=END_KNOWN_WITHIN_S)
            self._stderr.cancel()  # a descendant, or a program that stands still, may hold it open

    def stderr_tail(self) -> bytes:
        """The last of its stderr."""
        return self._tail.data

    @property
    def exit_status(self) -> int | None:
        """Its status; None while it runs."""
        return _status(self._process.returncode)


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    if process.stdin is None:
        return
    with contextlib.suppress(OSError):  # a program may end without reading all of it
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _drain(stream: asyncio.StreamReader | None, into: Capped | Tail | None) -> None:
    while stream is not None and (data := await stream.read(_READ_BYTES)):
        if into is not None:
            into.feed(data)


async def _end(process: asyncio.subprocess.Process, grace_s: float) -> None:
    """Close stdin and wait `grace_s`, then TERM and at most a second, then KILL, each for the whole process group."""
    if process.stdin is not None:
        process.stdin.close()
    for wait_s, number in ((grace_s, signal.SIGTERM), (min(grace_s, 1.0), signal.SIGKILL), (1.0, None)):
        if process.returncode is not None:
            return
        try:
            async with asyncio.timeout(wait_s):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                if number is not None:
                    os.killpg(process.pid, number)


class LocalCarrier:
    """Reaches this machine."""

    async def connect(self, connection: Connection) -> Transport:
        """The local machine; a jump host makes no sense here."""
        if connection.jump is not None:
            raise ReachError(f"{connection.address} is this machine (transport: local): it cannot have a jump host")
        return LocalTransport()

    async def close(self) -> None:
        """Nothing is shared."""
