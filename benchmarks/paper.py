"""The published matrix of Calyx again: 1 MiB sequential reads and writes, ext4 and XFS, QD 8 to 64, next to its figures.

    benchmarks/paper.py                       on loop devices below --directory; needs root
    benchmarks/paper.py --ext4 DIR --xfs DIR  in directories of file systems that are there
    benchmarks/paper.py --quick               about a minute; decides little
    benchmarks/paper.py --json FILE --resume  goes on where FILE ended; with --cells the matrix is made in parts

calyx runs in every set-up that this kernel has, fio with libaio and with io_uring. Which set-up is judged in a cell is chosen by
rounds of its own, so that no set-up is compared by the samples that made it the best. The published figures are of another
machine with a real disk: what can be compared are ratios, CVs and how CPU grows, not MB/s.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from side_by_side import cells as of
from side_by_side import pairs, present, progress, record
from side_by_side.cells import Cell, Samples
from side_by_side.ending import ends_as_interrupted
from side_by_side.goals import Figure, at_least, at_most
from side_by_side.guest import BenchGuest, Side, open_guest
from side_by_side.loops import NoLoopError, mounted

from calyx_agent.executables import local
from calyx_orch.errors import CalyxError
from calyx_orch.model import Rw, Workload

PAIRS, PAIRS_QUICK = 6, 1
SECONDS, SECONDS_QUICK = 3.0, 0.5
RAMP_S = 0.5
DEPTHS = (8, 16, 32, 64)
KINDS = ("ext4", "xfs")
CALYX = tuple(Side(f"calyx {setup}", "calyx", setup=setup) for setup in ("defer", "coop", "plain", "sqpoll"))
FIO = (Side("fio io_uring", "fio-io_uring"), Side("fio libaio", "fio-libaio"))
CHOICE_PAIRS, CHOICE_PAIRS_QUICK = 2, 1
QUICK_PAIRS_WITHIN_S = 45.0  # no pair is begun later
QUICK_CELLS = "read-ext4-q16,write-xfs-q16"


@dataclass(frozen=True)
class Published:
    """One published row: what was measured, by whom, and its figures (MB is 10^6 bytes; percent; microseconds)."""

    cell: str
    engine: str
    mb_per_s: float
    cv_percent: float
    p99_us: float


PUBLISHED = (
    Published("read-ext4", "calyx", 4576.92, 0.18, 3979.54),
    Published("read-ext4", "fio", 4560.49, 0.73, 5210.11),
    Published("write-xfs", "calyx", 3320.09, 2.25, 9529.98),
    Published("write-xfs", "fio", 1388.92, 49.57, 39059.46),
)
PUBLISHED_CPU = {"calyx": (49.5, 53.1), "fio": (35.2, 59.8)}  # percent of the guest at QD 8 and at QD 64, reads on ext4


@dataclass
class Measured:
    """What was found so far. `choice` are the samples that chose a set-up for each cell: they are in no figure."""

    samples: Samples = field(default_factory=Samples)
    choice: Samples = field(default_factory=Samples)
    notes: list[str] = field(default_factory=list)
    conditions: dict[str, Any] = field(default_factory=dict)

    def document(self, options: argparse.Namespace) -> dict[str, Any]:
        """All of it, for the JSON file."""
        extra = {
            "options": vars(options),
            "conditions": self.conditions,
            "samples": self.samples.document(),
            "choice": self.choice.document(),
            "chosen": {cell: best_setup(self.choice, [cell]) for cell in _cells(self.choice)},
            "notes": [*self.notes, *self.samples.failures],
        }
        return present.document(paper_figures(self.samples, self.choice), extra)


def main() -> int:
    """Measure, print both tables, and answer with the exit status."""
    options = parse_options()
    try:
        found = asyncio.run(measure(options))
    except (CalyxError, record.RecordError) as error:
        print(f"cannot measure: {error}", file=sys.stderr)
        return 2
    for note in (*found.notes, *found.choice.failures, *found.samples.failures):
        print(f"note: {note}")
    of.print_rows(of.absolute_rows(found.samples))
    print(
        "every set-up of calyx over fio, as ratios; * marks the set-up that samples of its own have chosen for the cell"
    )
    of.print_rows(ratio_rows(found.samples, found.choice))
    print_published(found.samples, found.choice)
    figures = paper_figures(found.samples, found.choice)
    if not figures:
        print("nothing was measured", file=sys.stderr)
        return 2
    present.print_figures(figures)
    return present.finish(figures, options, found.document(options))


def parse_options() -> argparse.Namespace:
    """The command line with its defaults filled in."""
    options = present.parser("the published matrix again", pairs=PAIRS, seconds=SECONDS)
    for kind in KINDS:
        options.add_argument(
            f"--{kind}", type=Path, metavar="DIR", help=f"a directory on {kind} (default: a loop device)"
        )
    given = present.parse(options)
    given.pairs = given.pairs or (PAIRS_QUICK if given.quick else PAIRS)
    given.seconds = given.seconds or (SECONDS_QUICK if given.quick else SECONDS)
    given.size_mib = given.size_mib or (256 if given.quick else 1024)
    given.cells = given.cells or (QUICK_CELLS if given.quick else "")
    return given


async def measure(options: argparse.Namespace) -> Measured:
    """The whole matrix. Loop devices and files are gone afterwards."""
    began_s = time.monotonic()
    found = Measured()
    size_bytes = options.size_mib << 20
    with contextlib.ExitStack() as undo:
        targets: dict[str, Path] = {}
        for kind in KINDS:
            try:
                given = getattr(options, kind)
                targets[kind] = given or undo.enter_context(mounted(kind, options.directory, size_bytes + (512 << 20)))
            except NoLoopError as error:
                found.notes.append(f"no {kind}: {error}")
        if not targets:
            return found
        async with open_guest(targets, seed=options.seed) as guest:
            given = {kind: str(getattr(options, kind) or "loop device") for kind in KINDS}
            found.conditions = record.conditions(options, guest, local().sha256, **given)
            if options.resume:
                earlier = record.read(options.json, found.conditions)
                found.samples, found.choice = earlier.samples, earlier.choice
            for target in targets:
                progress.show(f"laying out {size_bytes >> 20} MiB on {target}")
                await guest.lay_out(target, size_bytes)
            cells = [
                cell
                for cell in all_cells(options.seconds, size_bytes, sides_here(guest, found.notes))
                if cell.target in targets and present.is_chosen(cell.name, options.cells)
            ]
            await _play(guest, cells, options, found, began_s + QUICK_PAIRS_WITHIN_S if options.quick else None)
    return found


async def _play(
    guest: BenchGuest, cells: Sequence[Cell], options: argparse.Namespace, found: Measured, until_s: float | None
) -> None:
    """First the rounds that choose a set-up for each cell, then the pairs that are compared."""
    choosing = [replace(cell, sides=tuple(side for side in cell.sides if side in CALYX)) for cell in cells]
    tries = CHOICE_PAIRS_QUICK if options.quick else CHOICE_PAIRS
    print("to choose a set-up for each cell:", present.course_text(choosing, found.choice, tries))
    print(present.course_text(cells, found.samples, options.pairs), flush=True)
    keep = record.write if options.json else _keep_nothing

    def course(count: int, seed: int) -> of.Course:
        return of.Course(count, seed, until_s, lambda _: keep(options.json, found.document(options)))

    # A seed of its own: what is compared has been read by no round that chose.
    await of.play_pairs(guest, choosing, course(tries, options.seed + 500_000), found.choice)
    if not found.choice.interrupted:
        await of.play_pairs(guest, cells, course(options.pairs, options.seed), found.samples)
    found.notes += of.notes_of(found.samples, cells, options.pairs)


def _keep_nothing(path: Path, document: dict[str, Any]) -> None:
    """Without --json there is no file to go on with."""


def sides_here(guest: BenchGuest, notes: list[str]) -> tuple[Side, ...]:
    """The set-ups that this kernel has, and the engines that this fio has; what is missing is noted."""
    offered = (guest.session.facts.get("io_uring") or {}).get("setups") or []
    missing = [side.name for side in CALYX if side.setup not in offered]
    if missing:
        notes.append(f"this kernel has no {', '.join(missing)}")
    return (*(side for side in CALYX if side.setup in offered), *FIO)


def all_cells(seconds: float, size_bytes: int, sides: tuple[Side, ...]) -> list[Cell]:
    """Both directions on both file systems at every depth."""
    found = []
    for rw in (Rw.READ, Rw.WRITE):
        for kind in KINDS:
            for depth in DEPTHS:
                name = f"{rw}-{kind}-q{depth}"
                workload = Workload(
                    name,
                    rw=rw,
                    bs_bytes=1 << 20,
                    iodepth=depth,
                    size_bytes=size_bytes,
                    runtime_s=seconds,
                    ramp_s=RAMP_S,
                )
                found.append(Cell(name, kind, workload, sides))
    return found


def print_published(samples: Samples, choice: Samples) -> None:
    """The published rows beside those of here: over all depths, calyx as it was chosen for each cell against fio's io_uring."""
    rows = []
    for row in PUBLISHED:
        sides = _sides_of(row.engine, choice, [c for c in _cells(samples) if c.rpartition("-q")[0] == row.cell])
        found = [sample for cell, side in sides for sample in samples.of(cell, side)]
        throughputs = [sample.bytes_per_s for sample in found]
        rows.append(
            {
                "cell": row.cell,
                "engine": row.engine,
                "published MB/s": f"{row.mb_per_s:,.2f}",
                "CV %": f"{row.cv_percent:.2f}",
                "P99 us": f"{row.p99_us:,.2f}",
                "here": ", ".join(dict.fromkeys(side for _, side in sides)) if found else "not measured",
                "MB/s": f"{sum(throughputs) / len(found) / 1e6:,.2f}" if found else "-",
                "CV % ": f"{100 * _spread(samples, sides):.2f}" if len(throughputs) > 1 else "-",
                "P99 us ": f"{sum(s.p99_ns for s in found) / len(found) / 1e3:,.2f}" if found else "-",
            }
        )
    of.print_rows(rows)
    for engine, (low, high) in PUBLISHED_CPU.items():
        ends = [f"read-ext4-q{depth}" for depth in (DEPTHS[0], DEPTHS[-1])]
        each = [_busy(samples, cell, side) for cell, side in _sides_of(engine, choice, ends)]
        told = [f"{value:.1f} %" for value in each if value is not None]
        measured = " to ".join(told) if len(told) == len(ends) else "not measured"
        print(f"CPU of the guest, reads on ext4, QD 8 to 64, {engine}: published {low} % to {high} %, here {measured}")
    print()


