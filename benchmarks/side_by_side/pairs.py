"""Ratios of alternating pairs with 95 % intervals: pure, and without a distribution that has to be believed in but one.

A shared machine's speed drifts by more than any difference looked for, but both rounds of a pair see nearly the same
machine. So a ratio is taken within each pair; its mean and its interval are those of the logarithms (Student's t), which
makes a ratio and its inverse equally likely and a geometric mean over cells a plain mean.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 2000
# Student's t at 97.5 % by degrees of freedom; beyond the table the expansion of Abramowitz & Stegun 26.7.5 is exact to 1e-4.
_T_975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
_Z_975 = 1.959964


@dataclass(frozen=True)
class Estimate:
    """A ratio (or another figure) with its 95 % interval. `pairs` 0: a count that is exact, its bounds are itself.

    `low` and `high` are None where there are too few pairs for an interval.
    """

    value: float
    low: float | None
    high: float | None
    pairs: int

    @property
    def is_exact(self) -> bool:
        """Whether it is a count and not an estimate."""
        return self.pairs == 0


@dataclass(frozen=True)
class _Mean:
    """A mean of logarithms, the variance of that mean, and its degrees of freedom."""

    value: float
    variance: float | None
    freedom: float
    pairs: int


def exact(value: float) -> Estimate:
    """A figure that is counted, not sampled."""
    return Estimate(value, value, value, 0)


def of_pairs(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """The ratio first / second of paired figures. Raises ValueError when no pair has two positive figures."""
    return _estimate(_mean_of(pairs))


def geometric_mean(cells: Sequence[Sequence[tuple[float, float]]]) -> Estimate:
    """The geometric mean over cells of each cell's ratio; every cell weighs the same. Degrees of freedom by Welch."""
    means = [_mean_of(pairs) for pairs in cells]
    value = math.fsum(mean.value for mean in means) / len(means)
    pairs_fewest = min(mean.pairs for mean in means)
    variances = [mean.variance for mean in means if mean.variance is not None]
    if len(variances) < len(means):
        return _estimate(_Mean(value, None, 0, pairs_fewest))
    total = math.fsum(variances)
    divisor = math.fsum(mean.variance**2 / mean.freedom for mean in means if mean.variance)
    freedom = total**2 / divisor if divisor else math.inf
    return _estimate(_Mean(value, total / len(means) ** 2, freedom, pairs_fewest))


def of_variations(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """The ratio of two coefficients of variation between repetitions; its interval is a bootstrap over the pairs.

    Raises ValueError where one has no spread: then there is no ratio.
    """
    value = variation(first) / variation(second)
    if len(first) < 6:
        return Estimate(value, None, None, len(first))
    draw = random.Random(len(first))
    ratios: list[float] = []
    while len(ratios) < RESAMPLES:
        chosen = draw.choices(range(len(first)), k=len(first))
        if len(set(chosen)) > 2:
            ratios.append(variation([first[i] for i in chosen]) / variation([second[i] for i in chosen]))
    ratios.sort()
    return Estimate(value, ratios[int(0.025 * RESAMPLES)], ratios[int(0.975 * RESAMPLES) - 1], len(first))


def variation(values: Sequence[float]) -> float:
    """Sample standard deviation over the mean. Raises ValueError for fewer than two values and where it is 0."""
    if len(values) < 2:
        raise ValueError("one repetition has no spread")
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    if not spread or not mean:
        raise ValueError("the repetitions have no spread")
    return spread / mean


def t_975(freedom: float) -> float:
    """Student's t that 97.5 % do not exceed."""
    if freedom < 1:
        freedom = 1
    if freedom < len(_T_975) + 1:
        return _T_975[int(freedom) - 1]  # the next lower whole number: the wider interval
    if math.isinf(freedom):
        return _Z_975
    z, n = _Z_975, freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def _mean_of(pairs: Sequence[tuple[float, float]]) -> _Mean:
    logs = [math.log(first / second) for first, second in pairs if first > 0 and second > 0]
    if not logs:
        raise ValueError("no pair of positive figures")
    value = math.fsum(logs) / len(logs)
    if len(logs) == 1:
        return _Mean(value, None, 0, 1)
    squares = math.fsum((each - value) ** 2 for each in logs)
    return _Mean(value, squares / (len(logs) - 1) / len(logs), len(logs) - 1, len(logs))


def _estimate(mean: _Mean) -> Estimate:
    if mean.variance is None:
        return Estimate(math.exp(mean.value), None, None, mean.pairs)
    half = t_975(mean.freedom) * math.sqrt(mean.variance)
    return Estimate(math.exp(mean.value), math.exp(mean.value - half), math.exp(mean.value + half), mean.pairs)
