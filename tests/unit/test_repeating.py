"""Repetitions end in whole blocks, when the interval is narrow or the blocks are used up, and say which."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from measured import guest, measurement, record, round_
from test_resume import killed_at, plan_for, play, resumed

from calyx_orch.analysis import repeating
from calyx_orch.analysis.summary import summarise
from calyx_orch.errors import InventoryErrors
from calyx_orch.inventory import parse
from calyx_orch.model import Measurement, Plan, Round, Until
from calyx_orch.plan import make
from calyx_orch.report import facts
from calyx_orch.store import archive
from calyx_orch.workloads import read_presets

ONE, TWO = guest("vm1"), guest("vm2")


def blocks_of(*rates: tuple[Sequence[float], Sequence[float]]) -> tuple[list[Round], list[Measurement]]:
    """Blocks A B B A of two engines on one guest; of each block the IOPS of both turns of calyx, then of fio."""
    rounds, found = [], []
    for block, (ours, theirs) in enumerate(rates):
        for engine, iops in (("calyx", ours[0]), ("fio", theirs[0]), ("fio", theirs[1]), ("calyx", ours[1])):
            rounds.append(round_(len(rounds), ["vm1"], engine=engine, block=block))
            found.append(measurement(ONE, rounds[-1], iops))
    return rounds, found


def test_the_half_width_is_students() -> None:
    """Of 9, 10, 11: t(2) = 4.3027, s = 1, so 4.3027 / sqrt(3) / 10."""
    assert repeating.half_width([9.0, 10.0, 11.0]) == pytest.approx(4.30265 / math.sqrt(3) / 10, rel=1e-5)
    assert repeating.half_width([9.0]) is None
    assert repeating.half_width([0.0, 0.0]) is None


def test_the_interval_covers_the_mean_in_95_of_100() -> None:
    draw = random.Random(1)
    hits = 0
    for _ in range(2000):
        values = [draw.gauss(100, 4) for _ in range(5)]
        width = repeating.half_width(values)
        assert width is not None
        mean = sum(values) / 5
        hits += abs(mean - 100) <= width * mean
    assert 0.935 <= hits / 2000 <= 0.965


def test_the_engine_with_the_widest_interval_decides() -> None:
    """Turns of a block are one value: calyx swings within its blocks only, fio between them."""
    rounds, found = blocks_of(((90, 110), (90, 90)), ((110, 90), (100, 100)), ((95, 105), (110, 110)))
    blocks, width = repeating.widest(rounds, found)
    assert blocks == 3
    assert width == pytest.approx(repeating.half_width([90, 100, 110]), rel=1e-3)


def test_a_block_that_was_not_measured_whole_is_none() -> None:
    rounds, found = blocks_of(((100, 100), (100, 100)), ((101, 101), (101, 101)))
    assert repeating.widest(rounds, found)[0] == 2
    assert repeating.widest(rounds, found[:-1])[0] == 1
    failed = [*found[:-1], replace(found[-1], status="failed")]
    assert repeating.widest(rounds, failed)[0] == 1


def test_a_guest_that_is_lost_later_does_not_make_earlier_blocks_larger() -> None:
    rounds = [round_(block, ["vm1", "vm2"], block=block) for block in range(3)]
    found = [measurement(one, each, 100.0) for each in rounds for one in (ONE, TWO) if one is ONE or each.index < 2]
    assert repeating.widest(rounds, found) == (3, pytest.approx(0.0))


def test_an_engine_that_nobody_has_is_not_waited_for() -> None:
    rounds, found = blocks_of(((100, 100), (100, 100)), ((101, 101), (101, 101)))
    ours = [one for one in found if one.engine == "calyx"]
    assert repeating.widest(rounds, ours)[0] == 2


CELL = repeating.cell_of(round_(0, ["vm1"]))


@pytest.mark.parametrize(
    ("blocks", "width", "is_last", "ends", "narrow"),
    [
        (2, 0.001, False, False, None),  # fewer than the least
        (3, 0.03, False, False, None),
        (3, 0.02, False, True, True),
        (7, 0.03, True, True, False),
        (7, None, True, True, False),
        (7, 0.01, True, True, True),
    ],
)
def test_it_ends_by_the_interval_or_by_the_budget(
    blocks: int, width: float | None, is_last: bool, ends: bool, narrow: bool | None
) -> None:
    found = repeating.settled(CELL, Until(3, 0.02), blocks=blocks, width=width, is_last=is_last)
    assert (found is not None) == ends
    if found is not None:
        assert found.is_narrow is narrow
        assert ("narrow enough" if narrow else "all that were allowed") in found.why


# --- in a run -----------------------------------------------------------------------------------------------------------


def adaptive(interval: float, most: int = 5) -> Plan:
    return plan_for("good1", "good2", repetitions=most, until=Until(3, interval))


def blocks_played(path: Path, workload: str) -> int:
    return len({m.block for m in archive.read(path).measurements if m.workload == workload})


def test_a_run_skips_the_blocks_that_are_not_needed_and_says_why(tmp_path: Path) -> None:
    plan = adaptive(0.5)
    folder = archive.RunFolder.create(tmp_path, plan)
    play(folder, plan)
    found = archive.read(folder.path)
    assert [blocks_played(folder.path, name) for name in ("randread", "randwrite")] == [3, 3]
    assert [(one.blocks, one.is_narrow) for one in found.plan.settled] == [(3, True), (3, True)]
    assert all(row.rounds == row.rounds_planned and row.status == "ok" for row in summarise(found).guests)
    journal = [entry for entry in archive.journal(folder.path) if entry["event"] == "settled"]
    assert [len(entry["skipped"]) for entry in journal] == [8, 8]
    table = facts.settled(found)
    assert table is not None
    assert [row[-1] for row in table.rows] == ["narrow enough"] * 2


def test_a_run_whose_interval_stays_wide_plays_all_and_says_so(tmp_path: Path) -> None:
    plan = adaptive(0.000001, most=4)
    folder = archive.RunFolder.create(tmp_path, plan)
    play(folder, plan)
    found = archive.read(folder.path)
    assert len(found.measurements) == 2 * len(plan.rounds)
    assert [(one.blocks, one.is_narrow) for one in found.plan.settled] == [(4, False), (4, False)]


@pytest.mark.parametrize(("event", "count"), [("done", 5), ("settled", 1), ("settled", 2)])
def test_a_resume_decides_as_the_undisturbed_run(
    event: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = killed_at(event, count, adaptive(0.5), tmp_path, monkeypatch)
    resumed(path)
    found = archive.read(path)
    assert found.status == "finished"
    assert [blocks_played(path, name) for name in ("randread", "randwrite")] == [3, 3]
    assert [one.blocks for one in found.plan.settled] == [3, 3]


# --- in an inventory ----------------------------------------------------------------------------------------------------

INVENTORY = """
defaults: {{targets: {{data: /data}}}}
guests: {{vm1: {{}}}}
workloads: [quick]
repetitions: {said}
"""


def read(said: str) -> tuple[int, Until | None]:
    found = parse(INVENTORY.format(said=said), source="x", base_dir="", presets=read_presets())
    return found.repetitions, found.until


def test_an_inventory_says_how_narrow_and_how_often() -> None:
    assert read("4") == (4, None)
    assert read("{min: 4, max: 9, until: {cv_interval: 0.02}}") == (9, Until(4, 0.02))
    assert read("{until: {cv_interval: 3%}}") == (15, Until(3, 0.03))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("{min: 9, max: 4, until: {cv_interval: 0.02}}", "less than 'min'"),
        ("{min: 3, max: 4, until: {cv_interval: 2}}", "no share"),
        ("{min: 3, max: 4}", "missing key 'until' in repetitions"),
        ("{min: 2, until: {cv_interval: 2%}}", "'min' must be at least 3, not '2'"),
    ],
)
def test_what_makes_no_sense_is_refused(said: str, words: str) -> None:
    with pytest.raises(InventoryErrors, match=words):
        read(said)


def test_repetitions_of_the_command_line_are_fixed() -> None:
    found = parse(INVENTORY.format(said="{until: {cv_interval: 3%}}"), source="x", base_dir="", presets=read_presets())
    assert make(found, repetitions=2, seed=1).inventory.until is None
    plan = make(found, seed=1)
    assert plan.inventory.until == Until(3, 0.03)
    assert any("3 to 15 blocks" in note for note in plan.notes)
    assert dict(facts.header(record((ONE,), [], [], plan=plan)))["Rounds"].endswith("until the throughput is ± 3.00 %")
