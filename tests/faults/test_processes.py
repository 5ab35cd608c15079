"""One process of a run is killed or stopped in one phase: what the user sees, and what remains. docs/failures.md is the table."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from calyx_orch.commands.loopback import LoopbackGuest, inventory_yaml
from faults.light_guests import LightFleet, descendants, light_guests
from fleet.disks import need_root
from fleet.test_run_ends import _seed_with
from fleet.whole_runs import Ended, Started, say, start, start_run

pytestmark = [pytest.mark.fleet, pytest.mark.root]

KILL, STOP = signal.SIGKILL, signal.SIGSTOP

CALYX = """\
workloads:
  - {name: randread, rw: randread, bs: 4k, iodepth: 4, size: 24m, runtime: 2.5s, ramp_time: 0.1s, rate_iops: 400}
baselines: none
repetitions: 2
settle: 0
lost_time_probe: 0
"""
FIO = CALYX.replace("baselines: none", "baselines: [fio-io_uring]").replace("repetitions: 2", "repetitions: 1")
LAYOUT = CALYX.replace("repetitions: 2", "repetitions: 1") + "impact: {max_rate: 8MB/s}\n"

# phase: inventory, what is announced when it begins, how long after that the fault comes, in s
PHASES = {
    "layout": (LAYOUT, "laying out files on 2 guests", 1.0),
    "armed": (CALYX, r"round 2 of 2: ", 0.6),  # the start line is at least 1 s after the guests were told their job
    "calyx": (CALYX, r"round 2 of 2: ", 1.6),
    "fio": (FIO, r"round 2 of 4: .*, fio-io_uring, together", 1.8),
    "first": (CALYX, r"round 1 of 2: ", 1.6),
    "clean": (CALYX, "cleaning 2 guests", 0.0),
}


@dataclass(frozen=True)
class Fault:
    """A process of the second guest, a signal, a phase; how that guest ends, and words of its reason."""

    victim: str
    number: signal.Signals
    phase: str
    state: str
    reason: str = ""
    clean_within_s: float = 3.0
    is_slow: bool = False

    def __str__(self) -> str:
        return f"{self.victim}-{self.number.name}-{self.phase}"


FAULTS = (
    Fault("agent", KILL, "layout", "lost", "killed by signal 9; its fio and its files are gone"),
    Fault("agent", KILL, "armed", "lost", "killed by signal 9; its fio and its files are gone", is_slow=True),
    Fault("agent", KILL, "calyx", "lost", "killed by signal 9; its fio and its files are gone"),
    Fault("agent", KILL, "fio", "lost", "killed by signal 9; its fio and its files are gone", is_slow=True),
    Fault("agent", STOP, "calyx", "lost", "stood still beyond its lease|no result within", is_slow=True),
    Fault("agent", STOP, "fio", "lost", "stood still beyond its lease|no result within", is_slow=True),
    Fault("guard", KILL, "layout", "lost", "ended by SIGKILL", is_slow=True),
    Fault("guard", KILL, "calyx", "lost", "ended by SIGKILL", is_slow=True),
    Fault("guard", KILL, "fio", "lost", "ended by SIGKILL", is_slow=True),
    Fault("guard", STOP, "calyx", "measured", is_slow=True),
    Fault("session", KILL, "layout", "lost", "connection to the agent was lost", is_slow=True),
    Fault("session", KILL, "calyx", "lost", "connection to the agent was lost", is_slow=True),
    Fault("session", KILL, "fio", "lost", "connection to the agent was lost", is_slow=True),
    Fault("session", STOP, "calyx", "lost", "connection to the agent was lost", clean_within_s=40, is_slow=True),
    Fault("session", STOP, "fio", "lost", "connection to the agent was lost", clean_within_s=40, is_slow=True),
    Fault("sshd", KILL, "calyx", "measured", is_slow=True),
    Fault("fio", KILL, "fio", "partial", "fio was ended by signal 9"),
    Fault("fio", STOP, "fio", "partial", "fio ran past its deadline", is_slow=True),
)


@pytest.mark.parametrize(
    "fault", [pytest.param(f, id=str(f), marks=[pytest.mark.slow] if f.is_slow else []) for f in FAULTS]
)
async def test_a_process_of_a_guest(fault: Fault, tmp_path: Path) -> None:
    """The other guest is measured in every round; the one at fault has a state, a reason and nothing left."""
    need_root("fio")
    async with light_guests(2, tmp_path) as fleet:
        guest = fleet.guests[1]
        started = await into_phase(fault.phase, fleet, tmp_path)
        while not (pids := victims(fault.victim, fleet, guest)):
            assert started.process.returncode is None, "it was there before the end"
            await asyncio.sleep(0.02)
        for pid in pids:
            os.kill(pid, fault.number)
        ended = await started.ended(within_s=110)
        if fault.victim != "guard" or fault.number is not STOP:
            took = await fleet.nothing_left(within_s=fault.clean_within_s)
            say(f"clean {took:.1f} s after the end; {ended.outcomes[guest.name]}")
    said = ended.out + ended.err
    assert "Traceback" not in said, said
    outcome = ended.outcomes[guest.name]
    assert (outcome.state, ended.status) == (fault.state, 0 if fault.state == "measured" else 3), said
    assert re.search(fault.reason, outcome.reason), said
    assert len(ended.failure_lines(guest.name)) == (fault.state != "measured"), said
    _check_other(ended)


def _check_other(ended: Ended) -> None:
    mine = [m.status for m in ended.record.measurements if m.guest == "guest1"]
    assert mine == ["ok"] * len(ended.record.plan.rounds), ended.out
    assert ended.outcomes["guest1"].state == "measured"


async def into_phase(phase: str, fleet: LightFleet, base: Path) -> Started:
    """Start a run and wait until it is in that phase."""
    body, announced, delay_s = PHASES[phase]
    text = inventory_yaml(fleet, body=body)  # type: ignore[arg-type]  # it has what is asked of a fleet
    seed = _seed_with("fio-io_uring", text) if phase == "fio" else 1
    started = await start_run(text, base, "--seed", str(seed), within=fleet.within)
    await started.until_matches(announced)
    await asyncio.sleep(delay_s)
    return started


def victims(name: str, fleet: LightFleet, guest: LoopbackGuest) -> list[int]:
    """The pids of a guest's processes by their part."""
    ours = fleet.processes(guest)
    assert guest.process is not None
    match name:
        case "sshd":
            return [pid for pid in descendants(guest.process.pid) if " -D -e -f " in _words(pid)]
        case "session":
            return [pid for pid in descendants(guest.process.pid) if _words(pid).startswith("sshd: root")]
        case "agent":
            return [
                pid
                for pid in ours
                if "calyx-agent-" in ours[pid].split(" ")[0] and _comm(pid) != "calyx-guard" and " " not in ours[pid]
            ]
        case "guard":
            return [pid for pid in ours if _comm(pid) == "calyx-guard"]
        case "fio":
            return [pid for pid in ours if "--ioengine" in ours[pid]]  # one process: its jobs are threads
    raise AssertionError(name)


