"""Budgets: what a run must keep, such as `randread-4k.p99<2ms`, and how far it may fall behind another run. Pure.

    WORKLOAD.METRIC < or > LIMIT      WORKLOAD may be a glob; METRIC is throughput, iops, p50, p99, p99.9, cv or cpu_per_io

Every guest is held to a budget, by the calyx engine unless another is named in front (`fio-io_uring:randread-4k.p99<2ms`).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from calyx_orch import units
from calyx_orch.analysis.comparison import NOT_ENOUGH, OTHER_LOAD, WORSE, Comparison, ComparisonRow
from calyx_orch.analysis.rows import GuestRow, Summary
from calyx_orch.errors import UsageError
from calyx_orch.model import Plan

KEPT, BROKEN, UNKNOWN = "kept", "broken", "unknown"
_FORM = re.compile(
    r"^(?:(?P<engine>[\w-]+):)?(?P<workload>[^<>]+?)\.(?P<metric>p99\.9|[a-z0-9_]+)\s*(?P<sign>[<>])\s*(?P<limit>.+)$"
)

_COUNT = re.compile(r"^[0-9]+(_[0-9]{3})*(\.[0-9]+)?$", re.ASCII)


def _count(text: str) -> float:
    if not _COUNT.match(text):
        raise ValueError(f"{text!r} is no count: write digits, such as 50000 or 50_000")
    return float(text.replace("_", ""))


def _ratio_in_percent(text: str) -> float:
    """A CV has no upper end: a throughput that comes in bursts varies by several times its mean."""
    return units.parse_percent(text, example="20%", most=None)


@dataclass(frozen=True)
class Measure:
    """A metric that a budget may name: its figure of a guest's row, and how its limit and its value are written."""

    figure: Callable[[GuestRow], float | None]
    parse: Callable[[str], float]
    show: Callable[[float], str]


MEASURES = {
    "throughput": Measure(lambda row: row.throughput_bytes_per_s, units.parse_rate, units.format_rate),
    "iops": Measure(lambda row: row.iops, _count, units.format_count),
    "p50": Measure(lambda row: row.p50_ns, units.parse_latency, units.format_latency),
    "p99": Measure(lambda row: row.p99_ns, units.parse_latency, units.format_latency),
    "p99.9": Measure(lambda row: row.p999_ns, units.parse_latency, units.format_latency),
    "cv": Measure(lambda row: row.cv_within_run, _ratio_in_percent, lambda value: units.format_percent(100 * value)),
    "cpu_per_io": Measure(lambda row: row.cpu_ns_per_io, units.parse_latency, units.format_latency),
}


@dataclass(frozen=True)
class Budget:
    """One budget as it was written, and what it says."""

    text: str
    engine: str
    workload: str
    metric: str
    is_ceiling: bool
    limit: float


@dataclass(frozen=True)
class Finding:
    """A budget, or a regression limit, held against one guest (or the fleet): kept, broken, or unknown with the reason."""

    budget: str
    about: str
    state: str
    said: str


def parse(text: str) -> Budget:
    """Read a budget. Raises UsageError that says what a budget looks like."""
    found = _FORM.match(text.strip())
    if found is None or found["metric"] not in MEASURES:
        raise UsageError(
            f"{text!r} is no budget: write WORKLOAD.METRIC<LIMIT, such as 'randread-4k.p99<2ms'; metrics are {', '.join(MEASURES)}"
        )
    try:
        limit = MEASURES[found["metric"]].parse(found["limit"].strip())
    except ValueError as error:
        raise UsageError(f"budget {text!r}: {error}") from error
    if limit <= 0:
        raise UsageError(f"budget {text!r}: a limit of 0 is kept or broken by everything")
    return Budget(text, found["engine"] or "calyx", found["workload"], found["metric"], found["sign"] == "<", limit)


def misses(budgets: Sequence[Budget], plan: Plan) -> tuple[str, ...]:
    """A sentence for each budget that no round of the plan is about: a mistyped name must not pass for a kept budget."""
    there = {(round_.engine, round_.workload.name) for round_ in plan.rounds}
    told = []
    for budget in budgets:
        if not any(engine == budget.engine and fnmatch.fnmatchcase(name, budget.workload) for engine, name in there):
            mine = sorted({name for engine, name in there if engine == budget.engine}) or sorted(
                {engine for engine, _ in there}
            )
            told.append(
                f"budget {budget.text!r}: no workload {budget.workload} by {budget.engine} is planned; there are {', '.join(mine)}"
            )
    return tuple(told)


def findings(budgets: Sequence[Budget], summary: Summary) -> tuple[Finding, ...]:
    """Every budget against every guest it is about; one that is about nothing is unknown, never kept."""
    return tuple(finding for budget in budgets for finding in _findings(budget, summary))


def regressions(found: Comparison, max_regression: float) -> tuple[Finding, ...]:
    """What a comparison with a baseline says of a limit (0.05 is 5 %): broken where it is surely worse, and by more than that."""
    return tuple(_regression(row, max_regression) for row in found.rows)


def _findings(budget: Budget, summary: Summary) -> Iterable[Finding]:
    measure = MEASURES[budget.metric]
    rows = [
        row
        for row in summary.guests
        if row.engine == budget.engine and fnmatch.fnmatchcase(row.workload, budget.workload)
    ]
    if not rows:
        yield Finding(
            budget.text, "the run", UNKNOWN, f"no workload {budget.workload} by {budget.engine} is in this run"
        )
    for row in rows:
        about = f"{row.guest} {row.workload} {row.target} {row.load}"
        value = measure.figure(row)
        if value is None:
            yield Finding(
                budget.text,
                about,
                UNKNOWN,
                f"no {budget.metric}: {row.status if row.status != 'ok' else 'too few samples'}",
            )
            continue
        is_kept = value < budget.limit if budget.is_ceiling else value > budget.limit
        yield Finding(budget.text, about, KEPT if is_kept else BROKEN, f"{budget.metric} was {measure.show(value)}")


def _regression(row: ComparisonRow, max_regression: float) -> Finding:
    limit = f"at most {100 * max_regression:g} % worse than {row.reference}"
    about = f"{row.workload} {row.target} {row.load} {row.engine}: {row.metric}"
    ratio = row.effect.ratio
    if row.verdict in (NOT_ENOUGH, OTHER_LOAD) or ratio is None:
        said = row.note if row.note.startswith(row.verdict) else f"{row.verdict}: {row.note}"
        return Finding(limit, about, UNKNOWN, said.removesuffix(": "))
    change = abs(ratio - 1.0)
    said = f"{100 * change:.3g} % {'more' if ratio > 1 else 'less'}, {row.verdict}"
    return Finding(limit, about, BROKEN if row.verdict == WORSE and change > max_regression else KEPT, said)