def _sides_of(engine: str, choice: Samples, cells: Sequence[str]) -> list[tuple[str, str]]:
    """The (cell, side) by which an engine stands in the published table; no cell of calyx for which nothing was chosen."""
    if engine != "calyx":
        return [(cell, FIO[0].name) for cell in cells]
    return [(cell, side) for cell in cells if (side := best_setup(choice, [cell])) is not None]


def best_setup(choice: Samples, here: Sequence[str]) -> str | None:
    """The set-up of calyx with the least CPU for each I/O in these cells; None where none was tried.

    Only samples that are compared with nothing may choose: whoever picks the best of four by the very samples that are then
    compared has the luck of the draw in the ratio.
    """

    def cost(side: Side) -> float:
        found = [sample for cell in here for sample in choice.of(cell, side.name)]
        return sum(s.cpu_ns for s in found) / sum(s.ios for s in found) if found else math.inf

    best = min(CALYX, key=cost)
    return best.name if math.isfinite(cost(best)) else None


RATIOS = (
    ("throughput", of.iops, at_least(1.0, significant=True)),
    ("P99", of.p99, at_most(1.0, significant=True)),
    ("CPU per I/O", of.cpu_per_io, at_most(1.0, significant=True)),
)


def ratio_rows(samples: Samples, choice: Samples) -> list[dict[str, str]]:
    """Every set-up of calyx in every cell, over either fio."""
    rows = []
    for cell in _cells(samples):
        chosen = best_setup(choice, [cell])
        for side in CALYX:
            if not samples.of(cell, side.name):
                continue
            row = {"cell": cell, "set-up": side.name + ("*" if side.name == chosen else "")}
            for peer in FIO:
                for name, metric, _ in RATIOS:
                    one = of.ratio(samples, name, metric, cell=cell, first=(cell, side.name), second=(cell, peer.name))
                    row[f"{name} / {peer.name}"] = present.estimate_text(one.estimate).replace(" (too few pairs)", "")
            rows.append(row)
    return rows


