"""Schedules and firings in the store. A firing belongs to whom its row names, for as long as the lease is renewed.

What reads and then writes holds one lock (an advisory one on PostgreSQL, the write lock of SQLite), so that daemons decide one after
the other. The rows are plain; what they mean is said in `schedule.deciding`.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from calyx_orch.errors import UsageError
from calyx_orch.store import tables
from calyx_orch.store.database import Store

LOCK = 0x63616C7979  # beside that of the migrations
AT_WORK = ("running", "queued")
EMPTY: Mapping[str, Any] = {
    "kind": "planned", "reason": "", "attempt": 1, "daemon": "", "lease_s": 0.0, "started_s": None, "ended_s": None,
    "run_id": None, "folder": "", "inventory_sha256": "", "places": [], "verdict": "", "details": {}, "notice": "",
    "notice_tries": 0, "notice_next_s": 0.0, "notice_why": "", "message": {},
}  # fmt: skip

Row = Mapping[str, Any]


class Schedules:
    """The tables of schedules in an open store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # --- schedules ---

    def add(self, name: str, settings: Mapping[str, Any], now_s: float) -> None:
        """Add a schedule. Raises UsageError when there is one of that name."""
        with self._locked() as connection:
            if _one(connection, name) is not None:
                raise UsageError(
                    f"there is a schedule {name} already: `calyx-orch schedule remove {name}` takes it away"
                )
            row = {"name": name, "settings": dict(settings), "added_s": now_s, "considered_s": now_s, "paused": 0}
            connection.execute(sa.insert(tables.schedule), [row])

    def all(self) -> tuple[Row, ...]:
        """Every schedule, by name."""
        with self._store.transaction() as connection:
            return _rows(connection, sa.select(tables.schedule).order_by("name"))

    def one(self, name: str) -> Row:
        """A schedule by its name. Raises UsageError when there is none."""
        with self._store.transaction() as connection:
            found = _one(connection, name)
        if found is None:
            raise UsageError(f"no schedule is called {name!r}: `calyx-orch schedule list` shows them")
        return found

    def pause(self, name: str, *, paused: bool, now_s: float) -> None:
        """Hold a schedule, or let it go on from now."""
        self.one(name)
        with self._locked() as connection:
            values = {"paused": int(paused), "considered_s": now_s}
            connection.execute(sa.update(tables.schedule).where(tables.schedule.c.name == name).values(**values))

    def remove(self, name: str) -> None:
        """Take a schedule away, with its firings and incidents; runs and their folders stay. Raises UsageError while it runs."""
        self.one(name)
        with self._locked() as connection:
            here = tables.firing.c.schedule == name
            if connection.execute(
                sa.select(tables.firing.c.due_s).where(here, tables.firing.c.state == "running")
            ).first():
                raise UsageError(
                    f"{name} is running now: remove it when that is over (`calyx-orch schedule history {name}`)"
                )
            connection.execute(sa.delete(tables.firing).where(here))
            connection.execute(sa.delete(tables.incident).where(tables.incident.c.schedule == name))
            connection.execute(sa.delete(tables.schedule).where(tables.schedule.c.name == name))

    # --- inventories ---

    def keep_inventory(self, text: str) -> str:
        """Keep a copy of an inventory; its SHA-256."""
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        known = sa.select(tables.inventory_copy.c.sha256).where(tables.inventory_copy.c.sha256 == sha256)
        with self._store.transaction() as connection:
            if connection.execute(known).first() is not None:
                return sha256
        with self._locked() as connection:
            if connection.execute(known).first() is None:
                connection.execute(sa.insert(tables.inventory_copy), [{"sha256": sha256, "text": text}])
        return sha256

    def inventory(self, sha256: str) -> str:
        """A kept copy. Raises UsageError when there is none."""
        wanted = sa.select(tables.inventory_copy.c.text).where(tables.inventory_copy.c.sha256 == sha256)
        with self._store.transaction() as connection:
            found = connection.execute(wanted).scalar_one_or_none()
        if found is None:
            raise UsageError(f"the store has no copy of the inventory {sha256[:12]}")
        return str(found)

    # --- firings ---

    def firings(
        self, name: str | None = None, *, limit: int | None = None, states: tuple[str, ...] = ()
    ) -> tuple[Row, ...]:
        """Firings, the newest first."""
        columns = tables.firing.c
        wanted = sa.select(tables.firing).order_by(columns.due_s.desc(), columns.schedule)
        if name is not None:
            wanted = wanted.where(columns.schedule == name)
        if states:
            wanted = wanted.where(columns.state.in_(states))
        with self._store.transaction() as connection:
            return _rows(connection, wanted.limit(limit) if limit else wanted)

    def firing(self, name: str, due_s: int) -> Row:
        """One firing. Raises UsageError when it is not there."""
        with self._store.transaction() as connection:
            found = _rows(connection, sa.select(tables.firing).where(*_key(name, due_s)))
        if not found:
            raise UsageError(f"{name} has no firing of {due_s}")
        return found[0]

    def waiting_notices(self, now_s: float) -> tuple[Row, ...]:
        """Firings of which somebody is to be told by now."""
        columns = tables.firing.c
        wanted = sa.select(tables.firing).where(columns.notice == "waiting", columns.notice_next_s <= now_s)
        with self._store.transaction() as connection:
            return _rows(connection, wanted)

    def take_notice(self, row: Row, next_s: float) -> bool:
        """Take the next attempt to tell; False: another daemon has."""
        columns = tables.firing.c
        mine = (
            *_key(row["schedule"], row["due_s"]),
            columns.notice == "waiting",
            columns.notice_tries == row["notice_tries"],
        )
        values = {"notice_tries": row["notice_tries"] + 1, "notice_next_s": next_s}
        with self._locked() as connection:
            return bool(connection.execute(sa.update(tables.firing).where(*mine).values(**values)).rowcount)

    def update(self, name: str, due_s: int, *, owner: str | None = None, **values: Any) -> bool:
        """Change a firing, by an `owner` only while it runs as that daemon's; whether it was changed."""
        columns = tables.firing.c
        mine = () if owner is None else (columns.daemon == owner, columns.state == "running")
        with self._locked() as connection:
            found = connection.execute(sa.update(tables.firing).where(*_key(name, due_s), *mine).values(**values))
            return bool(found.rowcount)

    def renew(self, name: str, due_s: int, daemon: str, lease_s: float) -> bool:
        """Renew the lease of a firing; False: it belongs to another by now."""
        mine = (*_key(name, due_s), tables.firing.c.daemon == daemon, tables.firing.c.state == "running")
        with self._locked() as connection:
            found = connection.execute(sa.update(tables.firing).where(*mine).values(lease_s=lease_s))
            return bool(found.rowcount)

    # --- incidents ---

    def incidents(self, name: str, *, is_open: bool = False) -> tuple[Row, ...]:
        """What was told of a schedule, in order."""
        wanted = sa.select(tables.incident).where(tables.incident.c.schedule == name).order_by("since_at", "series")
        if is_open:
            wanted = wanted.where(tables.incident.c.recovered_run.is_(None))
        with self._store.transaction() as connection:
            return _rows(connection, wanted)

    def keep_incidents(self, name: str, opened: list[Row], closed: list[Row], changed: list[Row]) -> None:
        """Write down incidents that opened, recovered, or whose size is known better."""
        columns = tables.incident.c
        with self._locked() as connection:
            for row in opened:
                connection.execute(sa.insert(tables.incident), [{**row, "schedule": name}])
            for row in (*closed, *changed):
                here = [
                    columns.schedule == name,
                    *(columns[key] == row[key] for key in ("metric", "series", "opened_run")),
                ]
                values = {key: row[key] for key in ("change", "recovered_run")}
                connection.execute(sa.update(tables.incident).where(*here).values(**values))

    @contextlib.contextmanager
    def deciding(self) -> Iterator[Deciding]:
        """One transaction under the lock, in which a daemon looks and claims."""
        with self._locked() as connection:
            yield Deciding(connection)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Connection]:
        with self._store.transaction(writes=True) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({LOCK})"))
            yield connection


