"""A controller is killed for real, in every phase and within a round; the resumed run ends as if nothing had been."""

# ruff: noqa: ASYNC110 - what another process writes can only be looked at

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from calyx_orch.commands.loopback import LoopbackFleet, inventory_yaml
from calyx_orch.model import RunRecord
from calyx_orch.store import archive
from fleet.disks import need_root
from fleet.whole_runs import (
    WITHIN_S,
    Ended,
    Started,
    guests_up,
    left_processes,
    nothing_left,
    run,
    say,
    start,
    start_run,
    strict_json,
)

pytestmark = [pytest.mark.fleet]

ROUNDS = """\
workloads:
  - {name: randread, rw: randread, bs: 4k, iodepth: 4, size: 8m, runtime: 0.6s, ramp_time: 0.1s, rate_iops: 400}
  - {name: randwrite, rw: randwrite, bs: 4k, iodepth: 4, size: 8m, runtime: 0.6s, ramp_time: 0.1s, rate_iops: 400}
baselines: [fio-io_uring]
repetitions: 1
settle: 0
lost_time_probe: 0
seed: 7
"""
SLOW_LAYOUT = ROUNDS.replace("size: 8m", "size: 16m") + "impact: {max_rate: 8MB/s}\n"


async def until_event(started: Started, event: str, count: int = 1, *, within_s: float = 60.0) -> None:
    """Wait until the journal holds so many events of a name."""
    async with asyncio.timeout(within_s):
        while Counter(entry["event"] for entry in archive.journal(started.folder))[event] < count:
            assert started.process.returncode is None, await started.ended()
            await asyncio.sleep(0.01)


async def killed(started: Started) -> Ended:
    started.signal(signal.SIGKILL)
    ended = await started.ended()
    assert ended.status == -signal.SIGKILL
    return ended


async def resume(folder: Path, base: Path, *options: str) -> Ended:
    """Run `calyx-orch run --resume` to its end."""
    words = ("run", "--resume", folder, *options)
    return await (await start(*words, folder=folder, cwd=base)).ended(within_s=WITHIN_S)


def cells(record: RunRecord) -> list[tuple[Any, ...]]:
    """What was measured: every round's workload, engine and seed, and each guest's answer."""
    by_index = {one.index: one for one in record.plan.rounds}
    return [
        (m.round_index, m.block, m.workload, m.engine, m.guest, m.status, by_index[m.round_index].seed)
        for m in sorted(record.measurements, key=lambda m: (m.round_index, m.guest))
    ]


KILLS = [  # the event after which the controller is killed, how often it has been by then, and how much later
    ("run.json", 0, 0.0),
    ("deployed", 1, 0.0),
    ("deployed", 2, 0.15),
    ("prepared", 1, 0.0),
    ("round", 1, 0.0),
    ("Ready", 1, 0.0),
    ("Armed", 2, 0.0),
    ("Started", 1, 0.3),
    ("Reported", 1, 0.0),
    ("done", 2, 0.0),
    ("done", 4, 0.4),
    ("Started", 11, 0.2),
    ("Reported", 16, 0.0),
    ("done", 8, 0.0),
    ("cleaned", 1, 0.0),
]


@pytest.mark.timeout(600)
@pytest.mark.slow
@pytest.mark.parametrize("kills", [KILLS[:5], KILLS[5:10], KILLS[10:]], ids=["before rounds", "in rounds", "late"])
async def test_a_controller_killed_anywhere_is_resumed_to_the_same_rounds(
    kills: list[tuple[str, int, float]], tmp_path: Path
) -> None:
    """SIGKILL at 15 points; what stands in the end is what an undisturbed run of the same seed measured."""
    need_root("fio")
    async with guests_up(2, tmp_path) as fleet:
        inventory = inventory_yaml(fleet, body=ROUNDS)
        whole = tmp_path / "whole"
        whole.mkdir()
        expected = cells((await run(inventory, whole, "--quiet")).record)
        assert len(expected) == 16
        for number, (event, count, later_s) in enumerate(kills):
            base = tmp_path / f"kill{number}"
            base.mkdir()
            await check_kill(fleet, inventory, base, event, count, later_s, expected)


