"""Where the words go: standard output or error that may break, fill up or know no Unicode without ending a measurement.

What cannot be written is lost, and from the first failure on nothing more is tried: the run folder has it all.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from typing import IO, cast

from rich.console import Console
from rich.text import Text

from calyx_orch.errors import Fault
from calyx_orch.report.wording import printable

PLAIN = str.maketrans(
    {
        "µ": "u",
        "×": "x",
        "±": "~",
        "–": "-",
        "—": "-",
        "…": "...",
        "’": "'",
        "≥": ">=",
        "≤": "<=",
        "✓": "+",
        "✗": "x",
        "·": ".",
    }
)
PLAIN_WIDTH = 160


class Screen(io.TextIOBase):
    """A text stream that never raises. `failure` is what first went wrong, None as long as all is well."""

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream  # None where the process began without one
        self.failure: Exception | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a plain attribute there
        """That of the stream below."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write what the stream can show of the text."""
        if self._stream is not None and self.failure is None:
            try:
                self._stream.write(shown(text, self.encoding))
            except (OSError, ValueError) as error:
                self._give_up(self._stream, error)
        return len(text)

    def flush(self) -> None:
        """Hand all over to the system."""
        if self._stream is not None and self.failure is None:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._give_up(self._stream, error)

    def isatty(self) -> bool:
        """Whether a terminal is below."""
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:  # it is closed
            return False

    def fileno(self) -> int:
        """The descriptor below. Raises OSError where there is none."""
        if self._stream is None:
            raise io.UnsupportedOperation("no stream")
        return self._stream.fileno()

    def _give_up(self, stream: IO[str], error: Exception) -> None:
        """Point the descriptor nowhere, so that what the stream still holds does no harm when Python ends."""
        self.failure = error
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def shown(text: str, encoding: str) -> str:
    """The text in what `encoding` has: `us` for microseconds where there is no micro sign, and `?` for what has no likeness."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(PLAIN).encode(encoding, "replace").decode(encoding)
    return text


def console(*, stderr: bool = False) -> Console:
    """A console on standard output or error that outlives it."""
    return Console(file=cast(IO[str], Screen(sys.stderr if stderr else sys.stdout)), highlight=False)


def deliver(text: str, what: str = "the JSON", *, again: str = "") -> None:
    """Write a whole document on standard output; a reader that leaves early has what it wanted.

    Raises Fault when standard output does not take it, with `again`, how it is had again.
    """
    out = Screen(sys.stdout)
    out.write(text)
    out.flush()
    if out.failure is not None and not isinstance(out.failure, BrokenPipeError):
        raise Fault("; ".join(filter(None, (f"standard output did not take {what}: {out.failure}", again))))


def deliver_json(document: object, *, again: str = "") -> None:
    """Write strict JSON on standard output, as `deliver` does."""
    deliver(json.dumps(document, indent=1, allow_nan=False) + "\n", again=again)


def line(text: str, style: str = "", *, to: Console | None = None) -> None:
    """Print one line that is never broken, as paths and commands to paste want it; on standard output unless told otherwise."""
    (to or console()).print(Text(printable(text), style=style), soft_wrap=True)


def prose(to: Console, text: str, style: str = "") -> None:
    """Print one line that a terminal gets broken at words."""
    to.print(Text(printable(text), style=style), soft_wrap=not to.is_terminal)


@contextlib.contextmanager
def width(console: Console) -> Iterator[None]:
    """Give output that is no terminal the width of COLUMNS or 160; rich would take 80."""
    before = console.width
    if not console.is_terminal:
        told = os.environ.get("COLUMNS", "")
        console.width = int(told) if told.isascii() and told.isdigit() and int(told) > 0 else PLAIN_WIDTH
    try:
        yield
    finally:
        console.width = before
