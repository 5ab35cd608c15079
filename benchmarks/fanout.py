"""Many guests under one controller: what each costs it, against others, and that none is lost.

    benchmarks/fanout.py                 300 guests beside parallel-ssh and ansible, 1000 guests held: about 10 minutes
    benchmarks/fanout.py --quick         under a minute; fewer guests, and says what it cannot decide
    benchmarks/fanout.py --check         exit 1 where a goal is missed; the last line is the figure furthest from its goal
    benchmarks/fanout.py --json FILE     every figure and every sample
    benchmarks/fanout.py --peers DIR     keep the peers' virtual environment there instead of making one that is thrown away

Guests are real sshds on loopback that start real agents. CPU is that of the controller's process with all its children, without
its start. The controllers take turns. docs/benchmarks.md says what each figure means.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import orchestration
from at_scale import estimates, peers, servers
from at_scale.peers import PeerError, Took
from side_by_side import pairs, present, progress
from side_by_side.ending import ends_as_interrupted
from side_by_side.goals import Figure, at_most

from calyx_orch.errors import CalyxError

ROUNDS, ROUNDS_QUICK = 5, 2
GUESTS, GUESTS_QUICK = 300, 24
HELD, HELD_QUICK = 1000, 40
SIZES, SIZES_QUICK = (10, 30, 100, 300, 1000), (10, 40)
TRIES_OF_A_SIZE = 3
CONTROLLER_WITHIN_S = 900.0
QUICK_PEERS_WITHIN_S = 30.0  # from the start: later none is installed, so that a minute is kept
CPU_MS, RSS_KIB, BEYOND_S, GROWTH = 8.0, 64.0, 0.5, 1.1
CONTROLLER = Path(__file__).resolve().parent / "at_scale" / "controller.py"
OURS, PSSH, ANSIBLE = "calyx-orch", "parallel-ssh", "ansible"
BODY = """\
workloads:
  - {name: trivial, rw: randread, bs: 4k, iodepth: 1, size: 64k, runtime: 1s, ramp_time: 0s, rate_iops: 10, setup: defer}
