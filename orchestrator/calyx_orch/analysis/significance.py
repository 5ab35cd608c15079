"""Whether two sides differ: the ratio of their units with an interval, a test, and the smallest change that would be seen.

A unit is what repeats: a round for a fleet, vm_host or group, a block for one guest. All of it works on logarithms, so that an effect
is a ratio and twice as much weighs as half as much. Where units of the two sides were played side by side they are paired, and what
both saw (drift, a busy pool) cancels out. The interval is Student's: resampling six units covers less than the 95 % asked for. Units
that follow each other are alike (drift), so unpaired sides are widened by the autocorrelation that they show themselves.

Sources: Welch (1947) for unequal variances; Kendall (1954) for the bias of a short autocorrelation, Moran (1948) for its variance;
Holm (1979); Benjamini and Hochberg (1995); Fisher (1935) for what few units can show at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special, stats

Floats = npt.NDArray[np.float64]

UNITS_MIN = 6  # a side with fewer is "not enough data"
LEVEL = 0.95
POWER = 0.80
RHO_MAX = 0.8  # an autocorrelation beyond is not told from a trend
PLACES = 1e-12  # a spread below this share of 1 is rounding, not noise
LIKELY = 16  # equally likely estimates of an autocorrelation, over which the detectable change is averaged


@dataclass(frozen=True)
class Effect:
    """First side / second side as a ratio with its `LEVEL` interval.

    `p` is two-sided, for a ratio of 1. `detectable` is the smallest change (0.1 is 10 %) that `units` such units see in 80 of 100
    tries at this spread. `ratio` None: there was nothing to divide, `reason` says why. `low`, `high`, `p` and `detectable` are None
    with a `reason` when there are too few units a side.
    """

    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    detectable: float | None
    units: int  # of the smaller side
    paired: bool
    reason: str = ""


def paired(pairs: Sequence[tuple[float | None, float | None]], *, units_min: int = UNITS_MIN) -> Effect:
    """The ratio first / second of units played side by side. Pairs with an unknown, or not above 0, are left out."""
    known = [(first, second) for first, second in pairs if _is_positive(first) and _is_positive(second)]
    logs = np.array([math.log(first / second) for first, second in known if first and second])
    if not len(logs):
        return Effect(None, None, None, None, None, 0, True, "no pair of figures")
    few = _too_few(len(logs), units_min, "pair")
    ratio = math.exp(logs.mean())
    if few:
        return Effect(ratio, None, None, None, None, len(logs), True, few)
    return _effect(float(logs.mean()), float(logs.std(ddof=1)) / math.sqrt(len(logs)), len(logs) - 1, len(logs), True)


def unpaired(first: Sequence[float | None], second: Sequence[float | None], *, units_min: int = UNITS_MIN) -> Effect:
    """The ratio first / second of the geometric means of units in the order played. Unknown units, and those not above 0, are left out."""
    sides = [np.log([value for value in side if value is not None and _is_positive(value)]) for side in (first, second)]
    fewest = min(len(side) for side in sides)
    if not fewest:
        return Effect(None, None, None, None, None, 0, False, "no figure on one side")
    difference = float(sides[0].mean() - sides[1].mean())
    few = _too_few(fewest, units_min, "unit")
    if few:
        return Effect(math.exp(difference), None, None, None, None, fewest, False, few)
    rho = autocorrelation(sides)
    bare = [float(side.var(ddof=1)) / len(side) for side in sides]
    parts = [part * inflation(rho, len(side)) for part, side in zip(bare, sides, strict=True)]
    whole = math.fsum(parts)
    freedom = (
        whole**2 / math.fsum(part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True))
        if whole
        else fewest - 1
    )
    told = [
        math.fsum(part * inflation(likely, len(side)) for part, side in zip(bare, sides, strict=True)) / (whole or 1.0)
        for likely in likely_estimates(rho, [len(side) for side in sides])
    ]
    return _effect(difference, math.sqrt(whole), freedom, fewest, False, told)


def autocorrelation(series: Sequence[Floats]) -> float:
    """The correlation of a unit with the next, pooled over series and freed of its bias (Kendall: -(1 + 3 rho) / n); 0 .. RHO_MAX."""
    centred = [one - one.mean() for one in series]
    whole = math.fsum(float((one * one).sum()) for one in centred)
    n = math.fsum(len(one) for one in series) / len(series)
    if whole <= 0 or n <= 3:
        return 0.0
    raw = math.fsum(float((one[1:] * one[:-1]).sum()) for one in centred) / whole
    return min(max((n * raw + 1) / (n - 3), 0.0), RHO_MAX)


def likely_estimates(rho: float, sizes: Sequence[int]) -> Floats:
    """LIKELY equally likely results of `autocorrelation` for series of these lengths whose true one is `rho`.

    A serial correlation of white noise has the variance (n - 2)^2 / (n^2 (n - 1)) (Moran 1948), with likeness 1 - rho^2 of that, and over
    several series less by their number; freeing it of its bias widens it by n / (n - 3). The estimate is cut to 0 .. RHO_MAX.
    """
    n = math.fsum(sizes) / len(sizes)
    if n <= 3:
        return np.full(LIKELY, rho)
    spread = (n - 2) / (n - 3) * math.sqrt((1 - rho * rho) / (math.fsum(sizes) - len(sizes)))
    middles = (np.arange(LIKELY) + 0.5) / LIKELY
    return np.clip(rho + spread * np.asarray(stats.norm.ppf(middles)), 0.0, RHO_MAX)


def inflation(rho: float, n: int) -> float:
    """By how much the variance of the mean of `n` units exceeds s^2 / n when neighbours correlate by `rho` (a first-order process)."""
    lags = np.arange(1, n)
    spread = 1.0 + 2.0 * float(((1.0 - lags / n) * rho**lags).sum())
    return spread / ((n - spread) / (n - 1))


def units_without_shape(rows: int, *, is_paired: bool) -> int:
    """How many units a side a test that knows no shape of the noise needs to find any difference, corrected over so many rows (Holm).

    It can at best see all pairs on one side, with p = 2 / 2^n (Fisher 1935), or all units of one side above the other's, 2 / C(2n, n).
    """
    n = UNITS_MIN
    while (2.0 / 2**n if is_paired else 2.0 / math.comb(2 * n, n)) > (1 - LEVEL) / rows:
        n += 1
    return n


def holm(ps: Sequence[float]) -> list[float]:
    """Adjust p-values so that all of them together err in at most the level asked for (Holm 1979), in their order."""
    adjusted, worst = [0.0] * len(ps), 0.0
    for rank, at in enumerate(sorted(range(len(ps)), key=lambda at: ps[at])):
        worst = max(worst, min((len(ps) - rank) * ps[at], 1.0))
        adjusted[at] = worst
    return adjusted


def benjamini_hochberg(ps: Sequence[float]) -> list[float]:
    """Adjust p-values so that of those below a level at most that share is false (Benjamini and Hochberg 1995), in their order."""
    adjusted, best = [0.0] * len(ps), 1.0
    for below, at in enumerate(sorted(range(len(ps)), key=lambda at: -ps[at])):
        best = min(best, ps[at] * len(ps) / (len(ps) - below))
        adjusted[at] = best
    return adjusted


# --- how ------------------------------------------------------------------------------------------------------------


def _effect(
    log_ratio: float, error: float, freedom: float, units: int, is_paired: bool, told: Sequence[float] = (1.0,)
) -> Effect:
    """Student's interval, test and detectable change around a log ratio with its standard error.

    `told` are equally likely ratios of the variance that such sides would tell to the true one, besides what their spread does by chance.
    """
    if error <= PLACES:  # every unit said the same
        same = abs(log_ratio) <= PLACES
        return Effect(
            math.exp(log_ratio), math.exp(log_ratio), math.exp(log_ratio), 1.0 if same else 0.0, 0.0, units, is_paired
        )
    reach = float(stats.t.ppf(0.5 + LEVEL / 2, freedom))
    return Effect(
        ratio=math.exp(log_ratio),
        low=math.exp(log_ratio - reach * error),
        high=math.exp(log_ratio + reach * error),
        p=float(2 * stats.t.sf(abs(log_ratio) / error, freedom)),
        detectable=math.expm1(_detectable_errors(freedom, np.asarray(told)) * error),
        units=units,
        paired=is_paired,
    )


def _detectable_errors(freedom: float, told: Floats) -> float:
    """The detectable change in standard errors as they are told: seen with POWER at LEVEL, by the noncentral t.

    A told error is itself an estimate: of few units it falls short of the true one in more than half of all tries (the median of chi), and
    where neighbours seem alike by chance it exceeds it by the root of `told`. Such a try asks for more than it should, which costs power.
    So the power is that over all of these, and the change is measured in the told error of the try in the middle.
    """
    reach = float(stats.t.ppf(0.5 + LEVEL / 2, freedom)) * np.sqrt(told)
    true_errors = _solved(
        lambda errors: float(special.nctdtr(freedom, errors, reach).mean()), 1 - POWER, 4 * reach.max()
    )
    middle = _solved(lambda share: -float(special.chdtr(freedom, freedom * share / told).mean()), -0.5, 4 * told.max())
    return true_errors / math.sqrt(middle)


def _solved(falling: Callable[[float], float], value: float, most: float) -> float:
    """Where in 0 .. `most` a falling function reaches a value."""
    low, high = 0.0, most
    while high - low > 1e-6 * most:
        middle = (low + high) / 2
        if falling(middle) > value:
            low = middle
        else:
            high = middle
    return high


def _is_positive(value: float | None) -> bool:
    return value is not None and value > 0 and math.isfinite(value)


def _too_few(n: int, least: int, what: str) -> str:
    return "" if n >= least else f"not enough data: {n} of {least} {what}s a side"
