"""Rows of a run: what each guest did, what the fleet did, and that the one is the sum of the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import guest, histogram_of, measurement, record, round_

from calyx_orch.analysis import ratios
from calyx_orch.analysis.histogram import percentile
from calyx_orch.analysis.summary import FleetRow, GuestRow, summarise
from calyx_orch.model import Direction, Guest, LoadMode, Measurement, Round, RunRecord, Rw, Workload

GUESTS = (guest("vm1", "hv1", "pool"), guest("vm2", "hv1", "pool"), guest("vm3", "hv2"))
NAMES = tuple(one.name for one in GUESTS)


def run(*rates: Sequence[float], engine: str = "calyx", load: LoadMode = LoadMode.TOGETHER) -> RunRecord:
    """A round for each tuple of rates, one rate a guest."""
    rounds, measured = [], []
    for block, each in enumerate(rates):
        one = round_(block, NAMES[: len(each)], block=block, engine=engine, load=load)
        rounds.append(one)
        measured += [measurement(of, one, iops) for of, iops in zip(GUESTS, each, strict=False)]
    return record(GUESTS, rounds, measured)


def row_of(rows: Sequence[GuestRow], name: str, engine: str = "calyx") -> GuestRow:
    return next(row for row in rows if row.guest == name and row.engine == engine)


@given(st.lists(st.tuples(*[st.integers(1, 10**6)] * 3), min_size=1, max_size=4))
def test_the_fleet_row_is_the_sum_of_the_guest_rows(rates: list[tuple[int, int, int]]) -> None:
    summary = summarise(run(*rates))
    (fleet,) = summary.fleet
    assert fleet.throughput_bytes_per_s == math.fsum(row.throughput_bytes_per_s or 0 for row in summary.guests)
    assert fleet.iops == math.fsum(row.iops or 0 for row in summary.guests)
    assert fleet.samples == sum(row.samples for row in summary.guests)
    assert fleet.status == "3 of 3 guests"


def test_the_sum_holds_when_the_guests_were_active_at_different_times() -> None:
    """Two guests that shared half of their windows: both rows and the fleet's come from the common half."""
    one = round_(0, ["vm1", "vm2"])
    slow_end = measurement(GUESTS[0], one, 1000.0, start_s=0, length_s=60)
    late = measurement(GUESTS[1], one, 500.0, start_s=30, length_s=60)
    summary = summarise(record(GUESTS[:2], [one], [slow_end, late]))
    (fleet,) = summary.fleet
    assert fleet.overlap == 0.5
    assert fleet.iops == pytest.approx(1500.0)
    assert fleet.throughput_bytes_per_s == sum(row.throughput_bytes_per_s or 0 for row in summary.guests)
    assert "overlap 50 %" in fleet.doubts


def test_a_guest_whose_rate_falls_after_the_others_have_gone_is_judged_in_the_common_window_only() -> None:
    one = round_(0, ["vm1", "vm2"])
    long = measurement(GUESTS[0], one, 1000.0, start_s=0, length_s=60)
    assert long.series is not None
    series = replace(
        long.series, read_ios=(150.0,) * 300 + (50.0,) * 300, read_bytes=(150.0 * 4096,) * 300 + (50.0 * 4096,) * 300
    )
    long = replace(long, series=series)
    short = measurement(GUESTS[1], one, 100.0, start_s=0, length_s=30)
    rows = summarise(record(GUESTS[:2], [one], [long, short])).guests
    assert row_of(rows, "vm1").iops == pytest.approx(1500.0)


