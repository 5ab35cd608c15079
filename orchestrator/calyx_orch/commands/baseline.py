"""`calyx-orch baseline`: which run later runs of an inventory are held against."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from calyx_orch.commands import naming
from calyx_orch.errors import EXIT_FINE, UsageError
from calyx_orch.report import screen
from calyx_orch.store import archive

if TYPE_CHECKING:
    from calyx_orch.store.database import Store


class Baseline(NamedTuple):
    """The run that an inventory's later runs are held against. `started_at` and `folder` are None when the store lost the run."""

    inventory: str
    run_id: str
    started_at: str | None
    folder: str | None


def put(run: str, *, store: str | None) -> int:
    """Make a run the baseline of its inventory. Raises UsageError when nothing was measured in it."""
    with closing(naming.store_of(run, store)) as opened:
        row = opened.find(naming.id_of(opened, run))
        if not opened.figures(row.run_id):
            raise UsageError(f"{row.run_id} cannot be a baseline: it has no figures. {row.sentence}")
        opened.set_baseline(row.inventory, row.run_id)
    screen.line(f"{row.run_id} is the baseline of {row.inventory}")
    return EXIT_FINE


def show(inventory: str | None, *, store: str | None, as_json: bool) -> int:
    """Show the baselines, or that of one inventory. Raises UsageError when that has none."""
    from calyx_orch.store import database

    with closing(database.open_store(store, create=False)) as opened:
        found = _all(opened)
    if inventory is not None:
        key = naming.inventory_key(inventory)
        found = tuple(one for one in found if one.inventory == key)
        if not found:
            raise UsageError(f"{key} has no baseline: `calyx-orch baseline set RUN` makes a run of it one")
    if as_json:
        screen.deliver_json([one._asdict() for one in found])
        return EXIT_FINE
    for one in found:
        screen.line(f"{one.inventory}: {one.run_id}, {_where(one)}")
    if not found:
        screen.line("no inventory has a baseline: `calyx-orch baseline set RUN` makes a run that of its inventory")
    return EXIT_FINE


def clear(inventory: str, *, store: str | None) -> int:
    """Let an inventory have no baseline. Raises UsageError when it has none."""
    from calyx_orch.store import database

    key = naming.inventory_key(inventory)
    with closing(database.open_store(store, create=False)) as opened:
        if not opened.clear_baseline(key):
            raise UsageError(f"{key} has no baseline; `calyx-orch baseline show` names those that have one")
    screen.line(f"{key} has no baseline any more")
    return EXIT_FINE


def _where(one: Baseline) -> str:
    if one.folder is None:
        return "which is not in the store any more"
    holder = archive.run_id_in(Path(one.folder))
    return f"{one.started_at}, {one.folder}{naming.taken(one.run_id, holder)}"


def _all(opened: Store) -> tuple[Baseline, ...]:
    rows = {row.run_id: row for row in opened.runs()}

    def of(inventory: str, run_id: str) -> Baseline:
        row = rows.get(run_id)
        return Baseline(inventory, run_id, row.started_at if row else None, row.folder if row else None)

    return tuple(of(inventory, run_id) for inventory, run_id in opened.baselines().items())
