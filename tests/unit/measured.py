"""Small makers of measurements and records for the unit tests of the analysis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from calyx_orch.engines.buckets import index_of
from calyx_orch.model import (
    NANOSECONDS,
    Connection,
    CpuUse,
    Direction,
    Guest,
    Histogram,
    Inventory,
    LoadMode,
    Measurement,
    Plan,
    Round,
    RunRecord,
    Rw,
    Series,
    Target,
    Workload,
)

INTERVAL_NS = 100_000_000
WORKLOAD = Workload("randread-4k", Rw.RANDREAD, 4096, 32, runtime_s=60.0, ramp_s=10.0)


def histogram_of(samples_ns: Iterable[int]) -> Histogram:
    """The samples as the engine would have recorded them."""
    samples = list(samples_ns)
    counts: dict[int, int] = {}
    for sample in samples:
        counts[index_of(sample)] = counts.get(index_of(sample), 0) + 1
    return Histogram(
        tuple(sorted(counts.items())), min(samples, default=None), max(samples, default=None), sum(samples)
    )


def guest(name: str, vm_host: str | None = None, storage: str | None = None) -> Guest:
    return Guest(name, Connection(name), (Target("data", "/data"),), vm_host=vm_host, storage=storage)


def round_(
    index: int,
    guests: Sequence[str],
    *,
    engine: str = "calyx",
    load: LoadMode = LoadMode.TOGETHER,
    block: int = 0,
    workload: Workload = WORKLOAD,
    **changes: Any,
) -> Round:
    return replace(Round(index, block, workload, "data", engine, load, tuple(guests), seed=index + 1), **changes)


def measurement(
    of: Guest,
    within: Round,
    iops: float,
    *,
    latency_ns: Sequence[int] = (100_000,) * 99 + (900_000,),
    start_s: float = 10.0,
    length_s: float = 60.0,
    **changes: Any,
) -> Measurement:
    """A constant rate of 4 KiB reads; the latencies are repeated until there is one for each I/O."""
    ios = round(iops * length_s)
    latency = histogram_of(latency_ns)
    copies = max(ios // max(latency.count, 1), 1)
    latency = replace(
        latency, buckets=tuple((i, n * copies) for i, n in latency.buckets), sum_ns=latency.sum_ns * copies
    )
    start_ns, length_ns = round(start_s * NANOSECONDS), round(length_s * NANOSECONDS)
    per_interval = (ios / (length_ns / INTERVAL_NS),) * round(length_ns / INTERVAL_NS)
    per_bytes = tuple(4096 * value for value in per_interval)
    zeros = (0.0,) * len(per_interval)
    made = Measurement(
        guest=of.name,
        round_index=within.index,
        block=within.block,
        workload=within.workload.name,
        target=within.target,
        engine=within.engine,
        load=str(within.load),
        status="ok",
        vm_host=of.vm_host,
        storage=of.storage,
        started_ns=0,
        skew_ns=50_000,
        skew_bound_ns=60_000,
        skew_how="published",
        window_start_ns=start_ns,
        window_end_ns=start_ns + length_ns,
        read=Direction(ios, ios * 4096, latency),
        series=Series(INTERVAL_NS, per_interval, per_bytes, zeros, zeros),
        cpu=CpuUse(length_ns, 2, busy_ns=ios * 6000, engine_ns=ios * 5000),
        setup={"took": "defer", "fixed_buffers": True, "fixed_files": True, "direct": True, "refill": "each"},
    )
    return replace(made, **changes)


def record(
    guests: Sequence[Guest], rounds: Sequence[Round], measurements: Sequence[Measurement], **changes: Any
) -> RunRecord:
    workloads = tuple(dict.fromkeys(one.workload for one in rounds))
    plan = Plan(Inventory("test", tuple(guests), workloads), 1, (), tuple(rounds), (), 0.0)
    made = RunRecord("run", "runs/run", plan, tuple(measurements), (), {}, "2026-12-01T00:00:00+00:00", "finished")
    return replace(made, **changes)
