"""What is packed comes back equal, and small."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from calyx_orch.model import Histogram, Series
from calyx_orch.store import packing

COUNTS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 1 << 50)), max_size=50)
FLOATS = st.floats(0, 1e15, allow_nan=False)


@given(COUNTS, st.one_of(st.none(), st.integers(0, 1 << 60)), st.integers(0, 1 << 62), st.integers(0, 1 << 40))
def test_a_histogram_comes_back_equal(
    buckets: list[tuple[int, int]], low: int | None, total: int, overflow: int
) -> None:
    histogram = Histogram(tuple(buckets), low, low, total, overflow, 64)
    assert packing.unpack_histogram(packing.pack_histogram(histogram)) == histogram


@given(st.lists(st.tuples(*[st.one_of(st.integers(0, 1 << 52).map(float), FLOATS)] * 4), max_size=40))
def test_a_series_comes_back_equal(rows: list[tuple[float, ...]]) -> None:
    columns = zip(*rows, strict=True) if rows else ((), (), (), ())
    series = Series(100_000_000, *(tuple(column) for column in columns))
    assert packing.unpack_series(packing.pack_series(series)) == series


@given(st.lists(st.integers(-(1 << 40), 1 << 40), min_size=1, max_size=20), st.integers(0, 1 << 12))
def test_bytes_that_are_a_multiple_of_the_ios_come_back_equal(ios: list[int], block: int) -> None:
    reads, zeros = tuple(map(float, ios)), (0.0,) * len(ios)
    series = Series(1, reads, tuple(block * one for one in reads), zeros, reads)
    assert packing.unpack_series(packing.pack_series(series)) == series


def test_an_hour_of_intervals_is_small() -> None:
    """Two bytes of an interval's noise are kept, and little besides."""
    ios = tuple(np.random.default_rng(1).normal(6000, 180, 36_000).round().tolist())
    zeros = (0.0,) * len(ios)
    packed = packing.pack_series(Series(100_000_000, ios, tuple(4096 * one for one in ios), zeros, zeros))
    assert len(packed) < 2.1 * len(ios)


def test_a_histogram_of_a_thousand_buckets_is_small() -> None:
    counts = np.random.default_rng(2).poisson(40, 1000) + 1
    packed = packing.pack_histogram(Histogram(tuple(zip(range(500, 1500), counts.tolist(), strict=True)), 1, 2, 3))
    assert len(packed) < 1200


@pytest.mark.parametrize("index", [-1, 1 << 16])
def test_a_bucket_that_none_can_have_is_refused(index: int) -> None:
    with pytest.raises(ValueError, match="no buckets"):
        packing.pack_histogram(Histogram(((index, 1),)))


def test_what_the_first_version_packed_is_still_read() -> None:
    """Its frames had no version in front, four bytes an index, and eight a count, a step or a figure."""
    head = struct.pack("<IIQqqQ", 2, 128, 7, -1, 900, 12_345)
    old = zstandard.compress(head + np.array([3, 4000], "<u4").tobytes() + np.array([5, 1 << 40], "<u8").tobytes())
    assert packing.unpack_histogram(old) == Histogram(((3, 5), (4000, 1 << 40)), None, 900, 12_345, 7, 128)
    columns = (b"w", np.array([10, 1, -3], "<i8")), (b"f", np.array([0.5, 1.5, 2.5])), (b"w", np.zeros(3, "<i8"))
    whole = struct.pack("<IQ", 3, 100) + b"".join(kind + values.tobytes() for kind, values in (*columns, columns[2]))
    zeros = (0.0, 0.0, 0.0)
    series = Series(100, (10.0, 11.0, 8.0), (0.5, 1.5, 2.5), zeros, zeros)
    assert packing.unpack_series(zstandard.compress(whole)) == series