def test_a_row_tells_percentiles_cv_cpu_and_skew() -> None:
    row = row_of(summarise(run((100.0, 100.0, 100.0), (120.0, 100.0, 100.0))).guests, "vm1")
    assert (row.rounds, row.rounds_planned, row.status) == (2, 2, "ok")
    assert row.iops == pytest.approx(110.0)
    assert row.throughput_bytes_per_s == pytest.approx(110.0 * 4096)
    assert row.cv_within_run == pytest.approx(0.0, abs=1e-9)
    assert row.cv_between_repetitions == pytest.approx(math.sqrt(200) / 110)
    assert row.cv_p99_between_repetitions == 0.0
    assert row.p50_ns == pytest.approx(100_000, rel=0.01)
    assert row.p99_ns == pytest.approx(100_000, rel=0.01)
    assert row.p999_ns == pytest.approx(900_000, rel=0.01)
    assert row.cpu_percent == pytest.approx(110.0 * 60 * 6000 / (60e9 * 2) * 100)
    assert row.cpu_ns_per_io == pytest.approx(5000.0)
    assert row.guest_cpu_ns_per_io == pytest.approx(6000.0)
    assert (row.skew_median_ns, row.skew_max_ns, row.skew_bound_ns, row.skew_how) == (
        50_000,
        50_000,
        60_000,
        "published",
    )
    assert row.doubts == ()


def test_percentiles_with_too_few_samples_beyond_are_blank() -> None:
    row = row_of(summarise(run((20.0, 20.0, 20.0))).guests, "vm1")
    assert row.samples == 1200
    assert row.p99_ns is not None
    assert row.p999_ns is None


def test_reads_and_writes_of_a_mixed_workload_are_told_apart_and_together() -> None:
    mixed = Workload("mixed", Rw.RANDRW, 4096, 8, runtime_s=60.0, ramp_s=10.0)
    one = round_(0, ["vm1"], workload=mixed)
    fast, slow = histogram_of([100_000] * 3000), histogram_of([900_000] * 1000)
    found = replace(
        measurement(GUESTS[0], one, 4000 / 60),
        read=Direction(3000, 3000 * 4096, fast),
        write=Direction(1000, 1000 * 4096, slow),
    )
    row = row_of(summarise(record(GUESTS[:1], [one], [found])).guests, "vm1")
    assert row.read is not None
    assert row.write is not None
    assert (row.read.p99_ns, row.write.p99_ns) == (percentile(fast, 99), percentile(slow, 99))
    assert row.read.iops + row.write.iops == pytest.approx(row.iops)
    assert row.read.throughput_bytes_per_s == pytest.approx(3 * row.write.throughput_bytes_per_s)
    assert row.p50_ns == row.read.p50_ns
    assert row.p99_ns == row.write.p99_ns


def test_the_p99_of_the_fleet_comes_from_merged_buckets() -> None:
    """Of two fast guests and a slow one, each with as many I/Os: neither the mean nor the median of their P99."""
    one = round_(0, NAMES)
    latencies = ([100_000], [100_000], [5_000_000])
    measured = [measurement(of, one, 1000.0, latency_ns=ns) for of, ns in zip(GUESTS, latencies, strict=True)]
    (fleet,) = summarise(record(GUESTS, [one], measured)).fleet
    assert fleet.p50_ns == pytest.approx(100_000, rel=0.01)
    assert fleet.p99_ns == pytest.approx(5_000_000, rel=0.01)


def test_a_failed_guest_is_missing_and_not_zero() -> None:
    one = round_(0, NAMES)
    good = [measurement(of, one, 100.0) for of in GUESTS[:2]]
    failed = replace(
        measurement(GUESTS[2], one, 0.0), status="failed", why="EIO (Input/output error)", read=None, series=None
    )
    summary = summarise(record(GUESTS, [one], [*good, failed]))
    (fleet,) = summary.fleet
    assert (fleet.status, fleet.guests, fleet.guests_planned) == ("2 of 3 guests", 2, 3)
    assert fleet.iops == pytest.approx(200.0)
    lost = row_of(summary.guests, "vm3")
    assert lost.status == "failed: EIO (Input/output error)"
    assert lost.throughput_bytes_per_s is lost.p99_ns is lost.cpu_percent is None
    assert fleet.doubts == ("1 guest missing",)


def test_rounds_that_were_not_played_are_told() -> None:
    whole = run((100.0, 100.0, 100.0), (100.0, 100.0, 100.0))
    cut = replace(whole, measurements=whole.measurements[:4])
    rows = summarise(cut).guests
    assert row_of(rows, "vm1").status == "ok"
    assert row_of(rows, "vm2").status == "1 of 2 rounds"
    none = summarise(replace(whole, measurements=()))
    assert {row.status for row in none.guests} == {"not run"}
    assert none.fleet == ()


