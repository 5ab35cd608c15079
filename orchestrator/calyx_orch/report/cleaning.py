"""What `calyx-orch clean` tells: a row a guest, what it removed and why other things stay, and what a thin disk still holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from calyx_orch.model import Cleaned, Freed, Leftover
from calyx_orch.report import facts, screen, terminal, wording
from calyx_orch.report.fields import Field

JSON_FORMAT = "calyx-orch-clean/1"
LINES_MAX = 60
GIVEN_BACK = {
    "online": "are given back to a thin disk by the mount itself (discard)",
    "fstrim": "stay allocated on the vm_host's thin disk until there is a trim: run `sudo fstrim {mount}` on the guest",
    "none": "stay allocated on the vm_host's thin disk: the guest's disk takes no discards; compact it there",
}
NOT_KNOWN = "may stay allocated on the vm_host's thin disk: whether the guest's disk takes discards is not known"


def show(cleaned: Sequence[Cleaned], console: Console) -> None:
    """Print a row for each guest on which anything was found, the reasons, and one sentence."""
    rows = [one for one in cleaned if one.removed or one.kept or one.kept_files or one.failed or one.agents]
    if rows:
        terminal.show_rows(console, "what was left by the dead", FIELDS, rows[: terminal.GUESTS_ALL_MAX])
    lines = [line for one in cleaned for line in _lines(one)]
    with screen.width(console):
        console.print()
        for text, style in lines[:LINES_MAX]:
            screen.prose(console, text, style)
        if len(lines) > LINES_MAX:
            console.print(Text(f"and {len(lines) - LINES_MAX} lines more (--json has all)", style="dim"))
        if lines:
            console.print()
        screen.prose(console, sentence(cleaned), "bold")


FIELDS: tuple[Field[Cleaned], ...] = (
    Field("guest", lambda one: one.guest, is_number=False),
    Field("directories", lambda one: str(len(one.removed))),
    Field("files", lambda one: str(sum(left.files for left in one.removed))),
    Field("bytes", lambda one: wording.size(sum(left.bytes for left in one.removed))),
    Field("old agents", lambda one: str(len(one.agents) or ""), 2),
    Field("stays", lambda one: str(len(one.kept) + len(one.kept_files) or ""), 1),
    Field("failed", lambda one: str(len(one.failed) or "")),
    Field(
        "runs", lambda one: ", ".join(dict.fromkeys(left.run for left in one.removed if left.run)), 1, is_number=False
    ),
)


def _lines(one: Cleaned) -> list[tuple[str, str]]:
    """What is told of one guest, each line with its style."""
    name = one.guest
    verb = "would remove" if one.dry_run else "removed"
    how = "not cleaned to the end" if one.removed or one.kept or one.kept_files or one.failed else "not cleaned"
    lines = [(f"{name}: {how}: {one.trouble}", "red")] if one.trouble else []
    if one.more:
        lines.append((f"{name}: there is more than was told: run this again after a clean", "yellow"))
    for left in one.removed:
        lines.append((f"{name}: {verb} {left.path} ({_what(left)})", ""))
    lines += [
        (f"{name}: {verb} {path} ({wording.size(size)}, another version's agent)", "") for path, size in one.agents
    ]
    lines += [
        (f"{name}: kept {left.path} ({_what(left)}): `calyx-orch clean --kept` removes it", "yellow")
        for left in one.kept_files
    ]
    lines += [(f"{name}: kept {stays.path}: {stays.why}", "yellow") for stays in one.kept]
    lines += [(f"{name}: could not remove {stays.path}: {stays.why}: see to it by hand", "red") for stays in one.failed]
    return lines + [(f"{name}: {_on_the_host(freed)}", "dim") for freed in one.freed]


def _what(left: Leftover) -> str:
    keep = f", kept for {left.keep}" if left.keep else ""
    of = f", of run {left.run} of {left.by or 'somebody'}" if left.run else ""
    return f"{wording.count_of(left.files, 'file')}, {wording.size(left.bytes)}{keep}{of}"


def _on_the_host(freed: Freed) -> str:
    what = GIVEN_BACK.get(freed.discard or "", NOT_KNOWN).format(mount=freed.mount or freed.path)
    return f"{wording.size(freed.bytes)} of {freed.path} {what}"


def sentence(cleaned: Sequence[Cleaned]) -> str:
    """How it ended, in one sentence or two."""
    removed = [left for one in cleaned for left in one.removed]
    agents = sum(len(one.agents) for one in cleaned)
    verb = "Would remove" if any(one.dry_run for one in cleaned) else "Removed"
    guests = wording.count_of(len(cleaned), "guest")
    if removed or agents:
        some = sum(bool(one.removed or one.agents) for one in cleaned)
        files, size = sum(left.files for left in removed), wording.size(sum(left.bytes for left in removed))
        least = "at least " if any(one.more for one in cleaned) else ""
        count = f"{least}{len(removed)} {'directory' if len(removed) == 1 else 'directories'}"
        text = f"{verb} {count} with {wording.count_of(files, 'file')} ({size}) on {some} of {guests}"
        text += f", and {wording.count_of(agents, 'old agent')}" if agents else ""
    elif any(one.failed for one in cleaned):
        text = "Nothing was removed"
    else:
        looked = sum(not one.trouble for one in cleaned)
        where = guests if looked == len(cleaned) else f"{looked} of {guests}"
        text = f"Nothing is left by the dead on {where}" if looked else "No guest told that it was cleaned"
    kept = [one.guest for one in cleaned if one.kept]
    later = [left for one in cleaned for left in one.kept_files]
    bad = [one.guest for one in cleaned if not one.is_clean]
    if later:
        held = wording.size(sum(left.bytes for left in later))
        text += f"; {wording.count_of(len(later), 'set')} of kept files ({held}) {'stays' if len(later) == 1 else 'stay'} for later runs"
    text += f"; something stays on {facts.names(kept)}" if kept else ""
    text += f"; not clean: {facts.names(bad)}" if bad else ""
    return f"{text}. Nothing was touched." if verb.startswith("Would") else f"{text}."


def to_json(cleaned: Sequence[Cleaned]) -> dict[str, Any]:
    """Give all of it as data for strict JSON."""
    guests = [
        {
            **{key: value for key, value in asdict(one).items() if key != "agents"},
            "agents": [{"path": path, "bytes": size} for path, size in one.agents],
            "clean": one.is_clean,
        }
        for one in cleaned
    ]
    return {"format": JSON_FORMAT, "sentence": sentence(cleaned), "guests": guests}
