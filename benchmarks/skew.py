"""Do all guests of a round begin at once, and does the controller know it? Against a truth that is known.

    benchmarks/skew.py                 8 and 100 guests, 100 rounds each, 1000 estimates a path: about 11 minutes
    benchmarks/skew.py --quick         under a minute; fewer rounds, and says what it cannot decide
    benchmarks/skew.py --check         exit 1 where a goal is missed; the last line is the figure furthest from its goal
    benchmarks/skew.py --json FILE     every figure and every sample

Clocks: agents in time namespaces, whose clock is ours plus a known number of seconds. Starts: guests on this machine, which share
our clock, so the first I/O of each is known without any estimate. docs/benchmarks.md says what each figure means.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fanout
from at_scale import clocks, estimates, servers
from at_scale.clocks import Judged, Truth
from side_by_side import pairs, present, progress
from side_by_side.ending import ends_as_interrupted
from side_by_side.goals import Figure, at_least, at_most

from calyx_orch.analysis.window import common_window
from calyx_orch.clock import Probe
from calyx_orch.errors import CalyxError
from calyx_orch.store import archive

ROUNDS, ROUNDS_QUICK = 100, 2
ESTIMATES, ESTIMATES_QUICK = 1000, 80
MANY = 100
CLOCK_GUESTS = 8
AHEAD_S = 86_400
ONE_WAY_MS = 20.0
DRIFT_PPM = 200
APART = 5  # sets of probes between the two of an interpolated estimate
QUIET_ERROR_MS = 0.2
FEW_SKEW_MS, MANY_SKEW_MS = 0.6, 4.0
OVERLAP_PERCENT = 99.0
OVERLAP_S, OVERLAP_QUICK_S = 10.0, 2.0
BLOCKS_OF_OVERLAP = 2
ENOUGH_FOR_P99 = 100
STARTS = """\
workloads:
  - {{name: paced, rw: randread, bs: 4k, iodepth: 1, size: 1m, runtime: {runtime}s, ramp_time: 0s, rate_iops: 10, setup: defer}}
baselines: {baselines}
repetitions: {repetitions}
settle: 0s
lost_time_probe: 0s
"""


@dataclass(frozen=True)
class Played:
    """One round: the true distance of each guest's first I/O from the start line, and what all windows share."""

    engine: str
    skews_ns: tuple[int, ...]
    overlap: float


