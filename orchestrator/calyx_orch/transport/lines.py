"""Bytes in as they come, whole lines out, never more memory than one line above the limit. Pure."""

from __future__ import annotations

from collections import deque

from calyx_orch.errors import AgentError
from calyx_orch.transport import LINE_BYTES_MAX, STDERR_TAIL_BYTES


class LineBuffer:
    """Splits a stream into lines. A line above `limit` bytes poisons it: `take` then raises AgentError for good."""

    def __init__(self, limit: int = LINE_BYTES_MAX) -> None:
        self._limit = limit
        self._lines: deque[bytes] = deque()
        self._rest = bytearray()
        self._held = 0
        self._ended = False
        self._too_long = False

    @property
    def held_bytes(self) -> int:
        """Bytes of whole lines that wait to be taken."""
        return self._held

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if self._too_long:
            return
        first, newline, tail = data.partition(b"\n")
        self._rest += first
        if newline:
            self._push(bytes(self._rest))
            *whole, last = tail.split(b"\n")
            for line in whole:
                self._push(line)
            self._rest = bytearray(last)
        if len(self._rest) > self._limit:
            self._too_long = True
            self._rest = bytearray()

    def feed_eof(self) -> None:
        """The stream has ended; what is left of a line without a newline becomes the last line."""
        if self._rest:
            self._push(bytes(self._rest))
            self._rest = bytearray()
        self._ended = True

    def _push(self, line: bytes) -> None:
        if self._too_long:
            return
        if len(line) > self._limit:
            self._too_long = True
            return
        self._lines.append(line)
        self._held += len(line) + 1

    @property
    def is_ready(self) -> bool:
        """Whether `take` has something to say: a line, the end, or the error."""
        return bool(self._lines) or self._ended or self._too_long

    def take(self) -> bytes | None:
        """The next line, or None at the end; only when `is_ready`. Raises AgentError when a line was too long."""
        if self._lines:
            line = self._lines.popleft()
            self._held -= len(line) + 1
            return line
        if self._too_long:
            raise AgentError(f"a line longer than {self._limit // 1024} KiB came back: that is not the agent speaking")
        return None


class Tail:
    """Keeps the last `limit` bytes of a stream."""

    def __init__(self, limit: int = STDERR_TAIL_BYTES) -> None:
        self._limit = limit
        self._data = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._data = (self._data + data)[-self._limit :]

    @property
    def data(self) -> bytes:
        """What is kept."""
        return self._data


class Capped:
    """Keeps the first `limit` bytes of a stream and forgets the rest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        room = self._limit - len(self._data)
        if room > 0:
            self._data += data[:room]

    @property
    def data(self) -> bytes:
        """What is kept."""
        return bytes(self._data)
