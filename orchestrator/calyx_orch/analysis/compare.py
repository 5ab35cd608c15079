"""A against B: for each workload and metric the ratio, its interval, a test and a verdict; and when no verdict can be given, why.

Every side is compared with the reference (the first). All p-values of a comparison are corrected together (Holm). Where sides were
planned with different rates, no figure gets a verdict: the row says `at different load` (where the rates are nearly one, latencies have
theirs). A latency verdict needs that load done as well: of a closed loop, whose load follows from its latency, only where both sides did
the same throughput on the same guests. Latencies of an open loop count from when I/Os were due, where both sides know it. One run
compares the placements it measured, and nothing beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from calyx_orch.analysis import significance
from calyx_orch.analysis.cells import Key, keys_of
from calyx_orch.analysis.comparability import differences
from calyx_orch.analysis.comparison import (
    BETTER,
    FROM_DUE,
    NO_DIFFERENCE,
    NOT_ENOUGH,
    OTHER_LOAD,
    WORSE,
    Comparison,
    ComparisonRow,
    SideUnits,
)
from calyx_orch.analysis.histogram import percentile_or_none
from calyx_orch.analysis.remarks import remarks
from calyx_orch.analysis.rounds import Figures, doubt_names, intended_latencies, know_when_due, latencies, played
from calyx_orch.analysis.sides import Offered, Side, Unit, fullest, units_of_all
from calyx_orch.analysis.significance import Effect
from calyx_orch.analysis.variation import mean_known
from calyx_orch.model import Workload

LEVEL = 0.05  # of all verdicts of a comparison together
EQUAL_LOAD = 0.05  # throughputs within 5 % are one load

Figure = Callable[[Sequence[Figures]], float | None]


@dataclass(frozen=True)
class Metric:
    """What is compared: its name, its figure of one unit, whether more is better, and whether it is a latency.

    `due` is its figure where I/Os are due at times of their own: waiting counts.
    """

    name: str
    figure: Figure
    more_is_better: bool
    is_latency: bool = False
    due: Figure | None = None


def _throughput(figures: Sequence[Figures]) -> float | None:
    return _guests_mean(figures, lambda found: found.throughput_bytes_per_s)


def _iops(figures: Sequence[Figures]) -> float | None:
    return _guests_mean(figures, lambda found: found.iops)


def _guests_mean(figures: Sequence[Figures], figure: Callable[[Figures], float | None]) -> float | None:
    """The mean over guests of each one's mean."""
    guests: dict[str, list[float | None]] = {}
    for found in figures:
        guests.setdefault(found.measurement.guest, []).append(figure(found))
    return mean_known(mean_known(values) for values in guests.values())


def _percentile(percent: float) -> Figure:
    """A percentile of the merged buckets of a unit; None with fewer than ten samples beyond it."""
    return lambda figures: percentile_or_none(latencies(figures), percent)


def _percentile_due(percent: float) -> Figure:
    """The same of the latencies from when each I/O was due."""
    return lambda figures: percentile_or_none(intended_latencies(figures), percent)


METRICS = (
    Metric("throughput", _throughput, True),
    Metric("IOPS", _iops, True),
    Metric("P50", _percentile(50.0), False, True, _percentile_due(50.0)),
    Metric("P99", _percentile(99.0), False, True, _percentile_due(99.0)),
    Metric("P99.9", _percentile(99.9), False, True, _percentile_due(99.9)),
    Metric("CV within a run", lambda figures: _guests_mean(figures, lambda found: found.cv_within_run.value), False),
    Metric("CPU per I/O", lambda figures: _guests_mean(figures, lambda found: found.engine_ns_per_io), False),
)


def figure_of(metric: Metric, units: Sequence[Unit]) -> float | None:
    """A metric over units, as the tables of a run show it; None where no unit knows it.

    A latency comes from the merged buckets of all units, anything else is the mean of the units.
    """
    if metric.is_latency:
        return metric.figure(tuple(found for unit in units for found in unit.figures))
    return mean_known(metric.figure(unit.figures) for unit in units)


def compare(sides: Sequence[Side], *, fact: str = "") -> Comparison:
    """Every side against the first. `fact` names what tells the sides of one run apart; empty: the sides are runs."""
    units = _units(sides)
    order = _order(sides)
    rows = [
        row
        for side, mine in zip(sides[1:], units[1:], strict=True)
        for key in sorted(mine.keys() & units[0].keys(), key=order)
        for row in _rows(side, mine[key], sides[0], units[0][key], key)
    ]
    every = tuple(judged(rows))
    return Comparison(
        sides=tuple(sides),
        rows=every,
        differences=tuple(differences(sides, fact)),
        notes=tuple(remarks(sides, units, every, fact)),
    )


