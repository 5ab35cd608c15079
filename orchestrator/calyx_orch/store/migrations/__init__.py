"""How the tables of the index came to be, a step a file in `versions`; `upgrade` brings a database to the newest."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from calyx_orch.errors import UsageError
from calyx_orch.store import addresses, tables

LOCK = 0x63616C7978  # "calyx": two controllers never upgrade one database at once
VERSIONS = "alembic_version"  # a table of this name is in every database that Alembic upgrades, whoever's it is
OURS = frozenset({"run", "guest", "figure"})  # since the first revision
NAMED_MOST = 4


def upgrade(connection: Connection, to: str = "head") -> None:
    """Bring the tables up to date, or to the revision `to`, within the transaction. Raises UsageError as `revision_of`."""
    script = _script()
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({LOCK})"))
    if revision_of(connection) == script.get_current_head():
        return  # another one was faster
    with EnvironmentContext(Config(), script, fn=lambda revision, _: script._upgrade_revs(to, revision)) as environment:
        environment.configure(connection=connection, target_metadata=tables.metadata, transactional_ddl=False)
        environment.run_migrations()


def newest() -> str | None:
    """The revision of the tables that this program uses."""
    return _script().get_current_head()


def revision_of(connection: Connection) -> str | None:
    """The revision of the tables that are there; None where there are none yet. It changes nothing.

    Raises UsageError when a newer calyx-orch made them, and for what belongs to another program: a file with any table, a database on
    PostgreSQL, which may be shared, only where the names that we need are taken.
    """
    place = place_of(connection.engine.url)
    present = frozenset(sa.inspect(connection).get_table_names())
    heads = MigrationContext.configure(connection).get_current_heads() if VERSIONS in present else ()
    if not heads:
        is_shared = connection.dialect.name == "postgresql"
        taken = present & frozenset(tables.metadata.tables) if is_shared else present - {VERSIONS}
        if taken:
            raise _of_another(place, f"it holds {_named(taken)}")
        return None
    if len(heads) > 1 or not heads[0].isdecimal() or not present >= OURS:
        raise _of_another(place, f"it holds {_named(present)}, at revision {', '.join(heads)} of another program")
    if heads[0] not in {one.revision for one in _script().walk_revisions()}:
        raise UsageError(
            f"the store was made by a newer calyx-orch (revision {heads[0]}): use that one, or another --store"
        )
    return heads[0]


def place_of(url: sa.URL) -> str:
    """A database as errors name it: its file, or its address without secrets."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return addresses.shown(url.set(drivername="postgresql").render_as_string(hide_password=True))


def _of_another(place: str, what: str) -> UsageError:
    return UsageError(f"{place} is no store of calyx-orch: {what}; nothing was changed: name another with --store")


def _named(names: frozenset[str]) -> str:
    first = sorted(names)[:NAMED_MOST]
    more = f" and {len(names) - len(first)} more" * (len(names) > len(first))
    return f"table{'s' * (len(names) > 1)} {', '.join(first)}{more}"


def _script() -> ScriptDirectory:
    return ScriptDirectory(str(Path(__file__).parent))
