"""A against B: who is on which side, what a unit is, when two sides cannot be compared, and which verdict follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from calyx_orch.analysis import compare, remarks, sides, significance
from calyx_orch.analysis.comparability import differences
from calyx_orch.analysis.comparison import Comparison, ComparisonRow
from calyx_orch.analysis.histogram import percentile_or_none
from calyx_orch.analysis.rounds import latencies, played
from calyx_orch.errors import UsageError
from calyx_orch.model import LoadMode, Measurement, RunRecord, Series
from report_records import run_record


@pytest.fixture(scope="module")
def record() -> RunRecord:
    """Four guests on two vm_hosts, three ABBA blocks of calyx and fio, all of them measured."""
    return _all_ok(run_record(4, per_host=2, blocks=3, runtime_s=4.0, loads=(LoadMode.TOGETHER,)))


def _all_ok(record: RunRecord) -> RunRecord:
    whole = run_record(
        5, per_host=2, blocks=3, runtime_s=4.0, loads=(LoadMode.TOGETHER,)
    )  # only its last guest is lost
    names = {guest.name for guest in record.plan.inventory.guests}
    return replace(record, measurements=tuple(m for m in whole.measurements if m.guest in names))


def scaled(record: RunRecord, factor: float, **which: Any) -> RunRecord:
    """The record with the rates of some measurements multiplied; `which` are fields they must have."""

    def of(m: Measurement) -> Measurement:
        if any(getattr(m, name) != value for name, value in which.items()):
            return m
        ways = {
            name: replace(way, ios=int(way.ios * factor), bytes=int(way.bytes * factor))
            for name in ("read", "write")
            if (way := getattr(m, name)) is not None
        }
        series = m.series and Series(
            m.series.interval_ns,
            *(
                tuple(value * factor for value in column)
                for column in (m.series.read_ios, m.series.read_bytes, m.series.write_ios, m.series.write_bytes)
            ),
        )
        return replace(m, series=series, **ways)

    return replace(record, measurements=tuple(of(m) for m in record.measurements))


def row(found: Comparison, metric: str, workload: str = "randread-4k", **fields: str) -> ComparisonRow:
    (one,) = (
        row
        for row in found.rows
        if (row.metric, row.workload) == (metric, workload) and all(getattr(row, k) == v for k, v in fields.items())
    )
    return one


def test_a_vm_host_that_is_a_tenth_slower_is_worse_and_by_how_much(record: RunRecord) -> None:
    slowed = scaled(record, 0.9, vm_host="hv2")
    found = compare.compare(sides.by_fact(slowed, "vm_host"), fact="vm_host")
    one = row(found, "throughput", engine="calyx")
    assert (one.side, one.reference, one.verdict) == ("hv2", "hv1", "worse")
    assert one.effect.paired
    assert one.effect.units == 6
    assert one.effect.ratio == pytest.approx(0.9, rel=0.02)
    assert one.effect.low is not None
    assert one.effect.low < 0.9 < (one.effect.high or 0)


def test_a_verdict_of_few_units_among_many_rows_says_what_it_rests_on(record: RunRecord) -> None:
    found = compare.compare(sides.by_fact(scaled(record, 0.9, vm_host="hv2"), "vm_host"), fact="vm_host")
    together = sum(one.p_adjusted is not None for one in found.rows)
    needed = significance.units_without_shape(together, is_paired=True)
    assert needed > 6
    (note,) = (note for note in found.notes if "Student" in note)
    assert note.startswith(f"{together} rows are corrected together: better and worse of fewer than {needed} pairs")
    equal = compare.compare(sides.by_fact(record, "vm_host"), fact="vm_host")
    assert not any("Student" in note for note in equal.notes)


def test_the_more_rows_are_corrected_together_the_more_units_each_needs(record: RunRecord) -> None:
    """Six are enough for 23 rows, and not for 24: two sides of six that do not overlap at all have p = 2 / 924."""
    (one,) = (
        one
        for one in compare.compare(sides.by_fact(scaled(record, 0.5, vm_host="hv2"), "vm_host"), fact="vm_host").rows
        if (one.metric, one.workload, one.engine) == ("throughput", "randread-4k", "calyx")
    )
    bare = replace(one, verdict="", p_adjusted=None)
    assert (bare.effect.units, significance.units_without_shape(23, is_paired=False)) == (6, 6)
    assert {told.verdict for told in compare.judged([replace(bare) for _ in range(23)])} == {"worse"}
    told = list(compare.judged([replace(bare) for _ in range(24)]))
    assert {(row.verdict, row.note, row.p_adjusted) for row in told} == {
        ("not enough data", "not enough data: 6 of 7 pairs, as 24 rows are corrected together", None)
    }
    more = replace(bare, effect=replace(bare.effect, units=7))
    mixed = list(compare.judged([*(replace(bare) for _ in range(5)), *(replace(more) for _ in range(20))]))
    assert [row.verdict for row in mixed] == ["not enough data"] * 5 + ["worse"] * 20


def test_equal_vm_hosts_are_not_told_apart(record: RunRecord) -> None:
    found = compare.compare(sides.by_fact(record, "vm_host"), fact="vm_host")
    assert {row(found, "throughput", engine=engine).verdict for engine in ("calyx", "fio-io_uring")} == {
        "no difference found"
    }
    assert any("these placements" in note for note in found.notes)


def test_iops_stand_beside_throughput_only_where_they_say_something_else(record: RunRecord) -> None:
    """With one block size they are the same figure: a second row would only cost the others their verdicts."""
    found = compare.compare(sides.by_fact(record, "vm_host"), fact="vm_host")
    assert "IOPS" not in {one.metric for one in found.rows}
    split = ((4096, 50), (65536, 50))
    plan = replace(
        record.plan, rounds=tuple(replace(r, workload=replace(r.workload, bssplit=split)) for r in record.plan.rounds)
    )
    found = compare.compare(sides.by_fact(replace(record, plan=plan), "vm_host"), fact="vm_host")
    assert "IOPS" in {one.metric for one in found.rows}


def test_engines_are_paired_by_their_place_in_the_block(record: RunRecord) -> None:
    by_engine = sides.by_fact(record, "engine")
    assert [side.name for side in by_engine] == ["calyx", "fio-io_uring"]
    ours, theirs = (sides.units_of(side, played(record)) for side in by_engine)
    (key,) = (key for key in ours if key[1] == "randread-4k")
    assert key[2] == ""
    assert (
        [unit.turn for unit in ours[key]]
        == [unit.turn for unit in theirs[key]]
        == [(b, n) for b in range(3) for n in (0, 1)]
    )
    found = compare.compare(by_engine, fact="engine")
    assert row(found, "CPU per I/O").verdict == "worse"
    assert row(found, "CPU per I/O").effect.ratio == pytest.approx(6100 / 4700, rel=0.01)


def test_for_one_guest_the_unit_is_the_block_so_three_blocks_are_not_enough(record: RunRecord) -> None:
    found = compare.compare(sides.by_fact(record, "guest"), fact="guest")
    assert {one.verdict for one in found.rows} == {"not enough data"}
    assert row(found, "throughput", side="hv2-vm01", engine="calyx").effect.units == 3


def test_closed_loop_latencies_of_two_vm_hosts_get_no_verdict(record: RunRecord) -> None:
    found = compare.compare(sides.by_fact(record, "vm_host"), fact="vm_host")
    one = row(found, "P99", engine="calyx")
    assert one.verdict == "at different load"
    assert "rate_iops" in one.note


def test_latencies_at_one_offered_rate_get_a_verdict(record: RunRecord) -> None:
    def opened(workload: Any) -> Any:
        return replace(workload, arrival="poisson", rate_iops=1000)

    plan = replace(record.plan, rounds=tuple(replace(r, workload=opened(r.workload)) for r in record.plan.rounds))
    found = compare.compare(sides.by_fact(replace(record, plan=plan), "vm_host"), fact="vm_host")
    assert row(found, "P99", engine="calyx").verdict != "at different load"


def at_rate(record: RunRecord, rate_iops: int | None, arrival: str = "poisson") -> RunRecord:
    """Its workloads offered another rate."""
    rounds = tuple(
        replace(r, workload=replace(r.workload, arrival=arrival, rate_iops=rate_iops)) for r in record.plan.rounds
    )
    return replace(record, plan=replace(record.plan, rounds=rounds))


def test_runs_that_were_offered_different_rates_are_at_different_load(record: RunRecord) -> None:
    """A share of the capacity is another rate each night: no figure says who is better, and the rates are told."""
    nights = [sides.of_run("before", at_rate(record, 1000)), sides.of_run("after", at_rate(scaled(record, 0.9), 900))]
    found = compare.compare(nights)
    assert {one.verdict for one in found.rows} == {"at different load"}
    assert row(found, "throughput", engine="calyx").note == "each job was offered 900 IOPS, in before 1000 IOPS"
    told = [one for one in found.differences if "rate_iops" in one.what]
    assert told[0].sentence == "workload randread-4k, rate_iops: before 1000, after 900"
    assert not any(one.forbids for one in told)


def test_latencies_of_nearly_the_same_rate_get_a_verdict_and_what_the_rate_decides_gets_none(record: RunRecord) -> None:
    """Two nights find the capacity anew, so their shares of it are hardly ever the same to the last I/O."""
    nights = [sides.of_run("before", at_rate(record, 1000)), sides.of_run("after", at_rate(record, 960))]
    found = compare.compare(nights)
    assert row(found, "P99", engine="calyx").verdict == "no difference found"
    assert row(found, "throughput", engine="calyx").verdict == "at different load"
    nights[1] = sides.of_run("after", at_rate(record, 940))
    assert row(compare.compare(nights), "P99", engine="calyx").verdict == "at different load"


def test_runs_that_were_offered_the_same_rate_are_at_equal_load(record: RunRecord) -> None:
    nights = [sides.of_run("before", at_rate(record, 1000)), sides.of_run("after", at_rate(record, 1000))]
    found = compare.compare(nights)
    assert row(found, "P99", engine="calyx").verdict == "not enough data", "six units, and more than 23 rows"
    alone = replace(record, measurements=tuple(m for m in record.measurements if m.engine == "calyx"))
    nights = [sides.of_run("before", at_rate(alone, 1000)), sides.of_run("after", at_rate(alone, 1000))]
    found = compare.compare(nights)
    assert row(found, "P99", engine="calyx").verdict == "no difference found"
    assert not found.differences


def test_a_bound_on_one_side_alone_is_another_load(record: RunRecord) -> None:
    nights = [sides.of_run("free", record), sides.of_run("held", at_rate(record, 50, arrival="closed"))]
    note = row(compare.compare(nights), "throughput", engine="calyx").note
    assert note == "each job was offered 50 IOPS, in free all that it takes"


def with_waiting(record: RunRecord, *engines: str) -> RunRecord:
    """Each I/O of these engines waited until its latency from when it was due is five octaves above that from its beginning."""

    def of(m: Measurement) -> Measurement:
        ways = {
            name: replace(
                way, latency_intended=replace(way.latency, buckets=tuple((i + 640, n) for i, n in way.latency.buckets))
            )
            for name in ("read", "write")
            if (way := getattr(m, name)) is not None and m.engine in engines
        }
        return replace(m, **ways)

    return replace(record, measurements=tuple(of(m) for m in record.measurements))


def test_latencies_of_an_open_loop_count_from_when_ios_were_due_where_both_sides_know_it(record: RunRecord) -> None:
    opened = at_rate(record, 1000)
    plain = row(compare.compare(sides.by_fact(opened, "vm_host"), fact="vm_host"), "P99", engine="calyx")
    waited = with_waiting(opened, "calyx")
    due = row(compare.compare(sides.by_fact(waited, "vm_host"), fact="vm_host"), "P99", engine="calyx")
    assert (plain.labels, due.labels) == (("open loop",), ("open loop", "from when due"))
    assert due.value == pytest.approx(32 * (plain.value or 0.0))
    mixed = row(compare.compare(sides.by_fact(waited, "engine"), fact="engine"), "P99")
    assert mixed.labels == ("open loop",)
    closed = with_waiting(record, "calyx")
    assert row(compare.compare(sides.by_fact(closed, "vm_host"), fact="vm_host"), "P99", engine="calyx").labels == ()


def test_two_runs_have_no_pairs_and_the_slower_night_is_worse(record: RunRecord) -> None:
    nights = [sides.of_run("before", record), sides.of_run("last night", scaled(record, 0.7))]
    found = compare.compare(nights)
    one = row(found, "throughput", engine="calyx")
    assert (one.verdict, one.effect.paired) == ("worse", False)
    assert one.effect.ratio == pytest.approx(0.7, rel=0.01)
    assert not found.differences


def test_all_verdicts_of_a_comparison_are_corrected_together(record: RunRecord) -> None:
    found = compare.compare(sides.by_fact(scaled(record, 0.9, vm_host="hv2"), "vm_host"), fact="vm_host")
    ps = {
        (one.metric, one.workload, one.engine): (one.effect.p, one.p_adjusted)
        for one in found.rows
        if one.p_adjusted is not None
    }
    assert len(ps) >= 8
    assert [adjusted for _, adjusted in ps.values()] == significance.holm([p or 0.0 for p, _ in ps.values()])


def without(record: RunRecord, guest: str, *indices: int) -> RunRecord:
    kept = (m for m in record.measurements if not (m.guest == guest and m.round_index in indices))
    return replace(record, measurements=tuple(kept))


def test_a_guest_that_was_lost_does_not_tilt_its_vm_host(record: RunRecord) -> None:
    """hv1 loses a guest in its first block: those rounds are no units of both guests, and one guest alone has enough of them."""
    cut = without(record, "hv1-vm02", 0, 3)
    side = next(side for side in sides.by_fact(cut, "vm_host") if side.name == "hv1")
    units = sides.units_of(side, played(cut))["data", "randread-4k", "calyx", "together"]
    (few,) = sides.fullest([units], enough=4)
    assert [unit.turn for unit in few] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert {len(unit.figures) for unit in few} == {2}
    (many,) = sides.fullest([units], enough=6)
    assert [len(unit.figures) for unit in many] == [1] * 6
    assert {found.measurement.guest for unit in many for found in unit.figures} == {"hv1-vm01"}


def test_engines_are_compared_on_the_same_guests(record: RunRecord) -> None:
    """A guest that calyx measured and fio did not counts for neither, or the ratio would be of two fleets."""
    lost = [m.round_index for m in record.measurements if m.engine != "calyx"]
    found = compare.compare(sides.by_fact(without(record, "hv2-vm02", *lost), "engine"), fact="engine")
    whole = compare.compare(sides.by_fact(without(record, "hv2-vm02", *range(1000)), "engine"), fact="engine")
    assert row(found, "throughput").effect == row(whole, "throughput").effect


def test_a_workload_that_is_other_io_forbids_a_verdict(record: RunRecord) -> None:
    other = replace(
        record,
        plan=replace(
            record.plan,
            rounds=tuple(replace(r, workload=replace(r.workload, iodepth=64)) for r in record.plan.rounds),
        ),
    )
    found = list(differences([sides.of_run("a", record), sides.of_run("b", other)]))
    assert [one.what for one in found if one.forbids] == [
        "workload randread-4k, iodepth",
        "workload seqwrite-1m, iodepth",
    ]
    assert found[0].values == (("a", "32"), ("b", "64"))


def test_guests_that_differ_are_named(record: RunRecord) -> None:
    facts = {name: dict(told) for name, told in record.facts.items()}
    facts["hv2-vm01"]["kernel"] = "6.12.0"
    facts["hv2-vm02"]["cpus"] = 8
    told = replace(record, facts=facts)
    found = list(differences(sides.by_fact(told, "vm_host"), "vm_host"))
    assert [one.sentence for one in found] == [
        "kernel: hv1 6.1.0-31-amd64, hv2 6.1.0-31-amd64 / 6.12.0",
        "vCPUs: hv1 4, hv2 4 / 8",
    ]
    assert not any(one.forbids for one in found)
    assert [side.name for side in sides.by_fact(told, "kernel")] == ["6.1.0-31-amd64", "6.12.0"]


def test_a_row_bears_the_doubts_of_both_sides(record: RunRecord) -> None:
    starved = replace(
        record,
        measurements=tuple(
            replace(m, setup={**m.setup, "direct": False}) if (m.guest, m.engine) == ("hv1-vm01", "calyx") else m
            for m in record.measurements
        ),
    )
    found = compare.compare(sides.by_fact(starved, "vm_host"), fact="vm_host")
    assert "direct" in row(found, "throughput", engine="calyx").doubt_names
    assert "direct" not in row(found, "throughput", engine="fio-io_uring").doubt_names
    plain = compare.compare(sides.by_fact(record, "vm_host"), fact="vm_host")
    assert row(plain, "throughput", engine="calyx").doubt_names == ("short",)


def test_sides_that_differ_in_what_is_too_much_to_show_differ() -> None:
    """Each side has four kernels, and the last of them is another one: it is what is shown first."""
    wide = run_record(8, per_host=4, blocks=3, runtime_s=4.0, loads=(LoadMode.TOGETHER,))
    facts = {name: dict(told) for name, told in wide.facts.items()}
    for host, last in (("hv1", "6.4"), ("hv2", "6.5")):
        for number, kernel in enumerate(("6.1", "6.2", "6.3", last), start=1):
            facts[f"{host}-vm0{number}"]["kernel"] = kernel
    found = list(differences(sides.by_fact(replace(wide, facts=facts), "vm_host"), "vm_host"))
    assert [one.sentence for one in found] == ["kernel: hv1 6.4 / 6.1 / 6.2 and 1 more, hv2 6.5 / 6.1 / 6.2 and 1 more"]


def test_some_pages_of_memory_are_no_difference_and_a_gigabyte_is(record: RunRecord) -> None:
    facts = {name: dict(told) for name, told in record.facts.items()}
    facts["hv2-vm01"]["memory_bytes"] += 12_288
    assert list(differences(sides.by_fact(replace(record, facts=facts), "vm_host"), "vm_host")) == []
    facts["hv2-vm01"]["memory_bytes"] += 1 << 30
    (found,) = differences(sides.by_fact(replace(record, facts=facts), "vm_host"), "vm_host")
    assert found.sentence == "memory: hv1 8 GiB, hv2 8 GiB / 9 GiB"


def test_disks_of_other_sector_sizes_are_told(record: RunRecord) -> None:
    """A-039: a fleet of 512 and 4096 byte blocks."""
    facts = {
        guest.name: record.facts[guest.name]
        | {"paths": [{"path": "/data", "logical_block_size": 4096 if guest.vm_host == "hv2" else 512}]}
        for guest in record.plan.inventory.guests
    }
    (found,) = differences(sides.by_fact(replace(record, facts=facts), "vm_host"), "vm_host")
    assert found.sentence == "logical block size: hv1 512, hv2 4096"


def test_a_set_up_that_differs_is_told_field_by_field_of_workloads_that_both_have(record: RunRecord) -> None:
    """Not as a line of all its fields, and not since the other run had other workloads."""
    found = [m for m in record.measurements if m.engine == "calyx"]
    names = list(dict.fromkeys(m.workload for m in found))
    setup = {"took": "defer", "refill": "each", "numa": None}
    ours = replace(record, measurements=tuple(replace(m, setup=setup) for m in found))
    theirs = replace(
        record, measurements=tuple(replace(m, setup={**setup, "refill": "batch", "cpus": []}) for m in found)
    )
    (one,) = differences([sides.of_run("a", ours), sides.of_run("b", theirs)])
    assert one.sentence == f"set-up of calyx, refill ({', '.join(names)}): a each, b batch"
    other = replace(ours, measurements=tuple(replace(m, workload=f"other-{m.workload}") for m in theirs.measurements))
    assert not list(differences([sides.of_run("a", ours), sides.of_run("b", other)]))


def test_a_ratio_that_points_the_other_way_than_the_values_beside_it_is_explained(record: RunRecord) -> None:
    """One round of the reference was ten times as fast: its mean of rounds is the higher, and most of the ratios say the other."""
    found = compare.compare(sides.by_fact(scaled(record, 1.05, vm_host="hv2"), "vm_host"), fact="vm_host")
    rows = [one for one in found.rows if one.metric == "throughput"]
    assert not list(remarks.apart(rows))
    odd = replace(rows[0], value=1.0, reference_value=2.0)
    (told,) = remarks.apart([odd, *rows[1:]])
    assert told.startswith(f"the units of {odd.workload} throughput differ so much that the ratio")
    assert not list(remarks.apart([replace(odd, reference_value=1.001)])), "less than is shown of them"


def test_a_run_in_which_nothing_was_measured_says_so(record: RunRecord) -> None:
    with pytest.raises(UsageError, match=f"cannot compare by rack: nothing was measured in {record.run_id}$"):
        sides.by_fact(replace(record, measurements=(), facts={}), "rack")


def test_a_fact_that_all_share_names_others_to_compare_by(record: RunRecord) -> None:
    with pytest.raises(
        UsageError, match=r"all guests are on kernel '6\.1\.0-31-amd64'; two sides are needed.*such as arch, "
    ):
        sides.by_fact(record, "kernel")
    with pytest.raises(UsageError, match="no guest says what its rack is"):
        sides.by_fact(record, "rack")


def test_a_latency_is_shown_as_in_the_tables_and_not_as_a_mean_of_percentiles(record: RunRecord) -> None:
    found = compare.compare(sides.by_fact(record, "engine"), fact="engine")
    by_engine = {side.name: side for side in found.sides}
    units = sides.units_of(by_engine["calyx"], played(record))["data", "randread-4k", "", "together"]
    merged = latencies([figure for unit in units for figure in unit.figures])
    assert row(found, "P99").reference_value == percentile_or_none(merged, 99.0)


def test_runs_with_other_numbers_of_guests_at_once_are_at_different_load(record: RunRecord) -> None:
    """A guest that one run lost left its part of the disk to the others: no verdict, and it is named."""
    all_rounds = {m.round_index for m in record.measurements}
    shared = [guest.name for guest in record.plan.inventory.guests if guest.name != "hv2-vm02"]
    lost = without(record, "hv2-vm02", *all_rounds)
    found = compare.compare([sides.of_run("whole", record, shared), sides.of_run("lost", lost, shared)])
    assert {one.verdict for one in found.rows} == {"at different load"}
    assert "3 guests ran at once on what these share, in whole 4" in row(found, "throughput", engine="calyx").note
    assert "measured in whole and not compared, as not every run has them: hv2-vm02" in found.notes
