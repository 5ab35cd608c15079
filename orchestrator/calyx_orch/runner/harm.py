"""Does a round harm? What guests say before, in and after it, against `impact.abort_if`; and the time of day of `impact.window`.

Nothing here sends or waits: what is found is told to whoever asks.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from calyx_orch import units
from calyx_orch.model import AbortIf, Impact, LostTime, Measurement, Round, Window

STEAL_OVER_NS = 4_500_000_000  # from the first of six beats to the last, which come once a second
_BEATS_MAX = 64  # beats are untrusted, and may come as often as a guest likes


def before(abort: AbortIf | None, lost: Mapping[str, LostTime | None]) -> str:
    """Why a round is not begun: a guest lost too much of its CPU to others already. "": nothing speaks against it."""
    if abort is None or abort.lost_time_above is None:
        return ""
    shares = {name: one.lost_ns / one.spin_ns for name, one in lost.items() if one is not None and one.spin_ns > 0}
    worst = max(shares, key=lambda name: shares[name], default=None)
    if worst is None or shares[worst] <= abort.lost_time_above:
        return ""
    return _said(
        worst,
        f"lost {_percent(shares[worst])} of its CPU before the round",
        "lost_time_above",
        _percent(abort.lost_time_above),
    )


class Watch:
    """Looks at the beats of one round."""

    def __init__(self, abort: AbortIf | None) -> None:
        self._abort = abort or AbortIf()
        self._stolen_by: dict[str, deque[tuple[int, int]]] = {}  # (now_ns, steal_ns) of the last beats of a guest

    def beat(self, guest: str, beat: Mapping[str, Any]) -> str:
        """Why the round is stopped, by one more beat of a guest, which is untrusted. "": it is not."""
        return _too_old(self._abort, guest, beat) or self._too_much_stolen(guest, beat)

    def _too_much_stolen(self, guest: str, beat: Mapping[str, Any]) -> str:
        now_ns, steal_ns, cpus = (beat.get(key) for key in ("now_ns", "steal_ns", "cpus"))
        if self._abort.steal_above is None or not type(now_ns) is type(steal_ns) is type(cpus) is int or cpus < 1:
            return ""
        seen = self._stolen_by.setdefault(guest, deque(maxlen=_BEATS_MAX))
        seen.append((now_ns, steal_ns))
        while len(seen) > 1 and now_ns - seen[1][0] >= STEAL_OVER_NS:
            seen.popleft()
        since_ns, before_ns = seen[0]
        if now_ns - since_ns < STEAL_OVER_NS:
            return ""
        return _stolen(self._abort, {guest: (steal_ns - before_ns) / ((now_ns - since_ns) * cpus)})


def _too_old(abort: AbortIf, guest: str, beat: Mapping[str, Any]) -> str:
    if abort.latency_above_ns is None:
        return ""
    oldest_ns = beat.get("oldest_ns")
    if type(oldest_ns) is not int or oldest_ns <= abort.latency_above_ns:
        return ""
    limit = units.format_latency(abort.latency_above_ns)
    return _said(guest, f"had an I/O in flight for {units.format_latency(oldest_ns)}", "latency_above", limit)


def after(abort: AbortIf | None, measured: Iterable[Measurement]) -> str:
    """Why the workload of a round is not run again: over the whole of its window time was stolen from a guest. "": not too much."""
    if abort is None:
        return ""
    shares = {
        one.guest: one.cpu.steal_ns / (one.cpu.window_ns * one.cpu.cpus)
        for one in measured
        if one.cpu is not None and one.cpu.steal_ns is not None and one.cpu.window_ns * one.cpu.cpus > 0
    }
    return _stolen(abort, shares)


def _stolen(abort: AbortIf, shares: Mapping[str, float]) -> str:
    worst = max(shares, key=lambda name: shares[name], default=None)
    if abort.steal_above is None or worst is None or shares[worst] <= abort.steal_above:
        return ""
    return _said(worst, f"had {_percent(shares[worst])} of its CPU stolen", "steal_above", _percent(abort.steal_above))


def is_lasting(why: str) -> bool:
    """Whether it is the workload that harms; what a guest lost before a round was taken by others, and passes."""
    return ".lost_time_above " not in why


def closed(impact: Impact, one: Round, now_s: float) -> str:
    """Why a round does not begin now: it would not be over before the window closes. "": the window is open for it."""
    if impact.window is None or is_open(impact.window, now_s, one.workload.ramp_s + one.workload.runtime_s):
        return ""
    return f"impact.window ({impact.window}) is closed, or closes before the round is over"


def is_open(window: Window, now_s: float, for_s: float) -> bool:
    """Whether the time of day lies in the window from now on for so long; clocks that change in between count as they do on the wall."""
    zone = zoneinfo.ZoneInfo(window.timezone)

    def minute(at_s: float) -> float:
        local = datetime.datetime.fromtimestamp(at_s, zone)
        return local.hour * 60 + local.minute + local.second / 60

    length = (window.end_min - window.begin_min) % 1440
    since, until = ((minute(at_s) - window.begin_min) % 1440 for at_s in (now_s, now_s + for_s))
    return since < length and since <= until <= length


def _percent(share: float) -> str:
    return units.format_percent(100 * share)


def _said(guest: str, what: str, key: str, limit: str) -> str:
    return f"impact.abort_if.{key} ({limit}): guest {guest} {what}"
