"""A run as rows: each guest, the fleet, calyx against fio, together against alone. All figures come from common windows.

A row is one (guest, target, workload, engine, load) over all its rounds. A percentile comes from merged buckets, a CV has its
surname in its name, and the fleet's throughput is the sum of its guests' rows. See docs/methods.md for every field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from calyx_orch.analysis import ratios, rounds, validity, variation
from calyx_orch.analysis.histogram import percentile_or_none
from calyx_orch.analysis.rounds import Figures, Played
from calyx_orch.model import LoadMode, Measurement, Round, RunRecord

FLEET = "fleet"


@dataclass(frozen=True)
class WayRow:
    """Reads or writes alone, of a guest's mixed workload."""

    iops: float
    throughput_bytes_per_s: float
    p50_ns: int | None
    p99_ns: int | None
    p999_ns: int | None


@dataclass(frozen=True)
class GuestRow:
    """One guest under one workload by one engine. None: unknown, or too few samples."""

    guest: str
    vm_host: str | None
    storage: str | None
    target: str
    workload: str
    engine: str
    load: str
    rounds: int
    rounds_planned: int
    status: str
    throughput_bytes_per_s: float | None = None
    iops: float | None = None
    cv_within_run: float | None = None
    cv_between_repetitions: float | None = None
    p50_ns: int | None = None
    p99_ns: int | None = None
    p999_ns: int | None = None
    mean_ns: float | None = None
    latency_kind: str = "total"
    samples: int = 0
    read: WayRow | None = None
    write: WayRow | None = None
    cpu_percent: float | None = None
    engine_cpu_percent: float | None = None
    steal_percent: float | None = None
    cpu_ns_per_io: float | None = None
    guest_cpu_ns_per_io: float | None = None
    skew_median_ns: float | None = None
    skew_max_ns: int | None = None
    skew_bound_ns: int | None = None
    skew_how: str = ""
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class FleetRow:
    """All guests that ran together: `scope` is `fleet`, or the domain (`storage:pool`, `vm_host:hv1`) under `per_domain`."""

    scope: str
    target: str
    workload: str
    engine: str
    load: str
    guests: int
    guests_planned: int
    rounds: int
    status: str
    throughput_bytes_per_s: float
    iops: float
    cv_between_guests: float | None
    cv_reason: str
    p50_ns: int | None
    p99_ns: int | None
    p999_ns: int | None
    samples: int
    cpu_percent: float | None
    cpu_ns_per_io: float | None
    overlap: float | None
    skew_median_ns: float | None
    skew_max_ns: int | None
    skew_bound_ns: int | None
    skew_how: str
    doubts: tuple[str, ...]


@dataclass(frozen=True)
class PairRow:
    """calyx / fio for one guest and one metric (throughput, IOPS, P99, CPU per I/O, CV within a run), paired by block."""

    guest: str
    vm_host: str | None
    target: str
    workload: str
    engine: str  # the fio engine
    load: str
    metric: str
    ratio: float | None
    low: float | None
    high: float | None
    pairs: int
    interval: str
    reason: str


@dataclass(frozen=True)
class InterferenceRow:
    """`load` / alone for one guest, vm_host or storage (`scope`) and one metric (throughput, P99), with both figures.

    `guest` is the name of what `scope` says.
    """

    scope: str
    guest: str
    target: str
    workload: str
    engine: str
    load: str
    metric: str
    ratio: float | None
    low: float | None
    high: float | None
    together: float | None
    alone: float | None
    pairs: int
    interval: str
    reason: str


@dataclass(frozen=True)
class DoubtRow:
    """One rule that struck: its label at its worst, a sentence, a remedy, on which guests, and in how many measurements."""

    name: str
    label: str
    sentence: str
    remedy: str
    guests: tuple[str, ...]
    measurements: int


@dataclass(frozen=True)
class Summary:
    """All rows of a run. `places` are the rows of `interference` for vm_hosts and storage."""

    guests: tuple[GuestRow, ...]
    fleet: tuple[FleetRow, ...]
    pairs: tuple[PairRow, ...]
    interference: tuple[InterferenceRow, ...]
    places: tuple[InterferenceRow, ...]
    doubts: tuple[DoubtRow, ...]


