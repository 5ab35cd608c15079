"""Where a benchmark is, on one line of a terminal."""

from __future__ import annotations

import sys


def show(text: str) -> None:
    """Say where the benchmark is, on one line of a terminal; nothing where nobody looks."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def end() -> None:
    """Take the line of progress away."""
    show("")