def paper_figures(samples: Samples, choice: Samples) -> list[Figure]:
    """The set-up that was chosen for each cell against both fio engines. Only fio with io_uring has goals: it is the peer.

    A cell for which nothing was chosen has none: its set-ups are in the table of all.
    """
    figures = []
    for cell in _cells(samples):
        side = best_setup(choice, [cell])
        for peer in FIO if side is not None else ():
            first, second = (cell, str(side)), (cell, peer.name)
            for name, metric, goal in RATIOS:
                label = f"{name}, {side} / {peer.name}"
                own = goal if peer is FIO[0] else None
                figures.append(of.ratio(samples, label, metric, cell=cell, goal=own, first=first, second=second))
    return figures


def _cells(samples: Samples) -> list[str]:
    return list(dict.fromkeys(cell for cell, _ in samples.by_side))


def _spread(samples: Samples, sides: Sequence[tuple[str, str]]) -> float:
    """The mean over cells of the CV between repetitions; cells differ by their depth, so they are not pooled."""
    each = []
    for cell, side in sides:
        with contextlib.suppress(ValueError):
            each.append(pairs.variation([sample.bytes_per_s for sample in samples.of(cell, side)]))
    return sum(each) / len(each) if each else math.nan


def _busy(samples: Samples, cell: str, side: str) -> float | None:
    found = samples.of(cell, side)
    return sum(sample.busy_percent for sample in found) / len(found) if found else None


if __name__ == "__main__":
    ends_as_interrupted()
    sys.exit(main())
