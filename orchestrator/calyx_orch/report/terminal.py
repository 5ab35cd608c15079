"""The result as tables on a terminal, or as plain text or JSON; ends with one sentence.

A narrow terminal loses columns, the least needed first, and says which; numbers are never cut. Names and reasons may be broken
into lines. Everything from a guest is shown without control characters.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from calyx_orch import plan as planning
from calyx_orch.analysis import verdict
from calyx_orch.analysis.rows import GuestRow, Summary
from calyx_orch.documents import strict_json
from calyx_orch.model import Inventory, Plan, RunRecord
from calyx_orch.plan import PlanRow
from calyx_orch.report import against, facts, patterns, screen, sharing, shortlist, tables, wording
from calyx_orch.report.fields import Field, ordered

GUESTS_ALL_MAX = 40  # beyond this a table shows the worst ones only
WORST_SHOWN = 30
JSON_FORMAT = "calyx-orch-result/1"
TEXT_WIDTH_MIN = 12
GAP = 2
IN_BLOCKS = "Listed by workload; they are played in blocks, in an order drawn from the seed."
PART_ROWS_MIN = 3  # a blank line between parts of fewer rows costs more than it tells

Row = TypeVar("Row")


def show(record: RunRecord, summary: Summary, sentence: str, console: Console) -> None:
    """Print the tables and the closing sentence."""
    show_tables(record, summary, console)
    conclude(sentence, console)


def conclude(sentence: str, console: Console) -> None:
    """Print the closing sentence, with which everything ends."""
    with screen.width(console):
        console.print()
        screen.prose(console, sentence, "bold")


def show_tables(record: RunRecord, summary: Summary, console: Console) -> None:
    """Print what went wrong, the fleet, its guests, the comparisons, and what is doubtful."""
    short = tables.is_short(record)
    of = shortlist.marks(summary)
    with screen.width(console):
        _print_table(console, _first_rows(facts.failures(record)), "guests that failed", style="red")
        _print_table(console, facts.searches(record))
        _print_table(console, _first_rows(facts.conditioned(record)))
        _print_table(console, _first_rows(facts.load_points(record)))
        _print_table(console, _first_rows(facts.settled(record)))
        if tables.is_measured(summary):
            fleet = ordered(summary.fleet) if len({row.guest for row in summary.guests}) > 1 else ()
            _print(console, _titled("the fleet", short), shortlist.fleet_fields(of), fleet)
            rows, more = shortlist.guests(summary)
            title = _titled(f"guest by guest{more}", short)
            text = tables.not_run(summary.guests)
            _print(console, title, shortlist.guest_fields(of), rows, text=text, part=_cell)
            title = _titled("places that are shared unfairly", short)
            fields = shortlist.lettered(of, sharing.FAIRNESS, lambda row: row.doubts)
            _print(console, title, fields, shortlist.unfair(summary))
            carried = shortlist.lettered(of, sharing.CARRIED, lambda row: row.doubts)
            _print(console, _titled("how many guests a place carries", short), carried, summary.carried[:WORST_SHOWN])
            levels = shortlist.lettered(of, sharing.DENSITY, lambda row: row.doubts)
            _print(console, _titled("with more guests at once", short), levels, summary.density[:WORST_SHOWN])
            unsteady, more = shortlist.unsteady(summary)
            steady = shortlist.lettered(of, sharing.STEADY, lambda row: row.doubts)
            _print(console, _titled(f"not steady{more}", short), steady, unsteady)
            _print_comparisons(console, summary, short, of)
        _print_doubts(console, record, summary, of)


def _print_comparisons(console: Console, summary: Summary, short: bool, of: shortlist.Marks) -> None:
    if shortlist.is_by_guest(summary):
        by_guest = shortlist.lettered(of, against.PAIR, lambda pair: pair.names)
        _print(console, _titled("calyx / fio", short), by_guest, against.pairs(summary.pairs))
    else:
        text = "Mean ratio of the guests, in brackets the lowest and the highest guest; the report has every guest."
        title = _titled("calyx / fio over the fleet", short)
        whole = shortlist.lettered(of, against.FLEET_PAIR, lambda pair: pair.names)
        _print(console, title, whole, against.fleet_pairs(summary.fleet_pairs), text=text)
    rows, more = shortlist.neighbours(summary)
    text = against.ALONE if any(one.first.scope != "guest" for one in rows) else ""
    fields = shortlist.lettered(of, against.INTERFERENCE, lambda one: one.names)
    _print(console, _titled(f"with neighbours / alone{more}", short), fields, rows, text=text)


def _print_doubts(console: Console, record: RunRecord, summary: Summary, of: shortlist.Marks) -> None:
    """Say what the letters mean, and what was noted."""
    lines = shortlist.doubts(summary, of, console.width) if tables.is_measured(summary) else []
    if lines:
        console.print()
        console.print(Text("what is doubtful, by the letters of the rows and at its worst", style="bold cyan"))
    for line in lines:
        screen.prose(console, line, "yellow")
    for note in shortlist.notes(record):
        screen.prose(console, f"note: {note}", "dim")


def _first_rows(made: facts.Table | None) -> facts.Table | None:
    """The first rows of a long table, and how many there are more."""
    if made is None or len(made.rows) <= GUESTS_ALL_MAX:
        return made
    text = f"The first {WORST_SHOWN} of {len(made.rows)}; the report has all."
    return replace(made, rows=made.rows[:WORST_SHOWN], text=text)


def _cell(row: GuestRow) -> tuple[str, str, str]:
    """What belongs together in the table of guests."""
    return (row.workload, row.target, row.load)


def show_rows(console: Console, title: str, fields: Sequence[Field[Row]], rows: Iterable[Row]) -> None:
    """Print one table of rows in the columns that fit."""
    with screen.width(console):
        _print(console, title, fields, rows)


def dry_run(plan: Plan, rows: Sequence[PlanRow], console: Console, *, refusal: str = "") -> None:
    """Print what a plan would do: its rounds by kind, what each place and guest is charged, and why a run would refuse it."""
    with screen.width(console):
        _print(console, "workloads", patterns.FIELDS, patterns.patterns(plan))
        _print(console, "rounds", _ROUNDS, _kinds(plan), text=IN_BLOCKS)
        guests = [row for row in rows if row.kind == "guest"]
        shown = list(rows)
        if len(guests) > GUESTS_ALL_MAX:
            worst = sorted(guests, key=lambda row: -row.new_bytes)[:WORST_SHOWN]
            shown = [row for row in rows if row.kind != "guest"] + worst
        _print(console, "what it costs", _COSTS, shown, text=_KEPT if any(row.kept_bytes for row in rows) else "")
        if len(shown) < len(rows):
            console.print(Text(f"and {len(rows) - len(shown)} guests more, with no more new bytes than these"))
        names = facts.names(guest.name for guest in plan.inventory.guests)
        head = wording.count_of(len(plan.inventory.guests), "guest")
        text = f"{head} ({names}): {wording.count_of(len(plan.rounds), 'round')}, about {wording.duration(plan.estimated_s)}"
        _print_notes(console, plan)
        refused = f" As it stands, `run` would refuse this: {refusal}." if refusal else ""
        console.print(Text(wording.printable(f"{text}, seed {plan.seed}. Nothing was touched.{refused}")))


def to_json(record: RunRecord, summary: Summary) -> dict[str, Any]:
    """Give the result as data for strict JSON: every row, with null for what is unknown or no number."""
    plan = record.plan
    run = {
        "id": record.run_id,
        "folder": record.folder,
        "started_at": record.started_at,
        "status": record.status,
        "inventory": plan.inventory.source or plan.inventory.name,
        "seed": plan.seed,
        "rounds": len(plan.rounds),
        "is_short": tables.is_short(record),
        "notes": record.notes,
        "resumed": [asdict(one) for one in record.resumed],
    }
    whole = {
        "format": JSON_FORMAT,
        "run": run,
        "sentence": verdict.sentence(record, summary, is_drawn=(Path(record.folder) / "report.html").is_file()),
        "outcomes": [asdict(outcome) for outcome in record.outcomes],
        "found": [asdict(one) for one in record.found],
        "conditioned": [asdict(one) for one in plan.conditioned],
        "load_points": [asdict(one) for one in plan.load_points],
        "settled": [asdict(one) for one in plan.settled],
        **{name: [asdict(row) for row in rows] for name, rows in vars(summary).items()},
    }
    plain: dict[str, Any] = strict_json.plain(whole)
    return plain


# --- tables ------------------------------------------------------------------------------------------------------


def _kinds(plan: Plan) -> list[tuple[str, ...]]:
    """The rounds of each kind and how many there are: workloads, targets and loads as the inventory has them, calyx before fio."""
    places = {workload.name: place for place, workload in enumerate(plan.inventory.workloads)}
    targets = {name: place for place, name in enumerate(dict.fromkeys(one.target for one in plan.measured))}
    first = plan.inventory.load
    by_load = sorted(
        plan.rounds, key=lambda one: (first.index(one.load) if one.load in first else len(first), one.density)
    )
    loads = list(dict.fromkeys(one.load_name for one in by_load))
    counts = Counter((one.workload.name, one.target, one.load_name, one.engine) for one in plan.rounds)
    ordered = sorted(counts, key=lambda k: (places[k[0]], targets[k[1]], loads.index(k[2]), k[3] != "calyx", k[3]))
    before = Counter((one.workload.name, one.target, one.load_name) for one in plan.conditioning)
    made = [(*key, "calyx, preconditioning", f"up to {count}") for key, count in before.items()]
    shown = Counter((one.workload.name, one.target, one.load_name, one.engine) for one in plan.capacity)
    made += [(*key[:3], f"{key[3]}, capacity", str(count)) for key, count in shown.items()]
    return [*made, *((*key, str(counts[key])) for key in ordered)]


_ROUNDS: tuple[Field[tuple[str, ...]], ...] = (
    Field("workload", lambda row: row[0], is_number=False),
    Field("target", lambda row: row[1], is_number=False),
    Field("load", lambda row: row[2], is_number=False),
    Field("engine", lambda row: row[3], is_number=False),
    Field("rounds", lambda row: row[4]),
)


def _new_bytes(row: PlanRow) -> str:
    """How many bytes are new: a range where it is known on the guests only whether kept files can be reused."""
    most = wording.size(row.new_bytes)
    return f"{wording.size(row.new_bytes - row.kept_bytes)} to {most}" if row.kept_bytes else most


_KEPT = (
    "The fewer new bytes where a guest still holds its kept files as the run before left them, which is known once it is asked; bytes "
    "written at most, time and `impact` count the more."
)
_COSTS: tuple[Field[PlanRow], ...] = (
    Field("kind", lambda row: row.kind, is_number=False),
    Field("name", lambda row: row.name, is_number=False),
    Field("rounds", lambda row: str(row.rounds), 2),
    Field("time", lambda row: wording.duration(row.seconds), 1),
    Field("new bytes", _new_bytes),
    Field("new bytes allowed", lambda row: wording.size(row.limit_bytes) if row.limit_bytes else ""),
    Field("written at most", lambda row: row.written, is_number=False),
    Field("", lambda row: "needs --allow-growth" if row.exceeds else "", is_number=False),
)


def _around(inventory: Inventory) -> str:
    """What a round costs besides its ramp and runtime."""
    told = planning.around(inventory)
    parts = ", ".join(f"{wording.duration(seconds)} {words}" for words, seconds in told)
    return f"Each takes, besides ramp and runtime, about {wording.duration(sum(s for _, s in told))}: {parts}."


def _titled(title: str, short: bool) -> str:
    return f"{title} (short run)" if short else title


def _print_notes(console: Console, plan: Plan) -> None:
    for note in plan.notes:
        screen.prose(console, f"note: {note}", "dim")


def _print_table(console: Console, made: facts.Table | None, title: str | None = None, style: str = "") -> None:
    if made is None:
        return
    fields = [
        Field[tuple[str, ...]](column.title, lambda row, n=number: row[n], is_number=column.is_number)  # type: ignore[misc]
        for number, column in enumerate(made.columns)
    ]
    _print(console, title or made.title, fields, made.rows, style=style)


def _print(
    console: Console,
    title: str,
    fields: Sequence[Field[Row]],
    rows: Iterable[Row],
    *,
    text: str = "",
    style: str = "",
    part: Callable[[Row], object] | None = None,
) -> None:
    """Print one table in the columns that fit, and say which did not; rows of one `part` stand together."""
    rows = list(rows)
    made = tables.table("", title, fields, rows, text=text)
    if made is None:
        return
    ranks = {field.title: field.rank for field in fields}
    widths = [_widths(column, [row[n] for row in made.rows]) for n, column in enumerate(made.columns)]
    used, left_out = _fitting(made.columns, widths, ranks, console.width)
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold", style=style
    )
    for number in used:
        column = made.columns[number]
        head = "\n".join(textwrap.wrap(column.title, widths[number])) if column.is_number else column.title
        table.add_column(
            head,
            justify="right" if column.is_number else "left",
            no_wrap=column.is_number,
            min_width=widths[number] if column.is_number else min(widths[number], TEXT_WIDTH_MIN),
            overflow="fold",
            vertical="top",
        )
    parts = [part(row) for row in rows] if part else []
    parts = parts if len(set(parts)) * PART_ROWS_MIN <= len(rows) else []
    for at, row in enumerate(made.rows):
        ends = at + 1 < len(parts) and parts[at] != parts[at + 1]
        table.add_row(*(Text(row[number]) for number in used), end_section=ends)
    console.print()
    console.print(Text(wording.printable(title), style="bold cyan"))
    if made.text:
        console.print(Text(made.text, style="dim"))
    room = console.width
    least = [width if made.columns[n].is_number else min(width, TEXT_WIDTH_MIN) for n, width in enumerate(widths)]
    console.width = max(room, _needed(least, used))  # a terminal too narrow even so breaks the lines itself
    console.print(table, crop=False)
    console.width = room
    if left_out:
        console.print(Text(f"no room in {console.width} columns for: {', '.join(left_out)}", style="dim"))


def _widths(column: facts.Column, cells: Sequence[str]) -> int:
    content = max((cell_len(cell) for cell in cells), default=0)
    words = [len(word) for word in column.title.split()] or [0]
    if column.is_long:
        return max(TEXT_WIDTH_MIN, min(content, 24))
    return max(content, max(words) if column.is_number else len(column.title))


def _fitting(
    columns: Sequence[facts.Column], widths: Sequence[int], ranks: Mapping[str, int], room: int
) -> tuple[list[int], list[str]]:
    """Choose the columns that fit in `room`, dropping the highest ranks first; rank 0 stays whatever the room."""
    used = list(range(len(columns)))
    while _needed(widths, used) > room:
        last = max(used, key=lambda n: (ranks[columns[n].title], n))
        if ranks[columns[last].title] == 0:
            break
        used.remove(last)
    return used, [columns[n].title for n in range(len(columns)) if n not in used]


def _needed(widths: Sequence[int], used: Sequence[int]) -> int:
    return sum(widths[n] + GAP for n in used) - GAP