def _comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _words(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()


# --- the controller ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["layout", "armed", "fio", "clean"])
async def test_a_controller_that_is_killed(phase: str, tmp_path: Path) -> None:
    """SIGKILL: guests end and clean by themselves within seconds; the run folder can be read and reported."""
    need_root("fio")
    async with light_guests(2, tmp_path) as fleet:
        started = await into_phase(phase, fleet, tmp_path)
        started.signal(KILL)
        ended = await started.ended()
        took = await fleet.nothing_left(within_s=8.0)
        say(f"clean {took:.1f} s after the kill")
    assert ended.status == -KILL
    assert ended.record.status == "interrupted"
    page = tmp_path / "again.html"
    again = await (await start("report", ended.folder, "--out", page, folder=ended.folder, cwd=tmp_path)).ended()
    assert (again.status, page.exists()) == (0, True), again.err


@pytest.mark.slow
async def test_a_controller_that_sleeps(tmp_path: Path) -> None:
    """A laptop that is shut in a round: guests end by their lease and clean; awake again, it says so and ends in good order."""
    async with light_guests(2, tmp_path) as fleet:
        started = await into_phase("first", fleet, tmp_path)
        started.signal(STOP)
        took = await fleet.nothing_left(within_s=45.0)
        started.signal(signal.SIGCONT)
        ended = await started.ended()
        say(f"clean {took:.1f} s after it fell asleep; {[o.reason for o in ended.outcomes.values()]}")
    assert ended.status == 3, ended.out + ended.err
    assert "Traceback" not in ended.err
    assert {outcome.state for outcome in ended.outcomes.values()} == {"lost"}
    assert {outcome.step for outcome in ended.outcomes.values()} == {"round 2"}
    first = [m.status for m in ended.record.measurements if m.round_index == ended.record.plan.rounds[0].index]
    assert first == ["ok", "ok"], "a round that was over on the guests is kept"
