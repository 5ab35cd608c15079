"""A store on SQLite and the same on a real PostgreSQL server, which lives as long as the session."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import postgres_server
from calyx_orch.store import database

_NUMBER = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a server of our own."""
    tools = postgres_server.tools()
    if tools is None:
        pytest.skip("no PostgreSQL here: install Debian's package postgresql")
    with postgres_server.running(tools, "/tmp", "fsync=off") as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.sqlite'}"
    import sqlalchemy as sa

    server = request.getfixturevalue("postgres")
    name = f"calyx_{next(_NUMBER)}"
    engine = sa.create_engine(sa.make_url(server).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
def store(url: str) -> Iterator[database.Store]:
    """An open, empty store."""
    opened = database.open_store(url)
    yield opened
    opened.close()
