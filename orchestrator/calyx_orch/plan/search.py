"""The highest rate at which a budget holds: doubling until it breaks (halving until it holds), then bisection. Pure.

    step(probes) -> the next rate to try, or how it ended

Between two rates of which the lower held and the higher broke, the next is their geometric middle, until they are within
`RESOLUTION` of each other or `PROBES_MAX` have been tried: so the search is bounded in rounds, and each round in time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

RATE_START = 1024
RATE_MIN = 8
RATE_MAX = 100_000_000
RESOLUTION = 1.05
PROBES_MAX = 16
REACHED_MIN = 0.98  # of the rate that was asked for


@dataclass(frozen=True)
class Probe:
    """One rate (IOPS per job) that was tried. `figure_ns` is what the budget is held against; None: too few samples."""

    rate_iops: int
    figure_ns: int | None
    held: bool


@dataclass(frozen=True)
class Ended:
    """How a search ended: the highest rate that held and the lowest that broke (None: there is none), and why it ended."""

    rate_iops: int | None
    broke_iops: int | None
    why: str


def holds(figure_ns: int | None, limit_ns: int, *, asked_iops: float, reached_iops: float) -> bool:
    """Whether a rate holds a budget: its figure lies below the limit, and the rate was reached at all."""
    return figure_ns is not None and figure_ns < limit_ns and reached_iops >= REACHED_MIN * asked_iops


def step(probes: Sequence[Probe], *, ceiling: int | None = None) -> int | Ended:
    """The next rate to try after `probes`, never above `ceiling` (None: 100 M), or how the search ended."""
    most = min(ceiling or RATE_MAX, RATE_MAX)
    if not probes:
        return min(RATE_START, most)
    low = max((probe.rate_iops for probe in probes if probe.held), default=None)
    high = min(
        (probe.rate_iops for probe in probes if not probe.held and (low is None or probe.rate_iops > low)), default=None
    )
    if probes[-1].figure_ns is None:
        return Ended(low, high, f"too few samples at {probes[-1].rate_iops} IOPS: a longer runtime tells more")
    if low is not None and low >= most:
        return Ended(low, None, f"it held up to the highest rate allowed, {most} IOPS")
    if high is not None and high <= RATE_MIN:
        return Ended(None, high, f"it does not even hold at {high} IOPS")
    if low is not None and high is not None and (high <= low * RESOLUTION or high - low <= 1):
        return Ended(low, high, "")
    if len(probes) >= PROBES_MAX:
        return Ended(low, high, f"ended after {PROBES_MAX} rounds")
    if high is None:
        return min(low * 2, most) if low is not None else min(RATE_START, most)
    if low is None:
        return max(high // 2, RATE_MIN)
    return min(max(round(math.sqrt(low * high)), low + 1), high - 1)
