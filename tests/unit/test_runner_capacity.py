"""A run with load points against the fake fleet: capacity is measured, one rate is pinned, and the same is used to the end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from measured import guest, measurement
from test_resume import killed_at, play, resumed
from test_resume import plan_for as quick_plan

from calyx_orch import plan as planning
from calyx_orch.analysis.summary import summarise
from calyx_orch.commands.run import exit_code
from calyx_orch.model import LoadPoint, Plan, RunRecord
from calyx_orch.plan import capacity
from calyx_orch.runner import buffers
from calyx_orch.store import archive
from calyx_orch.transport.simulated import Script
from unit.test_runner import READ, events_of, plan_for, run

POINTS = tuple(
    replace(READ, name=f"randread-load{100 * share:g}", arrival="constant", load_share=share) for share in (0.25, 0.5)
)


def pointed(*addresses: str, **changes: Any) -> Plan:
    return plan_for(*addresses, workloads=POINTS, **changes)


def capacity_of(record: RunRecord) -> dict[str, float]:
    """What each guest did in the closed loop, IOPS."""
    (loop,) = record.plan.capacity
    mine = [m for m in record.measurements if m.round_index == loop.index]
    return {m.guest: m.total_ios * 1e9 / m.window_ns for m in mine}


def test_every_guest_is_given_the_rate_that_the_slowest_allows(tmp_path: Path) -> None:
    """The closed loop in front, then each share of the lowest figure: sent to all, done by all, and written down."""
    ended, folder = run(pointed("good1", "good2", "good3"), tmp_path)
    record = archive.read(folder.path)
    assert (ended.status, exit_code(record)) == ("finished", 0)
    did = capacity_of(record)
    assert set(did) == {"good1", "good2", "good3"}
    slowest = min(did, key=lambda name: did[name])
    quarter, half = record.plan.load_points
    for point, share in ((quarter, 0.25), (half, 0.5)):
        assert (point.share, point.guest, point.engine, point.load) == (share, slowest, "calyx", "together")
        assert point.rate_iops == int(share * did[slowest])
        mine = [m for m in record.measurements if m.workload == point.workload and m.round_index]
        assert len(mine) == 3
        for m in mine:
            assert m.total_ios * 1e9 / m.window_ns == pytest.approx(point.rate_iops, rel=0.01)
            assert m.read is not None
            assert m.read.latency_intended is not None, "it was an open loop"
    assert {one.workload.rate_iops for one in record.plan.rounds} == {quarter.rate_iops, half.rate_iops}
    (told,) = [event for event in events_of(folder) if event["event"] == "load points"]
    assert told["points"] == [json.loads(json.dumps(vars(point))) for point in (quarter, half)]


def test_the_closed_loop_enters_no_figure(tmp_path: Path) -> None:
    """Rows are of the rounds, at their rates; the loop's own figures are far above."""
    _, folder = run(pointed("good1", "good2"), tmp_path)
    record = archive.read(folder.path)
    rates = {point.workload: point.rate_iops for point in record.plan.load_points}
    rows = summarise(record).guests
    assert {row.workload for row in rows} == set(rates)
    for row in rows:
        assert row.iops == pytest.approx(rates[row.workload], rel=0.01)
        assert row.rounds == row.rounds_planned
        assert "open loop" in row.labels
        assert any(label.endswith("of capacity") for label in row.labels)


def test_a_guest_that_is_lost_before_its_capacity_is_known_does_not_count(tmp_path: Path) -> None:
    """The rate is that of those that are left."""
    ended, folder = run(pointed("good1", "dying1"), tmp_path)
    record = archive.read(folder.path)
    assert [one.state for one in ended.outcomes] == ["measured", "lost"]
    assert {point.guest for point in record.plan.load_points} == {"good1"}


def test_without_any_capacity_the_points_are_left_out_and_the_rest_is_measured(tmp_path: Path) -> None:
    """The closed loop's answers make no sense: nothing is offered at a rate that nobody knows."""
    loops = iter(range(100))

    def cut(name: str, text: str) -> str:
        return text[: len(text) // 2] + "}]" if name == "result" and next(loops) == 0 else text

    plan = plan_for("good1", workloads=(*POINTS, READ))
    ended, folder = run(plan, tmp_path, scripts={"good1": Script(bend_document=cut)})
    record = archive.read(folder.path)
    assert record.plan.load_points == ()
    assert {m.workload for m in record.measurements if m.round_index} == {"randread"}
    assert [note for note in ended.notes if "randread-load25 on data is left out" in note]
    assert exit_code(record) == 3


def test_a_point_is_rehearsed_without_its_rate() -> None:
    """It is not known yet; the set-up that takes effect is the same."""
    rehearsed = buffers.rehearsed(POINTS[0])
    assert (rehearsed.arrival, rehearsed.rate_iops, rehearsed.load_share) == ("closed", None, None)


def test_without_registered_buffers_capacity_is_measured_without_them_too() -> None:
    """What is measured of capacity is what the rounds run with, so the rates are found again."""
    plan = pointed("good1", "good2")
    taken = {"good1": {(one.name, "data"): {"fixed_buffers": False} for one in POINTS}}
    plan, _ = buffers.without(plan, buffers.gaps(plan, taken, {}))
    assert {one.workload.buffers for one in (*plan.capacity, *plan.rounds)} == {"plain"}
    (loop,) = plan.capacity
    shown = [measurement(guest(name), loop, 5e4) for name in loop.guests]
    assert len(capacity.points(plan, shown)) == 2


POINTED = replace(POINTS[1], name="half")


@pytest.mark.parametrize(("event", "count"), [("round", 1), ("done", 1), ("load points", 1), ("done", 2)])
def test_a_run_that_is_continued_keeps_its_rate(
    event: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever its controller died: one rate for the rounds before and after, and the loop played no more than needed."""
    plan = quick_plan("good1", "good2", workloads=(POINTED,))
    path = killed_at(event, count, plan, tmp_path, monkeypatch)
    before = planning.from_json((path / "plan.json").read_text())
    resumed(path)
    record = archive.read(path)
    assert record.status == "finished"
    (point,) = record.plan.load_points
    if before.load_points:
        assert record.plan.load_points == before.load_points
    assert {one.workload.rate_iops for one in record.plan.rounds} == {point.rate_iops}
    for m in record.measurements:
        if m.round_index:
            assert m.total_ios * 1e9 / m.window_ns == pytest.approx(point.rate_iops, rel=0.01)
    indices = sorted((m.round_index, m.guest) for m in record.measurements)
    assert indices == sorted((one.index, name) for one in record.plan.all_rounds for name in one.guests)


def test_the_rate_is_in_the_folder_before_the_first_round_that_has_it(tmp_path: Path) -> None:
    """A controller that dies in that round finds it there."""
    plan = quick_plan("good1", workloads=(POINTED,))
    folder = archive.RunFolder.create(tmp_path, plan)
    play(folder, plan)
    entries = archive.journal(folder.path)
    events = [entry["event"] for entry in entries]
    pinned = events.index("load points")
    assert [entry.get("round") for entry in entries[:pinned] if entry["event"] == "round"] == [0]
    kept = [entry["file"] for entry in entries[:pinned] if entry["event"] == "kept"]
    assert kept[-1] == "plan.json"
    assert isinstance(archive.read(folder.path).plan.load_points[0], LoadPoint)
