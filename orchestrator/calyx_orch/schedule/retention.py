"""How long nights are kept: `90d raw, 2y summaries`.

    raw        the guests' raw answers (`raw/`) of a run folder: what is needed to look at one round again
    summaries  the whole run folder with its log, and its rows in the store: what histories are made of

Only folders of runs that the schedule itself made are touched, also of those that failed; the baseline of the inventory and the nights
of open incidents stay.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from calyx_orch.errors import UsageError
from calyx_orch.store import archive

UNITS_S = {"d": 86400.0, "w": 7 * 86400.0, "y": 365 * 86400.0}
_PART = re.compile(r"^(\d+)\s*([dwy])\s+(raw|summaries)$")


@dataclass(frozen=True)
class Keep:
    """How long raw answers and summaries are kept, in seconds; None: for good."""

    raw_s: float | None = None
    summaries_s: float | None = None


@dataclass(frozen=True)
class Night:
    """A run of a schedule, by its record in the store."""

    run_id: str
    folder: Path
    started_s: float


def parse(text: str) -> Keep:
    """Read what `--keep` says. Raises UsageError that says how it is written."""
    found: dict[str, float] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        match = _PART.match(part)
        if match is None or match[3] in found:
            raise UsageError(f"--keep {text!r}: write how long, such as '90d raw, 2y summaries' (d, w or y)")
        found[match[3]] = int(match[1]) * UNITS_S[match[2]]
    keep = Keep(found.get("raw"), found.get("summaries"))
    if keep.summaries_s is not None and keep.raw_s is not None and keep.raw_s > keep.summaries_s:
        raise UsageError(
            f"--keep {text!r}: raw answers lie in the folder that goes with the summaries; keep them no longer"
        )
    return keep


def expired(
    nights: Iterable[Night], keep: Keep, now_s: float, spared: frozenset[str]
) -> tuple[list[Night], list[Night]]:
    """Nights whose raw answers go, and nights that go whole."""
    raw, whole = [], []
    for night in nights:
        if night.run_id in spared:
            continue
        age_s = now_s - night.started_s
        if keep.summaries_s is not None and age_s > keep.summaries_s:
            whole.append(night)
        elif keep.raw_s is not None and age_s > keep.raw_s:
            raw.append(night)
    return raw, whole


def is_its_folder(night: Night) -> bool:
    """Whether the folder still is that of the run: nothing else is ever removed."""
    return archive.run_id_in(night.folder) == night.run_id


def remove_raw(night: Night) -> bool:
    """Remove the raw answers of a night, also those of its second measurement; whether there were any. Raises OSError."""
    if not is_its_folder(night):
        return False
    there = [
        path
        for path in (night.folder / "raw", night.folder / "again" / "raw")
        if path.is_dir() and not path.is_symlink()
    ]
    gone = [path for path in there if any(path.iterdir())]
    for path in gone:
        shutil.rmtree(path)
        path.mkdir(mode=0o700)
    return bool(gone)


def remove_whole(night: Night) -> bool:
    """Remove a night's folder, and its log beside it; whether it was there. Raises OSError."""
    if not is_its_folder(night) or night.folder.is_symlink():
        return False
    shutil.rmtree(night.folder)
    night.folder.with_name(f"{night.folder.name}.log").unlink(missing_ok=True)
    return True