def both_engines(ours: Sequence[float], theirs: Sequence[float]) -> RunRecord:
    index = count()
    rounds: list[Round] = []
    measured: list[Measurement] = []
    for block, rates in enumerate(zip(ours, theirs, strict=True)):
        for engine, iops in zip(("calyx", "fio-io_uring"), rates, strict=True):
            one = round_(next(index), ["vm1"], engine=engine, block=block)
            rounds.append(one)
            measured.append(measurement(GUESTS[0], one, iops))
    return record(GUESTS[:1], rounds, measured)


def test_calyx_and_fio_are_paired_by_block() -> None:
    """A disk that halves from block to block changes neither ratio nor interval."""
    summary = summarise(both_engines((1100, 550, 275), (1000, 500, 250)))
    pairs = {row.metric: row for row in summary.pairs}
    assert set(pairs) == {"throughput", "IOPS", "P99", "CPU per I/O", "CV within a run"}
    iops = pairs["IOPS"]
    assert (iops.guest, iops.engine, iops.pairs, iops.interval) == ("vm1", "fio-io_uring", 3, "range")
    assert (iops.ratio, iops.low, iops.high) == (pytest.approx(1.1), pytest.approx(1.1), pytest.approx(1.1))
    assert pairs["P99"].ratio == 1.0
    assert pairs["CV within a run"].ratio is None


def test_two_pairs_are_not_enough_for_an_interval() -> None:
    row = next(row for row in summarise(both_engines((110, 110), (100, 100))).pairs if row.metric == "throughput")
    assert row.ratio == pytest.approx(1.1)
    assert row.low is row.high is None
    assert "not enough data" in row.reason


def test_the_interval_of_a_ratio_is_students_published_one() -> None:
    """Student's data on sleep (1908) as logarithms: a mean difference of 1.58 hours, 95 % interval 0.70 to 2.46."""
    first = (0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0)
    second = (1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4)
    found = ratios.of_pairs([(math.exp(b), math.exp(a)) for a, b in zip(first, second, strict=True)])
    assert (found.pairs, found.interval) == (10, "Student 95 %")
    assert (found.value, found.low, found.high) == (
        pytest.approx(math.exp(1.58)),
        pytest.approx(math.exp(0.7001142)),
        pytest.approx(math.exp(2.4598858)),
    )


@given(st.lists(st.floats(0.1, 10.0), min_size=6, max_size=12))
def test_an_interval_holds_its_ratio(values: list[float]) -> None:
    found = ratios.of_pairs([(value, 1.0) for value in values])
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low * 0.999 <= found.value <= found.high * 1.001


def test_no_pairs_have_no_ratio() -> None:
    assert ratios.of_pairs([(None, 1.0), (0.0, 1.0), (1.0, None)]).value is None


def alone_and_together(blocks: int = 3) -> RunRecord:
    """vm1 and vm2 share a pool that gives 1000 IOPS; vm3 has its own."""
    index = count()
    rounds: list[Round] = []
    measured: list[Measurement] = []

    def play(block: int, load: LoadMode, names: Sequence[str], rates: dict[str, float]) -> None:
        one = round_(next(index), names, block=block, load=load)
        rounds.append(one)
        for of in GUESTS:
            if of.name in names:
                measured.append(measurement(of, one, rates[of.name], latency_ns=[round(1e8 / rates[of.name])]))

    for block in range(blocks):
        play(block, LoadMode.TOGETHER, NAMES, {"vm1": 500.0, "vm2": 500.0, "vm3": 1000.0})
        play(block, LoadMode.ALONE, ["vm1", "vm3"], {"vm1": 1000.0, "vm3": 1000.0})
        play(block, LoadMode.ALONE, ["vm2"], {"vm2": 1000.0})
    return record(GUESTS, rounds, measured)


