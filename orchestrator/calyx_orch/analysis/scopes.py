"""A run by place: the fleet, each vm_host, storage and guest, with merged histograms: what the index keeps of a night.

A figure of a place is the mean over its units (a round; a block for one guest and under `alone`) of its guests' mean, so that a night on
which a guest is missing is not a slower one. `series_key` says which nights belong together: an other kernel, fio, number of CPUs, set-up
or I/O under the same name begins a new series; what jitters from boot to boot does not.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calyx_orch.analysis.cells import keys_of
from calyx_orch.analysis.compare import METRICS, figure_of
from calyx_orch.analysis.histogram import percentile_or_none
from calyx_orch.analysis.rounds import Figures, Played, doubt_names, latencies, played
from calyx_orch.analysis.sides import UNKNOWN, Side, Unit, fullest, of_run, units_of, values_of
from calyx_orch.model import Histogram, RunRecord, Workload

SCOPES = ("fleet", "vm_host", "storage", "guest")
NOT_THE_IO = frozenset(
    {"name", "seed", "find", "guests_at", "setup", "refill", "buffers"}
)  # what took effect is told apart
IDENTITY = (
    "arch",
    "cpus",
    "cpu_model",
    "kernel",
    "hypervisor",
)  # never what jitters: MHz, bogomips, memory to the byte
SETUP = ("took", "refill", "fixed_buffers", "iopoll")


@dataclass(frozen=True)
class ScopeRow:
    """One place under one workload by one engine: means over units of its guests' means, percentiles of merged buckets."""

    scope: str
    name: str
    target: str
    workload: str
    engine: str
    load: str
    guests: int
    units: int
    throughput_bytes_per_s: float | None
    iops: float | None
    p50_ns: int | None
    p99_ns: int | None
    p999_ns: int | None
    cv_within_run: float | None
    cpu_ns_per_io: float | None
    latency: Histogram
    series_key: str
    doubts: tuple[str, ...] = ()


def scope_rows(record: RunRecord) -> tuple[ScopeRow, ...]:
    """Every place of a run that was measured, in the order of SCOPES."""
    at = played(record)
    return tuple(row for side, scope in _sides(record) for row in _rows(side, scope, at))


def series_key(record: RunRecord, guests: Iterable[str], workload: str, engine: str, figures: Sequence[Figures]) -> str:
    """A short hash of all that makes nights comparable: the I/O, the guests' make, the set-up that took effect, the tool."""
    definition = next(round_.workload for round_ in record.plan.rounds if round_.workload.name == workload)
    whole = {
        "workload": _io_of(definition),
        "guests": sorted({_identity(record, guest) for guest in guests}),
        "setup": sorted({_setup(found.measurement.setup) for found in figures}),
        "fio": sorted({_fio(record, guest) for guest in guests}) if engine != "calyx" else [],
    }
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _sides(record: RunRecord) -> Iterable[tuple[Side, str]]:
    guests = record.plan.inventory.guests
    yield of_run("fleet", record), "fleet"
    for scope in ("vm_host", "storage", "guest"):
        members: dict[str, list[str]] = {}
        for guest in guests:
            (value,) = values_of(guest, {}, scope)
            members.setdefault(value, []).append(guest.name)
        for name, mine in members.items():
            if name != UNKNOWN:
                yield Side(name, record, tuple(mine)), scope


def _rows(side: Side, scope: str, at: Sequence[Played]) -> Iterable[ScopeRow]:
    all_units = units_of(side, at)
    for key in keys_of(side.record):  # in the inventory's order, calyx before fio
        if key not in all_units:
            continue
        (units,) = fullest([all_units[key]], enough=1)
        target, workload, engine, load = key
        figures = tuple(found for unit in units for found in unit.figures)
        guests = tuple(dict.fromkeys(found.measurement.guest for found in figures))
        latency = latencies(figures)
        yield ScopeRow(
            scope=scope,
            name=side.name,
            target=target,
            workload=workload,
            engine=engine,
            load=load,
            guests=len(guests),
            units=len(units),
            throughput_bytes_per_s=_mean("throughput", units),
            iops=_mean("IOPS", units),
            p50_ns=percentile_or_none(latency, 50.0),
            p99_ns=percentile_or_none(latency, 99.0),
            p999_ns=percentile_or_none(latency, 99.9),
            cv_within_run=_mean("CV within a run", units),
            cpu_ns_per_io=_mean("CPU per I/O", units),
            latency=latency,
            series_key=series_key(side.record, guests, workload, engine, figures),
            doubts=doubt_names(figures),
        )


def _mean(metric: str, units: Sequence[Unit]) -> float | None:
    of = next(one for one in METRICS if one.name == metric)
    return figure_of(of, units)


def _io_of(workload: Workload) -> dict[str, Any]:
    return {
        field.name: getattr(workload, field.name)
        for field in dataclasses.fields(Workload)
        if field.name not in NOT_THE_IO and getattr(workload, field.name) != field.default
    }


def _identity(record: RunRecord, guest: str) -> str:
    facts = record.facts.get(guest, {})
    return " ".join(str(facts.get(name, "")) for name in IDENTITY)


def _setup(setup: Mapping[str, Any]) -> str:
    return " ".join(str(setup.get(name, "")) for name in SETUP)


def _fio(record: RunRecord, guest: str) -> str:
    fio = record.facts.get(guest, {}).get("fio")
    return str(fio.get("version", "")) if isinstance(fio, Mapping) else ""
