"""The analysis as tables: guests, fleet, calyx against fio, together against alone. The page and the terminal show the same.

A `Field` is a column that knows how to write its value; `rank` says which columns a narrow terminal keeps (0: always, and
so all that tells one row from another).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from calyx_orch.analysis.rows import (
    DoubtRow,
    FairnessRow,
    FleetPairRow,
    FleetRow,
    GuestRow,
    InterferenceRow,
    PairRow,
    PartsRow,
    Summary,
)
from calyx_orch.analysis.validity import GATE_ONLY
from calyx_orch.model import RunRecord
from calyx_orch.report import facts, sharing, wording
from calyx_orch.report.facts import Column, Table, header, is_short
from calyx_orch.report.fields import Field

__all__ = ["Column", "Field", "Table", "doubts", "header", "is_short", "of_page"]

Row = TypeVar("Row")
AnyRow = TypeVar("AnyRow", GuestRow, FleetRow, InterferenceRow, FairnessRow, PartsRow)
GUESTS_TOLD_MAX = 4
SHARED = frozenset({"side", "target", "load", "scope", "kind", "guests", "rounds", "pairs", "interval"})
PLACES = ("storage", "vm_host")
NOT_RUN = "not run"
FIGURE = re.compile(r" -?[0-9.]+ (%|ms|s)$")  # at the end of a doubt's label


CV_WITHIN = "standard deviation / mean of throughput over the intervals of a round, mean over rounds"
CV_INTERVAL = "95 % interval of the CV within a run, by resampling blocks of intervals, and how long an interval is"
TAIL = "how far the tail lies above the middle"
CV_REPETITIONS = "standard deviation / mean of a guest's throughput over rounds of the same kind"
CV_GUESTS = "standard deviation / mean over the guests' mean throughput"
SUM = "sum over the guests, each in the rounds that all of them share; where some are not shared, `guests` says how many are"
PERCENTILE = "from the merged buckets of all rounds; n/a when fewer than ten samples lie beyond"
CPU = "share of all CPUs of the guest that was busy in the window, from the scheduler's statistics"
CPU_ENGINE = "share of all CPUs of the guest that the engine used, its kernel threads included"
CPU_PER_IO = "CPU time of the engine, its kernel threads included, for each I/O"
SKEW = (
    "distance of the first I/O from the start line, median of rounds, and how wrong that can be; "
    "gate only: fio's gate opened, its first I/O was not seen"
)
KIND = "buffered: through the page cache; psync: one system call after another; open loop: I/Os are due at times of their own"
INTENDED = "open loops: counted from when an I/O was due, its waiting included"
LATE = "open loops: the share of I/Os that began more than 1 ms after they were due"

GUEST: tuple[Field[GuestRow], ...] = (
    Field("guest", lambda row: row.guest, is_number=False),
    Field("vm_host", lambda row: row.vm_host or "", 4, is_number=False),
    Field("workload", lambda row: row.workload, is_number=False),
    Field("kind", lambda row: ", ".join(row.labels), is_number=False, explanation=KIND),
    Field("target", lambda row: row.target, is_number=False),
    Field("load", lambda row: row.load, is_number=False),
    Field("engine", lambda row: row.engine, is_number=False),
    Field("doubts", lambda row: _doubts(row.doubts, row.status), is_number=False),
    Field("rounds", lambda row: _of(row.rounds, row.rounds_planned), 8),
    Field("MB/s", lambda row: wording.megabytes(row.throughput_bytes_per_s), explanation="10^6 bytes per second"),
    Field("IOPS", lambda row: wording.significant(row.iops)),
    Field("CV within run", lambda row: wording.cv(row.cv_within_run), 2, explanation=CV_WITHIN),
    Field("CV interval", lambda row: _within(row), 9, explanation=CV_INTERVAL),
    Field("CV between repetitions", lambda row: wording.cv(row.cv_between_repetitions), 6, explanation=CV_REPETITIONS),
    Field("P50", lambda row: wording.latency(row.p50_ns), 3, explanation=PERCENTILE),
    Field("P90", lambda row: wording.latency(row.p90_ns), 9, explanation=PERCENTILE),
    Field("P95", lambda row: wording.latency(row.p95_ns), 9, explanation=PERCENTILE),
    Field("P99", lambda row: wording.latency(row.p99_ns), explanation=PERCENTILE),
    Field("P99.9", lambda row: wording.latency(row.p999_ns), 3, explanation=PERCENTILE),
    Field("P99.99", lambda row: wording.latency(row.p9999_ns), 9, explanation=PERCENTILE),
    Field("P99.999", lambda row: wording.latency(row.p99999_ns), 9, explanation=PERCENTILE),
    Field("P99 / P50", lambda row: _times(row.tail_ratio), 9, explanation=TAIL),
    Field("P99.9 / P50", lambda row: _times(row.far_tail_ratio), 9, explanation=TAIL),
    Field("P99 intended", lambda row: _if_open(row, wording.latency(row.p99_intended_ns)), 1, explanation=INTENDED),
    Field("late", lambda row: _if_open(row, wording.cv(row.late_share)), 4, explanation=LATE),
    Field("CPU", lambda row: wording.percent(row.cpu_percent), 1, explanation=CPU),
    Field("CPU engine", lambda row: wording.percent(row.engine_cpu_percent), 5, explanation=CPU_ENGINE),
    Field("CPU per I/O", lambda row: wording.latency(row.cpu_ns_per_io), 5, explanation=CPU_PER_IO),
    Field("skew", lambda row: _skew(row), 7, explanation=SKEW),
)

FLEET: tuple[Field[FleetRow], ...] = (
    Field("scope", lambda row: row.scope, is_number=False),
    Field("workload", lambda row: row.workload, is_number=False),
    Field("kind", lambda row: ", ".join(row.labels), is_number=False, explanation=KIND),
    Field("target", lambda row: row.target, is_number=False),
    Field("load", lambda row: row.load, is_number=False),
    Field("engine", lambda row: row.engine, is_number=False),
    Field("doubts", lambda row: _doubts(row.doubts, "ok"), is_number=False),
    Field("guests", lambda row: _of(row.guests, row.guests_planned), 4),
    Field("MB/s", lambda row: wording.megabytes(row.throughput_bytes_per_s), explanation=SUM),
    Field("IOPS", lambda row: wording.significant(row.iops), explanation=SUM),
    Field("CV between guests", lambda row: wording.cv(row.cv_between_guests), 2, explanation=CV_GUESTS),
    Field("P50", lambda row: wording.latency(row.p50_ns), 4, explanation=PERCENTILE),
    Field("P99", lambda row: wording.latency(row.p99_ns), explanation=PERCENTILE),
    Field("P99.9", lambda row: wording.latency(row.p999_ns), 4, explanation=PERCENTILE),
    Field("CPU", lambda row: wording.percent(row.cpu_percent), 3, explanation=CPU),
    Field("CPU per I/O", lambda row: wording.latency(row.cpu_ns_per_io), 5, explanation=CPU_PER_IO),
    Field("overlap", lambda row: wording.cv(row.overlap), 8, explanation="common window / longest window of a guest"),
    Field("skew", lambda row: _skew(row), 7, explanation=SKEW),
    Field(
        "skew max", lambda row: wording.latency(row.skew_max_ns), 8, explanation="the largest of any guest and round"
    ),
)


@dataclass(frozen=True)
class Pair:
    """The ratios of one guest, calyx / one fio engine, by metric."""

    first: PairRow
    ratios: dict[str, PairRow]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rules that struck on either side."""
        return _names(self.ratios.values())


