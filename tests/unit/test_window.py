"""All figures come from the time in which all guests of a round were active."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import guest, measurement, round_

from calyx_orch.analysis.window import (
    Window,
    amounts_in,
    clip_series,
    clipped,
    common_window,
    elapsed,
    own_window,
    rates_in,
)
from calyx_orch.model import NANOSECONDS, Measurement

GOLDEN = Path(__file__).parent.parent / "golden" / "statistics"


def facts(case: str, name: str) -> Any:
    return json.loads((GOLDEN / case / name).read_text(encoding="utf-8"))


def span(start_s: float, length_s: float, iops: float = 100.0, **changes: Any) -> Measurement:
    return measurement(guest("vm"), round_(0, ["vm"]), iops, start_s=start_s, length_s=length_s, **changes)


def test_the_rate_of_a_fleet_is_neither_divided_by_the_first_nor_by_the_last_finisher() -> None:
    """A-059: 1000 I/Os in 10 s beside 1000 in 20 s are 150 IOPS in the common window."""
    hosts, wanted = facts("A-059", "hosts.json"), facts("A-059", "expected.json")
    found = [
        span(host["start"], host["end"] - host["start"], host["ios"] / (host["end"] - host["start"])) for host in hosts
    ]
    common = common_window(found)
    assert common.window == Window(0, 10 * NANOSECONDS)
    assert common.overlap == 0.5
    assert common.window is not None
    assert sum(rates_in(one, common.window)[0] for one in found) == pytest.approx(wanted["common_window_iops"])
    whole = max(host["end"] for host in hosts)
    assert sum(one.total_ios for one in found) / whole == wanted["total_window_iops"]


def test_negative_differences_are_dropped_and_counted_never_zero() -> None:
    """A-055: a clock error pulls no percentile down."""
    samples, wanted = facts("A-055", "samples.json"), facts("A-055", "expected.json")
    kept, dropped = elapsed((sample["sent"], sample["recv"]) for sample in samples)
    assert (len(kept), dropped) == (wanted["used"], wanted["dropped"])
    assert min(kept) == pytest.approx(wanted["min_s"])


def test_a_window_that_ends_before_it_begins_is_counted_and_left_out() -> None:
    """A measurement with a clock error does not empty the common window of the others."""
    good, bad = span(10, 60), span(10, 60, window_end_ns=5 * NANOSECONDS)
    common = common_window([good, bad])
    assert common.clock_errors == 1
    assert common.window == own_window(good)
    assert common.overlap == 1.0


def test_guests_that_share_no_time_have_no_common_window() -> None:
    common = common_window([span(0, 10), span(20, 10)])
    assert common.window is None
    assert common.overlap == 0.0


def test_no_measurements_have_no_overlap() -> None:
    assert common_window([]).overlap is None


@given(st.floats(0, 50), st.floats(1, 60), st.floats(0, 50), st.floats(1, 60))
def test_a_constant_rate_is_the_same_in_every_window_inside(a: float, b: float, c: float, d: float) -> None:
    """Whole intervals and proportional edges: cutting a constant rate leaves the rate."""
    one, two = span(round(a, 1), round(b, 1), 1000.0), span(round(c, 1), round(d, 1), 1000.0)
    common = common_window([one, two])
    if common.window is not None and common.window.length_ns > NANOSECONDS // 20:
        assert rates_in(one, common.window)[0] == pytest.approx(1000.0, rel=1e-3)
        assert rates_in(one, common.window)[1] == pytest.approx(4_096_000.0, rel=1e-3)


@given(st.floats(0.5, 59.5))
def test_what_lies_before_and_after_an_instant_adds_up_to_the_whole(cut_s: float) -> None:
    one = span(10, 60, 1234.0)
    own = own_window(one)
    cut_ns = own.start_ns + round(cut_s * NANOSECONDS)
    before, after = (amounts_in(one, part) for part in (Window(own.start_ns, cut_ns), Window(cut_ns, own.end_ns)))
    assert before[0] + after[0] == pytest.approx(one.total_ios)
    assert before[1] + after[1] == pytest.approx(one.total_bytes)


@given(
    st.lists(st.integers(0, 1000), max_size=12),
    st.integers(1, 9),
    st.integers(0, 120),
    st.integers(-20, 130),
    st.integers(-20, 130),
)
def test_what_is_clipped_is_the_sum_over_all_intervals_of_their_parts_inside(
    values: list[int], interval_ns: int, length_ns: int, begin_ns: int, end_ns: int
) -> None:
    """Interval by interval, as the definition says; the last of them may be shorter."""
    own, common = Window(1000, 1000 + length_ns), Window(1000 + begin_ns, 1000 + end_ns)
    whole = 0.0
    for number, value in enumerate(values):
        start = own.start_ns + number * interval_ns
        is_last = number == len(values) - 1
        end = min(start + interval_ns, own.end_ns) if is_last else start + interval_ns
        inside = min(end, common.end_ns) - max(start, common.start_ns)
        whole += value * min(inside / max(end - start, 1), 1.0) if inside > 0 else 0.0
    assert clipped([float(value) for value in values], interval_ns, own, common) == pytest.approx(whole)


def test_the_totals_are_exact_when_the_common_window_is_the_guests_own() -> None:
    one = span(10, 60, 333.3)
    assert amounts_in(one, own_window(one)) == (one.total_ios, one.total_bytes)


def test_without_a_series_the_share_is_that_of_the_time() -> None:
    one = span(0, 10, 100.0, series=None)
    assert amounts_in(one, Window(0, 5 * NANOSECONDS)) == (500.0, 500.0 * 4096)


def test_a_clipped_series_holds_whole_intervals_only() -> None:
    one = span(0, 10)
    assert one.series is not None
    clipped = clip_series(one.series, own_window(one), Window(1_050_000_000, 2_950_000_000))
    assert len(clipped.read_ios) == 18
    assert clip_series(one.series, own_window(one), Window(0, 20 * NANOSECONDS)).read_ios == one.series.read_ios
