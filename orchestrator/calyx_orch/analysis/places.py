"""Places and levels: how fairly the guests of a vm_host or storage share it, and how much of the variance lies between places.

Both come from the rounds that the guests of a fleet share, so that nobody is compared with a fleet that another guest had left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from calyx_orch.analysis import parts, rounds
from calyx_orch.analysis.cells import Key
from calyx_orch.analysis.fleet import Fleet
from calyx_orch.analysis.rounds import Figures
from calyx_orch.analysis.rows import FairnessRow, PartsRow
from calyx_orch.model import LoadMode, RunRecord

SCOPES = ("vm_host", "storage")
METRICS: tuple[tuple[str, Callable[[Figures], float | None]], ...] = (
    ("throughput", lambda found: found.throughput_bytes_per_s),
    ("P99", lambda found: found.p99_ns),
)


def fairness_rows(record: RunRecord, fleets: Sequence[Fleet]) -> Iterable[FairnessRow]:
    """A row for each vm_host and storage of two counted guests and more, of each fleet; none for `alone`, where nothing is shared."""
    for of in fleets:
        if of.key[3] == LoadMode.ALONE:
            continue
        for scope in SCOPES:
            for name, guests in _members(record, scope, of.counted).items():
                if name and len(guests) > 1:
                    yield _fairness_row(of, scope, name, guests)


def _fairness_row(of: Fleet, scope: str, name: str, guests: Sequence[str]) -> FairnessRow:
    target, workload, engine, load = of.key
    had = {guest: fmean(found.throughput_bytes_per_s for found in of.figures[guest]) for guest in guests}
    lowest, highest = min(had, key=had.__getitem__), max(had, key=had.__getitem__)
    return FairnessRow(
        scope=scope,
        name=name,
        target=target,
        workload=workload,
        engine=engine,
        load=load,
        guests=len(had),
        throughput_bytes_per_s=sum(had.values()),
        fairness=parts.fairness(list(had.values())),
        lowest=lowest,
        lowest_bytes_per_s=had[lowest],
        highest=highest,
        highest_bytes_per_s=had[highest],
        doubts=rounds.doubt_names(found for guest in guests for found in of.figures[guest]),
    )


def parts_rows(record: RunRecord, fleets: Sequence[Fleet]) -> Iterable[PartsRow]:
    """A row for each key and metric with two guests and more."""
    by_key: dict[Key, list[Fleet]] = {}
    for of in fleets:
        by_key.setdefault(of.key, []).append(of)
    for key, mine in by_key.items():
        figures = {name: found for of in mine for name, found in of.figures.items() if found}
        if len(figures) > 1:
            for metric, figure in METRICS:
                row = _parts_row(record, key, metric, figures, figure)
                if row is not None:
                    yield row


def _parts_row(
    record: RunRecord,
    key: Key,
    metric: str,
    figures: Mapping[str, Sequence[Figures]],
    figure: Callable[[Figures], float | None],
) -> PartsRow | None:
    hosts = {
        host: {guest: [value for found in figures[guest] if (value := figure(found)) is not None] for guest in guests}
        for host, guests in _members(record, "vm_host", tuple(figures)).items()
    }
    split = parts.of_rounds(hosts)
    if split is None:
        return None
    target, workload, engine, load = key
    counted = [values for guests in hosts.values() for values in guests.values() if values]
    return PartsRow(
        target=target,
        workload=workload,
        engine=engine,
        load=load,
        metric=metric,
        vm_hosts=sum(any(guests.values()) for guests in hosts.values()),
        guests=len(counted),
        rounds=sum(map(len, counted)),
        mean=split.mean,
        cv=split.variance**0.5 / split.mean if split.mean > 0 else None,
        between_vm_hosts=split.share(split.vm_hosts),
        between_guests=split.share(split.guests),
        between_rounds=split.share(split.rounds),
        doubts=rounds.doubt_names(found for of in figures.values() for found in of),
    )


def _members(record: RunRecord, scope: str, guests: Sequence[str]) -> dict[str, list[str]]:
    """Those of `guests` that are on each place; guests without a vm_host count as on one."""
    members: dict[str, list[str]] = {}
    wanted = frozenset(guests)
    for guest in record.plan.inventory.guests:
        name = getattr(guest, scope) or ("" if scope == "vm_host" else None)
        if guest.name in wanted and name is not None:
            members.setdefault(name, []).append(guest.name)
    return members
