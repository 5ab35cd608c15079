"""However a run is ended, in whichever phase: guests are clean soon, and what was measured is kept."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from calyx_orch import inventory as inventories
from calyx_orch import plan as planning
from calyx_orch import workloads
from calyx_orch.commands.loopback import LoopbackFleet, inventory_yaml
from calyx_orch.model import RunRecord
from fleet.disks import need_root
from fleet.whole_runs import Ended, Started, guests_up, left_processes, nothing_left, say, start, start_run

pytestmark = [pytest.mark.fleet]

LONG = """\
workloads:
  - {name: randread, rw: randread, bs: 4k, iodepth: 4, size: 8m, runtime: 2s, ramp_time: 0.1s, rate_iops: 400}
baselines: [fio-io_uring]
repetitions: 1
settle: 0
lost_time_probe: 0
"""
SLOW_LAYOUT = LONG.replace("size: 8m", "size: 256m") + "impact: {max_rate: 8MB/s}\n"
INTO_THE_IO_S = 1.0  # from the announcement of a round until its I/O surely runs


async def test_an_interrupt_while_connecting(tmp_path: Path) -> None:
    """One guest is connected, the other's login takes its time."""
    async with guests_up(1, tmp_path) as fleet:
        await fleet.add("slow", extra=['ForceCommand sleep 4; eval "$SSH_ORIGINAL_COMMAND"'])
        started = await start_run(inventory_yaml(fleet, body=LONG), tmp_path)
        await started.until("connecting to 2 guests")
        await asyncio.sleep(1.0)
        ended = await _interrupted(started, fleet, signal.SIGINT, clean_within_s=6.0)  # that login ends by itself
    assert ended.status == 130
    assert ended.record.measurements == ()
    assert await _report_status(ended, tmp_path) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_an_end_while_the_agent_is_uploaded(number: signal.Signals, tmp_path: Path) -> None:
    """A-048: one guest is slow to take it, so that half of a file lies there when the controller ends."""
    slow_cat = tmp_path / "slow" / "cat"
    slow_cat.parent.mkdir()
    slow_cat.write_text("#!/bin/sh\n/bin/dd bs=1k count=8 2>/dev/null; sleep 2; exec /bin/cat\n")
    slow_cat.chmod(0o755)
    async with guests_up(1, tmp_path) as fleet:
        slow = await fleet.add("slow", environment={"PATH": f"{slow_cat.parent}:/usr/bin:/bin"})
        started = await start_run(inventory_yaml(fleet, body=LONG), tmp_path)
        await started.until("connecting to 2 guests")
        await _until(lambda: any(slow.directory.rglob("*.part.*")), "a part of the agent lies on the slow guest")
        ended = await _interrupted(started, fleet, number, clean_within_s=6.0)
        await _until(lambda: not any(slow.directory.rglob("*.part.*")), "the part of the agent is gone")
    assert ended.status == (130 if number == signal.SIGINT else -number)
    assert ended.record.measurements == ()


async def test_an_interrupt_while_files_are_laid_out(tmp_path: Path) -> None:
    async with guests_up(2, tmp_path) as fleet:
        started = await start_run(inventory_yaml(fleet, body=SLOW_LAYOUT), tmp_path)
        await started.until("laying out files on 2 guests")
        await asyncio.sleep(0.7)
        assert all(any(guest.data.rglob("job.*")) for guest in fleet.guests), "files are being laid out"
        ended = await _interrupted(started, fleet, signal.SIGINT)
    assert ended.status == 130
    assert ended.record.measurements == ()
    assert not [note for one in ended.outcomes.values() for note in one.notes if "not confirmed" in note]
    assert await _report_status(ended, tmp_path) == 0