Key = tuple[str, str, str, str]  # target, workload, engine, load


def summarise(record: RunRecord) -> Summary:
    """Every row of a run, in the plan's order. Failed measurements count as missing, never as zero."""
    played = rounds.played(record)
    cells = _cells(record, played)
    guests = tuple(_guest_row(cell) for cell in cells)
    return Summary(
        guests=guests,
        fleet=tuple(_fleet_rows(record, played, guests)),
        pairs=tuple(_pair_rows(cells)),
        interference=tuple(_interference_rows(cells)),
        places=tuple(_place_rows(cells)),
        doubts=_doubt_rows(played),
    )


@dataclass(frozen=True)
class _Cell:
    """All that happened to one guest under one key."""

    guest: str
    vm_host: str | None
    storage: str | None
    key: Key
    planned: int
    figures: tuple[Figures, ...]
    failed: tuple[Measurement, ...]

    def by_block(self) -> dict[int, list[Figures]]:
        """The figures of each block."""
        blocks: dict[int, list[Figures]] = {}
        for found in self.figures:
            blocks.setdefault(found.measurement.block, []).append(found)
        return blocks


def _key(round_: Round) -> Key:
    return (round_.target, round_.workload.name, round_.engine, str(round_.load))


def _cells(record: RunRecord, played: Sequence[Played]) -> tuple[_Cell, ...]:
    """One cell for each guest and key of the plan, guests in the inventory's order, keys in the plan's."""
    planned: dict[tuple[str, Key], int] = {}
    figures: dict[tuple[str, Key], list[Figures]] = {}
    failed: dict[tuple[str, Key], list[Measurement]] = {}
    for round_ in record.plan.rounds:
        for name in round_.guests:
            planned[name, _key(round_)] = planned.get((name, _key(round_)), 0) + 1
    for one in played:
        for found in one.figures:
            figures.setdefault((found.measurement.guest, _key(one.round)), []).append(found)
        for measurement in one.failed:
            failed.setdefault((measurement.guest, _key(one.round)), []).append(measurement)
    keys = list(dict.fromkeys(_key(round_) for round_ in record.plan.rounds))
    return tuple(
        _Cell(
            guest=guest.name,
            vm_host=guest.vm_host,
            storage=guest.storage,
            key=key,
            planned=planned[guest.name, key],
            figures=tuple(figures.get((guest.name, key), ())),
            failed=tuple(failed.get((guest.name, key), ())),
        )
        for key in keys
        for guest in record.plan.inventory.guests
        if (guest.name, key) in planned
    )


# --- guests ------------------------------------------------------------------------------------------------------


def _guest_row(cell: _Cell) -> GuestRow:
    target, workload, engine, load = cell.key
    row = GuestRow(
        guest=cell.guest,
        vm_host=cell.vm_host,
        storage=cell.storage,
        target=target,
        workload=workload,
        engine=engine,
        load=load,
        rounds=len(cell.figures),
        rounds_planned=cell.planned,
        status=_status(cell),
    )
    return row if not cell.figures else _with_figures(row, cell.figures)


