"""The figures of places, night by night, as statements in somebody's transaction.

    lane      a place under one I/O by one engine, and what makes its nights comparable: written once, however many nights follow
    figure    what a lane did in a run: so small that two years of nights are few pages, in the order of time by one index
    latency   the histogram of that: large, and read only where it is asked for

The number of a lane is a digest of what it is, so it is the same in every store and nobody has to ask for the next one. Who writes lanes or
takes them away holds one lock (on PostgreSQL; on SQLite writers wait for each other anyway), so a lane is gone only when no figure is left.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from calyx_orch.analysis.scopes import ScopeRow
from calyx_orch.errors import UsageError
from calyx_orch.model import Histogram, LoadMode
from calyx_orch.store import packing, tables

LOCK = 0x63616C797A  # beside those of the migrations and of schedules
METRICS = ("throughput_bytes_per_s", "iops", "p50_ns", "p99_ns", "p999_ns", "cv_within_run", "cpu_ns_per_io")
PER_GUEST = (
    "throughput_bytes_per_s",
    "iops",
)  # kept as the mean guest's, so that a night without one is not a slower one
LANE = ("scope", "name", "target", "workload", "engine", "load", "series_key")
PAGE_COST = 1.1  # vm_hosts of one night lie on one page: to follow their lanes costs less than PostgreSQL thinks, which reads all guests
NUMBERS_AT_ONCE = 900  # older SQLite takes no more parameters


class NightRow(NamedTuple):
    """One figure of one run: a point of a trend."""

    run_id: str
    started_s: float
    started_at: str
    inventory: str
    scope: str
    name: str
    target: str
    workload: str
    engine: str
    load: str
    series_key: str
    guests: int
    value: float

    @property
    def what(self) -> str:
        """Which I/O it is of: workload, target, load, engine."""
        return f"{self.workload} {self.target} {self.load} {self.engine}"


def put(connection: Connection, run_id: str, started_s: float, rows: Sequence[ScopeRow]) -> None:
    """Write the figures of a run that has none."""
    if not rows:
        return
    lock(connection)
    lanes = [{name: getattr(row, name) for name in LANE} for row in rows]
    numbers = [lane_number(*lane.values()) for lane in lanes]
    new = dict(zip(numbers, lanes, strict=True))
    for known in _known(connection, list(new)):
        del new[known]
    if new:
        connection.execute(sa.insert(tables.lane), [{"id": number, **lane} for number, lane in new.items()])
    figures = [
        {
            "run_id": run_id,
            "lane": number,
            "place": place,
            "started_s": started_s,
            "guests": row.guests,
            "units": row.units,
            **{name: _finite(getattr(row, name)) for name in METRICS},
            "doubts": list(row.doubts),
        }
        for place, (number, row) in enumerate(zip(numbers, rows, strict=True))
    ]
    connection.execute(sa.insert(tables.figure), figures)
    packed = [
        {"run_id": run_id, "lane": number, "packed": packing.pack_histogram(row.latency)}
        for number, row in zip(numbers, rows, strict=True)
    ]
    connection.execute(sa.insert(tables.latency), packed)


def forget(connection: Connection, run_id: str) -> bool:
    """Take a run out with all that hangs on it, and the lanes that no other run has; whether it was there."""
    lock(connection)
    if connection.execute(sa.select(tables.run.c.run_id).where(tables.run.c.run_id == run_id)).first() is None:
        return False
    mine, others = tables.figure.c, tables.figure.alias("others").c
    elsewhere = sa.exists().where(others.lane == mine.lane, others.run_id != run_id)
    lone = list(connection.execute(sa.select(mine.lane).where(mine.run_id == run_id, ~elsewhere)).scalars())
    connection.execute(sa.delete(tables.run).where(tables.run.c.run_id == run_id))
    for some in _batches(lone):
        connection.execute(sa.delete(tables.lane).where(tables.lane.c.id.in_(some)))
    return True


def figures(connection: Connection, run_id: str, scope: str | None) -> tuple[Mapping[str, Any], ...]:
    """The figures of a run without their histograms, in the order in which they were put in; see `Store.figures`."""
    lane, figure = tables.lane.c, tables.figure.c
    columns = (*(lane[name] for name in LANE), *(figure[name] for name in ("guests", "units", *METRICS, "doubts")))
    wanted = sa.select(*columns).join_from(tables.figure, tables.lane, lane.id == figure.lane)
    wanted = wanted.where(figure.run_id == run_id).order_by(figure.place)
    if scope is not None:
        wanted = wanted.where(lane.scope == scope)
    return tuple(_told(dict(row)) for row in connection.execute(wanted).mappings())


def histograms(connection: Connection, run_id: str, where: Mapping[str, str]) -> tuple[Histogram, ...]:
    """The histograms of the lanes of a run of which `where` tells all, as they were put in."""
    lane, figure, latency = tables.lane.c, tables.figure.c, tables.latency.c
    wanted = (
        sa.select(latency.packed)
        .join_from(tables.latency, tables.lane, lane.id == latency.lane)
        .join(tables.figure, sa.and_(figure.run_id == latency.run_id, figure.lane == latency.lane))
        .where(latency.run_id == run_id, *(lane[name] == value for name, value in where.items()))
        .order_by(figure.place)
    )
    return tuple(packing.unpack_histogram(packed) for packed in connection.execute(wanted).scalars())


def trend(
    connection: Connection, metric: str, *, scope: str, since_s: float, where: Mapping[str, str]
) -> tuple[NightRow, ...]:
    """See `Store.trend`. What does not change from night to night is read once, and what a night is, once a night."""
    if metric not in METRICS:
        raise UsageError(f"no metric is called {metric!r}: there are {', '.join(METRICS)}")
    lane, figure, run = tables.lane.c, tables.figure.c, tables.run.c
    nights = sa.select(run.run_id, run.started_s, run.started_at, run.inventory).where(run.started_s >= since_s)
    if "inventory" in where:
        nights = nights.where(run.inventory == where["inventory"])
    mine = [lane.scope == scope, *(lane[name] == value for name, value in where.items() if name != "inventory")]
    points = (
        sa.select(figure.lane, figure.run_id, figure.guests, figure[metric])
        .join_from(tables.figure, tables.lane, lane.id == figure.lane)
        .where(*mine, figure.started_s >= since_s, figure[metric].is_not(None))
        .order_by(figure.started_s, figure.place)
    )
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"SET LOCAL random_page_cost = {PAGE_COST}"))
    runs = {row[0]: tuple(row) for row in connection.execute(nights)}
    lanes = {row[0]: tuple(row)[1:] for row in connection.execute(sa.select(lane.id, *_of(lane)).where(*mine))}
    return tuple(
        NightRow._make((*runs[run_id], *lanes[number], guests, value))
        for number, run_id, guests, value in connection.execute(points)
        if run_id in runs and number in lanes  # what came in between is seen the next time, and then whole
    )


def lock(connection: Connection) -> None:
    """Let nobody else write runs, lanes or baselines until this transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({LOCK})"))


