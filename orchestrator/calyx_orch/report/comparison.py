"""A comparison as tables on a terminal, as strict JSON, and in one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from calyx_orch.analysis.comparison import BETTER, NO_DIFFERENCE, NOT_ENOUGH, WORSE, Comparison, ComparisonRow
from calyx_orch.documents import strict_json
from calyx_orch.report import screen, sharing, terminal, wording
from calyx_orch.report.fields import Field

JSON_FORMAT = "calyx-orch-comparison/1"
SIDES_NAMED_MAX = 6


def shown(metric: str, value: float | None) -> str:
    """A figure of a metric in its unit."""
    if metric == "throughput":
        return wording.rate(value)
    if metric == "IOPS":
        return wording.significant(value)
    return wording.cv(value) if metric.startswith("CV ") else wording.latency(value)


def _interval(row: ComparisonRow) -> str:
    effect = row.effect
    if effect.low is None or effect.high is None:
        return ""
    return f"{wording.ratio(effect.low)} .. {wording.ratio(effect.high)}"


def _p(row: ComparisonRow) -> str:
    if row.p_adjusted is None:
        return ""
    return "<0.001" if row.p_adjusted < 0.001 else f"{row.p_adjusted:.3f}"


def _detectable(row: ComparisonRow) -> str:
    return "" if row.effect.detectable is None else f"{100 * row.effect.detectable:.1f} %"


FIELDS: tuple[Field[ComparisonRow], ...] = (
    Field("workload", lambda row: row.workload, is_number=False),
    Field("kind", lambda row: ", ".join(row.labels), is_number=False),
    Field("target", lambda row: row.target, is_number=False),
    Field("load", lambda row: row.load, is_number=False),
    Field("engine", lambda row: row.engine, is_number=False),
    Field("metric", lambda row: row.metric, is_number=False),
    Field("side", lambda row: row.side, is_number=False),
    Field("value", lambda row: shown(row.metric, row.value), 1),
    Field("reference", lambda row: shown(row.metric, row.reference_value), 2),
    Field("ratio", lambda row: wording.ratio(row.effect.ratio), explanation="side / reference"),
    Field("95 % interval", _interval, explanation="Student's, over units"),
    Field(
        "verdict", lambda row: row.verdict, is_number=False, explanation="of the side; p corrected over all rows (Holm)"
    ),
    Field("p", _p, 3, explanation="two-sided, corrected over all rows (Holm)"),
    Field("units", lambda row: f"{row.effect.units}{' pairs' if row.effect.paired else ''}", 4),
    Field(
        "detectable", _detectable, 2, explanation="the smallest change that these units would show in 80 of 100 tries"
    ),
    Field(
        "doubts", lambda row: sharing.named_doubts(row.doubt_names), 3, is_number=False, explanation="of either side"
    ),
)


def show(found: Comparison, fact: str, console: Console) -> None:
    """Print what differs besides, the table, what it cannot say, and the sentence."""
    for difference in found.differences:
        screen.line(f"differs: {difference.sentence}", "yellow", to=console)
    title = f"{', '.join(side.name for side in found.sides[1 : SIDES_NAMED_MAX + 1])} / {found.sides[0].name}"
    decided = [row for row in found.rows if row.verdict != NOT_ENOUGH]
    terminal.show_rows(console, title, FIELDS, decided or found.rows)
    for note in notes(found):
        screen.prose(console, f"note: {note}", "dim")
    terminal.conclude(sentence(found, fact), console)


def notes(found: Comparison) -> list[str]:
    """What the rows cannot say."""
    return _gathered(found.rows) + list(found.notes)


def sentence(found: Comparison, fact: str) -> str:
    """One sentence: who is better or worse at what and by how much, or why nobody can say."""
    reference = found.sides[0].name
    clauses: list[str] = []
    undecided: dict[str, list[list[ComparisonRow]]] = {}
    for side in found.sides[1:]:
        rows = [row for row in found.rows if row.side == side.name]
        judged = [row for row in rows if row.verdict in (BETTER, WORSE)]
        if judged:
            told = [_told(row) for row in sorted(judged, key=_weight)[:3]]
            more = f" and {len(judged) - 3} more" if len(judged) > 3 else ""
            clauses.append(f"{side.name} is {'; '.join(told)}{more}")
        elif rows:
            undecided.setdefault(_undecided(rows), []).append(rows)
    for said, alike in undecided.items():
        names = [rows[0].side for rows in alike]
        more = f" and {len(names) - SIDES_NAMED_MAX} more" if len(names) > SIDES_NAMED_MAX else ""
        clauses.append(
            f"{', '.join(names[:SIDES_NAMED_MAX])}{more}: {said}{_seen([row for rows in alike for row in rows])}"
        )
    if not clauses:
        return f"Nothing could be compared with {reference}: no workload was measured on both sides."
    kind = f"{fact} " if fact else ""
    return f"Against {kind}{reference}: {'; '.join(clauses)}."


def to_json(found: Comparison, fact: str) -> dict[str, Any]:
    """Give the comparison as data for strict JSON, with null for what is unknown."""
    plain: dict[str, Any] = strict_json.plain(
        {
            "format": JSON_FORMAT,
            "by": fact or None,
            "sides": [
                {"name": side.name, "run": side.record.run_id, "folder": side.record.folder, "guests": side.guests}
                for side in found.sides
            ],
            "sentence": sentence(found, fact),
            "rows": [asdict(row) for row in found.rows],
            "differences": [asdict(one) for one in found.differences],
            "notes": found.notes,
        }
    )
    return plain


def _told(row: ComparisonRow) -> str:
    """`12 % worse in throughput of seq-read (0.84 .. 0.92)`."""
    change = abs((row.effect.ratio or 1.0) - 1.0)
    engine = f" by {row.engine}" if row.engine else ""
    return f"{100 * change:.3g} % {row.verdict} in {row.metric} of {row.workload}{engine} ({_interval(row)})"


def _weight(row: ComparisonRow) -> float:
    return -abs(math.log(row.effect.ratio or 1.0))


def _undecided(rows: Sequence[ComparisonRow]) -> str:
    """Why no row of a side decided."""
    verdicts = {row.verdict for row in rows}
    if verdicts == {NOT_ENOUGH}:
        return f"{rows[0].note}; run with more `repetitions`"
    return NO_DIFFERENCE if NO_DIFFERENCE in verdicts else "the latencies are of different load"


def _seen(rows: Sequence[ComparisonRow]) -> str:
    """Where nothing was found, what would have been seen."""
    if not any(row.verdict == NO_DIFFERENCE for row in rows):
        return ""
    known = [row.effect.detectable for row in rows if row.metric == "throughput" and row.effect.detectable is not None]
    return f" (in throughput {100 * max(known):.2g} % would have been seen)" if known else ""


def _gathered(rows: Sequence[ComparisonRow]) -> list[str]:
    """The notes of rows, each once with what it is about; the rows without enough data are told here alone."""
    of: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.note:
            about = f"{row.workload} {row.load}" if row.verdict == NOT_ENOUGH else row.metric
            of.setdefault(row.note, {})[about] = None
    return [f"{', '.join(about)}: {note}" for note, about in of.items()]