@pytest.mark.slow
@pytest.mark.parametrize(("event", "count", "later_s"), [("Started", 11, 0.2)])
async def test_a_controller_killed_in_a_round_is_resumed(
    event: str, count: int, later_s: float, tmp_path: Path
) -> None:
    """In round 6 of 8: the four rounds of the first workload stand, the other block is measured whole."""
    need_root("fio")
    async with guests_up(2, tmp_path) as fleet:
        ended = await check_kill(fleet, inventory_yaml(fleet, body=ROUNDS), tmp_path, event, count, later_s, None)
        rounds = cells(ended.record)
        assert [one[0] for one in rounds] == [at // 2 for at in range(16)]
        (resumed,) = ended.record.resumed
        assert (resumed.kept, resumed.again) == (4, 2)
        assert "4 of 8 rounds stand, 4 are to be measured, 2 of them again" in ended.out
        assert "the run was resumed after 4 of 8 rounds and a gap of" in ended.out
        assert (ended.folder / "report.html").exists()
        assert "Resumed" in (ended.folder / "report.html").read_text()
        again = await resume(ended.folder, tmp_path)
        assert again.status == 2
        assert "nothing is missing" in again.err


async def check_kill(
    fleet: LoopbackFleet, inventory: str, base: Path, event: str, count: int, later_s: float, expected: list[Any] | None
) -> Ended:
    """Kill a controller there, resume at once, and look at the whole."""
    started = await start_run(inventory, base, "--quiet")
    if event == "run.json":
        async with asyncio.timeout(30):
            while not (started.folder / "run.json").exists():
                await asyncio.sleep(0.002)
    else:
        await until_event(started, event, count)
        await asyncio.sleep(later_s)
    await killed(started)
    ended = await resume(started.folder, base)
    assert ended.status == 0, ended.out + ended.err
    assert ended.record.status == "finished"
    assert {one.state for one in ended.record.outcomes} == {"measured"}
    if expected is not None:
        assert cells(ended.record) == expected, (event, count)
    say(f"killed after {count} {event}: {ended.record.resumed[0].kept} rounds stood; {await nothing_left(fleet):.2f} s")
    return ended


@pytest.mark.parametrize(
    ("number", "status"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), (signal.SIGHUP, 129)]
)
async def test_an_interrupted_run_is_resumed_and_measures_only_what_is_missing(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    """The rounds that stand keep their figures to the last digit."""
    body = ROUNDS.replace("[fio-io_uring]", "none").replace("repetitions: 1", "repetitions: 2")
    async with guests_up(1, tmp_path) as fleet:
        started = await start_run(inventory_yaml(fleet, body=body), tmp_path)
        await until_event(started, "Started", 3)
        started.signal(number)
        ended = await started.ended()
        assert ended.status == status
        before = (ended.folder / "measurements.jsonl").read_text().splitlines()
        assert json.loads(before[2])["status"] == "stopped"
        after = await resume(ended.folder, tmp_path, "--json")
        assert after.status == 0, after.err
        assert (ended.folder / "measurements.jsonl").read_text().splitlines()[:2] == before[:2]
        assert [m.round_index for m in after.record.measurements] == [0, 1, 2, 3]
        assert strict_json(after.out)["run"]["resumed"][0]["kept"] == 2
        await nothing_left(fleet)


async def test_a_resume_waits_for_the_agent_of_the_dead_controller(tmp_path: Path) -> None:
    """Its agent is stopped, so that it cannot end with its channel: it holds the directory until it goes on."""
    async with guests_up(1, tmp_path) as fleet:
        started = await start_run(inventory_yaml(fleet, body=ROUNDS.replace("[fio-io_uring]", "none")), tmp_path)
        await until_event(started, "Started", 1)
        agents = [pid for pid, words in left_processes(fleet).items() if "calyx-agent-" in words.split(" ")[0]]
        for pid in agents:
            os.kill(pid, signal.SIGSTOP)
        try:
            await killed(started)
            words = ("run", "--resume", started.folder)
            again = await start(*words, folder=started.folder, cwd=tmp_path)
            await again.until(
                "guest1: waiting for the agent of the controller that died, which still uses the directory"
            )
        finally:
            for pid in agents:
                os.kill(pid, signal.SIGCONT)
        ended = await again.ended()
        assert ended.status == 0, ended.out + ended.err
        assert [m.status for m in ended.record.measurements] == ["ok", "ok"]
        await nothing_left(fleet)


async def test_two_controllers_never_write_one_run(tmp_path: Path) -> None:
    """A run that is going on is not resumed; exit code 2 names the process."""
    async with guests_up(1, tmp_path) as fleet:
        started = await start_run(inventory_yaml(fleet, body=ROUNDS.replace("[fio-io_uring]", "none")), tmp_path)
        await until_event(started, "deployed")
        other = await resume(started.folder, tmp_path)
        assert other.status == 2
        assert f"its controller (process {started.process.pid} on " in other.err
        assert (await started.ended()).status == 0


async def test_an_edited_inventory_is_refused_and_a_new_address_is_not(tmp_path: Path) -> None:
    """With INVENTORY guests may be reached otherwise; whatever would be measured otherwise is named."""
    async with guests_up(1, tmp_path) as fleet:
        text = inventory_yaml(fleet, body=ROUNDS.replace("[fio-io_uring]", "none"))
        started = await start_run(text, tmp_path)
        await until_event(started, "done", 1)
        await killed(started)
        edited = tmp_path / "edited.yaml"
        edited.write_text(text.replace("iodepth: 4", "iodepth: 8"))
        refused = await (
            await start("run", edited, "--resume", started.folder, folder=started.folder, cwd=tmp_path)
        ).ended()
        assert refused.status == 2
        assert "workload randread: iodepth was 4, is 8" in refused.err
        narrowed = await resume(started.folder, tmp_path, "--repetitions", "3")
        assert narrowed.status == 2
        assert "--resume goes on with the plan of the run" in narrowed.err
        edited.write_text(text.replace("address: 127.0.0.1", "address: localhost") + "# a comment\n")
        ended = await (
            await start("run", edited, "--resume", started.folder, folder=started.folder, cwd=tmp_path)
        ).ended()
        assert ended.status == 0, ended.out + ended.err
