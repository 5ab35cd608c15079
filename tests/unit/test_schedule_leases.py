"""Leases as a daemon sees them: watched by its own count of the time, whatever the clocks of others say."""

from __future__ import annotations

from typing import Any

from calyx_orch.schedule.leases import Leases

LENGTH_S = 60.0


def row(lease_s: float, daemon: str = "other/1/a") -> dict[str, Any]:
    return {"schedule": "nightly", "due_s": 7, "daemon": daemon, "lease_s": lease_s}


def test_a_lease_that_is_renewed_never_runs_out_however_wrong_its_clock_is() -> None:
    leases = Leases(LENGTH_S)
    for at in range(100):
        assert leases.run_out([row(5.0 + at // 2)], 1e9 + 10.0 * at) == {}


def test_one_that_is_not_renewed_runs_out_after_its_length_and_not_before() -> None:
    leases = Leases(LENGTH_S)
    told = [bool(leases.run_out([row(9e9)], 5.0 * at)) for at in range(14)]
    assert told == [False] * 12 + [True] * 2
    assert leases.run_out([row(9e9, daemon="next/2/b")], 70.0) == {}, "who took it over has its own time"


def test_one_that_was_let_go_of_has_run_out_at_once() -> None:
    assert Leases(LENGTH_S).run_out([row(0.0)], 5.0) == {("nightly", 7): ("other/1/a", 0.0)}


def test_what_a_watcher_did_not_see_counts_for_little() -> None:
    """It slept for a night, or the store was away: who renews may have had no chance either."""
    leases = Leases(LENGTH_S)
    assert leases.run_out([row(100.0)], 0.0) == {}
    assert leases.run_out([row(100.0)], 8 * 3600.0) == {}
    assert leases.run_out([row(110.0)], 8 * 3600.0 + 10.0) == {}
