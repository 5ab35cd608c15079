"""Steady, not steady and burst: at the limits of SNIA's window, and never by noise alone."""

from __future__ import annotations

import numpy as np
import pytest

from calyx_orch.analysis.steady import fall, last_window, within


@pytest.mark.parametrize(
    ("values", "is_steady"),
    [
        ((100, 100, 100, 100, 100), True),
        ((90, 110, 90, 110, 100), True),  # the range is just 20 % of the mean, the slope 4 %
        ((89.9, 110.1, 90, 110, 100), False),  # beyond 20 %
        ((97.5, 98.75, 100, 101.25, 102.5), True),  # a line that moves by 5 %
        ((94.9, 97.45, 100, 102.55, 105.1), False),  # by 10.2 %, in a range of 10.2 %
        ((95, 97.5, 100, 102.5, 105), True),  # by just 10 %
        ((10, 500, 97.5, 100, 100, 99, 100), True),  # only the last five count
    ],
)
def test_the_window_of_snia_at_its_limits(values: tuple[float, ...], is_steady: bool) -> None:
    found = last_window(values)
    assert found is not None
    assert found.is_steady is is_steady
    assert found.last == len(values) - 1


def test_the_window_measures_range_and_slope_as_shares_of_the_mean() -> None:
    """Of 80, 90, 100, 110, 120: range 40 of 100; the line rises by 10 a round, so by 40 over the window."""
    found = last_window([80, 90, 100, 110, 120])
    assert found is not None
    assert (found.mean, found.range_share, found.slope_share) == (
        pytest.approx(100),
        pytest.approx(0.4),
        pytest.approx(0.4),
    )
    assert last_window([1, 2, 3, 4]) is None
    assert last_window([0] * 5) is None


def test_a_level_that_falls_once_and_stays_is_a_burst() -> None:
    found = fall([800, 805, 400, 402, 398, 401])
    assert found is not None
    assert (found.at, found.before, found.after) == (2, pytest.approx(802.5), pytest.approx(400.25))
    assert fall([800, 805, 400, 402, 398, 801]) is None  # it came back
    assert fall([400, 402, 800, 805, 801]) is None  # it rose
    assert fall([800, 700, 600, 500, 400, 300]) is None  # it declines: no moment is its end
    assert fall([100, 101, 99, 100, 85, 84, 86]) is None  # by less than a fifth
    assert fall([100, 50]) is None


def test_the_moment_of_a_fall_within_a_round_is_found() -> None:
    """600 intervals of 0.1 s: 12.5 s quick, then half."""
    draw = np.random.default_rng(1)
    series = np.where(np.arange(600) < 125, 1000.0, 500.0) * draw.normal(1, 0.1, 600)
    found = within(series.tolist(), 0.1)
    assert found is not None
    assert found.verdict == "burst"
    assert found.fall_s == pytest.approx(12.5, abs=1.0)
    assert found.fall is not None
    assert found.fall.before / found.fall.after == pytest.approx(2.0, rel=0.05)


def test_a_trend_within_a_round_is_not_steady_and_no_burst() -> None:
    found = within(np.linspace(1000, 1300, 600).tolist(), 0.1)
    assert found is not None
    assert found.verdict == "not steady"


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_noise_alone_is_steady(rho: float) -> None:
    """Intervals that vary by 10 %, each like the one before, in 300 rounds: at most 1 % is called anything else."""
    draw = np.random.default_rng(2)
    noise = draw.normal(0, np.sqrt(1 - rho * rho), (300, 700))
    for at in range(1, 700):
        noise[:, at] += rho * noise[:, at - 1]
    found = [within((1000 * (1 + 0.1 * one[100:])).tolist(), 0.1) for one in noise]
    assert sum(one is None or one.verdict != "steady" for one in found) <= 3


def test_a_short_or_empty_round_tells_nothing() -> None:
    assert within([1.0] * 49, 0.1) is None
    assert within([0.0] * 600, 0.1) is None


def test_a_single_stall_is_no_burst() -> None:
    series = [1000.0] * 600
    series[200:215] = [0.0] * 15
    found = within(series, 0.1)
    assert found is not None
    assert found.verdict == "steady"