@dataclass(frozen=True)
class FleetPair:
    """The ratios of the whole fleet, calyx / one fio engine, by metric."""

    first: FleetPairRow
    ratios: dict[str, FleetPairRow]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rules that struck on any guest."""
        return _names(self.ratios.values())


FLEET_PAIR: tuple[Field[FleetPair], ...] = (
    Field("workload", lambda pair: pair.first.workload, is_number=False),
    Field("kind", lambda pair: ", ".join(pair.first.labels), is_number=False),
    Field("target", lambda pair: pair.first.target, is_number=False),
    Field("load", lambda pair: pair.first.load, is_number=False),
    Field("calyx against", lambda pair: pair.first.engine, is_number=False),
    Field("guests", lambda pair: str(pair.first.guests), 4),
    Field("IOPS", lambda pair: _spread(pair, "IOPS")),
    Field("P99", lambda pair: _spread(pair, "P99"), 1),
    Field("CPU per I/O", lambda pair: _spread(pair, "CPU per I/O"), 2),
    Field("CV within run", lambda pair: _spread(pair, "CV within a run"), 3),
    Field("doubts", lambda pair: sharing.named_doubts(pair.names), 3, is_number=False),
)


PAIR: tuple[Field[Pair], ...] = (
    Field("guest", lambda pair: pair.first.guest, is_number=False),
    Field("vm_host", lambda pair: pair.first.vm_host or "", 6, is_number=False),
    Field("workload", lambda pair: pair.first.workload, is_number=False),
    Field("kind", lambda pair: ", ".join(pair.first.labels), is_number=False, explanation=KIND),
    Field("target", lambda pair: pair.first.target, is_number=False),
    Field("load", lambda pair: pair.first.load, is_number=False),
    Field("calyx against", lambda pair: pair.first.engine, is_number=False),
    Field("IOPS", lambda pair: _ratio(pair.ratios.get("IOPS")), explanation="above 1: calyx did more"),
    Field("P99", lambda pair: _ratio(pair.ratios.get("P99")), 1, explanation="below 1: calyx was faster"),
    Field(
        "CPU per I/O", lambda pair: _ratio(pair.ratios.get("CPU per I/O")), 2, explanation="below 1: calyx needed less"
    ),
    Field(
        "CV within run",
        lambda pair: _ratio(pair.ratios.get("CV within a run")),
        3,
        explanation="below 1: calyx was steadier",
    ),
    Field("pairs", lambda pair: str(pair.first.pairs), 7, explanation="blocks in which both were measured"),
    Field("doubts", lambda pair: sharing.named_doubts(pair.names), 3, is_number=False),
    Field("interval", lambda pair: pair.first.interval or pair.first.reason, 8, is_number=False),
)


FLEET_TEXT = "Throughput and IOPS are sums of the guests, over the rounds that all of them share."
ALONE = "Alone, a vm_host or storage is the sum of its guests, each measured at a time of its own."


@dataclass(frozen=True)
class Neighbours:
    """What one guest, vm_host or storage pool keeps under a load, by metric."""

    first: InterferenceRow
    metrics: dict[str, InterferenceRow]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rules that struck on either side."""
        return _names(self.metrics.values())


