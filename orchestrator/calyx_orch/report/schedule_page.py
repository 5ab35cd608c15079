"""The page of a schedule: coverage of its nights, the trend of each vm_host with incidents, and the table of its last night."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calyx_orch.analysis.history import History
from calyx_orch.report import dashboard as dashboards
from calyx_orch.report import figures, history, history_frame, history_page, page, tables
from calyx_orch.report.facts import Table
from calyx_orch.report.fields import Field
from calyx_orch.report.history_frame import Due
from calyx_orch.report.sharing import named_doubts
from calyx_orch.report.wording import count_of, latency, megabytes, printable, significant


@dataclass(frozen=True)
class LastNight:
    """The last night that was measured: when it was due, its verdict, what was noted, and its figures by place as the store has them."""

    at: str
    verdict: str
    notes: tuple[str, ...]
    figures: Sequence[Mapping[str, Any]]


def write(
    name: str, histories: Mapping[str, tuple[str, History]], due: tuple[Due, ...], last: LastNight | None,
    *, out: Path, dashboard: Path | None = None,
) -> Path:  # fmt: skip
    """Write the page to `out` and give that path. Raises UsageError for a faulty dashboard, else as `page.write` does.

    `histories` are scope and history of each metric by its name, throughput among them; `last` is None before the first night.
    """
    board = dashboards.read(dashboard, figures.NIGHTLY)
    frames = {metric: history_frame.frame_of(found, metric, scope) for metric, (scope, found) in histories.items()}
    known = [line.workload for frame in frames.values() for line in frame.lines]
    drawings, plots = page.draw(history_frame.ScheduleFrame(due, frames), board, list(dict.fromkeys(known)))
    notes = [*(last.notes if last else ()), *_notes(histories)]
    made = (
        tables.table("last", f"Last night that was measured, {last.at}", _LAST, last.figures, first=True)
        if last
        else None,
        *(table for metric, (scope, found) in histories.items() for table in _tables(found, metric, scope)),
        tables.table(
            "due", "Nights that did not finish", _DUE, [one for one in reversed(due) if one.state != "finished"]
        ),
    )
    return page.write(
        page.Page(
            title=printable(f"{board.title}: {name}"),
            about=printable(name),
            verdict=printable(_verdict(histories["throughput"][1], due, last)),
            header=_header(name, due),
            notes=tuple(map(printable, notes)),
            notes_title="What was noted",
            tables=tuple(one for one in made if one is not None),
            drawings=drawings,
            plots=plots,
            source="The store is an index of run folders, which hold every raw answer.",
        ),
        out,
    )


def _verdict(found: History, due: tuple[Due, ...], last: LastNight | None) -> str:
    """That of the last night that was measured; where one came after it, what became of that before."""
    said = (last.verdict if last else "") or (history.sentence(found) if found.tracks else "No night was measured yet.")
    over = [one for one in due if one.state not in ("running", "queued")]
    if not over or (last is not None and over[-1].at == last.at and over[-1].state == "finished"):
        return said
    newest = over[-1]
    why = f" ({newest.said})" if newest.said else ""
    before = f" The night before that was measured, {last.at}: {said}" if last else ""
    return f"The night of {newest.at} was {newest.state}{why}.{before}"


def _notes(histories: Mapping[str, tuple[str, History]]) -> list[str]:
    return [f"{metric}: {note}" for metric, (_, found) in histories.items() for note in history.notes(found)]


def _tables(found: History, metric: str, scope: str) -> tuple[Table, ...]:
    """Those of a history, each named by its metric."""
    return tuple(
        replace(table, key=f"{table.key}-{metric}", title=f"{table.title}: {metric} by {scope}")
        for table in history_page.tables_of(found, metric, scope)
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
    Field(
        "MB/s",
        lambda row: megabytes(row["throughput_bytes_per_s"]),
        explanation="sum over its guests; alone there is none",
    ),
    Field("MB/s a guest", lambda row: megabytes(row["guest_throughput_bytes_per_s"]), explanation="mean of its guests"),
    Field("IOPS", lambda row: significant(row["iops"]), explanation="sum over its guests; alone there is none"),
    Field("P50", lambda row: latency(row["p50_ns"])),
    Field("P99", lambda row: latency(row["p99_ns"])),
    Field("CPU per I/O", lambda row: latency(row["cpu_ns_per_io"])),
    Field("doubts", lambda row: named_doubts(row["doubts"]), is_number=False),
)
_DUE: tuple[Field[Due], ...] = (
    Field("due", lambda one: one.at, is_number=False),
    Field("state", lambda one: one.state, is_number=False),
    Field("why", lambda one: one.said, is_number=False),
)
