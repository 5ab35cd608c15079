"""A night held against the nights before: what opened, what recovered, who is suspect, with intervals. Pure.

`tonight` compares what the history shows now with what was told before, so that each incident is told once when it opens and once
when it recovers. A suspect that a second measurement of the same night agrees with is confirmed: told at once, and an incident when it
lasts. One that it does not agree with is cleared, and listed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy import stats

from calyx_orch import units
from calyx_orch.analysis import history, regression
from calyx_orch.analysis.history import History, Track

LEVEL = 0.05
WORDS = {"throughput_bytes_per_s": "throughput", "p99_ns": "P99"}


@dataclass(frozen=True)
class Told:
    """An incident that was told, as the store keeps it. `recovered_run` None: it is open."""

    metric: str
    series: str
    since_run: str
    opened_run: str
    since_at: str
    change: float
    worse: bool
    recovered_run: str | None = None

    @property
    def sentence(self) -> str:
        """As that of a finding, without an interval."""
        return Finding(self.metric, self.series, "open", self.change, None, None, self.since_at).sentence


@dataclass(frozen=True)
class Finding:
    """A change with its 95 % interval: -0.12 is 12 % less. `kind` is open, confirmed or suspect."""

    metric: str
    series: str
    kind: str
    change: float
    low: float | None
    high: float | None
    since_at: str

    @property
    def sentence(self) -> str:
        """`hv2 randread-4k data together calyx: throughput 12 % less (9.1 % to 14.8 % less) since 2026-11-19`."""
        metric = WORDS.get(self.metric, self.metric)
        between = "" if self.low is None or self.high is None else f" ({_changed(self.low)} to {_changed(self.high)})"
        when = f" since {self.since_at[:10]}" if self.kind == "open" else f", {self.kind} tonight"
        return f"{self.series}: {metric} {_changed(self.change)}{between}{when}"


@dataclass(frozen=True)
class Tonight:
    """What one metric says of a night. `again` are suspects that wait to be measured again."""

    opened: tuple[Told, ...] = ()
    recovered: tuple[Told, ...] = ()
    still_open: tuple[Told, ...] = ()
    confirmed: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


class Row(Protocol):
    """A figure of a night as the store gives it."""

    @property
    def run_id(self) -> str: ...  # noqa: D102
    @property
    def started_at(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def what(self) -> str: ...  # noqa: D102
    @property
    def series_key(self) -> str: ...  # noqa: D102
    @property
    def value(self) -> float: ...  # noqa: D102
    @property
    def inventory(self) -> str: ...  # noqa: D102


def nights_of(rows: Iterable[Row]) -> list[history.Night]:
    """Rows of the store's trend as nights."""
    return [history.Night(row.run_id, row.started_at, row.name, row.what, row.series_key, row.value) for row in rows]


def nights_by_inventory(rows: Iterable[Row]) -> list[history.Night]:
    """The same; what has one name in several inventories is several places, called by theirs: it may be other guests, and machines."""
    rows = list(rows)
    inventories: dict[str, set[str]] = {}
    for row in rows:
        inventories.setdefault(row.name, set()).add(row.inventory)
    return [
        night._replace(name=f"{row.name} of {row.inventory}") if len(inventories[row.name]) > 1 else night
        for row, night in zip(rows, nights_of(rows), strict=True)
    ]


def series_of(rows: Iterable[Row]) -> dict[str, tuple[float, ...]]:
    """The figures of each series of such rows, by its name."""
    return {track.key: track.values for track in history.tracks_of(nights_by_inventory(rows))}


