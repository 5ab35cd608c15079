"""Cells that are measured in alternating pairs, and the figures of their samples."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from calyx_orch.errors import CalyxError
from calyx_orch.model import Workload
from calyx_orch.plan.order import engine_orders
from side_by_side import pairs, progress
from side_by_side.goals import Figure, Goal
from side_by_side.guest import BenchGuest, Sample, Side

REST_EQUAL_WITHIN_S = 0.1
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
    interrupted: bool = False

    def of(self, cell: str, side: str) -> list[Sample]:
        """The samples of one side of a cell, in the order of the pairs."""
        return self.by_side.get((cell, side), [])

    def ratio_pairs(self, first: tuple[str, str], second: tuple[str, str], metric: Metric) -> list[tuple[float, float]]:
        """A metric of two (cell, side) as pairs."""
        both = zip(self.of(*first), self.of(*second), strict=False)
        return [(metric(one), metric(other)) for one, other in both]

    def pairs(self, cell: Cell) -> int:
        """How many whole pairs there are of a cell."""
        return min(len(self.of(cell.name, side.name)) for side in cell.sides)

    def rests(self) -> list[float]:
        """How long the disk had rested before each sample, in seconds, where that is known."""
        return [one.rested_s for found in self.by_side.values() for one in found if one.rested_s is not None]

    def document(self) -> dict[str, Any]:
        """Every sample, for the JSON file."""
        return {f"{cell} {side}": [asdict(each) for each in found] for (cell, side), found in self.by_side.items()}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Samples:
        """The samples that `document` has written. Raises ValueError for anything else."""
        try:
            by_side = {
                (key.partition(" ")[0], key.partition(" ")[2]): [Sample(**each) for each in found]
                for key, found in document.items()
            }
        except (AttributeError, TypeError) as error:
            raise ValueError(f"these are no samples ({error})") from None
        return cls(by_side)


@dataclass(frozen=True)
class Course:
    """How far pairs are played: `count` for each cell, none begun after `until_s` (monotonic; None: no limit).

    `keep` is called after each turn of all cells with what there is so far.
    """

    count: int
    seed: int
    until_s: float | None = None
    keep: Callable[[Samples], None] = lambda samples: None


async def play_pairs(guest: BenchGuest, cells: Sequence[Cell], course: Course, samples: Samples) -> None:
    """Adds to `samples` until every cell has its pairs, all cells in turn. Interrupted or out of time, it ends early.

    A pair of which one side fails is left out, and said in `failures`.
    """
    ahead = sum(len(cell.sides) * max(0, course.count - samples.pairs(cell)) for cell in cells)
    began_s, done = time.monotonic(), 0
    try:
        for number in range(min((samples.pairs(cell) for cell in cells), default=0), course.count):
            for cell in cells:
                if number < samples.pairs(cell) or (course.until_s is not None and time.monotonic() > course.until_s):
                    continue
                each_s = (time.monotonic() - began_s) / done if done else 0.0
                left = f", {each_s * (ahead - done) / 60:.0f} min to go" if done else ""
                progress.show(f"pair {number + 1} of {course.count}: {cell.name}{left}")
                await _play_pair(guest, cell, number, course.seed + 1000 * number, samples)
                done += len(cell.sides)
            course.keep(samples)
    except (KeyboardInterrupt, asyncio.CancelledError):
        samples.interrupted = True
    progress.end()


def notes_of(samples: Samples, cells: Sequence[Cell], count: int) -> list[str]:
    """What a reader has to know of how the pairs went: whether all were played, and how equally the disk had rested."""
    notes = []
    short = [f"{cell.name} {samples.pairs(cell)}" for cell in cells if samples.pairs(cell) < count]
    if short:
        why = "interrupted" if samples.interrupted else "out of time, or pairs failed"
        notes.append(f"{why}: of {count} pairs there are {', '.join(short)}")
    rests = sorted(samples.rests())
    if rests:
        middle = rests[len(rests) // 2]
        unequal = sum(abs(rest - middle) > REST_EQUAL_WITHIN_S for rest in rests)
        told = f"; {unequal} of {len(rests)} samples by more than {REST_EQUAL_WITHIN_S:g} s else" if unequal else ""
        notes.append(f"before each sample the disk rested {middle:.2f} s ({rests[0]:.2f} to {rests[-1]:.2f}){told}")
    return notes


def order(sides: Sequence[Side], number: int) -> tuple[Side, ...]:
    """The order of the sides in the pair `number` (from 0): two by turns, more by a Williams design.

    So each side stands equally often at each place and, over twice as many pairs as there are sides, after each other side.
    """
    if len(sides) <= 2:
        return tuple(sides) if number % 2 == 0 else tuple(reversed(sides))
    names = [side.name for side in sides]
    by_name = dict(zip(names, sides, strict=True))
    return tuple(by_name[name] for name in engine_orders(names, number + 1, random.Random(len(sides)))[number])


async def _play_pair(guest: BenchGuest, cell: Cell, number: int, seed: int, samples: Samples) -> None:
    try:
        found = {
            side.name: await guest.play(side, cell.workload, cell.target, seed) for side in order(cell.sides, number)
        }
    except CalyxError as error:
        samples.failures.append(f"pair {number + 1} of {cell.name}: {error}")
        return
    for side in cell.sides:
        samples.by_side.setdefault((cell.name, side.name), []).append(found[side.name])


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