def test_together_over_alone_tells_interference_from_capacity() -> None:
    summary = summarise(alone_and_together())
    found = {(row.guest, row.metric): row.ratio for row in summary.interference}
    assert found["vm1", "throughput"] == pytest.approx(0.5)
    assert found["vm2", "throughput"] == pytest.approx(0.5)
    assert found["vm3", "throughput"] == pytest.approx(1.0)
    assert found["vm1", "P99"] == pytest.approx(2.0, rel=0.02)
    places = {(row.scope, row.guest, row.metric): row for row in summary.places}
    assert places["storage", "pool", "throughput"].ratio == pytest.approx(0.5)
    assert places["vm_host", "hv2", "throughput"].ratio == pytest.approx(1.0)
    assert places["vm_host", "hv1", "P99"].ratio == pytest.approx(2.0, rel=0.02)
    assert places["storage", "pool", "throughput"].together == pytest.approx(1000 * 4096)


def test_rounds_alone_have_no_fleet_row_and_no_doubt_of_missing_neighbours() -> None:
    summary = summarise(alone_and_together())
    assert [row.load for row in summary.fleet] == ["together"]
    assert all(row.doubts == () for row in summary.guests)


def test_a_place_compares_only_guests_that_were_measured_on_both_sides_of_a_block() -> None:
    whole = alone_and_together()
    lost = [m for m in whole.measurements if not (m.guest == "vm2" and m.load == "alone" and m.block == 1)]
    places = summarise(replace(whole, measurements=tuple(lost))).places
    assert next(r for r in places if r.scope == "storage" and r.metric == "throughput").ratio == pytest.approx(0.5)


def test_under_per_domain_each_domain_has_its_row() -> None:
    """The domains ran one after another: their sum would be nobody's throughput."""
    first = round_(0, ["vm1", "vm2"], load=LoadMode.PER_DOMAIN)
    second = round_(1, ["vm3"], load=LoadMode.PER_DOMAIN)
    measured = [
        measurement(GUESTS[0], first, 10),
        measurement(GUESTS[1], first, 20),
        measurement(GUESTS[2], second, 40),
    ]
    rows: Sequence[FleetRow] = summarise(record(GUESTS, [first, second], measured)).fleet
    assert [(row.scope, row.guests_planned, round(row.iops)) for row in rows] == [
        ("storage:pool", 2, 30),
        ("vm_host:hv2", 1, 40),
    ]


def test_the_skew_of_the_fleet_is_the_median_over_rounds_of_the_guest_furthest_from_the_line() -> None:
    rounds = [round_(index, NAMES, block=index) for index in range(3)]
    skews = ((10, -900, 20), (1, 2, 3), (500, 0, 0))
    measured = [
        replace(measurement(of, one, 100.0), skew_ns=skew)
        for one, each in zip(rounds, skews, strict=True)
        for of, skew in zip(GUESTS, each, strict=True)
    ]
    (fleet,) = summarise(record(GUESTS, rounds, measured)).fleet
    assert (fleet.skew_median_ns, fleet.skew_max_ns) == (500, 900)


def test_a_guest_without_cpu_figures_has_none() -> None:
    one = round_(0, ["vm1"])
    row = row_of(
        summarise(record(GUESTS[:1], [one], [replace(measurement(GUESTS[0], one, 10.0), cpu=None)])).guests, "vm1"
    )
    assert row.cpu_percent is row.cpu_ns_per_io is row.steal_percent is None


def test_guests_that_share_no_time_are_shown_in_their_own_windows_with_a_doubt() -> None:
    one = round_(0, ["vm1", "vm2"])
    measured = [
        measurement(GUESTS[0], one, 100.0, start_s=0, length_s=60),
        measurement(GUESTS[1], one, 100.0, start_s=100, length_s=60),
    ]
    summary = summarise(record(GUESTS[:2], [one], measured))
    assert all(row.iops == pytest.approx(100.0) for row in summary.guests)
    assert all("overlap 0 %" in row.doubts for row in summary.guests)


def test_an_empty_run_has_no_rows() -> None:
    empty: tuple[Guest, ...] = ()
    summary = summarise(record(empty, [], []))
    assert summary.guests == summary.fleet == summary.pairs == summary.doubts == ()


