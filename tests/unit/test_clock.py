"""The clock's estimates hold the truth within their bound, whatever the network does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calyx_orch.clock import DRIFT_PPM, Probe, combine, estimate, to_controller, to_guest
from calyx_orch.errors import AgentError
from calyx_orch.model import ClockBound

SECOND = 1_000_000_000
offsets = st.integers(-(10**18), 10**18)
delays = st.integers(0, 10 * SECOND)
instants = st.integers(0, 10**17)


@given(offset=offsets, trips=st.lists(st.tuples(instants, delays, delays), min_size=1, max_size=30))
def test_the_true_offset_is_within_the_bound(offset: int, trips: list[tuple[int, int, int]]) -> None:
    """However unevenly the way there and the way back share the round trip."""
    probes = [Probe(sent, sent + there + offset, sent + there + back) for sent, there, back in trips]
    clock = estimate(probes)
    assert abs(clock.offset_ns - offset) <= clock.bound_ns
    assert clock.bound_ns <= min(there + back for _, there, back in trips) // 2 + 2


@given(offset=offsets, trips=st.lists(st.tuples(instants, delays, delays), min_size=2, max_size=10))
def test_more_probes_never_widen_the_bound(offset: int, trips: list[tuple[int, int, int]]) -> None:
    probes = [Probe(sent, sent + there + offset, sent + there + back) for sent, there, back in trips]
    assert estimate(probes).bound_ns <= estimate(probes[:-1]).bound_ns


def test_a_probe_that_ends_before_it_begins_is_no_evidence() -> None:
    assert estimate([Probe(100, 5, 50), Probe(0, 1007, 10)]).offset_ns == 1002
    with pytest.raises(AgentError, match="no usable clock probe"):
        estimate([Probe(100, 5, 50)])


@given(
    offset=offsets,
    drift_ppm=st.floats(-500, 500),
    span_ns=st.integers(1, 3600 * SECOND),
    share=st.floats(-0.5, 1.5),
    bounds=st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)),
    errors=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
)
def test_a_steady_drift_stays_within_the_combined_bound(
    offset: int, drift_ppm: float, span_ns: int, share: float, bounds: tuple[int, int], errors: tuple[float, float]
) -> None:
    """Two measurements, each wrong by up to its bound: between them and near them the truth is within the result's bound."""
    begin_ns = 10**15

    def true_offset(at_ns: int) -> int:
        return offset + int((at_ns - begin_ns) * drift_ppm / 1e6)

    end_ns, at_ns = begin_ns + span_ns, begin_ns + int(span_ns * min(max(share, 0), 1))
    before = ClockBound(true_offset(begin_ns) + int(bounds[0] * errors[0]), bounds[0])
    after = ClockBound(true_offset(end_ns) + int(bounds[1] * errors[1]), bounds[1])
    clock = combine(before, begin_ns, after, end_ns, at_ns)
    assert abs(clock.offset_ns - true_offset(at_ns)) <= clock.bound_ns + 3
    outside_ns = begin_ns + int(span_ns * share)
    assert combine(before, begin_ns, after, end_ns, outside_ns).bound_ns >= min(bounds)


@given(
    wander=st.lists(st.floats(-DRIFT_PPM / 2, DRIFT_PPM / 2), min_size=2, max_size=20),
    part=st.integers(0, 19),
    rate=st.floats(-100, 100),
)
def test_a_wandering_rate_stays_within_the_combined_bound(wander: list[float], part: int, rate: float) -> None:
    """A rate that changes every second, never further from its mean than the wander allows."""
    offsets_ns = [0.0]
    for ppm in wander:
        offsets_ns.append(offsets_ns[-1] + (rate + ppm) * 1000)  # 1 ppm of a second is 1000 ns
    exact = [ClockBound(round(value), 0) for value in offsets_ns]
    at = min(part, len(wander))
    clock = combine(exact[0], 0, exact[-1], len(wander) * SECOND, at * SECOND)
    assert abs(clock.offset_ns - offsets_ns[at]) <= clock.bound_ns + 2


def test_at_its_ends_the_bound_is_that_of_the_measurement() -> None:
    before, after = ClockBound(1000, 50), ClockBound(3000, 70)
    assert combine(before, 0, after, 10 * SECOND, 0) == ClockBound(1000, 51)
    assert combine(before, 0, after, 10 * SECOND, 10 * SECOND) == ClockBound(3000, 71)
    middle = combine(before, 0, after, 10 * SECOND, 5 * SECOND)
    assert middle.offset_ns == 2000
    assert 100_000 < middle.bound_ns < 102_000, "5 s at 20.2 ppm, and 61"


def test_two_measurements_at_one_instant_give_the_better_one() -> None:
    assert combine(ClockBound(5, 90), 7, ClockBound(9, 30), 7, 7) == ClockBound(9, 30)


@given(at_ns=instants, offset=offsets)
def test_there_and_back_is_the_same_instant(at_ns: int, offset: int) -> None:
    clock = ClockBound(offset, 0)
    assert to_controller(to_guest(at_ns, clock), clock) == at_ns
