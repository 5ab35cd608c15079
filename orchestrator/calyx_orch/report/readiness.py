"""The tables of `calyx-orch check`: guest by check with a mark, then what is wrong and what to do. A wide fleet shows the worst.

Columns in which every guest is good go first where a terminal is narrow, and are named below the table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from calyx_orch.model import Check, Finding, Readiness, Verdict
from calyx_orch.report import facts, screen, wording

JSON_FORMAT = "calyx-orch-check/1"
GUESTS_ALL_MAX = 40  # beyond this only guests with a finding are shown
ROWS_MAX = 30
NAME_CELLS_MAX = 40
GUESTS_CELLS_MAX = 24
MARKS = {
    Verdict.GOOD: ("✓", "green"),
    Verdict.DOUBTFUL: ("!", "yellow"),
    Verdict.BAD: ("✗", "bold red"),
    Verdict.NOT_ASKED: ("·", "dim"),
}
HEADS = {
    Check.HOST_KEY: "host\nkey",
    Check.IO_URING: "io_\nuring",
    Check.SETUP: "set-\nup",
    Check.MEMORY_LOCK: "mem.\nlock",
    Check.ALIGNMENT: "align-\nment",
    Check.LOAD: "other\nload",
}


def show(found: Sequence[Readiness], notes: Sequence[str], console: Console, *, refusal: str = "") -> None:
    """Print the marks, what is wrong, what else is worth telling, and one sentence with the `refusal` of the plan itself."""
    with screen.width(console):
        _print_marks(found, console)
        _print_findings(found, console)
        told = [*notes, *(f"{one.guest}: {note}" for one in found for note in one.notes)]
        for note in told[:ROWS_MAX]:
            screen.prose(console, f"note: {note}", "dim")
        if len(told) > ROWS_MAX:
            screen.prose(console, f"and {len(told) - ROWS_MAX} notes more (--json has all)", "dim")
        console.print()
        refused = f" As it stands, `run` would refuse this: {refusal}." if refusal else ""
        screen.prose(console, f"{sentence(found)}{refused}", "bold")


def sentence(found: Sequence[Readiness]) -> str:
    """How it ended: how many are ready, who is not and for what, who is doubtful."""
    bad = [one for one in found if not one.is_ready]
    doubtful = [one for one in found if one.is_ready and Verdict.DOUBTFUL in one.verdicts.values()]
    named = [f"{one.guest} ({', '.join(dict.fromkeys(f.check for f in _worst(one)))})" for one in bad]
    text = f"{len(found) - len(bad)} of {wording.count_of(len(found), 'guest')} can be measured"
    if bad:
        text += f"; not {facts.names(named)}"
    if doubtful:
        text += f"; in doubt: {facts.names(one.guest for one in doubtful)}"
    return f"{text}. Nothing was changed on any guest."


def to_json(found: Sequence[Readiness], notes: Sequence[str]) -> dict[str, Any]:
    """Give all that was found as data for strict JSON."""
    guests = [
        {
            "guest": one.guest,
            "ready": one.is_ready,
            "checks": {str(check): str(verdict) for check, verdict in one.verdicts.items()},
            "findings": [{"check": str(f.check), "verdict": str(f.verdict), "why": f.why} for f in one.findings],
            "facts": {str(check): text for check, text in one.facts.items()},
            "notes": list(one.notes),
        }
        for one in found
    ]
    return {"format": JSON_FORMAT, "sentence": sentence(found), "guests": guests, "notes": list(notes)}


# --- marks -------------------------------------------------------------------------------------------------------


def _print_marks(found: Sequence[Readiness], console: Console) -> None:
    shown = list(found)
    if len(found) > GUESTS_ALL_MAX:
        shown = sorted((one for one in found if one.findings), key=_badness)[:ROWS_MAX]
    if shown:
        checks, left_out = _fitting(found, shown, console.width)
        table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False, header_style="bold")
        table.add_column("guest", overflow="fold", max_width=NAME_CELLS_MAX, vertical="top")
        for check in checks:
            table.add_column(_head(check), justify="center", no_wrap=True, vertical="top")
        for one in shown:
            marks = (Text(*MARKS[one.verdicts[check]]) for check in checks)
            table.add_row(Text(wording.printable(one.guest)), *marks)
        if len(shown) < len(found):
            counts = (str(sum(_is_wrong(one, check) for one in found) or "") for check in checks)
            table.add_section()
            table.add_row(Text(f"of all {len(found)}", style="dim"), *counts)
        console.print()
        room = console.width
        console.width = max(room, _needed(shown, checks))  # a terminal too narrow even so breaks the lines itself
        console.print(table, crop=False)
        console.width = room
        if left_out:
            screen.prose(
                console,
                f"every guest asked is good in: {', '.join(left_out)} (no room in {console.width} columns)",
                "dim",
            )
    if len(found) > len(shown):
        wrong = sum(bool(one.findings) for one in found)
        more = f"{wording.count_of(wrong - len(shown), 'guest')} more with findings, " if wrong > len(shown) else ""
        screen.prose(console, f"{more}{wording.count_of(len(found) - wrong, 'guest')} without any", "dim")


def _fitting(found: Sequence[Readiness], shown: Sequence[Readiness], room: int) -> tuple[list[Check], list[Check]]:
    """The columns that fit; those in which nothing is wrong with anybody are left out first, the last of them first."""
    kept = list(Check)
    good = [check for check in Check if not any(_is_wrong(one, check) for one in found)]
    while good and _needed(shown, kept) > room:
        kept.remove(good.pop())
    return kept, [check for check in Check if check not in kept]


def _needed(shown: Sequence[Readiness], checks: Sequence[Check]) -> int:
    names = (min(NAME_CELLS_MAX, cell_len(wording.printable(one.guest))) for one in shown)
    return max(len("guest"), *names) + sum(1 + _width_of(check) for check in checks)


def _head(check: Check) -> str:
    return HEADS.get(check, str(check))


def _width_of(check: Check) -> int:
    return max(map(len, _head(check).split("\n")))


def _is_wrong(one: Readiness, check: Check) -> bool:
    return one.verdicts[check] in (Verdict.BAD, Verdict.DOUBTFUL)


def _badness(one: Readiness) -> tuple[int, int]:
    """Those that cannot be measured first, the more that is wrong the earlier."""
    worst = Counter(finding.verdict for finding in one.findings)
    return -worst[Verdict.BAD], -worst[Verdict.DOUBTFUL]


def _worst(one: Readiness) -> list[Finding]:
    return [finding for finding in one.findings if finding.verdict is Verdict.BAD]


# --- findings ----------------------------------------------------------------------------------------------------


def _print_findings(found: Sequence[Readiness], console: Console) -> None:
    groups: dict[tuple[str, Check, Verdict], list[tuple[str, str]]] = {}
    for one in found:
        for finding in one.findings:
            alike = re.sub(r"[0-9]+", "#", finding.why.replace(one.address, "ADDRESS") if one.address else finding.why)
            groups.setdefault((alike, finding.check, finding.verdict), []).append((one.guest, finding.why))
    order = list(Check)
    ranked = sorted(groups.items(), key=lambda item: (item[0][2] is not Verdict.BAD, order.index(item[0][1])))
    if not ranked:
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("check", no_wrap=True)
    table.add_column("guests", overflow="fold", max_width=GUESTS_CELLS_MAX)
    table.add_column("what, and what to do", overflow="fold")
    for (_, check, verdict), members in ranked[:ROWS_MAX]:
        words = members[0][1] if len({why for _, why in members}) == 1 else f"such as: {members[0][1]}"
        guests = facts.names(guest for guest, _ in members)
        table.add_row(Text(*MARKS[verdict]), str(check), Text(guests), Text(wording.printable(words)))
    console.print()
    console.print(table, crop=False)
    if len(ranked) > ROWS_MAX:
        screen.prose(console, f"and {len(ranked) - ROWS_MAX} findings more (--json has all)", "dim")
