"""Preconditioning ends when it is steady or its budget does, stands in plan and journal, and enters no figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from measured import guest, measurement, round_
from test_resume import READ, WRITE, killed_at, plan_for, play, resumed

from calyx_orch.analysis import conditioning
from calyx_orch.analysis.summary import summarise
from calyx_orch.errors import UsageError
from calyx_orch.inventory import parse
from calyx_orch.model import Direction, Histogram, Measurement, Plan, Precondition, Round, Rw, Workload
from calyx_orch.plan import describe, from_json, to_json
from calyx_orch.report.frames import frame_of
from calyx_orch.store import archive
from calyx_orch.workloads import read_presets

VM = guest("vm1")
WRITING = Workload("randwrite", Rw.RANDWRITE, 4096, 32, runtime_s=60.0, ramp_s=10.0)


def rounds_of(*rates: float, planned: int = 25) -> tuple[list[Round], list[Measurement]]:
    rounds = [round_(at, ["vm1"], block=at, workload=WRITING) for at in range(planned)]
    found = []
    for one, iops in zip(rounds, rates, strict=False):
        written = Direction(round(60 * iops), round(60 * iops) * 4096, Histogram())
        found.append(replace(measurement(VM, one, iops), read=None, write=written))
    return rounds, found


BUDGET = Precondition(max_s=1800.0)


@pytest.mark.parametrize(
    ("rates", "is_steady"),
    [
        ((1000, 1000, 1000, 1000), None),
        ((1000, 1000, 1000, 1000, 1000), True),
        ((3000, 2000, 1500, 1200, 1100), None),
        ((3000, 2000, 1500, 1200, 1000, 990, 1005, 1010, 1000), True),
    ],
)
def test_it_ends_at_the_first_steady_window(rates: tuple[float, ...], is_steady: bool | None) -> None:
    rounds, found = rounds_of(*rates)
    ended = conditioning.ended(rounds, rounds, found, BUDGET)
    assert (ended.is_steady if ended else None) is is_steady
    if ended is not None:
        assert ended.rounds == len(rates)


def test_it_ends_with_its_rounds_and_says_so() -> None:
    rounds, found = rounds_of(3000, 2500, 2000, 1500, 1000, planned=5)
    ended = conditioning.ended(rounds, rounds, found, BUDGET)
    assert ended is not None
    assert not ended.is_steady
    assert ended.why == "not steady after 5 rounds, all that its time has room for"


def test_it_ends_before_its_bytes_are_exceeded() -> None:
    """A round of 1000 IOPS writes 4096 * 1000 * 70 bytes, its ramp included."""
    each = 4096 * 1000 * 70
    rounds, found = rounds_of(1000, 1000)
    assert conditioning.written_bytes(rounds, found) == 2 * each
    assert conditioning.ended(rounds, rounds, found, replace(BUDGET, max_bytes=3 * each)) is None
    ended = conditioning.ended(rounds, rounds, found, replace(BUDGET, max_bytes=3 * each - 1))
    assert ended is not None
    assert "would exceed" in ended.why


# --- in a plan and a run ------------------------------------------------------------------------------------------------


def conditioned_plan(**changes: Any) -> Plan:
    return plan_for("good1", "good2", precondition=Precondition(**{"max_s": 40.0, **changes}))


def test_the_plan_has_its_rounds_before_all_others_and_charges_them() -> None:
    """2.5 s and 1.5 s around it: 40 s have room for ten rounds of the workload that writes."""
    plan, plain = conditioned_plan(), plan_for("good1", "good2")
    assert [one.index for one in plan.conditioning] == list(range(10))
    assert {one.workload.name for one in plan.conditioning} == {"randwrite"}
    assert {one.engine for one in plan.conditioning} == {"calyx"}
    assert [one.index for one in plan.rounds] == [one.index + 10 for one in plain.rounds]
    assert [one.seed for one in plan.rounds] == [one.seed for one in plain.rounds]
    assert plan.estimated_s > plain.estimated_s + 39
    assert describe(plan)[0].rounds == describe(plain)[0].rounds + 10
    assert from_json(to_json(plan)) == plan


def test_of_levels_the_fullest_is_preconditioned_whatever_the_other_loads_are() -> None:
    levels = replace(WRITE, guests_at="p99<2ms")
    plan = plan_for("good1", "good2", workloads=(levels,), precondition=Precondition(40.0))
    assert {(one.load_name, one.guests) for one in plan.conditioning} == {("density 2", ("good1", "good2"))}


def test_a_budget_without_room_and_a_plan_without_writes_are_refused() -> None:
    with pytest.raises(UsageError, match="no room for 5 rounds"):
        conditioned_plan(max_s=12.0)
    with pytest.raises(UsageError, match="none of the workloads writes"):
        plan_for("good1", workloads=(READ,), precondition=Precondition(40.0))
    named = plan_for("good1", workloads=(READ,), precondition=Precondition(40.0, None, ("randread",)))
    assert named.conditioning


def test_its_rounds_are_in_the_journal_and_in_no_figure(tmp_path: Path) -> None:
    plan = conditioned_plan()
    folder = archive.RunFolder.create(tmp_path, plan)
    play(folder, plan)
    record = archive.read(folder.path)
    assert record.status == "finished"
    (found,) = record.plan.conditioned
    assert (found.workload, found.is_steady, found.rounds) == ("randwrite", True, 5)
    assert [one.index for one in record.plan.conditioning] == list(range(5))
    played = {entry["round"] for entry in archive.journal(folder.path) if entry["event"] == "done"}
    assert set(range(5)) <= played
    assert not played & set(range(5, 10)), "what was not needed was not played"
    assert {m.round_index for m in record.measurements} == played
    summary = summarise(record)
    assert all(row.rounds == row.rounds_planned for row in summary.guests)
    assert set(frame_of(record, summary).measurements["round"]) == {one.index for one in record.plan.rounds}


@pytest.mark.parametrize("count", [3, 5, 7])
def test_a_resume_goes_on_with_it_or_behind_it(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = killed_at("done", count, conditioned_plan(), tmp_path, monkeypatch)
    resumed(path)
    record = archive.read(path)
    assert record.status == "finished"
    assert [one.rounds for one in record.plan.conditioned] == [5]
    indices = [m.round_index for m in record.measurements if m.guest == "good1"]
    assert sorted(indices) == sorted({*range(5), *(one.index for one in record.plan.rounds)})


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("{until: steady, max: 30m, max_bytes: 100g}", Precondition(1800.0, 100 << 30)),
        ("{}", Precondition(1800.0)),
        ("{workloads: randread-4k}", Precondition(1800.0, None, ("randread-4k",))),
    ],
)
def test_an_inventory_says_how_long_and_how_much(said: str, wanted: Precondition) -> None:
    text = "defaults: {targets: {data: /data}}\nguests: {vm1: {}}\nworkloads: [four-corners]\nprecondition: "
    assert parse(text + said, source="x", base_dir="", presets=read_presets()).precondition == wanted