def test_rows_follow_the_inventory_and_not_the_order_of_play() -> None:
    """Chance played the second workload first and fio before calyx."""
    one, two = Workload("a", Rw.RANDREAD, 4096, 1), Workload("b", Rw.RANDREAD, 4096, 1)
    order = [(two, "fio-libaio"), (one, "fio-libaio"), (two, "calyx"), (one, "calyx")]
    rounds = [round_(n, NAMES, workload=workload, engine=engine) for n, (workload, engine) in enumerate(order)]
    measured = [measurement(of, each, 1000.0) for each in rounds for of in GUESTS]
    whole = record(GUESTS, rounds, measured)
    plan = replace(whole.plan, inventory=replace(whole.plan.inventory, workloads=(one, two)))
    summary = summarise(replace(whole, plan=plan))
    keys = [("a", "calyx"), ("a", "fio-libaio"), ("b", "calyx"), ("b", "fio-libaio")]
    assert [(row.workload, row.engine, row.guest) for row in summary.guests] == [(*k, n) for k in keys for n in NAMES]
    assert [(row.workload, row.engine) for row in summary.fleet] == keys


def test_a_gate_that_opened_gives_no_skew() -> None:
    """Of two rounds only one saw the first I/O: its skew stands, the gate's does not."""
    whole = run((1000.0,), (1000.0,), engine="fio-libaio")
    seen, gate = whole.measurements
    gate = replace(gate, skew_ns=1, skew_bound_ns=1, skew_how="released")
    seen = replace(seen, skew_ns=3_000_000, skew_bound_ns=70_000, skew_how="first-io")
    summary = summarise(replace(whole, measurements=(seen, gate)))
    assert (summary.guests[0].skew_median_ns, summary.guests[0].skew_bound_ns) == (3_000_000, 70_000)
    assert summary.fleet[0].skew_median_ns == 3_000_000
    assert summary.guests[0].skew_how == "first-io/released"
    assert "start" in summary.guests[0].doubt_names
    only = summarise(replace(whole, measurements=(gate, replace(gate, round_index=1, block=1))))
    assert (only.guests[0].skew_median_ns, only.fleet[0].skew_max_ns) == (None, None)


def test_the_ratio_of_the_fleet_is_the_geometric_mean_of_its_guests() -> None:
    rounds = [round_(0, NAMES), round_(1, NAMES, engine="fio-libaio")]
    rates = {"vm1": (2000.0, 1000.0), "vm2": (1000.0, 2000.0), "vm3": (4000.0, 1000.0)}
    measured = [
        measurement(of, one, rates[of.name][n], engine=one.engine) for n, one in enumerate(rounds) for of in GUESTS
    ]
    (row,) = [row for row in summarise(record(GUESTS, rounds, measured)).fleet_pairs if row.metric == "IOPS"]
    assert (row.guests, row.low, row.high) == (3, pytest.approx(0.5), pytest.approx(4.0))
    assert row.ratio == pytest.approx((2 * 0.5 * 4) ** (1 / 3))


RATES = st.integers(1, 4).flatmap(
    lambda guests: st.lists(st.tuples(*[st.one_of(st.none(), st.integers(1, 10**6))] * guests), min_size=1, max_size=5)
)


@given(RATES)
def test_whatever_fails_the_fleet_is_the_sum_of_its_guests_in_the_rounds_they_share(
    rates: list[tuple[int | None, ...]],
) -> None:
    """None is a guest that failed that round. The shared rounds are worked out here by hand, from the rates alone."""
    guests = [guest(f"vm{number}") for number in range(len(rates[0]))]
    rounds = [round_(index, [of.name for of in guests], block=index) for index in range(len(rates))]
    measured = [
        measurement(of, one, float(rate)) if rate else replace(measurement(of, one, 1.0), status="failed", why="EIO")
        for one, each in zip(rounds, rates, strict=True)
        for of, rate in zip(guests, each, strict=True)
    ]
    summary = summarise(record(guests, rounds, measured))
    rows = [row for row in summary.guests if row.shared is not None]
    if not rows:
        assert summary.fleet == ()
        assert all(rate is None for each in rates for rate in each)
        return
    (fleet,) = summary.fleet
    names = {row.guest for row in rows}
    ran = [{of.name for of, rate in zip(guests, each, strict=True) if rate} for each in rates]
    shared = [turn for turn, who in enumerate(ran) if who == names]
    assert len(names) == max(map(len, ran))
    assert (fleet.guests, fleet.rounds_shared, fleet.rounds) == (len(names), len(shared), len(rates))
    assert all(row.shared is not None and list(row.shared.turns) == shared for row in rows)
    assert fleet.throughput_bytes_per_s == math.fsum(row.shared.throughput_bytes_per_s for row in rows if row.shared)
    assert fleet.iops == math.fsum(row.shared.iops for row in rows if row.shared)
    sums = [sum(rate or 0 for rate in rates[turn]) for turn in shared]
    assert fleet.iops == pytest.approx(sum(sums) / len(sums))
    assert fleet.samples == sum(
        found.read.latency.count
        for found in measured
        if found.status == "ok" and found.read and found.round_index in shared
    )


