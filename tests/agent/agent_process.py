"""Drives one real agent over its stdin and stdout, as the controller does over SSH."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calyx_agent import protocol

Message = dict[str, Any]


class AgentProcess:
    """A running agent. `messages` holds all that came up, `documents` the documents by name."""

    def __init__(self, argv: Sequence[str | Path], *, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [str(argument) for argument in argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=env,
            start_new_session=True,
        )
        self.decoder = protocol.Decoder()
        self.messages: list[Message] = []
        self.documents: dict[str, str] = {}
        self._waiting: list[Message] = []
        self.hello = self.until("hello")

    def send(self, verb: str, *pairs: tuple[str, protocol.Value], **values: protocol.Value) -> None:
        """One command line down."""
        self.send_bytes(protocol.encode(verb, [*pairs, *values.items()]))

    def send_bytes(self, data: bytes) -> None:
        """Bytes down, whatever they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def next(self, timeout_s: float = 10.0) -> Message:
        """The next message; EOFError when the agent's stdout ended, TimeoutError when nothing came."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while not self._waiting:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"nothing within {timeout_s} s after {self.messages[-1:]}")
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                raise EOFError("the agent's stdout ended")
            self._waiting += self.decoder.feed(data)
        message = self._waiting.pop(0)
        self.messages.append(message)
        if message["type"] == "output":
            self.documents[message["name"]] = message["text"]
        return message

    def until(self, *types: str, timeout_s: float = 20.0) -> Message:
        """The next message of one of these types. A refusal that is not waited for is an error."""
        while True:
            message = self.next(timeout_s)
            if message["type"] in types:
                return message
            assert message["type"] != "refused", message

    def ask(self, verb: str, answer: str, *pairs: tuple[str, protocol.Value], **values: protocol.Value) -> Message:
        """Sends a command and waits for its answer."""
        self.send(verb, *pairs, **values)
        return self.until(answer)

    def now_ns(self) -> int:
        """The agent's clock."""
        return int(self.ask("clock", "clock", n=0)["now_ns"])

    def arm(self, ahead_ns: int = 100_000_000) -> int:
        """Arms what is ready; the start line."""
        start_ns = self.now_ns() + ahead_ns
        assert self.ask("arm", "armed", start_ns=start_ns)["start_ns"] == start_ns
        return start_ns

    def close_stdin(self) -> None:
        """The controller is gone."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def pids(self) -> list[int]:
        """The processes that this agent is made of and all that it started."""
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def end(self, timeout_s: float = 10.0) -> int:
        """Waits for the end; the exit status."""
        return self.process.wait(timeout_s)

    def leave(self) -> None:
        """Ends the agent however it is, and closes the pipes."""
        with contextlib.suppress(OSError):
            self.close_stdin()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            for pid in self.pids():
                with contextlib.suppress(OSError):
                    os.kill(pid, 9)
            self.process.wait(10)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def is_gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def files_below(directory: Path) -> list[str]:
    """Everything below a directory, by relative path."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))
