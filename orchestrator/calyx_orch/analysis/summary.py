"""A run as rows: each guest, the fleet, calyx against fio, together against alone. All figures come from common windows.

A row is one (guest, target, workload, engine, load) over all its rounds. A percentile comes from merged buckets, a CV has its
surname in its name, and the fleet's throughput is the sum of its guests' in the rounds that they share. See docs/methods.md for
every field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median

from calyx_orch.analysis import bootstrap, comparisons, density, fleet, rounds, steadiness, tails, validity, variation
from calyx_orch.analysis import places as of_places
from calyx_orch.analysis.cells import Cell, cells_of
from calyx_orch.analysis.histogram import mean_ns, percentile_or_none
from calyx_orch.analysis.rounds import Figures, Played
from calyx_orch.analysis.rows import (
    CarriedRow,
    DensityRow,
    DoubtRow,
    FairnessRow,
    FleetPairRow,
    FleetRow,
    GuestRow,
    InterferenceRow,
    PairRow,
    PartsRow,
    SteadyRow,
    Summary,
    WayRow,
)
from calyx_orch.analysis.validity import GATE_ONLY
from calyx_orch.analysis.variation import mean_known
from calyx_orch.model import Measurement, RunRecord

__all__ = [
    "CarriedRow",
    "DensityRow",
    "DoubtRow",
    "FairnessRow",
    "FleetPairRow",
    "FleetRow",
    "GuestRow",
    "InterferenceRow",
    "PairRow",
    "PartsRow",
    "SteadyRow",
    "Summary",
    "WayRow",
    "summarise",
]


def summarise(record: RunRecord, at: Sequence[Played] | None = None) -> Summary:
    """Every row of a run, in the inventory's order. Failed measurements count as missing, never as zero.

    `at` are its rounds, where somebody has looked at them already.
    """
    played = rounds.played(record) if at is None else at
    cells = cells_of(record, played)
    fleets = fleet.fleets_of(record, played)
    of = {(name, one.key): one for one in fleets for name in one.planned}
    guests = tuple(_guest_row(cell, of[cell.guest, cell.key]) for cell in cells)
    labels = {cell.key: cell.labels for cell in cells}
    pairs = tuple(comparisons.pair_rows(cells))
    levels = density.density_rows(record, fleets)
    return Summary(
        guests=guests,
        fleet=tuple(row for one in fleets if (row := fleet.fleet_row(one, labels[one.key])) is not None),
        pairs=pairs,
        fleet_pairs=tuple(comparisons.fleet_pair_rows(pairs)),
        interference=tuple(comparisons.interference_rows(cells)),
        places=tuple(comparisons.place_rows(cells)),
        doubts=(*_doubt_rows(played), *filter(None, [comparisons.place_doubts(pairs)])),
        fairness=tuple(of_places.fairness_rows(record, fleets)),
        steady=tuple(steadiness.rows(cells, fleets)),
        density=tuple(levels),
        carried=tuple(density.carried_rows(levels)),
        parts=tuple(of_places.parts_rows(record, fleets)),
    )


# --- guests ------------------------------------------------------------------------------------------------------


def _guest_row(cell: Cell, of: fleet.Fleet) -> GuestRow:
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
        labels=cell.labels,
        shared=fleet.shared_row(of, cell.guest),
    )
    return row if not cell.figures else _with_figures(row, cell.figures)


def _with_figures(row: GuestRow, figures: tuple[Figures, ...]) -> GuestRow:
    measured = [found.measurement for found in figures]
    latency = rounds.latencies(figures)
    between = variation.between_repetitions([found.throughput_bytes_per_s for found in figures])
    p99s = [found.p99_ns for found in figures]
    between_p99 = variation.between_repetitions([p99 for p99 in p99s if p99 is not None])
    started = [m for m in measured if m.skew_ns is not None and m.skew_how != GATE_ONLY]
    skews = [m.skew_ns for m in started if m.skew_ns is not None]
    bounds = [m.skew_bound_ns for m in started if m.skew_bound_ns is not None]
    interval = bootstrap.cv_interval([found.intervals for found in figures]) or (None, None)
    lengths = {found.cv_within_run.interval_ns for found in figures if found.cv_within_run.interval_ns}
    mixed = any(m.read is not None for m in measured) and any(m.write is not None for m in measured)
    return replace(
        row,
        throughput_bytes_per_s=fmean(found.throughput_bytes_per_s for found in figures),
        iops=fmean(found.iops for found in figures),
        cv_within_run=mean_known(found.cv_within_run.value for found in figures),
        cv_between_repetitions=between.value,
        cv_p99_between_repetitions=between_p99.value,
        cv_within_low=interval[0],
        cv_within_high=interval[1],
        interval_ms=lengths.pop() / 1e6 if len(lengths) == 1 else None,
        **tails.of(latency),
        mean_ns=mean_ns(latency),
        latency_kind="total" if all(m.latency_kind == "total" for m in measured) else "completion",
        samples=latency.count,
        read=_way_row(figures, "read") if mixed else None,
        write=_way_row(figures, "write") if mixed else None,
        cpu_percent=mean_known(m.cpu.busy_percent if m.cpu else None for m in measured),
        engine_cpu_percent=mean_known(m.cpu.engine_percent if m.cpu else None for m in measured),
        steal_percent=mean_known(_steal_percent(m) for m in measured),
        cpu_ns_per_io=mean_known(found.engine_ns_per_io for found in figures),
        guest_cpu_ns_per_io=mean_known(rounds.busy_ns_per_io(m) for m in measured),
        skew_median_ns=median(skews) if skews else None,
        skew_max_ns=max(skews, key=abs, default=None),
        skew_bound_ns=max(bounds, default=None),
        skew_how=rounds.agreed(m.skew_how for m in measured),
        doubts=rounds.doubt_labels(figures),
        doubt_names=rounds.doubt_names(figures),
        p99_intended_ns=percentile_or_none(rounds.intended_latencies(figures), 99.0),
        late_share=_late_share(measured),
    )


def _late_share(measured: Sequence[Measurement]) -> float | None:
    """The part of the I/Os of open loops that began more than 1 ms late; None where nothing was due at a time of its own."""
    parts = [
        part for m in measured for part in (m.read, m.write) if part is not None and part.latency_intended is not None
    ]
    done = sum(part.ios for part in parts)
    return sum(part.late for part in parts) / done if done else None


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


def _status(cell: Cell) -> str:
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


# --- doubts ---------------------------------------------------------------------------------------------------------


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