@pytest.mark.parametrize(
    ("engine", "number"),
    [
        ("calyx", signal.SIGTERM),
        ("fio-io_uring", signal.SIGINT),
        pytest.param("calyx", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("fio-io_uring", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
async def test_an_interrupt_in_a_round(engine: str, number: signal.Signals, tmp_path: Path) -> None:
    """Exit code 128 and the signal's number; the rounds before are kept, and the report can be drawn again."""
    need_root("fio")
    async with guests_up(2, tmp_path) as fleet:
        started = await _into_a_later_round(fleet, engine, tmp_path)
        ended = await _interrupted(started, fleet, number)
    assert ended.status == 128 + number
    _check_kept(ended.record)
    assert (ended.folder / "report.html").exists()
    assert "interrupted: stopping and cleaning the guests" in ended.out
    assert await _report_status(ended, tmp_path) == 0


async def test_a_second_interrupt_leaves_at_once(tmp_path: Path) -> None:
    """A guest hangs, so that stopping in good order would take long; its agent cleans when it wakes."""
    async with guests_up(2, tmp_path) as fleet:
        started = await _into_a_later_round(fleet, "calyx", tmp_path)
        agents = [pid for pid, words in left_processes(fleet).items() if "calyx-agent-" in words.split(" ")[0]]
        hung = next(pid for pid in agents if str(fleet.guests[0].directory) in left_processes(fleet)[pid])
        os.kill(hung, signal.SIGSTOP)
        try:
            started.signal(signal.SIGINT)
            await started.until("once more to leave at once")
            started.signal(signal.SIGINT)
            began = asyncio.get_running_loop().time()
            ended = await started.ended(within_s=20)
            took = asyncio.get_running_loop().time() - began
        finally:
            with contextlib.suppress(ProcessLookupError):  # its guard may have ended it
                os.kill(hung, signal.SIGCONT)
        say(f"left {took:.2f} s after the second interrupt, guests clean after {await nothing_left(fleet):.2f} s more")
    assert ended.status == 130
    assert took < 6.0, "reading and writing the report is all that is left to do"
    _check_kept(ended.record)


@pytest.mark.parametrize("engine", [pytest.param("calyx", marks=pytest.mark.slow), "fio-io_uring"])
async def test_a_controller_that_is_killed_leaves_nothing_on_guests(engine: str, tmp_path: Path) -> None:
    """SIGKILL: agents and fio end by themselves within seconds and remove their files; the folder can be read."""
    need_root("fio")
    async with guests_up(2, tmp_path) as fleet:
        started = await _into_a_later_round(fleet, engine, tmp_path)
        words = " ".join(left_processes(fleet).values())
        assert "calyx-agent-" in words
        assert ("--ioengine=io_uring" in words) is (engine != "calyx")
        started.signal(signal.SIGKILL)
        ended = await started.ended()
        say(f"guests clean {await nothing_left(fleet):.2f} s after the kill in a round of {engine}")
    assert ended.status == -signal.SIGKILL
    _check_kept(ended.record)
    assert await _report_status(ended, tmp_path) == 0


@pytest.mark.parametrize("engine", ["calyx", pytest.param("fio-io_uring", marks=pytest.mark.slow)])
async def test_a_guest_whose_connection_is_cut_in_a_round_costs_the_others_nothing(engine: str, tmp_path: Path) -> None:
    """A-049: its server dies with all its sessions; the other guest is measured in every round, exit code 3."""
    need_root("fio")
    async with guests_up(2, tmp_path) as fleet:
        started = await _into_a_later_round(fleet, engine, tmp_path)
        await fleet.stop(fleet.guests[1])
        ended = await started.ended()
        await nothing_left(fleet)
    _check_second_is_lost(ended)


@pytest.mark.slow
async def test_a_guest_whose_agent_is_killed_in_a_round_costs_the_others_nothing(tmp_path: Path) -> None:
    """Out of memory, say: the reason names the signal, and fio and files of the dead agent are gone soon as well."""
    need_root("fio")
    async with guests_up(2, tmp_path) as fleet:
        started = await _into_a_later_round(fleet, "fio-io_uring", tmp_path)
        for pid, words in left_processes(fleet).items():
            if words == next(iter(words.split())) and f"{fleet.guests[1].home}/" in words:
                os.kill(pid, signal.SIGKILL)
        ended = await started.ended()
        await nothing_left(fleet)
    _check_second_is_lost(ended)
    assert "ended by SIGKILL" in ended.outcomes["guest2"].reason


def _check_second_is_lost(ended: Ended) -> None:
    said = ended.out + ended.err
    assert ended.status == 3, said
    assert {name: outcome.state for name, outcome in ended.outcomes.items()} == {"guest1": "measured", "guest2": "lost"}
    assert ended.outcomes["guest2"].reason, said
    assert len(ended.failure_lines("guest2")) == 1, said
    mine = [m.status for m in ended.record.measurements if m.guest == "guest1"]
    assert mine == ["ok"] * len(ended.record.plan.rounds)


# --- steps -------------------------------------------------------------------------------------------------------


async def _into_a_later_round(fleet: LoopbackFleet, engine: str, base: Path) -> Started:
    """Start a run whose second round is of this engine, and wait until that round is at its I/O."""
    text = inventory_yaml(fleet, body=LONG)
    started = await start_run(text, base, "--seed", str(_seed_with(engine, text)))
    await started.until_matches(rf"round 2 of \d+: .*, {engine}, together")
    await asyncio.sleep(INTO_THE_IO_S)
    return started


def _seed_with(engine: str, text: str) -> int:
    """The first seed that draws an order whose second round is of this engine."""
    inventory = inventories.parse(text, source="inventory.yaml", base_dir="/", presets=workloads.read_presets())
    return next(seed for seed in range(99) if planning.make(inventory, seed=seed).rounds[1].engine == engine)


async def _interrupted(started: Started, fleet: LoopbackFleet, number: int, *, clean_within_s: float = 1.0) -> Ended:
    began = asyncio.get_running_loop().time()
    started.signal(number)
    ended = await started.ended(within_s=20)
    took = asyncio.get_running_loop().time() - began
    clean_s = await nothing_left(fleet, within_s=clean_within_s)
    say(f"ended {took:.2f} s after signal {number}, guests clean {clean_s:.2f} s later")
    assert "this is our fault" not in ended.err, ended.err
    assert "Traceback" not in ended.err, ended.err
    assert ended.record.status == "interrupted"
    return ended


async def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + 10.0
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, f"not within 10 s: {what}"
        await asyncio.sleep(0.02)


def _check_kept(record: RunRecord) -> None:
    """The rounds before the end are whole."""
    assert record.status == "interrupted"
    first = [m for m in record.measurements if m.round_index == record.plan.rounds[0].index]
    assert [m.status for m in first] == ["ok", "ok"]
    assert all(m.total_ios > 100 for m in first)


async def _report_status(ended: Ended, base: Path) -> int:
    page = base / "again.html"
    done = await (await start("report", ended.folder, "--out", page, folder=ended.folder, cwd=base)).ended()
    assert page.exists(), done.err
    return done.status
