"""The engine side by side with fio in one run: the figures that calyx has to reach, each with its 95 % interval.

    benchmarks/engine.py              40 pairs of 3 s a cell: about an hour; every bound is judged
    benchmarks/engine.py --quick      under a minute; says what it cannot decide
    benchmarks/engine.py --check      exit 1 where a goal is missed; the last line is the figure furthest from its goal

fio is 3.x with io_uring, registered buffers and file, norandommap, threads, the same ramp, and total latency, as a run makes
it. Both sides of a pair use one laid-out file, the same seed, start line, window and CPU accounting. docs/benchmarks.md says
what each figure means.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from side_by_side import cells as of
from side_by_side import costs, pairs, present
from side_by_side.cells import Cell, Samples
from side_by_side.goals import Figure, at_least, at_most
from side_by_side.guest import CALYX, FIO, BenchGuest, Side, open_guest
from side_by_side.loops import NoLoopError, mounted

from calyx_agent.executables import Executable, local
from calyx_orch.errors import CalyxError
from calyx_orch.model import Rw, Workload

PAIRS, PAIRS_QUICK = 40, 3
SECONDS, SECONDS_QUICK = 3.0, 0.5
RAMP_S, RAMP_QUICK_S = 0.5, 0.2
RANDOM_DEPTHS = (1, 4, 8, 16, 32, 64)
GROWTH_DEPTHS = (8, 16, 32, 64)
QUICK_CELLS = ("randread-4k-q8", "randread-4k-q32", "seqread-1m-q16")
READ, WRITE = "seqread-1m-q16", "seqwrite-1m-q16-xfs"
FIO_PLAIN = Side("fio without fixed buffers", "fio-io_uring", plain_buffers=True)
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
ENOUGH_TICKS = 400


def main() -> int:
    """Measure, print, and answer with the exit status."""
    options = parse_options()
    try:
        samples, counted, notes = asyncio.run(measure(options))
    except CalyxError as error:
        print(f"cannot measure: {error}", file=sys.stderr)
        return 2
    for note in (*notes, *samples.failures):
        print(f"note: {note}")
    of.print_rows(of.absolute_rows(samples))
    figures = [*pair_figures(samples), *counted]
    present.print_figures(figures)
    return present.finish(figures, options, {"options": vars(options), "samples": samples.document(), "notes": notes})


def parse_options() -> argparse.Namespace:
    """The command line with its defaults filled in."""
    options = present.parser("the engine side by side with fio", pairs=PAIRS, seconds=SECONDS)
    options.add_argument("--agent", type=Path, metavar="FILE", help="another agent than this installation's")
    options.add_argument("--no-counts", action="store_true", help="leave callgrind, strace and sizes out")
    given = options.parse_args()
    given.pairs = given.pairs or (PAIRS_QUICK if given.quick else PAIRS)
    given.seconds = given.seconds or (SECONDS_QUICK if given.quick else SECONDS)
    given.size_mib = given.size_mib or (128 if given.quick else 1024)
    given.cells = given.cells or (",".join(QUICK_CELLS) if given.quick else "")
    return given


async def measure(options: argparse.Namespace) -> tuple[Samples, list[Figure], list[str]]:
    """All pairs, then what is counted. Files and loop devices are gone afterwards."""
    notes = []
    executable = _executable(options.agent) if options.agent else local()
    size_bytes = options.size_mib << 20
    ramp_s = RAMP_QUICK_S if options.quick else RAMP_S
    cells = all_cells(options.seconds, size_bytes, ramp_s=ramp_s)
    chosen = [cell for cell in cells if present.is_chosen(cell.name, options.cells)]
    with contextlib.ExitStack() as undo:
        targets = {"ext4": Path(undo.enter_context(TemporaryDirectory(prefix="calyx-bench-", dir=options.directory)))}
        if any(cell.target == "xfs" for cell in chosen):
            try:
                targets["xfs"] = undo.enter_context(mounted("xfs", options.directory, size_bytes + (512 << 20)))
            except NoLoopError as error:
                notes.append(f"no XFS: {error}")
        chosen = [cell for cell in chosen if cell.target in targets]
        async with open_guest(targets, seed=options.seed, executable=executable) as guest:
            notes += _facts(guest, targets)
            for target in targets:
                present.progress(f"laying out {size_bytes >> 20} MiB on {target}")
                await guest.lay_out(target, size_bytes)
            samples = await of.play_pairs(guest, chosen, options.pairs, options.seed)
            counted = [] if options.no_counts else count_costs(guest, executable, quick=options.quick)
    return samples, counted, notes


def all_cells(seconds: float, size_bytes: int, *, ramp_s: float = RAMP_S) -> list[Cell]:
    """Every cell of the full run."""

    def workload(name: str, rw: Rw, bs: int, depth: int, runtime_s: float) -> Workload:
        return Workload(
            name, rw=rw, bs_bytes=bs, iodepth=depth, size_bytes=size_bytes, runtime_s=runtime_s, ramp_s=ramp_s
        )

    found = []
    for depth in RANDOM_DEPTHS:
        name = f"randread-4k-q{depth}"
        found.append(Cell(name, "ext4", workload(name, Rw.RANDREAD, 4096, depth, seconds), (CALYX, FIO)))
    for depth in GROWTH_DEPTHS:
        name = f"seqread-1m-q{depth}"
        main_cell = name == READ
        # The other depths are there for the guest's CPU only, whose share a short window tells as well.
        length = seconds if main_cell else min(seconds, 1.0)
        sides = (CALYX, FIO, FIO_PLAIN) if main_cell else (CALYX, FIO)
        found.append(Cell(name, "ext4", workload(name, Rw.READ, 1 << 20, depth, length), sides))
    found.append(Cell(WRITE, "xfs", workload(WRITE, Rw.WRITE, 1 << 20, 16, seconds), (CALYX, FIO)))
    return found


# --- figures of the pairs ----------------------------------------------------------------------------------------


def pair_figures(samples: Samples) -> list[Figure]:
    """Every figure that comes from pairs, with its goal; cells that were not measured give none."""
    measured = {cell for cell, _ in samples.by_side}
    random = [cell for depth in RANDOM_DEPTHS if (cell := f"randread-4k-q{depth}") in measured]
    figures = [figure for cell in random for figure in _random_figures(samples, cell)]
    if random:
        label = "randread-4k, all depths"
        figures.append(of.mean_ratio(samples, "IOPS", of.iops, random, at_least(0.99), label=label))
        figures.append(of.mean_ratio(samples, "P99", of.p99, random, at_most(1.0), label=label))
    for cell in (READ, WRITE):
        if cell in measured:
            figures += _sequential_figures(samples, cell)
    if READ in measured:
        plain = of.ratio(
            samples,
            "CPU per I/O, against fio without fixed buffers",
            of.cpu_per_io,
            cell=READ,
            goal=at_most(0.30),
            second=(READ, FIO_PLAIN.name),
        )
        figures.append(plain)
    return figures + _growth_figures(samples, measured)


def _random_figures(samples: Samples, cell: str) -> list[Figure]:
    return [
        of.ratio(samples, "IOPS", of.iops, cell=cell, goal=at_least(1.0, significant=True)),
        of.ratio(samples, "P50", of.p50, cell=cell),
        of.ratio(samples, "P99", of.p99, cell=cell, goal=at_most(1.0, significant=True)),
        of.ratio(samples, "CPU per I/O", of.cpu_per_io, cell=cell, goal=at_most(0.90)),
        _user_cpu(samples, cell),
        of.variation_ratio(samples, cell, None),
    ]


def _sequential_figures(samples: Samples, cell: str) -> list[Figure]:
    return [
        of.ratio(samples, "throughput", of.iops, cell=cell, goal=at_least(0.99)),
        of.ratio(samples, "P50", of.p50, cell=cell),
        of.ratio(samples, "P99", of.p99, cell=cell, goal=at_most(1.0)),
        of.ratio(samples, "CPU per I/O", of.cpu_per_io, cell=cell, goal=at_most(0.65) if cell == READ else None),
        _user_cpu(samples, cell),
        of.variation_ratio(samples, cell, at_most(1.0, significant=True)),
    ]


def _user_cpu(samples: Samples, cell: str) -> Figure:
    """User CPU for each I/O, pooled over all rounds: it is sampled at ticks, so a round alone says nothing."""
    name = "user CPU per I/O (ticks)"
    both = [samples.of(cell, side) for side in ("calyx", "fio")]
    ticks = [sum(sample.cpu_user_ns for sample in side) // TICK_NS for side in both]
    said = f"{ticks[0]} and {ticks[1]} ticks, {ENOUGH_TICKS} are enough"
    if not all(ticks):
        return Figure(cell, name, None, reason=said)
    each = [sum(sample.cpu_user_ns for sample in side) / sum(sample.ios for sample in side) for side in both]
    value = each[0] / each[1]
    return Figure(cell, name, pairs.Estimate(value, None, None, len(both[0])), reason=said)


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


# --- figures that are counted ------------------------------------------------------------------------------------


def count_costs(guest: BenchGuest, executable: Executable, *, quick: bool) -> list[Figure]:
    """Instructions, system calls, allocations and sizes. What cannot be counted here says why."""
    session = guest.session
    path = session.files["ext4"][0]
    size = Path(path).stat().st_size
    workload = Workload("randread-4k-q32", rw=Rw.RANDREAD, bs_bytes=4096, iodepth=32, size_bytes=size)
    taken = {"fixed_buffers": True, "fixed_files": True}
    fio = str(session.fio.get("path") or "fio")
    bench = costs.Bench(path, workload, executable.path, fio, taken, session.facts)
    lengths = (0.3, 1.0) if quick else (2.0, 6.0)
    figures = [_counted("user instructions per I/O", lambda: _instructions(bench, lengths))]
    if not quick:
        for side in (CALYX, Side("calyx sqpoll", "calyx", setup="sqpoll")):
            figures += _system_calls(bench, side, lengths)
    figures.append(_allocations())
    figures.append(_counted("resident besides buffers, MB", lambda: _resident(bench)))
    return [*figures, _size(executable.path)]


def _counted(name: str, count: Callable[[], Figure]) -> Figure:
    present.progress(f"counting: {name}")
    try:
        return count()
    except (costs.CostError, OSError, subprocess.TimeoutExpired) as error:
        return Figure("randread-4k-q32", name, None, reason=str(error))
    finally:
        present.end_progress()


def _instructions(bench: costs.Bench, lengths: Sequence[float]) -> Figure:
    each = []
    for side in (CALYX, FIO):
        short, long = (costs.instructions(bench, side, length) for length in lengths)
        each.append(costs.per_io(short, long)["instructions"])
    said = f"callgrind: {each[0]:,.0f} and {each[1]:,.0f}"
    return Figure("randread-4k-q32", "user instructions per I/O", pairs.exact(each[0] / each[1]), at_most(0.25), said)


def _system_calls(bench: costs.Bench, side: Side, lengths: Sequence[float]) -> list[Figure]:
    cell = f"randread-4k-q32, {side.name}"
    name = "io_uring_enter per I/O"
    try:
        present.progress(f"counting system calls: {side.name}")
        short, long = (costs.system_calls(bench, side, length) for length in lengths)
        calls = costs.per_io(short, long)
    except (costs.CostError, OSError, subprocess.TimeoutExpired) as error:
        return [Figure(cell, name, None, at_most(2.0), reason=str(error))]
    finally:
        present.end_progress()
    entered = calls.pop("io_uring_enter", 0.0)
    polled = side.setup == "sqpoll"
    said = "strace: wake-ups and sleeps only" if polled else "strace: one an I/O, one a reaped pass"
    others = ", ".join(f"{call} {count:.4f}" for call, count in calls.items() if count > 0.0005) or "none"
    return [
        Figure(cell, name, pairs.exact(entered), None if polled else at_most(2.0), said),
        Figure(cell, "other system calls per I/O", pairs.exact(max(0.0, sum(calls.values()))), at_most(0.01), others),
    ]


def _allocations() -> Figure:
    """The C test that fails on one allocation; it is run when it has been built."""
    name = "allocations after the start line"
    root = Path(__file__).resolve().parent.parent
    test = root / "build" / "native" / "test_nothing_is_allocated_after_start"
    if not test.exists():
        return Figure("engine", name, None, at_most(0.0), "`make test-native` builds the test that counts them")
    done = subprocess.run([str(test)], capture_output=True, text=True, timeout=60)
    if done.returncode == 77:
        return Figure("engine", name, None, at_most(0.0), done.stdout.strip() or "the test was skipped")
    said = "" if done.returncode == 0 else (done.stdout + done.stderr).strip()[-200:]
    return Figure("engine", name, pairs.exact(0.0 if done.returncode == 0 else 1.0), at_most(0.0), said)


def _resident(bench: costs.Bench) -> Figure:
    mb = costs.resident_bytes(bench) / 1e6
    return Figure("randread-4k-q32", "resident besides buffers, MB", pairs.exact(mb), at_most(4.0))


def _size(agent: Path) -> Figure:
    library = costs.c_library(agent)
    size = pairs.exact(agent.stat().st_size / 1000)
    if library == "glibc":
        return Figure("agent", "executable, KB", size, reason="glibc; the goal is for musl (`make agents`, --agent)")
    return Figure("agent", "executable, KB", size, at_most(150.0))


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
    notes.append(f"fio {fio.get('version')}; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    return notes


if __name__ == "__main__":
    sys.exit(main())
