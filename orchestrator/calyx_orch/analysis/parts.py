"""Where the variance comes from: between vm_hosts, between the guests on them, between the rounds of a guest; and how fair a place is.

A nested analysis of variance, also of unequal numbers: sums of squares that add up to the whole, and from their expected values the
variance that each level adds by itself. A level that cannot be told has none: of one round each, the rounds' part is in that of the guests;
of one guest on each vm_host, the guests' part is in that of the vm_hosts; of one vm_host nothing is known.

Sources: Searle, Linear Models (1971), for unequal numbers; Sokal and Rohlf, Biometry, box 10.1, for the known answer of the tests; Jain,
Chiu and Hawe (1984) for the index of fairness.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SUM_TOLERANCE = 1e-9  # of the whole: how exactly the parts must add up to it


@dataclass(frozen=True)
class Level:
    """One level: its sum of squares, its degrees of freedom, and the variance it adds by itself (None: it cannot be told)."""

    squares: float
    freedom: int
    variance: float | None

    @property
    def mean_square(self) -> float | None:
        """The sum of squares / the degrees of freedom; None without any."""
        return self.squares / self.freedom if self.freedom else None


@dataclass(frozen=True)
class Parts:
    """The levels of a nested analysis, and the whole: `squares` around the `mean` of all values."""

    mean: float
    squares: float
    vm_hosts: Level
    guests: Level
    rounds: Level

    @property
    def variance(self) -> float:
        """What a single value varies by: the sum over the levels."""
        return math.fsum(level.variance or 0.0 for level in (self.vm_hosts, self.guests, self.rounds))

    def share(self, level: Level) -> float | None:
        """What a level adds to `variance`, 0 .. 1; None where it cannot be told, or nothing varies."""
        return None if level.variance is None or self.variance <= 0 else level.variance / self.variance


def of_rounds(values: Mapping[str, Mapping[str, Sequence[float]]]) -> Parts | None:
    """Split the values of rounds, by vm_host and guest; None for fewer than two values.

    A component that comes out below 0, as chance makes it where a level adds nothing, is 0. Raises AssertionError if the sums of
    squares of the levels do not add up to the whole.
    """
    hosts = [
        [list(rounds) for rounds in guests.values() if rounds] for guests in values.values() if any(guests.values())
    ]
    every = [value for guests in hosts for rounds in guests for value in rounds]
    n = len(every)
    if n < 2:
        return None
    grand = math.fsum(every) / n
    sizes = [sum(map(len, guests)) for guests in hosts]
    means = [math.fsum(map(math.fsum, guests)) / size for guests, size in zip(hosts, sizes, strict=True)]
    between_hosts = math.fsum(size * (mean - grand) ** 2 for size, mean in zip(sizes, means, strict=True))
    between_guests = math.fsum(
        len(rounds) * (_mean(rounds) - mean) ** 2
        for guests, mean in zip(hosts, means, strict=True)
        for rounds in guests
    )
    between_rounds = math.fsum(
        (value - _mean(rounds)) ** 2 for guests in hosts for rounds in guests for value in rounds
    )
    whole = math.fsum((value - grand) ** 2 for value in every)
    parts = math.fsum((between_hosts, between_guests, between_rounds))
    if abs(parts - whole) > SUM_TOLERANCE * max(whole, grand * grand):
        raise AssertionError(f"the parts of the variance add up to {parts!r}, the whole is {whole!r}")
    return _levels(hosts, sizes, grand, whole, (between_hosts, between_guests, between_rounds))


def fairness(values: Sequence[float]) -> float | None:
    """Jain's index of what guests get: (sum)^2 / (n * sum of squares), 1 for equal shares and 1 / n when one has all; None below two."""
    squares = math.fsum(value * value for value in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if len(values) > 1 and squares > 0 else None


# --- how --------------------------------------------------------------------------------------------------------------


def _levels(
    hosts: Sequence[Sequence[Sequence[float]]],
    sizes: Sequence[int],
    mean: float,
    whole: float,
    squares: tuple[float, float, float],
) -> Parts:
    """Solve the expected mean squares from the innermost level outwards."""
    n, guests = sum(sizes), sum(map(len, hosts))
    free_hosts, free_guests, free_rounds = len(hosts) - 1, guests - len(hosts), n - guests
    nested = math.fsum(len(rounds) ** 2 / size for of, size in zip(hosts, sizes, strict=True) for rounds in of)
    rounds = squares[2] / free_rounds if free_rounds else None
    within: float | None = None
    if free_guests:
        within = max(squares[1] / free_guests - (rounds or 0.0), 0.0) / ((n - nested) / free_guests)
    between: float | None = None
    if free_hosts:
        equal = math.fsum(len(rounds) ** 2 for of in hosts for rounds in of) / n
        expected = (rounds or 0.0) + (within or 0.0) * (nested - equal) / free_hosts
        weight = (n - math.fsum(size * size for size in sizes) / n) / free_hosts
        between = max(squares[0] / free_hosts - expected, 0.0) / weight
    return Parts(
        mean,
        whole,
        Level(squares[0], free_hosts, between),
        Level(squares[1], free_guests, within),
        Level(squares[2], free_rounds, rounds),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
