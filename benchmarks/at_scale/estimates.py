"""What becomes of many samples: a mean with its interval, a quantile, an exponent of growth. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from side_by_side.pairs import Estimate, t_975


def mean(values: Sequence[float]) -> Estimate:
    """The mean with its 95 % interval (Student's t); no interval for a single value. Raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    middle = math.fsum(values) / len(values)
    if len(values) == 1:
        return Estimate(middle, None, None, 1)
    squares = math.fsum((value - middle) ** 2 for value in values)
    half = t_975(len(values) - 1) * math.sqrt(squares / (len(values) - 1) / len(values))
    return Estimate(middle, middle - half, middle + half, len(values))


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least `share` of them do not exceed. Raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """`b` of y = a x^b, by least squares of the logarithms: 1 is growth in proportion. Raises ValueError below two points."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    if len({x for x, _ in logs}) < 2:
        raise ValueError("growth needs two sizes")
    middle_x = math.fsum(x for x, _ in logs) / len(logs)
    middle_y = math.fsum(y for _, y in logs) / len(logs)
    above = math.fsum((x - middle_x) * (y - middle_y) for x, y in logs)
    return above / math.fsum((x - middle_x) ** 2 for x, _ in logs)
