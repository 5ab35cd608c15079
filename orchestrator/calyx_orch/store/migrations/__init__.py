"""How the tables of the index came to be, a step a file in `versions`; `upgrade` brings a database to the newest."""

from __future__ import annotations

from pathlib import Path

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.engine import Connection

from calyx_orch.errors import UsageError
from calyx_orch.store import tables

LOCK = 0x63616C7978  # "calyx": two controllers never upgrade one database at once


def upgrade(connection: Connection, to: str = "head") -> None:
    """Bring the tables up to date, or to the revision `to`, within the transaction. UsageError: a newer calyx-orch made them."""
    script = _script()
    if MigrationContext.configure(connection).get_current_revision() == script.get_current_head():
        return
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK})"))
    current = MigrationContext.configure(connection).get_current_revision()
    known = {one.revision for one in script.walk_revisions()}
    if current is not None and current not in known:
        raise UsageError(
            f"the store was made by a newer calyx-orch (revision {current}): use that one, or another --store"
        )
    with EnvironmentContext(Config(), script, fn=lambda revision, _: script._upgrade_revs(to, revision)) as environment:
        environment.configure(connection=connection, target_metadata=tables.metadata, transactional_ddl=False)
        environment.run_migrations()


def _script() -> ScriptDirectory:
    return ScriptDirectory(str(Path(__file__).parent))
