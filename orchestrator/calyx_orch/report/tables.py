"""The analysis as tables: guests, fleet, calyx against fio, together against alone. The page and the terminal show the same.

A `Field` is a column that knows how to write its value; `rank` says which columns a narrow terminal keeps (0: always, and
so all that tells one row from another).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from calyx_orch.analysis.summary import DoubtRow, FleetRow, GuestRow, InterferenceRow, PairRow, Summary
from calyx_orch.model import RunRecord
from calyx_orch.report import facts, wording
from calyx_orch.report.facts import Column, Table, header, is_short

__all__ = ["Column", "Field", "Table", "doubts", "header", "is_short", "of_page"]

Row = TypeVar("Row")
AnyRow = TypeVar("AnyRow", GuestRow, FleetRow, InterferenceRow)
GUESTS_TOLD_MAX = 4
SHARED = frozenset({"target", "load", "scope", "pairs", "interval"})


@dataclass(frozen=True)
class Field(Generic[Row]):
    """A column of rows: `text` writes the value of a row."""

    title: str
    text: Callable[[Row], str]
    rank: int = 0
    is_number: bool = True
    explanation: str = ""


CV_WITHIN = "standard deviation / mean of throughput over the intervals of a round, mean over rounds"
CV_REPETITIONS = "standard deviation / mean of a guest's throughput over rounds of the same kind"
CV_GUESTS = "standard deviation / mean over the guests' mean throughput"
PERCENTILE = "from the merged buckets of all rounds; n/a when fewer than ten samples lie beyond"
CPU = "share of all CPUs of the guest that was busy in the window, from the scheduler's statistics"
CPU_ENGINE = "share of all CPUs of the guest that the engine used, its kernel threads included"
CPU_PER_IO = "CPU time of the engine, its kernel threads included, for each I/O"
SKEW = "distance of the first I/O from the start line, median of rounds, and how wrong that can be"
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
    Field("rounds", lambda row: _of(row.rounds, row.rounds_planned), 8),
    Field("MB/s", lambda row: wording.megabytes(row.throughput_bytes_per_s), explanation="10^6 bytes per second"),
    Field("IOPS", lambda row: wording.significant(row.iops)),
    Field("CV within run", lambda row: wording.cv(row.cv_within_run), 2, explanation=CV_WITHIN),
    Field("CV between repetitions", lambda row: wording.cv(row.cv_between_repetitions), 6, explanation=CV_REPETITIONS),
    Field("P50", lambda row: wording.latency(row.p50_ns), 3, explanation=PERCENTILE),
    Field("P99", lambda row: wording.latency(row.p99_ns), explanation=PERCENTILE),
    Field("P99.9", lambda row: wording.latency(row.p999_ns), 3, explanation=PERCENTILE),
    Field("P99 intended", lambda row: _if_open(row, wording.latency(row.p99_intended_ns)), 1, explanation=INTENDED),
    Field("late", lambda row: _if_open(row, wording.cv(row.late_share)), 4, explanation=LATE),
    Field("CPU", lambda row: wording.percent(row.cpu_percent), 1, explanation=CPU),
    Field("CPU engine", lambda row: wording.percent(row.engine_cpu_percent), 5, explanation=CPU_ENGINE),
    Field("CPU per I/O", lambda row: wording.latency(row.cpu_ns_per_io), 5, explanation=CPU_PER_IO),
    Field("skew", lambda row: _skew(row.skew_median_ns, row.skew_bound_ns), 7, explanation=SKEW),
    Field("doubts", lambda row: _doubts(row.doubts, row.status), is_number=False),
)

FLEET: tuple[Field[FleetRow], ...] = (
    Field("scope", lambda row: row.scope, is_number=False),
    Field("workload", lambda row: row.workload, is_number=False),
    Field("kind", lambda row: ", ".join(row.labels), is_number=False, explanation=KIND),
    Field("target", lambda row: row.target, is_number=False),
    Field("load", lambda row: row.load, is_number=False),
    Field("engine", lambda row: row.engine, is_number=False),
    Field("guests", lambda row: _of(row.guests, row.guests_planned), 4),
    Field("MB/s", lambda row: wording.megabytes(row.throughput_bytes_per_s), explanation="sum of the guests' rows"),
    Field("IOPS", lambda row: wording.significant(row.iops), explanation="sum of the guests' rows"),
    Field("CV between guests", lambda row: wording.cv(row.cv_between_guests), 2, explanation=CV_GUESTS),
    Field("P50", lambda row: wording.latency(row.p50_ns), 4, explanation=PERCENTILE),
    Field("P99", lambda row: wording.latency(row.p99_ns), explanation=PERCENTILE),
    Field("P99.9", lambda row: wording.latency(row.p999_ns), 4, explanation=PERCENTILE),
    Field("CPU", lambda row: wording.percent(row.cpu_percent), 3, explanation=CPU),
    Field("CPU per I/O", lambda row: wording.latency(row.cpu_ns_per_io), 5, explanation=CPU_PER_IO),
    Field("overlap", lambda row: wording.cv(row.overlap), 8, explanation="common window / longest window of a guest"),
    Field("skew", lambda row: _skew(row.skew_median_ns, row.skew_bound_ns), 7, explanation=SKEW),
    Field(
        "skew max", lambda row: wording.latency(row.skew_max_ns), 8, explanation="the largest of any guest and round"
    ),
    Field("doubts", lambda row: ", ".join(row.doubts), is_number=False),
)


@dataclass(frozen=True)
class Pair:
    """The ratios of one guest, calyx / one fio engine, by metric."""

    first: PairRow
    ratios: dict[str, PairRow]


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
    Field("interval", lambda pair: pair.first.interval or pair.first.reason, 8, is_number=False),
)


@dataclass(frozen=True)
class Neighbours:
    """What one guest, vm_host or storage pool keeps under a load, by metric."""

    first: InterferenceRow
    metrics: dict[str, InterferenceRow]


INTERFERENCE: tuple[Field[Neighbours], ...] = (
    Field("scope", lambda one: one.first.scope, is_number=False),
    Field("name", lambda one: one.first.guest, is_number=False),
    Field("workload", lambda one: one.first.workload, is_number=False),
    Field("target", lambda one: one.first.target, is_number=False),
    Field("engine", lambda one: one.first.engine, is_number=False),
    Field("load", lambda one: one.first.load, is_number=False),
    Field("alone", lambda one: _amount(one.metrics.get("throughput"), "alone"), 2),
    Field("with neighbours", lambda one: _amount(one.metrics.get("throughput"), "together"), 2),
    Field("throughput ratio", lambda one: _ratio(one.metrics.get("throughput")), explanation="1: no interference"),
    Field("P99 alone", lambda one: _amount(one.metrics.get("P99"), "alone"), 5),
    Field("P99 with neighbours", lambda one: _amount(one.metrics.get("P99"), "together"), 5),
    Field("P99 ratio", lambda one: _ratio(one.metrics.get("P99")), 1, explanation="1: no interference"),
    Field("pairs", lambda one: str(one.first.pairs), 6),
    Field("interval", lambda one: one.first.interval or one.first.reason, 8, is_number=False),
)


def of_page(record: RunRecord, summary: Summary) -> tuple[Table, ...]:
    """Make the tables of the page, in its order; empty ones are left out."""
    made = (
        facts.failures(record),
        facts.searches(record),
        table("fleet", "The fleet", FLEET, ordered(summary.fleet), first=True, text="Throughput and IOPS are sums of the guests."),
        table("rows", "Guest by guest", GUEST, ordered(summary.guests)),
        table("pairs", "calyx against fio", PAIR, pairs(summary.pairs), text="Ratios calyx / fio, paired by block."),
        table(
            "interference", "With neighbours against alone", INTERFERENCE, neighbours(summary),
            text="What a guest, vm_host or storage pool keeps when its neighbours run as well.",
        ),
        facts.setups(record),
        facts.guests(record),
    )  # fmt: skip
    return tuple(one for one in made if one is not None)


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

    Columns that are empty in every row are left out; a target, load, scope, count of pairs or want of an interval that
    all rows share is told in the text instead.
    """
    written = [tuple(wording.printable(field.text(row)) for field in fields) for row in rows]
    if not written:
        return None
    values = {number: {row[number] for row in written} for number in range(len(fields))}
    shared = [n for n, found in values.items() if fields[n].title in SHARED and len(found) == 1 and "" not in found]
    used = [n for n, found in values.items() if found != {""} and n not in shared]
    said = ", ".join(f"{fields[n].title} {written[0][n]}" for n in shared)
    columns = tuple(Column(fields[n].title, fields[n].is_number, fields[n].explanation) for n in used)
    text = " ".join(part for part in (text, f"All rows: {said}." if said else "") if part)
    return Table(key, title, columns, tuple(tuple(row[n] for n in used) for row in written), text, first)


