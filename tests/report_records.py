"""Synthetic run records for the tests of reports: plausible figures of a fleet, drawn from a seed.

`run_record()` is 8 guests on 2 vm_hosts, engines calyx and fio-io_uring, two workloads, loads together and alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.random import Generator

from calyx_orch.model import (
    NANOSECONDS,
    Connection,
    CpuUse,
    Direction,
    Growth,
    Guest,
    GuestOutcome,
    Histogram,
    Inventory,
    Layout,
    LoadMode,
    LostTime,
    Measurement,
    Place,
    Plan,
    Round,
    RunRecord,
    Rw,
    Series,
    Target,
    Workload,
)

INTERVAL_NS = 100_000_000


def bucket_indices(values_ns: np.ndarray) -> np.ndarray:
    """Find the buckets of `native/include/calyx/histogram.h` that hold `values_ns`."""
    msb = np.frexp(values_ns.astype(np.float64))[1] - 1
    return np.where(values_ns < 256, values_ns, (msb - 6) * 128 + ((values_ns >> np.maximum(msb - 7, 0)) & 127))


def histogram_of(samples_ns: np.ndarray, copies: int = 1) -> Histogram:
    """Bucket `samples_ns`, each counted `copies` times."""
    values = samples_ns.astype(np.int64)
    indices, counts = np.unique(bucket_indices(values), return_counts=True)
    buckets = tuple((int(i), int(c) * copies) for i, c in zip(indices, counts, strict=True))
    return Histogram(buckets, int(values.min()), int(values.max()), int(values.sum()) * copies)


def workloads(runtime_s: float, ramp_s: float = 10.0) -> tuple[Workload, ...]:
    """Make a random and a sequential workload."""
    return (
        Workload("randread-4k", Rw.RANDREAD, 4096, 32, runtime_s=runtime_s, ramp_s=ramp_s),
        Workload("seqwrite-1m", Rw.WRITE, 1 << 20, 8, runtime_s=runtime_s, ramp_s=ramp_s),
    )


def fleet(count: int, per_host: int) -> tuple[Guest, ...]:
    """`count` guests, `per_host` on each vm_host."""
    return tuple(
        Guest(
            f"hv{1 + i // per_host}-vm{1 + i % per_host:02d}",
            Connection(f"10.0.{1 + i // per_host}.{1 + i % per_host}"),
            (Target("data", "/data"),),
            vm_host=f"hv{1 + i // per_host}",
        )
        for i in range(count)
    )


def _rounds(guests: tuple[Guest, ...], loads: tuple[LoadMode, ...], blocks: int, runtime_s: float) -> Iterator[Round]:
    domains: dict[str, list[str]] = {}
    for guest in guests:
        domains.setdefault(guest.domain, []).append(guest.name)
    turns = range(max(map(len, domains.values())))
    alone = [tuple(names[i] for names in domains.values() if i < len(names)) for i in turns]
    index = 0
    ramp_s = 10.0 if runtime_s >= 60 else 1.0
    for workload in workloads(runtime_s, ramp_s):
        for load in loads:
            for block in range(blocks):
                for engine in ("calyx", "fio-io_uring", "fio-io_uring", "calyx"):
                    together = (tuple(guest.name for guest in guests),)
                    for names in together if load is LoadMode.TOGETHER else alone:
                        yield Round(index, block, workload, "data", engine, load, names, seed=1000 + index)
                        index += 1


def _measurement(rng: Generator, round_: Round, guest: Guest, position: int, sharing: int) -> Measurement:
    workload = round_.workload
    random = workload.bs_bytes == 4096
    engine_factor = 1.0 if round_.engine == "calyx" else 0.955
    share = 1.0 if round_.load is LoadMode.ALONE else 1.0 / (0.5 + 0.5 * sharing)
    iops = (61_000 if random else 900) * share * engine_factor * (1 - 0.012 * position) * rng.normal(1, 0.015)
    mean_ns = workload.iodepth / iops * NANOSECONDS
    samples = rng.lognormal(np.log(mean_ns * 0.9), 0.35, 4000)
    samples[:24] *= rng.uniform(3, 12, 24)
    ios = int(iops * workload.runtime_s)
    histogram = histogram_of(samples, max(1, ios // 4000))
    ios = histogram.count
    size = workload.bs_bytes
    intervals = int(workload.runtime_s * NANOSECONDS / INTERVAL_NS)
    per_interval = np.maximum(0, rng.normal(ios / intervals, 0.03 * ios / intervals, intervals)).round()
    direction = Direction(ios, ios * size, histogram)
    zeros = tuple(0.0 for _ in range(intervals))
    ios_series, byte_series = tuple(map(float, per_interval)), tuple(map(float, per_interval * size))
    series = (
        Series(INTERVAL_NS, ios_series, byte_series, zeros, zeros)
        if workload.rw.reads
        else Series(INTERVAL_NS, zeros, zeros, ios_series, byte_series)
    )
    start = 10_000 * NANOSECONDS * (round_.index + 1)
    window_start = start + int(workload.ramp_s * NANOSECONDS)
    window_ns = int(workload.runtime_s * NANOSECONDS)
    engine_ns = int(ios * (4700 if round_.engine == "calyx" else 6100) * (1 if random else 3))
    busy = int(engine_ns * 1.18)
    capacity = window_ns * 4
    return Measurement(
        guest=guest.name,
        round_index=round_.index,
        block=round_.block,
        workload=workload.name,
        target=round_.target,
        engine=round_.engine,
        load=str(round_.load),
        status="ok",
        vm_host=guest.vm_host,
        storage=guest.storage,
        start_line_ns=start,
        started_ns=start + int(rng.normal(60_000, 25_000)),
        skew_ns=int(rng.normal(60_000, 25_000)),
        skew_bound_ns=110_000,
        skew_how="published" if round_.engine == "calyx" else "first-io",
        window_start_ns=window_start,
        window_end_ns=window_start + window_ns,
        read=direction if workload.rw.reads else None,
        write=None if workload.rw.reads else direction,
        series=series,
        cpu=CpuUse(
            window_ns,
            4,
            busy,
            engine_ns,
            user_ns=int(busy * 0.14),
            system_ns=int(busy * 0.78),
            iowait_ns=int(capacity * 0.2),
            softirq_ns=int(busy * 0.08),
            irq_ns=0,
            idle_ns=int(capacity * 0.8) - busy,
        ),
        lost_time=LostTime(NANOSECONDS, 1_200_000, 14, 240_000),
        setup={"requested": "auto", "took": "defer", "fixed_files": True, "fixed_buffers": True, "refill": "each"}
        if round_.engine == "calyx"
        else {"fio_version": "fio-3.33", "options": ["fixedbufs", "registerfiles"]},
        counts={"enter": ios},
        doubts=("short",) if workload.is_short else (),
    )


def facts_of(guest: Guest) -> dict[str, object]:
    """Facts as the agent answers them."""
    path = {"path": "/data", "fs_type": "ext4", "device": "vda", "model": "Msft Virtual Disk", "scheduler": "none"}
    return {
        "hostname": guest.name,
        "kernel": "6.1.0-31-amd64",
        "arch": "x86_64",
        "cpus": 4,
        "memory_bytes": 8 << 30,
        "clocksource": "hyperv_clocksource_tsc_page",
        "hypervisor": "hyperv",
        "io_uring": {"ok": True, "why": "", "setups": ["defer", "coop", "plain"]},
        "paths": [path | {"free_bytes": 90 << 30, "is_ram": False}],
        "programs": [{"name": "fio", "path": "/usr/bin/fio"}],
    }


def run_record(
    guests: int = 8,
    *,
    per_host: int = 4,
    blocks: int = 3,
    runtime_s: float = 60.0,
    loads: tuple[LoadMode, ...] = (LoadMode.TOGETHER, LoadMode.ALONE),
    seed: int = 7,
) -> RunRecord:
    """Make a whole record; when there are more than 2 guests the last is lost and a note says so."""
    rng = np.random.default_rng(seed)
    members = fleet(guests, per_host)
    by_name = {guest.name: (position % per_host, guest) for position, guest in enumerate(members)}
    rounds = tuple(_rounds(members, loads, blocks, runtime_s))
    lost = members[-1].name if guests > 2 else None
    measurements = []
    for round_ in rounds:
        for name in round_.guests:
            position, guest = by_name[name]
            sharing = sum(1 for other in round_.guests if by_name[other][1].vm_host == guest.vm_host)
            measurement = _measurement(rng, round_, guest, position, sharing)
            if name == lost and round_.index > len(rounds) // 2:
                measurement = replace(
                    measurement, status="failed", why="no answer for 15 s", read=None, write=None, series=None, cpu=None
                )
            measurements.append(measurement)
    outcomes = tuple(
        GuestOutcome(guest.name, "lost", "run", "no answer for 15 s: the connection was lost")
        if guest.name == lost
        else GuestOutcome(guest.name, "measured")
        for guest in members
    )
    inventory = Inventory(
        "fleet.yaml",
        members,
        workloads(runtime_s),
        tuple(Place(name) for name in dict.fromkeys(guest.vm_host or "" for guest in members)),
        repetitions=blocks,
        load=loads,
        source="inventories/fleet.yaml",
    )
    plan = Plan(
        inventory,
        seed,
        tuple(Layout(guest.name, "data", "/data", 1, 1 << 30) for guest in members),
        rounds,
        tuple(Growth("vm_host", place.name, per_host << 30, 64 << 30, False) for place in inventory.vm_hosts),
        len(rounds) * (runtime_s + 15),
    )
    return RunRecord(
        "20261201-031500-k3xq",
        "runs/20261201-031500-k3xq",
        plan,
        tuple(measurements),
        outcomes,
        {guest.name: facts_of(guest) for guest in members},
        "2026-12-01T03:15:00+01:00",
        "finished",
        ("hv2-vm04 has no fio of its own: its calyx figures stand alone",) if guests > 4 else (),
    )


def renamed(record: RunRecord, old: str, new: str) -> RunRecord:
    """The same run with another name for one of its guests."""
    inventory = record.plan.inventory
    guests = tuple(replace(guest, name=new) if guest.name == old else guest for guest in inventory.guests)

    def name(guest: str) -> str:
        return new if guest == old else guest

    plan = replace(
        record.plan,
        inventory=replace(inventory, guests=guests),
        rounds=tuple(replace(one, guests=tuple(map(name, one.guests))) for one in record.plan.rounds),
    )
    return replace(
        record,
        plan=plan,
        measurements=tuple(replace(m, guest=name(m.guest)) for m in record.measurements),
        outcomes=tuple(replace(outcome, guest=name(outcome.guest)) for outcome in record.outcomes),
    )