def _with_figures(row: GuestRow, figures: tuple[Figures, ...]) -> GuestRow:
    measured = [found.measurement for found in figures]
    latency = rounds.latencies(figures)
    between = variation.between_repetitions([found.throughput_bytes_per_s for found in figures])
    skews = [m.skew_ns for m in measured if m.skew_ns is not None]
    bounds = [m.skew_bound_ns for m in measured if m.skew_bound_ns is not None]
    mixed = any(m.read is not None for m in measured) and any(m.write is not None for m in measured)
    known = {
        name: getattr(row, name) for name in ("guest", "vm_host", "storage", "target", "workload", "engine", "load")
    }
    return GuestRow(
        **known,
        rounds=row.rounds,
        rounds_planned=row.rounds_planned,
        status=row.status,
        throughput_bytes_per_s=fmean(found.throughput_bytes_per_s for found in figures),
        iops=fmean(found.iops for found in figures),
        cv_within_run=_mean(found.cv_within_run.value for found in figures),
        cv_between_repetitions=between.value,
        p50_ns=percentile_or_none(latency, 50.0),
        p99_ns=percentile_or_none(latency, 99.0),
        p999_ns=percentile_or_none(latency, 99.9),
        mean_ns=latency.sum_ns / latency.count if latency.count else None,
        latency_kind="total" if all(m.latency_kind == "total" for m in measured) else "completion",
        samples=latency.count,
        read=_way_row(figures, "read") if mixed else None,
        write=_way_row(figures, "write") if mixed else None,
        cpu_percent=_mean(m.cpu.busy_percent if m.cpu else None for m in measured),
        engine_cpu_percent=_mean(m.cpu.engine_percent if m.cpu else None for m in measured),
        steal_percent=_mean(_steal_percent(m) for m in measured),
        cpu_ns_per_io=_mean(found.engine_ns_per_io for found in figures),
        guest_cpu_ns_per_io=_mean(rounds.busy_ns_per_io(m) for m in measured),
        skew_median_ns=median(skews) if skews else None,
        skew_max_ns=max(skews, key=abs, default=None),
        skew_bound_ns=max(bounds, default=None),
        skew_how=_agreed(m.skew_how for m in measured),
        doubts=_labels(figures),
    )


def _way_row(figures: tuple[Figures, ...], name: str) -> WayRow | None:
    """One direction, its rates being its share of the guest's."""
    latency = rounds.latencies(figures, name)
    parts = [(found, getattr(found.measurement, name)) for found in figures]
    if all(part is None for _, part in parts):
        return None

    def rate(found: Figures, whole: int, part: int, per_s: float) -> float:
        return per_s * part / whole if whole else 0.0

    ios = [rate(f, f.measurement.total_ios, part.ios if part else 0, f.iops) for f, part in parts]
    throughput = [
        rate(f, f.measurement.total_bytes, part.bytes if part else 0, f.throughput_bytes_per_s) for f, part in parts
    ]
    return WayRow(
        iops=fmean(ios),
        throughput_bytes_per_s=fmean(throughput),
        p50_ns=percentile_or_none(latency, 50.0),
        p99_ns=percentile_or_none(latency, 99.0),
        p999_ns=percentile_or_none(latency, 99.9),
    )


def _status(cell: _Cell) -> str:
    """`ok`, `2 of 3 rounds`, `failed: why`, or `not run`."""
    why = next((measurement.why for measurement in cell.failed if measurement.why), "")
    if len(cell.figures) == cell.planned:
        return "ok"
    if not cell.figures:
        return f"failed: {why}" if cell.failed else "not run"
    return f"{len(cell.figures)} of {cell.planned} rounds" + (f": {why}" if why else "")


def _steal_percent(measurement: Measurement) -> float | None:
    cpu = measurement.cpu
    return None if cpu is None or cpu.steal_ns is None else 100.0 * cpu.steal_ns / (cpu.window_ns * cpu.cpus)


# --- the fleet ---------------------------------------------------------------------------------------------------


def _fleet_rows(record: RunRecord, played: Sequence[Played], guests: Sequence[GuestRow]) -> Iterable[FleetRow]:
    """A row for each key under which guests ran at once: of the fleet, or under `per_domain` of each domain."""
    domains = {guest.name: guest.domain for guest in record.plan.inventory.guests}
    planned: dict[tuple[str, Key], dict[str, None]] = {}
    at_once: dict[tuple[str, Key], list[Played]] = {}
    for round_ in record.plan.rounds:
        if round_.load is not LoadMode.ALONE:
            planned.setdefault((_scope(round_, domains), _key(round_)), {}).update(dict.fromkeys(round_.guests))
    for one in played:
        if one.round.load is not LoadMode.ALONE:
            at_once.setdefault((_scope(one.round, domains), _key(one.round)), []).append(one)
    rows = {(row.guest, (row.target, row.workload, row.engine, row.load)): row for row in guests}
    for (scope, key), names in planned.items():
        mine = [rows[name, key] for name in names if rows[name, key].rounds]
        if mine:
            yield _fleet_row(scope, key, len(names), mine, at_once.get((scope, key), []))


