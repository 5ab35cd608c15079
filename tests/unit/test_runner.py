"""A whole run against the fake fleet: every joint from connecting to the run folder, without network or waiting."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from calyx_orch import plan as planning
from calyx_orch import runner
from calyx_orch.analysis import summary, verdict
from calyx_orch.commands.run import exit_code, tell
from calyx_orch.errors import RefusedError
from calyx_orch.model import (
    Baselines,
    Connection,
    Guest,
    Inventory,
    LoadMode,
    Plan,
    Policy,
    Rw,
    Target,
    TransportKind,
    Workload,
)
from calyx_orch.report import facts, screen
from calyx_orch.report.live import Silent
from calyx_orch.runner import preflight, preparing, rounds
from calyx_orch.runner.session import Session
from calyx_orch.store import archive
from calyx_orch.transport import Pool
from calyx_orch.transport.simulated import Script, Simulation
from calyx_orch.transport.simulated_agent import SKEW_NS

READ = Workload("randread", Rw.RANDREAD, iodepth=8, size_bytes=64 << 20, runtime_s=2.0, ramp_s=0.5)


def plan_for(*addresses: str, **changes: object) -> Plan:
    """A plan for simulated guests; the address says how each behaves (see transport/simulated.py)."""
    guests = tuple(
        Guest(
            address,
            Connection(address, transport=TransportKind.SIMULATED),
            (Target("data", "/data"),),
            vm_host=f"hv{i % 2}",
        )
        for i, address in enumerate(addresses)
    )
    inventory = Inventory("test", guests, (READ,), repetitions=1, settle_s=1.0, text="guests: {}\n")
    return planning.make(replace(inventory, **changes), seed=5)  # type: ignore[arg-type]


def run(
    plan: Plan, tmp_path: Path, cache: runner.Cache | None = None, scripts: Mapping[str, Script] | None = None
) -> tuple[runner.Ended, archive.RunFolder]:
    """Run a plan on the fake fleet."""

    async def go() -> runner.Ended:
        async with Pool(simulation=Simulation(seed=3, scripts=scripts or {})) as pool:
            return await runner.run(
                plan, folder=folder, live=Silent(), interrupted=asyncio.Event(), pool=pool, cache=cache
            )

    folder = archive.RunFolder.create(tmp_path, plan)
    try:
        return asyncio.run(go()), folder
    finally:
        folder.close()


def test_good_guests_are_measured_by_every_engine_in_every_round(tmp_path: Path) -> None:
    """Two guests, calyx and fio, one ABBA block: eight measurements, all good, all read back from the folder."""
    ended, folder = run(plan_for("good1", "good2"), tmp_path)
    assert [outcome.state for outcome in ended.outcomes] == ["measured", "measured"]
    record = archive.read(folder.path)
    assert record.status == "finished"
    assert len(record.measurements) == 8
    assert {m.status for m in record.measurements} == {"ok"}
    assert {m.engine for m in record.measurements} == {"calyx", "fio-io_uring"}
    assert all(m.total_ios > 0 and m.skew_ns is not None for m in record.measurements)
    assert replace(record.plan, pins=()) == plan_for("good1", "good2")


def test_one_bad_guest_of_each_kind_costs_nobody_else_a_result(tmp_path: Path) -> None:
    """Unreachable, dying in the run, lying: one clear line each; the good guests' results stand."""
    ended, folder = run(plan_for("good1", "unreachable1", "dying1", "lying1", "good2"), tmp_path)
    states = {outcome.guest: (outcome.state, outcome.step) for outcome in ended.outcomes}
    assert states["good1"][0] == states["good2"][0] == "measured"
    assert states["unreachable1"] == ("lost", "connect")
    assert states["dying1"][0] == states["lying1"][0] == "lost"
    assert all(outcome.reason and "\n" not in outcome.reason for outcome in ended.outcomes if outcome.state == "lost")
    good = [m for m in archive.read(folder.path).measurements if m.guest == "good1"]
    assert [m.status for m in good] == ["ok"] * len(good)


