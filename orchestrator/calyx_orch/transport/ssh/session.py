"""Programs and line channels on an open SSH connection.

Commands go through whatever login shell the user has (sh, fish, csh): see `command_line`. Sessions per connection are
limited by the server (MaxSessions); the limit is learnt from its first refusal, and commands wait for their turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
from collections.abc import Callable, Sequence

import asyncssh

from calyx_orch.errors import AgentError, ReachError
from calyx_orch.transport import CLOSE_TIMEOUT_S, OUTPUT_BYTES_MAX, Channel, Completed
from calyx_orch.transport.lines import Capped, LineBuffer, Tail
from calyx_orch.transport.put import check_put, put_command

HELD_BYTES_MAX = 1024 * 1024  # lines not yet received; above it the guest is made to wait
OPEN_TIMEOUT_S = 20.0
END_KNOWN_WITHIN_S = 2.0
_PLAIN = re.compile(r"[A-Za-z0-9_./:@,+-][A-Za-z0-9_./:@,+= -]*")
_SAFE_IN_PRINTF = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@,+= -")
_ESCAPES = {number: f"\\0{number:03o}" for number in range(256) if number not in _SAFE_IN_PRINTF}


def command_line(argv: Sequence[str]) -> str:
    r"""One line that every login shell hands to /bin/sh unharmed.

    Quoting rules of sh, csh and fish agree only on single quotes around text without `'`, `!`, newline and a doubled or
    quote-escaping backslash. So everything unusual travels as octal escapes that printf undoes: `\0047`.
    """
    line = "exec " + shlex.join(argv)
    if _PLAIN.fullmatch(line):
        return line
    escaped = line.encode("utf-8", "surrogateescape").decode("latin-1").translate(_ESCAPES)
    return f'exec /bin/sh -c \'eval "$(printf %b "{escaped}")"\''


class Turns:
    """How many sessions a connection carries at once: as many as asked for until the server refuses one."""

    def __init__(self) -> None:
        self._limit: int | None = None
        self._used = 0
        self._changed = asyncio.Condition()

    @property
    def limit(self) -> int | None:
        """The learnt limit; None while none was met."""
        return self._limit

    async def take(self) -> None:
        """Wait for a turn."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._limit is None or self._used < self._limit)
            self._used += 1

    async def give_back(self, *, refused: bool = False) -> int:
        """End a turn. `refused`: the server had no room for this one, so there is room for no more than the others.

        Returns how many turns are still taken.
        """
        async with self._changed:
            self._used -= 1
            if refused:
                self._limit = max(1, min(self._limit or self._used, self._used))
            self._changed.notify_all()
            return self._used


