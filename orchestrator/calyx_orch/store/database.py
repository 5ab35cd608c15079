"""The index of run folders: SQLite by default, PostgreSQL for teams, the same statements on both (`addresses`, `opening`).

A run is indexed in one transaction, so a reader sees it whole or not at all. Everything in here but baselines is made again by
`calyx-orch index`.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from calyx_orch.analysis.scopes import ScopeRow
from calyx_orch.documents import strict_json
from calyx_orch.errors import UsageError
from calyx_orch.model import Histogram, RunRecord, Series
from calyx_orch.store import addresses, nights, opening, packing, tables
from calyx_orch.store.addresses import ENVIRONMENT, shown
from calyx_orch.store.addresses import default as default_url
from calyx_orch.store.nights import NightRow

__all__ = ["ENVIRONMENT", "NightRow", "RunRow", "Store", "default_url", "is_not_begun", "open_store", "row_of", "shown"]


@dataclass(frozen=True)
class RunRow:
    """A run as lists show it."""

    run_id: str
    folder: str
    started_at: str
    started_s: float
    status: str
    inventory: str
    guests: int
    guests_measured: int
    is_short: bool
    sentence: str


class Store:
    """An open index. Every method is one transaction; UsageError when the database cannot be reached or written."""

    def __init__(self, engine: Engine, url: str) -> None:
        self._engine = engine
        self.url = url

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()

    def index(self, record: RunRecord, rows: Sequence[ScopeRow], *, sentence: str) -> None:
        """Put a run in, in place of what was there of it."""
        run = row_of(record, sentence=_text(sentence))
        with self._begin(writes=True) as connection:
            nights.forget(connection, run.run_id)
            connection.execute(sa.insert(tables.run), [_run_row(record, run)])
            _insert(connection, tables.guest, _guest_rows(record))
            nights.put(connection, run.run_id, run.started_s, rows)
            _insert(connection, tables.series, list(_series_rows(record)))

    def forget(self, run_id: str) -> bool:
        """Take a run out; whether it was there."""
        with self._begin(writes=True) as connection:
            return nights.forget(connection, run_id)

    def runs(self, *, inventory: str | None = None, limit: int | None = None) -> tuple[RunRow, ...]:
        """All runs, the newest first."""
        columns = [tables.run.c[name] for name in RunRow.__dataclass_fields__]
        wanted = sa.select(*columns).order_by(tables.run.c.started_s.desc(), tables.run.c.run_id)
        if inventory is not None:
            wanted = wanted.where(tables.run.c.inventory == inventory)
        with self._begin() as connection:
            found = connection.execute(wanted.limit(limit) if limit else wanted).mappings().all()
        return tuple(RunRow(**{**row, "is_short": bool(row["is_short"])}) for row in found)

    def find(self, run: str) -> RunRow:
        """The run of that id, or of ids that begin so; `latest` is the newest. Raises UsageError when none or several fit."""
        known = self.runs()
        fitting = list(known[:1]) if run == "latest" else [row for row in known if row.run_id.startswith(run)]
        exact = [row for row in fitting if row.run_id == run]
        if len(exact or fitting) != 1:
            if fitting:
                raise UsageError(
                    f"{run!r} is the beginning of {len(fitting)} runs: write more of it; `calyx-orch list` shows them"
                )
            raise UsageError(
                f"{run!r} names no run: `calyx-orch list` shows those that there are, `calyx-orch index DIR` adds some"
            )
        return (exact or fitting)[0]

    def figures(self, run_id: str, scope: str | None = None) -> tuple[Mapping[str, Any], ...]:
        """The figures of a run, without their histograms.

        `throughput_bytes_per_s` and `iops` are of the whole place, as in the tables of a run, `guest_..` of its mean guest, which is
        what is kept and what a history shows. Under `alone` there is no whole.
        """
        with self._begin() as connection:
            return nights.figures(connection, run_id, scope)

    def guest_states(self, run_id: str) -> dict[str, str]:
        """How each guest of a run ended: measured, partial, lost, skipped or unknown."""
        wanted = sa.select(tables.guest.c.guest, tables.guest.c.state).where(tables.guest.c.run_id == run_id)
        with self._begin() as connection:
            return {row.guest: row.state for row in connection.execute(wanted)}

    def latency(self, run_id: str, scope: str, name: str, workload: str, engine: str) -> tuple[Histogram, ...]:
        """The merged histograms of a place, one for each target and load."""
        where = {"scope": scope, "name": name, "workload": workload, "engine": engine}
        with self._begin() as connection:
            return nights.histograms(connection, run_id, where)

    def series(self, run_id: str, guest: str) -> dict[int, Series]:
        """The interval series of a guest, by round."""
        columns = tables.series.c
        wanted = sa.select(columns.round_index, columns.packed).where(columns.run_id == run_id, columns.guest == guest)
        with self._begin() as connection:
            return {index: packing.unpack_series(packed) for index, packed in connection.execute(wanted)}

    def trend(
        self, metric: str, *, scope: str, since_s: float = 0.0, where: Mapping[str, str] | None = None
    ) -> tuple[NightRow, ...]:
        """A metric over time, oldest first; `where` may name name, workload, engine, target, load and inventory."""
        with self._begin() as connection:
            return nights.trend(connection, metric, scope=scope, since_s=since_s, where=where or {})

    def set_baseline(self, inventory: str, run_id: str) -> None:
        """Make a run the baseline of its inventory, in place of another."""
        with self._begin(writes=True) as connection:
            nights.lock(connection)
            connection.execute(sa.delete(tables.baseline).where(tables.baseline.c.inventory == inventory))
            row = {"inventory": inventory, "run_id": run_id, "set_s": time.time()}
            connection.execute(sa.insert(tables.baseline), [row])

    def clear_baseline(self, inventory: str) -> bool:
        """Let an inventory have no baseline; whether it had one."""
        with self._begin(writes=True) as connection:
            gone = connection.execute(sa.delete(tables.baseline).where(tables.baseline.c.inventory == inventory))
            return bool(gone.rowcount)

    def baselines(self) -> Mapping[str, str]:
        """The run that is the baseline of each inventory that has one, in the order of inventories."""
        columns = tables.baseline.c
        with self._begin() as connection:
            rows = connection.execute(sa.select(columns.inventory, columns.run_id).order_by(columns.inventory))
            return {row.inventory: row.run_id for row in rows}

    def baseline(self, inventory: str) -> str | None:
        """The run that is the baseline of an inventory; None when there is none."""
        wanted = sa.select(tables.baseline.c.run_id).where(tables.baseline.c.inventory == inventory)
        with self._begin() as connection:
            return connection.execute(wanted).scalar_one_or_none()

    def transaction(self, *, writes: bool = False) -> contextlib.AbstractContextManager[Connection]:
        """One transaction of another module's statements; writers of SQLite wait for each other. UsageError as in all methods."""
        return self._begin(writes=writes)

    @contextlib.contextmanager
    def _begin(self, *, writes: bool = False) -> Iterator[Connection]:
        try:
            with self._engine.connect().execution_options(**{opening.WRITES: writes}) as connection, connection.begin():
                yield connection
        except sa.exc.DBAPIError as error:
            reason = addresses.scrubbed(error.orig, self._engine.url)
            raise UsageError(f"the store {shown(self.url)} failed: {reason}") from error


