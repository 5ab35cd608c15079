"""A live display in a thread of its own: a terminal that takes nothing (Ctrl-S, a pager that is not paged) holds up no run."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from calyx_orch.report.live import Live, Progress
from calyx_orch.report.wording import count_of

LINES_MAX = 1_000  # what waits for the terminal; the run folder has it all
CLOSE_WITHIN_S = 0.5


class Aside:
    """Shows by another `Live`. No call waits for the terminal but `close`.

    Phases and notes keep their order; of those that wait the oldest are dropped beyond LINES_MAX, and how many were is told. Of the
    moments only the latest is kept.
    """

    def __init__(self, live: Live) -> None:
        self._live = live
        self._lines: deque[tuple[Callable[[str], None], str]] = deque()
        self._dropped = 0
        self._latest: Progress | None = None
        self._closing = False
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._show, name="display", daemon=True)
        self._thread.start()

    def phase(self, text: str) -> None:
        """Tell in one line that a new phase begins."""
        self._add(self._live.phase, text)

    def note(self, text: str) -> None:
        """Tell something worth a line of its own."""
        self._add(self._live.note, text)

    def update(self, progress: Progress) -> None:
        """Show the state now, unless a later one comes first."""
        with self._news:
            self._latest = progress
            self._news.notify()

    def close(self, *, within_s: float | None = CLOSE_WITHIN_S) -> None:
        """End the display. Waits until all that was told is shown, but no longer than that; None: however long it takes."""
        with self._news:
            self._closing = True
            self._news.notify()
        self._thread.join(within_s)

    def _add(self, how: Callable[[str], None], text: str) -> None:
        with self._news:
            if self._closing:
                return
            if len(self._lines) == LINES_MAX:
                self._lines.popleft()
                self._dropped += 1
            self._lines.append((how, text))
            self._news.notify()

    def _show(self) -> None:
        while (show := self._next()) is not None:
            show()
        self._live.close()

    def _next(self) -> Callable[[], None] | None:
        """What is to be shown next: lines first. None at the end."""
        with self._news:
            self._news.wait_for(lambda: self._lines or self._latest is not None or self._closing)
            if self._dropped:
                text = f"{count_of(self._dropped, 'line')} not shown: the terminal took nothing for too long"
                self._dropped = 0
                return lambda: self._live.note(text)
            if self._lines:
                how, line = self._lines.popleft()
                return lambda: how(line)
            if self._latest is not None and not self._closing:
                progress, self._latest = self._latest, None
                return lambda: self._live.update(progress)
            return None
