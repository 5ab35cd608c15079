"""A plan holds every round once, in balanced order, within bounds, the same for the same seed."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calyx_orch import plan
from calyx_orch.errors import FormatError, UsageError
from calyx_orch.model import (
    Baselines,
    Connection,
    Guest,
    Impact,
    Inventory,
    LoadMode,
    Place,
    Plan,
    Rw,
    Target,
    TransportKind,
    Workload,
)  # fmt: skip
from calyx_orch.plan.order import guest_sets

GIB = 1 << 30
ALL_FIO = Baselines(("fio-io_uring", "fio-libaio"), auto=False)


def guest(name: str, **said: object) -> Guest:
    targets = said.pop("targets", (Target("data", "/data"),))
    return Guest(name=name, connection=Connection(address=name), targets=targets, **said)  # type: ignore[arg-type]


def fleet(*guests: Guest, **said: object) -> Inventory:
    said.setdefault("workloads", (Workload("w", Rw.RANDREAD),))
    return Inventory(name="n", guests=guests, **said)  # type: ignore[arg-type]


TWO_BY_TWO = (
    guest("a1", vm_host="hv1"),
    guest("a2", vm_host="hv1"),
    guest("b1", vm_host="hv2"),
    guest("b2", vm_host="hv2"),
)


# --- order -------------------------------------------------------------------------------------------------------


def test_one_engine_has_one_turn_a_block() -> None:
    """Without baselines a block is a round."""
    made = plan.make(fleet(guest("a"), baselines=Baselines((), auto=False)), seed=1)
    assert [(one.block, one.engine) for one in made.rounds] == [(0, "calyx"), (1, "calyx"), (2, "calyx")]


def test_two_engines_alternate_abba_and_baab() -> None:
    """Within a block both have the same mean place; blocks begin with either in turn."""
    orders = plan.engine_orders(("A", "B"), 4, random.Random(5))
    assert set(orders) == {("A", "B", "B", "A"), ("B", "A", "A", "B")}
    assert orders[0] != orders[1]
    assert orders[0] == orders[2]


def test_three_engines_follow_a_williams_design() -> None:
    """Over three blocks each engine is once at each place; over six each follows each other twice. For every start."""
    for seed in range(40):
        orders = plan.engine_orders(("A", "B", "C"), 6, random.Random(seed))
        for blocks in (orders[:3], orders[3:]):
            assert all(sorted(place) == ["A", "B", "C"] for place in zip(*blocks, strict=True))
        follows = Counter(pair for order in orders for pair in itertools.pairwise(order))
        assert set(follows.values()) == {2}
        assert len(follows) == 6


def test_the_first_order_is_drawn_by_the_seed() -> None:
    """All beginnings occur, and the same seed draws the same."""
    firsts = {plan.engine_orders(("A", "B", "C"), 1, random.Random(seed))[0] for seed in range(100)}
    assert len(firsts) == 6
    assert len({plan.engine_orders(("A", "B"), 1, random.Random(seed))[0] for seed in range(20)}) == 2


def test_engines_are_adjacent_for_the_same_workload_target_and_guests() -> None:
    """What is compared is measured side by side; blocks follow each other."""
    targets = (Target("ext4", "/e"), Target("xfs", "/x"))
    inventory = fleet(
        guest("a", targets=targets), guest("b", targets=targets[:1]), baselines=ALL_FIO, load=(LoadMode.TOGETHER, LoadMode.ALONE),
        workloads=(Workload("r", Rw.READ), Workload("w", Rw.WRITE, targets=("xfs",))),
    )  # fmt: skip
    rounds = plan.make(inventory, seed=3).rounds
    cells = [(one.block, one.workload.name, one.target, one.load, one.guests) for one in rounds]
    assert [one.index for one in rounds] == list(range(len(rounds)))
    groups = [cells[start : start + 3] for start in range(0, len(cells), 3)]
    assert all(len(set(group)) == 1 for group in groups)
    assert len({group[0] for group in groups}) == len(groups)
    assert [one.block for one in rounds] == sorted(one.block for one in rounds)
    assert {(one.workload.name, one.target, one.guests) for one in rounds if one.load is LoadMode.TOGETHER} == {
        ("r", "ext4", ("a", "b")), ("r", "xfs", ("a",)), ("w", "xfs", ("a",)),
    }  # fmt: skip


# --- load modes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "limit", "sets"),
    [
        (LoadMode.TOGETHER, None, [("a1", "a2", "b1", "b2")]),
        (LoadMode.STAGGERED, None, [("a1", "a2", "b1", "b2")]),
        (LoadMode.PER_DOMAIN, None, [("a1", "a2"), ("b1", "b2")]),
        (LoadMode.ALONE, None, [("a1", "b1"), ("a2", "b2")]),
        (LoadMode.TOGETHER, 1, [("a1", "b1"), ("a2", "b2")]),
        (LoadMode.PER_DOMAIN, 1, [("a1",), ("a2",), ("b1",), ("b2",)]),
    ],
)
def test_who_runs_at_once(load: LoadMode, limit: int | None, sets: list[tuple[str, ...]]) -> None:
    """Domains are vm_hosts here; a limit of guests per domain splits rounds."""
    assert [tuple(one.name for one in part) for part in guest_sets(TWO_BY_TWO, load, limit)] == sets


def test_guests_of_one_storage_are_one_domain() -> None:
    """Whatever their vm_host; alone means one of them at a time."""
    guests = (
        guest("a", vm_host="hv1", storage="csv"),
        guest("b", vm_host="hv2", storage="csv"),
        guest("c", vm_host="hv2"),
    )
    assert [tuple(one.name for one in part) for part in guest_sets(guests, LoadMode.ALONE, None)] == [
        ("a", "c"),
        ("b",),
    ]


@given(
    st.lists(st.sampled_from(["h1", "h2", "h3"]), min_size=1, max_size=20), st.sampled_from(list(LoadMode)),
    st.none() | st.integers(1, 5),
)  # fmt: skip
def test_every_guest_runs_once_and_no_domain_beyond_its_limit(
    places: list[str], load: LoadMode, limit: int | None
) -> None:
    """For any fleet, load mode and limit."""
    guests = tuple(guest(f"g{n}", vm_host=place) for n, place in enumerate(places))
    sets = guest_sets(guests, load, limit)
    assert sorted(one.name for part in sets for one in part) == sorted(one.name for one in guests)
    most = max(max(Counter(one.domain for one in part).values()) for part in sets)
    assert most <= (1 if load is LoadMode.ALONE else limit or len(guests))


# --- choice ------------------------------------------------------------------------------------------------------


CHOICE = fleet(
    guest("hv1-vm01", vm_host="hv1", groups=("g",)), guest("hv1-vm02", vm_host="hv1"), guest("hv2-vm01", vm_host="hv2", storage="csv"),
    workloads=(Workload("seq-qd8", Rw.READ), Workload("seq-qd16", Rw.READ), Workload("rand", Rw.RANDREAD)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "names"),
    [
        (("hv1-vm02",), ["hv1-vm02"]), (("hv1",), ["hv1-vm01", "hv1-vm02"]), (("g",), ["hv1-vm01"]), (("csv",), ["hv2-vm01"]),
        (("hv1*",), ["hv1-vm01", "hv1-vm02"]), (("c*",), ["hv2-vm01"]), (("[gx]",), ["hv1-vm01"]),
        (("hv[1:2]",), ["hv1-vm01", "hv1-vm02", "hv2-vm01"]),
        (("*vm01",), ["hv1-vm01", "hv2-vm01"]), (("hv1-vm[01:02]",), ["hv1-vm01", "hv1-vm02"]), (("csv", "g"), ["hv1-vm01", "hv2-vm01"]),
    ],
)  # fmt: skip
def test_limit_takes_names_globs_ranges_groups_and_places(limit: tuple[str, ...], names: list[str]) -> None:
    """In the order of the inventory."""
    made = plan.make(CHOICE, limit=limit, seed=1)
    assert [one.name for one in made.inventory.guests] == names
    assert {name for one in made.rounds for name in one.guests} == set(names)
    assert {layout.guest for layout in made.layouts} == set(names)


@pytest.mark.parametrize(
    ("written", "names"),
    [("rand", ["rand"]), ("seq", ["seq-qd8", "seq-qd16"]), ("*16", ["seq-qd16"]), ("seq-qd8", ["seq-qd8"])],
)
def test_workloads_by_name_glob_or_the_part_before_a_suffix(written: str, names: list[str]) -> None:
    """`seq` means all that its list was expanded into."""
    assert [one.name for one in plan.make(CHOICE, workloads=[written], seed=1).inventory.workloads] == names


@pytest.mark.parametrize(
    ("limit", "workloads", "reason"),
    [
        (("hv3",), (), r"--limit hv3: no guest, group, vm_host or storage is called that \(did you mean 'hv[12]'\?\)"),
        (("hv1-vm[01:03]",), (), "--limit .*is called hv1-vm03"), (("vm[2:1]",), (), "backwards"),
        ((), ("seq-q8",), r"--workload seq-q8: no workload is called that \(did you mean 'seq-qd8'\?\)"),
    ],
)  # fmt: skip
def test_a_choice_of_nothing_is_refused(limit: tuple[str, ...], workloads: tuple[str, ...], reason: str) -> None:
    """With what comes closest."""
    with pytest.raises(UsageError, match=reason):
        plan.make(CHOICE, limit=limit, workloads=workloads, seed=1)


def test_all_that_nothing_is_called_is_told_at_once_with_what_there_is() -> None:
    """The first of each kind, and how many more; a vm_host is found by a glob that fits no guest's name."""
    many = fleet(*(guest(f"g{n}", vm_host=f"hv{n}") for n in range(9)), workloads=CHOICE.workloads)
    assert [one.name for one in plan.chosen_guests(many, ["hv[12]"])] == ["g1", "g2"]
    with pytest.raises(UsageError) as caught:
        plan.chosen_guests(many, ["nosuch", "g1", "other*"])
    first, second, known = str(caught.value).splitlines()
    assert first.startswith("--limit nosuch: no guest, group, vm_host or storage is called that")
    assert second.startswith("--limit other*: no guest")
    assert (
        known
        == "there are guests: g0, g1, g2, g3, g4, g5 and 3 more; vm_hosts: hv0, hv1, hv2, hv3, hv4, hv5 and 3 more"
    )