def test_a_silent_guest_is_given_up_after_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once armed it says nothing more: the others wait for it no longer than ramp, runtime and grace."""
    monkeypatch.setattr(rounds, "REPORT_GRACE_S", -13.0)
    ended, _ = run(plan_for("good1", "silent1"), tmp_path)
    silent = ended.outcomes[1]
    assert (silent.state, silent.step) == ("lost", "round 1")
    assert "no result within" in silent.reason
    assert ended.outcomes[0].state == "measured"


def test_a_named_baseline_that_is_missing_refuses_before_any_guest_starts(tmp_path: Path) -> None:
    """The refusal names guest and engine; nothing was laid out."""
    plan = plan_for("good1", "fioless1", baselines=Baselines(("fio-io_uring",), auto=False))
    with pytest.raises(RefusedError, match=r"guest fioless1: fio-io_uring: .*fio"):
        run(plan, tmp_path)
    journal = next(tmp_path.glob("*/journal.jsonl")).read_text()
    assert "prepared" not in journal


@pytest.mark.parametrize("baselines", [Baselines(), Baselines(("fio-io_uring",), auto=False, skip_when_missing=True)])
def test_a_guest_without_fio_keeps_its_calyx_figures(tmp_path: Path, baselines: Baselines) -> None:
    """`auto` and `when_missing: skip` go without, in words."""
    ended, folder = run(plan_for("good1", "fioless1", baselines=baselines), tmp_path)
    fioless = ended.outcomes[1]
    assert fioless.state == "measured"
    assert any("no fio-io_uring baseline" in note for note in fioless.notes)
    engines = {(m.guest, m.engine) for m in archive.read(folder.path).measurements}
    assert engines == {("good1", "calyx"), ("good1", "fio-io_uring"), ("fioless1", "calyx")}


def test_the_policy_stop_ends_the_run_at_the_first_loss(tmp_path: Path) -> None:
    """With `stop`, a guest that cannot be reached means that nobody is measured."""
    ended, folder = run(plan_for("good1", "unreachable1", policy=Policy("stop")), tmp_path)
    assert ended.status == "failed"
    assert any("policy" in note for note in ended.notes)
    assert archive.read(folder.path).measurements == ()


@pytest.mark.parametrize(
    ("policy", "status", "code", "rounds"),
    [
        (Policy(), "finished", 3, 4),
        (Policy("stop"), "failed", 3, 0),
        (Policy(quorum=0.8), "finished", 0, 4),
        (Policy(quorum=0.9), "failed", 3, 0),
    ],
)
def test_the_policy_decides_how_a_run_with_a_lost_guest_ends(
    policy: Policy, status: str, code: int, rounds: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of five cannot be reached: go on, stop, or go on while the quorum holds; a met one is 0, with a warning."""
    plan = plan_for("good1", "good2", "unreachable1", "good3", "good4", policy=policy)
    _, folder = run(plan, tmp_path)
    record = archive.read(folder.path)
    assert record.plan.inventory.policy == policy, "it is data in the plan"
    assert (record.status, exit_code(record)) == (status, code)
    assert len({m.round_index for m in record.measurements}) == rounds
    assert [(one.state, one.step) for one in record.outcomes if one.guest == "unreachable1"] == [("lost", "connect")]
    tell(record, screen.console(), as_json=False)
    said = capsys.readouterr().out
    warned = "warning: 1 of 5 guests were not measured whole; the quorum of 80 % is met, so the exit code is 0" in said
    assert warned is (code == 0)


def test_a_guest_that_only_fails_a_round_stops_a_run_whose_policy_says_so(tmp_path: Path) -> None:
    """It missed its start line and lives on; the run ends all the same, in that very round."""
    plan = plan_for("good1", "good2", policy=Policy("stop"))
    _, folder = run(plan, tmp_path, scripts={"good2": Script(lines_missed=1)})
    record = archive.read(folder.path)
    assert record.status == "failed"
    assert {m.round_index for m in record.measurements} == {0}
    assert any("stopped in round 1 by the policy: 1 of 2 guests are left" in note for note in record.notes)


def test_no_space_is_one_line_of_the_final_table_with_what_is_needed_and_there(tmp_path: Path) -> None:
    """State, step and reason of the guest, with both figures."""

    def full(message: dict[str, object]) -> list[bytes]:
        if message["type"] == "facts":
            message = {**message, "paths": [{**entry, "free_bytes": 1 << 20} for entry in message["paths"]]}  # type: ignore[attr-defined]
        return [json.dumps(message).encode()]

    _, folder = run(plan_for("good1", "good2"), tmp_path, scripts={"good2": Script(bend=full)})
    table = facts.failures(archive.read(folder.path))
    assert table is not None
    ((guest, state, step, reason),) = table.rows
    assert (guest, state, step) == ("good2", "lost", "preflight")
    assert re.search(r"no space left on /data \(needs [0-9.]+ [MG]iB[^)]*, has 1 MiB\)", reason), reason


