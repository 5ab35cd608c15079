"""The page of a schedule: coverage of its nights, the trend of each vm_host with incidents, and the table of its last night."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calyx_orch.analysis.history import History
from calyx_orch.report import dashboard as dashboards
from calyx_orch.report import figures, history, history_frame, history_page, page, tables
from calyx_orch.report.history_frame import Due
from calyx_orch.report.tables import Field
from calyx_orch.report.wording import count_of, latency, printable, rate, significant

METRIC = "throughput"


def write(
    name: str, found: History, scope: str, due: tuple[Due, ...], last: Sequence[Mapping[str, Any]], notes: Sequence[str],
    *, verdict: str, out: Path, dashboard: Path | None = None,
) -> Path:  # fmt: skip
    """Write the page to `out` and give that path. Raises UsageError for a faulty dashboard, else as `page.write` does.

    `found` is the history of throughput, `last` the figures of the last night by place as the store has them, `notes` what was noted
    that night.
    """
    board = dashboards.read(dashboard, figures.NIGHTLY)
    frame = history_frame.frame_of(found, METRIC, scope, due)
    drawings, plots = page.draw(frame, board, list(dict.fromkeys(line.workload for line in frame.lines)))
    made = (
        tables.table("last", "Last night", _LAST, last, first=True),
        *history_page.tables_of(found, METRIC, scope),
        tables.table(
            "due", "Nights that did not finish", _DUE, [one for one in reversed(due) if one.state != "finished"]
        ),
    )
    return page.write(
        page.Page(
            title=printable(f"{board.title}: {name}"),
            about=printable(name),
            verdict=printable(verdict or history.sentence(found)),
            header=_header(name, due),
            notes=tuple(map(printable, (*notes, *history.notes(found)))),
            notes_title="What was noted",
            tables=tuple(one for one in made if one is not None),
            drawings=drawings,
            plots=plots,
            source="The store is an index of run folders, which hold every raw answer.",
        ),
        out,
    )


def _header(name: str, due: tuple[Due, ...]) -> tuple[tuple[str, str], ...]:
    states = Counter(one.state for one in due)
    said = ", ".join(f"{number} {state}" for state, number in states.most_common())
    pairs = [("Schedule", name), ("Nights", f"{count_of(len(due), 'night')}: {said}" if due else "none yet")]
    pairs += [("First", due[0].at), ("Last", due[-1].at)] if due else []
    return tuple((key, printable(value)) for key, value in pairs)


_LAST: tuple[Field[Mapping[str, Any]], ...] = (
    Field("name", lambda row: row["name"], is_number=False),
    Field("workload", lambda row: row["workload"], is_number=False),
    Field("target", lambda row: row["target"], is_number=False),
    Field("load", lambda row: row["load"], is_number=False),
    Field("engine", lambda row: row["engine"], is_number=False),
    Field("guests", lambda row: str(row["guests"])),
    Field("a guest", lambda row: rate(row["throughput_bytes_per_s"]), explanation="mean of its guests"),
    Field("IOPS", lambda row: significant(row["iops"])),
    Field("P50", lambda row: latency(row["p50_ns"])),
    Field("P99", lambda row: latency(row["p99_ns"])),
    Field("CPU per I/O", lambda row: latency(row["cpu_ns_per_io"])),
    Field("doubts", lambda row: ", ".join(row["doubts"]), is_number=False),
)
_DUE: tuple[Field[Due], ...] = (
    Field("due", lambda one: one.at, is_number=False),
    Field("state", lambda one: one.state, is_number=False),
    Field("why", lambda one: one.said, is_number=False),
)
