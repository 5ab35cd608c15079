"""`calyx-orch report`: draw the page of a run again, perhaps with another dashboard."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from calyx_orch.errors import EXIT_FINE
from calyx_orch.store import archive


def draw(run: Path, *, dashboard: Path | None, out: Path | None) -> int:
    """Write the report of the run in folder `run` to `out` (default: report.html in it). Returns the exit code."""
    from calyx_orch.analysis import summary as analysis
    from calyx_orch.report import page

    record = archive.read(run)
    written = page.write(record, analysis.summarise(record), out=out or run / "report.html", dashboard=dashboard)
    Console(highlight=False).print(f"report: {written}", soft_wrap=True, markup=False)
    return EXIT_FINE
