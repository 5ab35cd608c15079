"""What a killed agent left is named, and nothing else is."""

from __future__ import annotations

from calyx_orch.runner import preflight


def test_directories_of_a_killed_run_are_named_with_their_place() -> None:
    facts = {
        "paths": [{"path": "/data/", "stale": [".calyx-orch-a1", ".calyx-orch-b2"]}, {"path": "/xfs", "stale": []}]
    }
    (note,) = preflight.left_by_the_dead(facts)
    assert "/data/.calyx-orch-a1, /data/.calyx-orch-b2" in note


def test_a_guest_cannot_have_other_places_named() -> None:
    """Nobody is told to remove what is not ours."""
    facts = {"paths": [{"path": "/data", "stale": ["home", ".calyx-orch-/../../etc"]}]}
    assert preflight.left_by_the_dead(facts) == ()