baselines: none
repetitions: 1
settle: 0s
lost_time_probe: 0s
"""


class ControllerError(Exception):
    """Why our own controller gave no figures."""


@dataclass
class Found:
    """Everything that was measured. `commands` are passes by controller, `flows` whole runs in order, by number of guests."""

    commands: dict[str, list[float]] = field(default_factory=dict)
    flows: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)
    orchestration: list[orchestration.Spent] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def document(self, options: argparse.Namespace, figures: list[Figure]) -> dict[str, Any]:
        """All of it, for the JSON file."""
        extra = {
            "options": vars(options),
            "command_cpu_s": self.commands,
            "flows": self.flows,
            "orchestration": [vars(one) for one in self.orchestration],
            "notes": self.notes,
        }
        return present.document(figures, extra)


def main() -> int:
    """Measure, print, and answer with the exit status."""
    options = parse_options()
    try:
        found = asyncio.run(measure(options))
    except (CalyxError, servers.NoServersError, ControllerError) as error:
        progress.end()
        print(f"cannot measure: {error}", file=sys.stderr)
        return 2
    progress.end()
    for note in found.notes:
        print(f"note: {note}")
    figures = figures_of(found, options)
    present.print_figures(figures)
    return present.finish(figures, options, found.document(options, figures))


def parse_options() -> argparse.Namespace:
    """The command line with its defaults filled in."""
    options = argparse.ArgumentParser(description="many guests under one controller")
    options.add_argument("--quick", action="store_true", help="less than a minute; says what it cannot decide")
    options.add_argument("--rounds", type=int, help=f"alternating rounds of the controllers (default {ROUNDS})")
    options.add_argument("--guests", type=int, help=f"guests of the comparison (default {GUESTS})")
    options.add_argument("--held", type=int, help=f"guests that one controller holds (default {HELD})")
    options.add_argument("--peers", type=Path, metavar="DIR", help="keep the peers' virtual environment in DIR")
    options.add_argument("--no-peers", action="store_true", help="measure calyx-orch alone")
    options.add_argument("--json", type=Path, metavar="FILE", help="write all figures and samples")
    options.add_argument("--check", action="store_true", help="exit 1 where a goal is missed")
    given = options.parse_args()
    given.rounds = given.rounds or (ROUNDS_QUICK if given.quick else ROUNDS)
    given.guests = given.guests or (GUESTS_QUICK if given.quick else GUESTS)
    given.held = given.held or (HELD_QUICK if given.quick else HELD)
    given.began_s = time.monotonic()
    return given


async def measure(options: argparse.Namespace) -> Found:
    """Every pass, in turns. All processes and files are gone afterwards."""
    found = Found()
    with tempfile.TemporaryDirectory(prefix="calyx-peers-") as thrown_away:
        environment = await _peers(options, Path(thrown_away), found)
        async with servers.serving(options.guests) as fleet:
            await _commands(fleet, options, environment, found)
            for _ in range(options.rounds + 1):  # of these the first puts the agents there
                await _flow(fleet, options.guests, found)
    sizes = SIZES_QUICK if options.quick else SIZES
    async with servers.serving(max(options.held, *sizes)) as fleet:
        for count in sorted({*sizes, options.held}):
            tries = 1 if options.quick or count > GUESTS else TRIES_OF_A_SIZE
            for _ in range(tries + 1):
                await _flow(fleet, count, found, own=("held", count))
    if not options.quick:
        progress.show("10 guests, round by round")
        with tempfile.TemporaryDirectory(prefix="calyx-orch-") as base:
            found.orchestration = list(orchestration.of(await orchestration.measured(10, Path(base))))
    else:
        found.notes.append(
            "the time that orchestration adds to a round is left out: benchmarks/orchestration.py has it"
        )
    return found


async def _peers(options: argparse.Namespace, thrown_away: Path, found: Found) -> Path | None:
    """The environment of the peers, or None with a note why there is none."""
    if options.no_peers:
        found.notes.append("peers were left out (--no-peers): nothing is compared")
        return None
    progress.show("installing the peers")
    directory = options.peers or thrown_away
    try:
        async with asyncio.timeout(QUICK_PEERS_WITHIN_S if options.quick else None):
            await asyncio.to_thread(peers.install, directory)
    except (PeerError, TimeoutError, OSError) as error:
        found.notes.append(f"peers are left out, nothing is compared: {error or 'installing them takes too long'}")
        return None
    return Path(directory)


async def _commands(
    fleet: servers.Servers, options: argparse.Namespace, environment: Path | None, found: Found
) -> None:
    """Connect to every guest and run one command, each controller in turn; each stands at each place equally often."""

    async def ours() -> float:
        answer = await controller("command", fleet, options.guests)
        if answer["lost"]:
            found.notes.append(f"{OURS} did not reach {answer['lost']} guests: {answer['why']}")
        return float(answer["cpu_s"])

    def of_peer(name: str, act: Callable[[Path, servers.Servers, int], Took]) -> Callable[[], Any]:
        async def pass_() -> float:
            assert environment is not None
            took = await asyncio.to_thread(act, environment, fleet, options.guests)
            if took.lost:
                found.notes.append(f"{name} did not reach {took.lost} guests")
            return took.cpu_s

        return pass_

    sides: dict[str, Callable[[], Any]] = {OURS: ours}
    if environment is not None:
        sides |= {PSSH: of_peer(PSSH, peers.parallel_ssh), ANSIBLE: of_peer(ANSIBLE, peers.ansible)}
    for number in range(options.rounds):
        names = list(sides)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            progress.show(f"one command on {options.guests} guests: round {number + 1}, {name}")
            try:
                found.commands.setdefault(name, []).append(await sides[name]())
            except PeerError as error:
                found.notes.append(f"{name} is left out: {error}")
                del sides[name], found.commands[name]


async def _flow(fleet: servers.Servers, count: int, found: Found, own: tuple[str, int] | None = None) -> None:
    progress.show(f"a whole run on {count} guests")
    answer = await controller("flow", fleet, count)
    key = count if own is None else -count
    found.flows.setdefault(key, []).append(answer)
    if answer["lost"]:
        found.notes.append(f"a run on {count} guests lost {answer['lost']}: {answer['why']}")


async def controller(
    what: str, fleet: servers.Servers, count: int, *, body: str = BODY, folder: Path | None = None
) -> Mapping[str, Any]:
    """One controller in a process of its own, its run in `folder` (None: nobody wants it). Raises ControllerError."""
    with tempfile.TemporaryDirectory(prefix="calyx-orch-") as base:
        inventory = fleet.write_inventory(Path(base), count, body)
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(CONTROLLER), what, str(inventory), str(folder or Path(base, "run")),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(CONTROLLER_WITHIN_S):
                out, err = await process.communicate()
        except TimeoutError:
            raise ControllerError(f"{what} on {count} guests took more than {CONTROLLER_WITHIN_S:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if process.returncode:
        raise ControllerError(f"{what} on {count} guests: {err.decode(errors='replace').strip()[-400:]}")
    answer: Mapping[str, Any] = json.loads(out.decode().splitlines()[-1])
    return answer


# --- figures: pure ------------------------------------------------------------------------------------------------


def figures_of(found: Found, options: argparse.Namespace) -> list[Figure]:
    """Every figure with its goal, of what was measured."""
    figures = command_figures(found.commands, options.guests)
    figures += flow_figures(found.flows.get(options.guests, ()), options.guests)
    held = {-count: flows for count, flows in found.flows.items() if count < 0}
    figures += held_figures(held.get(options.held, ()), options.held)
    figures += growth_figures(held)
    mine = [one.beyond_s for one in found.orchestration if one.engine == "calyx"]
    if mine:
        figures.append(
            Figure("10 guests", "orchestration a round, s", pairs.exact(median(mine)), at_most(BEYOND_S), "median; rounds of calyx")
        )  # fmt: skip
    return figures


def command_figures(commands: Mapping[str, list[float]], guests: int) -> list[Figure]:
    """Connect and one command: ours against each peer, round by round, and everybody's own CPU."""
    label = f"{guests} guests, one command"
    figures = []
    ours = commands.get(OURS, [])
    for name, goal in ((PSSH, 1.0), (ANSIBLE, 0.2)):
        theirs = commands.get(name, [])
        both = list(zip(ours, theirs, strict=False))
        estimate = pairs.of_pairs(both) if both else None
        figures.append(Figure(label, f"CPU against {name}", estimate, at_most(goal), "" if both else "not measured"))
    for name, values in commands.items():
        each = [1000 * value / guests for value in values]
        figures.append(Figure(label, f"CPU a guest, {name}", estimates.mean(each), unit=" ms"))
    return figures


