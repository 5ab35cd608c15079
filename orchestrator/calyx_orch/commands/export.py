"""`calyx-orch export`: a run as CSV, Parquet, JSON, OpenMetrics or JUnit."""

from __future__ import annotations

import json
from pathlib import Path

from calyx_orch.commands import holding, naming, outputs
from calyx_orch.errors import EXIT_FINE, FolderError, UsageError
from calyx_orch.report import screen

FORMATS = ("csv", "parquet", "json", "openmetrics", "junit")


def write(run: str, *, form: str, out: Path | None, store: str | None) -> int:
    """Write the run to `out`, or to standard output. Raises UsageError for an unknown form, and for Parquet without a file."""
    from calyx_orch.store import archive

    naming.known("format", form, FORMATS)
    if form == "parquet" and out is None:
        raise UsageError("Parquet is no text: name a file with --out")
    if out is not None:
        outputs.checked(out, "--out")
    (folder,) = naming.folders([run], store)
    record = archive.read(folder)
    with holding.store_with(str(folder), store) as (opened, run_id):
        row = opened.find(run_id)
        figures = opened.figures(run_id)
    from calyx_orch.report import export, junit, terminal

    match form:
        case "csv":
            text = export.csv_text(row.run_id, figures)
        case "openmetrics":
            text = export.openmetrics_text(row.run_id, row.started_s, figures)
        case "junit":
            text = junit.text_of(record.plan.inventory.name, (), record.outcomes)
        case "json":
            from calyx_orch.analysis.summary import summarise

            text = json.dumps(terminal.to_json(record, summarise(record)), indent=1, allow_nan=False) + "\n"
        case _:
            assert out is not None
            export.write_parquet(out, row.run_id, figures)
            return EXIT_FINE
    if out is None:
        screen.deliver(text, f"the {form}")
        return EXIT_FINE
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FolderError(f"cannot write {out}: {error.strerror or error}; name another with --out") from error
    return EXIT_FINE