def _scope(round_: Round, domains: dict[str, str]) -> str:
    if round_.load is not LoadMode.PER_DOMAIN:
        return FLEET
    mine = list(dict.fromkeys(domains[name] for name in round_.guests))
    return mine[0] if len(mine) == 1 else FLEET


def _fleet_row(scope: str, key: Key, planned: int, mine: Sequence[GuestRow], played: Sequence[Played]) -> FleetRow:
    target, workload, engine, load = key
    figures = tuple(found for one in played for found in one.figures)
    latency = rounds.latencies(figures)
    throughput = [row.throughput_bytes_per_s or 0.0 for row in mine]
    spread = variation.between_guests(throughput)
    skews = [one.largest_skew_ns for one in played if one.largest_skew_ns is not None]
    bounds = [one.largest_bound_ns for one in played if one.largest_bound_ns is not None]
    overlaps = [one.overlap for one in played if one.overlap is not None and len(one.figures) > 1]
    return FleetRow(
        scope=scope,
        target=target,
        workload=workload,
        engine=engine,
        load=load,
        guests=len(mine),
        guests_planned=planned,
        rounds=len(played),
        status=f"{len(mine)} of {planned} guests",
        throughput_bytes_per_s=math.fsum(throughput),
        iops=math.fsum(row.iops or 0.0 for row in mine),
        cv_between_guests=spread.value,
        cv_reason=spread.reason or spread.warning,
        p50_ns=percentile_or_none(latency, 50.0),
        p99_ns=percentile_or_none(latency, 99.0),
        p999_ns=percentile_or_none(latency, 99.9),
        samples=latency.count,
        cpu_percent=_mean(row.cpu_percent for row in mine),
        cpu_ns_per_io=_mean(row.cpu_ns_per_io for row in mine),
        overlap=min(overlaps, default=None),
        skew_median_ns=median(skews) if skews else None,
        skew_max_ns=max(skews, default=None),
        skew_bound_ns=max(bounds, default=None),
        skew_how=_agreed(found.measurement.skew_how for found in figures),
        doubts=_labels(figures),
    )


# --- comparisons -------------------------------------------------------------------------------------------------


Metric = Callable[[Sequence[Figures]], float | None]


def _throughput(figures: Sequence[Figures]) -> float | None:
    """The mean over rounds of each guest, summed over guests."""
    return _summed(figures, lambda found: found.throughput_bytes_per_s)


def _iops(figures: Sequence[Figures]) -> float | None:
    return _summed(figures, lambda found: found.iops)


def _summed(figures: Sequence[Figures], figure: Callable[[Figures], float]) -> float | None:
    guests: dict[str, list[float]] = {}
    for found in figures:
        guests.setdefault(found.measurement.guest, []).append(figure(found))
    return math.fsum(fmean(values) for values in guests.values()) if guests else None


def _p99(figures: Sequence[Figures]) -> float | None:
    return percentile_or_none(rounds.latencies(figures), 99.0)


def _cpu_per_io(figures: Sequence[Figures]) -> float | None:
    return _mean(found.engine_ns_per_io for found in figures)


def _cv_within_run(figures: Sequence[Figures]) -> float | None:
    return _mean(found.cv_within_run.value for found in figures)


PAIRED: tuple[tuple[str, Metric], ...] = (
    ("throughput", _throughput),
    ("IOPS", _iops),
    ("P99", _p99),
    ("CPU per I/O", _cpu_per_io),
    ("CV within a run", _cv_within_run),
)
INTERFERED: tuple[tuple[str, Metric], ...] = (("throughput", _throughput), ("P99", _p99))


def _pair_rows(cells: Sequence[_Cell]) -> Iterable[PairRow]:
    ours = {(cell.guest, cell.key[0], cell.key[1], cell.key[3]): cell for cell in cells if cell.key[2] == "calyx"}
    for cell in cells:
        target, workload, engine, load = cell.key
        own = ours.get((cell.guest, target, workload, load))
        if engine == "calyx" or own is None:
            continue
        for name, metric in PAIRED:
            found, _, _ = _compared(metric, [(own, cell)])
            yield PairRow(
                guest=cell.guest,
                vm_host=cell.vm_host,
                target=target,
                workload=workload,
                engine=engine,
                load=load,
                metric=name,
                ratio=found.value,
                low=found.low,
                high=found.high,
                pairs=found.pairs,
                interval=found.interval,
                reason=found.reason,
            )


