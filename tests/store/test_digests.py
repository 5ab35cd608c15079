"""What the journal says of the documents beside it: what another hand changed is named, what a kill left is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calyx_orch.errors import UsageError
from calyx_orch.store import digests

OLD, NEW, OTHER = b"old", b"new", b"other"


def entry(event: str, data: bytes, name: str = "plan.json") -> dict[str, Any]:
    return {"event": event, "file": name, "sha256": digests.digest(data)}


INVENTORY = [entry("keeping", OLD, "inventory.yaml"), entry("kept", OLD, "inventory.yaml")]
FIRST = [entry("keeping", OLD), entry("kept", OLD)]
FOUND = [{**one, "file": "found.json"} for one in FIRST]


def check(tmp_path: Path, entries: list[dict[str, Any]], plan: bytes | None) -> None:
    (tmp_path / "inventory.yaml").write_bytes(OLD)
    if plan is not None:
        (tmp_path / "plan.json").write_bytes(plan)
    digests.refuse_changed(tmp_path, [*INVENTORY, *entries])


@pytest.mark.parametrize(
    ("entries", "plan"),
    [
        (FIRST, OLD),
        ([*FIRST, {"event": "reopened"}], OLD),
        ([*FIRST, entry("keeping", NEW)], OLD),  # killed before the document was written
        ([*FIRST, entry("keeping", NEW)], NEW),  # and after it
        ([*FIRST, entry("keeping", OTHER), {"event": "cleaned"}, {"event": "reopened"}, entry("keeping", NEW)], OLD),
        ([*FIRST, entry("keeping", NEW), entry("kept", NEW)], NEW),
    ],
)
def test_what_a_kill_leaves_is_what_the_journal_says(
    entries: list[dict[str, Any]], plan: bytes, tmp_path: Path
) -> None:
    check(tmp_path, entries, plan)


@pytest.mark.parametrize(
    ("entries", "plan", "says"),
    [
        (FIRST, NEW, r"plan\.json is not what it was \(its sha256 was [0-9a-f]{12}, is [0-9a-f]{12}\)"),
        (FIRST, None, r"plan\.json is not what it was \(.*now it is missing\)"),
        ([*FIRST, entry("keeping", NEW), entry("kept", NEW)], OLD, r"plan\.json is not what it was"),
        ([*FIRST, *FOUND], OLD, r"found\.json is not what it was"),
        ([{"event": "round"}], OLD, r"plan\.json is not mentioned in the journal"),
    ],
)
def test_what_another_hand_changed_is_named(
    entries: list[dict[str, Any]], plan: bytes | None, says: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=says):
        check(tmp_path, entries, plan)