def units_by_side(sides: Sequence[Side]) -> tuple[SideUnits, ...]:
    """The units of every side under every key that the reference has too, keys in its order; sides of the same guests are cut alike."""
    units = _units(sides)
    is_alike = all(side.guests == sides[0].guests for side in sides)
    found = []
    for key in sorted(units[0], key=_order(sides)):
        mine = [(side, of[key]) for side, of in zip(sides, units, strict=True) if key in of]
        if is_alike:
            cut = fullest([of for _, of in mine], enough=significance.UNITS_MIN)
        else:
            cut = [fullest([of], enough=significance.UNITS_MIN)[0] for _, of in mine]
        target, workload, engine, load = key
        found += [
            SideUnits(side.name, target, workload, side.engine or engine, load, of)
            for (side, _), of in zip(mine, cut, strict=True)
        ]
    return tuple(found)


def _units(sides: Sequence[Side]) -> list[dict[Key, tuple[Unit, ...]]]:
    """The units of each side; each run is looked at once, however many of the sides are parts of it."""
    places: dict[int, list[int]] = {}
    for place, side in enumerate(sides):
        places.setdefault(id(side.record), []).append(place)
    found: dict[int, dict[Key, tuple[Unit, ...]]] = {}
    for mine in places.values():
        of = [sides[place] for place in mine]
        found |= zip(mine, units_of_all(of, played(of[0].record)), strict=True)
    return [found[place] for place in range(len(sides))]


# --- rows -----------------------------------------------------------------------------------------------------------


def _rows(
    side: Side, mine: Sequence[Unit], reference: Side, theirs: Sequence[Unit], key: Key
) -> Iterable[ComparisonRow]:
    """One row a metric. Within a run units that were played side by side are pairs; runs have none.

    Sides of the same guests (engines, runs) are cut to the same ones; other sides each to their own.
    """
    target, workload, engine, load = key
    is_paired = side.record is reference.record
    if side.guests == reference.guests:
        mine, theirs = fullest([mine, theirs], enough=significance.UNITS_MIN)
    else:
        (mine,), (theirs,) = (fullest([units], enough=significance.UNITS_MIN) for units in (mine, theirs))
    others = {unit.turn: unit for unit in theirs}
    shared = [(unit, others[unit.turn]) for unit in mine if unit.turn in others] if is_paired else []
    definition = _workload(side, workload)
    throughput: Effect | None = None
    other_load, nearly = _other_load(side, mine, reference, theirs, key)
    doubts = doubt_names(found for unit in (*theirs, *mine) for found in unit.figures)
    is_due = definition.is_open_loop and know_when_due(found for unit in (*mine, *theirs) for found in unit.figures)
    for metric in (replace(one, figure=one.due) if is_due and one.due else one for one in METRICS):
        if metric.name == "IOPS" and len(definition.block_sizes) == 1:
            continue  # throughput by another name: it would only cost the other rows their verdicts
        if is_paired:
            mine, theirs = tuple(a for a, _ in shared), tuple(b for _, b in shared)
        values = [metric.figure(unit.figures) for unit in mine], [metric.figure(unit.figures) for unit in theirs]
        effect = significance.paired(list(zip(*values, strict=True))) if is_paired else significance.unpaired(*values)
        throughput = throughput or effect
        if effect.ratio is None and not any(value is not None for one in values for value in one):
            continue  # such as a P99.9 of too few I/Os: nothing to show on either side
        verdict, note = _verdict(metric, effect, throughput, definition, side, reference)
        if effect.p is not None and other_load and not (nearly and metric.is_latency):
            verdict, note = OTHER_LOAD, other_load
        yield ComparisonRow(
            side=side.name,
            reference=reference.name,
            target=target,
            workload=workload,
            engine=engine,
            load=load,
            metric=metric.name,
            value=figure_of(metric, mine),
            reference_value=figure_of(metric, theirs),
            effect=effect,
            verdict=verdict,
            note=note,
            labels=(*definition.labels, FROM_DUE) if is_due and metric.is_latency else definition.labels,
            doubt_names=doubts,
        )


def _other_load(
    side: Side, mine: Sequence[Unit], reference: Side, theirs: Sequence[Unit], key: Key
) -> tuple[str, bool]:
    """Why no figure of these sides can be compared: they were offered different rates, or shared what they share with others.

    With it, whether that is nearly one load, as of two nights that each found the capacity anew: what a rate decides by itself has no
    verdict then, and latencies have.
    """
    ours, its = (frozenset[Offered]().union(*(unit.offered for unit in units)) for units in (mine, theirs))
    told, nearly = "", True
    if len(ours | its) > 1:
        said = [" or ".join(sorted(map(str, offered))) for offered in (ours, its)]
        told, nearly = f"each job was offered {said[0]}, in {reference.name} {said[1]}", _is_one_load(ours | its)
    if side.record is reference.record or not nearly:
        return told, nearly
    crowds = _crowd(side, key, mine), _crowd(reference, key, theirs)
    if crowds[0] == crowds[1]:
        return told, nearly
    return f"{crowds[0]} guests ran at once on what these share, in {reference.name} {crowds[1]}", False


