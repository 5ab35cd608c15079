"""Latency distributions: merging, percentiles by fio's rule, and what may be said of them.

A percentile comes from merged buckets or not at all. Both engines are compared on fio's grid of 64 buckets per power of two
by one estimator, which gives what fio itself prints: the middle of the first bucket at which the running count reaches
`percent / 100 * samples`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate

from calyx_orch.engines.buckets import fio_value_ns, to_fio_grid
from calyx_orch.model import Histogram

SAMPLES_BEYOND = 10  # a percentile with fewer samples above it is not shown
_MANTISSA_BITS = 64  # of the long double in which fio computes


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """All samples of several histograms as one, on the coarsest of their grids."""
    given = [histogram for histogram in histograms if histogram.buckets]
    if not given:
        return Histogram()
    grid = min(histogram.grid for histogram in given)
    counts: dict[int, int] = {}
    for histogram in given:
        for index, count in histogram.buckets:
            at = index if grid == 128 else to_fio_grid(index)
            counts[at] = counts.get(at, 0) + count
    return Histogram(
        buckets=tuple(sorted(counts.items())),
        min_ns=min((h.min_ns for h in given if h.min_ns is not None), default=None),
        max_ns=max((h.max_ns for h in given if h.max_ns is not None), default=None),
        sum_ns=sum(h.sum_ns for h in given),
        overflow=sum(h.overflow for h in given),
        grid=grid,
    )


def coarsen(histogram: Histogram) -> Histogram:
    """The same samples on fio's grid of 64 per power of two."""
    if histogram.grid == 64:
        return histogram
    counts: dict[int, int] = {}
    for index, count in histogram.buckets:
        counts[to_fio_grid(index)] = counts.get(to_fio_grid(index), 0) + count
    return Histogram(
        buckets=tuple(sorted(counts.items())),
        min_ns=histogram.min_ns,
        max_ns=histogram.max_ns,
        sum_ns=histogram.sum_ns,
        overflow=histogram.overflow,
        grid=64,
    )


def percentiles(histogram: Histogram, percents: Sequence[float]) -> tuple[int | None, ...]:
    """The latency in ns at each percentile, on the grid of 64; None without samples. 0 and 100 are the outer buckets.

    The value is the middle of the bucket, not clamped to the exact extremes, as fio does not clamp it either.
    """
    coarse = coarsen(histogram)
    if not coarse.buckets:
        return (None,) * len(percents)
    running = list(accumulate(count for _, count in coarse.buckets))
    return tuple(
        fio_value_ns(coarse.buckets[min(bisect_left(running, _needed(running[-1], percent)), len(running) - 1)][0])
        for percent in percents
    )


def percentile(histogram: Histogram, percent: float) -> int | None:
    """The latency in ns that `percent` of the samples do not exceed; None without samples."""
    return percentiles(histogram, (percent,))[0]


def percentile_or_none(histogram: Histogram, percent: float) -> int | None:
    """The percentile, or None when fewer than ten samples lie beyond it: it would be the story of a few."""
    return percentile(histogram, percent) if has_enough(histogram.count, percent) else None


def percentiles_or_none(histogram: Histogram, percents: Sequence[float]) -> tuple[int | None, ...]:
    """The percentiles, each None when fewer than ten samples lie beyond it."""
    samples = histogram.count
    found = percentiles(histogram, percents)
    return tuple(
        value if has_enough(samples, percent) else None for percent, value in zip(percents, found, strict=True)
    )


def has_enough(samples: int, percent: float) -> bool:
    """Whether ten samples or more lie beyond a percentile: P99 wants 1000 samples, P99.9 10 000."""
    return round(samples * (100.0 - percent) / 100.0, 6) >= SAMPLES_BEYOND


def mean_ns(histogram: Histogram) -> float | None:
    """The exact mean latency in ns; None without samples."""
    return histogram.sum_ns / histogram.count if histogram.count else None


def _needed(samples: int, percent: float) -> int:
    """The smallest running count that fio takes for this percentile: `sum >= (long double)percent / 100.0 * samples`."""
    return max(-(-_long_double(_long_double(Fraction(percent) / 100) * samples) // 1), 1)


def _long_double(value: Fraction) -> Fraction:
    """A value rounded to the 64 bits of x86's long double, half to even: what fio's own arithmetic gives."""
    if value == 0:
        return value
    shift = _MANTISSA_BITS - (value.numerator.bit_length() - value.denominator.bit_length())
    for exponent in (shift, shift - 1, shift + 1):
        scaled = value * Fraction(2) ** exponent
        if 2 ** (_MANTISSA_BITS - 1) <= scaled < 2**_MANTISSA_BITS:
            return Fraction(round(scaled)) / Fraction(2) ** exponent
    raise AssertionError("a positive fraction has an exponent")
