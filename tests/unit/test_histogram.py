"""A percentile comes from merged buckets, by fio's rule, and is never further than a bucket from the samples' own."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import histogram_of

from calyx_orch.analysis.histogram import (
    _needed,
    coarsen,
    has_enough,
    mean_ns,
    merge,
    percentile,
    percentile_or_none,
    percentiles,
)
from calyx_orch.engines.buckets import (
    BUCKETS,
    fio_value_ns,
    index_of,
    lower_ns,
    of_fio_index,
    of_fio_value,
    to_fio_grid,
    upper_ns,
)
from calyx_orch.engines.fio_documents import read_output
from calyx_orch.model import Histogram

GOLDEN = Path(__file__).parent.parent / "golden"
LATENCIES = st.integers(0, 2**36)
QUANTILES = (
    1.0,
    5.0,
    10.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    70.0,
    80.0,
    90.0,
    95.0,
    99.0,
    99.5,
    99.9,
    99.95,
    99.99,
)  # fio's


def nearest_rank(samples: list[int], percent: float) -> int:
    """The P-th percentile of raw samples by nearest rank, with the count that fio's arithmetic asks for."""
    return sorted(samples)[_needed(len(samples), percent) - 1]


@given(st.integers(0, 2**41 - 1))
def test_every_value_lies_in_its_bucket(value: int) -> None:
    assert lower_ns(index_of(value)) <= value < upper_ns(index_of(value))


def test_buckets_join_without_gap_and_are_as_wide_as_the_header_says() -> None:
    assert all(lower_ns(index) < upper_ns(index) == lower_ns(index + 1) for index in range(BUCKETS - 1))
    assert index_of(2**41 - 1) == index_of(2**50) == BUCKETS - 1
    assert [upper_ns(index_of(value)) - lower_ns(index_of(value)) for value in (255, 256, 511, 512, 1 << 40)] == [
        1,
        2,
        2,
        4,
        1 << 33,
    ]


@given(st.integers(0, 29 * 64 - 1))
def test_every_bin_of_fio_maps_to_the_bucket_it_came_from_and_back(index: int) -> None:
    """The value fio prints for its bucket is exactly the one we print for ours."""
    value = of_fio_index(index)
    assert fio_value_ns(of_fio_value(value)) == value
    assert lower_ns(of_fio_value(value)) <= value


@given(LATENCIES)
def test_a_sample_lands_in_the_same_bucket_of_the_coarse_grid_by_either_way(value: int) -> None:
    """Recording on 128 and coarsening equals what fio records on 64."""
    index = to_fio_grid(index_of(value))
    next_index = index + (1 if index < 128 else 2)
    assert lower_ns(index) <= value < lower_ns(next_index)
    assert of_fio_value(fio_value_ns(index)) == index


@given(st.lists(st.lists(LATENCIES, min_size=1, max_size=50), min_size=1, max_size=6), st.sampled_from(QUANTILES))
def test_the_p99_of_a_merged_fleet_is_that_of_all_raw_samples_within_one_bucket(
    guests: list[list[int]], percent: float
) -> None:
    """Merging guests and reading off the bucket loses nothing but the bucket's width."""
    merged = percentile(merge(histogram_of(samples) for samples in guests), percent)
    raw = nearest_rank([sample for samples in guests for sample in samples], percent)
    assert merged is not None
    assert to_fio_grid(index_of(merged)) == to_fio_grid(index_of(raw))


def test_the_percentiles_of_three_recorded_guests_are_those_of_their_samples() -> None:
    """Fio's own log of each latency beside its bins: alone and merged, the samples' percentile lies in the same bucket."""
    raw, binned = [], []
    for number in (1, 2, 3):
        samples = [
            int(line) for line in (GOLDEN / "statistics" / "recorded" / f"vm{number}.samples").read_text().split()
        ]
        (job,) = read_output((GOLDEN / "statistics" / "recorded" / f"vm{number}.json").read_text()).jobs
        assert job.read is not None
        assert coarsen(histogram_of(samples)).buckets == job.read.latency.buckets
        assert [(percent, percentile(histogram_of(samples), percent)) for percent, _ in job.read.percentiles] == list(
            job.read.percentiles
        )
        raw.append(samples)
        binned.append(job.read.latency)
    everything = [sample for samples in raw for sample in samples]
    for percent in QUANTILES:
        merged = percentile(merge(binned), percent)
        assert merged is not None
        assert to_fio_grid(index_of(merged)) == to_fio_grid(index_of(nearest_rank(everything, percent)))


@given(st.lists(st.lists(LATENCIES, max_size=30), max_size=5))
def test_merging_is_recording_all_samples_in_one(guests: list[list[int]]) -> None:
    assert merge(histogram_of(samples) for samples in guests) == histogram_of(
        [s for samples in guests for s in samples]
    )


@given(st.lists(LATENCIES, max_size=60))
def test_merging_with_a_coarse_histogram_is_coarsening_the_merge(samples: list[int]) -> None:
    half = len(samples) // 2
    mixed = merge([histogram_of(samples[:half]), coarsen(histogram_of(samples[half:]))])
    assert coarsen(mixed).buckets == coarsen(histogram_of(samples)).buckets


def test_a_merged_p99_is_not_the_mean_nor_the_maximum_of_the_guests() -> None:
    """A-101: 100 000 fast and 1000 slow I/Os."""
    facts = json.loads((GOLDEN / "statistics" / "A-101" / "expected.json").read_text(encoding="utf-8"))
    guests = json.loads((GOLDEN / "statistics" / "A-101" / "hist.json").read_text(encoding="utf-8"))
    merged = merge(
        Histogram(tuple((index_of(int(us) * 1000), n) for us, n in counts.items())) for counts in guests.values()
    )

    def within(percent: float) -> float:
        return (percentile(merged, percent) or 0) / 1000

    assert within(99.0) == pytest.approx(facts["p99_us"], rel=0.01)
    assert within(99.9) == pytest.approx(facts["p99_9_us"], rel=0.01)


@given(st.integers(1, 10**12), st.sampled_from(QUANTILES) | st.floats(0.01, 100.0))
def test_the_count_that_a_percentile_needs_is_that_of_a_long_double(samples: int, percent: float) -> None:
    """Numpy's longdouble is the C type in which fio compares."""
    if np.finfo(np.longdouble).nmant != 63:
        pytest.skip("long double is not x86's here")
    wanted = np.longdouble(percent) / np.longdouble(100.0) * np.longdouble(samples)
    needed = _needed(samples, percent)
    assert np.longdouble(needed) >= wanted
    assert needed == 1 or np.longdouble(needed - 1) < wanted


def test_no_samples_have_no_percentile_and_no_mean() -> None:
    assert percentiles(Histogram(), (50.0, 99.0)) == (None, None)
    assert mean_ns(Histogram()) is None
    assert merge([]) == Histogram()


@pytest.mark.parametrize(("percent", "enough"), [(50.0, 20), (99.0, 1000), (99.9, 10_000), (99.99, 100_000)])
def test_a_percentile_with_fewer_than_ten_samples_beyond_is_blank(percent: float, enough: int) -> None:
    few = Histogram(((100, enough - 1),))
    assert percentile_or_none(few, percent) is None
    assert not has_enough(enough - 1, percent)
    assert percentile_or_none(Histogram(((100, enough),)), percent) == 100


@given(st.lists(LATENCIES, min_size=1, max_size=50))
def test_the_mean_of_a_histogram_is_exact(samples: list[int]) -> None:
    histogram = histogram_of(samples)
    assert mean_ns(histogram) == float(Fraction(sum(samples), len(samples)))
