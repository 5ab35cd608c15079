"""Guests that are one machine are told in one sentence a machine, whatever their number."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from calyx_orch.model import Connection, Guest, Target
from calyx_orch.runner import preflight


def session(name: str, boot_id: str | None, *, declared: bool = False) -> Any:
    """As much of a session as the decision reads: the guest and its facts."""
    one = replace(Guest(name, Connection(name), (Target("data", "/data"),)), same_machine=declared)
    return SimpleNamespace(guest=one, facts={} if boot_id is None else {"boot_id": boot_id})


def test_all_guests_of_one_machine_stand_in_one_sentence() -> None:
    """Four guests on one machine and two on another: two sentences, and not a sentence a pair."""
    told = preflight.twins([session(name, "x" if name in "abcd" else "y") for name in "abecdf"])
    assert [one.partition(" are ")[0] for one in told] == ["guests a, b, c and d", "guests e and f"]
    assert all("set same_machine: true" in one for one in told)


def test_guests_of_their_own_and_declared_ones_are_not_told() -> None:
    """A boot id of one's own, none at all, or `same_machine: true`."""
    ones = [session("a", "x"), session("b", "y"), session("c", None), session("d", None)]
    assert preflight.twins([*ones, session("e", "x", declared=True)]) == ()


def test_a_whole_fleet_on_one_machine_is_counted_and_not_listed() -> None:
    """Of a hundred names the first are told, and how many there are more."""
    (told,) = preflight.twins([session(f"vm{number}", "x") for number in range(100)])
    assert "vm0, vm1, " in told
    assert f"and {100 - preflight.TWINS_NAMED_MAX} more are the same machine" in told