def test_staggered_guests_share_one_measured_window(tmp_path: Path) -> None:
    """Starts are apart by the stagger; the windows are the same."""
    plan = plan_for("good1", "good2", "good3", load=(LoadMode.STAGGERED,), stagger_s=0.5, baselines=Baselines(()))
    _, folder = run(plan, tmp_path)
    first = [m for m in archive.read(folder.path).measurements if m.round_index == 0]
    lines = sorted(m.start_line_ns for m in first)
    assert [lines[1] - lines[0], lines[2] - lines[1]] == [500_000_000, 500_000_000]
    begins = [m.window_start_ns for m in first]
    assert max(begins) - min(begins) < 20_000_000


def test_an_interrupt_before_the_rounds_ends_the_run_cleanly(tmp_path: Path) -> None:
    """The folder says interrupted and can be read."""
    plan = plan_for("good1")
    folder = archive.RunFolder.create(tmp_path, plan)

    async def go() -> runner.Ended:
        bell = asyncio.Event()
        bell.set()
        async with Pool(simulation=Simulation()) as pool:
            return await runner.run(plan, folder=folder, live=Silent(), interrupted=bell, pool=pool)

    assert asyncio.run(go()).status == "interrupted"
    folder.close()
    assert archive.read(folder.path).status == "interrupted"


def test_the_journal_names_every_event_with_its_time(tmp_path: Path) -> None:
    """Lines are JSON, times never run backwards within a round."""
    _, folder = run(plan_for("good1"), tmp_path)
    events = [json.loads(line) for line in (folder.path / "journal.jsonl").read_text().splitlines()]
    assert {"deployed", "prepared", "round", "Opened", "Ready", "Armed", "Started", "Reported", "cleaned"} <= {
        event["event"] for event in events
    }
    assert all(isinstance(event["at_ns"], int) for event in events)


