"""The table of `calyx-orch bench`: one line a workload, the set-up that took effect, what the engine itself adds, and what is doubtful."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from calyx_orch.analysis.rows import GuestRow, Summary
from calyx_orch.model import RunRecord
from calyx_orch.report import facts, screen, tables, terminal, wording
from calyx_orch.report.fields import Field

_KEPT = (
    "workload",
    "kind",
    "rounds",
    "MB/s",
    "IOPS",
    "CV within run",
    "P50",
    "P99",
    "P99.9",
    "P99 intended",
    "late",
    "CPU per I/O",
)


def show(record: RunRecord, summary: Summary, console: Console, *, target: str) -> None:
    """Print everything about one machine."""
    measured = [row for row in summary.guests if row.rounds or row.status != "not run"]
    fields: list[Field[GuestRow]] = [field for field in tables.GUEST if field.title in _KEPT]
    fields.append(Field("", lambda row: "" if row.status == "ok" else row.status, is_number=False))
    title = f"{target} ({_place(record)})" + (", short" if tables.is_short(record) else "")
    terminal.show_rows(console, title, fields, measured)
    for setup in dict.fromkeys(_setup(m.setup) for m in record.measurements if m.setup):
        screen.prose(console, f"set-up: {setup}", "dim")
    for known in record.facts.values():
        for text, told in (
            ("the engine itself", facts.floor_text(known.get("floor"))),
            ("truth", facts.truth_text(known.get("truth"))),
        ):
            if told:
                screen.prose(console, f"{text}: {told}", "dim")
    for text in tables.doubts(record, summary):
        screen.prose(console, f"doubtful: {text}", "yellow")
    if record.status == "interrupted":
        planned = wording.count_of(len(record.plan.rounds), "round")
        terminal.conclude(f"Interrupted: {len(record.measurements)} of {planned} measured.", console)


def _setup(setup: Mapping[str, Any]) -> str:
    """What matters of the set-up that took effect."""
    parts = [str(setup.get("took")), f"refill {setup.get('refill')}"]
    parts += [
        f"{'' if setup.get(key) else 'no '}registered {text}"
        for key, text in (("fixed_buffers", "buffers"), ("fixed_files", "files"))
    ]
    return ", ".join([*parts, *([str(setup["why"])] if setup.get("why") else [])])


def _place(record: RunRecord) -> str:
    """The file system and the device that the target lies on."""
    for known in record.facts.values():
        for path in known.get("paths") or ():
            told = [str(path[name]) for name in ("fs_type", "device", "model") if path.get(name)]
            if told:
                return " ".join(told)
    return "unknown device"