INTERFERENCE: tuple[Field[Neighbours], ...] = (
    Field("scope", lambda one: one.first.scope, is_number=False),
    Field("name", lambda one: one.first.guest, is_number=False),
    Field("workload", lambda one: one.first.workload, is_number=False),
    Field("target", lambda one: one.first.target, is_number=False),
    Field("engine", lambda one: one.first.engine, is_number=False),
    Field("load", lambda one: one.first.load, is_number=False),
    Field("alone", lambda one: _amount(one.metrics.get("throughput"), "alone"), 2, explanation=ALONE),
    Field("with neighbours", lambda one: _amount(one.metrics.get("throughput"), "together"), 2),
    Field("throughput ratio", lambda one: _ratio(one.metrics.get("throughput")), explanation="1: no interference"),
    Field("P99 alone", lambda one: _amount(one.metrics.get("P99"), "alone"), 5),
    Field("P99 with neighbours", lambda one: _amount(one.metrics.get("P99"), "together"), 5),
    Field("P99 ratio", lambda one: _ratio(one.metrics.get("P99")), 1, explanation="1: no interference"),
    Field("pairs", lambda one: str(one.first.pairs), 6),
    Field("doubts", lambda one: sharing.named_doubts(one.names), 3, is_number=False),
    Field("interval", lambda one: one.first.interval or one.first.reason, 8, is_number=False),
)


def of_page(record: RunRecord, summary: Summary) -> tuple[Table, ...]:
    """Make the tables of the page, in its order; empty ones are left out, and all of figures when nothing was measured."""
    measured = (
        table("fleet", "The fleet", FLEET, ordered(summary.fleet), first=True, text=FLEET_TEXT),
        table("rows", "Guest by guest", GUEST, played(summary.guests), text=not_run(summary.guests)),
        table("fairness", "How fairly places are shared", sharing.FAIRNESS, ordered(summary.fairness)),
        table("carried", "How many guests a place carries", sharing.CARRIED, summary.carried),
        table("density", "With more and more guests at once", sharing.DENSITY, summary.density),
        table("steady", "Steady state", sharing.STEADY, summary.steady, text=sharing.STEADY_TEXT),
        table("parts", "Where the variance lies", sharing.PARTS, ordered(summary.parts), text=sharing.PARTS_TEXT),
        table("pairs", "calyx against fio", PAIR, pairs(summary.pairs), text="Ratios calyx / fio, paired by block."),
        table(
            "interference", "With neighbours against alone", INTERFERENCE, neighbours(summary),
            text=f"What a guest, vm_host or storage pool keeps when its neighbours run as well. {ALONE}",
        ),
    ) if is_measured(summary) else ()  # fmt: skip
    made = (
        facts.failures(record),
        facts.searches(record),
        facts.settled(record),
        facts.conditioned(record),
        *measured,
        facts.setups(record),
        facts.guests(record),
    )
    return tuple(one for one in made if one is not None)


