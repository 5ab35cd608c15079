"""A-029: a missing right is found on every guest before anything is written on any."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from test_runner import plan_for, run

from calyx_orch.transport.simulated import Script


def test_nothing_is_written_before_all_guests_are_probed(tmp_path: Path) -> None:
    """One has no io_uring, one no fio to be asked for, so that it is through before the others: it waits for them."""
    order: list[tuple[str, str]] = []

    def noting(guest: str, change: Callable[[dict[str, Any]], None] = lambda _: None) -> Callable[..., list[bytes]]:
        def bend(message: dict[str, Any]) -> list[bytes]:
            order.append((message["type"], guest))
            change(message)
            return [json.dumps(message).encode()]

        return bend

    def forbid(message: dict[str, Any]) -> None:
        if message["type"] == "facts":
            message["io_uring"] = {"ok": False, "why": "io_uring_setup: EPERM (Operation not permitted)", "setups": []}

    scripts = {
        "denied": Script(bend=noting("denied", forbid)),
        "fioless": Script(bend=noting("fioless"), fio=False),
        "good": Script(bend=noting("good")),
    }
    ended, _ = run(plan_for(*scripts), tmp_path, scripts=scripts)
    states = {outcome.guest: (outcome.state, outcome.step) for outcome in ended.outcomes}
    assert states["denied"] == ("lost", "preflight")
    assert "EPERM" in next(outcome.reason for outcome in ended.outcomes if outcome.guest == "denied")
    assert states["good"][0] == "measured"
    written = next(at for at, (kind, _) in enumerate(order) if kind in ("beat", "prepared"))
    before = order[:written]
    assert {guest for kind, guest in before if kind == "facts"} == set(scripts)
    assert ("exited", "good") in before, "also the version of the last one's fio"
    assert ("prepared", "denied") not in order
