"""The published matrix of Calyx again: 1 MiB sequential reads and writes, ext4 and XFS, QD 8 to 64, next to its figures.

    benchmarks/paper.py                       on loop devices below --directory; needs root
    benchmarks/paper.py --ext4 DIR --xfs DIR  in directories of file systems that are there
    benchmarks/paper.py --quick               under a minute

calyx runs in every set-up that this kernel has, fio with libaio and with io_uring. The published figures are of another
machine with a real disk: what can be compared are ratios, CVs and how CPU grows, not MB/s.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from side_by_side import cells as of
from side_by_side import pairs, present
from side_by_side.cells import Cell, Samples
from side_by_side.goals import Figure, at_least, at_most
from side_by_side.guest import BenchGuest, Side, open_guest
from side_by_side.loops import NoLoopError, mounted

from calyx_orch.errors import CalyxError
from calyx_orch.model import Rw, Workload

PAIRS, PAIRS_QUICK = 6, 1
SECONDS, SECONDS_QUICK = 3.0, 0.5
RAMP_S = 0.5
DEPTHS = (8, 16, 32, 64)
KINDS = ("ext4", "xfs")
CALYX = tuple(Side(f"calyx {setup}", "calyx", setup=setup) for setup in ("defer", "coop", "plain", "sqpoll"))
FIO = (Side("fio io_uring", "fio-io_uring"), Side("fio libaio", "fio-libaio"))
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


def main() -> int:
    """Measure, print both tables, and answer with the exit status."""
    options = parse_options()
    try:
        samples, notes = asyncio.run(measure(options))
    except CalyxError as error:
        print(f"cannot measure: {error}", file=sys.stderr)
        return 2
    for note in (*notes, *samples.failures):
        print(f"note: {note}")
    of.print_rows(of.absolute_rows(samples))
    print_published(samples)
    figures = paper_figures(samples)
    if not figures:
        print("nothing was measured", file=sys.stderr)
        return 2
    present.print_figures(figures)
    return present.finish(figures, options, {"options": vars(options), "samples": samples.document(), "notes": notes})


def parse_options() -> argparse.Namespace:
    """The command line with its defaults filled in."""
    options = present.parser("the published matrix again", pairs=PAIRS, seconds=SECONDS)
    for kind in KINDS:
        options.add_argument(
            f"--{kind}", type=Path, metavar="DIR", help=f"a directory on {kind} (default: a loop device)"
        )
    given = options.parse_args()
    given.pairs = given.pairs or (PAIRS_QUICK if given.quick else PAIRS)
    given.seconds = given.seconds or (SECONDS_QUICK if given.quick else SECONDS)
    given.size_mib = given.size_mib or (256 if given.quick else 1024)
    given.cells = given.cells or (QUICK_CELLS if given.quick else "")
    return given


async def measure(options: argparse.Namespace) -> tuple[Samples, list[str]]:
    """The whole matrix. Loop devices and files are gone afterwards."""
    notes: list[str] = []
    size_bytes = options.size_mib << 20
    with contextlib.ExitStack() as undo:
        targets: dict[str, Path] = {}
        for kind in KINDS:
            try:
                given = getattr(options, kind)
                targets[kind] = given or undo.enter_context(mounted(kind, options.directory, size_bytes + (512 << 20)))
            except NoLoopError as error:
                notes.append(f"no {kind}: {error}")
        if not targets:
            return Samples(), notes
        async with open_guest(targets, seed=options.seed) as guest:
            for target in targets:
                present.progress(f"laying out {size_bytes >> 20} MiB on {target}")
                await guest.lay_out(target, size_bytes)
            chosen = [
                cell
                for cell in all_cells(options.seconds, size_bytes, sides_here(guest, notes))
                if cell.target in targets and present.is_chosen(cell.name, options.cells)
            ]
            return await of.play_pairs(guest, chosen, options.pairs, options.seed), notes


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


def print_published(samples: Samples) -> None:
    """The published rows beside those of here: over all depths, the best set-up of calyx against fio's io_uring."""
    rows = []
    for row in PUBLISHED:
        here = [cell for cell in _cells(samples) if cell.rpartition("-q")[0] == row.cell]
        side = best_setup(samples, here) if row.engine == "calyx" else FIO[0].name
        found = [sample for cell in here for sample in samples.of(cell, side)]
        throughputs = [sample.bytes_per_s for sample in found]
        rows.append(
            {
                "cell": row.cell,
                "engine": row.engine,
                "published MB/s": f"{row.mb_per_s:,.2f}",
                "CV %": f"{row.cv_percent:.2f}",
                "P99 us": f"{row.p99_us:,.2f}",
                "here": side if found else "not measured",
                "MB/s": f"{sum(throughputs) / len(found) / 1e6:,.2f}" if found else "-",
                "CV % ": f"{100 * _spread(samples, here, side):.2f}" if len(throughputs) > 1 else "-",
                "P99 us ": f"{sum(s.p99_ns for s in found) / len(found) / 1e3:,.2f}" if found else "-",
            }
        )
    of.print_rows(rows)
    for engine, (low, high) in PUBLISHED_CPU.items():
        here = [f"read-ext4-q{depth}" for depth in (DEPTHS[0], DEPTHS[-1])]
        side = best_setup(samples, here) if engine == "calyx" else FIO[0].name
        each = [_busy(samples, cell, side) for cell in here]
        measured = " to ".join(f"{value:.1f} %" if value is not None else "not measured" for value in each)
        print(f"CPU of the guest, reads on ext4, QD 8 to 64, {engine}: published {low} % to {high} %, here {measured}")
    print()


def best_setup(samples: Samples, here: Sequence[str]) -> str:
    """The set-up of calyx with the least CPU for each I/O in these cells, of those that were measured."""

    def cost(side: Side) -> float:
        found = [sample for cell in here for sample in samples.of(cell, side.name)]
        return sum(s.cpu_ns for s in found) / sum(s.ios for s in found) if found else float("inf")

    return min(CALYX, key=cost).name


def paper_figures(samples: Samples) -> list[Figure]:
    """Calyx's cheapest set-up of each cell against both fio engines. Only fio with io_uring has goals: it is the peer."""
    figures = []
    for cell in _cells(samples):
        side = best_setup(samples, [cell])
        for peer in FIO:
            judged = peer is FIO[0]
            first, second = (cell, side), (cell, peer.name)
            for name, metric, goal in (
                ("throughput", of.iops, at_least(1.0, significant=True)),
                ("P99", of.p99, at_most(1.0, significant=True)),
                ("CPU per I/O", of.cpu_per_io, at_most(1.0, significant=True)),
            ):
                label = f"{name}, {side} / {peer.name}"
                own = goal if judged else None
                figures.append(of.ratio(samples, label, metric, cell=cell, goal=own, first=first, second=second))
    return figures


def _cells(samples: Samples) -> list[str]:
    return list(dict.fromkeys(cell for cell, _ in samples.by_side))


def _spread(samples: Samples, here: Sequence[str], side: str) -> float:
    """The mean over cells of the CV between repetitions; cells differ by their depth, so they are not pooled."""
    each = []
    for cell in here:
        with contextlib.suppress(ValueError):
            each.append(pairs.variation([sample.bytes_per_s for sample in samples.of(cell, side)]))
    return sum(each) / len(each) if each else float("nan")


def _busy(samples: Samples, cell: str, side: str) -> float | None:
    found = samples.of(cell, side)
    return sum(sample.busy_percent for sample in found) / len(found) if found else None


if __name__ == "__main__":
    sys.exit(main())
