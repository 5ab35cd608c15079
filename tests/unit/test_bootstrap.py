"""The interval of a CV covers the true one, also when intervals are like those before them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from calyx_orch.analysis.bootstrap import block_length, cv_interval

CV = 0.05


def series(rho: float, n: int, count: int) -> np.ndarray:
    """`count` series of a first-order process with a true CV of 5 %."""
    draw = np.random.default_rng(7)
    noise = draw.normal(0.0, np.sqrt(1 - rho * rho), (count, n + 200))
    for at in range(1, n + 200):
        noise[:, at] += rho * noise[:, at - 1]
    return 1000.0 * (1.0 + CV * noise[:, 200:])


@pytest.mark.parametrize(("rho", "least"), [(0.0, 0.90), (0.5, 0.90), (0.8, 0.86)])
def test_the_interval_covers_the_true_cv(rho: float, least: float) -> None:
    """Single intervals would cover 62 % at a likeness of 0.8."""
    found = [cv_interval([one]) for one in series(rho, 600, 250)]
    covered = [low <= CV <= high for low, high in (one for one in found if one is not None)]
    assert len(covered) >= 240
    assert least <= sum(covered) / len(covered) <= 0.985


def test_more_rounds_narrow_the_interval() -> None:
    rounds = list(series(0.3, 600, 9))
    one, nine = cv_interval(rounds[:1]), cv_interval(rounds)
    assert one is not None
    assert nine is not None
    assert nine[1] - nine[0] < 0.5 * (one[1] - one[0])


def test_blocks_are_longer_the_more_alike_neighbours_are() -> None:
    lengths = [block_length(one[0]) for one in (series(0.0, 600, 1), series(0.5, 600, 1), series(0.9, 600, 1))]
    assert lengths == sorted(lengths)
    assert lengths[0] == 8  # 600^(1/3)
    assert lengths[2] > 30


def test_there_is_no_interval_where_none_could_cover() -> None:
    assert cv_interval([]) is None
    assert cv_interval([[1.0] * 99]) is None  # too few
    assert cv_interval([[0.0] * 600]) is None  # no mean
    assert cv_interval([[float(at) for at in range(600)]]) is None  # a trend
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cv_interval([[0.0] * 99 + [1.0]]) is None  # a third of the resamples hold no I/O at all: 0 / 0


def test_figures_that_never_vary_have_an_interval_of_no_width() -> None:
    low, high = cv_interval([[4.0] * 600]) or (1.0, 1.0)
    assert (low, high) == (0.0, 0.0)