@given(st.lists(st.tuples(*[st.one_of(st.none(), st.integers(1, 10**6))] * 5), min_size=1, max_size=4))
def test_what_the_vm_hosts_got_adds_up_to_what_the_fleet_did(rates: list[tuple[int | None, ...]]) -> None:
    """Of three and two guests, whichever of them failed; a vm_host of which one guest is left has no row of fairness."""
    guests = [guest(f"vm{number}", "hv1" if number < 3 else "hv2") for number in range(5)]
    rounds = [round_(index, [of.name for of in guests], block=index) for index in range(len(rates))]
    measured = [
        measurement(of, one, float(rate)) if rate else replace(measurement(of, one, 1.0), status="failed", why="EIO")
        for one, each in zip(rounds, rates, strict=True)
        for of, rate in zip(guests, each, strict=True)
    ]
    summary = summarise(record(guests, rounds, measured))
    alone = [
        row.shared.throughput_bytes_per_s
        for row in summary.guests
        if row.shared and row.vm_host not in {one.name for one in summary.fairness}
    ]
    whole = math.fsum(row.throughput_bytes_per_s for row in summary.fleet)
    assert math.fsum([*alone, *(one.throughput_bytes_per_s for one in summary.fairness)]) == pytest.approx(whole)
    assert all(1 / one.guests <= (one.fairness or 0.0) <= 1 + 1e-12 for one in summary.fairness)
    shares = [(p.between_vm_hosts, p.between_guests, p.between_rounds) for p in summary.parts]
    for known in ([share for share in of if share is not None] for of in shares):
        assert not known or sum(known) == pytest.approx(1.0) or sum(known) == 0.0


def test_the_fleet_is_no_sum_of_figures_from_different_rounds() -> None:
    """vm2 failed three of four rounds, in which vm1 had the disk to itself: the only round of both is what the fleet did."""
    whole = run((2000.0, 0.0), (2000.0, 0.0), (2000.0, 0.0), (1000.0, 900.0))
    failed = [
        replace(m, status="failed", why="EIO") if m.guest == "vm2" and m.block < 3 else m for m in whole.measurements
    ]
    summary = summarise(replace(whole, measurements=tuple(failed)))
    (fleet,) = summary.fleet
    assert (fleet.iops, fleet.status) == (pytest.approx(1900.0), "2 of 2 guests, 1 of 4 rounds")
    assert row_of(summary.guests, "vm1").iops == pytest.approx(1750.0)
    assert fleet.doubts == ()


def test_guests_that_a_limit_keeps_apart_are_not_summed() -> None:
    """Two at once of three: each part is a fleet of its own."""
    first, second = round_(0, ["vm1", "vm2"]), round_(1, ["vm3"])
    measured = [measurement(of, one, 100.0) for of, one in zip(GUESTS, (first, first, second), strict=True)]
    rows = summarise(record(GUESTS, [first, second], measured)).fleet
    assert [(row.scope, row.guests_planned, round(row.iops)) for row in rows] == [
        ("fleet, part 1 of 2", 2, 200),
        ("fleet, part 2 of 2", 1, 100),
    ]


