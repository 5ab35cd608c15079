"""Does a round harm? What guests say before, in and after it, against `impact.abort_if`; and the time of day of `impact.window`. Pure."""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Iterable, Mapping
from typing import Any

from calyx_orch import units
from calyx_orch.model import AbortIf, Impact, LostTime, Measurement, Round, Window


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


def during(abort: AbortIf | None, guest: str, beat: Mapping[str, Any]) -> str:
    """Why a round is stopped, by one beat of a guest, which is untrusted: an I/O is too old. "": it is not."""
    if abort is None or abort.latency_above_ns is None:
        return ""
    oldest_ns = beat.get("oldest_ns")
    if type(oldest_ns) is not int or oldest_ns <= abort.latency_above_ns:
        return ""
    limit = units.format_latency(abort.latency_above_ns)
    return _said(guest, f"had an I/O in flight for {units.format_latency(oldest_ns)}", "latency_above", limit)


def after(abort: AbortIf | None, measured: Iterable[Measurement]) -> str:
    """Why the workload of a round is not run again: time was stolen from a guest. "": not too much."""
    if abort is None or abort.steal_above is None:
        return ""
    shares = {
        one.guest: one.cpu.steal_ns / (one.cpu.window_ns * one.cpu.cpus)
        for one in measured
        if one.cpu is not None and one.cpu.steal_ns is not None and one.cpu.window_ns * one.cpu.cpus > 0
    }
    worst = max(shares, key=lambda name: shares[name], default=None)
    if worst is None or shares[worst] <= abort.steal_above:
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
