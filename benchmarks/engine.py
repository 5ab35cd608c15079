"""The engine side by side with fio in one run: the figures that calyx has to reach, each with its 95 % interval.

    benchmarks/engine.py              40 pairs of 3 s a cell: about 80 minutes; every bound is judged
    benchmarks/engine.py --quick      under a minute; says what it cannot decide
    benchmarks/engine.py --check      exit 1 where a goal is missed; the last line is the figure furthest from its goal
    benchmarks/engine.py --json FILE --resume      goes on where FILE ended; with --cells the full run is made in parts

fio is 3.x with io_uring, registered buffers and file, norandommap, threads, the same ramp, and total latency, as a run makes
it. Both sides of a pair use one laid-out file, the same seed, start line, window and CPU accounting. docs/benchmarks.md says
what each figure means.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from side_by_side import cells as of
from side_by_side import counted, pairs, present, profile, progress, record
from side_by_side.cells import Cell, Samples
from side_by_side.ending import ends_as_interrupted
from side_by_side.goals import Figure, Verdict, at_least, at_most, judge
from side_by_side.guest import CALYX, FIO, BenchGuest, Side, open_guest
from side_by_side.loops import NoLoopError, mounted

from calyx_agent.executables import Executable, local
from calyx_orch.errors import CalyxError
from calyx_orch.model import Rw, Workload

PAIRS, PAIRS_QUICK = 40, 3
SECONDS, SECONDS_QUICK = 3.0, 0.5
RAMP_S, RAMP_QUICK_S = 0.5, 0.2
QUICK_PAIRS_WITHIN_S, QUICK_COUNTS_WITHIN_S = 36.0, 46.0  # nothing is begun later, so that a minute is kept
RANDOM_DEPTHS = (1, 4, 8, 16, 32, 64)
GROWTH_DEPTHS = (8, 16, 32, 64)
QUICK_CELLS = ("randread-4k-q8", "randread-4k-q32", "seqread-1m-q16")
READ, WRITE = "seqread-1m-q16", "seqwrite-1m-q16-xfs"
FIO_PLAIN = Side("fio without fixed buffers", "fio-io_uring", plain_buffers=True)
FIO_AS_IT_COMES = Side("fio as it comes", "fio-io_uring", plain_buffers=True, plain_memory=True)
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
ENOUGH_TICKS = 400


@dataclass
class Measured:
    """What a benchmark has found so far, and under what conditions."""

    samples: Samples = field(default_factory=Samples)
    counted: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    conditions: dict[str, Any] = field(default_factory=dict)
    profiles: dict[str, Any] = field(default_factory=dict)

    def figures(self) -> list[Figure]:
        """Every figure with its goal."""
        return [*pair_figures(self.samples), *self.counted]

    def document(self, options: argparse.Namespace) -> dict[str, Any]:
        """All of it, for the JSON file."""
        extra = {
            "options": vars(options),
            "conditions": self.conditions,
            "samples": self.samples.document(),
            "counted": record.counted_document(self.counted),
            "profiles": self.profiles,
            "notes": [*self.notes, *self.samples.failures],
        }
        return present.document(self.figures(), extra)


def main() -> int:
    """Measure, print, and answer with the exit status."""
    options = parse_options()
    try:
        found = asyncio.run(measure(options))
    except (CalyxError, record.RecordError) as error:
        print(f"cannot measure: {error}", file=sys.stderr)
        return 2
    for note in (*found.notes, *found.samples.failures):
        print(f"note: {note}")
    of.print_rows(of.absolute_rows(found.samples))
    figures = found.figures()
    if not figures:
        print("nothing was measured", file=sys.stderr)
        return 2
    present.print_figures(figures)
    return present.finish(figures, options, found.document(options))


def parse_options() -> argparse.Namespace:
    """The command line with its defaults filled in."""
    options = present.parser("the engine side by side with fio", pairs=PAIRS, seconds=SECONDS)
    options.add_argument("--agent", type=Path, metavar="FILE", help="another agent than this installation's")
    options.add_argument("--no-counts", action="store_true", help="leave callgrind, strace and sizes out")
    options.add_argument("--no-profiles", action="store_true", help="do not profile the cells whose goals are missed")
    given = present.parse(options)
    given.pairs = given.pairs or (PAIRS_QUICK if given.quick else PAIRS)
    given.seconds = given.seconds or (SECONDS_QUICK if given.quick else SECONDS)
    given.size_mib = given.size_mib or (128 if given.quick else 1024)
    given.cells = given.cells or (",".join(QUICK_CELLS) if given.quick else "")
    return given


async def measure(options: argparse.Namespace) -> Measured:
    """All pairs, then what is counted and profiled. Files and loop devices are gone afterwards."""
    began_s = time.monotonic()
    found = Measured()
    executable = _executable(options.agent) if options.agent else local()
    size_bytes = options.size_mib << 20
    ramp_s = RAMP_QUICK_S if options.quick else RAMP_S
    cells = all_cells(options.seconds, size_bytes, ramp_s=ramp_s)
    chosen = [cell for cell in cells if present.is_chosen(cell.name, options.cells)]
    if options.quick:
        chosen = [replace(cell, sides=cell.sides[:2]) for cell in chosen]
    with contextlib.ExitStack() as undo:
        targets = {"ext4": Path(undo.enter_context(TemporaryDirectory(prefix="calyx-bench-", dir=options.directory)))}
        if any(cell.target == "xfs" for cell in chosen):
            try:
                targets["xfs"] = undo.enter_context(mounted("xfs", options.directory, size_bytes + (512 << 20)))
            except NoLoopError as error:
                found.notes.append(f"no XFS: {error}")
        chosen = [cell for cell in chosen if cell.target in targets]
        async with open_guest(targets, seed=options.seed, executable=executable) as guest:
            found.notes += _facts(guest, targets)
            found.conditions = record.conditions(options, guest, executable.sha256, ramp_s=ramp_s)
            if options.resume:
                earlier = record.read(options.json, found.conditions)
                found.samples, found.counted = earlier.samples, earlier.counted
            for target in targets:
                progress.show(f"laying out {size_bytes >> 20} MiB on {target}")
                await guest.lay_out(target, size_bytes)
            print(present.course_text(chosen, found.samples, options.pairs), "and what is counted", flush=True)
            keep = record.write if options.json else _keep_nothing
            until_s = began_s + QUICK_PAIRS_WITHIN_S if options.quick else None
            course = of.Course(
                options.pairs, options.seed, until_s, lambda _: keep(options.json, found.document(options))
            )
            await of.play_pairs(guest, chosen, course, found.samples)
            found.notes += of.notes_of(found.samples, chosen, options.pairs)
            if not found.samples.interrupted:
                if not options.no_counts and not found.counted:
                    last_s = began_s + QUICK_COUNTS_WITHIN_S if options.quick else math.inf
                    found.counted = counted.count_costs(guest, executable, quick=options.quick, until_s=last_s)
                if not options.no_profiles and not options.quick:
                    await _profile_missed(guest, chosen, options, found)
    return found


async def _profile_missed(
    guest: BenchGuest, cells: Sequence[Cell], options: argparse.Namespace, found: Measured
) -> None:
    """One more round below perf of each side of the cells that have a missed goal: what limits it."""
    missed = {figure.cell for figure in found.figures() if judge(figure) is Verdict.MISSED}
    for cell in (one for one in cells if one.name in missed):
        for side in cell.sides[:2]:
            progress.show(f"profiling {cell.name}, {side.name}")
            try:
                places = await profile.profile(guest, cell, side, options.seed)
            except profile.ProfileError as error:
                progress.end()
                found.notes.append(f"no profile of {cell.name}, {side.name}: {error}")
                continue
            progress.end()
            found.profiles[f"{cell.name} {side.name}"] = [asdict(place) for place in places]
            profile.print_profile(cell.name, side.name, places)


def _keep_nothing(path: Path, document: dict[str, Any]) -> None:
    """Without --json there is no file to go on with."""


def all_cells(seconds: float, size_bytes: int, *, ramp_s: float = RAMP_S) -> list[Cell]:
    """Every cell of the full run."""

    def workload(name: str, rw: Rw, bs: int, depth: int) -> Workload:
        return Workload(
            name, rw=rw, bs_bytes=bs, iodepth=depth, size_bytes=size_bytes, runtime_s=seconds, ramp_s=ramp_s
        )

    found = []
    for depth in RANDOM_DEPTHS:
        name = f"randread-4k-q{depth}"
        found.append(Cell(name, "ext4", workload(name, Rw.RANDREAD, 4096, depth), (CALYX, FIO)))
    for depth in GROWTH_DEPTHS:
        name = f"seqread-1m-q{depth}"
        sides = (CALYX, FIO, FIO_PLAIN, FIO_AS_IT_COMES) if name == READ else (CALYX, FIO)
        found.append(Cell(name, "ext4", workload(name, Rw.READ, 1 << 20, depth), sides))
    found.append(Cell(WRITE, "xfs", workload(WRITE, Rw.WRITE, 1 << 20, 16), (CALYX, FIO)))
    return found


# --- figures of the pairs ----------------------------------------------------------------------------------------


def pair_figures(samples: Samples) -> list[Figure]:
    """Every figure that comes from pairs, with its goal; cells that were not measured give none."""
    measured = {cell for cell, _ in samples.by_side}
    random = [cell for depth in RANDOM_DEPTHS if (cell := f"randread-4k-q{depth}") in measured]
    figures = [figure for cell in random for figure in _random_figures(samples, cell)]
    if random:
        which = "all" if len(random) == len(RANDOM_DEPTHS) else f"{len(random)} of {len(RANDOM_DEPTHS)}"
        label = f"randread-4k, {which} depths"
        figures.append(of.mean_ratio(samples, "IOPS", of.iops, random, at_least(0.99), label=label))
        figures.append(of.mean_ratio(samples, "P99", of.p99, random, at_most(1.0), label=label))
        figures.append(_user_cpu(samples, random, label=label))
    for cell in (READ, WRITE):
        if cell in measured:
            figures += _sequential_figures(samples, cell)
    if READ in measured:
        # As people run it: neither registered buffers nor huge pages. With huge pages alone it is told.
        for side, goal in ((FIO_AS_IT_COMES, at_most(0.30)), (FIO_PLAIN, None)):
            name = f"CPU per I/O, against {side.name}"
            figures.append(of.ratio(samples, name, of.cpu_per_io, cell=READ, goal=goal, second=(READ, side.name)))
    return figures + _growth_figures(samples, measured)


def _random_figures(samples: Samples, cell: str) -> list[Figure]:
    return [
        of.ratio(samples, "IOPS", of.iops, cell=cell, goal=at_least(1.0, significant=True)),
        of.ratio(samples, "P50", of.p50, cell=cell),
        of.ratio(samples, "P99", of.p99, cell=cell, goal=at_most(1.0, significant=True)),
        of.ratio(samples, "CPU per I/O", of.cpu_per_io, cell=cell, goal=at_most(0.90)),
        _user_cpu(samples, [cell], label=cell),
        of.variation_ratio(samples, cell, None),
    ]


def _sequential_figures(samples: Samples, cell: str) -> list[Figure]:
    return [
        of.ratio(samples, "throughput", of.iops, cell=cell, goal=at_least(0.99)),
        of.ratio(samples, "P50", of.p50, cell=cell),
        of.ratio(samples, "P99", of.p99, cell=cell, goal=at_most(1.0)),
        of.ratio(samples, "CPU per I/O", of.cpu_per_io, cell=cell, goal=at_most(0.65) if cell == READ else None),
        _user_cpu(samples, [cell], label=cell),
        of.variation_ratio(samples, cell, at_most(1.0, significant=True)),
    ]


def _user_cpu(samples: Samples, cells: Sequence[str], *, label: str) -> Figure:
    """User CPU for each I/O, pooled over all rounds of these cells: it is sampled at ticks, so a round alone says nothing.

    Cells are pooled by the I/Os of both sides together, so that a side that did more of its I/O at a cheap depth gains nothing.
    """
    name = "user CPU per I/O (ticks)"
    both = {side: [samples.of(cell, side) for cell in cells] for side in ("calyx", "fio")}
    ticks = [sum(sample.cpu_user_ns for found in each for sample in found) // TICK_NS for each in both.values()]
    enough = "enough" if min(ticks) >= ENOUGH_TICKS else f"too few: {ENOUGH_TICKS} a side are enough"
    said = f"{ticks[0]} and {ticks[1]} ticks, {enough}"
    if not all(ticks):
        return Figure(label, name, None, reason=said)
    weights = [sum(s.ios for each in both.values() for s in each[number]) for number in range(len(cells))]
    cost = {
        side: sum(
            weight * sum(s.cpu_user_ns for s in found) / sum(s.ios for s in found)
            for weight, found in zip(weights, each, strict=True)
        )
        for side, each in both.items()
    }
    estimate = pairs.Estimate(cost["calyx"] / cost["fio"], None, None, sum(map(len, both["calyx"])))
    return Figure(label, name, estimate, reason=said)


def _growth_figures(samples: Samples, measured: set[str]) -> list[Figure]:
    low, high = (f"seqread-1m-q{depth}" for depth in (GROWTH_DEPTHS[0], GROWTH_DEPTHS[-1]))
    label = f"seqread-1m, q{GROWTH_DEPTHS[0]} to q{GROWTH_DEPTHS[-1]}"
    figures: list[Figure] = []
    if {low, high} <= measured:
        for side, goal in (("calyx", at_most(1.07)), ("fio", None)):
            for name, metric in (("CPU of the guest", of.guest_busy), ("CPU of the engine", of.engine_busy)):
                own = goal if metric is of.guest_busy else None
                grown = of.ratio(
                    samples,
                    f"{name}, growth, {side}",
                    metric,
                    cell=label,
                    goal=own,
                    first=(high, side),
                    second=(low, side),
                )
                figures.append(grown)
    for depth in GROWTH_DEPTHS:
        cell = f"seqread-1m-q{depth}"
        if cell in measured:
            figures.append(of.ratio(samples, "CPU of the guest", of.guest_busy, cell=cell, goal=at_most(1.0)))
    return figures


# --- this machine -------------------------------------------------------------------------------------------------


def _executable(path: Path) -> Executable:
    data = path.read_bytes()
    return Executable(platform.machine(), path.resolve(), sha256(data).hexdigest(), len(data))


def _facts(guest: BenchGuest, targets: dict[str, Path]) -> list[str]:
    """Where this is measured, as notes."""
    found = {entry.get("path"): entry for entry in guest.session.facts.get("paths") or []}
    notes = []
    for name, path in targets.items():
        entry = found.get(str(path), {})
        kind = str(entry.get("fs_type"))
        notes.append(f"target {name}: {kind} on {entry.get('device')}")
        if kind != name:
            notes.append(f"target {name} is {kind} and not {name}: choose another --directory")
    fio = guest.session.fio
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    notes.append(f"fio {fio.get('version')}; load average {load:.1f} on {cpus} CPUs")
    if load > cpus / 2:
        notes.append("others run on this machine: wait until it is quiet, or believe no ratio of this run")
    return notes


if __name__ == "__main__":
    ends_as_interrupted()
    sys.exit(main())