def flow_figures(flows: list[Mapping[str, Any]] | tuple[()], guests: int) -> list[Figure]:
    """Whole runs: the first puts the agents there, those after it are what a guest costs."""
    if len(flows) < 2:
        return []
    label = f"{guests} guests, a whole run"
    first, *later = flows
    each = [1000 * float(one["cpu_s"]) / guests for one in later]
    uploads = max(int(one["uploads"]) for one in later)
    return [
        Figure(label, "CPU a guest", estimates.mean(each), at_most(CPU_MS), unit=" ms"),
        Figure(label, "CPU a guest, with the upload", pairs.exact(1000 * float(first["cpu_s"]) / guests), unit=" ms"),
        Figure(label, "uploads the first time", pairs.exact(int(first["uploads"]))),
        Figure(label, "uploads the second time", pairs.exact(uploads), at_most(0)),
        Figure(label, "guests lost", pairs.exact(sum(int(one["lost"]) for one in flows)), at_most(0)),
    ]


def held_figures(flows: list[Mapping[str, Any]] | tuple[()], guests: int) -> list[Figure]:
    """All guests open at once: nobody is lost, and what each takes of the controller's memory."""
    if not flows:
        return []
    label = f"{guests} guests held"
    kib = [(float(one["held_kib"]) - float(one["base_kib"])) / guests for one in flows[1:] or flows]
    peak = [(float(one["peak_kib"]) - float(one["base_kib"])) / guests for one in flows[1:] or flows]
    return [
        Figure(label, "guests lost", pairs.exact(sum(int(one["lost"]) for one in flows)), at_most(0)),
        Figure(label, "memory a guest during the round", pairs.exact(max(kib)), at_most(RSS_KIB), unit=" KiB"),
        Figure(label, "memory a guest at its peak", pairs.exact(max(peak)), unit=" KiB"),
    ]


def growth_figures(held: Mapping[int, list[Mapping[str, Any]]]) -> list[Figure]:
    """How CPU grows with the guests; the least of the tries of a size, since what disturbs only adds."""
    points = [
        (float(count), min(float(one["cpu_s"]) for one in flows[1:]))
        for count, flows in sorted(held.items())
        if flows[1:]
    ]
    if len(points) < 2:
        return []
    label = f"{points[0][0]:.0f} to {points[-1][0]:.0f} guests"
    told = ", ".join(f"{count:.0f}: {1000 * cpu_s / count:.1f}" for count, cpu_s in points)
    figures = [
        Figure(
            label,
            "growth of CPU, exponent",
            pairs.exact(estimates.exponent(points)),
            at_most(GROWTH),
            f"ms a guest: {told}",
        )
    ]
    if len(points) > 2:
        upper = points[-2:]
        label = f"{upper[0][0]:.0f} to {upper[1][0]:.0f} guests"
        figures.append(
            Figure(label, "growth of CPU, exponent", pairs.exact(estimates.exponent(upper)), at_most(GROWTH))
        )
    return figures


if __name__ == "__main__":
    ends_as_interrupted()
    sys.exit(main())
