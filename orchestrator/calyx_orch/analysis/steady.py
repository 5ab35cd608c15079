"""Steady state: over rounds by the window of SNIA, within a round by a trend and a change of level. Pure.

    steady       the last five rounds lie close together and lead nowhere
    burst        the rate fell once, by more than a fifth, and stayed there: a cache or a credit was exhausted at that moment
    not steady   neither

Source: SNIA, Solid State Storage Performance Test Specification, the definition of steady state: in a window of five rounds the range is at
most 20 % of the mean, and the line fitted by least squares moves by at most 10 % of the mean. Within a round its fifths stand for rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, linear_regression

ROUNDS = 5
RANGE_MAX = 0.20  # of the mean
SLOPE_MAX = 0.10  # of the mean, from the first to the last of the window
INTERVALS_MIN = 50  # a round with fewer tells nothing of itself
STRETCHES = 60  # a round is looked at in so many pieces
FALL_MIN = 0.20  # of the level before
EXPLAINED_MIN = 0.5  # of the variance, by two levels instead of one


@dataclass(frozen=True)
class Window:
    """Five consecutive values, `first` to `last` (places from 0): their mean, and range and fitted slope as shares of it."""

    first: int
    last: int
    mean: float
    range_share: float
    slope_share: float

    @property
    def is_steady(self) -> bool:
        """Whether they lie close together and lead nowhere."""
        return self.range_share <= RANGE_MAX and self.slope_share <= SLOPE_MAX


@dataclass(frozen=True)
class Fall:
    """The level fell from `before` to `after` at place `at`, the first of the lower ones."""

    at: int
    before: float
    after: float


@dataclass(frozen=True)
class Within:
    """A round by itself: the window of its fifths, and the fall of its level (None: none) with the seconds from the window's start."""

    fifths: Window
    fall: Fall | None
    fall_s: float | None

    @property
    def verdict(self) -> str:
        """`steady`, `not steady` or `burst`."""
        if self.fall is not None:
            return "burst"
        return "steady" if self.fifths.is_steady else "not steady"


def last_window(values: Sequence[float]) -> Window | None:
    """The last five values as a window; None for fewer, and for a mean of 0."""
    if len(values) < ROUNDS:
        return None
    tail = values[-ROUNDS:]
    mean = fmean(tail)
    if mean <= 0:
        return None
    slope = linear_regression(range(ROUNDS), tail).slope
    return Window(
        len(values) - ROUNDS,
        len(values) - 1,
        mean,
        (max(tail) - min(tail)) / mean,
        abs(slope) * (ROUNDS - 1) / mean,
    )


def fall(values: Sequence[float], *, before_min: int = 1, after_min: int = 3) -> Fall | None:
    """The one fall of a level, where two levels explain most of the variance, more than a line does, and the lower one stays; None without.

    It must be seen in at least `before_min` values before and `after_min` after.
    """
    n = len(values)
    if n < before_min + after_min or n < 3:
        return None
    sums = list(accumulate(values))

    def levels(at: int) -> tuple[float, float]:
        return sums[at - 1] / at, (sums[-1] - sums[at - 1]) / (n - at)

    def gained(at: int) -> float:
        before, after = levels(at)
        return at * (n - at) / n * (before - after) ** 2

    mean = fmean(values)
    whole = math.fsum((value - mean) ** 2 for value in values)
    place = max(range(before_min, n - after_min + 1), key=gained)
    before, after = levels(place)
    if whole <= 0 or after > (1 - FALL_MIN) * before or gained(place) < max(EXPLAINED_MIN * whole, _by_a_line(values)):
        return None
    return Fall(place, before, after) if _stays(values[place:], before, after) else None


def within(intervals: Sequence[float], interval_s: float) -> Within | None:
    """A round by its intervals (bytes of each); None for fewer than INTERVALS_MIN, and where nothing was done."""
    if len(intervals) < INTERVALS_MIN:
        return None
    each = max(len(intervals) // STRETCHES, 1)
    pieces = [fmean(intervals[at : at + each]) for at in range(0, len(intervals) // each * each, each)]
    fifths = [fmean(part) for part in _parts(pieces, ROUNDS)]
    window = last_window(fifths)
    if window is None:
        return None
    found = fall(pieces, before_min=max(len(pieces) // 20, 1), after_min=len(pieces) // 5)
    return Within(window, found, found.at * each * interval_s if found else None)


def _by_a_line(values: Sequence[float]) -> float:
    """How much of the sum of squares a straight line explains."""
    times = [at - (len(values) - 1) / 2 for at in range(len(values))]
    return math.fsum(time * value for time, value in zip(times, values, strict=True)) ** 2 / math.fsum(
        time * time for time in times
    )


def _stays(after: Sequence[float], before: float, level: float) -> bool:
    """Whether what follows a fall leads nowhere near the level before: its thirds all lie nearer to the lower one."""
    return max(fmean(part) for part in _parts(after, min(3, len(after)))) < (before + level) / 2


def _parts(values: Sequence[float], count: int) -> list[Sequence[float]]:
    """So many parts one after the other, the first ones longer by one where it does not come out even."""
    each, more = divmod(len(values), count)
    ends = [number * each + min(number, more) for number in range(count + 1)]
    return [values[begin:end] for begin, end in pairwise(ends)]
