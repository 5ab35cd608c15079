"""How a database is opened as a store: who writes makes and upgrades tables, who only reads takes no lock and needs no right to write.

SQLite keeps what was written last in FILE-wal, and readers share FILE-shm beside it. Where neither may be made:

    FILE-wal, FILE-shm    opened as
    both                  it is: somebody is at work, and readers follow
    neither, or empty     immutable: all is in FILE
    FILE-wal alone        not at all: without FILE-shm what was written last cannot be read, and the rest is old
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from calyx_orch.errors import UsageError
from calyx_orch.store import addresses, migrations

BUSY_TIMEOUT_S = 30.0
WRITES = "calyx_writes"  # whether a connection's transactions write, by its execution options


def opened(address: sa.URL, *, create: bool) -> Engine:
    """A database whose tables are ours and up to date. Who does not `create` makes no file and no first table.

    Raises UsageError for one that is not there, of another program or of a newer calyx-orch; what the drivers raise besides.
    """
    engine = engine_of(address, create=create)
    try:
        _bring_up(engine, create=create)
    except BaseException:
        engine.dispose()
        raise
    return engine


def engine_of(address: sa.URL, *, create: bool) -> Engine:
    """The database at the address, whatever it holds. Raises UsageError for a file that is not there and not to be made."""
    if address.drivername == addresses.POSTGRESQL:
        return sa.create_engine(address, pool_pre_ping=True)
    file = Path(address.database or "")
    if create:
        _private_file(file)
    elif not file.exists() or (file.is_file() and not file.stat().st_size):
        raise _nothing_yet(str(file))
    uri = f"file:{quote(str(file.absolute()))}?{'mode=rw' if create else _way_in(file.resolve())}"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False)

    engine = sa.create_engine(address, creator=connect)
    sa.event.listen(engine, "connect", _sqlite_ways)
    sa.event.listen(engine, "begin", _sqlite_begin)
    return engine


def _bring_up(engine: Engine, *, create: bool) -> None:
    with engine.connect().execution_options(**{WRITES: False}) as connection, connection.begin():
        revision = migrations.revision_of(connection)
    if revision is None and not create:
        raise _nothing_yet(migrations.place_of(engine.url))
    if create and engine.dialect.name == "sqlite":
        _let_readers_in(engine)
    if revision == migrations.newest():
        return
    try:
        with engine.begin() as connection:
            migrations.upgrade(connection)
    except sa.exc.DBAPIError as error:
        if revision is None:
            raise
        raise UsageError(
            f"the store {migrations.place_of(engine.url)} was made by an older calyx-orch (revision {revision}) and cannot be brought up "
            f"to date: {addresses.scrubbed(error.orig, engine.url)}; `calyx-orch list` does it where the store may be written"
        ) from error


def _nothing_yet(place: str) -> UsageError:
    return UsageError(f"there is no store at {place} yet: `calyx-orch run` makes it, `calyx-orch index DIR` fills it")


def _private_file(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _way_in(file: Path) -> str:
    """How SQLite opens a file for who makes none; see the table above. Raises UsageError where it cannot."""
    if os.access(file, os.W_OK) and os.access(file.parent, os.W_OK):
        return "mode=rw"
    log, shared = (file.with_name(f"{file.name}-{what}") for what in ("wal", "shm"))
    if log.exists() and shared.exists():
        return "mode=ro"
    if log.exists() and log.stat().st_size:
        raise UsageError(
            f"the store {file} cannot be read here, where nothing may be written: what was put in last lies in {log}; copy both into one "
            "directory of yours, and name the copy with --store"
        )
    return "immutable=1"


def _let_readers_in(engine: Engine) -> None:
    """Let there be readers beside a writer (WAL), which the file remembers; a copy made by other tools may have lost it."""
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.close()
    finally:
        raw.close()


def _sqlite_ways(connection: Any, _: object) -> None:
    """Foreign keys, and transactions that begin where we say."""
    connection.isolation_level = None
    for pragma in ("synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _sqlite_begin(connection: Connection) -> None:
    """A writer takes its lock at once, so that it waits for others instead of failing half-way; readers take none."""
    writes = connection.get_execution_options().get(WRITES, True)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
