"""The closing sentence names who stands out only beyond the noise, and ends with the next command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import WORKLOAD, guest, measurement, record, round_

from calyx_orch.analysis.rows import GuestRow, SharedRow
from calyx_orch.analysis.summary import summarise
from calyx_orch.analysis.verdict import outlier, sentence
from calyx_orch.model import GuestOutcome, LoadMode, RunRecord, Workload


def rows(
    throughput: Sequence[float],
    p99_ns: Sequence[int | None] | None = None,
    hosts: Sequence[str | None] | None = None,
    cv: float | None = 0.01,
) -> list[GuestRow]:
    """Guests that were all measured in the same three rounds."""
    found = []
    for number, value in enumerate(throughput):
        found.append(
            GuestRow(
                guest=f"vm{number}",
                vm_host=hosts[number] if hosts else None,
                storage=None,
                target="data",
                workload="w",
                engine="calyx",
                load="together",
                rounds=3,
                rounds_planned=3,
                status="ok",
                shared=SharedRow(
                    turns=(0, 1, 2),
                    throughput_bytes_per_s=value,
                    iops=value,
                    cv_between_repetitions=cv,
                    cv_p99_between_repetitions=cv,
                    p99_ns=p99_ns[number] if p99_ns else 1_000_000,
                ),
            )
        )
    return found


def sharing(row: GuestRow, **changes: Any) -> GuestRow:
    """The row with changes in what it did in the shared rounds."""
    assert row.shared is not None
    return replace(row, shared=replace(row.shared, **changes))


def run(
    *rates: float, workload: Workload = WORKLOAD, load: LoadMode = LoadMode.TOGETHER, repetitions: int = 3
) -> RunRecord:
    guests = [guest(f"vm{number}", "hv1") for number in range(len(rates))]
    rounds = [
        round_(index, [one.name for one in guests], block=index, workload=workload, load=load)
        for index in range(repetitions)
    ]
    measured = [measurement(of, one, rate) for one in rounds for of, rate in zip(guests, rates, strict=True)]
    outcomes = tuple(GuestOutcome(one.name, "measured") for one in guests)
    return replace(record(guests, rounds, measured), outcomes=outcomes)


def said(of: RunRecord) -> str:
    return sentence(of, summarise(of))


def test_an_even_fleet_has_no_one_standing_out() -> None:
    text = said(run(1000, 1010, 990))
    assert text == (
        "3 of 3 guests did 12.3 MB/s together at a P99 of 99.8 µs in randread-4k on data by calyx; no guest stands out; "
        "next: open runs/run/report.html."
    )


def test_the_guest_far_from_its_peers_is_named_with_how_far() -> None:
    assert "guest vm1 stands out with 40 % less throughput than the median of its peers" in said(
        run(1000, 600, 1000, 1000)
    )


@pytest.mark.parametrize("rates", [(), (1000.0,)])
def test_nobody_is_called_when_there_are_no_peers(rates: tuple[float, ...]) -> None:
    assert outlier(rows(rates)) is None
    assert "stands out" not in said(run(*rates))


@given(st.lists(st.floats(0.96, 1.04), min_size=2, max_size=12))
def test_a_spread_of_a_few_percent_is_noise(spread: list[float]) -> None:
    assert outlier(rows([1000 * value for value in spread])) is None


@given(
    st.lists(st.floats(0.99, 1.01), min_size=3, max_size=12), st.floats(0.01, 0.6), st.randoms(use_true_random=False)
)
def test_a_guest_far_below_an_even_fleet_is_found_wherever_it_is(
    spread: list[float], change: float, draw: object
) -> None:
    found = outlier(rows([1000 * change, *(1000 * value for value in spread)]))
    assert found is not None
    assert (found.kind, found.name, found.metric) == ("guest", "vm0", "throughput")


def test_repetitions_that_differ_as_much_are_noise() -> None:
    """30 % below its peers, but its own rounds scatter by 15 %."""
    assert outlier(rows([700, 1000, 1000], cv=0.15)) is None
    assert outlier(rows([700, 1000, 1000], cv=0.02)) is not None


def test_with_one_repetition_more_is_asked() -> None:
    assert outlier(rows([850, 1000, 1000], cv=None)) is None
    assert outlier(rows([700, 1000, 1000], cv=None)) is not None


def test_a_tail_that_scatters_from_round_to_round_is_noise() -> None:
    """Its throughput repeats well, its P99 does not: 30 % more P99 is not its own."""
    even = rows([1000, 1000, 1000], [1_300_000, 1_000_000, 1_000_000])
    assert outlier(even) is not None
    assert outlier([sharing(even[0], cv_p99_between_repetitions=0.15), *even[1:]]) is None


def test_two_rounds_are_too_few_to_believe_their_spread() -> None:
    few = [sharing(row, turns=(0, 1)) for row in rows([850, 1000, 1000], cv=0.001)]
    assert outlier(few) is None


def test_of_two_guests_the_one_that_does_worse_is_named() -> None:
    slow = outlier(rows([1000, 500]))
    assert slow is not None
    assert (slow.name, round(slow.change, 2)) == ("vm1", -0.5)
    late = outlier(rows([1000, 1000], [1_000_000, 3_000_000]))
    assert late is not None
    assert (late.name, late.metric) == ("vm1", "P99")


def test_a_vm_host_all_of_whose_guests_are_slow_is_named_instead_of_its_worst_guest() -> None:
    found = outlier(rows([1000, 1000, 1000, 600, 610, 580], hosts=["hv1"] * 3 + ["hv2"] * 3))
    assert found is not None
    assert (found.kind, found.name) == ("vm_host", "hv2")
    assert round(found.change, 2) == -0.4


def test_a_slow_guest_on_a_host_with_good_ones_is_its_own_story() -> None:
    found = outlier(rows([1000, 1000, 1000, 500, 1000, 1000], hosts=["hv1"] * 3 + ["hv2"] * 3))
    assert found is not None
    assert (found.kind, found.name) == ("guest", "vm3")


def test_a_tail_that_is_several_times_longer_is_told_as_such() -> None:
    one = round_(0, ["vm0", "vm1", "vm2"])
    guests = [guest(name) for name in one.guests]
    tails = ((100_000,), (100_000,), (500_000,))
    measured = [measurement(of, one, 1000.0, latency_ns=tail) for of, tail in zip(guests, tails, strict=True)]
    assert "guest vm2 stands out with 5.0 times as much P99 latency as the median of its peers" in said(
        record(guests, [one], measured)
    )


def test_what_is_doubtful_and_how_to_do_better_is_told() -> None:
    text = said(run(1000, 1000, workload=replace(WORKLOAD, runtime_s=1.0, ramp_s=1.0)))
    assert "doubtful: short" in text
    assert text.endswith(
        "next: open runs/run/report.html, then run again with `ramp_time: 10s` and `runtime: 60s` for true figures."
    )


def test_lost_guests_are_named_with_their_reasons() -> None:
    whole = run(1000, 1000, 1000)
    lost = [replace(m, status="failed", why="EIO") if m.guest == "vm2" else m for m in whole.measurements]
    outcomes = (*whole.outcomes[:2], GuestOutcome("vm2", "lost", "prepare", "no space left on /data"))
    text = said(replace(whole, measurements=tuple(lost), outcomes=outcomes))
    assert text.startswith("2 of 3 guests did 8.19 MB/s together")
    assert "1 of 3 guests was lost (vm2: no space left on /data)" in text


def test_an_interrupted_run_says_how_far_it_came() -> None:
    whole = run(1000, 1000)
    assert "the run was interrupted after 1 of 3 rounds" in said(
        replace(whole, measurements=whole.measurements[:2], status="interrupted")
    )


def test_a_run_that_was_cut_off_is_gone_on_with() -> None:
    """By a command to paste, before anything else; the page is named where it was drawn, and never on itself."""
    whole = run(1000, 1000)
    cut = replace(whole, measurements=whole.measurements[:2], status="interrupted", folder="my runs/1")
    resume = "next: `calyx-orch run --resume 'my runs/1'` to measure what is missing"
    of = summarise(cut)
    assert sentence(cut, of).endswith(f"; {resume}.")
    assert sentence(cut, of, is_drawn=False).endswith(f"; {resume}.")
    assert sentence(cut, of, on_page=True, is_drawn=True).endswith(f"; {resume}.")
    assert sentence(cut, of, is_drawn=True).endswith(f"; {resume}, then open 'my runs/1/report.html'.")
    nothing = replace(cut, measurements=())
    assert said(nothing) == f"No guest was measured; see 'my runs/1' for what each guest said; {resume}."
    assert "--resume" not in said(whole) + said(replace(whole, status="failed"))


def test_a_page_that_was_not_drawn_is_not_to_be_opened() -> None:
    whole = run(1000, 1000)
    assert "report.html" in said(whole)
    assert "report.html" not in sentence(whole, summarise(whole), is_drawn=False)


def test_a_run_without_any_figure_points_to_its_folder() -> None:
    whole = replace(run(1000, 1000), measurements=())
    assert said(whole) == "No guest was measured; see runs/run for what each guest said."


def test_when_no_guest_was_measured_the_steps_are_told_and_the_reasons_left_to_the_table() -> None:
    lost = tuple(GuestOutcome(f"vm{n}", "lost", "connect" if n else "preflight", "a long reason") for n in range(3))
    whole = replace(run(1000, 1000, 1000), measurements=(), outcomes=lost, status="failed")
    assert said(whole) == (
        "No guest was measured; 2 were lost at connect, 1 was lost at preflight; see runs/run for what each guest said."
    )


def test_the_round_that_an_interrupt_fell_into_does_not_count_as_played() -> None:
    whole = run(1000, 1000)
    cut = [replace(m, status="failed", why="stopped") for m in whole.measurements[4:6]]
    partly = replace(whole, measurements=(*whole.measurements[:4], *cut), status="interrupted")
    assert "the run was interrupted after 2 of 3 rounds" in said(partly)


def test_the_page_sends_nobody_to_the_page() -> None:
    whole = run(1000, 1000)
    assert "next:" not in sentence(whole, summarise(whole), on_page=True)
    short = run(1000, 1000, workload=replace(WORKLOAD, runtime_s=1.0, ramp_s=1.0))
    told = sentence(short, summarise(short), on_page=True)
    assert told.endswith("next: run again with `ramp_time: 10s` and `runtime: 60s` for true figures.")


def test_more_repetitions_are_asked_for_where_they_would_give_an_interval() -> None:
    vm = guest("vm0")
    rounds = [round_(0, ["vm0"]), round_(1, ["vm0"], engine="fio-libaio")]
    once = record([vm], rounds, [measurement(vm, one, 1000.0, engine=one.engine) for one in rounds])
    plan = replace(once.plan, inventory=replace(once.plan.inventory, repetitions=1))
    assert said(replace(once, plan=plan)).endswith("report.html, then run again with `repetitions: 3` for intervals.")


def test_the_demo_is_followed_by_an_inventory_of_ones_own() -> None:
    whole = run(1000, 1000)
    plan = replace(whole.plan, inventory=replace(whole.plan.inventory, name="loopback", source="demo.yaml"))
    assert said(replace(whole, plan=plan)).endswith("then `calyx-orch init` for an inventory of your own.")
    assert "--resume" not in said(replace(whole, plan=plan, status="interrupted")), "its guests are gone"


def test_one_guest_is_told_without_a_fleet() -> None:
    assert said(run(1000)).startswith("Guest vm0 did 4.10 MB/s at a P99 of 99.8 µs in randread-4k on data by calyx")


def test_a_folder_with_a_space_can_be_pasted() -> None:
    assert "open 'my runs/1/report.html'" in said(replace(run(1000, 1000), folder="my runs/1"))


def test_guests_alone_are_told_one_by_one() -> None:
    guests = [guest("vm0"), guest("vm1")]
    rounds = [round_(index, [of.name], load=LoadMode.ALONE) for index, of in enumerate(guests)]
    measured = [measurement(of, one, 1000.0) for of, one in zip(guests, rounds, strict=True)]
    assert said(record(guests, rounds, measured)).startswith("2 guests, each alone, did a median of 4.10 MB/s")


def test_a_guest_that_was_measured_once_is_compared_with_that_round_of_its_peers() -> None:
    """vm1 failed three rounds of four; alone vm0 did twice as much. Together they did 41 MB/s, and neither is the slower one."""
    whole = run(5000, 5000, repetitions=4)
    measured = []
    for each in whole.measurements:
        if each.round_index == 3:
            measured.append(each)
        elif each.guest == "vm1":
            measured.append(replace(each, status="failed", why="EIO"))
        else:
            measured.append(measurement(guest("vm0", "hv1"), whole.plan.rounds[each.round_index], 10_000.0))
    text = said(replace(whole, measurements=tuple(measured)))
    assert text.startswith(
        "2 of 2 guests did 41.0 MB/s together at a P99 of 99.8 µs in the 1 of 4 rounds that they share, in "
    )
    assert "no guest stands out" in text


def test_guests_that_never_ran_in_the_same_round_are_not_compared() -> None:
    whole = run(1000, 100, repetitions=2)
    apart = tuple(each for each in whole.measurements if each.round_index == int(each.guest[2:]))
    text = said(replace(whole, measurements=apart))
    assert "no guest is compared with another, as no two were measured in the same rounds" in text
    assert "stands out" not in text


FAILED = st.integers(2, 5).flatmap(
    lambda guests: st.lists(st.lists(st.booleans(), min_size=guests, max_size=guests), min_size=1, max_size=5)
)


@given(FAILED, st.sampled_from(LoadMode))
def test_no_guest_is_named_for_rounds_that_its_peers_did_not_run(ok: list[list[bool]], load: LoadMode) -> None:
    """All guests are alike in each round, but a round is the slower the fewer have failed: whoever is named is wronged."""
    guests = [guest(f"vm{number}", "hv1") for number in range(len(ok[0]))]
    rounds, measured = [], []
    for block, each in enumerate(ok):
        sets = [[of] for of in guests] if load is LoadMode.ALONE else [guests]
        for names in sets:
            one = round_(len(rounds), [of.name for of in names], block=block, load=load)
            rounds.append(one)
            rate = 10_000.0 / (1 + sum(each) + 10 * block)
            found = [measurement(of, one, rate, latency_ns=[round(1e9 / rate)] * 10) for of in names]
            measured += [
                m if each[guests.index(of)] else replace(m, status="failed", why="EIO")
                for m, of in zip(found, names, strict=True)
            ]
    assert outlier(summarise(record(guests, rounds, measured)).guests) is None


def test_a_guest_that_stood_still_is_told_so_in_the_same_breath() -> None:
    whole = run(1000, 1000, 1000, repetitions=1)
    frozen = whole.measurements[2]
    assert frozen.series is not None
    series = replace(frozen.series, read_ios=(100.0,) * 300 + (0.0,) * 300, read_bytes=(409600.0,) * 300 + (0.0,) * 300)
    assert frozen.read is not None
    frozen = replace(frozen, series=series, read=replace(frozen.read, ios=30_000, bytes=30_000 * 4096))
    text = said(replace(whole, measurements=(*whole.measurements[:2], frozen)))
    assert "guest vm2 stands out with 50 % less throughput than the median of its peers (stalled 30.0 s)" in text
    assert "doubtful: stalled 30.0 s on vm2" in text
