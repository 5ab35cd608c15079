"""Plausible figures for the fake fleet: one seeded draw of a disk's behaviour, told as calyx or as fio tells it. Pure.

The disk: a base latency that is log-normal around `LATENCY_NS` plus the transfer at `BYTES_PER_S`, shared by all that is in
flight. Counts, histogram and series of a draw agree with one another, as real ones do.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LATENCY_NS = 90_000
LATENCY_SIGMA = 0.25  # of the natural logarithm
BYTES_PER_S = 600_000_000
SWING = 0.05  # of the throughput from interval to interval
SUB_BUCKETS_LOG2 = 7


@dataclass(frozen=True)
class Job:
    """What a command asks for, of either engine."""

    reads: bool
    writes: bool
    block_bytes: int
    depth: int
    jobs: int
    runtime_ns: int
    interval_ns: int
    read_percent: int = 50
    rate_iops: int = 0

    @property
    def shares(self) -> tuple[float, float]:
        """The parts of the I/Os that are reads and writes."""
        if self.reads and self.writes:
            return self.read_percent / 100, 1 - self.read_percent / 100
        return float(self.reads), float(self.writes)


@dataclass(frozen=True)
class Draw:
    """What happened: I/Os per interval of each direction, and latencies as ascending (bucket, count) of each direction."""

    read_ios: tuple[int, ...]
    write_ios: tuple[int, ...]
    read_buckets: tuple[tuple[int, int], ...]
    write_buckets: tuple[tuple[int, int], ...]


def lower_ns(index: int) -> int:
    """The lowest value of a bucket of calyx/histogram.h."""
    if index < 256:
        return index
    octave, sub = divmod(index, 128)
    return (128 + sub) << (octave - 1)


def draw(job: Job, rng: random.Random) -> Draw:
    """One run of a job."""
    in_flight = job.depth * job.jobs
    transfer_ns = job.block_bytes * 1_000_000_000 / BYTES_PER_S
    latency_ns = max(LATENCY_NS + transfer_ns, in_flight * transfer_ns)
    iops = min(in_flight * 1_000_000_000 / latency_ns, 400_000)
    capable = iops
    if job.rate_iops:
        iops = min(iops, job.rate_iops * job.jobs)
    ios = _series(job, iops, rng, SWING if iops == capable else 0.0)
    read_share, write_share = job.shares
    reads = tuple(round(count * read_share) for count in ios)
    writes = tuple(count - read for count, read in zip(ios, reads, strict=True)) if write_share else (0,) * len(ios)
    return Draw(reads, writes, _buckets(sum(reads), latency_ns, rng), _buckets(sum(writes), latency_ns * 1.2, rng))


def _series(job: Job, iops: float, rng: random.Random, swing: float) -> tuple[int, ...]:
    """I/Os per interval; the last may be shorter."""
    counts, left_ns = [], job.runtime_ns
    while left_ns > 0:
        length_ns = min(job.interval_ns, left_ns)
        counts.append(max(0, round(iops * length_ns / 1e9 * rng.gauss(1, swing))))
        left_ns -= length_ns
    return tuple(counts)


def _buckets(total: int, median_ns: float, rng: random.Random) -> tuple[tuple[int, int], ...]:
    """`total` log-normal samples, without drawing each: every bucket gets its share of the distribution."""
    median_ns *= rng.uniform(0.95, 1.05)
    octave = math.log2(median_ns)
    first = max(0, (int(octave) - SUB_BUCKETS_LOG2 - 1) * 128)
    pairs, given, share_before = [], 0, 0.0
    for index in range(first, first + 6 * 128):
        distance = math.log(lower_ns(index + 1) / median_ns) / LATENCY_SIGMA
        share = 0.5 * (1 + math.erf(distance / math.sqrt(2)))
        count = round(total * share) - round(total * share_before)
        share_before = share
        if count:
            pairs.append((index, count))
            given += count
    if given < total:
        pairs.append((first + 6 * 128, total - given))
    return tuple(pairs)


def _open_loop(job: Job, drawn: Draw, result: dict[str, Any]) -> None:
    """The second latency of an open loop: a little more than the first, and without bound beyond what the disk can do."""
    asked = job.rate_iops * job.jobs * job.runtime_ns / 1e9
    for side, ios, buckets in (
        ("read", drawn.read_ios, drawn.read_buckets),
        ("write", drawn.write_ios, drawn.write_buckets),
    ):
        shift = 1 if sum(drawn.read_ios) + sum(drawn.write_ios) >= 0.98 * asked else 1000
        moved = tuple((min(index + shift, 4479), count) for index, count in buckets)
        result[side]["latency_intended"] = _direction(ios, _merged(moved), job.block_bytes)["latency"]
        result[side]["late"] = 0 if shift == 1 else sum(ios)


def _merged(buckets: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    counts: dict[int, int] = {}
    for index, count in buckets:
        counts[index] = counts.get(index, 0) + count
    return tuple(sorted(counts.items()))


def calyx_result(job: Job, drawn: Draw, options: Mapping[str, str], start_ns: int, ramp_ns: int) -> dict[str, Any]:
    """The `result` document of docs/protocol.md."""
    window_ns = start_ns + ramp_ns
    setup = options.get("setup", "auto")
    took = "defer" if setup == "auto" else setup
    result: dict[str, Any] = {
        "engine": "calyx",
        "jobs": job.jobs,
        "started_ns": start_ns,
        "window_start_ns": window_ns,
        "window_end_ns": window_ns + job.runtime_ns,
        "ended_ns": window_ns + job.runtime_ns + LATENCY_NS,
        "read": _direction(drawn.read_ios, drawn.read_buckets, job.block_bytes),
        "write": _direction(drawn.write_ios, drawn.write_buckets, job.block_bytes),
        "sync": _direction((), (), 0),
        "series": {
            "interval_ns": job.interval_ns,
            "read_ios": list(drawn.read_ios),
            "read_bytes": [count * job.block_bytes for count in drawn.read_ios],
            "write_ios": list(drawn.write_ios),
            "write_bytes": [count * job.block_bytes for count in drawn.write_ios],
            "latency_max_ns": [LATENCY_NS * 2 for _ in drawn.read_ios],
        },
        "setup": {
            "requested": setup,
            "took": took,
            "sqpoll": took == "sqpoll",
            "defer_taskrun": took == "defer",
            "coop_taskrun": took == "coop",
            "single_issuer": took in ("defer", "sqpoll"),
            "no_sqarray": True,
            "fixed_files": True,
            "fixed_buffers": options.get("buffers", "auto") != "plain",
            "buffer_bytes": job.block_bytes * job.depth * job.jobs,
            "refill": options.get("refill", "each"),
            "direct": options.get("direct", "1") == "1",
            "sq_entries": job.depth,
            "cq_entries": job.depth * 2,
            "why": "",
        },
        "counts": {"enter": 1, "submitted": 1, "eagain": 0, "short": 0, "unfinished": 0, "wakeups": 0},
        "errors": [],
        "clock": {"source": "tsc", "cost_ns": 20, "resolution_ns": 1},
        "seed": int(options.get("seed", "0")),
        "data_seed": int(options.get("data_seed", "0")),
    }
    if options.get("arrival", "closed") != "closed":
        _open_loop(job, drawn, result)
    return result


def _direction(ios: tuple[int, ...], buckets: tuple[tuple[int, int], ...], block_bytes: int) -> dict[str, Any]:
    total = sum(ios)
    return {
        "ios": total,
        "bytes": total * block_bytes,
        "errors": 0,
        "short": 0,
        "latency": {
            "min_ns": lower_ns(buckets[0][0]) if buckets else None,
            "max_ns": lower_ns(buckets[-1][0]) if buckets else 0,
            "sum_ns": sum(lower_ns(index) * count for index, count in buckets),
            "overflow": 0,
            "buckets": [list(pair) for pair in buckets],
        },
    }


def fio_output(job: Job, drawn: Draw, version: str) -> str:
    """What `fio --output-format=json+` prints for one job that stands for all."""
    sides = {
        "read": _fio_direction(job, drawn.read_ios, drawn.read_buckets),
        "write": _fio_direction(job, drawn.write_ios, drawn.write_buckets),
        "trim": _fio_direction(job, (), ()),
    }
    runtime_ms = job.runtime_ns // 1_000_000
    one = {"jobname": "job0", "groupid": 0, "error": 0, "job_runtime": runtime_ms, **sides}
    return json.dumps({"fio version": version, "timestamp": 0, "jobs": [one]}, indent=1) + "\n"


def _fio_direction(job: Job, ios: tuple[int, ...], buckets: tuple[tuple[int, int], ...]) -> dict[str, Any]:
    total = sum(ios)
    bins: dict[str, int] = {}
    for index, count in buckets:
        value = str(_fio_value(index // 2 + 64 if index >= 128 else index))
        bins[value] = bins.get(value, 0) + count
    runtime_s = job.runtime_ns / 1e9
    mean = sum(lower_ns(index) * count for index, count in buckets) / total if total else 0.0
    latency: dict[str, Any] = {
        "min": lower_ns(buckets[0][0]) if buckets else 0,
        "max": lower_ns(buckets[-1][0]) if buckets else 0,
        "mean": mean,
        "stddev": mean * LATENCY_SIGMA,
        "N": total,
    }
    if total:
        latency |= {"percentile": {"99.000000": int(mean * 2)}, "bins": bins}
    return {
        "io_bytes": total * job.block_bytes,
        "io_kbytes": total * job.block_bytes // 1024,
        "bw_bytes": int(total * job.block_bytes / runtime_s),
        "bw": int(total * job.block_bytes / runtime_s / 1024),
        "iops": total / runtime_s,
        "runtime": int(runtime_s * 1000) if total else 0,
        "total_ios": total,
        "short_ios": 0,
        "drop_ios": 0,
        "lat_ns": latency,
    }


def _fio_value(index: int) -> int:
    """By fio's plat_idx_to_val, for a bucket that holds two of ours: the middle of the bucket."""
    if index < 128:
        return index
    error_bits = (index >> 6) - 1
    return (1 << (error_bits + 6)) + int((index % 64 + 0.5) * (1 << error_bits))


def fio_log(job: Job, drawn: Draw, name: str) -> str:
    """An interval log that fio writes: `ms, value, direction, block size, offset`; bandwidth in KiB/s, or IOPS."""
    lines, at_ns = [], 0
    for reads, writes in zip(drawn.read_ios, drawn.write_ios, strict=True):
        length_ns = min(job.interval_ns, job.runtime_ns - at_ns)
        at_ns += length_ns
        for direction, count in ((0, reads), (1, writes)):
            if count:
                scale = job.block_bytes / 1024 if "_bw" in name else 1.0
                lines.append(f"{at_ns // 1_000_000}, {round(count * scale * 1e9 / length_ns)}, {direction}, 0, 0")
    return "\n".join(lines) + "\n"
