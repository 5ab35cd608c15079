"""Nights in a row: the points of the store grouped into series, with incidents, suspects, and what cannot be said yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from calyx_orch.analysis import regression
from calyx_orch.analysis.regression import Direction, Incident, Suspect

BETTER: dict[str, Direction] = {
    "throughput_bytes_per_s": "higher",
    "iops": "higher",
    "p50_ns": "lower",
    "p99_ns": "lower",
    "p999_ns": "lower",
    "cv_within_run": "lower",
    "cpu_ns_per_io": "lower",
}


class Point(NamedTuple):
    """One night of one series."""

    run_id: str
    started_at: str
    value: float


@dataclass(frozen=True)
class Track:
    """One series: what it is of, its nights in order, and the nights of another make, which are left out of all that is said."""

    name: str
    what: str
    points: tuple[Point, ...]
    broke_at: str = ""  # since when the series is as it is now, where it was otherwise before
    others: tuple[Point, ...] = ()

    @property
    def key(self) -> str:
        """What incidents and suspects call it."""
        return f"{self.name} {self.what}"

    @property
    def values(self) -> tuple[float, ...]:
        """The figures of all nights."""
        return tuple(point.value for point in self.points)


@dataclass(frozen=True)
class History:
    """All series of one metric, with incidents in order of opening, and the suspects of the last night among the others.

    A series that was not measured in the last night of those it was measured with, as that of a guest that is gone, is no suspect.
    """

    metric: str
    tracks: tuple[Track, ...]
    incidents: tuple[Incident, ...]
    suspects: dict[str, Suspect]


class Night(NamedTuple):
    """A row of the store's trend, as far as histories need it."""

    run_id: str
    started_at: str
    name: str
    what: str
    series_key: str
    value: float


def tracks_of(nights: Iterable[Night]) -> tuple[Track, ...]:
    """Group nights by place and I/O; a new make of guest, set-up or workload begins a new series, of which the last is shown."""
    gathered: dict[tuple[str, str], list[Night]] = {}
    for night in nights:
        gathered.setdefault((night.name, night.what), []).append(night)
    return tuple(_track(name, what, mine) for (name, what), mine in gathered.items())


def history(metric: str, nights: Iterable[Night]) -> History:
    """Find incidents and suspects of every series together; nights in order."""
    nights = list(nights)
    tracks = tracks_of(nights)
    series = {track.key: track.values for track in tracks}
    better = BETTER[metric]
    incidents = regression.incidents(series, better)
    known = {one.series for one in incidents if one.recovered is None}
    fresh = {name: series[name] for name in _measured_last(nights, tracks) if name not in known}
    return History(metric, tracks, incidents, regression.suspects(fresh, better))


def _measured_last(nights: Iterable[Night], tracks: Sequence[Track]) -> Iterable[str]:
    """The series that were measured in the last run of all with which they ever shared one."""
    order = {run_id: at for at, run_id in enumerate(dict.fromkeys(night.run_id for night in nights))}
    last = {track.key: order[track.points[-1].run_id] for track in tracks}
    latest: dict[str, int] = {}  # of each run the last one of any series that it measured
    for track in tracks:
        for point in track.points:
            latest[point.run_id] = max(latest.get(point.run_id, 0), last[track.key])
    return (track.key for track in tracks if last[track.key] == max(latest[point.run_id] for point in track.points))


def _track(name: str, what: str, nights: Sequence[Night]) -> Track:
    now = nights[-1].series_key
    mine, others = (
        tuple(
            Point(night.run_id, night.started_at, night.value)
            for night in nights
            if (night.series_key == now) is is_mine
        )
        for is_mine in (True, False)
    )
    return Track(name, what, mine, mine[0].started_at if others else "", others)