def test_repetitions_count_whole_blocks() -> None:
    """Two engines have two turns in each."""
    made = plan.make(CHOICE, repetitions=2, workloads=["rand"], seed=1)
    assert [one.block for one in made.rounds] == [0] * 4 + [1] * 4
    with pytest.raises(UsageError, match="less than 1"):
        plan.make(CHOICE, repetitions=0, seed=1)


# --- seeds -------------------------------------------------------------------------------------------------------


def test_engines_are_asked_for_the_same_offsets() -> None:
    """The n-th turn of every engine in a block has one seed; other turns, blocks and workloads have others."""
    made = plan.make(CHOICE, seed=1)
    by_turn: dict[tuple[object, ...], set[int]] = {}
    turns: Counter[tuple[object, ...]] = Counter()
    for one in made.rounds:
        cell = (one.block, one.workload.name)
        by_turn.setdefault((*cell, turns[(*cell, one.engine)]), set()).add(one.seed)
        turns[(*cell, one.engine)] += 1
    assert all(len(seeds) == 1 for seeds in by_turn.values())
    assert len(set.union(*by_turn.values())) == len(by_turn)
    assert all(0 <= one.seed < 1 << 48 for one in made.rounds)


def test_a_pinned_seed_holds_for_every_round_of_its_workload() -> None:
    """So that offsets can be repeated exactly."""
    made = plan.make(fleet(guest("a"), workloads=(Workload("w", Rw.RANDREAD, seed=7),)), seed=1)
    assert {one.seed for one in made.rounds} == {7}