class _Output(asyncssh.SSHClientSession[bytes]):
    """Hands what comes to two sinks and tells of the end."""

    def __init__(self, out: Callable[[bytes], None], err: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._out, self._err, self._ended = out, err, ended
        self.is_writable = asyncio.Event()
        self.is_writable.set()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        (self._err if datatype == asyncssh.EXTENDED_DATA_STDERR else self._out)(data)

    def pause_writing(self) -> None:
        self.is_writable.clear()

    def resume_writing(self) -> None:
        self.is_writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_writable.set()
        self._ended()


def _status(channel: asyncssh.SSHClientChannel[bytes]) -> int | None:
    code = channel.get_returncode()
    return 128 - code if code is not None and code < 0 else code


class SshTransport:
    """An open connection to one guest. `name` is how sentences call it."""

    def __init__(self, connection: asyncssh.SSHClientConnection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._turns = Turns()
        self._has_worked = False

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        """Run a program to its end; see Transport."""
        out, err, ended = Capped(OUTPUT_BYTES_MAX), Capped(OUTPUT_BYTES_MAX), asyncio.Event()
        channel: asyncssh.SSHClientChannel[bytes] | None = None
        try:
            async with asyncio.timeout(timeout_s):
                channel = await self._session(argv, lambda: _Output(out.feed, err.feed, ended.set))
                if stdin:
                    channel.write(stdin)
                channel.write_eof()
                await ended.wait()
        except TimeoutError:
            why = "did not end" if channel is not None else "found no free session (MaxSessions) or no answer"
            raise AgentError(f"{argv[0]} {why} within {timeout_s:.0f} s on {self._name}") from None
        except OSError:  # it took no more input: how it ended is told a moment later, unless the connection is gone
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), END_KNOWN_WITHIN_S)
            return Completed(_status(channel) if channel is not None else None, out.data, err.data)
        finally:
            if channel is not None:
                channel.close()
                await self._turns.give_back()
        return Completed(_status(channel), out.data, err.data)

    async def put(self, data: bytes, path: str, *, mode: int, timeout_s: float) -> None:
        """Write a file whole; see Transport."""
        check_put(await self.run(put_command(path, len(data), mode), stdin=data, timeout_s=timeout_s), path)

    async def open(self, argv: Sequence[str]) -> Channel:
        """Start a program and keep a line channel to it."""
        line_channel = SshChannel(self._turns)
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                channel = await self._session(argv, line_channel.output)
        except TimeoutError:
            raise ReachError(
                f"{self._name} gave no session within {OPEN_TIMEOUT_S:.0f} s: are all it allows (MaxSessions) in use?"
            ) from None
        line_channel.start(channel)
        return line_channel

    async def _session(self, argv: Sequence[str], output: Callable[[], _Output]) -> asyncssh.SSHClientChannel[bytes]:
        """Open a session when it is its turn. The caller gives the turn back, and bounds the time."""
        command = command_line(argv)
        delay_s = 0.01
        while True:
            await self._turns.take()
            try:
                channel, _ = await self._connection.create_session(output, command, encoding=None, request_pty=False)
            except asyncssh.ChannelOpenError as error:
                others = await self._turns.give_back(refused=True)
                if self._connection.is_closed():
                    raise ReachError(f"the connection to {self._name} was lost") from None
                if not self._has_worked and not others:
                    raise ReachError(f"{self._name} refuses to run a command: {error.reason}") from None
                # A server may need a moment to forget a session that has just ended.
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, 0.5)
            except asyncssh.Error as error:
                await self._turns.give_back()
                raise ReachError(f"the connection to {self._name} was lost: {error.reason}") from None
            except BaseException:
                await self._turns.give_back()
                raise
            else:
                self._has_worked = True
                return channel

    async def close(self) -> None:
        """Close the connection, waiting a bounded time for the server's part."""
        self._connection.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._connection.wait_closed()
        except TimeoutError:
            self._connection.abort()


class SshChannel:
    """A line channel to a program on the guest."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._lines = LineBuffer()
        self._tail = Tail()
        self._arrived = asyncio.Event()
        self._ended = asyncio.Event()
        self._paused = False
        self._returned = False
        self._session: _Output | None = None
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None

    def output(self) -> _Output:
        """The sinks, for the session that is being opened."""
        self._session = _Output(self._data, self._tail.feed, self._end)
        return self._session

    def start(self, channel: asyncssh.SSHClientChannel[bytes]) -> None:
        """The session is open."""
        self._channel = channel

    def _data(self, data: bytes) -> None:
        self._lines.feed(data)
        if self._lines.held_bytes > HELD_BYTES_MAX and self._channel is not None and not self._paused:
            self._paused = True
            self._channel.pause_reading()
        self._arrived.set()

    def _end(self) -> None:
        self._lines.feed_eof()
        self._ended.set()
        self._arrived.set()

    async def send(self, data: bytes) -> None:
        """Write to its stdin; see Channel."""
        if self._channel is None or self._session is None or self._ended.is_set():
            raise AgentError("the connection to the agent has ended")
        await self._session.is_writable.wait()
        try:
            self._channel.write(data)
        except OSError:
            raise AgentError("the connection to the agent has ended") from None

    async def receive(self) -> bytes | None:
        """One line of its stdout; see Channel."""
        while not self._lines.is_ready:
            self._arrived.clear()
            await self._arrived.wait()
        line = self._lines.take()
        if self._paused and self._lines.held_bytes < HELD_BYTES_MAX // 2 and self._channel is not None:
            self._paused = False
            self._channel.resume_reading()
        return line

    async def close(self) -> None:
        """Close stdin, wait a bounded time, ask for its end (a server may ignore that), and let go of the channel."""
        channel = self._channel
        if channel is None or self._returned:
            return
        self._returned = True
        try:
            if not self._ended.is_set():
                channel.write_eof()
                channel.resume_reading()
                if not await self._ends_within(CLOSE_TIMEOUT_S):
                    channel.terminate()
                    await self._ends_within(1.0)
        except OSError:
            pass  # the channel closed meanwhile
        finally:
            channel.close()
            await self._turns.give_back()

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    def stderr_tail(self) -> bytes:
        """The last of its stderr."""
        return self._tail.data

    @property
    def exit_status(self) -> int | None:
        """Its status; None while it runs or when the connection was lost."""
        return _status(self._channel) if self._channel is not None else None
