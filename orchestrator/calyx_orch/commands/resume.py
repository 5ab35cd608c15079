"""`calyx-orch run --resume RUN`: go on with a run whose controller ended, where its journal breaks off."""

from __future__ import annotations

import asyncio
import datetime
import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path

from calyx_orch import inventory as inventories
from calyx_orch import runner, sources, transport, workloads
from calyx_orch.commands import judging, naming
from calyx_orch.commands import run as running
from calyx_orch.errors import UsageError
from calyx_orch.model import Inventory, Plan, RunRecord
from calyx_orch.plan.standing import Standing, standing, strangers
from calyx_orch.report import screen
from calyx_orch.store import archive


@dataclass(frozen=True)
class Reopened:
    """A run that can be continued: its folder, open for writing; its plan; what stands; and a sentence about it."""

    folder: archive.RunFolder
    plan: Plan
    earlier: runner.Earlier
    says: str


def resume_named(run: str, inventory: str | None, options: running.RunOptions) -> int:
    """Measure what a run lacks that is named by its folder, its id or the beginning of it. Returns the exit code."""
    (folder,) = naming.folders([run], options.limits.store)
    return resume(folder, inventory, options)


def resume(path: Path, inventory: str | None, options: running.RunOptions) -> int:
    """Measure what the run in folder `path` lacks. Returns the exit code.

    `inventory` says anew how its guests are reached; without it the run's own copy holds. Raises UsageError when nothing is
    missing, the run is still going on, the inventory is another one, a document of the run folder was changed, or a limit cannot
    be read; nothing was measured then.
    """
    console = screen.console(stderr=options.as_json)
    run = reopen(path, inventory)
    try:
        options = replace(options, limits=judging.settled(options.limits, run.plan))  # after hours is no time to ask
        screen.line(run.says, to=console)
        passphrases = transport.unlock(guest.connection for guest in run.plan.inventory.guests)
    except BaseException:
        run.folder.close()
        raise
    return asyncio.run(
        running.measure(run.plan, run.folder, options, console, passphrases=passphrases, earlier=run.earlier)
    )


def reopen(path: Path, inventory: str | None = None) -> Reopened:
    """Open a run that is to be continued. Raises UsageError as `resume` does."""
    folder, record, entries = archive.RunFolder.reopen(path)
    try:
        there = standing(
            record.plan, entries, record.measurements, record.found, is_finished=record.status == "finished"
        )
        _refuse_strangers(record, there)
        if there.is_complete and record.status == "finished":
            again = f"`calyx-orch report {shlex.quote(str(path))}` draws it again"
            raise UsageError(f"{path}: nothing is missing, all that could be measured was; {again}")
        plan = _reached_anew(there.plan, inventory) if inventory is not None else there.plan
        now = datetime.datetime.now().astimezone()
        began_s = datetime.datetime.fromisoformat(record.started_at).timestamp()
        earlier = runner.Earlier(
            standing=there,
            measurements=tuple(one for one in record.measurements if one.round_index in there.kept),
            facts=record.facts,
            found=record.found[: there.searches],
            attempt=2 + sum(1 for entry in entries if entry["event"] == "reopened"),
            resumed_at=now.isoformat(timespec="seconds"),
            gap_s=max(0.0, now.timestamp() - (there.ended_at_s or began_s)),
        )
        folder.note("reopened", time.monotonic_ns(), sync=True, attempt=earlier.attempt)
    except BaseException:
        folder.close()
        raise
    note = "" if inventory is not None else _changed(record)
    return Reopened(folder, plan, earlier, _says(record, there) + note)


def _refuse_strangers(record: RunRecord, there: Standing) -> None:
    found = strangers(record.plan, there.kept, record.measurements)
    if found:
        more = [f"and {len(found) - 20} more"] if len(found) > 20 else []
        raise UsageError(
            f"not resumed: measurements of {record.folder} are not those of its plan:\n  "
            + "\n  ".join([*found[:20], *more])
            + "\nput back the measurements that were there, or begin a new run"
        )


def _says(record: RunRecord, there: Standing) -> str:
    rounds = len(there.plan.rounds)
    again = f", {len(there.again)} of them again as their block was not whole" if there.again else ""
    if there.is_complete:
        return f"resuming {record.run_id}: all {rounds} rounds were measured, only its end is missing"
    left = len(there.missing)
    searches = len(there.plan.searches) - there.searches
    more = f" and {searches} search{'es' * (searches != 1)}" if searches else ""
    return f"resuming {record.run_id}: {rounds - left} of {rounds} rounds stand, {left} are to be measured{again}{more}"


def _changed(record: RunRecord) -> str:
    """Say when the file that the run was started from holds another text by now; nobody can tell of a program or a pipe."""
    inventory = record.plan.inventory
    source = Path(inventory.origin or inventory.source)
    try:
        is_file = source.suffix in (".yaml", ".yml", ".json")
        is_changed = is_file and source.read_bytes().decode("utf-8-sig") != inventory.text  # as `sources` reads it
    except (OSError, UnicodeDecodeError):
        return ""
    return f"; {source} was changed since: the run goes on with its own copy" if is_changed else ""


def _reached_anew(plan: Plan, path: str) -> Plan:
    """The plan, its guests reached as another text of the inventory says. Raises UsageError when that would be another run."""
    text, source, base_dir = sources.read(path)
    other = inventories.parse(text, source=source, base_dir=base_dir, presets=workloads.read_presets())
    differences = runner.inventory_differences(plan.inventory, other)
    if differences:
        raise UsageError(
            f"not resumed: {source} is not the inventory of this run any more, and its figures would be of different things:\n  "
            + "\n  ".join(differences[:20])
            + "\nleave INVENTORY out to go on with the run's own copy, or begin a new run"
        )
    connections = {guest.name: guest.connection for guest in other.guests}
    guests = tuple(replace(guest, connection=connections[guest.name]) for guest in plan.inventory.guests)
    inventory: Inventory = replace(plan.inventory, guests=guests)
    return replace(plan, inventory=inventory)