def test_the_same_seed_gives_the_same_plan_in_another_process() -> None:
    """Whatever the hash seed of that process; another seed gives another plan."""
    program = (
        "from calyx_orch import inventory, plan, workloads\n"
        "fleet = inventory.from_guests(['a', 'b'], target='/d', presets=workloads.read_presets(), workloads=['paper'])\n"
        "print(plan.to_json(plan.make(fleet, seed=11)))\n"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert texts[0] == texts[1]
    made = plan.from_json(texts[0])
    assert plan.make(made.inventory, seed=12).rounds != made.rounds


# --- files, growth, time -----------------------------------------------------------------------------------------


def test_a_layout_is_as_large_as_the_largest_of_its_workloads() -> None:
    """Largest size times most jobs, of those that run on that target."""
    inventory = fleet(
        guest("a", targets=(Target("x", "/x"), Target("y", "/y", allow_ram=True))),
        workloads=(
            Workload("big", Rw.READ, size_bytes=4 * GIB, targets=("x",)),
            Workload("many", Rw.READ, numjobs=8, size_bytes=GIB),
        ),
    )
    x, y = plan.make(inventory, seed=1).layouts
    assert (x.files, x.size_bytes, x.path, x.total_bytes) == (8, 4 * GIB, "/x", 32 * GIB)
    assert (y.files, y.size_bytes, y.allow_ram) == (8, GIB, True)


def test_new_bytes_are_summed_per_place_against_what_is_free_there() -> None:
    """Declared or 64 GiB; a guest on a pool counts on its vm_host only when that declares its space."""
    guests = (
        guest("a", vm_host="hv1"), guest("b", vm_host="hv1"),
        guest("c", vm_host="hv2", storage="csv"), guest("d", vm_host="hv3", storage="csv"),
    )  # fmt: skip
    inventory = fleet(
        *guests, workloads=(Workload("w", Rw.READ, size_bytes=40 * GIB),),
        vm_hosts=(Place("hv1"), Place("hv2", 30 * GIB), Place("hv3")), storage=(Place("csv", 100 * GIB),),
    )  # fmt: skip
    growth = {(one.kind, one.name): one for one in plan.make(inventory, seed=1).growth}
    assert {key: (one.new_bytes // GIB, one.limit_bytes // GIB, one.declared, one.exceeds) for key, one in growth.items()} == {
        ("guest", "a"): (40, 64, False, False), ("guest", "b"): (40, 64, False, False),
        ("guest", "c"): (40, 64, False, False), ("guest", "d"): (40, 64, False, False),
        ("vm_host", "hv1"): (80, 64, False, True), ("vm_host", "hv2"): (40, 30, True, True), ("vm_host", "hv3"): (0, 64, False, False),
        ("storage", "csv"): (80, 100, True, False),
    }  # fmt: skip


def test_a_limited_plan_grows_only_where_its_guests_are() -> None:
    """Guests that do not run write nothing."""
    made = plan.make(fleet(*TWO_BY_TWO), limit=["hv1"], seed=1)
    assert {(one.kind, one.name) for one in made.growth} == {("guest", "a1"), ("guest", "a2"), ("vm_host", "hv1")}


def test_the_estimate_counts_ramp_runtime_settling_probe_and_layout() -> None:
    """Domains lay out side by side; staggered rounds last longer."""
    one = Workload("w", Rw.READ, size_bytes=50 * 10**9, runtime_s=100, ramp_s=20)
    inventory = fleet(
        *TWO_BY_TWO,
        workloads=(one,),
        baselines=Baselines((), auto=False),
        repetitions=1,
        settle_s=2,
        lost_time_probe_s=1,
    )
    together = plan.make(inventory, seed=1).estimated_s
    assert together == pytest.approx(200 + 100 + 20 + 2 + 1, abs=3)
    staggered = plan.make(replace(inventory, load=(LoadMode.STAGGERED,), stagger_s=10), seed=1).estimated_s
    assert staggered == pytest.approx(together + 30)


# --- impact ------------------------------------------------------------------------------------------------------


def test_a_rate_bound_holds_for_all_jobs_and_all_engines() -> None:
    """rate_iops is per job; a workload that is slower already is left alone, and is not labelled."""
    inventory = fleet(
        guest("a"), impact=Impact(max_rate_bytes_per_s=100_000_000),
        workloads=(Workload("fast", Rw.READ, bs_bytes=1 << 20, numjobs=2), Workload("slow", Rw.READ, rate_iops=10)),
    )  # fmt: skip
    made = plan.make(inventory, seed=1)
    by_name = {name: [one for one in made.rounds if one.workload.name == name] for name in ("fast", "slow")}
    assert {one.workload.rate_iops for one in by_name["fast"]} == {47}
    assert all(one.rate_limited for one in by_name["fast"])
    assert {(one.workload.rate_iops, one.rate_limited) for one in by_name["slow"]} == {(10, False)}
    assert len({one.engine for one in by_name["fast"]}) == 2


def test_a_rate_bound_below_one_io_a_second_is_refused() -> None:
    """With the figures."""
    with pytest.raises(
        UsageError, match=r"impact\.max_rate leaves workload 'w' 1 MB/s per guest, less than one I/O of 4 MiB"
    ):
        plan.make(
            fleet(guest("a"), impact=Impact(1_000_000), workloads=(Workload("w", Rw.READ, bs_bytes=4 << 20),)), seed=1
        )


@given(
    st.integers(3, 60).map(lambda gib: gib * GIB), st.integers(1, 3), st.sampled_from([LoadMode.TOGETHER, LoadMode.ALONE]),
    st.sampled_from([Baselines((), auto=False), Baselines(), ALL_FIO]), st.none() | st.integers(1, 5000),
)  # fmt: skip
def test_no_guest_may_write_more_than_its_bound(
    most: int, blocks: int, load: LoadMode, baselines: Baselines, slow: int | None
) -> None:
    """Layout, ramps and what is in flight included, for every guest, whatever the plan."""
    inventory = fleet(
        *TWO_BY_TWO, load=(load,), baselines=baselines, repetitions=blocks, impact=Impact(max_bytes_written=most),
        workloads=(
            Workload("w", Rw.WRITE, bs_bytes=65536, iodepth=8), Workload("m", Rw.RANDRW, numjobs=2), Workload("r", Rw.READ),
            Workload("s", Rw.RANDWRITE, rate_iops=slow, runtime_s=300),
        ),
    )  # fmt: skip
    made = plan.make(inventory, seed=1)
    for row in plan.describe(made):
        if row.kind == "guest":
            assert row.written_max_bytes is not None
            assert row.written_max_bytes <= most
    assert all(one.workload.rate_iops is None for one in made.rounds if one.workload.name == "r")
    assert all(one.rate_limited for one in made.rounds if one.workload.name in ("w", "m"))


def test_a_bound_below_the_layout_is_refused_with_the_numbers() -> None:
    """It says which guest and what to change."""
    with pytest.raises(
        UsageError,
        match=r"max_bytes_written is 512 MiB, but the files of guest 'a' alone are 1 GiB: raise it, or lower size",
    ):
        plan.make(fleet(guest("a"), impact=Impact(max_bytes_written=GIB // 2)), seed=1)


def test_a_bound_that_leaves_no_rate_is_refused() -> None:
    """Just above the layout there is no room for rounds."""
    tight = Impact(max_bytes_written=GIB + 4096)
    with pytest.raises(UsageError, match=r"max_bytes_written leaves"):
        plan.make(fleet(guest("a"), impact=tight, workloads=(Workload("w", Rw.WRITE, iodepth=32),)), seed=1)


# --- without, describe, document ---------------------------------------------------------------------------------


def test_without_takes_guests_out_of_rounds_of_engines_they_lack() -> None:
    """Rounds that nobody is left in go; the rest keep index, name and seed."""
    made = plan.make(fleet(guest("a"), guest("b"), load=(LoadMode.TOGETHER, LoadMode.ALONE)), seed=1)
    lacking = plan.without(made, {"b": frozenset({"fio-io_uring"})})
    assert all(one.guests == ("a",) for one in lacking.rounds if one.engine == "fio-io_uring")
    assert [one for one in lacking.rounds if one.engine == "calyx"] == [
        one for one in made.rounds if one.engine == "calyx"
    ]
    nobody = plan.without(made, {name: frozenset({"fio-io_uring", "fio-libaio"}) for name in "ab"})
    assert {one.engine for one in nobody.rounds} == {"calyx"}
    assert {one.name for one in nobody.rounds} < {one.name for one in made.rounds}
    assert nobody.estimated_s < made.estimated_s
    assert plan.without(made, {}) == made


def test_describe_sums_guests_vm_hosts_storage_and_all() -> None:
    """The rows of --dry-run; unlimited writes are told as time."""
    guests = (guest("a", vm_host="hv1", storage="csv"), guest("b", vm_host="hv1"))
    reads = fleet(*guests, load=(LoadMode.ALONE,), storage=(Place("csv", GIB // 2),))
    rows = {(row.kind, row.name): row for row in plan.describe(plan.make(reads, seed=1))}
    assert list(rows) == [("total", ""), ("storage", "csv"), ("vm_host", "hv1"), ("guest", "a"), ("guest", "b")]
    assert [row.rounds for row in rows.values()] == [12, 12, 12, 12, 12]
    assert rows["total", ""].new_bytes == rows["total", ""].written_max_bytes == 2 * GIB
    assert rows["storage", "csv"].exceeds
    writes = replace(
        reads, workloads=(Workload("w", Rw.WRITE), Workload("s", Rw.WRITE, rate_iops=100)), load=(LoadMode.TOGETHER,)
    )
    row = plan.describe(plan.make(writes, seed=1))[-1]
    assert row.written_max_bytes is None
    assert row.written == "1.32 GiB, and as fast as the devices take for 14 min"


def rich_plan() -> Plan:
    jump = Connection("j", jump=Connection("k", port=2222, user="u"))
    one = guest(
        "a",
        vm_host="hv1",
        storage="csv",
        groups=("g", "h"),
        labels={"rack": "07"},
        fio_path="/f",
        same_machine=True,
        line=4,
    )
    one = replace(one, connection=Connection("::1", 23, "DOM\\u", ("/k", "~/l"), jump, transport=TransportKind.LOCAL))
    return plan.make(
        fleet(one, guest("ü b"), impact=Impact(10**9, 3, 10**12), baselines=ALL_FIO, vm_hosts=(Place("hv1", 5, {"x": "y"}),),
              seed=4, text="a: 1\n", load=(LoadMode.STAGGERED,)), seed=2**47,
    )  # fmt: skip


@pytest.mark.parametrize(
    "made",
    [rich_plan(), plan.make(CHOICE, seed=1), plan.make(fleet(*TWO_BY_TWO), seed=0)],
    ids=["rich", "choice", "two"],
)
def test_a_plan_is_read_back_exactly(made: Plan) -> None:
    """Every field, of every type."""
    assert plan.from_json(plan.to_json(made)) == made


def test_a_plan_names_its_format_and_those_of_the_first_runs_are_still_read() -> None:
    """The name is of the form that results have; `1` is what it was called before."""
    made = rich_plan()
    text = plan.to_json(made)
    assert json.loads(text)["format"] == "calyx-orch-plan/1"
    assert plan.from_json(text.replace('"calyx-orch-plan/1"', "1", 1)) == made


@pytest.mark.parametrize(
    ("was", "damaged", "says"),
    [
        ('"numjobs": 1', '"numjobs": "2"', "'2' is no whole number"), ('"numjobs": 1', '"numjobs": true', "True is no whole number"),
        ('"estimated_s": ', '"estimated_s": "x", "was": ', "'x' is no number"), ('"direct": true', '"direct": 1', "1 is no true or false"),
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_told_and_trips_nobody_later(was: str, damaged: str, says: str) -> None:
    text = plan.to_json(rich_plan())
    assert was in text
    with pytest.raises(FormatError, match=f"this plan cannot be read: {says}"):
        plan.from_json(text.replace(was, damaged))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2, "plan": {}}', '{"format": 1, "plan": {}}', '{"format": 1}', "null"]
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    """In one sentence, whatever is wrong with it."""
    with pytest.raises(FormatError):
        plan.from_json(text)
