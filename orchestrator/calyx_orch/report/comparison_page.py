"""A comparison as a page: `page` written from what `calyx-orch compare` found."""

from __future__ import annotations

from pathlib import Path

from calyx_orch.analysis.comparison import Comparison
from calyx_orch.report import comparison, figures, page, tables
from calyx_orch.report import dashboard as dashboards
from calyx_orch.report.wording import count_of, printable

SOURCE = "The run folders hold the plans, the journals and every raw answer"


def write(found: Comparison, fact: str, *, out: Path, dashboard: Path | None = None) -> Path:
    """Write the page to `out` and give that path. Raises UsageError for a faulty dashboard, else as `page.write` does."""
    from calyx_orch.report import comparison_frame

    board = dashboards.read(dashboard, figures.COMPARISON)
    frame = comparison_frame.frame_of(found, fact)
    drawings, plots = page.draw(frame, board, list(dict.fromkeys(cell[0] for cell in frame.cells)))
    reference = found.sides[0].name
    rows = tables.table(
        "rows", "All figures", comparison.FIELDS, found.rows, text=f"Each side against {printable(reference)}."
    )
    notes = [f"differs: {one.sentence}" for one in found.differences] + comparison.notes(found)
    folders = ", ".join(dict.fromkeys(side.record.folder for side in found.sides))
    return page.write(
        page.Page(
            title=printable(board.title),
            about=printable(", ".join(side.name for side in found.sides)),
            verdict=printable(comparison.sentence(found, fact)),
            header=_header(found, fact),
            notes=tuple(map(printable, notes)),
            notes_title="What differs besides, and what this cannot say",
            tables=() if rows is None else (rows,),
            drawings=drawings if found.rows else (),
            plots=plots if found.rows else (),
            source=printable(f"{SOURCE}: {folders}"),
            is_short=any(tables.is_short(side.record) for side in found.sides),
        ),
        out,
    )


def _header(found: Comparison, fact: str) -> tuple[tuple[str, str], ...]:
    runs = {side.record.run_id: side.record for side in found.sides}
    reference, *others = (f"{side.name} ({count_of(len(side.guests), 'guest')})" for side in found.sides)
    pairs = [
        ("Compared by", fact or "run"),
        ("Reference", reference),
        ("Against it", ", ".join(others)),
        *(("Run", f"{name}, started {record.started_at}, {record.status}") for name, record in runs.items()),
    ]
    return tuple((name, printable(value)) for name, value in pairs)