def _interference_rows(cells: Sequence[_Cell]) -> Iterable[InterferenceRow]:
    """Each guest under a load against itself alone."""
    for cell, alone in _with_alone(cells):
        for name, metric in INTERFERED:
            yield _interference("guest", cell.guest, cell.key, name, metric, [(cell, alone)])


def _place_rows(cells: Sequence[_Cell]) -> Iterable[InterferenceRow]:
    """Each vm_host and storage: all its guests under a load against the same guests one at a time."""
    both = _with_alone(cells)
    for scope in ("vm_host", "storage"):
        for place in dict.fromkeys(getattr(cell, scope) for cell, _ in both):
            mine = [pair for pair in both if place is not None and getattr(pair[0], scope) == place]
            for key in dict.fromkeys(cell.key for cell, _ in mine):
                pairs = [pair for pair in mine if pair[0].key == key]
                for name, metric in INTERFERED:
                    yield _interference(scope, str(place), key, name, metric, pairs)


def _with_alone(cells: Sequence[_Cell]) -> list[tuple[_Cell, _Cell]]:
    """Every cell of a guest that ran with others, with the cell of the same guest alone."""
    alone = {(cell.guest, *cell.key[:3]): cell for cell in cells if cell.key[3] == LoadMode.ALONE}
    return [
        (cell, alone[cell.guest, *cell.key[:3]])
        for cell in cells
        if cell.key[3] != LoadMode.ALONE and (cell.guest, *cell.key[:3]) in alone
    ]


def _compared(metric: Metric, cells: Sequence[tuple[_Cell, _Cell]]) -> tuple[ratios.Ratio, float | None, float | None]:
    """A metric of the first cells / of the second, paired by block, and both over all blocks.

    In each block only guests that were measured on both sides count, so that a lost guest does not tilt the ratio.
    """
    blocks: dict[int, tuple[list[Figures], list[Figures]]] = {}
    for first, second in cells:
        ones, others = first.by_block(), second.by_block()
        for block in ones.keys() & others.keys():
            left, right = blocks.setdefault(block, ([], []))
            left.extend(ones[block])
            right.extend(others[block])
    ratio = ratios.of_pairs([(metric(blocks[block][0]), metric(blocks[block][1])) for block in sorted(blocks)])
    left, right = ([found for block in blocks.values() for found in block[side]] for side in (0, 1))
    return ratio, metric(left), metric(right)


def _interference(
    scope: str, place: str, key: Key, name: str, metric: Metric, cells: Sequence[tuple[_Cell, _Cell]]
) -> InterferenceRow:
    found, together, alone = _compared(metric, cells)
    return InterferenceRow(
        scope=scope,
        guest=place,
        target=key[0],
        workload=key[1],
        engine=key[2],
        load=key[3],
        metric=name,
        ratio=found.value,
        low=found.low,
        high=found.high,
        together=together,
        alone=alone,
        pairs=found.pairs,
        interval=found.interval,
        reason=found.reason,
    )


# --- doubts and small things -------------------------------------------------------------------------------------


def _doubt_rows(played: Sequence[Played]) -> tuple[DoubtRow, ...]:
    struck: dict[str, list[tuple[str, validity.Doubt]]] = {}
    for one in played:
        for found in one.figures:
            for doubt in found.doubts:
                struck.setdefault(doubt.name, []).append((found.measurement.guest, doubt))
    rows = []
    for name, all_of_it in struck.items():
        (worst,) = validity.union(doubt for _, doubt in all_of_it)
        guests = tuple(dict.fromkeys(guest for guest, _ in all_of_it))
        rows.append(DoubtRow(name, worst.label, worst.sentence, worst.remedy, guests, len(all_of_it)))
    return tuple(rows)


def _labels(figures: Iterable[Figures]) -> tuple[str, ...]:
    return tuple(doubt.label for doubt in validity.union(doubt for found in figures for doubt in found.doubts))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _agreed(words: Iterable[str]) -> str:
    """The word all share; several joined by a slash."""
    return "/".join(dict.fromkeys(word for word in words if word))
