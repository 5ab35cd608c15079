"""A CV that cannot be computed is None with a reason; one that may mislead carries a warning."""

from __future__ import annotations

import json
import math
import statistics
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calyx_orch.analysis.variation import between_guests, between_repetitions, cv, mean_known, within_run
from calyx_orch.model import Series

CASE = Path(__file__).parent.parent / "golden" / "statistics" / "A-113"


def test_the_edges_of_a_cv_are_null_with_a_reason_or_flagged() -> None:
    """A-113: nothing, one value, zeros, a mean near zero, equal values; and no warning in the log."""
    inputs = json.loads((CASE / "cv_edge.json").read_text(encoding="utf-8"))
    facts = json.loads((CASE / "expected.json").read_text(encoding="utf-8"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for values, wanted in zip(inputs, facts, strict=True):
            found = cv(values)
            if wanted is None:
                assert found.value is None
                assert found.reason
            elif wanted == "flag":
                assert found.value is not None
                assert found.warning
            else:
                assert found.value == wanted
                assert not found.warning


@given(st.lists(st.floats(1.0, 1e12), min_size=2, max_size=40))
def test_a_cv_is_the_sample_standard_deviation_over_the_mean(values: list[float]) -> None:
    found = cv(values)
    assert found.value == pytest.approx(statistics.stdev(values) / statistics.fmean(values), rel=1e-6, abs=1e-9)
    assert found.n == len(values)


@given(st.lists(st.floats(1.0, 1e6), min_size=2, max_size=20), st.floats(0.001, 1000.0))
def test_a_cv_has_no_unit(values: list[float], scale: float) -> None:
    scaled = cv([value * scale for value in values], mean_floor=0.0)
    assert scaled.value == pytest.approx(cv(values).value, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_value_that_is_not_finite_gives_a_reason(bad: float) -> None:
    assert cv([1.0, bad]).value is None
    assert "finite" in cv([1.0, bad]).reason


def test_the_cv_within_a_run_is_that_of_the_bytes_of_its_intervals() -> None:
    series = Series(1, (1.0, 1.0), (100.0, 300.0), (0.0, 0.0), (100.0, 100.0))
    assert within_run(series).value == pytest.approx(statistics.stdev([200, 400]) / 300)


def test_one_repetition_or_one_guest_has_no_spread() -> None:
    assert between_repetitions([5.0]).value is between_guests([5.0]).value is None


def test_unknown_values_are_left_out_of_a_mean() -> None:
    assert mean_known([1.0, None, 3.0]) == 2.0
    assert mean_known([None]) is None
