"""A run among the figures of a store, also one that no store has: who only reads puts nothing anywhere."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from calyx_orch.commands import naming
from calyx_orch.errors import UsageError
from calyx_orch.store import archive

if TYPE_CHECKING:
    from calyx_orch.store.database import RunRow, Store


@contextlib.contextmanager
def store_with(run: str, store: str | None) -> Iterator[tuple[Store, str]]:
    """The store that has the run, with its id there; for a run that lies beside it, one that is thrown away."""
    from calyx_orch.store import database, indexing

    beside = _beside(run, store)
    if beside is None:
        with closing(naming.store_of(run, store)) as opened:
            yield opened, naming.id_of(opened, run)
        return
    with (
        tempfile.TemporaryDirectory() as base,
        closing(database.open_store(f"sqlite:///{base}/store.sqlite")) as opened,
    ):
        record = archive.read(beside)
        indexing.put(opened, record)
        yield opened, record.run_id


def _beside(run: str, store: str | None) -> Path | None:
    """The folder of a run that is not in the store and has ended. None: the store has it, or knows what to say of it."""
    from calyx_orch.commands import unindexed
    from calyx_orch.store import database, indexing

    known: tuple[RunRow, ...] = ()
    try:
        with closing(database.open_store(store, create=False)) as opened:
            known = opened.runs()
            indexing.id_of(opened, run)
            return None
    except UsageError:
        if naming.is_begun(run, known):
            return None
        found = [Path(row.folder) for row in unindexed.named(run, known)]
    return found[0] if found and not archive.is_going_on(found[0]) else None
