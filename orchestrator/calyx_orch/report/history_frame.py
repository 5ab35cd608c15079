"""A history as tables for its figures: one `HistoryFrame`, made once for a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from calyx_orch.analysis.history import History, Point, Track
from calyx_orch.analysis.regression import Incident, Suspect


@dataclass(frozen=True)
class Line:
    """One series: when its nights were (local time of the run, naive), their values, and those of another make before."""

    key: str
    name: str
    workload: str
    nights: pd.DatetimeIndex
    values: npt.NDArray[np.float64]
    former_nights: pd.DatetimeIndex
    former_values: npt.NDArray[np.float64]
    incidents: tuple[Incident, ...]
    suspect: Suspect | None

    @property
    def weight(self) -> tuple[bool, bool, float]:
        """How much a reader wants to see it: open and worse first, then suspect, then the largest change."""
        changes = [abs(one.change) for one in self.incidents]
        is_open = any(one.recovered is None and one.worse for one in self.incidents)
        return is_open, self.suspect is not None, max(changes, default=0.0)


@dataclass(frozen=True)
class Due:
    """A time at which a schedule was to run, on the wall there (`2026-11-19 02:30`), what became of it, and why."""

    at: str
    state: str
    said: str = ""


@dataclass(frozen=True)
class HistoryFrame:
    """All lines of one metric (as people name it) by one scope, in the order of the history."""

    metric: str
    scope: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class ScheduleFrame:
    """When a schedule was due, in order, and its histories by metric as people name it."""

    due: tuple[Due, ...]
    histories: Mapping[str, HistoryFrame]


def frame_of(found: History, metric: str, scope: str) -> HistoryFrame:
    """Make the tables of a history."""
    return HistoryFrame(metric, scope, tuple(_line(found, track) for track in found.tracks))


def _line(found: History, track: Track) -> Line:
    return Line(
        key=track.key,
        name=track.name,
        workload=track.what.split(" ")[0],
        nights=_times(track.points),
        values=np.array(track.values, dtype=np.float64),
        former_nights=_times(track.others),
        former_values=np.array([point.value for point in track.others], dtype=np.float64),
        incidents=tuple(one for one in found.incidents if one.series == track.key),
        suspect=found.suspects.get(track.key),
    )


def _times(points: tuple[Point, ...]) -> pd.DatetimeIndex:
    """When the runs began, by the clock on the wall there: `2026-11-19T02:30:00+01:00` is 02:30."""
    return pd.DatetimeIndex([point.started_at[:19] for point in points])