def lane_number(*what: str) -> int:
    """The number of a lane by the values of LANE: 64 bits of a digest, so that a million lanes meet once in 40 million stores."""
    return int.from_bytes(hashlib.blake2b(json.dumps(what).encode(), digest_size=8).digest(), "big", signed=True)


# --- how ------------------------------------------------------------------------------------------------------------


def _finite(value: float | None) -> float | None:
    """SQLite takes NaN for unknown, and PostgreSQL for a number."""
    return value if value is not None and math.isfinite(value) else None


def _of(lane: Any) -> Iterable[sa.Column[Any]]:
    return (lane[name] for name in LANE)


def _known(connection: Connection, numbers: Sequence[int]) -> Iterator[int]:
    """Those of the lanes that are there."""
    for some in _batches(numbers):
        yield from connection.execute(sa.select(tables.lane.c.id).where(tables.lane.c.id.in_(some))).scalars()


def _batches(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[at : at + NUMBERS_AT_ONCE] for at in range(0, len(numbers), NUMBERS_AT_ONCE))


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    """A kept figure as it is shown: the mean guest's rates under a name of their own, and those of all its guests together."""
    shown: dict[str, Any] = {}
    for name, value in row.items():
        if name in PER_GUEST:
            whole = row["guests"] if row["load"] != LoadMode.ALONE or row["scope"] == "guest" else None
            shown[name] = None if value is None or whole is None else value * whole
            shown[f"guest_{name}"] = value
        else:
            shown[name] = value
    return shown
