"""What is packed comes back equal, and small."""

from __future__ import annotations

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


def test_an_hour_of_intervals_is_small() -> None:
    ios = tuple(float(10_000 + at % 97) for at in range(36_000))
    zeros = (0.0,) * len(ios)
    packed = packing.pack_series(Series(100_000_000, ios, tuple(4096 * one for one in ios), zeros, zeros))
    assert len(packed) < 20 * len(ios)
