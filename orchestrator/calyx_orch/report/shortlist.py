"""What of many rows a terminal shows: a screen or two for a small fleet. The page keeps every row.

Guests: all rows while they are few, else those furthest above their peers. calyx / fio: by guest while they are few, else one
row a workload, target, load and engine over the fleet. Neighbours: storage and vm_hosts first, guests where no place tells of
them or all are few. Doubts: a line each, with a letter that stands in the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from calyx_orch.analysis.rows import DoubtRow, FairnessRow, FleetRow, GuestRow, SteadyRow, Summary
from calyx_orch.model import RunRecord
from calyx_orch.report import against, facts, tables, wording
from calyx_orch.report.against import Neighbours
from calyx_orch.report.fields import Field

Row = TypeVar("Row")

GUEST_ROWS_MAX = 40  # beyond this only the worst are shown
WORST_SHOWN = 30
SMALL_FLEET = 3  # guests that calyx / fio names one by one
FEW_ROWS = 12
NOTES_SHOWN = 6
FAIR_ENOUGH = 0.95  # of two guests: one with 63 % of what both get
UNFAIR_SHOWN = 6
UNSTEADY_SHOWN = 6
NAMES_TOLD_MAX = 2
PAGE_ONLY = frozenset({"P90", "P95", "P99.99", "P99.999", "P99 / P50", "P99.9 / P50", "CV interval"})
TITLED = frozenset({"short"})  # rules that the title of a table tells already


@dataclass(frozen=True)
class Marks:
    """The letters of the rules that struck, in the order in which they are told below the tables."""

    letters: Mapping[str, str]

    def of(self, names: Sequence[str]) -> str:
        """The letters of a row."""
        return " ".join(sorted(self.letters[name] for name in names if name in self.letters))


def marks(summary: Summary) -> Marks:
    """Give every rule that struck a letter: a to z, then aa, ab and on."""
    names = [row.name for row in summary.doubts if row.name not in TITLED]
    return Marks({name: (chr(96 + n // 26) if n >= 26 else "") + chr(97 + n % 26) for n, name in enumerate(names)})


def guest_fields(of: Marks) -> tuple[Field[GuestRow], ...]:
    """The columns of guests, with letters for doubts and no reasons: the failures have a table of their own."""
    last: Field[GuestRow] = Field("doubt", lambda row: _short_status(row) + of.of(row.doubt_names), is_number=False)
    return (*(field for field in tables.GUEST if field.title not in {"doubts", *PAGE_ONLY}), last)


def fleet_fields(of: Marks) -> tuple[Field[FleetRow], ...]:
    """The columns of the fleet, with letters for doubts."""
    last: Field[FleetRow] = Field("doubt", lambda row: of.of(row.doubt_names), is_number=False)
    return (*(field for field in tables.FLEET if field.title != "doubts"), last)


def lettered(of: Marks, fields: Sequence[Field[Row]], names: Callable[[Row], Sequence[str]]) -> tuple[Field[Row], ...]:
    """The columns of any other table, with letters for doubts."""
    last: Field[Row] = Field("doubt", lambda row: of.of(names(row)), is_number=False)
    return (*(field for field in fields if field.title != "doubts"), last)


def _short_status(row: GuestRow) -> str:
    """`2 of 3` rounds, `failed` or nothing; why is told by the failures."""
    return "" if row.status == "ok" else f"{row.status.split(':')[0].removesuffix(' rounds')} "


def guests(summary: Summary) -> tuple[list[GuestRow], str]:
    """The rows of guests in their order, and what is added to the title when not all are there."""
    rows = tables.played(summary.guests)
    if len(rows) <= GUEST_ROWS_MAX:
        return rows, ""
    middle = _medians(rows)

    def badness(row: GuestRow) -> tuple[bool, float]:
        peers = middle.get(_cell(row))
        return row.status != "ok", row.p99_ns / peers if peers and row.p99_ns else 0.0

    worst = {id(row) for row in sorted(rows, key=badness, reverse=True)[:WORST_SHOWN]}
    more = f", the {WORST_SHOWN} of {len(rows)} rows furthest above the P99 of their peers"
    return [row for row in rows if id(row) in worst], more


def _cell(row: GuestRow) -> tuple[str, str, str, str]:
    return (row.workload, row.target, row.load, row.engine)


def _medians(rows: Sequence[GuestRow]) -> dict[tuple[str, str, str, str], float]:
    known: dict[tuple[str, str, str, str], list[int]] = {}
    for row in rows:
        if row.p99_ns is not None:
            known.setdefault(_cell(row), []).append(row.p99_ns)
    return {cell: median(found) for cell, found in known.items()}


def is_by_guest(summary: Summary) -> bool:
    """Whether calyx / fio names guests: few of them, and few rows."""
    count = len({row.guest for row in summary.pairs})
    return count == 1 or (count <= SMALL_FLEET and len(against.pairs(summary.pairs)) <= FEW_ROWS)


def neighbours(summary: Summary) -> tuple[tuple[Neighbours, ...], str]:
    """The rows that tell of interference, and what is added to the title when not all are there."""
    every = against.neighbours(summary)
    if len(every) <= FEW_ROWS:
        return every, ""
    told = against.covered(summary)
    kept = [one for one in every if one.first.scope != "guest" or one.first.guest not in told]
    if len(kept) <= GUEST_ROWS_MAX:
        return tuple(kept), ", of each place" if len(kept) < len(every) else ""
    lowest = {id(one) for one in sorted(kept, key=_kept)[:WORST_SHOWN]}
    return tuple(one for one in kept if id(one) in lowest), f", the {WORST_SHOWN} lowest of {len(kept)} rows"


def unfair(summary: Summary) -> list[FairnessRow]:
    """The places whose guests got plainly unequal shares, the least fair few; the page has all."""
    rows = [row for row in summary.fairness if row.fairness is not None and row.fairness < FAIR_ENOUGH]
    return sorted(rows, key=lambda row: row.fairness or 0.0)[:UNFAIR_SHOWN]


def unsteady(summary: Summary) -> tuple[list[SteadyRow], str]:
    """What was not steady: fleets, else guests of none that tells it; the first few, and what the title says of the rest."""
    bad = [row for row in summary.steady if row.verdict in ("not steady", "burst")]
    told = {_key(row) for row in bad if not row.guest}
    kept = [row for row in bad if not row.guest or _key(row) not in told]
    return kept[:UNSTEADY_SHOWN], f", {UNSTEADY_SHOWN} of {len(kept)} rows" if len(kept) > UNSTEADY_SHOWN else ""


def _key(row: SteadyRow) -> tuple[str, str, str, str]:
    return row.workload, row.target, row.engine, row.load


def _kept(one: Neighbours) -> float:
    row = one.metrics.get("throughput")
    return math.inf if row is None or row.ratio is None else row.ratio


def doubts(summary: Summary, of: Marks, width: int) -> list[str]:
    """A line for each rule that struck, as much of it as `width` columns hold; the page says all."""
    everyone = {row.guest for row in summary.guests if row.rounds}
    return [_doubt_line(row, of.letters.get(row.name, ""), everyone, width) for row in summary.doubts]


def _doubt_line(row: DoubtRow, letter: str, everyone: set[str], width: int) -> str:
    where = _where(row.guests, everyone)
    head = f"{letter or '-'} {row.label}{f' ({where})' if where else ''}"
    lines = (f"{head}: {row.sentence}; {row.remedy}", f"{head}: {row.sentence}", f"{head}: {row.remedy}", head)
    printed = [wording.printable(line) for line in lines]
    return next((line for line in printed if len(line) <= width), printed[-1])


def _where(guests: Sequence[str], everyone: set[str]) -> str:
    """Who has it: nobody named when it is all of several, the names of one or two, else their number."""
    if len(everyone) <= 1:
        return ""
    if set(guests) >= everyone:
        return f"all {len(everyone)} guests"
    return facts.names(guests) if len(guests) <= NAMES_TOLD_MAX else f"{len(guests)} of {len(everyone)} guests"


def notes(record: RunRecord) -> list[str]:
    """What the run and the plan noted, each once, the first few."""
    every = list(dict.fromkeys(wording.printable(note) for note in (*record.plan.notes, *record.notes)))
    hidden = len(every) - NOTES_SHOWN
    if hidden <= 1:
        return every
    return [*every[:NOTES_SHOWN], f"and {wording.count_of(hidden, 'note')} more in the report"]
