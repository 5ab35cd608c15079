"""`calyx-orch index`, `list` and `show`: runs in the store."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calyx_orch.commands import holding, naming
from calyx_orch.errors import EXIT_FINE, CalyxError, UsageError
from calyx_orch.report import screen
from calyx_orch.report.fields import Field
from calyx_orch.report.sharing import named_doubts
from calyx_orch.report.wording import count_of, cv, latency, rate, significant
from calyx_orch.store import archive

if TYPE_CHECKING:
    from calyx_orch.store.database import RunRow

ALL = "all"
NEXT_SHOWN = 6  # runs beside the store of which is said what to do with them


def index(paths: tuple[Path, ...], *, store: str | None) -> int:
    """Put run folders, or all folders below a directory, into the store. A folder that cannot be read is told, and the rest go on."""
    from calyx_orch.store import database, indexing

    console = screen.console()
    failed = 0
    found = tuple(indexing.folders(paths))  # before a store is made for what is none
    with closing(database.open_store(store)) as opened:
        for folder in found:
            if archive.is_going_on(folder):
                screen.line(f"left out {folder}: its run is still going on", "yellow", to=console)
                continue
            try:
                indexing.put(opened, archive.read(folder))
                screen.line(f"indexed {folder}", to=console)
            except CalyxError as error:
                failed += 1
                screen.line(f"left out {folder}: {error}", "red", to=console)
    if failed:
        raise UsageError(f"{count_of(failed, 'run folder')} could not be indexed; the others are")
    return EXIT_FINE


def list_runs(*, store: str | None, limit: int, as_json: bool) -> int:
    """Show the runs in the store and those beside them, the newest first.

    Raises UsageError when the store cannot be read, after the runs that lie where runs are made were shown. That nothing was ever put
    into the store of a user is no failure where such runs are.
    """
    from calyx_orch.commands import unindexed
    from calyx_orch.store import database

    rows, failed = _runs(store)
    others = unindexed.beside(rows, most=limit)
    if failed is not None and not others:
        raise failed
    if store is None and database.is_not_begun():
        failed = None
    shown = sorted((*rows, *others), key=lambda row: -row.started_s)[:limit]
    ids = {row.run_id for row in others}
    held = {row.run_id: archive.run_id_in(Path(row.folder)) for row in shown}
    if as_json:
        screen.deliver_json(
            [{**asdict(row), "is_indexed": row.run_id not in ids, "folder_holds": held[row.run_id]} for row in shown]
        )
    else:
        _show_runs(shown, ids, held)
    if failed is not None:
        raise failed
    return EXIT_FINE


def _runs(store: str | None) -> tuple[tuple[RunRow, ...], UsageError | None]:
    """All runs of the store, or why there are none to be had."""
    from calyx_orch.store import database

    try:
        opened = database.open_store(store, create=False)
    except UsageError as error:
        return (), error
    with closing(opened):
        return opened.runs(), None


def _show_runs(rows: Sequence[RunRow], others: Container[str], held: Mapping[str, str | None]) -> None:
    """A table of runs; `others` are not in the store, `held` is what their folders hold by now (None: no run, or it is not here)."""
    from calyx_orch.report import terminal

    def status(row: RunRow) -> str:
        beside = ", not in the store" * (row.run_id in others)
        return f"{row.status}{' (short)' * row.is_short}{beside}{naming.taken(row.run_id, held[row.run_id])}"

    fields: tuple[Field[RunRow], ...] = (
        Field("run", lambda row: row.run_id),  # never broken: it is copied
        Field("started", lambda row: row.started_at[:16].replace("T", " "), is_number=False),
        Field("inventory", lambda row: row.inventory, is_number=False),
        Field("guests", lambda row: f"{row.guests_measured} of {row.guests}"),
        Field("status", status, is_number=False),
        Field("folder", lambda row: row.folder, 3, is_number=False),
    )
    console = screen.console()
    if not rows:
        console.print(
            "the store is empty: `calyx-orch run` fills it, `calyx-orch index DIR` adds older runs", markup=False
        )
    terminal.show_rows(console, "runs, the newest first", fields, rows)
    for row in [row for row in rows if row.run_id in others][:NEXT_SHOWN]:
        screen.line(f"{row.run_id}: {row.sentence}", to=console)


def show(run: str, *, store: str | None, scope: str, as_json: bool) -> int:
    """Show what the store keeps of a run, or would keep of a run folder: its sentence and its figures by place.

    Raises UsageError for a run that it does not have, and for one that still goes on.
    """
    from calyx_orch.analysis.scopes import SCOPES
    from calyx_orch.report import terminal

    naming.known("scope", scope, (*SCOPES, ALL))
    with holding.store_with(run, store) as (opened, run_id):
        row = opened.find(run_id)
        every = opened.figures(row.run_id)
    figures = [one for one in every if scope in (ALL, one["scope"])]
    if as_json:
        screen.deliver_json({**asdict(row), "figures": figures})
        return EXIT_FINE
    console = screen.console()
    taken = naming.taken(row.run_id, archive.run_id_in(Path(row.folder)))
    screen.line(f"{row.run_id}, {row.started_at}, {row.inventory}, {row.status}: {row.folder}{taken}", to=console)
    if every and not figures:
        there = " or ".join(dict.fromkeys(one["scope"] for one in every))
        screen.line(f"no guest of it is on a {scope}: choose --scope {there}", to=console)
    terminal.show_rows(console, f"by {scope}", FIGURES, figures)
    terminal.conclude(row.sentence, console)
    return EXIT_FINE


FIGURES: tuple[Field[Any], ...] = (
    Field("scope", lambda row: row["scope"], 1, is_number=False),
    Field("name", lambda row: row["name"], is_number=False),
    Field("workload", lambda row: row["workload"], is_number=False),
    Field("target", lambda row: row["target"], is_number=False),
    Field("load", lambda row: row["load"], is_number=False),
    Field("engine", lambda row: row["engine"], is_number=False),
    Field("guests", lambda row: str(row["guests"]), 4),
    Field("units", lambda row: str(row["units"]), 4),
    Field("throughput", lambda row: rate(row["throughput_bytes_per_s"]), explanation="of all its guests together"),
    Field("IOPS", lambda row: significant(row["iops"]), 1, explanation="of all its guests together"),
    Field("a guest", lambda row: rate(row["guest_throughput_bytes_per_s"]), 2, explanation="mean of its guests"),
    Field("CV within run", lambda row: cv(row["cv_within_run"]), 3),
    Field("P50", lambda row: latency(row["p50_ns"]), 3),
    Field("P99", lambda row: latency(row["p99_ns"])),
    Field("P99.9", lambda row: latency(row["p999_ns"]), 3),
    Field("CPU per I/O", lambda row: latency(row["cpu_ns_per_io"]), 2),
    Field("doubts", lambda row: named_doubts(row["doubts"]), 2, is_number=False),
)
