"""`calyx-orch index`, `list` and `show`: runs in the store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.text import Text

from calyx_orch.errors import EXIT_FINE, CalyxError, UsageError
from calyx_orch.report import screen
from calyx_orch.report.sharing import named_doubts
from calyx_orch.report.tables import Field
from calyx_orch.report.wording import cv, latency, printable, rate, significant
from calyx_orch.store import archive


def index(paths: tuple[Path, ...], *, store: str | None) -> int:
    """Put run folders, or all folders below a directory, into the store. A folder that cannot be read is told, and the rest go on."""
    from calyx_orch.store import database, indexing

    console = screen.console()
    opened = database.open_store(store)
    failed = 0
    try:
        for folder in indexing.folders(paths):
            try:
                indexing.put(opened, archive.read(folder))
                console.print(Text(f"indexed {folder}"), soft_wrap=True)
            except CalyxError as error:
                failed += 1
                console.print(Text(printable(f"left out {folder}: {error}"), style="red"), soft_wrap=True)
    finally:
        opened.close()
    if failed:
        raise UsageError(f"{failed} run folders could not be indexed; the others are")
    return EXIT_FINE


def list_runs(*, store: str | None, limit: int, as_json: bool) -> int:
    """Show the runs in the store, the newest first."""
    from calyx_orch.report import terminal
    from calyx_orch.store import database

    opened = database.open_store(store, create=False)
    try:
        rows = opened.runs(limit=limit)
    finally:
        opened.close()
    if as_json:
        screen.deliver_json([asdict(row) for row in rows])
        return EXIT_FINE
    fields: tuple[Field[database.RunRow], ...] = (
        Field("run", lambda row: row.run_id),  # never broken: it is copied
        Field("started", lambda row: row.started_at[:16].replace("T", " "), is_number=False),
        Field("inventory", lambda row: row.inventory, is_number=False),
        Field("guests", lambda row: f"{row.guests_measured} of {row.guests}"),
        Field("status", lambda row: row.status + (" (short)" if row.is_short else ""), is_number=False),
        Field("folder", lambda row: row.folder, 3, is_number=False),
    )
    console = screen.console()
    if not rows:
        console.print(
            "the store is empty: `calyx-orch run` fills it, `calyx-orch index DIR` adds older runs", markup=False
        )
    terminal.show_rows(console, "runs, the newest first", fields, rows)
    return EXIT_FINE


def show(run: str, *, store: str | None, scope: str, as_json: bool) -> int:
    """Show what the store keeps of a run: its sentence and its figures by place."""
    from calyx_orch.report import terminal
    from calyx_orch.store import database, indexing

    opened = database.open_store(store, create=False)
    try:
        row = opened.find(indexing.id_of(opened, run))
        figures = opened.figures(row.run_id, None if scope == "all" else scope)
    finally:
        opened.close()
    if as_json:
        screen.deliver_json({**asdict(row), "figures": figures})
        return EXIT_FINE
    console = screen.console()
    console.print(
        Text(printable(f"{row.run_id}, {row.started_at}, {row.inventory}, {row.status}: {row.folder}")), soft_wrap=True
    )
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