def test_folders_are_private(tmp_path: Path) -> None:
    """0700 and 0600: results may name machines."""
    _, folder = run(plan_for("good1"), tmp_path)
    modes = {path.stat().st_mode & 0o777 for path in folder.path.rglob("*") if path.is_file()}
    assert modes == {0o600}
    folders = [folder.path, *(path for path in folder.path.rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


def test_a_run_cut_off_in_its_last_line_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """A controller killed while it wrote loses that line only."""
    _, folder = run(plan_for("good1"), tmp_path)
    path = folder.path / "measurements.jsonl"
    whole = archive.read(folder.path).measurements
    path.write_bytes(path.read_bytes()[:-100])
    record = archive.read(folder.path)
    assert record.measurements == whole[:-1]
    assert any("cut off" in note for note in record.notes)


def test_both_engines_find_the_disk_equally_rested(tmp_path: Path) -> None:
    """No start line is nearer than a second to the loading of its round, which fio takes to start and calyx does not."""
    _, folder = run(plan_for("good1"), tmp_path)
    events = [json.loads(line) for line in (folder.path / "journal.jsonl").read_text().splitlines()]
    opened = {}
    for event in events:
        if event["event"] == "round":
            current = event["round"]
        elif event["event"] == "Opened":
            opened[current] = event["at_ns"]
    rests = [m.start_line_ns - opened[m.round_index] for m in archive.read(folder.path).measurements]
    assert min(rests) >= 990_000_000
    assert len(rests) == 4


LONG = replace(READ, runtime_s=60.0, ramp_s=10.0)


def test_like_guests_are_calibrated_once_and_pinned_in_the_plan(tmp_path: Path) -> None:
    """Two like guests: one leads, both are pinned to one choice, what is sent says so, and a second run takes it from the cache."""
    plan = plan_for("good1", "good2", workloads=(LONG,), baselines=Baselines(()))
    path = tmp_path / "calibration.json"
    _, folder = run(plan, tmp_path, runner.Cache(path))
    record = archive.read(folder.path)
    pins = {pin.guest: pin for pin in record.plan.pins}
    assert set(pins) == {"good1", "good2"}
    assert len({(pin.setup, pin.refill) for pin in pins.values()}) == 1
    assert {(pin.how, pin.leader) for pin in pins.values()} == {("calibrated", "good1")}
    (took,) = {(m.setup["took"], m.setup["refill"]) for m in record.measurements}
    assert took == (pins["good1"].setup, pins["good1"].refill)
    trials = [event for event in events_of(folder) if event["event"] == "trial"]
    tried = Counter((event["trial"]["candidate"]["setup"], event["trial"]["candidate"]["refill"]) for event in trials)
    assert len(tried) == 8
    assert all(3 <= count <= 9 for count in tried.values()), tried
    assert {event["guest"] for event in trials} == {"good1"}
    _, again = run(plan, tmp_path, runner.Cache(path))
    assert {pin.how for pin in archive.read(again.path).plan.pins} == {"cached"}
    assert not [event for event in events_of(again) if event["event"] == "trial"]
    _, anew = run(plan, tmp_path, runner.Cache(path, fresh=True))
    assert {pin.how for pin in archive.read(anew.path).plan.pins} == {"calibrated"}
    assert "calibrated on good1" in str(facts.setups(record))


def test_a_short_workload_is_not_calibrated(tmp_path: Path) -> None:
    """It takes the ladder, and the pin says why."""
    _, folder = run(plan_for("good1"), tmp_path)
    (pin,) = archive.read(folder.path).plan.pins
    assert (pin.setup, pin.how) == ("auto", "ladder")
    assert "short" in pin.why


def test_a_named_setup_has_no_pin(tmp_path: Path) -> None:
    _, folder = run(plan_for("good1", workloads=(replace(LONG, setup="coop"),)), tmp_path)
    assert archive.read(folder.path).plan.pins == ()


def test_floor_and_truth_are_facts_of_each_guest(tmp_path: Path) -> None:
    """Asked after the layout, kept in the folder, shown in the table of guests."""
    _, folder = run(plan_for("good1", "good2"), tmp_path)
    record = archive.read(folder.path)
    assert all(facts_["floor"]["ns_per_io"] == 180 for facts_ in record.facts.values())
    assert all(facts_["truth"]["data"]["flush_write_ns"] == 900_000 for facts_ in record.facts.values())
    table = facts.guests(record)
    assert table is not None
    (floor, truth) = table.rows[0][-2:]
    assert floor == "180 ns per I/O, P99 420 ns"
    assert "write and flush 900" in truth


def test_a_search_finds_what_the_disk_can_do(tmp_path: Path) -> None:
    """The scripted disk does about 80 000 IOPS at depth 8: the highest rate that holds lies just below, and stands in the record."""
    searched = replace(READ, name="find", find="iops_at p99<1ms")
    ended, folder = run(plan_for("good1", "good2", workloads=(searched,)), tmp_path)
    record = archive.read(folder.path)
    assert ended.status == "finished"
    (found,) = record.found
    assert found.rate_iops is not None
    assert found.broke_iops is not None
    assert 60_000 < found.rate_iops < found.broke_iops < 100_000
    assert found.broke_iops <= found.rate_iops * 1.05
    assert len(record.plan.rounds) == len(found.probes)
    assert len(record.measurements) == 2 * len(found.probes)
    assert facts.searches(record) is not None
    assert "fio" not in {m.engine for m in record.measurements}


def events_of(folder: archive.RunFolder) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder.path / "journal.jsonl").read_text().splitlines()]


def test_a_start_line_that_passed_costs_a_guest_that_round_and_no_other(tmp_path: Path) -> None:
    """Stalled while it was armed, it still holds its job: it is brought to rest and runs again in the next round."""
    ended, folder = run(plan_for("good1", "stalling1"), tmp_path)
    assert [outcome.state for outcome in ended.outcomes] == ["measured", "partial"]
    stalled = [m for m in archive.read(folder.path).measurements if m.guest == "stalling1"]
    assert [m.status for m in stalled] == ["failed", "ok", "ok", "ok"]
    assert "start line" in stalled[0].why