@dataclass
class Found:
    """Everything that was measured."""

    judged: dict[str, list[Judged]] = field(default_factory=dict)
    rounds: dict[str, list[Played]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def main() -> int:
    """Measure, print, and answer with the exit status."""
    options = parse_options()
    try:
        found = asyncio.run(measure(options))
    except (CalyxError, servers.NoServersError, fanout.ControllerError) as error:
        progress.end()
        print(f"cannot measure: {error}", file=sys.stderr)
        return 2
    progress.end()
    for note in found.notes:
        print(f"note: {note}")
    figures = figures_of(found)
    present.print_figures(figures)
    samples = {
        "judged": {name: [asdict(one) for one in judged] for name, judged in found.judged.items()},
        "rounds": {name: [asdict(one) for one in played] for name, played in found.rounds.items()},
    }
    extra = {"options": vars(options), "samples": samples, "notes": found.notes}
    return present.finish(figures, options, present.document(figures, extra))


def parse_options() -> argparse.Namespace:
    """The command line with its defaults filled in."""
    options = argparse.ArgumentParser(description="do all guests begin at once, and is it known?")
    options.add_argument("--quick", action="store_true", help="less than a minute; says what it cannot decide")
    options.add_argument("--rounds", type=int, help=f"rounds of each engine (default {ROUNDS})")
    options.add_argument("--estimates", type=int, help=f"estimates of a clock by path (default {ESTIMATES})")
    options.add_argument("--many", type=int, default=MANY, help=f"guests of the larger fleet (default {MANY})")
    options.add_argument("--json", type=Path, metavar="FILE", help="write all figures and samples")
    options.add_argument("--check", action="store_true", help="exit 1 where a goal is missed")
    given = options.parse_args()
    given.rounds = given.rounds or (ROUNDS_QUICK if given.quick else ROUNDS)
    given.estimates = given.estimates or (ESTIMATES_QUICK if given.quick else ESTIMATES)
    return given


async def measure(options: argparse.Namespace) -> Found:
    """Clocks first, then starts. All processes and files are gone afterwards."""
    found = Found()
    few = CLOCK_GUESTS
    async with servers.serving(max(few, 0 if options.quick else options.many)) as fleet:
        await _clocks(fleet, options, found)
        blocks = max(1, options.rounds // 2)  # of each engine twice
        baselines = "[fio-io_uring]"
        progress.show(f"{few} guests, starts")
        body = STARTS.format(runtime=0.5, baselines=baselines, repetitions=blocks)
        found.rounds[f"{few} guests"] = await play(fleet, few, body)
        progress.show(f"{few} guests, overlap")
        runtime_s, blocks = (OVERLAP_QUICK_S, 1) if options.quick else (OVERLAP_S, BLOCKS_OF_OVERLAP)
        body = STARTS.format(runtime=runtime_s, baselines=baselines, repetitions=blocks)
        found.rounds[f"{few} guests, {runtime_s:g} s"] = await play(fleet, few, body)
        if options.quick:
            found.notes.append(f"{options.many} guests are left out of --quick")
        else:
            progress.show(f"{options.many} guests, starts")
            body = STARTS.format(runtime=0.5, baselines="none", repetitions=options.rounds)
            found.rounds[f"{options.many} guests"] = await play(fleet, options.many, body)
    return found


async def _clocks(fleet: servers.Servers, options: argparse.Namespace, found: Found) -> None:
    """Estimates over a quiet path and over one that is slow in one direction, each without and with a drift."""
    for path, delay_ms in (("quiet path", 0.0), (f"{ONE_WAY_MS:g} ms one way", ONE_WAY_MS)):
        progress.show(f"clocks: {path}")
        try:
            async with clocks.known_guests(fleet, CLOCK_GUESTS, ahead_s=AHEAD_S, delay_ms=delay_ms) as sessions:
                sets = await clocks.gather(sessions, options.estimates)
        except clocks.NoNamespaceError as error:
            found.notes.append(f"no clock is judged: {error}")
            return
        for drift_ppm in (0, DRIFT_PPM):
            name = path if not drift_ppm else f"{path}, {drift_ppm} ppm"
            found.judged[name] = judge_all(sets, drift_ppm)


def judge_all(sets: Sequence[Sequence[Sequence[Probe]]], drift_ppm: int) -> list[Judged]:
    """Every set by itself, and, as a round makes it, every instant in the middle of two sets of one guest."""
    judged = []
    for number, mine in enumerate(sets):
        truth = Truth((AHEAD_S + number) * 1_000_000_000, mine[0][0].sent_ns, drift_ppm)
        judged += [clocks.judge(probes, truth) for probes in mine]
        for first, last in zip(mine, mine[APART:], strict=False):
            at_ns = (first[0].sent_ns + last[0].sent_ns) // 2
            judged.append(clocks.judge_between(first, last, at_ns, truth))
    return judged


async def play(fleet: servers.Servers, count: int, body: str) -> list[Played]:
    """A whole run by a controller of its own; its rounds by the run folder. Raises ControllerError when a guest was lost."""
    with tempfile.TemporaryDirectory(prefix="calyx-orch-") as base:
        folder = Path(base, "run")
        answer = await fanout.controller("flow", fleet, count, body=body, folder=folder)
        if answer["lost"]:
            raise fanout.ControllerError(f"{answer['lost']} of {count} guests were lost: {answer['why']}")
        return rounds_of(folder)


def rounds_of(folder: Path) -> list[Played]:
    """The rounds of a run on guests that share our clock: what was estimated of their clocks is taken out again."""
    record = archive.read(folder)
    raw = {one.index: one.name for one in record.plan.rounds}
    played = []
    for index, name in raw.items():
        mine = [one for one in record.measurements if one.round_index == index and one.status == "ok"]
        skews = []
        for one in mine:
            text = (folder / "raw" / quote(name, safe="") / one.guest / "messages.json").read_text()
            head: Mapping[str, Any] = json.loads(text)
            if one.skew_ns is not None:
                skews.append(one.skew_ns + int(head["clock"]["offset_ns"]))
        if mine:
            played.append(Played(mine[0].engine, tuple(skews), common_window(mine).overlap or 0.0))
    return played


# --- figures: pure ------------------------------------------------------------------------------------------------


def figures_of(found: Found) -> list[Figure]:
    """Every figure with its goal, of what was measured."""
    figures = [figure for name, judged in found.judged.items() for figure in clock_figures(name, judged)]
    for name, played in found.rounds.items():
        if name.endswith(" s"):
            least = 100 * min(one.overlap for one in played)
            said = f"the least of {len(played)} rounds, those of fio included"
            goal = (
                at_least(OVERLAP_PERCENT) if name.endswith(f" {OVERLAP_S:g} s") else None
            )  # of a shorter one it says little
            figures.append(Figure(name, "overlap, %", pairs.exact(least), goal, said))
        else:
            few = name.startswith(f"{CLOCK_GUESTS} ")
            figures += skew_figures(name, played, FEW_SKEW_MS if few else MANY_SKEW_MS)
    return figures


def clock_figures(name: str, judged: Sequence[Judged]) -> list[Figure]:
    """How wrong the offset was, and whether each bound holds and is no wider than it must be."""
    errors_ms = [one.error_ns / 1e6 for one in judged]
    goal = at_most(QUIET_ERROR_MS) if name.startswith("quiet") else None
    label = f"clock, {name}"
    return [
        Figure(label, "largest error", pairs.exact(max(errors_ms)), goal, f"{len(judged)} estimates", " ms"),
        Figure(label, "largest bound", pairs.exact(max(one.bound_ns for one in judged) / 1e6), unit=" ms"),
        Figure(label, "outside their bound", pairs.exact(sum(one.is_outside for one in judged)), at_most(0)),
        Figure(label, "bounds too wide", pairs.exact(sum(one.is_too_wide for one in judged)), at_most(0)),
    ]


def skew_figures(name: str, played: Sequence[Played], goal_ms: float) -> list[Figure]:
    """The 99th percentile of the largest skew of a round, by engine; fio's is only told."""
    figures = []
    for engine in dict.fromkeys(one.engine for one in played):
        largest = [max(map(abs, one.skews_ns)) / 1e6 for one in played if one.engine == engine and one.skews_ns]
        label = f"{name}, {engine}"
        if not largest:
            figures.append(Figure(label, "largest skew of a round, p99", None, reason="its first I/O is not published"))
            continue
        goal = at_most(goal_ms) if engine == "calyx" else None
        said = f"{len(largest)} rounds, median {estimates.quantile(largest, 0.5):.3f} ms"
        if len(largest) < ENOUGH_FOR_P99:
            said += f"; of fewer than {ENOUGH_FOR_P99} it is the largest"
        p99 = estimates.quantile(largest, 0.99)
        figures.append(Figure(label, "largest skew of a round, p99", pairs.exact(p99), goal, said, " ms"))
    return figures


if __name__ == "__main__":
    ends_as_interrupted()
    sys.exit(main())