def test_a_row_tells_its_whole_tail_as_far_as_there_are_samples() -> None:
    latencies = (100_000,) * 899 + (200_000,) * 60 + (400_000,) * 40 + (900_000,)
    one = round_(0, ["vm1"])
    found = measurement(GUESTS[0], one, 20_000.0, latency_ns=latencies)
    row = row_of(summarise(record(GUESTS[:1], [one], [found])).guests, "vm1")
    assert row.samples == 1_200_000
    assert row.p90_ns == pytest.approx(200_000, rel=0.01)
    assert row.p95_ns == pytest.approx(200_000, rel=0.01)
    assert row.p99_ns == pytest.approx(400_000, rel=0.01)
    assert row.p9999_ns == row.p99999_ns == percentile(found.read.latency, 99.999) if found.read else False
    assert row.tail_ratio == pytest.approx(4.0, rel=0.02)
    fewer = measurement(GUESTS[0], one, 2000.0, latency_ns=latencies)
    row = row_of(summarise(record(GUESTS[:1], [one], [fewer])).guests, "vm1")
    assert row.p9999_ns is not None
    assert row.p99999_ns is None  # 1.2 samples beyond


def test_the_cv_within_a_run_has_an_interval_and_says_over_which_intervals() -> None:
    one = round_(0, ["vm1"])
    found = measurement(GUESTS[0], one, 1000.0)
    assert found.series is not None
    bumpy = tuple(4096.0 * (90 if at % 3 else 120) for at in range(600))
    found = replace(found, series=replace(found.series, read_bytes=bumpy))
    row = row_of(summarise(record(GUESTS[:1], [one], [found])).guests, "vm1")
    assert row.interval_ms == 100.0
    assert row.cv_within_low is not None
    assert row.cv_within_high is not None
    assert row.cv_within_run is not None
    assert row.cv_within_low <= row.cv_within_run <= row.cv_within_high
    assert row.cv_within_high < 1.3 * row.cv_within_low


def test_fairness_is_of_the_guests_of_one_place_and_places_add_up_to_the_fleet() -> None:
    guests = (*GUESTS, guest("vm4", "hv2"))
    one = round_(0, [each.name for each in guests])
    found = [measurement(each, one, iops) for each, iops in zip(guests, (100.0, 200.0, 50.0, 50.0), strict=True)]
    summary = summarise(record(guests, [one], found))
    hosts = [row for row in summary.fairness if row.scope == "vm_host"]
    assert [(row.name, row.guests, row.lowest, row.highest) for row in hosts] == [
        ("hv1", 2, "vm1", "vm2"),
        ("hv2", 2, "vm3", "vm3"),
    ]
    assert [row.fairness for row in hosts] == [pytest.approx(0.9), pytest.approx(1.0)]
    assert math.fsum(row.throughput_bytes_per_s for row in hosts) == pytest.approx(
        summary.fleet[0].throughput_bytes_per_s
    )
    assert [row.name for row in summary.fairness if row.scope == "storage"] == ["pool"]


def test_nothing_is_shared_alone_and_a_vm_host_of_one_guest_is_not_shared() -> None:
    rounds = [round_(at, [one.name], load=LoadMode.ALONE) for at, one in enumerate(GUESTS)]
    found = [measurement(of, one, 100.0) for of, one in zip(GUESTS, rounds, strict=True)]
    assert summarise(record(GUESTS, rounds, found)).fairness == ()
    assert {row.name for row in summarise(run((1.0, 2.0, 3.0))).fairness} == {"hv1", "pool"}


def test_the_variance_of_rounds_is_split_into_shares_that_sum_to_one() -> None:
    """hv2 does half of hv1, and nothing else differs much: nearly all of the variance lies between vm_hosts."""
    guests = (*GUESTS, guest("vm4", "hv2"))
    rates = ((1000.0, 1010.0, 500.0, 505.0), (1004.0, 1006.0, 502.0, 507.0), (998.0, 1009.0, 499.0, 503.0))
    rounds, found = [], []
    for at, each in enumerate(rates):
        rounds.append(round_(at, [one.name for one in guests], block=at))
        found += [measurement(of, rounds[-1], iops) for of, iops in zip(guests, each, strict=True)]
    row = next(row for row in summarise(record(guests, rounds, found)).parts if row.metric == "throughput")
    shares = (row.between_vm_hosts, row.between_guests, row.between_rounds)
    assert math.fsum(share or 0.0 for share in shares) == pytest.approx(1.0)
    assert row.between_vm_hosts is not None
    assert row.between_vm_hosts > 0.99
    assert (row.vm_hosts, row.guests, row.rounds) == (2, 4, 12)
    assert row.mean == pytest.approx(4096 * math.fsum(sum(each) for each in rates) / 12)


