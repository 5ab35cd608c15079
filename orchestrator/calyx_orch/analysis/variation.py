"""Coefficients of variation, each with a surname: within a run, between repetitions, between guests.

`cv` is sample standard deviation / mean. What cannot be computed is None with a reason, never 0 and never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from calyx_orch.model import Series

MEAN_FLOOR = 1.0  # IOPS or bytes/s below which a CV says more about the floor than about the disk


@dataclass(frozen=True)
class Variation:
    """A coefficient of variation (0.05 is 5 %) of `n` values, or None with the reason; `warning` when it may mislead.

    `interval_ns` is how long each value was, of a CV over intervals.
    """

    value: float | None
    n: int
    mean: float | None = None
    reason: str = ""
    warning: str = ""
    interval_ns: int | None = None


def cv(values: Sequence[float], *, mean_floor: float = MEAN_FLOOR) -> Variation:
    """Sample standard deviation (n - 1) over the mean. None for fewer than two values and for a mean of 0."""
    n = len(values)
    if n == 0:
        return Variation(None, 0, reason="no values")
    if not all(math.isfinite(value) for value in values):
        return Variation(None, n, reason="a value is not finite")
    mean = math.fsum(values) / n
    if n == 1:
        return Variation(None, 1, mean, reason="one value has no spread")
    if mean == 0:
        return Variation(None, n, mean, reason="the mean is 0")
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    warning = f"the mean {mean:.3g} is below {mean_floor:g}" if abs(mean) < mean_floor else ""
    return Variation(spread / abs(mean), n, mean, warning=warning)


def within_run(series: Series) -> Variation:
    """CV within a run: of the bytes of each whole interval of one round (a shorter last one is cut off before)."""
    return replace(cv(series.total_bytes), interval_ns=series.interval_ns)


def between_repetitions(values: Sequence[float]) -> Variation:
    """CV between repetitions: of one guest's throughput in each of its rounds of the same kind."""
    return cv(values)


def between_guests(values: Sequence[float]) -> Variation:
    """CV between guests: of the guests' mean throughput under the same workload."""
    return cv(values)


def mean_known(values: Iterable[float | None]) -> float | None:
    """The mean of those values that are known; None when none is."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
