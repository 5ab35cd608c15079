"""The analysis as tables: guests, fleet, and all the others in the order of the page. The page and the terminal show the same.

A `Field` is a column that knows how to write its value; `rank` says which columns a narrow terminal keeps (0: always, and
so all that tells one row from another).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from calyx_orch.analysis.rows import DoubtRow, FleetRow, GuestRow, Summary
from calyx_orch.analysis.validity import GATE_ONLY
from calyx_orch.model import RunRecord
from calyx_orch.report import against, facts, sharing, wording
from calyx_orch.report.facts import Column, Table, header, is_short
from calyx_orch.report.fields import Field, Row, named, ordered

__all__ = ["Column", "Field", "Table", "doubts", "header", "is_short", "of_page"]

GUESTS_TOLD_MAX = 4
SHARED = frozenset({"side", "target", "load", "scope", "kind", "guests", "rounds", "pairs", "interval"})
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
INTENDED = "open loops: counted from when an I/O was due, its waiting included"
LATE = "open loops: the share of I/Os that began more than 1 ms after they were due"

GUEST: tuple[Field[GuestRow], ...] = (
    Field("guest", lambda row: row.guest, is_number=False),
    Field("vm_host", lambda row: row.vm_host or "", 4, is_number=False),
    Field("workload", lambda row: row.workload, is_number=False),
    Field("kind", lambda row: ", ".join(row.labels), is_number=False, explanation=against.KIND),
    *named("target", "load", "engine"),
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
    Field("kind", lambda row: ", ".join(row.labels), is_number=False, explanation=against.KIND),
    *named("target", "load", "engine"),
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


FLEET_TEXT = "Throughput and IOPS are sums of the guests, over the rounds that all of them share."


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
        table(
            "pairs", "calyx against fio", against.PAIR, against.pairs(summary.pairs), text="Ratios calyx / fio, paired by block."
        ),
        table(
            "interference", "With neighbours against alone", against.INTERFERENCE, against.neighbours(summary),
            text=f"What a guest, vm_host or storage pool keeps when its neighbours run as well. {against.ALONE}",
        ),
    ) if is_measured(summary) else ()  # fmt: skip
    made = (
        facts.failures(record),
        facts.searches(record),
        facts.settled(record),
        facts.conditioned(record),
        facts.load_points(record),
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


def doubts(record: RunRecord, summary: Summary) -> tuple[str, ...]:
    """Say what is doubtful: a sentence for each rule that struck, then the notes of the run."""
    told = [_doubt(row) for row in summary.doubts]
    return tuple(wording.printable(text) for text in (*told, *record.notes))


def _doubt(row: DoubtRow) -> str:
    names = facts.names(row.guests, GUESTS_TOLD_MAX)
    where = f" ({names}; {wording.count_of(row.measurements, 'measurement')})" if names else ""
    remedy = f"; {row.remedy}" if row.remedy else ""
    return f"{row.label}: {row.sentence}{where}{remedy}"


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
