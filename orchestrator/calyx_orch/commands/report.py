"""`calyx-orch report`: draw the page of a run again, perhaps by another dashboard, or print its result as JSON."""

from __future__ import annotations

from pathlib import Path

from calyx_orch.commands import run as running
from calyx_orch.errors import EXIT_FINE
from calyx_orch.report import screen
from calyx_orch.store import archive


def draw(run: Path, *, dashboard: Path | None, out: Path | None) -> int:
    """Write the report of the run in folder `run` to `out`. Returns the exit code.

    Default of `out`: report.html in the folder; by another dashboard report-NAME.html beside it, so that neither page takes the
    other's place.
    """
    from calyx_orch.analysis import summary as analysis
    from calyx_orch.report import run_page

    record = archive.read(run)
    name = "report.html" if dashboard is None else f"report-{dashboard.stem}.html"
    written = run_page.write(record, analysis.summarise(record), out=out or run / name, dashboard=dashboard)
    screen.console().print(f"report: {written}", soft_wrap=True, markup=False)
    return EXIT_FINE


def print_json(run: Path) -> int:
    """Print the result of the run in folder `run` as JSON. Returns the exit code."""
    from calyx_orch.analysis import summary as analysis

    record = archive.read(run)
    running.print_json(record, analysis.summarise(record))
    return EXIT_FINE
