"""The arithmetic of the benchmarks of many guests: means, quantiles, growth, clocks beside the truth, and what becomes of samples."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import fanout
import skew
from at_scale import clocks, estimates, servers
from side_by_side.goals import Figure, Verdict, judge

from calyx_orch.clock import Probe, taken_at

OPTIONS = argparse.Namespace(guests=100, held=1000)
AHEAD_NS = 86_400 * 10**9


def found(figures: list[Figure], name: str, cell: str = "") -> Figure:
    """The one figure of this name."""
    [figure] = [one for one in figures if one.name == name and cell in one.cell]
    return figure


# --- estimates -----------------------------------------------------------------------------------------------------


def test_a_mean_has_students_interval() -> None:
    """Three values: t of two degrees of freedom is 4.3027; a single value has no interval."""
    mean = estimates.mean([1.0, 2.0, 3.0])
    assert (mean.value, mean.pairs) == (2.0, 3)
    assert mean.high == pytest.approx(2.0 + 4.3027 / 3**0.5)
    assert mean.low == pytest.approx(2.0 - 4.3027 / 3**0.5)
    assert estimates.mean([5.0]).low is None


def test_a_quantile_is_one_of_the_values() -> None:
    """The 99th percentile of 100 values is the 99th of them; of fewer it is the largest."""
    values = [float(number) for number in range(100, 0, -1)]
    assert estimates.quantile(values, 0.99) == 99.0
    assert estimates.quantile(values[:50], 0.99) == 100.0
    assert estimates.quantile([3.0, 1.0, 2.0], 0.5) == 2.0


def test_an_exponent_is_that_of_the_growth() -> None:
    """Whatever the factor: 1 in proportion, 2 with the square; one size has no growth."""
    assert estimates.exponent([(10, 7.0), (100, 70.0), (1000, 700.0)]) == pytest.approx(1.0)
    assert estimates.exponent([(10, 3e2), (20, 12e2), (40, 48e2)]) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="two sizes"):
        estimates.exponent([(10, 1.0), (10, 2.0)])


# --- fanout --------------------------------------------------------------------------------------------------------


def test_controllers_are_compared_round_by_round() -> None:
    """A drift of the machine that both see is in no ratio; what was not measured is open and not met."""
    figures = fanout.command_figures({fanout.OURS: [1.0, 2.0, 3.0], fanout.PSSH: [2.0, 4.0, 6.0]}, 100)
    against = found(figures, "CPU against parallel-ssh")
    assert against.estimate is not None
    assert against.estimate.value == pytest.approx(0.5)
    assert judge(against) is Verdict.MET
    assert judge(found(figures, "CPU against ansible")) is Verdict.OPEN
    own = found(figures, "CPU a guest, calyx-orch").estimate
    assert own is not None
    assert own.value == pytest.approx(20.0)


def test_the_first_run_that_uploads_is_not_what_a_guest_costs() -> None:
    """It is told beside; an upload the second time misses its goal."""
    flows = [
        {"cpu_s": 9.0, "uploads": 100, "lost": 0},
        {"cpu_s": 0.5, "uploads": 0, "lost": 0},
        {"cpu_s": 0.7, "uploads": 1, "lost": 2},
    ]
    figures = fanout.flow_figures(flows, 100)
    each = found(figures, "CPU a guest").estimate
    assert each is not None
    assert each.value == pytest.approx(6.0)
    assert judge(found(figures, "uploads the second time")) is Verdict.MISSED
    assert judge(found(figures, "guests lost")) is Verdict.MISSED
    assert judge(found(fanout.flow_figures(flows[:2], 100), "uploads the second time")) is Verdict.MET


def test_memory_is_what_is_held_above_the_start() -> None:
    """The run without an upload counts, for each guest."""
    flow = {"lost": 0, "base_kib": 10_000, "held_kib": 74_000, "peak_kib": 110_000}
    figures = fanout.held_figures([{**flow, "held_kib": 900_000}, flow], 1000)
    assert judge(found(figures, "memory a guest during the round")) is Verdict.MET
    assert (
        judge(found(fanout.held_figures([{**flow, "held_kib": 75_000}], 1000), "memory a guest during the round"))
        is Verdict.MISSED
    )
    peak = found(figures, "memory a guest at its peak").estimate
    assert peak is not None
    assert peak.value == 100.0


def test_growth_takes_the_least_of_the_tries_and_both_ends() -> None:
    """The first run of a size, which uploads, is left out; the upper end has its own figure, as a constant hides growth below."""
    held = {
        10: [{"cpu_s": 0.1}, {"cpu_s": 1.0}, {"cpu_s": 2.0}],
        100: [{"cpu_s": 50.0}, {"cpu_s": 10.0}],
        1000: [{"cpu_s": 500.0}, {"cpu_s": 200.0}],
    }
    figures = fanout.growth_figures(held)
    whole, upper = (one.estimate for one in figures)
    assert whole is not None
    assert upper is not None
    assert whole.value == pytest.approx(1.1505, abs=1e-3)
    assert upper.value == pytest.approx(1.30103, abs=1e-3)
    assert [judge(one) for one in figures] == [Verdict.MISSED, Verdict.MISSED]
    assert fanout.growth_figures({10: [{"cpu_s": 1.0}]}) == []


def test_every_guest_has_an_address_of_its_own() -> None:
    """A thousand of them, all of the loopback network and none of them a network's or a broadcast address."""
    given = servers.addresses(1000)
    assert len(set(given)) == 1000
    assert all(one.startswith("127.77.") and 0 < int(one.rpartition(".")[2]) < 255 for one in given)


