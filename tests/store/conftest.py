"""A store on SQLite and the same on a real PostgreSQL server, which lives as long as the session."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from calyx_orch.store import database

_NUMBER = itertools.count()


def _postgres_tools() -> Path | None:
    """Where initdb and pg_ctl lie: Debian keeps them out of PATH."""
    found = shutil.which("initdb")
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return Path(found).parent if found else next((one for one in candidates if (one / "initdb").is_file()), None)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a server of our own on a Unix socket; as root it runs as the user postgres or nobody."""
    tools = _postgres_tools()
    if tools is None:
        pytest.skip("no PostgreSQL here: install Debian's package postgresql")
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as made:
        folder = Path(made)
        as_user: dict[str, int] = {}
        if os.geteuid() == 0:
            known = {one.pw_name: one for one in pwd.getpwall()}
            owner = known.get("postgres") or known["nobody"]
            os.chown(folder, owner.pw_uid, owner.pw_gid)
            as_user = {"user": owner.pw_uid, "group": owner.pw_gid}

        def call(*argv: str) -> None:
            subprocess.run(
                argv,
                check=True,
                capture_output=True,
                timeout=60,
                cwd=folder,
                extra_groups=[] if as_user else None,
                **as_user,
            )

        data = folder / "data"
        call(str(tools / "initdb"), "-D", str(data), "-U", "calyx", "--auth=trust", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        call(str(tools / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://calyx@/postgres?host={folder}"
        finally:
            call(str(tools / "pg_ctl"), "-D", str(data), "-w", "-m", "immediate", "stop")


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
