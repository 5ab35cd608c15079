"""What trials write differs by guest and by trial, so that no layer below a fleet finds two equal blocks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from calyx_orch import engines
from calyx_orch.errors import AgentError
from calyx_orch.model import LoadMode, Round, Rw, Workload
from calyx_orch.runner import calibration


async def seed_of_trial(monkeypatch: pytest.MonkeyPatch, guest: str, seed: int) -> int:
    """The seed of the data that a trial on this guest is told to write."""
    seeds: list[int] = []

    def refused(round_: Round, *, data_seed: int, **others: Any) -> Any:
        seeds.append(data_seed)
        raise AgentError("enough is seen", step="trial")

    async def rest(within_s: float) -> bool:
        return True

    monkeypatch.setattr(engines, "command", refused)
    session: Any = SimpleNamespace(
        files={"data": ("/data/job.0",)},
        facts={},
        guest=SimpleNamespace(name=guest),
        agent=SimpleNamespace(hello={}),
        rest=rest,
    )
    round_ = Round(0, 0, Workload("w", rw=Rw.WRITE), "data", "calyx", LoadMode.ALONE, (guest,), seed)
    with pytest.raises(AgentError):
        await calibration.measure_alone(session, round_)
    return seeds[0]


async def test_two_guests_and_two_trials_never_write_the_same_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [("vm1", 7), ("vm2", 7), ("vm1", 8), ("vm2", 8)]
    seeds = [await seed_of_trial(monkeypatch, guest, seed) for guest, seed in asked]
    assert len(set(seeds)) == len(asked)
