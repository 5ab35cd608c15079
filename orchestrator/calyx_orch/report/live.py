"""Live progress of a run: a table that is redrawn on a terminal, plain lines elsewhere.

The runner hands in whole `Progress` values; nothing here asks anybody for more. A terminal is redrawn at most twice a
second and shows at most `ROWS_MAX` guests, worst first: a row costs a third of a millisecond, a screen holds no more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from calyx_orch.report import screen, wording

ROWS_MAX = 30
NAMED_MAX = 3
REDRAW_EVERY_S = 0.5
PLAIN_LINE_EVERY_S = 10.0

SILENT = "silent"
TROUBLED = ("lost", "failed", "skipped", "stopped", SILENT)


@dataclass(frozen=True)
class GuestStatus:
    """One guest at this moment: `state` in the words of the coordination (`running`, `lost` ...), rates when known."""

    guest: str
    state: str
    detail: str = ""
    ios_per_s: float | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True)
class Progress:
    """The whole run at this moment. `phase` is shown outside rounds, `label` names the round; `remaining_s` None: not known."""

    phase: str
    round_number: int
    rounds: int
    label: str
    elapsed_s: float
    remaining_s: float | None
    guests: tuple[GuestStatus, ...]


class Live(Protocol):
    """Where progress goes. `close` may be called twice; nothing is shown after it."""

    def phase(self, text: str) -> None:
        """Tell in one line that a new phase begins."""

    def update(self, progress: Progress) -> None:
        """Show the state now, as often as the output can bear."""

    def note(self, text: str) -> None:
        """Tell something worth a line of its own, such as a guest that was lost."""

    def close(self) -> None:
        """End the display."""


def live_for(console: Console, quiet: bool = False) -> Live:
    """Choose what suits `console`: nothing when quiet, a redrawn table on a terminal, else plain lines."""
    if quiet:
        return Silent()
    return TableLive(console) if console.is_terminal and not console.is_dumb_terminal else PlainLive(console)


class Silent:
    """Shows nothing."""

    def phase(self, text: str) -> None:
        """Show nothing."""

    def update(self, progress: Progress) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Show nothing."""


class PlainLive:
    """One line per phase and note, and between them at most one line in ten seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._last_s = clock()
        self._closed = False

    def phase(self, text: str) -> None:
        """Print a line."""
        self._say(text)

    def update(self, progress: Progress) -> None:
        """Print a line when the last one is ten seconds old."""
        if self._clock() - self._last_s >= PLAIN_LINE_EVERY_S:
            self._say(f"{headline(progress)}, {timing(progress)}; {fleet_now(progress.guests)}")

    def note(self, text: str) -> None:
        """Print a line."""
        self._say(text)

    def close(self) -> None:
        """Print no more lines."""
        self._closed = True

    def _say(self, text: str) -> None:
        if self._closed:
            return
        self._last_s = self._clock()
        screen.line(text, to=self._console)


class TableLive:
    """A table that is redrawn in place; phases and notes scroll by above it."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._drawn_s: float | None = None
        self._live: RichLive | None = None
        self._closed = False

    def phase(self, text: str) -> None:
        """Print a bold line above the table."""
        self._say(Text(wording.printable(text), style="bold"))

    def update(self, progress: Progress) -> None:
        """Redraw when the last drawing is half a second old."""
        now_s = self._clock()
        if self._closed or (self._drawn_s is not None and now_s - self._drawn_s < REDRAW_EVERY_S):
            return
        self._drawn_s = now_s
        if self._live is None:
            self._live = RichLive(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(table_of(progress, self._console.height, self._console.width), refresh=True)

    def note(self, text: str) -> None:
        """Print a line above the table."""
        self._say(Text(wording.printable(text), style="yellow"))

    def close(self) -> None:
        """Take the table away; the lines above it stay."""
        self._closed = True
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _say(self, text: Text) -> None:
        if not self._closed:
            self._console.print(text)


def headline(progress: Progress) -> str:
    """Say `round 3 of 12: randread-4k on data by calyx`, or the phase outside rounds."""
    if progress.rounds:
        label = f": {progress.label}" if progress.label else ""
        parts = [f"round {progress.round_number} of {progress.rounds}{label}"]
    else:
        parts = [part for part in (progress.phase, progress.label) if part]
    return ", ".join(parts)


def timing(progress: Progress) -> str:
    """Say `1 min 05 s gone, about 4 min 10 s left`."""
    gone = f"{wording.duration(progress.elapsed_s)} gone"
    return gone if progress.remaining_s is None else f"{gone}, about {wording.duration(progress.remaining_s)} left"


def fleet_now(guests: tuple[GuestStatus, ...]) -> str:
    """Say `8 guests: 7 running, 1 lost (vm3); 81,200 IOPS, 333 MB/s`: who is not where most are, and sums over the guests that say."""
    states = Counter(status.state for status in guests).most_common()
    text = wording.count_of(len(guests), "guest")
    if states:
        others = [_count_and_names(guests, state, count) for state, count in states[1:]]
        text += ": " + ", ".join([f"{states[0][1]} {states[0][0]}", *others])
    ios = [status.ios_per_s for status in guests if status.ios_per_s is not None]
    moved = [status.bytes_per_s for status in guests if status.bytes_per_s is not None]
    rates = ([f"{wording.significant(sum(ios))} IOPS"] if ios else []) + ([wording.rate(sum(moved))] if moved else [])
    return f"{text}; {', '.join(rates)}" if rates else text


def _count_and_names(guests: tuple[GuestStatus, ...], state: str, count: int) -> str:
    """Name the few that all others wait for, or go on without."""
    if count > NAMED_MAX:
        return f"{count} {state}"
    return f"{count} {state} ({', '.join(status.guest for status in guests if status.state == state)})"


def worst_first(guests: tuple[GuestStatus, ...], rows: int) -> tuple[GuestStatus, ...]:
    """Pick all guests in their order when they fit in `rows`; else the `rows` worst: troubled ones, then slowest."""
    if len(guests) <= rows:
        return guests

    def badness(status: GuestStatus) -> tuple[int, float]:
        rates = [rate for rate in (status.ios_per_s, status.bytes_per_s) if rate is not None]
        pace = rates[0] if rates else float("inf")
        return (0 if status.state in TROUBLED else 1, pace)

    return tuple(sorted(guests, key=badness)[:rows])


def table_of(progress: Progress, height: int, width: int = 120) -> RenderableType:
    """Draw one moment, for a screen of `height` lines and `width` columns."""
    rows = max(1, min(ROWS_MAX, height - 7))
    shown = worst_first(progress.guests, rows)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("guest", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("IOPS", justify="right", no_wrap=True)
    table.add_column("MB/s", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=max(10, width - 45))
    for status in shown:
        style = "red" if status.state in TROUBLED else ""
        table.add_row(
            Text(wording.printable(status.guest)),
            Text(wording.printable(status.state), style=style),
            "" if status.ios_per_s is None else wording.significant(status.ios_per_s),
            "" if status.bytes_per_s is None else wording.megabytes(status.bytes_per_s),
            Text(wording.printable(status.detail), style="dim"),
        )
    lines: list[RenderableType] = [
        Text(wording.printable(headline(progress)), style="bold cyan"),
        Text(wording.printable(f"{timing(progress)}; {fleet_now(progress.guests)}")),
        table,
    ]
    hidden = len(progress.guests) - len(shown)
    if hidden:
        lines.append(Text(f"and {wording.count_of(hidden, 'guest')} more (worst shown)", style="dim"))
    return Group(*lines)
