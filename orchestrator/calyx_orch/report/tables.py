"""The analysis as tables: guests, fleet, calyx against fio, together against alone. The page and the terminal show the same.

A `Field` is a column that knows how to write its value; `rank` says which columns a narrow terminal keeps (0: always).
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
GUESTS_TOLD_MAX = 4


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
CPU_PER_IO = "CPU time of the engine, its kernel threads included, for each I/O"
SKEW = "distance of the first I/O from the start line, median of rounds, and how wrong that can be"

GUEST: tuple[Field[GuestRow], ...] = (
    Field("guest", lambda row: row.guest, is_number=False),
    Field("vm_host", lambda row: row.vm_host or "", 4, is_number=False),
    Field("workload", lambda row: row.workload, is_number=False),
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
    Field("CPU", lambda row: wording.percent(row.cpu_percent), 1, explanation=CPU),
    Field("CPU per I/O", lambda row: wording.latency(row.cpu_ns_per_io), 5, explanation=CPU_PER_IO),
    Field("skew", lambda row: _skew(row.skew_median_ns, row.skew_bound_ns), 7, explanation=SKEW),
    Field("doubts", lambda row: _doubts(row.doubts, row.status), 1, is_number=False),
)

FLEET: tuple[Field[FleetRow], ...] = (
    Field("scope", lambda row: row.scope, is_number=False),
    Field("workload", lambda row: row.workload, is_number=False),
    Field("target", lambda row: row.target, 6, is_number=False),
    Field("load", lambda row: row.load, 5, is_number=False),
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
    Field("doubts", lambda row: ", ".join(row.doubts), 1, is_number=False),
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
    Field("target", lambda pair: pair.first.target, 5, is_number=False),
    Field("load", lambda pair: pair.first.load, 4, is_number=False),
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

INTERFERENCE: tuple[Field[InterferenceRow], ...] = (
    Field("scope", lambda row: row.scope, 3, is_number=False),
    Field("name", lambda row: row.guest, is_number=False),
    Field("workload", lambda row: row.workload, is_number=False),
    Field("target", lambda row: row.target, 5, is_number=False),
    Field("engine", lambda row: row.engine, is_number=False),
    Field("load", lambda row: row.load, 4, is_number=False),
    Field("metric", lambda row: row.metric, is_number=False),
    Field("alone", lambda row: _amount(row.metric, row.alone), 2),
    Field("with neighbours", lambda row: _amount(row.metric, row.together), 2),
    Field("ratio", lambda row: _interval(row.ratio, row.low, row.high), explanation="1: no interference"),
    Field("pairs", lambda row: str(row.pairs), 6),
    Field("interval", lambda row: row.interval or row.reason, 8, is_number=False),
)


def of_page(record: RunRecord, summary: Summary) -> tuple[Table, ...]:
    """Make the tables of the page, in its order; empty ones are left out."""
    made = (
        facts.failures(record),
        table("fleet", "The fleet", FLEET, summary.fleet, first=True, text="Throughput and IOPS are sums of the guests."),
        table("rows", "Guest by guest", GUEST, summary.guests),
        table("pairs", "calyx against fio", PAIR, pairs(summary.pairs), text="Ratios calyx / fio, paired by block."),
        table(
            "interference", "With neighbours against alone", INTERFERENCE, (*summary.places, *summary.interference),
            text="What a guest, vm_host or storage pool keeps when its neighbours run as well.",
        ),
        facts.setups(record),
        facts.guests(record),
    )  # fmt: skip
    return tuple(one for one in made if one is not None)


def table(
    key: str, title: str, fields: Sequence[Field[Row]], rows: Iterable[Row], *, text: str = "", first: bool = False
) -> Table | None:
    """Write rows into a table; None when there are none. Columns that are empty in every row are left out."""
    written = [tuple(wording.printable(field.text(row)) for field in fields) for row in rows]
    used = [number for number in range(len(fields)) if any(row[number] for row in written)]
    if not written:
        return None
    columns = tuple(Column(fields[n].title, fields[n].is_number, fields[n].explanation) for n in used)
    return Table(key, title, columns, tuple(tuple(row[n] for n in used) for row in written), text, first)


def pairs(rows: Iterable[PairRow]) -> tuple[Pair, ...]:
    """Gather the metrics of each guest and fio engine, in the order of `rows`."""
    gathered: dict[tuple[str, ...], dict[str, PairRow]] = {}
    for row in rows:
        gathered.setdefault((row.workload, row.target, row.load, row.guest, row.engine), {})[row.metric] = row
    return tuple(Pair(metrics.get("IOPS") or next(iter(metrics.values())), metrics) for metrics in gathered.values())


def doubts(record: RunRecord, summary: Summary) -> tuple[str, ...]:
    """Say what is doubtful: a sentence for each rule that struck, then the notes of the run."""
    told = [_doubt(row) for row in summary.doubts]
    return tuple(wording.printable(text) for text in (*told, *record.notes))


def _doubt(row: DoubtRow) -> str:
    names = ", ".join(row.guests[:GUESTS_TOLD_MAX])
    if len(row.guests) > GUESTS_TOLD_MAX:
        names += f" and {len(row.guests) - GUESTS_TOLD_MAX} more"
    where = f" ({names}; {wording.count_of(row.measurements, 'measurement')})" if names else ""
    remedy = f"; {row.remedy}" if row.remedy else ""
    return f"{row.label}: {row.sentence}{where}{remedy}"


def _of(done: int, planned: int) -> str:
    return str(done) if done == planned else f"{done} of {planned}"


def _skew(skew_ns: float | None, bound_ns: float | None) -> str:
    if skew_ns is None:
        return wording.NOT_AVAILABLE
    return wording.latency(skew_ns) + ("" if bound_ns is None else f" ± {wording.latency(bound_ns)}")


def _doubts(labels: Sequence[str], status: str) -> str:
    return ", ".join([*([] if status == "ok" else [status]), *labels])


def _ratio(row: PairRow | None) -> str:
    return wording.NOT_AVAILABLE if row is None else _interval(row.ratio, row.low, row.high)


def _interval(ratio: float | None, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return wording.ratio(ratio)
    return f"{wording.ratio(ratio)} ({wording.ratio(low)} to {wording.ratio(high)})"


def _amount(metric: str, value: float | None) -> str:
    return wording.latency(value) if metric.startswith("P") else wording.rate(value)