def row_of(record: RunRecord, *, sentence: str) -> RunRow:
    """A run as lists show it, whether it is in an index or not."""
    inventory = record.plan.inventory
    return RunRow(
        run_id=record.run_id,
        folder=str(Path(record.folder).resolve()),
        started_at=record.started_at,
        started_s=datetime.datetime.fromisoformat(record.started_at).timestamp(),
        status=record.status,
        inventory=inventory.key,
        guests=len(inventory.guests),
        guests_measured=sum(outcome.state == "measured" for outcome in record.outcomes),
        is_short=any(round_.workload.is_short for round_ in record.plan.rounds),
        sentence=sentence,
    )


def is_not_begun() -> bool:
    """Whether nobody named a store, and that of the user is not there yet."""
    if os.environ.get(ENVIRONMENT):
        return False
    try:
        return not Path(addresses.parse(default_url()).database or "").stat().st_size
    except OSError:
        return True


def open_store(url: str | None = None, *, create: bool = True) -> Store:
    """Open the index at `url` and bring its tables up to date. Raises UsageError when it cannot be opened, saying why.

    Who only reads does not `create` what is not there: an empty store says nothing of a mistyped name. A database of another program is
    left as it is.
    """
    url = url or default_url()
    address = addresses.parse(url)
    try:
        return Store(opening.opened(address, create=create), url)
    except (sa.exc.ArgumentError, sa.exc.DBAPIError, sqlite3.Error, OSError) as error:
        reason = addresses.scrubbed(getattr(error, "orig", None) or error, address)
        raise UsageError(f"the store {shown(url)}{addresses.of_environment(url)} cannot be opened: {reason}") from error
    except ImportError as error:
        raise UsageError(
            f"a store on PostgreSQL needs psycopg: `pip install 'calyx-orch[postgresql]'` ({error})"
        ) from error


def _insert(connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(sa.insert(table), [dict(row) for row in rows])


def _run_row(record: RunRecord, run: RunRow) -> dict[str, Any]:
    return {
        **asdict(run),
        "is_short": int(run.is_short),
        "inventory_sha256": hashlib.sha256(record.plan.inventory.text.encode()).hexdigest(),
        "seed": str(record.plan.seed),
        "notes": list(record.notes),
    }


def _text(said: str) -> str:
    """What guests said, as both databases take it: without zeros, which PostgreSQL refuses, and half characters."""
    return said.encode(errors="backslashreplace").decode().replace("\0", "\\0")


def _guest_rows(record: RunRecord) -> list[dict[str, Any]]:
    outcomes = {outcome.guest: outcome for outcome in record.outcomes}
    rows = []
    for guest in record.plan.inventory.guests:
        outcome = outcomes.get(guest.name)
        rows.append(
            {
                "run_id": record.run_id,
                "guest": guest.name,
                "vm_host": guest.vm_host,
                "storage": guest.storage,
                "state": outcome.state if outcome else "unknown",
                "step": outcome.step if outcome else "",
                "reason": _text(outcome.reason) if outcome else "",
                "facts": strict_json.plain(record.facts.get(guest.name, {})),
            }
        )
    return rows


def _series_rows(record: RunRecord) -> Iterator[dict[str, Any]]:
    for m in record.measurements:
        if m.series is not None:
            yield {
                "run_id": record.run_id,
                "guest": m.guest,
                "round_index": m.round_index,
                "interval_ns": m.series.interval_ns,
                "intervals": len(m.series.read_ios),
                "packed": packing.pack_series(m.series),
            }