def test_a_pair_that_the_place_in_the_block_could_explain_is_doubtful() -> None:
    """Every place is 3 % slower than the one before, calyx 5 % faster than fio: balanced, but the places differ by 9 %."""
    rounds, found = [], []
    jitter = iter(
        [1.001, 0.999, 1.0, 1.002, 0.998, 1.001, 1.0, 0.999, 1.002, 1.0, 0.998, 1.001, 1.0, 1.001, 0.999, 1.0] * 2
    )
    for block in range(4):
        for place, engine in enumerate(
            ("calyx", "fio", "fio", "calyx") if block % 2 else ("fio", "calyx", "calyx", "fio")
        ):
            rounds.append(round_(len(rounds), ["vm1"], engine=engine, block=block))
            iops = 100_000 * 0.97**place * (1.05 if engine == "calyx" else 1.0) * next(jitter)
            found.append(measurement(GUESTS[0], rounds[-1], iops))
    summary = summarise(record(GUESTS[:1], rounds, found))
    row = next(row for row in summary.pairs if row.metric == "throughput")
    assert row.ratio == pytest.approx(1.05, rel=0.002)
    assert row.place_ratio == pytest.approx(0.97**-3, rel=0.01)
    assert row.place_p is not None
    assert row.place_p < 0.001
    assert "place" in row.doubt_names
    assert "place" in summary.fleet_pairs[0].doubt_names
    (doubt,) = [doubt for doubt in summary.doubts if doubt.name == "place"]
    assert doubt.label == "place 10 %"
    assert doubt.guests == ("vm1",)


def rounds_at(*rates: float, series: Sequence[float] | None = None) -> RunRecord:
    """One guest alone in its fleet: a round of each rate, 100 s apart."""
    rounds, found = [], []
    for block, iops in enumerate(rates):
        rounds.append(round_(block, ["vm1"], block=block))
        one = measurement(GUESTS[0], rounds[-1], iops, start_s=10.0 + 100 * block, start_line_ns=100 * block * 10**9)
        if series is not None and one.series is not None:
            column = tuple(4096 * iops * value / 10 for value in series)
            one = replace(one, series=replace(one.series, read_bytes=column))
        found.append(one)
    return record(GUESTS[:1], rounds, found)


@pytest.mark.parametrize(
    ("rates", "verdict", "words"),
    [
        ((1000, 1010, 1000, 990, 1000), "steady", "range 2 %"),
        ((1000, 900, 1300, 800, 1000), "not steady", "range 50 %"),
        ((1000, 1010, 1000, 990), "not enough rounds", "4 of 5"),
        ((2000, 2010, 1000, 990, 1000, 1001), "burst", "t = 200 s from the first"),
    ],
)
def test_rounds_are_steady_or_not_or_end_a_burst(rates: Sequence[float], verdict: str, words: str) -> None:
    (row,) = summarise(rounds_at(*rates)).steady
    assert row.verdict == verdict
    assert words in row.why
    assert (row.burst_at_s, row.burst_round) == ((200.0, 2) if verdict == "burst" else (None, None))


def test_a_credit_that_is_exhausted_in_every_round_is_a_burst_at_its_time() -> None:
    """20 s after the window's start, which is 10 s after the start line, the rate halves."""
    series = [1.5] * 200 + [0.75] * 400
    summary = summarise(rounds_at(1000, 1000, 1000, 1000, 1000, series=series))
    (row,) = summary.steady
    assert (row.verdict, row.unsteady) == ("burst", 5)
    assert row.burst_at_s == pytest.approx(30.0, abs=1.0)
    assert "plateau" in summary.guests[0].doubt_names
