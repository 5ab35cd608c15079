"""Cells that are measured in alternating pairs, and the figures of their samples."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from calyx_orch.errors import CalyxError
from calyx_orch.model import Workload
from side_by_side import pairs
from side_by_side.goals import Figure, Goal
from side_by_side.guest import BenchGuest, Sample, Side
from side_by_side.present import end_progress, progress

Metric = Callable[[Sample], float]


def iops(sample: Sample) -> float:
    """I/Os a second."""
    return sample.iops


def p50(sample: Sample) -> float:
    """The median of total latency in ns."""
    return sample.p50_ns


def p99(sample: Sample) -> float:
    """The 99th percentile of total latency in ns."""
    return sample.p99_ns


def cpu_per_io(sample: Sample) -> float:
    """Total CPU of the engine for each I/O, in ns."""
    return sample.cpu_per_io_ns


def guest_busy(sample: Sample) -> float:
    """Share of the guest's CPUs that was busy, in percent."""
    return sample.busy_percent


def engine_busy(sample: Sample) -> float:
    """Share of the guest's CPUs that the engine used, in percent."""
    return sample.engine_percent


@dataclass(frozen=True)
class Cell:
    """One workload on one target, by several sides in turn."""

    name: str
    target: str
    workload: Workload
    sides: tuple[Side, ...]


@dataclass
class Samples:
    """All samples, by cell and side; the n-th samples of a cell's sides are a pair."""

    by_side: dict[tuple[str, str], list[Sample]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def of(self, cell: str, side: str) -> list[Sample]:
        """The samples of one side of a cell, in the order of the pairs."""
        return self.by_side.get((cell, side), [])

    def ratio_pairs(self, first: tuple[str, str], second: tuple[str, str], metric: Metric) -> list[tuple[float, float]]:
        """A metric of two (cell, side) as pairs."""
        both = zip(self.of(*first), self.of(*second), strict=False)
        return [(metric(one), metric(other)) for one, other in both]

    def document(self) -> dict[str, Any]:
        """Every sample, for the JSON file."""
        return {f"{cell} {side}": [asdict(each) for each in found] for (cell, side), found in self.by_side.items()}


async def play_pairs(guest: BenchGuest, cells: Sequence[Cell], count: int, seed: int) -> Samples:
    """Every cell `count` times, all cells in turn, its sides in an order that is turned round each time.

    A pair of which one side fails is left out, and said in `failures`. Interrupted, it gives what there is so far.
    """
    samples = Samples()
    with contextlib.suppress(KeyboardInterrupt):
        for number in range(count):
            for cell in cells:
                progress(f"pair {number + 1} of {count}: {cell.name}")
                await _play_pair(guest, cell, number, seed + 1000 * number, samples)
    end_progress()
    return samples


async def _play_pair(guest: BenchGuest, cell: Cell, number: int, seed: int, samples: Samples) -> None:
    order = cell.sides if number % 2 == 0 else cell.sides[::-1]
    try:
        found = {side.name: await guest.play(side, cell.workload, cell.target, seed) for side in order}
    except CalyxError as error:
        samples.failures.append(f"pair {number + 1} of {cell.name}: {error}")
        return
    for name, sample in found.items():
        samples.by_side.setdefault((cell.name, name), []).append(sample)


def ratio(
    samples: Samples,
    name: str,
    metric: Metric,
    *,
    cell: str,
    goal: Goal | None = None,
    first: tuple[str, str] | None = None,
    second: tuple[str, str] | None = None,
) -> Figure:
    """The ratio of a metric: calyx over fio in `cell`, unless other (cell, side) are named."""
    found = samples.ratio_pairs(first or (cell, "calyx"), second or (cell, "fio"), metric)
    try:
        return Figure(cell, name, pairs.of_pairs(found), goal)
    except ValueError as error:
        return Figure(cell, name, None, goal, reason=str(error))


def mean_ratio(
    samples: Samples, name: str, metric: Metric, cells: Sequence[str], goal: Goal | None, *, label: str
) -> Figure:
    """The geometric mean over cells of calyx over fio."""
    found = [samples.ratio_pairs((cell, "calyx"), (cell, "fio"), metric) for cell in cells]
    try:
        return Figure(label, name, pairs.geometric_mean(found), goal)
    except (ValueError, ZeroDivisionError) as error:
        return Figure(label, name, None, goal, reason=str(error))


def variation_ratio(samples: Samples, cell: str, goal: Goal | None) -> Figure:
    """The ratio of the CVs of throughput between repetitions, calyx over fio."""
    name = "CV between repetitions, ratio"
    both = [[sample.bytes_per_s for sample in samples.of(cell, side)] for side in ("calyx", "fio")]
    try:
        each = ", ".join(f"{100 * pairs.variation(values):.1f} %" for values in both)
        return Figure(cell, name, pairs.of_variations(*both), goal, reason=f"calyx, fio: {each}")
    except ValueError as error:
        return Figure(cell, name, None, goal, reason=str(error))


def absolute_rows(samples: Samples) -> list[Mapping[str, str]]:
    """What each side did on average, in words, so that a reader sees what the ratios are of."""
    rows: list[Mapping[str, str]] = []
    for (cell, side), found in samples.by_side.items():
        count = len(found)
        rows.append(
            {
                "cell": cell,
                "side": side,
                "IOPS": f"{sum(s.iops for s in found) / count:,.0f}",
                "MB/s": f"{sum(s.bytes_per_s for s in found) / count / 1e6:,.0f}",
                "P50 us": f"{sum(s.p50_ns for s in found) / count / 1e3:,.1f}",
                "P99 us": f"{sum(s.p99_ns for s in found) / count / 1e3:,.1f}",
                "CPU ns/IO": f"{sum(s.cpu_ns for s in found) / sum(s.ios for s in found):,.0f}",
                "guest CPU %": f"{sum(s.busy_percent for s in found) / count:.1f}",
                "engine CPU %": f"{sum(s.engine_percent for s in found) / count:.1f}",
                "set-up": str(found[-1].setup.get("took") or found[-1].setup.get("fio_version") or ""),
            }
        )
    return rows


def print_rows(rows: Sequence[Mapping[str, str]]) -> None:
    """Rows with the same keys as a table."""
    if not rows:
        return
    widths = {key: max(len(key), *(len(row[key]) for row in rows)) for key in rows[0]}
    print("  ".join(f"{key:<{width}}" for key, width in widths.items()).rstrip())
    for row in rows:
        print("  ".join(f"{row[key]:<{width}}" for key, width in widths.items()).rstrip())
    print()
