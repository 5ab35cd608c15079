"""Plays the rounds of a journal again through the state machine: the same events lead to the same actions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from calyx_orch import coordination as co
from calyx_orch.store import archive


def check(entries: Sequence[archive.Entry]) -> int:
    """Play each round from its `Opened` on, and compare all that it led to. Returns how many events that were."""
    played = 0
    for at, entry in enumerate(entries):
        if entry["event"] == "Opened":
            mine = [one for one in entries[at:] if one.get("round") == entry["round"]]
            end = next((n for n, one in enumerate(mine) if n and one["event"] in ("Opened", "done")), len(mine))
            for one, actions in co.replay(mine[:end]):
                assert one.get("actions", []) == actions, one
                played += 1
    return played


def check_all(base: Path) -> int:
    """Play every journal below a directory. Returns how many events that were."""
    return sum(check(archive.journal(found.parent)) for found in sorted(base.rglob("journal.jsonl")))
