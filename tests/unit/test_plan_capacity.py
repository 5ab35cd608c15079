"""Load points: which closed loops measure capacity, and the one rate for all that follows from the slowest guest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from measured import guest, measurement

from calyx_orch import inventory
from calyx_orch import plan as planning
from calyx_orch.errors import InventoryErrors
from calyx_orch.model import (
    Baselines,
    Impact,
    Inventory,
    LoadMode,
    Measurement,
    Plan,
    Precondition,
    Round,
    Rw,
    Workload,
)
from calyx_orch.plan import capacity, choice, describe, from_json, to_json
from calyx_orch.plan.standing import standing, strangers
from calyx_orch.workloads import read_presets

BASE = Workload("lookup", Rw.RANDREAD, iodepth=8, numjobs=2, size_bytes=64 << 20)
A, B = guest("a", "hv1"), guest("b", "hv2")


def at(share: float, base: Workload = BASE) -> Workload:
    return replace(base, name=f"{base.name}-load{100 * share:g}", arrival="constant", load_share=share)


def plan_for(*workloads: Workload, **changes: Any) -> Plan:
    plain = Inventory("n", (A, B), workloads, repetitions=2, baselines=Baselines())
    return planning.make(replace(plain, **changes), seed=3)


def shown(plan: Plan, iops: dict[str, float]) -> list[Measurement]:
    """What each guest shows in every round that measures capacity."""
    by_name = {one.name: one for one in (A, B)}
    return [measurement(by_name[name], one, iops[name]) for one in plan.capacity for name in one.guests]


def test_points_of_one_pattern_share_a_short_closed_loop_in_front_of_all_rounds() -> None:
    """One for each target, load and set of guests, by the engine that runs them; what has no share has none."""
    plan = plan_for(at(0.25), at(0.5), BASE, load=(LoadMode.TOGETHER, LoadMode.PER_DOMAIN))
    found = [(one.index, one.load, one.guests, one.engine) for one in plan.capacity]
    assert found == [
        (0, LoadMode.TOGETHER, ("a", "b"), "calyx"),
        (1, LoadMode.PER_DOMAIN, ("a",), "calyx"),
        (2, LoadMode.PER_DOMAIN, ("b",), "calyx"),
    ]
    for one in plan.capacity:
        loop = one.workload
        assert (loop.name, loop.arrival, loop.load_share, loop.rate_iops) == ("lookup-load25", "closed", None, None)
        assert (loop.ramp_s, loop.runtime_s, loop.iodepth, loop.numjobs) == (1.0, 3.0, 8, 2)
    assert [one.index for one in plan.rounds] == list(range(3, 3 + len(plan.rounds)))
    assert plan.all_rounds == (*plan.capacity, *plan.rounds)
    assert plan_for(BASE).capacity == ()


def test_what_is_shorter_than_a_capacity_loop_stays_as_short() -> None:
    (one,) = plan_for(at(0.5, replace(BASE, ramp_s=0.1, runtime_s=0.5, interval_ms=50))).capacity
    assert (one.workload.ramp_s, one.workload.runtime_s, one.workload.interval_ms) == (0.1, 0.5, 50)


def test_patterns_that_differ_have_a_capacity_each() -> None:
    plan = plan_for(at(0.5), at(0.5, replace(BASE, name="deep", iodepth=32)))
    assert [one.workload.iodepth for one in plan.capacity] == [8, 32]


def test_every_guest_is_offered_the_share_of_what_the_slowest_did() -> None:
    """30 000 IOPS of the slower guest by two jobs: 3750 and 7500 a job, whatever the faster one can do."""
    plan = plan_for(at(0.25), at(0.5))
    points = capacity.points(plan, shown(plan, {"a": 50_000, "b": 30_000}))
    assert [(one.workload, one.share, one.rate_iops, one.guest) for one in points] == [
        ("lookup-load25", 0.25, 3750, "b"),
        ("lookup-load50", 0.5, 7500, "b"),
    ]
    assert {round(one.capacity_iops) for one in points} == {30_000}
    pinned = capacity.pinned(plan, points)
    rates = {(one.workload.name, one.workload.rate_iops) for one in pinned.rounds}
    assert rates == {("lookup-load25", 3750), ("lookup-load50", 7500)}
    assert all(one.workload.is_open_loop for one in pinned.rounds)
    assert (pinned.load_points, capacity.without_rate(pinned)) == (points, ())
    assert "3,750 IOPS a job are 25 % of 30,000 IOPS, the least that a guest did (b, calyx, together)" in (
        capacity.sentence(points[0])
    )


def test_the_lowest_counts_over_all_loads_that_the_plan_has() -> None:
    """Alone a guest does more than together: the rate is one that both can be compared at."""
    plan = plan_for(at(0.5), load=(LoadMode.TOGETHER, LoadMode.ALONE))
    by_load = {LoadMode.TOGETHER: 20_000.0, LoadMode.ALONE: 60_000.0}
    found = [measurement(A, one, by_load[one.load]) for one in plan.capacity if "a" in one.guests]
    (point,) = capacity.points(plan, found)
    assert (point.rate_iops, point.load) == (5000, "together")
    assert {one.workload.rate_iops for one in capacity.pinned(plan, (point,)).rounds} == {5000}


@pytest.mark.parametrize("changes", [{"status": "failed"}, {"read": None}, {"window_end_ns": 0}])
def test_a_guest_that_showed_nothing_is_not_the_slowest(changes: dict[str, Any]) -> None:
    plan = plan_for(at(0.5))
    (one,) = plan.capacity
    found = [measurement(A, one, 40_000), replace(measurement(B, one, 10), **changes)]
    (point,) = capacity.points(plan, found)
    assert (point.guest, point.rate_iops) == ("a", 10_000)
    assert capacity.points(plan, found[1:]) == ()
    assert capacity.without_rate(capacity.pinned(plan, ())) == (("lookup-load50", "data"),)


def test_measured_rounds_show_no_capacity() -> None:
    """An open loop does what it is told; only the closed ones count."""
    plan = plan_for(at(0.5))
    assert capacity.points(plan, [measurement(A, plan.rounds[0], 10)]) == ()


def test_impact_bounds_the_closed_loops_and_with_them_the_rates() -> None:
    """8 MiB/s of 4 KiB are 1024 IOPS a job: no closed loop asks for more, so no share is of more."""
    plan = plan_for(at(0.5), at(1.0), impact=Impact(max_rate_bytes_per_s=8 << 20))
    assert {one.workload.rate_iops for one in plan.capacity} == {1024}
    points = capacity.points(plan, shown(plan, {"a": 2050, "b": 2060}))
    assert [one.rate_iops for one in points] == [512, 1024]


def test_bytes_written_are_bounded_with_the_closed_loops() -> None:
    """Whatever the capacity is: the layout, the closed loop and all rounds at their highest rate stay within."""
    most = 4 << 30
    writing = replace(BASE, rw=Rw.RANDWRITE)
    plan = plan_for(at(1.0, writing), impact=Impact(max_bytes_written=most))
    (total, *_) = (row for row in describe(plan) if row.kind == "guest")
    assert total.written_max_bytes is not None
    assert total.written_max_bytes <= most


def test_a_precondition_runs_the_points_of_one_pattern_once_and_closed() -> None:
    writing = replace(BASE, name="log", rw=Rw.RANDWRITE)
    plan = plan_for(at(0.25, writing), at(0.5, writing), precondition=Precondition(max_s=600.0))
    assert {one.workload.name for one in plan.conditioning} == {"log-load25"}
    assert {(one.workload.arrival, one.workload.load_share) for one in plan.conditioning} == {("closed", None)}
    count = len(plan.conditioning)
    assert [one.index for one in plan.all_rounds] == list(range(len(plan.all_rounds)))
    assert plan.capacity[0].index == count


def test_the_plan_is_read_back_exactly_and_costs_what_it_measures() -> None:
    plan, plain = plan_for(at(0.5)), plan_for(replace(BASE, arrival="constant", rate_iops=5))
    assert plan.estimated_s == pytest.approx(plain.estimated_s + 4.0 + 5.0 + 1.0 + 1.0 + 0.5)
    assert describe(plan)[0].rounds == describe(plain)[0].rounds + 1
    pinned = capacity.pinned(plan, capacity.points(plan, shown(plan, {"a": 5e4, "b": 3e4})))
    assert from_json(to_json(pinned)) == pinned


def test_what_measured_capacity_stands_when_a_run_is_continued() -> None:
    """Its rounds come before all others, and are known as what they were."""
    plan = plan_for(at(0.5))
    (loop,) = plan.capacity
    found = [measurement(one, loop, 1e4) for one in (A, B)]
    entries = [
        {"event": "round", "round": loop.index, "guests": ["a", "b"]},
        {"event": "done", "round": loop.index, "because": "", "wall_s": 1.0},
    ]
    there = standing(plan, entries, found, (), is_finished=False)
    assert there.kept == {loop.index}
    assert there.missing == plan.rounds
    assert strangers(plan, there.kept, found) == []


def test_a_point_is_not_calibrated() -> None:
    """Its class of workloads is that of any open loop, so that choices kept before load points existed are found."""
    assert choice.not_calibrated(at(0.5), Impact(), rate_limited=False) == (
        "an open loop does not show what a set-up costs"
    )
    assert choice.class_of(at(0.5)) == choice.class_of(replace(at(0.5), load_share=None))


def test_parts_are_the_first_round_of_each_workload_and_target_of_a_guest() -> None:
    """What a guest is asked about once; searches as well, and nobody without a part."""
    find = replace(BASE, name="limit", find="iops_at p99<2ms")
    plan = plan_for(BASE, find, load=(LoadMode.PER_DOMAIN,))
    assert set(plan.parts) == {"a", "b"}
    for name, parts in plan.parts.items():
        assert [(one.workload.name, isinstance(one, Round)) for one in parts] == [("lookup", True), ("limit", False)]
        first = next(one for one in plan.rounds if name in one.guests)
        assert parts[0] is first
    assert [one.guest for one in plan.layouts_of["b"]] == ["b"]


# --- in an inventory -------------------------------------------------------------------------------------------------


def workloads_of(said: str) -> tuple[Workload, ...]:
    text = f"guests: {{a: {{targets: {{data: /data}}}}}}\nworkloads: [{{rw: randread, size: 64m, {said}}}]\n"
    return inventory.parse(text, source="t", base_dir="", presets=read_presets()).workloads


def test_each_share_is_a_workload_and_a_rate_in_bytes_stays_one() -> None:
    quarter, half, eighth, bytes_ = workloads_of("rate: [25%, 50%, 12.5%, 20MB/s]")
    shares = [(one.name, one.load_share, one.arrival, one.rate_bytes_per_s) for one in (quarter, half, eighth)]
    assert shares == [
        ("randread-4k-load25", 0.25, "constant", None),
        ("randread-4k-load50", 0.5, "constant", None),
        ("randread-4k-load12.5", 0.125, "constant", None),
    ]
    assert (bytes_.load_share, bytes_.arrival, bytes_.rate_bytes_per_s) == (None, "closed", 20_000_000)


def test_one_share_needs_no_suffix_and_whole_capacity_is_one() -> None:
    (one,) = workloads_of("name: lookup, rate: 100%, arrival: poisson")
    assert (one.name, one.load_share, one.arrival) == ("lookup", 1.0, "poisson")
    assert one.labels == ("open loop", "100 % of capacity")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("rate: 0%", "'rate[0]' must be more than 0|'rate' must be more than 0"),
        ("rate: 120%", "above 100%"),
        ("rate: 50%, rate_iops: 100", "'rate' and 'rate_iops' both bound the rate"),
        ("rate: 50%, arrival: closed", "a share of capacity is an open loop"),
        ("rate: 50%, find: 'iops_at p99<2ms'", "the rate is what is searched for"),
        ("rate: 50%, find: 'guests_at p99<2ms'", "say it by rate_iops"),
        ("rate: 50%, thinktime: 1ms", "an open loop does not think"),
        ("rate: [50%, 50%]", "names a value twice"),
    ],
)
def test_a_share_that_makes_no_sense_is_told(said: str, told: str) -> None:
    with pytest.raises(InventoryErrors) as caught:
        workloads_of(said)
    assert any(one in str(caught.value) for one in told.split("|")), str(caught.value)
