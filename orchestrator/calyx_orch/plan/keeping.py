"""Files that are kept from run to run: what may not be written to them, and where nothing can be kept."""

from __future__ import annotations

from collections.abc import Sequence

from calyx_orch.errors import UsageError
from calyx_orch.model import Guest, Layout, Target, Workload


def check(target: Target, users: Sequence[Workload]) -> None:
    """Raise UsageError for a workload that would leave other data than a layout does: the next run would read it."""
    shrinking = [one.name for one in users if one.buffer_compress_percentage or one.dedupe_percentage]
    if shrinking and target.keep_files and not target.device:
        raise UsageError(
            f"workload '{shrinking[0]}' writes data that can be compressed or deduplicated to target '{target.name}', whose files are "
            "kept: the next run would read it; give it a target of its own (targets:), or say keep_files: false there"
        )


def notes(layouts: Sequence[Layout], guests: Sequence[Guest]) -> tuple[str, ...]:
    """Where `keep_files` is asked for and cannot hold: one sentence a target."""
    used = {(one.guest, one.target) for one in layouts if one.device}
    raw = {one.name for guest in guests for one in guest.targets if one.keep_files and (guest.name, one.name) in used}
    return tuple(
        f"keep_files does not hold for target '{target}', a raw device: it has no place for a record of what was left on it, so its "
        "first bytes are written anew by each run"
        for target in sorted(raw)
    )
