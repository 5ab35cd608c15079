"""The rows of steady state: each guest and each fleet over its rounds, and each of its rounds by itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from calyx_orch import units
from calyx_orch.analysis import rounds, steady
from calyx_orch.analysis.cells import Cell, Key
from calyx_orch.analysis.fleet import Fleet
from calyx_orch.analysis.rounds import Figures
from calyx_orch.analysis.rows import SteadyRow
from calyx_orch.model import NANOSECONDS, LoadMode

GUEST = "guest"
UNSTEADY_MAX = 0.2  # of the rounds
BURSTS_MIN = 0.5  # of the rounds: a burst in each is the disk's, in one it was an accident
NOT_ENOUGH = "not enough rounds"


def rows(cells: Sequence[Cell], fleets: Sequence[Fleet]) -> Iterable[SteadyRow]:
    """A row for each fleet of several guests, then one for each guest and key that was measured."""
    for of in fleets:
        if of.key[3] != LoadMode.ALONE and len(of.counted) > 1 and of.shared:
            yield _row(of.scope, "", of.key, [one.figures for one in of.shared])
    for cell in cells:
        if cell.figures:
            yield _row(GUEST, cell.guest, cell.key, [(found,) for found in cell.figures])


def _row(scope: str, guest: str, key: Key, played: Sequence[tuple[Figures, ...]]) -> SteadyRow:
    """`played` are the figures of each round, of one guest or of all."""
    target, workload, engine, load = key
    values = tuple(math.fsum(found.throughput_bytes_per_s for found in one) for one in played)
    insides = [inside for one in played for found in one if (inside := found.steadiness) is not None]
    unsteady = sum(any(f.steadiness is not None and f.steadiness.verdict != "steady" for f in one) for one in played)
    window, fallen = steady.last_window(values), steady.fall(values)
    verdict, why, at_s, at_round = _verdict(played, values, window, fallen, insides, unsteady)
    return SteadyRow(
        scope=scope,
        guest=guest,
        target=target,
        workload=workload,
        engine=engine,
        load=load,
        verdict=verdict,
        why=why,
        rounds=len(played),
        values=values,
        window_first=window.first if window else None,
        window_last=window.last if window else None,
        mean=window.mean if window else None,
        range_share=window.range_share if window else None,
        slope_share=window.slope_share if window else None,
        unsteady=unsteady,
        burst_at_s=at_s,
        burst_round=at_round,
        doubts=rounds.doubt_names(found for one in played for found in one),
    )


def _verdict(
    played: Sequence[tuple[Figures, ...]],
    values: Sequence[float],
    window: steady.Window | None,
    fallen: steady.Fall | None,
    insides: Sequence[steady.Within],
    unsteady: int,
) -> tuple[str, str, float | None, int | None]:
    """The verdict, why, and when a burst ended: in seconds, and at which round."""
    falls = [inside.fall_s for inside in insides if inside.fall_s is not None]
    if falls and len(falls) >= BURSTS_MIN * len(insides):
        ramp_s = median(
            (f.measurement.window_start_ns - f.measurement.start_line_ns) / NANOSECONDS for one in played for f in one
        )
        at_s = median(falls) + ramp_s
        return "burst", f"a cache or credit was exhausted at t = {at_s:.0f} s of a round", at_s, None
    if fallen is not None:
        first, then = (min(found.measurement.start_line_ns for found in played[at]) for at in (0, fallen.at))
        at_s = (then - first) / NANOSECONDS
        levels = f"{units.format_rate(fallen.before)} before, {units.format_rate(fallen.after)} after"
        why = f"a cache or credit was exhausted by round {fallen.at + 1} of these, t = {at_s:.0f} s from the first: {levels}"
        return "burst", why, at_s, fallen.at
    if window is None:
        return NOT_ENOUGH, f"{len(values)} of {steady.ROUNDS} rounds", None, None
    told = f"range {100 * window.range_share:.0f} % of the mean, slope {100 * window.slope_share:.0f} %"
    if unsteady > UNSTEADY_MAX * len(played):
        return "not steady", f"{unsteady} of {len(played)} rounds are not steady in themselves; {told}", None, None
    if not window.is_steady:
        return "not steady", f"in the last {steady.ROUNDS} rounds {told}; 20 and 10 % are allowed", None, None
    return "steady", f"in the last {steady.ROUNDS} rounds {told}", None, None
