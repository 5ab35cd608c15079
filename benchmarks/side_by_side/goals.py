"""Goals: is a figure where it shall be, and which is furthest from it? Pure.

A bound is judged at the edge of the interval that is worse. Where the interval lies on both sides, a goal that speaks of
significance is met and one that speaks of a bound is missed, but only when there were enough pairs; else it is open.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from side_by_side.pairs import Estimate

DECISIVE_PAIRS = 40


class Verdict(StrEnum):
    """What can be said of a goal."""

    MET = "met"
    MISSED = "missed"
    OPEN = "open"
    NONE = ""


@dataclass(frozen=True)
class Goal:
    """`at_most` or at least `bound`. `significant`: missed only when the whole interval lies beyond the bound."""

    bound: float
    at_most: bool
    significant: bool = False

    def __str__(self) -> str:
        beyond = ("> " if self.at_most else "< ") + f"{self.bound:g}"
        return f"not {beyond}" if self.significant else ("<= " if self.at_most else ">= ") + f"{self.bound:g}"


@dataclass(frozen=True)
class Figure:
    """One line of the table: a figure of a cell, its goal (None: it is only told), or why there is none."""

    cell: str
    name: str
    estimate: Estimate | None
    goal: Goal | None = None
    reason: str = ""
    unit: str = ""


def at_most(bound: float, *, significant: bool = False) -> Goal:
    """A goal from above."""
    return Goal(bound, at_most=True, significant=significant)


def at_least(bound: float, *, significant: bool = False) -> Goal:
    """A goal from below."""
    return Goal(bound, at_most=False, significant=significant)


def judge(figure: Figure, *, decisive_pairs: int = DECISIVE_PAIRS) -> Verdict:
    """Whether a figure meets its goal; OPEN where there are too few pairs to say, or no figure."""
    if figure.goal is None:
        return Verdict.NONE
    estimate = figure.estimate
    if estimate is None or estimate.low is None or estimate.high is None:
        return Verdict.OPEN
    worse, better = (estimate.high, estimate.low) if figure.goal.at_most else (estimate.low, estimate.high)
    if _holds(figure.goal, worse):
        return Verdict.MET
    if not _holds(figure.goal, better):
        return Verdict.MISSED
    if not estimate.is_exact and estimate.pairs < decisive_pairs:
        return Verdict.OPEN
    return Verdict.MET if figure.goal.significant else Verdict.MISSED


def distance(figure: Figure) -> float | None:
    """How far the judged edge lies beyond the goal, as the logarithm of a ratio: positive is beyond. None: not known."""
    goal, estimate = figure.goal, figure.estimate
    if goal is None or estimate is None or estimate.low is None or estimate.high is None:
        return None
    edge = estimate.high if goal.at_most != goal.significant else estimate.low
    if goal.bound <= 0 or edge <= 0:
        return None if _holds(goal, edge) else math.inf
    return math.log(edge / goal.bound) * (1 if goal.at_most else -1)


def furthest(figures: Iterable[Figure]) -> Figure | None:
    """The figure whose goal is missed by most; when none is missed, that which comes nearest to it. Open ones are left out."""
    judged = [(judge(figure), figure) for figure in figures]
    wanted = Verdict.MISSED if any(verdict is Verdict.MISSED for verdict, _ in judged) else Verdict.MET
    candidates = (figure for verdict, figure in judged if verdict is wanted)
    known = [(away, figure) for figure in candidates if (away := distance(figure)) is not None]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def _holds(goal: Goal, value: float) -> bool:
    return value <= goal.bound if goal.at_most else value >= goal.bound
