"""What comes after a run: it goes into the store, and is held against budgets and a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from calyx_orch.commands import naming
from calyx_orch.errors import EXIT_FINE, EXIT_MISSED, CalyxError, UsageError
from calyx_orch.model import Plan, RunRecord
from calyx_orch.report import screen
from calyx_orch.report.wording import count_of

if TYPE_CHECKING:
    from calyx_orch.analysis.budgets import Budget, Finding

BASELINE = "baseline"
FINDINGS_SHOWN = 12


@dataclass(frozen=True)
class Limits:
    """What a run is held to. `against` is a run folder, a run's id, or `baseline`; `index` False: it is kept out of the store.

    `against_id` is the run that `against` was found to be, None before: its folder may be another run's when the run has ended.
    """

    budgets: tuple[str, ...] = ()
    against: str | None = None
    max_regression: float = 0.05
    junit: Path | None = None
    store: str | None = None
    index: bool = False
    against_id: str | None = None

    @property
    def is_judging(self) -> bool:
        """Whether the run is held to anything at all."""
        return bool(self.budgets) or self.against is not None

    def parsed(self) -> tuple[Budget, ...]:
        """The budgets. Raises UsageError: before anything is measured is the time to ask."""
        from calyx_orch.analysis import budgets

        return tuple(budgets.parse(text) for text in self.budgets)


def settled(limits: Limits, plan: Plan) -> Limits:
    """The limits with the run to hold against found, before anything is measured: `latest` is another run afterwards.

    Raises UsageError when budgets cannot be read or are about nothing that is planned, when that run is not there, or when the
    JUnit file could not be written.
    """
    from calyx_orch.store import archive

    _refuse_misses(limits, plan)
    if limits.junit is not None and not limits.junit.absolute().parent.is_dir():
        raise UsageError(f"--junit {limits.junit}: there is no directory {limits.junit.absolute().parent}")
    if limits.against is None:
        return limits
    folder = _reference(limits, limits.against, plan.inventory.key)
    return replace(limits, against=str(folder), against_id=archive.read(folder).run_id)


def _refuse_misses(limits: Limits, plan: Plan) -> None:
    if not limits.budgets:
        return
    from calyx_orch.analysis import budgets

    if misses := budgets.misses(limits.parsed(), plan):
        raise UsageError("\n".join(misses))


@dataclass(frozen=True)
class Judged:
    """How a run stands to its limits: the exit code, what to say of it in the closing sentence, and what failed on the way."""

    code: int = EXIT_FINE
    clause: str = ""
    failed: CalyxError | None = None


def judge(record: RunRecord, limits: Limits, console: Console) -> Judged:
    """Hold the run to its limits, then index it.

    Whatever fails here is to be raised when all has been told: the run was measured. A store that fails costs a note.
    """
    failed: CalyxError | None = None
    found: tuple[Finding, ...] = ()
    try:
        found = tuple(_findings(record, limits)) if limits.is_judging else ()
    except CalyxError as error:
        failed = error
    _print(found, console)
    if limits.junit is not None:
        from calyx_orch.report import junit

        try:
            junit.write(limits.junit, record.plan.inventory.name, found, record.outcomes)
        except CalyxError as error:
            failed = failed or error
    if limits.index:
        _index(record, limits, console)
    states = {one.state for one in found}
    is_missed = "broken" in states or states == {"unknown"}  # a gate that could judge nothing lets nothing through
    return Judged(EXIT_MISSED if is_missed else EXIT_FINE, _clause(found), failed)


def _index(record: RunRecord, limits: Limits, console: Console) -> None:
    from calyx_orch.store import database, indexing

    try:
        with closing(database.open_store(limits.store)) as opened:
            indexing.put(opened, record)
    except CalyxError as error:
        text = f"note: not in the store: {error}; `calyx-orch index {record.folder}` tries again"
        screen.line(text, "yellow", to=console)


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
    before = archive.read(Path(limits.against or ""))
    if limits.against_id not in (None, before.run_id):
        said = f"{limits.against} held that run when this one began and holds run {before.run_id} now: `calyx-orch compare` takes two runs"
        yield budgets.Finding(f"against {limits.against_id}", "the run", budgets.UNKNOWN, said)
        return
    shared = {guest.name for guest in inventory.guests} & {guest.name for guest in before.plan.inventory.guests}
    found = compare.compare([sides.of_run(before.run_id, before, shared), sides.of_run(record.run_id, record, shared)])
    unlike = [one.sentence for one in found.differences if one.forbids]
    if unlike or not shared:
        said = "; ".join(unlike) or "the runs have no guest in common"
        yield budgets.Finding(f"against {before.run_id}", "the run", budgets.UNKNOWN, f"not comparable: {said}")
        return
    yield from budgets.regressions(found, limits.max_regression)


def _reference(limits: Limits, against: str, inventory: str) -> Path:
    if against != BASELINE:
        (folder,) = naming.folders([against], limits.store)
        return folder
    from calyx_orch.store import database, indexing

    try:
        store = database.open_store(limits.store, create=False)
    except UsageError as error:
        raise UsageError(f"--against baseline: {error}") from error
    with closing(store) as opened:
        found = opened.baseline(inventory)
        if found is None:
            raise UsageError(f"{inventory} has no baseline: `calyx-orch baseline set RUN` makes a run of it one")
        return indexing.run_of(opened, found)


def _print(found: tuple[Finding, ...], console: Console) -> None:
    """Say what is broken and what could not be judged, then how many were kept."""
    if not found:
        return
    console.print()
    for state, style in (("broken", "bold red"), ("unknown", "yellow")):
        mine = [one for one in found if one.state == state]
        for one in mine[:FINDINGS_SHOWN]:
            text = f"{state}: {one.budget}: {one.about}: {one.said}"
            screen.line(text, style, to=console)
        if len(mine) > FINDINGS_SHOWN:
            console.print(Text(f"and {len(mine) - FINDINGS_SHOWN} more {state}", style=style))
    screen.line(f"limits: {_clause(found)}", to=console)


def _clause(found: Sequence[Finding]) -> str:
    """`2 of 6 limits broken, 1 unknown`; that nothing could be judged is said as such."""
    if not found:
        return ""
    broken, unknown = (sum(one.state == state for one in found) for state in ("broken", "unknown"))
    told = [f"{broken} of {count_of(len(found), 'limit')} broken" if broken else ""]
    told.append(f"{unknown} could not be judged" if unknown else "")
    if not broken:
        told.insert(0, f"{len(found) - unknown} of {count_of(len(found), 'limit')} kept")
    return ", ".join(filter(None, told))
