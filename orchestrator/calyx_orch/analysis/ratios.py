"""Ratios of paired figures: the geometric mean with an interval, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from calyx_orch.analysis import significance

ENOUGH_PAIRS = 3  # with fewer than significance.UNITS_MIN the range of the pairs is told, and no interval of confidence


@dataclass(frozen=True)
class Ratio:
    """A geometric mean of `pairs` ratios; `low` and `high` bound it in the sense of `interval`, else None with a `reason`.

    `interval` is `range` (smallest and largest pair) or `Student 95 %`, of the mean logarithm.
    """

    value: float | None
    low: float | None
    high: float | None
    pairs: int
    interval: str = ""
    reason: str = ""


def of_pairs(pairs: Sequence[tuple[float | None, float | None]]) -> Ratio:
    """The ratio first / second of paired figures. Pairs with an unknown or a zero in them are left out."""
    known = [(first, second) for first, second in pairs if first and second and first > 0 and second > 0]
    logs = [math.log(first / second) for first, second in known]
    if not logs:
        return Ratio(None, None, None, 0, reason="not enough data: no pair of figures")
    value = math.exp(math.fsum(logs) / len(logs))
    if len(logs) < ENOUGH_PAIRS:
        return Ratio(value, None, None, len(logs), reason=f"not enough data: {len(logs)} of 3 pairs")
    if len(logs) < significance.UNITS_MIN:
        return Ratio(value, math.exp(min(logs)), math.exp(max(logs)), len(logs), "range")
    effect = significance.paired(known)
    return Ratio(value, effect.low, effect.high, len(logs), "Student 95 %")
