"""`calyx-orch report`: draw the page of a run again, perhaps by another dashboard, or print its result as JSON."""

from __future__ import annotations

from pathlib import Path

from calyx_orch.commands import naming, outputs
from calyx_orch.commands import run as running
from calyx_orch.errors import EXIT_FINE
from calyx_orch.report import screen
from calyx_orch.store import archive


def draw(run: str, *, dashboard: Path | None, out: Path | None, store: str | None) -> int:
    """Write the report of a run, named by its folder or as the store knows it, to `out`. Returns the exit code.

    Default of `out`: report.html in the folder; by another dashboard report-NAME.html beside it, so that neither page takes the
    other's place.
    """
    from calyx_orch.analysis import summary as analysis
    from calyx_orch.report import run_page

    if out is not None:
        outputs.checked(out, "--out", "page")
    (folder,) = naming.folders([run], store)
    record = archive.read(folder)
    name = "report.html" if dashboard is None else f"report-{dashboard.stem}.html"
    written = run_page.write(record, analysis.summarise(record), out=out or folder / name, dashboard=dashboard)
    screen.line(f"report: {written}")
    return EXIT_FINE


def print_json(run: str, *, store: str | None) -> int:
    """Print the result of a run as JSON. Returns the exit code."""
    from calyx_orch.analysis import summary as analysis

    (folder,) = naming.folders([run], store)
    record = archive.read(folder)
    running.print_json(record, analysis.summarise(record))
    return EXIT_FINE
