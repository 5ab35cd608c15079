"""Files that are kept from run to run, by what guests say of them: which there are, which were reused, which laid out anew. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from calyx_orch import units
from calyx_orch.model import Inventory, Layout, Plan

Facts = Mapping[str, Any]

PREFIX = ".calyx-orch-"  # of the directories that agents make
RUN_ALONE = "laid out for this run alone"
NAMED_MAX = 6


def is_there(entry: Facts, layout: Layout) -> bool:
    """Whether kept files of a layout lie in its path, by the facts of that path: they are reused, or their space is used anew."""
    return bool(layout.keep) and layout.keep in (keep for _, keep in _listed(entry))


def unused(facts: Facts, inventory: Inventory) -> tuple[str, ...]:
    """Sentences about kept files that no guest of the inventory has a target for; a run never removes them."""
    expected = {
        (target.path.rstrip("/"), guest.kept_as(target))
        for guest in inventory.guests
        for target in guest.targets
        if target.keep_files
    }
    found = []
    for entry in facts.get("paths") or ():
        path = str(entry.get("path") or "").rstrip("/")
        found += [f"{path}/{name} (of {keep})" for name, keep in _listed(entry) if (path, keep) not in expected]
    if not found:
        return ()
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    stay = "this run has no use for some kept files, which stay until `calyx-orch clean --kept` removes them"
    return (f"{stay}: {', '.join(found[:NAMED_MAX])}{more}",)


def files(layouts: Iterable[Layout], laid_out: Mapping[str, Facts]) -> str:
    """On which files a guest is measured, as a fact of it: two runs with one text used the same files, or each its own."""
    found = {layout.target: _since(layout, laid_out[layout.target]) for layout in layouts if layout.target in laid_out}
    if len(set(found.values())) <= 1:
        return next(iter(found.values()), RUN_ALONE)
    return ", ".join(f"{target} {text}" for target, text in found.items())


def told(plan: Plan, facts: Mapping[str, Facts]) -> tuple[str, ...]:
    """What became of kept files in a run: how many guests reused theirs, and how much was not written by that."""
    asked = [(layout, prepared) for layout, prepared in _prepared(plan, facts) if layout.keep]
    reused = [layout for layout, prepared in asked if prepared.get("layout") == "reused"]
    if not asked:
        return ()
    guests, spared = {one.guest for one in reused}, sum(one.total_bytes for one in reused)
    whole = len({layout.guest for layout, _ in asked})
    if not reused:
        return (f"files to be kept were laid out on {_guests(whole)}: the next run can reuse them",)
    return (
        f"kept files were reused on {len(guests)} of {_guests(whole)}: {units.format_bytes(spared)} were not written",
    )


def anew(plan: Plan, facts: Mapping[str, Facts]) -> tuple[str, ...]:
    """A sentence for each target whose kept files were of no use, with the reason: its figures begin a new series."""
    return tuple(
        f"{layout.guest}: kept files of target {layout.target} were laid out anew: {prepared['anew']}"
        for layout, prepared in _prepared(plan, facts)
        if layout.keep and prepared.get("layout") == "new" and isinstance(prepared.get("anew"), str)
    )


# --- how ------------------------------------------------------------------------------------------------------------


def _since(layout: Layout, prepared: Facts) -> str:
    laid_s = prepared.get("laid_s")
    if not layout.keep or not isinstance(laid_s, int):
        return RUN_ALONE
    try:
        laid_out = datetime.datetime.fromtimestamp(laid_s, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return "kept, laid out nobody knows when"
    return f"kept since {laid_out.date().isoformat()}"


def _prepared(plan: Plan, facts: Mapping[str, Facts]) -> Iterable[tuple[Layout, Facts]]:
    """The layouts of the plan that guests have answered for, with the answers."""
    for layout in plan.layouts:
        said = facts.get(layout.guest, {}).get("prepared")
        prepared = said.get(layout.target) if isinstance(said, Mapping) else None
        if isinstance(prepared, Mapping):
            yield layout, prepared


def _listed(entry: Facts) -> Iterable[tuple[str, str]]:
    """The kept files that the facts of a path list: directory and whose they are. A guest may say anything."""
    for text in entry.get("kept") or ():
        name, _, keep = str(text).partition(" ")
        if name.startswith(PREFIX) and "/" not in name and keep:
            yield name, keep


def _guests(count: int) -> str:
    return f"{count} guest{'s' * (count != 1)}"