def test_files_that_stayed_are_a_failure_with_their_path(tmp_path: Path) -> None:
    """The figures stand, but the guest is not as it was: exit code 3, in the table of failures and in the closing sentence."""
    path = "/data/.calyx-orch-simula/job.0"
    ended, folder = run(plan_for("good1", "messy1"), tmp_path, scripts={"messy1": Script(stays=(path,))})
    messy = ended.outcomes[1]
    assert (ended.outcomes[0].state, messy.state, messy.step) == ("measured", "partial", "clean")
    assert messy.reason == f"could not remove {path}: Operation not permitted: remove it by hand"
    record = archive.read(folder.path)
    assert {m.status for m in record.measurements} == {"ok"}
    assert exit_code(record) == 3
    table = facts.failures(record)
    assert table is not None
    assert path in table.rows[0][-1]
    assert path in verdict.sentence(record, summary.summarise(record))


PREPARE_S = {"quick": 0.1, "slow": 2.0, "slowest": 8.0}
PREPARING = {name: Script(prepare_s=seconds) for name, seconds in PREPARE_S.items()}


def test_no_guest_begins_before_the_slowest_has_laid_out_its_files(tmp_path: Path) -> None:
    """A-025: laying out takes 0.1, 2 and 8 s; it is a phase of its own, and the start spread is told.

    A simulated guest begins within SKEW_NS of its line. It answers before its line has come, so that the clocks of before and
    after a round are drawn out beyond both, and the bound that is told grows with it: the skew that is told stays within it.
    """
    ended, folder = run(plan_for(*PREPARE_S, repetitions=5), tmp_path, scripts=PREPARING)
    assert [outcome.state for outcome in ended.outcomes] == ["measured"] * 3
    events = events_of(folder)
    prepared_ns = {event["guest"]: int(str(event["at_ns"])) for event in events if event["event"] == "prepared"}
    assert list(prepared_ns) == list(PREPARE_S)
    assert 7.5e9 < prepared_ns["slowest"] - prepared_ns["quick"] < 12e9
    record = archive.read(folder.path)
    assert min(m.start_line_ns for m in record.measurements) > prepared_ns["slowest"]
    for round_ in record.plan.rounds:
        assert len({m.start_line_ns for m in record.measurements if m.round_index == round_.index}) == 1
    for m in record.measurements:
        assert m.skew_ns is not None
        assert m.skew_bound_ns is not None
        assert abs(m.skew_ns) <= m.skew_bound_ns + SKEW_NS
    rows = summary.summarise(record).fleet
    assert [(row.engine, row.guests, row.rounds_shared) for row in rows] == [("calyx", 3, 10), ("fio-io_uring", 3, 10)]
    for row in rows:
        largest_ns = [
            max(abs(m.skew_ns or 0) for m in record.measurements if m.round_index == one.index)
            for one in record.plan.rounds
            if one.engine == row.engine
        ]
        assert row.skew_median_ns == median(largest_ns)
        assert min(largest_ns) < 1_000_000, "one round in ten the machine does nothing else"


def test_laying_out_has_a_time_out_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-025: who takes longer is left out with the reason, and the others do not wait for it any longer."""
    bytes_s = READ.size_bytes / preparing.LAYOUT_BYTES_PER_S_MIN
    monkeypatch.setattr(preparing, "LAYOUT_GRACE_S", 3.0 - bytes_s)
    ended, _ = run(plan_for(*PREPARE_S), tmp_path, scripts=PREPARING)
    assert [outcome.state for outcome in ended.outcomes] == ["measured", "measured", "lost"]
    assert ended.outcomes[2].step == "prepare"
    assert ended.outcomes[2].reason == "no answer within 3 s"


def test_what_nobody_had_thought_of_is_one_guest_s_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last net: any exception at one guest's step leaves that guest out, with the traceback in the journal."""
    real = preflight.inspect

    async def inspect(session: Session, plan: Plan) -> None:
        await real(session, plan)
        if session.guest.name == "odd1":
            raise ZeroDivisionError("never seen before")

    monkeypatch.setattr(preflight, "inspect", inspect)
    ended, folder = run(plan_for("good1", "odd1"), tmp_path)
    assert [outcome.state for outcome in ended.outcomes] == ["measured", "lost"]
    assert ended.outcomes[1].reason == "unexpected, see the journal: ZeroDivisionError: never seen before"
    assert "Traceback" in (folder.path / "journal.jsonl").read_text()
