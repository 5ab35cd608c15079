"""The upper end of a latency distribution: P50 to P99.999 of merged buckets, and how far the tail lies above the middle."""

from __future__ import annotations

from typing import TypedDict

from calyx_orch.analysis.histogram import percentiles_or_none
from calyx_orch.model import Histogram

PERCENTS = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999)


class Tail(TypedDict):
    """Percentiles in ns, each None with fewer than ten samples beyond; `tail_ratio` is P99 / P50, `far_tail_ratio` P99.9 / P50."""

    p50_ns: int | None
    p90_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    p999_ns: int | None
    p9999_ns: int | None
    p99999_ns: int | None
    tail_ratio: float | None
    far_tail_ratio: float | None


def of(latency: Histogram) -> Tail:
    """All of it, as the fields of a row."""
    p50, p90, p95, p99, p999, p9999, p99999 = percentiles_or_none(latency, PERCENTS)
    return Tail(
        p50_ns=p50,
        p90_ns=p90,
        p95_ns=p95,
        p99_ns=p99,
        p999_ns=p999,
        p9999_ns=p9999,
        p99999_ns=p99999,
        tail_ratio=p99 / p50 if p99 is not None and p50 else None,
        far_tail_ratio=p999 / p50 if p999 is not None and p50 else None,
    )
