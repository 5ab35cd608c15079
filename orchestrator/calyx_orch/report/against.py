"""Rows of what is held against something else: calyx against fio, and guests with neighbours against guests alone.

A row gathers the ratios of one guest or place, a column a metric; what has no ratio in any metric is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calyx_orch.analysis.rows import FleetPairRow, InterferenceRow, PairRow, Summary
from calyx_orch.report import sharing, wording
from calyx_orch.report.fields import Field, ordered

PLACES = ("storage", "vm_host")
KIND = "buffered: through the page cache; psync: one system call after another; open loop: I/Os are due at times of their own"
ALONE = "Alone, a vm_host or storage is the sum of its guests, each measured at a time of its own."


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


def _names(rows: Iterable[PairRow | FleetPairRow | InterferenceRow]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for row in rows for name in row.doubt_names))


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
