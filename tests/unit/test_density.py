"""With more and more guests at once: who runs, what each place then does, and how many it carries within a budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from measured import WORKLOAD, guest, measurement, record, round_
from test_resume import READ, plan_for, play

from calyx_orch.analysis.density import budget_of
from calyx_orch.analysis.summary import summarise
from calyx_orch.errors import InventoryErrors
from calyx_orch.inventory import parse
from calyx_orch.model import LoadMode, RunRecord
from calyx_orch.plan import from_json, make, to_json
from calyx_orch.plan.order import density_sets
from calyx_orch.report import figures
from calyx_orch.report.frames import frame_of
from calyx_orch.store import archive
from calyx_orch.workloads import read_presets

GUESTS = tuple(guest(f"vm{at}", "hv1" if at < 4 else "hv2", "pool") for at in range(6))  # four on hv1, two on hv2


def sets(*levels: int, most: int | None = None) -> list[tuple[int, list[str]]]:
    return [(level, [one.name for one in of]) for level, of in density_sets(GUESTS, levels, most)]


def test_so_many_guests_of_each_vm_host_run_and_all_is_all() -> None:
    assert sets(1, 2, 0) == [
        (1, ["vm0", "vm4"]),
        (2, ["vm0", "vm1", "vm4", "vm5"]),
        (4, ["vm0", "vm1", "vm2", "vm3", "vm4", "vm5"]),
    ]
    assert sets(4, 0, 99) == sets(4), "a level that is reached is played once"
    assert [level for level, _ in sets(1, 2, 0, most=2)] == [1, 2]
    assert density_sets((), (1,), None) == ()


def levels(budget: str | None, p99s_us: dict[int, int], *, iops: float = 12_000.0) -> RunRecord:
    """Rounds with 1, 2 and 4 guests of a vm_host at once, that share 12 000 IOPS; P99 by how many they are."""
    workload = replace(WORKLOAD, guests_at=budget)
    rounds, found = [], []
    for level, of in density_sets(GUESTS, (1, 2, 0), None):
        names = [one.name for one in of]
        rounds.append(round_(len(rounds), names, load=LoadMode.DENSITY, density=level, workload=workload))
        for one in of:
            at_once = min(level, 4 if one.vm_host == "hv1" else 2)
            latency = (100_000,) * 98 + (1000 * p99s_us[at_once],) * 2
            made = measurement(one, rounds[-1], iops / at_once, latency_ns=latency)
            found.append(replace(made, load=rounds[-1].load_name))
    return record(GUESTS, rounds, found)


def test_a_place_has_a_row_for_each_number_of_its_guests() -> None:
    rows = [row for row in summarise(levels(None, {1: 500, 2: 900, 4: 3000})).density if row.scope == "vm_host"]
    assert [(row.name, row.guests) for row in rows] == [("hv1", 1), ("hv1", 2), ("hv1", 4), ("hv2", 1), ("hv2", 2)]
    assert [row.kept for row in rows[:3]] == [pytest.approx(1.0), pytest.approx(0.5), pytest.approx(0.25)]
    assert [row.throughput_bytes_per_s for row in rows] == [pytest.approx(12_000 * 4096)] * 5
    assert [row.p99_ns for row in rows[:3]] == [pytest.approx(us * 1000, rel=0.01) for us in (500, 900, 3000)]
    assert {row.holds for row in rows} == {None}


def test_a_storage_counts_the_guests_of_all_its_vm_hosts() -> None:
    rows = [row for row in summarise(levels(None, {1: 500, 2: 900, 4: 3000})).density if row.scope == "storage"]
    assert [(row.name, row.guests) for row in rows] == [("pool", 2), ("pool", 4), ("pool", 6)]


@pytest.mark.parametrize(
    ("budget", "held", "broke"),
    [("p99<2ms", 2, 4), ("p99<10ms", 4, None), ("p99<300us", None, 1), ("mean<1ms", 4, None)],
)
def test_a_vm_host_carries_as_many_guests_as_hold_the_budget(budget: str, held: int | None, broke: int | None) -> None:
    summary = summarise(levels(budget, {1: 500, 2: 900, 4: 3000}))
    row = next(row for row in summary.carried if row.name == "hv1")
    assert (row.guests_held, row.guests_broke, row.guests_most, row.why) == (held, broke, 4, "")


def test_a_budget_that_breaks_and_holds_again_is_not_held_beyond() -> None:
    row = next(row for row in summarise(levels("p99<2ms", {1: 500, 2: 3000, 4: 900})).carried if row.name == "hv1")
    assert (row.guests_held, row.guests_broke) == (1, 2)


def test_too_few_samples_are_no_verdict() -> None:
    row = next(
        row for row in summarise(levels("p99.9<2ms", {1: 5, 2: 9, 4: 30}, iops=40.0)).carried if row.name == "hv1"
    )
    assert (row.guests_held, row.guests_broke) == (None, None)
    assert row.why == "too few samples with 1 guests"


def test_budgets_are_read() -> None:
    assert budget_of("p99.9<1.5ms") == (99.9, 1_500_000)
    assert budget_of("mean<200us") == (None, 200_000)
    with pytest.raises(ValueError, match="no budget"):
        budget_of("p99>2ms")


INVENTORY = """
defaults: {{targets: {{data: /data}}}}
vm_hosts: {{hv1: {{}}}}
guests: {{"vm[1:6]": {{vm_host: hv1}}}}
workloads: [{{name: r, rw: randread, size: 1g{find}}}]
load: {load}
"""


def read(load: str, find: str = "") -> object:
    return parse(INVENTORY.format(load=load, find=find), source="x", base_dir="", presets=read_presets())


def test_an_inventory_names_levels_beside_other_loads() -> None:
    plan = make(read("[alone, {density: [1, 2, all]}]"), seed=1)  # type: ignore[arg-type]
    assert list(dict.fromkeys(one.load_name for one in plan.rounds)) == ["alone", "density 1", "density 2", "density 6"]
    assert from_json(to_json(plan)) == plan
    for bad, says in {"[0]": "'0' is no number", "[some]": "'some' is no number", "[]": "'density' is empty"}.items():
        with pytest.raises(InventoryErrors, match=says):
            read(f"{{density: {bad}}}")


def test_guests_are_searched_for_by_levels_of_their_own_and_by_calyx_alone() -> None:
    plan = make(read("together", ", find: \"guests_at 'p99<2ms'\""), seed=1)  # type: ignore[arg-type]
    assert {one.load_name for one in plan.rounds} == {"density 1", "density 2", "density 4", "density 6"}
    assert {one.engine for one in plan.rounds} == {"calyx"}
    assert plan.searches == ()
    assert plan.rounds[0].workload.guests_at == "p99<2ms"


def test_a_run_with_levels_is_measured_and_drawn(tmp_path: Path) -> None:
    plan = plan_for("good1", "good2", workloads=(READ,), repetitions=1, load=(LoadMode.DENSITY,), density=(1, 0))
    assert [one.load_name for one in plan.rounds] == ["density 1"] * 4 + ["density 2"] * 4
    folder = archive.RunFolder.create(tmp_path, plan)
    play(folder, plan)
    found = archive.read(folder.path)
    assert {m.load for m in found.measurements} == {"density 1", "density 2"}
    summary = summarise(found)
    assert [row.load for row in summary.fleet] == ["density 1"] * 2 + ["density 2"] * 2
    assert summary.density == ()  # these guests are on no vm_host
    some = levels(None, {1: 5, 2: 9, 4: 30})
    drawn = figures.load("density")(frame_of(some, summarise(some)))
    assert next(list(trace.x) for trace in drawn.data if trace.name == "hv1") == [1, 2, 4]