def is_measured(summary: Summary) -> bool:
    """Whether any guest was measured in any round."""
    return any(row.rounds for row in summary.guests)


def played(rows: Sequence[GuestRow]) -> list[GuestRow]:
    """Leave out the rows of which no round was played, as after an interrupt."""
    return ordered([row for row in rows if row.status != NOT_RUN])


def not_run(rows: Sequence[GuestRow]) -> str:
    """Say how many rows `played` leaves out."""
    count = sum(row.status == NOT_RUN for row in rows)
    return f"Not run and not shown: {wording.count_of(count, 'row')}." if count else ""


def ordered(rows: Sequence[AnyRow]) -> list[AnyRow]:
    """Put the rows of a workload, target and load together, in them those of a guest, and in them calyx before fio."""
    names = [getattr(row, "guest", "") for row in rows]
    guests = {name: place for place, name in enumerate(dict.fromkeys(names))}
    cells = {cell: place for place, cell in enumerate(dict.fromkeys((r.workload, r.target, r.load) for r in rows))}

    def place(row: AnyRow) -> tuple[int, int, bool, str]:
        cell = cells[row.workload, row.target, row.load]
        return cell, guests[getattr(row, "guest", "")], row.engine != "calyx", row.engine

    return sorted(rows, key=place)


def table(
    key: str, title: str, fields: Sequence[Field[Row]], rows: Iterable[Row], *, text: str = "", first: bool = False
) -> Table | None:
    """Write rows into a table; None when there are none.

    Columns that are empty in every row are left out, those without a single figure are named instead; a target, load, scope,
    count or want of an interval that all rows share is told in the text.
    """
    written = [tuple(wording.printable(field.text(row)) for field in fields) for row in rows]
    if not written:
        return None
    values = {number: {row[number] for row in written} for number in range(len(fields))}
    shared = [n for n, found in values.items() if fields[n].title in SHARED and len(found) == 1 and "" not in found]
    blank = [
        n for n, found in values.items() if wording.NOT_AVAILABLE in found and found <= {"", wording.NOT_AVAILABLE}
    ]
    used = [n for n, found in values.items() if found != {""} and n not in shared and n not in blank]
    said = ", ".join(f"{fields[n].title} {written[0][n]}" for n in shared)
    unknown = ", ".join(fields[n].title for n in blank)
    columns = tuple(Column(fields[n].title, fields[n].is_number, fields[n].explanation) for n in used)
    parts = (text, f"All rows: {said}." if said else "", f"Not known in any row: {unknown}." if unknown else "")
    cells = tuple(tuple(row[n] for n in used) for row in written)
    return Table(key, title, columns, cells, " ".join(filter(None, parts)), first, is_measured=True)


def pairs(rows: Iterable[PairRow]) -> tuple[Pair, ...]:
    """Gather the metrics of each guest and fio engine, in the order of `rows`; those without any ratio are left out."""
    gathered: dict[tuple[str, ...], dict[str, PairRow]] = {}
    for row in rows:
        gathered.setdefault((row.workload, row.target, row.load, row.guest, row.engine), {})[row.metric] = row
    known = [metrics for metrics in gathered.values() if any(row.ratio is not None for row in metrics.values())]
    return tuple(Pair(metrics.get("IOPS") or next(iter(metrics.values())), metrics) for metrics in known)


def fleet_pairs(rows: Iterable[FleetPairRow]) -> tuple[FleetPair, ...]:
    """Gather the metrics of each workload, target, load and fio engine."""
    gathered: dict[tuple[str, ...], dict[str, FleetPairRow]] = {}
    for row in rows:
        gathered.setdefault((row.workload, row.target, row.load, row.engine), {})[row.metric] = row
    return tuple(
        FleetPair(metrics.get("IOPS") or next(iter(metrics.values())), metrics) for metrics in gathered.values()
    )


