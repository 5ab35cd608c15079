"""Variance is split into its levels as published, the parts always add up, and fairness has its known ends."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calyx_orch.analysis.parts import fairness, of_rounds

# Sokal and Rohlf, Biometry, box 10.1: wing lengths of 12 mosquitoes from 3 cages, each measured twice.
CAGES = {
    "1": {"1": [58.5, 59.5], "2": [77.8, 80.9], "3": [84.0, 83.6], "4": [70.1, 68.3]},
    "2": {"1": [69.8, 69.8], "2": [56.0, 54.5], "3": [50.7, 49.3], "4": [63.8, 65.8]},
    "3": {"1": [56.6, 57.5], "2": [77.8, 79.2], "3": [69.9, 69.2], "4": [62.1, 64.5]},
}


def test_a_published_analysis_comes_out_as_published() -> None:
    parts = of_rounds(CAGES)
    assert parts is not None
    assert parts.vm_hosts.squares == pytest.approx(665.6758, abs=1e-3)
    assert parts.guests.squares == pytest.approx(1720.6775, abs=1e-3)
    assert parts.rounds.squares == pytest.approx(15.6200, abs=1e-3)
    assert (parts.vm_hosts.freedom, parts.guests.freedom, parts.rounds.freedom) == (2, 9, 12)
    assert parts.vm_hosts.mean_square == pytest.approx(332.8379, abs=1e-3)
    assert parts.guests.mean_square == pytest.approx(191.1864, abs=1e-3)
    assert parts.rounds.variance == pytest.approx(1.3017, abs=1e-3)
    assert parts.guests.variance == pytest.approx(94.9424, abs=1e-3)
    assert parts.vm_hosts.variance == pytest.approx(17.7064, abs=1e-3)


UNEQUAL = st.dictionaries(
    st.sampled_from("abcd"),
    st.dictionaries(st.sampled_from("wxyz"), st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4), min_size=1),
    min_size=1,
)


@given(UNEQUAL)
def test_the_parts_add_up_to_the_whole_for_any_numbers(values: dict[str, dict[str, list[float]]]) -> None:
    parts = of_rounds(values)
    every = [value for guests in values.values() for rounds in guests.values() for value in rounds]
    if parts is None:
        assert len(every) < 2
        return
    mean = math.fsum(every) / len(every)
    whole = math.fsum((value - mean) ** 2 for value in every)
    summed = parts.vm_hosts.squares + parts.guests.squares + parts.rounds.squares
    assert summed == pytest.approx(whole, rel=1e-6, abs=1e-6 * (1 + mean * mean))
    assert parts.squares == pytest.approx(whole)
    assert parts.vm_hosts.freedom + parts.guests.freedom + parts.rounds.freedom == len(every) - 1
    shares = [parts.share(level) for level in (parts.vm_hosts, parts.guests, parts.rounds)]
    if parts.variance > 0:
        assert math.fsum(share for share in shares if share is not None) == pytest.approx(1.0)


def test_the_variance_of_each_level_is_found_also_of_unequal_numbers() -> None:
    """Drawn with standard deviations 3, 2 and 1: the mean of many analyses is 9, 4 and 1."""
    draw = random.Random(4)
    sums = [0.0, 0.0, 0.0]
    for _ in range(1500):
        values = {}
        for host in range(6):
            on_host = draw.gauss(100, 3)
            guests = {}
            for number in range(2 + host % 3):
                of_guest = on_host + draw.gauss(0, 2)
                guests[f"g{number}"] = [of_guest + draw.gauss(0, 1) for _ in range(2 + (host + number) % 4)]
            values[f"h{host}"] = guests
        parts = of_rounds(values)
        assert parts is not None
        for at, level in enumerate((parts.vm_hosts, parts.guests, parts.rounds)):
            assert level.variance is not None
            sums[at] += level.variance / 1500
    assert sums == [pytest.approx(9.0, rel=0.06), pytest.approx(4.0, rel=0.06), pytest.approx(1.0, rel=0.03)]


def test_a_level_that_cannot_be_told_has_no_variance() -> None:
    one_host = of_rounds({"h": {"a": [1.0, 2.0], "b": [3.0, 5.0]}})
    assert one_host is not None
    assert one_host.vm_hosts.variance is None
    one_guest_each = of_rounds({"h": {"a": [1.0, 2.0]}, "i": {"b": [3.0, 5.0]}})
    assert one_guest_each is not None
    assert one_guest_each.guests.variance is None
    assert one_guest_each.vm_hosts.variance is not None
    one_round = of_rounds({"h": {"a": [1.0], "b": [3.0]}})
    assert one_round is not None
    assert (one_round.rounds.variance, one_round.guests.variance) == (None, 2.0)
    assert of_rounds({"h": {"a": [1.0]}, "i": {}}) is None


def test_fairness_is_one_for_equal_shares_and_one_nth_when_one_has_all() -> None:
    assert fairness([5.0, 5.0, 5.0]) == pytest.approx(1.0)
    assert fairness([9.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert fairness([1.0, 2.0]) == pytest.approx(0.9)  # (1 + 2)^2 / (2 * 5)
    assert fairness([5.0]) is None
    assert fairness([0.0, 0.0]) is None
