"""Ratios of paired figures: the geometric mean with an interval, or why there is none."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

ENOUGH_PAIRS = 3
BOOTSTRAP_PAIRS = 6  # with fewer the resamples are too alike: the range of the pairs is told instead
RESAMPLES = 2000


@dataclass(frozen=True)
class Ratio:
    """A geometric mean of `pairs` ratios; `low` and `high` bound it in the sense of `interval`, else None with a `reason`.

    `interval` is `range` (smallest and largest pair) or `bootstrap 95 %`.
    """

    value: float | None
    low: float | None
    high: float | None
    pairs: int
    interval: str = ""
    reason: str = ""


def of_pairs(pairs: Sequence[tuple[float | None, float | None]]) -> Ratio:
    """The ratio first / second of paired figures. Pairs with an unknown or a zero in them are left out."""
    logs = [math.log(first / second) for first, second in pairs if first and second and first > 0 and second > 0]
    if not logs:
        return Ratio(None, None, None, 0, reason="not enough data: no pair of figures")
    value = math.exp(math.fsum(logs) / len(logs))
    if len(logs) < ENOUGH_PAIRS:
        return Ratio(value, None, None, len(logs), reason=f"not enough data: {len(logs)} of 3 pairs")
    if len(logs) < BOOTSTRAP_PAIRS:
        return Ratio(value, math.exp(min(logs)), math.exp(max(logs)), len(logs), "range")
    draw = random.Random(len(logs))
    means = sorted(math.fsum(draw.choices(logs, k=len(logs))) / len(logs) for _ in range(RESAMPLES))
    low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]
    return Ratio(value, math.exp(low), math.exp(high), len(logs), "bootstrap 95 %")