def pairs(rows: Iterable[PairRow]) -> tuple[Pair, ...]:
    """Gather the metrics of each guest and fio engine, in the order of `rows`."""
    gathered: dict[tuple[str, ...], dict[str, PairRow]] = {}
    for row in rows:
        gathered.setdefault((row.workload, row.target, row.load, row.guest, row.engine), {})[row.metric] = row
    return tuple(Pair(metrics.get("IOPS") or next(iter(metrics.values())), metrics) for metrics in gathered.values())


def neighbours(summary: Summary) -> tuple[Neighbours, ...]:
    """Gather the metrics of each vm_host, storage pool and guest, places first."""
    gathered: dict[tuple[str, ...], dict[str, InterferenceRow]] = {}
    for row in (*ordered(summary.places), *ordered(summary.interference)):
        key = (row.workload, row.target, row.load, row.engine, row.scope, row.guest)
        gathered.setdefault(key, {})[row.metric] = row
    whole = [Neighbours(next(iter(metrics.values())), metrics) for metrics in gathered.values()]
    return tuple(sorted(whole, key=lambda one: one.first.scope == "guest"))


def doubts(record: RunRecord, summary: Summary) -> tuple[str, ...]:
    """Say what is doubtful: a sentence for each rule that struck, then the notes of the run."""
    told = [_doubt(row) for row in summary.doubts]
    return tuple(wording.printable(text) for text in (*told, *record.notes))


