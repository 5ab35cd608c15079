"""What the rows of a comparison cannot say themselves: who was left out, what a unit is, and what verdicts rest on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from calyx_orch.analysis import significance
from calyx_orch.analysis.cells import Key
from calyx_orch.analysis.comparison import BETTER, WORSE, ComparisonRow
from calyx_orch.analysis.sides import Side, Unit

GUESTS_NAMED_MAX = 6
ROWS_NAMED_MAX = 3
SAME = 0.005  # a ratio nearer to 1 points nowhere


def remarks(
    sides: Sequence[Side], units: Sequence[Mapping[Key, tuple[Unit, ...]]], rows: Sequence[ComparisonRow], fact: str
) -> Iterable[str]:
    """All of it, as sentences; `fact` tells the sides of one run apart, empty: the sides are runs."""
    yield from _notes(sides, units, fact)
    yield from _few_units(rows)
    yield from apart(rows)


def _notes(sides: Sequence[Side], units: Sequence[Mapping[Key, tuple[Unit, ...]]], fact: str) -> Iterable[str]:
    if fact and fact != "engine":
        yield "one run compares these placements, on this day, and no others: guests, disks and neighbours come with them"
    if not fact:
        yield "two runs differ by their days as well: what changed between them, besides what is meant, is in these figures too"
    if fact == "group" and len({name for side in sides for name in side.guests}) < sum(
        len(side.guests) for side in sides
    ):
        yield "some guests are in several of these groups and count on several sides"
    if fact == "guest" or any(len(side.guests) == 1 for side in sides):
        yield "for one guest the unit is the block, else the round"
    for side in sides if not fact else ():
        counted = {
            found.measurement.guest
            for mine in units[sides.index(side)].values()
            for unit in mine
            for found in unit.figures
        }
        measured = {m.guest for m in side.record.measurements if m.status == "ok"}
        left = sorted(measured - counted | (counted - _in_all(units)))
        if left:
            yield f"measured in {side.name} and not compared, as not every run has them: {', '.join(left[:GUESTS_NAMED_MAX])}"
    lone = [side.name for side, mine in zip(sides, units, strict=True) if not mine]
    if lone:
        yield f"nothing was measured on {', '.join(lone)}"
    for side, mine in zip(sides[1:], units[1:], strict=True):
        missing = sorted({key[1] for key in mine.keys() ^ units[0].keys()})
        if mine and units[0] and missing:
            yield f"not on both of {side.name} and {sides[0].name}, and left out: {', '.join(missing)}"


def _few_units(rows: Sequence[ComparisonRow]) -> Iterable[str]:
    """What a verdict of few units rests on: the more rows are corrected together, the more units would do without it."""
    together = sum(row.p_adjusted is not None for row in rows)
    for is_paired in (True, False):
        mine = [row for row in rows if row.verdict in (BETTER, WORSE) and row.effect.paired is is_paired]
        needed = significance.units_without_shape(max(together, 1), is_paired=is_paired)
        if any(row.effect.units < needed for row in mine):
            what = "pairs" if is_paired else "units a side"
            yield (
                f"{together} rows are corrected together: better and worse of fewer than {needed} {what} rest on Student's test, "
                f"which takes logarithms of figures for normal; from {needed} on no shape has to be assumed"
            )


def apart(rows: Sequence[ComparisonRow]) -> Iterable[str]:
    """Rows whose ratio, a mean over units, points the other way than the values beside it, which are of all units together."""
    names = [
        f"{row.workload} {row.metric}"
        for row in rows
        if row.value
        and row.reference_value
        and row.effect.ratio
        and _point_apart(row.value / row.reference_value, row.effect.ratio)
    ]
    if names:
        named = ", ".join(names[:ROWS_NAMED_MAX]) + (
            f" and {len(names) - ROWS_NAMED_MAX} more" if len(names) > ROWS_NAMED_MAX else ""
        )
        yield (
            f"the units of {named} differ so much that the ratio, the mean of theirs, points the other way than the two values, which are "
            "of all units together"
        )


def _point_apart(one: float, other: float) -> bool:
    """Whether one ratio says more and the other less, both by more than what is shown of them."""
    return min(abs(math.log(one)), abs(math.log(other))) > SAME and (one > 1) is not (other > 1)


def _in_all(units: Sequence[Mapping[Key, tuple[Unit, ...]]]) -> set[str]:
    """The guests that every side measured."""
    each = [
        {found.measurement.guest for mine in one.values() for unit in mine for found in unit.figures} for one in units
    ]
    return set.intersection(*each) if each else set()