# --- clocks --------------------------------------------------------------------------------------------------------


def probe(sent_ns: int, there_ns: int, back_ns: int) -> Probe:
    """A question whose two ways take these times, to a guest that is AHEAD_NS ahead."""
    return Probe(sent_ns, sent_ns + there_ns + AHEAD_NS, sent_ns + there_ns + back_ns)


def test_a_slow_way_back_is_an_error_within_the_bound() -> None:
    """20 ms in one direction only: half of it is the error, and the bound says so and no more."""
    judged = clocks.judge([probe(0, 50_000, 20_050_000), probe(10**9, 40_000, 20_040_000)], clocks.Truth(AHEAD_NS))
    assert judged.error_ns == 10_000_000
    assert not judged.is_outside
    assert not judged.is_too_wide


def test_an_estimate_off_the_truth_or_too_wide_is_found() -> None:
    """A guest that is elsewhere than the truth says is outside; a bound above half the trip is too wide."""
    assert clocks.judge([probe(0, 50_000, 50_000)], clocks.Truth(AHEAD_NS + 51_000)).is_outside
    assert clocks.Judged(0, 101, 100).is_too_wide
    assert not clocks.Judged(100, 100, 100).is_outside


def test_a_drift_is_simulated_from_an_instant_on() -> None:
    """A guest that is 200 ppm faster has gained 200 us after a second, and a probe is answered accordingly."""
    truth = clocks.Truth(AHEAD_NS, since_ns=10**9, drift_ppm=200)
    assert truth.offset_ns(10**9) == AHEAD_NS
    assert truth.offset_ns(2 * 10**9) == AHEAD_NS + 200_000
    assert truth.shown(probe(2 * 10**9, 0, 0)).guest_ns == 2 * 10**9 + AHEAD_NS + 200_000


def test_between_two_sets_a_drift_is_interpolated() -> None:
    """The error stays that of the ends; an estimate that stood still would be off by half a second's drift."""
    truth = clocks.Truth(AHEAD_NS, drift_ppm=200)
    sets = [[probe(at, 50_000, 50_000)] for at in (0, 10**9)]
    judged = clocks.judge_between(sets[0], sets[1], 500_050_000, truth)
    assert judged.error_ns < 100
    assert not judged.is_outside
    assert not judged.is_too_wide
    assert abs(clocks.Truth(AHEAD_NS).offset_ns(0) - truth.offset_ns(500_000_000)) == 100_000


def test_an_estimate_holds_at_the_instant_of_the_probe_that_was_kept() -> None:
    """Not when the last was answered: a clock that drifts has moved on by then."""
    assert taken_at([probe(1000, 50, 50), probe(5000, 10, 10), probe(9000, 50, 50)]) == 5010


# --- skew ----------------------------------------------------------------------------------------------------------


def test_the_largest_skew_of_a_round_counts_early_or_late() -> None:
    """Of calyx with its goal, of fio only told; where no first I/O is known the figure is open."""
    played = [skew.Played("calyx", (-700_000, 100_000), 1.0), skew.Played("fio-io_uring", (9_000_000,), 1.0)]
    figures = skew.skew_figures("8 guests", played, 0.6)
    calyx, fio = figures
    assert calyx.estimate is not None
    assert calyx.estimate.value == pytest.approx(0.7)
    assert judge(calyx) is Verdict.MISSED
    assert fio.goal is None
    [none] = skew.skew_figures("8 guests", [skew.Played("calyx", (), 1.0)], 0.6)
    assert none.estimate is None


def test_overlap_is_the_least_and_judged_only_where_rounds_are_long() -> None:
    """A short round's overlap is told: a start of some milliseconds is more of it."""
    played = [skew.Played("calyx", (0,), 0.999), skew.Played("fio-io_uring", (0,), 0.98)]
    long, short = skew.figures_of(skew.Found(rounds={"8 guests, 10 s": played, "8 guests, 2 s": played}))
    assert long.estimate is not None
    assert long.estimate.value == pytest.approx(98.0)
    assert judge(long) is Verdict.MISSED
    assert short.goal is None
