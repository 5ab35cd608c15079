"""However a run against the fake fleet ends: no task is left, no round begins that must not, and no guest is lost to our own haste."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from calyx_orch import runner
from calyx_orch.model import (
    AbortIf,
    Baselines,
    Guest,
    Impact,
    Plan,
    Policy,
    Precondition,
    Rw,
    Window,
)
from calyx_orch.report.live import Silent
from calyx_orch.runner.fleet import Fleet
from calyx_orch.store import archive
from calyx_orch.transport import Pool
from calyx_orch.transport.simulated import Script, Simulation
from report_records import run_record
from unit.test_harm import old_io
from unit.test_runner import LONG, READ, plan_for, run

FIND = replace(READ, name="find", find="iops_at p99<1ms")
WRITE = replace(READ, name="randwrite", rw=Rw.RANDWRITE)


class Watched(Silent):
    """Rings when a phase begins."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.reached = asyncio.Event()

    def phase(self, text: str) -> None:
        if text.startswith(self.words):
            self.reached.set()


async def left_at_once(plan: Plan, folder: archive.RunFolder, words: str, scripts: dict[str, Script]) -> list[str]:
    """Cancel a run when a phase has begun, as a second interrupt does. Returns the tasks that live on."""
    live = Watched(words)
    async with Pool(simulation=Simulation(seed=3, scripts=scripts)) as pool:
        going = asyncio.create_task(runner.run(plan, folder=folder, live=live, interrupted=asyncio.Event(), pool=pool))
        async with asyncio.timeout(10):
            await live.reached.wait()
        going.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await going
        return [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@pytest.mark.parametrize("words", ["laying out files on", "round 1 of"])
def test_a_run_that_is_left_at_once_leaves_no_task_and_no_channel(words: str, tmp_path: Path) -> None:
    """Whatever it was at ends with it: nothing goes on to connect, to write in the folder or to talk to an agent."""
    plan = plan_for("good1", "slow1")
    folder = archive.RunFolder.create(tmp_path, plan)
    prepare_s = 30.0 if words.startswith("laying") else 0.0
    try:
        assert asyncio.run(left_at_once(plan, folder, words, {"slow1": Script(prepare_s=prepare_s)})) == []
    finally:
        folder.close()
    assert archive.read(folder.path).status == "interrupted"


@pytest.mark.parametrize(
    ("statuses", "state"),
    [((), "skipped"), (("stopped",), "skipped"), (("ok", "stopped"), "measured"), (("ok", "failed"), "partial")],
)
def test_a_guest_is_measured_when_it_has_figures(statuses: tuple[str, ...], state: str) -> None:
    """One whose only round was stopped by an interrupt has none."""
    record = run_record(1, per_host=1, blocks=1)
    guest = record.plan.inventory.guests[0]
    first = next(m for m in record.measurements if m.guest == guest.name)
    fleet = Fleet(cast(Any, None), Silent(), cast(Any, None))
    fleet.answered[guest.name] = [replace(first, status=status) for status in statuses]
    assert fleet.outcome(guest).state == state


def test_an_interrupt_is_heard_while_devices_settle(tmp_path: Path) -> None:
    """Before a round has begun nothing is waited for: neither the device that stays busy nor a clock."""
    plan = plan_for("busy1", settle_s=60.0)
    folder = archive.RunFolder.create(tmp_path, plan)

    async def go() -> tuple[runner.Ended, float]:
        live, bell = Watched("round 1 of"), asyncio.Event()
        async with Pool(simulation=Simulation(scripts={"busy1": Script(settle_s=50.0)})) as pool:
            going = asyncio.create_task(runner.run(plan, folder=folder, live=live, interrupted=bell, pool=pool))
            async with asyncio.timeout(10):
                await live.reached.wait()
            bell.set()
            began = time.monotonic()
            return await going, time.monotonic() - began

    ended, took_s = asyncio.run(go())
    folder.close()
    assert (ended.status, archive.read(folder.path).measurements) == ("interrupted", ())
    assert took_s < 5.0
    assert [entry["guest"] for entry in archive.journal(folder.path) if entry["event"] == "cleaned"] == ["busy1"]


def test_a_guest_that_takes_long_to_clean_hears_that_we_live(tmp_path: Path) -> None:
    """Its lease is shorter than its cleaning, and than what is usually let pass from word to word: it cleans to the end, and says so."""
    plan = with_leases(plan_for("slow1", baselines=Baselines(())), 0.5)
    ended, folder = run(plan, tmp_path, scripts={"slow1": Script(clean_s=1.5)})
    assert [one.state for one in ended.outcomes] == ["measured"]
    assert not [note for note in ended.outcomes[0].notes if "not confirmed" in note]
    assert [entry["guest"] for entry in archive.journal(folder.path) if entry["event"] == "cleaned"] == ["slow1"]


def with_leases(plan: Plan, dead_man_s: float) -> Plan:
    guests: tuple[Guest, ...] = tuple(replace(one, dead_man_s=dead_man_s) for one in plan.inventory.guests)
    return replace(plan, inventory=replace(plan.inventory, guests=guests))


def test_a_trial_that_missed_its_start_line_costs_no_guest(tmp_path: Path) -> None:
    """It still holds that job: it is brought to rest, takes the first set-up there is, and is measured in every round."""
    plan = plan_for("stalling1", workloads=(LONG,), baselines=Baselines(()))
    ended, folder = run(plan, tmp_path)
    record = archive.read(folder.path)
    assert [one.state for one in ended.outcomes] == ["measured"]
    (pin,) = record.plan.pins
    assert (pin.how, "the start line has passed" in pin.why) == ("ladder", True)
    assert {m.status for m in record.measurements} == {"ok"}


def closed_now() -> Window:
    """A window that is closed whenever the test runs: it opens in an hour, for an hour."""
    now = time.gmtime()
    begin = (now.tm_hour * 60 + now.tm_min + 60) % 1440
    return Window(begin, (begin + 60) % 1440, "UTC")


def test_no_round_begins_outside_of_the_window_whatever_it_is_for(tmp_path: Path) -> None:
    """Rounds of a preconditioning and of a search write and read as much as others do."""
    impact = Impact(window=closed_now())
    for number, plan in enumerate(
        (
            plan_for("good1", workloads=(WRITE,), impact=impact, precondition=Precondition(max_s=60.0)),
            plan_for("good1", workloads=(FIND,), impact=impact),
        )
    ):
        (tmp_path / str(number)).mkdir()
        ended, folder = run(plan, tmp_path / str(number))
        assert ended.status == "interrupted"
        assert archive.read(folder.path).measurements == ()
        (note,) = ended.notes
        assert "impact.window" in note
        assert "`calyx-orch run --resume` goes on with it" in note


def test_a_workload_that_harms_while_preconditioning_is_not_run_again(tmp_path: Path) -> None:
    """Neither to precondition nor to measure; the others are."""
    plan = plan_for(
        "good1", workloads=(WRITE, READ), baselines=Baselines(()), impact=Impact(abort_if=AbortIf(latency_above_ns=1)),
        precondition=Precondition(max_s=60.0),
    )  # fmt: skip
    assert len(plan.conditioning) >= 5
    ended, folder = run(plan, tmp_path, scripts={"good1": Script(bend=old_io)})
    rounds = [entry["round"] for entry in archive.journal(folder.path) if entry["event"] == "round"]
    first_read = next(one.index for one in plan.rounds if one.workload.name == "randread")
    assert rounds == [0, first_read], "one round of each, as both harm"
    assert sum("is not run again in this run" in note for note in ended.notes) == 2


def test_a_policy_that_stops_ends_a_run_in_a_search(tmp_path: Path) -> None:
    """Not only that search: the run is over, and is not called finished."""
    other = replace(FIND, name="another")
    plan = plan_for("good1", "good2", workloads=(FIND, other), policy=Policy("stop"))
    ended, folder = run(plan, tmp_path, scripts={"good2": Script(lines_missed=1)})
    assert ended.status == "failed"
    assert {m.round_index for m in archive.read(folder.path).measurements} == {0}
    assert ended.notes == ("stopped in round 1 by the policy: 1 of 2 guests are left",)


def test_a_guest_with_rounds_of_a_preconditioning_only_is_not_measured(tmp_path: Path) -> None:
    """The run ended before its first figure."""
    plan = plan_for(
        "good1", "dying1", workloads=(WRITE,), baselines=Baselines(()), policy=Policy("stop"),
        precondition=Precondition(max_s=60.0),
    )  # fmt: skip
    ended, _ = run(plan, tmp_path)
    assert ended.status == "failed"
    assert [one.state for one in ended.outcomes] == ["skipped", "lost"]