def _doubt(row: DoubtRow) -> str:
    names = facts.names(row.guests, GUESTS_TOLD_MAX)
    where = f" ({names}; {wording.count_of(row.measurements, 'measurement')})" if names else ""
    remedy = f"; {row.remedy}" if row.remedy else ""
    return f"{row.label}: {row.sentence}{where}{remedy}"


def _if_open(row: GuestRow, text: str) -> str:
    return text if row.late_share is not None else ""


def _of(done: int, planned: int) -> str:
    return str(done) if done == planned else f"{done} of {planned}"


def _skew(skew_ns: float | None, bound_ns: float | None) -> str:
    if skew_ns is None:
        return wording.NOT_AVAILABLE
    return wording.latency(skew_ns) + ("" if bound_ns is None else f" ± {wording.latency(bound_ns)}")


def _doubts(labels: Sequence[str], status: str) -> str:
    return ", ".join([*([] if status == "ok" else [status]), *labels])


def _ratio(row: PairRow | InterferenceRow | None) -> str:
    if row is None or row.low is None or row.high is None:
        return wording.ratio(None if row is None else row.ratio)
    return f"{wording.ratio(row.ratio)} ({wording.ratio(row.low)} to {wording.ratio(row.high)})"


def _amount(row: InterferenceRow | None, field: str) -> str:
    if row is None:
        return wording.NOT_AVAILABLE
    value: float | None = getattr(row, field)
    return wording.latency(value) if row.metric.startswith("P") else wording.rate(value)
