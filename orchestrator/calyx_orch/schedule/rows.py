"""Schedules and firings as the store keeps them: rows become values, and settings a row."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from calyx_orch.schedule.deciding import Firing, Schedule, Settings
from calyx_orch.store.schedules import Row


def schedule_of(row: Row) -> Schedule:
    """A schedule from its row."""
    return Schedule(row["name"], Settings(**row["settings"]), row["added_s"], row["considered_s"], bool(row["paused"]))


def firing_of(row: Row) -> Firing:
    """A firing from its row."""
    return Firing(**{**row, "places": tuple(row["places"])})


def settings_row(settings: Settings) -> dict[str, Any]:
    """Settings as the store keeps them."""
    return asdict(settings)
