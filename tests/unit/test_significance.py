"""Whether two sides differ: known answers of the tests, the corrections and the smallest change that would be seen."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calyx_orch.analysis import significance

# Student's data on sleep (1908), hours gained with two drugs by ten patients: t = 4.0621 paired, p = 0.002833; Welch 1.8608, p = 0.07939.
SLEEP_1 = (0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0)
SLEEP_2 = (1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4)


def test_paired_units_give_students_published_answer() -> None:
    found = significance.paired([(math.exp(b), math.exp(a)) for a, b in zip(SLEEP_1, SLEEP_2, strict=True)])
    assert found.p == pytest.approx(0.002833, abs=5e-7)
    assert found.ratio == pytest.approx(math.exp(1.58))
    assert (found.low, found.high) == (pytest.approx(math.exp(0.7001142)), pytest.approx(math.exp(2.4598858)))


def test_unpaired_units_give_welchs_published_answer_where_neighbours_are_not_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(significance, "autocorrelation", lambda series: 0.0)
    found = significance.unpaired([math.exp(b) for b in SLEEP_2], [math.exp(a) for a in SLEEP_1])
    assert found.p == pytest.approx(0.07939, abs=5e-6)
    assert (found.low, found.high) == (pytest.approx(math.exp(-0.2054832)), pytest.approx(math.exp(3.3654832)))


def test_holm_and_benjamini_hochberg_give_the_published_answers() -> None:
    ps = [0.01, 0.04, 0.03, 0.005]
    assert significance.holm(ps) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert significance.benjamini_hochberg(ps) == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert significance.holm([]) == significance.benjamini_hochberg([]) == []


@given(st.lists(st.floats(0, 1), max_size=30))
def test_a_correction_keeps_the_order_and_never_lowers_a_p(ps: list[float]) -> None:
    for correct in (significance.holm, significance.benjamini_hochberg):
        adjusted = correct(ps)
        assert all(p <= q <= 1 or q == pytest.approx(p) for p, q in zip(ps, adjusted, strict=True))
        by_p = sorted(range(len(ps)), key=lambda at: ps[at])
        assert all(adjusted[a] <= adjusted[b] for a, b in itertools.pairwise(by_p))


def test_fewer_than_six_units_a_side_are_not_enough_data() -> None:
    assert significance.paired([(2.0, 1.0)] * 5).reason == "not enough data: 5 of 6 pairs a side"
    found = significance.unpaired([1.0] * 9, [2.0] * 5)
    assert (found.ratio, found.p, found.reason) == (pytest.approx(0.5), None, "not enough data: 5 of 6 units a side")
    assert significance.paired([(None, 1.0), (0.0, 1.0)]).reason == "no pair of figures"


def test_how_many_units_a_test_without_a_shape_needs_grows_with_the_rows() -> None:
    """All of n pairs on one side have p = 2 / 2^n, all of n units above n others 2 / C(2n, n): 2 / 64 and 2 / 924 of six."""
    needed = significance.units_without_shape
    assert [needed(rows, is_paired=True) for rows in (1, 2, 12, 13)] == [6, 7, 9, 10]
    assert [needed(rows, is_paired=False) for rows in (1, 23, 24)] == [6, 6, 7]


def test_units_that_all_say_the_same_have_no_spread() -> None:
    assert significance.paired([(2.0, 1.0)] * 6).p == 0.0
    assert significance.paired([(1.0, 1.0)] * 6).p == 1.0


def test_the_detectable_change_is_that_of_the_noncentral_t() -> None:
    """Cohen (1988): with 34 pairs a difference of half a standard deviation of the differences is seen in 80 of 100 tries."""
    rng = np.random.default_rng(1)
    logs = rng.normal(size=34)
    logs = (logs - logs.mean()) / logs.std(ddof=1)
    found = significance.paired([(math.exp(value), 1.0) for value in logs])
    assert found.detectable is not None
    assert math.log1p(found.detectable) == pytest.approx(0.50, abs=0.01)


def test_drift_widens_the_interval_of_unpaired_sides_by_what_theory_says() -> None:
    """The variance of a mean of n values of a first-order process is s^2/n (1 + 2 sum (1 - k/n) rho^k) in the limit (1 + rho)/(1 - rho)."""
    assert significance.inflation(0.0, 10) == pytest.approx(1.0)
    assert significance.inflation(0.5, 100_000) == pytest.approx(3.0, rel=1e-3)


def test_likely_estimates_of_a_likeness_have_the_published_spread() -> None:
    """Moran (1948): in white noise (n - 2)^2 / (n^2 (n - 1)), here of 4000 pairs of series of 12, freed of bias and before the cut."""
    draw = np.random.default_rng(5)
    series = draw.normal(size=(4000, 2, 12))
    centred = series - series.mean(axis=2, keepdims=True)
    raw = (centred[:, :, 1:] * centred[:, :, :-1]).sum(axis=(1, 2)) / (centred * centred).sum(axis=(1, 2))
    seen = float(((12 * raw + 1) / 9).std())
    likely = significance.likely_estimates(0.4, [12, 12])
    half = (likely[11] - likely[4]) / (math.sqrt(1 - 0.4**2) * 2 * 0.5791)  # of a normal curve at 11.5 / 16
    assert half == pytest.approx(seen, rel=0.05)
    assert (likely.min(), likely.max()) == (0.0, pytest.approx(0.8, abs=0.06))
    assert significance.likely_estimates(0.2, [3, 3]).tolist() == [0.2] * significance.LIKELY


def test_the_detectable_change_of_six_units_a_side_is_seen_in_four_of_five_tries() -> None:
    """Of so few units the likeness of neighbours is half a guess; a formula that takes it for known is seen in 74 of 100."""
    draw = np.random.default_rng(6)

    def tries(change: float) -> list[significance.Effect]:
        sides = np.exp(draw.normal(np.array([[change], [0.0]]), 0.05, (1000, 2, 6)))
        return [significance.unpaired(*side.tolist()) for side in sides]

    stated = math.log1p(float(np.median([found.detectable for found in tries(0.0)])))
    seen = sum((found.p or 1.0) < 0.05 for found in tries(stated)) / 1000
    assert 0.76 <= seen <= 0.84


def test_autocorrelation_is_found_on_average() -> None:
    rng = np.random.default_rng(2)
    found = []
    for _ in range(300):
        values = np.zeros(200)
        for at in range(1, 200):
            values[at] = 0.5 * values[at - 1] + rng.normal()
        found.append(significance.autocorrelation([values[:100], values[100:]]))
    assert np.mean(found) == pytest.approx(0.5, abs=0.02)