class Deciding:
    """What a daemon may look at and write while no other one decides."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def schedule(self, name: str) -> Row | None:
        """The schedule; None: it was removed."""
        return _one(self._connection, name)

    def considered(self, name: str, considered_s: float) -> None:
        """Note up to when due times were decided."""
        here = tables.schedule.c.name == name
        self._connection.execute(sa.update(tables.schedule).where(here).values(considered_s=considered_s))

    def at_work(self) -> tuple[Row, ...]:
        """Firings of all schedules that run or wait."""
        wanted = sa.select(tables.firing).where(tables.firing.c.state.in_(AT_WORK))
        return _rows(self._connection, wanted)

    def fired(self, name: str, since_s: float) -> frozenset[int]:
        """Due times later than `since_s` that have a record."""
        wanted = sa.select(tables.firing.c.due_s).where(
            tables.firing.c.schedule == name, tables.firing.c.due_s > since_s
        )
        return frozenset(self._connection.execute(wanted).scalars())

    def put(self, name: str, due_s: int, **values: Any) -> None:
        """Put in the record of a due time, which has none."""
        row = {**EMPTY, "schedule": name, "due_s": due_s, **values}
        self._connection.execute(sa.insert(tables.firing), [row])

    def update(self, name: str, due_s: int, **values: Any) -> None:
        """Change the record of a due time."""
        self._connection.execute(sa.update(tables.firing).where(*_key(name, due_s)).values(**values))


def _rows(connection: Connection, wanted: sa.Select[Any]) -> tuple[Row, ...]:
    return tuple(dict(row) for row in connection.execute(wanted).mappings())


def _one(connection: Connection, name: str) -> Row | None:
    return next(iter(_rows(connection, sa.select(tables.schedule).where(tables.schedule.c.name == name))), None)


def _key(name: str, due_s: int) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return tables.firing.c.schedule == name, tables.firing.c.due_s == due_s
