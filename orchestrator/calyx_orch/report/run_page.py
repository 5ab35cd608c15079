"""The report of a run as a page: `page` written from a record and its summary."""

from __future__ import annotations

from pathlib import Path

from calyx_orch.analysis import verdict
from calyx_orch.analysis.rows import Summary
from calyx_orch.errors import FolderError
from calyx_orch.model import RunRecord
from calyx_orch.report import dashboard as dashboards
from calyx_orch.report import page, tables
from calyx_orch.report.wording import printable

SOURCE = "The run folder holds the plan, the journal and every raw answer"


def write(record: RunRecord, summary: Summary, *, out: Path, dashboard: Path | None = None) -> Path:
    """Write the report of a run to `out` and give that path. Raises UsageError for a faulty dashboard, else as `page.write` does."""
    board = dashboards.read(dashboard)
    drawings, plots = draw(record, summary, board)
    notes = (*tables.doubts(record, summary), *map(printable, record.plan.notes))
    made = page.Page(
        title=printable(board.title),
        about=printable(record.run_id),
        verdict=printable(verdict.sentence(record, summary, on_page=True)),
        header=tables.header(record),
        notes=tuple(dict.fromkeys(notes)),
        tables=tables.of_page(record, summary),
        drawings=drawings,
        plots=plots,
        source=printable(f"{SOURCE}: {record.folder}"),
        is_short=tables.is_short(record),
    )
    try:
        return page.write(made, out)
    except FolderError as error:
        raise FolderError(f"{error}; `calyx-orch report RUN --out FILE` draws it elsewhere") from error


def draw(
    record: RunRecord, summary: Summary, board: dashboards.Dashboard
) -> tuple[tuple[page.Drawing, ...], tuple[str, ...]]:
    """Draw the figures of a dashboard as `page.draw` does. A run in which nothing was measured has none."""
    from calyx_orch.report import frames

    if not tables.is_measured(summary):
        return (), ()
    workloads = list(dict.fromkeys(one.workload.name for one in record.plan.measured))
    return page.draw(frames.frame_of(record, summary), board, workloads)