def neighbours(summary: Summary) -> tuple[Neighbours, ...]:
    """Gather the metrics of each storage pool, vm_host and guest, in this order.

    A vm_host of a single guest would repeat that guest's row, and what has no ratio says nothing: both are left out.
    """
    alone = {
        (scope, name) for scope, members in _members(summary).items() for name, of in members.items() if len(of) < 2
    }
    gathered: dict[tuple[str, ...], dict[str, InterferenceRow]] = {}
    for row in (*ordered(summary.places), *ordered(summary.interference)):
        if (row.scope, row.guest) not in alone:
            key = (row.workload, row.target, row.load, row.engine, row.scope, row.guest)
            gathered.setdefault(key, {})[row.metric] = row
    known = [metrics for metrics in gathered.values() if any(row.ratio is not None for row in metrics.values())]
    order = {scope: place for place, scope in enumerate((*PLACES, "guest"))}
    whole = [Neighbours(next(iter(metrics.values())), metrics) for metrics in known]
    return tuple(sorted(whole, key=lambda one: order[one.first.scope]))


def covered(summary: Summary) -> frozenset[str]:
    """The guests that share a storage or vm_host with another one, so that a place's row tells of them."""
    places = [of for members in _members(summary).values() for of in members.values() if len(of) > 1]
    return frozenset(guest for of in places for guest in of)


def _members(summary: Summary) -> dict[str, dict[str, set[str]]]:
    """The guests on each storage and vm_host."""
    members: dict[str, dict[str, set[str]]] = {scope: {} for scope in PLACES}
    for row in summary.guests:
        for scope in PLACES:
            name = getattr(row, scope)
            if name is not None:
                members[scope].setdefault(name, set()).add(row.guest)
    return members


def doubts(record: RunRecord, summary: Summary) -> tuple[str, ...]:
    """Say what is doubtful: a sentence for each rule that struck, then the notes of the run."""
    told = [_doubt(row) for row in summary.doubts]
    return tuple(wording.printable(text) for text in (*told, *record.notes))


def _doubt(row: DoubtRow) -> str:
    names = facts.names(row.guests, GUESTS_TOLD_MAX)
    where = f" ({names}; {wording.count_of(row.measurements, 'measurement')})" if names else ""
    remedy = f"; {row.remedy}" if row.remedy else ""
    return f"{row.label}: {row.sentence}{where}{remedy}"


def _names(rows: Iterable[PairRow | FleetPairRow | InterferenceRow]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for row in rows for name in row.doubt_names))


def _times(value: float | None) -> str:
    return wording.NOT_AVAILABLE if value is None else f"{wording.significant(value, 2)} x"


def _within(row: GuestRow) -> str:
    if row.cv_within_low is None or row.cv_within_high is None:
        return wording.NOT_AVAILABLE
    low, high = (wording.significant(100 * value) for value in (row.cv_within_low, row.cv_within_high))
    return f"{low} to {high} %" + ("" if row.interval_ms is None else f" ({row.interval_ms:g} ms)")


def _if_open(row: GuestRow, text: str) -> str:
    return text if row.late_share is not None else ""


def _of(done: int, planned: int) -> str:
    return str(done) if done == planned else f"{done} of {planned}"


def _skew(row: GuestRow | FleetRow) -> str:
    skew_ns, bound_ns = row.skew_median_ns, row.skew_bound_ns
    if skew_ns is None:
        return "gate only" if GATE_ONLY in row.skew_how else wording.NOT_AVAILABLE
    return wording.latency(skew_ns) + ("" if bound_ns is None else f" ± {wording.latency(bound_ns)}")


def _doubts(labels: Sequence[str], status: str) -> str:
    """What is doubtful of a row. That the run is short stands over the whole table, and how much, at worst, with the doubts."""
    words = (FIGURE.sub("", label) for label in labels if label != "short")
    return ", ".join([*([] if status == "ok" else [status]), *words])


def _ratio(row: PairRow | InterferenceRow | None) -> str:
    if row is None or row.low is None or row.high is None:
        return wording.ratio(None if row is None else row.ratio)
    return f"{wording.ratio(row.ratio)} ({wording.ratio(row.low)} to {wording.ratio(row.high)})"


def _spread(pair: FleetPair, metric: str) -> str:
    """The mean over guests, the lowest and highest guest, and of how many when it is not all."""
    row = pair.ratios.get(metric)
    if row is None:
        return wording.NOT_AVAILABLE
    most = max(other.guests for other in pair.ratios.values())
    parts = ([f"{row.low:.2f}-{row.high:.2f}"] if row.guests > 1 else []) + (
        [f"of {row.guests}"] if row.guests < most else []
    )
    return wording.ratio(row.ratio) + (f" ({', '.join(parts)})" if parts else "")


def _amount(row: InterferenceRow | None, field: str) -> str:
    if row is None:
        return wording.NOT_AVAILABLE
    value: float | None = getattr(row, field)
    return wording.latency(value) if row.metric.startswith("P") else wording.rate(value)