def tonight(
    found: History, told: Sequence[Told], measured_again: Mapping[str, float | None] | None = None, *, run_id: str = ""
) -> Tonight:
    """Judge the last night of a history.

    `told` is what was told of this metric before. `measured_again` holds the second figure of each suspect, None where there is
    none; `run_id` is the night, so that a series which was not measured in it says nothing new.
    """
    tracks = {track.key: track for track in found.tracks}
    is_here = {name: not run_id or track.points[-1].run_id == run_id for name, track in tracks.items()}
    open_now = {one.series: one for one in found.incidents if one.recovered is None}
    known = {one.series: one for one in told if one.recovered_run is None}
    told_before = {(one.series, one.opened_run) for one in told}
    opened, still, recovered = [], [], []
    for name, incident in open_now.items():
        if name in known:
            still.append(replace(known[name], change=incident.change))
            continue
        points = tracks[name].points
        one = Told(
            found.metric, name, points[incident.since].run_id, points[incident.opened].run_id,
            points[incident.since].started_at, incident.change, incident.worse,
        )  # fmt: skip
        if (name, one.opened_run) not in told_before:
            opened.append(one)
    for name, before in known.items():
        if name in open_now:
            continue
        if name in tracks and is_here[name]:
            recovered.append(replace(before, recovered_run=tracks[name].points[-1].run_id))
        else:
            still.append(before)
    again = dict(measured_again or {})
    suspects = [name for name in found.suspects if is_here[name] and name not in known]
    confirmed = [
        name
        for name in suspects
        if (value := again.get(name)) is not None and regression.confirms(tracks[name].values, value)
    ]
    cleared = [name for name in suspects if again.get(name) is not None and name not in confirmed]
    waiting = [name for name in suspects if again.get(name) is None]
    findings = [
        _incident(found, tracks[one.series], one) for one in (*opened, *still) if one.worse and one.series in tracks
    ]
    findings += [_suspect(found, tracks[name], name, "confirmed") for name in confirmed]
    findings += [_suspect(found, tracks[name], name, "suspect") for name in waiting]
    return Tonight(
        tuple(opened), tuple(recovered), tuple(still), tuple(confirmed), tuple(cleared), tuple(waiting),
        tuple(sorted(findings, key=lambda one: -abs(math.log1p(one.change)))),
    )  # fmt: skip


def interval(values: Sequence[float], since: int) -> tuple[float, float, float] | None:
    """The change from the nights before `since` to those from it on, with its 95 % interval; None: too few nights for one.

    Hodges and Lehmann's shift of the logarithms with the interval of the rank test (Lehmann 1975), widened by the likeness of
    neighbouring nights (the variance of a mean grows by (1 + rho) / (1 - rho)).
    """
    values = regression.floored(values)
    before = np.log(np.asarray(values[max(0, since - regression.WINDOW) : since], dtype=np.float64))
    after = np.log(np.asarray(values[since:], dtype=np.float64))
    n, m = len(before), len(after)
    if n < 5 or m < 3:
        return None
    differences = np.sort((after[:, None] - before[None, :]).ravel())
    z = float(stats.norm.isf(LEVEL / 2))
    rank = math.floor(n * m / 2 - 0.5 - z * math.sqrt(n * m * (n + m + 1) / 12))
    middle = float(np.median(differences))
    low, high = float(differences[max(0, rank)]), float(differences[min(n * m - 1, n * m - 1 - rank)])
    found = regression.step(values[:since]) if since >= regression.NIGHTS_MIN else None
    rho = found.rho if found is not None else regression.RHO_PRIOR
    wider = math.sqrt((1 + rho) / (1 - rho))
    return math.expm1(middle), math.expm1(middle - wider * (middle - low)), math.expm1(middle + wider * (high - middle))


def prediction(values: Sequence[float]) -> tuple[float, float, float] | None:
    """The change of the last night against the nights before, with the 95 % interval of what one night can tell (Student)."""
    values = regression.floored(values)
    window = np.log(np.asarray(values[-(regression.WINDOW + 1) : -1], dtype=np.float64))
    n = len(window)
    if n < 5:
        return None
    middle = float(np.median(window))
    spread = regression.MAD_TO_SIGMA * float(np.median(np.abs(window - middle)))
    away = math.log(values[-1]) - middle
    reach = float(stats.t.isf(LEVEL / 2, n - 1)) * spread * math.sqrt(1 + 1 / n)
    return math.expm1(away), math.expm1(away - reach), math.expm1(away + reach)


def _incident(found: History, track: Track, one: Told) -> Finding:
    at = next((number for number, point in enumerate(track.points) if point.run_id == one.since_run), None)
    told = interval(track.values, at) if at is not None else None
    change, low, high = told or (one.change, None, None)
    return Finding(found.metric, one.series, "open", change, low, high, one.since_at)


def _suspect(found: History, track: Track, name: str, kind: str) -> Finding:
    told = prediction(track.values)
    change, low, high = told or (found.suspects[name].change, None, None)
    return Finding(found.metric, name, kind, change, low, high, track.points[-1].started_at)


def _changed(change: float) -> str:
    return f"{units.format_percent(100 * abs(change))} {'less' if change < 0 else 'more'}"
