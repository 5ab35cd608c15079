"""A display in a thread of its own: nobody waits for it, lines keep their order, and of moments only the latest is shown."""

from __future__ import annotations

import threading
import time

from calyx_orch.report.aside import LINES_MAX, Aside
from calyx_orch.report.live import Progress, Silent

WITHIN_S = 20.0


class Stuck(Silent):
    """Keeps what it was told, once `go` lets it."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.told: list[str] = []
        self.is_closed = False

    def phase(self, text: str) -> None:
        """Wait, then keep it."""
        assert self.go.wait(WITHIN_S)
        self.told.append(text)

    def note(self, text: str) -> None:
        """Wait, then keep it."""
        self.phase(text)

    def update(self, progress: Progress) -> None:
        """Wait, then keep its phase."""
        self.phase(progress.phase)

    def close(self) -> None:
        """Remember it."""
        self.is_closed = True


def moment(phase: str) -> Progress:
    return Progress(phase, 0, 0, "", 1.0, None, ())


def test_nothing_waits_for_a_display_that_stands_still() -> None:
    inner = Stuck()
    aside = Aside(inner)
    began = time.monotonic()
    aside.phase("connecting")
    for number in range(1000):
        aside.update(moment(f"moment {number}"))
    aside.note("vm1: lost")
    aside.close(within_s=0.05)
    assert time.monotonic() - began < WITHIN_S / 2
    assert (inner.told, inner.is_closed) == ([], False)
    inner.go.set()
    aside.close(within_s=None)
    assert (inner.told, inner.is_closed) == (["connecting", "vm1: lost"], True)
    aside.note("after the end")
    assert len(inner.told) == 2


def test_of_the_moments_only_the_latest_is_shown() -> None:
    inner = Stuck()
    aside = Aside(inner)
    aside.phase("connecting")
    for number in range(100):
        aside.update(moment(f"moment {number}"))
    inner.go.set()
    deadline = time.monotonic() + WITHIN_S
    while len(inner.told) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    aside.close(within_s=None)
    assert inner.told == ["connecting", "moment 99"]


def test_lines_that_wait_are_bounded_and_those_dropped_are_counted() -> None:
    inner = Stuck()
    aside = Aside(inner)
    aside.phase("first")
    deadline = time.monotonic() + WITHIN_S
    while aside._lines and time.monotonic() < deadline:
        time.sleep(0.001)  # until it is stuck with the first
    for number in range(LINES_MAX + 7):
        aside.note(f"note {number}")
    inner.go.set()
    aside.close(within_s=None)
    assert inner.told[:3] == ["first", "7 lines not shown: the terminal took nothing for too long", "note 7"]
    assert inner.told[-1] == f"note {LINES_MAX + 6}"
    assert len(inner.told) == LINES_MAX + 2
