"""How a benchmark is ended from outside: as by Ctrl-C, so that its files, mounts and processes are gone."""

from __future__ import annotations

import signal


def ends_as_interrupted() -> None:
    """From now on SIGTERM is taken for SIGINT, which is heard also where a shell that puts programs behind had it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
