"""What orchestration adds to a round: its time beyond ramp, runtime, settling (the rest before the start line included) and probe.

    benchmarks/orchestration.py                    a fleet of 10 loopback guests behind real sshd, half a minute
    benchmarks/orchestration.py --run RUN ...      from the journals of runs that were made
    benchmarks/orchestration.py --json FILE --check --quick

The goal is 0.5 s for 10 guests. On a loopback fleet ten fios start on the controller's own CPUs, which takes longer than the rest of
a second; on guests of their own it does not. So calyx and fio are told apart, and with them how long loading took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from side_by_side.ending import ends_as_interrupted

from calyx_orch.commands.loopback import LoopbackFleet, inventory_yaml
from calyx_orch.plan.cost import REST_S
from calyx_orch.store import archive

GOAL_S = 0.5
GUESTS, GUESTS_QUICK = 10, 3
BODY = """\
workloads:
  - {name: randread, rw: randread, bs: 4k, iodepth: 4, size: 8m, runtime: 1s, ramp_time: 0.5s, rate_iops: 100}
baselines: [fio-io_uring]
repetitions: 2
settle: 5s
lost_time_probe: 500ms
"""


@dataclass(frozen=True)
class Spent:
    """One round's time beyond its I/O and settling, in seconds; `loading_s` is until the slowest guest was ready."""

    engine: str
    guests: int
    beyond_s: float
    clocks_s: float
    loading_s: float


def of(folder: Path) -> Iterator[Spent]:
    """Every round of a run that ended by itself, by its journal."""
    rounds = {one.index: one for one in archive.read(folder).plan.rounds}
    opened: dict[int, int] = {}
    ready: dict[int, int] = {}
    for entry in archive.journal(folder):
        index = entry.get("round", -1)
        if entry["event"] == "Opened":
            opened[index] = entry["at_ns"]
        elif entry["event"] == "Ready":
            ready[index] = entry["at_ns"]
        elif entry["event"] == "done" and not entry["because"]:
            one, spent = rounds[index], {step: ns / 1e9 for step, ns in entry["spent_ns"].items()}
            io_s = one.workload.ramp_s + one.workload.runtime_s
            beyond_s = spent["whole"] - spent["settle"] - spent["lost_time"] - REST_S - io_s
            clocks_s = spent["clocks_before"] + spent["clocks_after"]
            loading_s = (ready[index] - opened[index]) / 1e9
            yield Spent(one.engine, len(one.guests), beyond_s, clocks_s, loading_s)


async def measured(guests: int, base: Path) -> Path:
    """Run a fleet of loopback guests; gives its run folder."""
    async with LoopbackFleet(guests, base=base) as fleet:
        inventory, folder = base / "inventory.yaml", base / "run"
        inventory.write_text(inventory_yaml(fleet, body=BODY))
        words = ("-m", "calyx_orch.cli", "run", str(inventory), "--out", str(folder), "--quiet")
        process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.DEVNULL)
        if await process.wait():
            raise SystemExit(f"the run in {folder} did not end well")
    return folder


def main() -> int:
    """Print the medians by engine; with --check 1 when calyx misses the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, nargs="+", metavar="RUN", help="run folders to read instead of measuring")
    parser.add_argument("--guests", type=int, metavar="N", help=f"loopback guests (default: {GUESTS})")
    parser.add_argument("--quick", action="store_true", help=f"{GUESTS_QUICK} guests")
    parser.add_argument("--check", action="store_true", help="exit 1 when calyx misses the goal")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round there")
    words = parser.parse_args()
    guests = words.guests or (GUESTS_QUICK if words.quick else GUESTS)
    with tempfile.TemporaryDirectory(prefix="calyx-orch-") as base:
        folders = words.run or [asyncio.run(measured(guests, Path(base)))]
        found = [spent for folder in folders for spent in of(folder)]
    if words.json:
        words.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    missed = show(found)
    return missed if words.check else 0


def show(found: Sequence[Spent]) -> int:
    """Print a row an engine; 1 when calyx misses the goal."""
    missed = False
    for engine in dict.fromkeys(one.engine for one in found):
        mine = [one for one in found if one.engine == engine]
        beyond_s = median(one.beyond_s for one in mine)
        missed = missed or (engine == "calyx" and beyond_s > GOAL_S)
        print(
            f"{engine}: {beyond_s:.3f} s a round beyond its I/O, settling and probe ({beyond_s / GOAL_S:.2f} of the goal; {len(mine)} "
            f"rounds of {mine[0].guests} guests; clocks {median(one.clocks_s for one in mine):.3f} s, loading "
            f"{median(one.loading_s for one in mine):.3f} s)"
        )
    return int(missed)


if __name__ == "__main__":
    ends_as_interrupted()
    sys.exit(main())
