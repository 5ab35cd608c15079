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

from calyx_orch.analysis.cells import Key, keys_of
from calyx_orch.analysis.compare import METRICS, figure_of
from calyx_orch.analysis.histogram import percentiles_or_none
from calyx_orch.analysis.rounds import (
    Figures,
    Played,
    doubt_names,
    intended_latencies,
    know_when_due,
    latencies,
    played,
)
from calyx_orch.analysis.sides import UNKNOWN, Side, Unit, fullest, of_run, units_of_all, values_of
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


def scope_rows(record: RunRecord, at: Sequence[Played] | None = None) -> tuple[ScopeRow, ...]:
    """Every place of a run that was measured, in the order of SCOPES; the work grows as the fleet does, and not as its square.

    `at` are its rounds, where somebody has looked at them already.
    """
    sides = list(_sides(record))
    units = units_of_all([side for side, _ in sides], played(record) if at is None else at)
    keys, makes = keys_of(record), _Makes(record)  # keys in the inventory's order, calyx before fio
    return tuple(
        _row(side, scope, key, mine[key], makes)
        for (side, scope), mine in zip(sides, units, strict=True)
        for key in keys
        if key in mine
    )


def series_key(record: RunRecord, guests: Iterable[str], workload: str, engine: str, figures: Sequence[Figures]) -> str:
    """A short hash of all that makes nights comparable: the I/O, the guests' make, the set-up that took effect, the tool."""
    return _series_key(_Makes(record), guests, workload, engine, figures)


class _Makes:
    """What a run says of its workloads and guests, each looked up once."""

    def __init__(self, record: RunRecord) -> None:
        definitions = {round_.workload.name: round_.workload for round_ in reversed(record.plan.rounds)}
        names = [guest.name for guest in record.plan.inventory.guests]
        self.is_open = {name: workload.is_open_loop for name, workload in definitions.items()}
        self.io = {name: _io_of(workload) for name, workload in definitions.items()}
        self.identity = {name: _identity(record, name) for name in names}
        self.fio = {name: _fio(record, name) for name in names}


def _series_key(makes: _Makes, guests: Iterable[str], workload: str, engine: str, figures: Sequence[Figures]) -> str:
    names = list(guests)
    whole = {
        "workload": makes.io[workload],
        "guests": sorted({makes.identity[guest] for guest in names}),
        "setup": sorted({_setup(found.measurement.setup) for found in figures}),
        "fio": sorted({makes.fio[guest] for guest in names}) if engine != "calyx" else [],
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


def _row(side: Side, scope: str, key: Key, every: Sequence[Unit], makes: _Makes) -> ScopeRow:
    (units,) = fullest([every], enough=1)
    target, workload, engine, load = key
    figures = tuple(found for unit in units for found in unit.figures)
    guests = tuple(dict.fromkeys(found.measurement.guest for found in figures))
    is_due = makes.is_open[workload] and know_when_due(figures)
    latency = intended_latencies(figures) if is_due else latencies(figures)
    p50_ns, p99_ns, p999_ns = percentiles_or_none(latency, (50.0, 99.0, 99.9))
    return ScopeRow(
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
        p50_ns=p50_ns,
        p99_ns=p99_ns,
        p999_ns=p999_ns,
        cv_within_run=_mean("CV within a run", units),
        cpu_ns_per_io=_mean("CPU per I/O", units),
        latency=latency,
        series_key=_series_key(makes, guests, workload, engine, figures),
        doubts=doubt_names(figures),
    )


def _mean(metric: str, units: Sequence[Unit]) -> float | None:
    of = next(one for one in METRICS if one.name == metric)
    return figure_of(of, units)


def _io_of(workload: Workload) -> dict[str, Any]:
    """The fields that say which I/O it is. A share of the capacity says so itself: the rate it leads to is another one each night."""
    found = {
        field.name: getattr(workload, field.name)
        for field in dataclasses.fields(Workload)
        if field.name not in NOT_THE_IO and getattr(workload, field.name) != field.default
    }
    if "load_share" in found:
        found.pop("rate_iops", None)
    return found


def _identity(record: RunRecord, guest: str) -> str:
    facts = record.facts.get(guest, {})
    return " ".join(str(facts.get(name, "")) for name in IDENTITY)


def _setup(setup: Mapping[str, Any]) -> str:
    return " ".join(str(setup.get(name, "")) for name in SETUP)


def _fio(record: RunRecord, guest: str) -> str:
    fio = record.facts.get(guest, {}).get("fio")
    return str(fio.get("version", "")) if isinstance(fio, Mapping) else ""