def _is_one_load(offered: Iterable[Offered]) -> bool:
    """Whether rates lie within EQUAL_LOAD of each other; a bound on some sides only is another load."""
    for rates in zip(*offered, strict=True):
        known = [rate for rate in rates if rate is not None]
        if known and (len(known) < len(rates) or max(known) > min(known) * (1 + EQUAL_LOAD)):
            return False
    return True


def _crowd(side: Side, key: Key, units: Sequence[Unit]) -> int:
    """How many guests ran at once in the domains of the compared ones: what each of them had to share."""
    domains = {guest.name: guest.domain for guest in side.record.plan.inventory.guests}
    mine = {domains[found.measurement.guest] for unit in units for found in unit.figures}
    rounds: dict[int, set[str]] = {}
    for m in side.record.measurements:
        if (m.target, m.workload, m.engine, m.load) == key and m.status == "ok" and domains.get(m.guest) in mine:
            rounds.setdefault(m.round_index, set()).add(m.guest)
    return max(map(len, rounds.values()), default=0)


def _verdict(
    metric: Metric, effect: Effect, throughput: Effect, workload: Workload, side: Side, reference: Side
) -> tuple[str, str]:
    """The verdict before the correction, and a note. Better or worse is decided by `judged`."""
    if effect.p is None:
        return NOT_ENOUGH, effect.reason
    if metric.is_latency and not _equal_load(throughput, workload, side, reference):
        return OTHER_LOAD, _load_note(workload)
    return "", ""


def _equal_load(throughput: Effect, workload: Workload, side: Side, reference: Side) -> bool:
    """An open loop offers the same to both, when both did it; a closed one only by the same throughput on the same guests."""
    same = throughput.ratio is not None and abs(math.log(throughput.ratio)) <= math.log1p(EQUAL_LOAD)
    return same and (workload.is_open_loop or side.guests == reference.guests)


def _load_note(workload: Workload) -> str:
    if workload.is_open_loop:
        return f"one side did not keep up with the rate of {workload.name}"
    return "the load of a closed loop follows from its latency; for a verdict measure at load points (`rate: [50%]`), or set `rate_iops`"


def judged(rows: Sequence[ComparisonRow]) -> Iterable[ComparisonRow]:
    """Correct all p-values together and say better or worse; of fewer units than so many rows need, neither."""
    few = _too_few(rows)
    open_ = [row for row in rows if _is_open(row) and id(row) not in few]
    adjusted = dict(zip(map(id, open_), significance.holm([row.effect.p or 0.0 for row in open_]), strict=True))
    better = {metric.name: metric.more_is_better for metric in METRICS}
    for row in rows:
        if id(row) in few:
            yield replace(row, verdict=NOT_ENOUGH, note=few[id(row)])
            continue
        if id(row) not in adjusted or row.effect.ratio is None:
            yield row
            continue
        p = adjusted[id(row)]
        verdict = NO_DIFFERENCE
        if p < LEVEL:
            verdict = BETTER if (row.effect.ratio > 1) == better[row.metric] else WORSE
        yield replace(row, p_adjusted=p, verdict=verdict)


def _is_open(row: ComparisonRow) -> bool:
    return not row.verdict and row.effect.p is not None


def _too_few(rows: Sequence[ComparisonRow]) -> dict[int, str]:
    """By row, why it cannot be judged beside the others: the more are corrected together, the more units each needs.

    As many as would tell two sides apart that do not overlap at all by a test that knows no shape of noise: with fewer nothing would.
    """
    told: dict[int, str] = {}
    while True:
        open_ = [row for row in rows if _is_open(row) and id(row) not in told]
        needed = significance.units_without_shape(max(len(open_), 1), is_paired=False)
        few = [row for row in open_ if row.effect.units < needed]
        if not few:
            return told
        for row in few:
            what = "pairs" if row.effect.paired else "units a side"
            told[id(row)] = (
                f"{NOT_ENOUGH}: {row.effect.units} of {needed} {what}, as {len(open_)} rows are corrected together"
            )


def _workload(side: Side, name: str) -> Workload:
    return next(round_.workload for round_ in side.record.plan.rounds if round_.workload.name == name)


def _order(sides: Sequence[Side]) -> Callable[[Key], tuple[int, str]]:
    """The inventory's order of the reference; keys without an engine come by their first engine's place."""
    places: dict[Key, int] = {}
    for at, (target, workload, engine, load) in enumerate(keys_of(sides[0].record)):
        places.setdefault((target, workload, engine, load), at)
        places.setdefault((target, workload, "", load), at)
    return lambda key: (places.get(key, len(places)), str(key))
