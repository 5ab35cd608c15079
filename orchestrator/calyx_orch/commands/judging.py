"""What comes after a run: it goes into the store, and is held against budgets and a baseline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from calyx_orch.errors import EXIT_FINE, EXIT_MISSED, CalyxError, UsageError
from calyx_orch.model import RunRecord
from calyx_orch.report.wording import count_of, printable

if TYPE_CHECKING:
    from calyx_orch.analysis.budgets import Budget, Finding
    from calyx_orch.store.database import Store

BASELINE = "baseline"
FINDINGS_SHOWN = 12


@dataclass(frozen=True)
class Limits:
    """What a run is held to. `against` is a run folder, a run's id, or `baseline`; `index` False: it is kept out of the store."""

    budgets: tuple[str, ...] = ()
    against: str | None = None
    max_regression: float = 0.05
    junit: Path | None = None
    store: str | None = None
    index: bool = False

    @property
    def is_judging(self) -> bool:
        """Whether the run is held to anything at all."""
        return bool(self.budgets) or self.against is not None

    def parsed(self) -> tuple[Budget, ...]:
        """The budgets. Raises UsageError: before anything is measured is the time to ask."""
        from calyx_orch.analysis import budgets

        return tuple(budgets.parse(text) for text in self.budgets)


def check(limits: Limits, inventory: str) -> None:
    """Raise UsageError, before anything is measured, when budgets cannot be read or the run to hold against is not there."""
    limits.parsed()
    if limits.against is not None:
        _reference(limits, inventory)


def judge(record: RunRecord, limits: Limits, console: Console) -> int:
    """Index the run and hold it to its limits; 1 when one is broken. A store that fails costs a note, not the run."""
    if limits.index:
        _index(record, limits, console)
    found = tuple(_findings(record, limits)) if limits.is_judging else ()
    if limits.junit is not None:
        from calyx_orch.report import junit

        junit.write(limits.junit, record.plan.inventory.name, found, record.outcomes)
    _print(found, console)
    return EXIT_MISSED if any(one.state == "broken" for one in found) else EXIT_FINE


def _index(record: RunRecord, limits: Limits, console: Console) -> None:
    from calyx_orch.store import database, indexing

    try:
        opened = database.open_store(limits.store)
        try:
            indexing.put(opened, record)
        finally:
            opened.close()
    except CalyxError as error:
        text = f"note: not in the store: {error}; `calyx-orch index {record.folder}` tries again"
        console.print(Text(printable(text), style="yellow"), soft_wrap=True)


def _findings(record: RunRecord, limits: Limits) -> Iterable[Finding]:
    from calyx_orch.analysis import budgets, summary

    yield from budgets.findings(limits.parsed(), summary.summarise(record))
    if limits.against is not None:
        yield from _regressions(record, limits)


def _regressions(record: RunRecord, limits: Limits) -> Iterable[Finding]:
    """The run against the other, on the guests that both have."""
    from calyx_orch.analysis import budgets, compare, sides
    from calyx_orch.store import archive

    inventory = record.plan.inventory
    before = archive.read(_reference(limits, inventory.source or inventory.name))
    shared = {guest.name for guest in inventory.guests} & {guest.name for guest in before.plan.inventory.guests}
    found = compare.compare([sides.of_run(before.run_id, before, shared), sides.of_run(record.run_id, record, shared)])
    unlike = [one.sentence for one in found.differences if one.forbids]
    if unlike or not shared:
        said = "; ".join(unlike) or "the runs have no guest in common"
        yield budgets.Finding(f"against {before.run_id}", "the run", budgets.UNKNOWN, f"not comparable: {said}")
        return
    yield from budgets.regressions(found, limits.max_regression)


def _reference(limits: Limits, inventory: str) -> Path:
    from calyx_orch.store import database, indexing

    opened = database.open_store(limits.store)
    try:
        return indexing.run_of(opened, _named(opened, limits.against or "", inventory))
    finally:
        opened.close()


def _named(store: Store, against: str, inventory: str) -> str:
    if against != BASELINE:
        return against
    found = store.baseline(inventory)
    if found is None:
        raise UsageError(f"{inventory} has no baseline: `calyx-orch baseline RUN` makes a run of it one")
    return found


def _print(found: tuple[Finding, ...], console: Console) -> None:
    """Say what is broken and what could not be judged, then how many were kept."""
    if not found:
        return
    console.print()
    for state, style in (("broken", "bold red"), ("unknown", "yellow")):
        mine = [one for one in found if one.state == state]
        for one in mine[:FINDINGS_SHOWN]:
            text = f"{state}: {one.budget}: {one.about}: {one.said}"
            console.print(Text(printable(text), style=style), soft_wrap=True)
        if len(mine) > FINDINGS_SHOWN:
            console.print(Text(f"and {len(mine) - FINDINGS_SHOWN} more {state}", style=style))
    kept = sum(one.state == "kept" for one in found)
    console.print(Text(f"limits: {kept} of {count_of(len(found), 'finding')} kept"), soft_wrap=True)
