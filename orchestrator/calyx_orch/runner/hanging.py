"""I/O that does not come back, in words while it hangs: by a guest's beat, or by the engine in this process. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calyx_orch.model import NANOSECONDS

OPERATIONS = ("read", "write", "sync")


def of_beat(beat: Mapping[str, Any]) -> str:
    """What hangs by one beat, which is untrusted: the oldest I/O in a sentence without its guest, and how many more. "": nothing."""
    count, named = beat.get("hung_count"), beat.get("hung")
    oldest = named[0] if isinstance(named, list) and named else None
    if type(count) is not int or count < 1 or not isinstance(oldest, Mapping):
        return ""
    op: Any = oldest.get("op")
    numbers: list[Any] = [oldest.get(key) for key in ("offset", "age_ns", "job")]
    if op not in OPERATIONS or not all(type(number) is int and number >= 0 for number in numbers):
        return ""
    return said(count, op, *numbers)


def said(count: int, op: str, offset: int, age_ns: int, job: int) -> str:
    """`read of job 0 at offset 4096 has not come back for 3.2 s, nor have 2 more`; `count` is of all that hang."""
    more = f", nor {'has' if count == 2 else 'have'} {count - 1} more" if count > 1 else ""
    return f"{op} of job {job} at offset {offset} has not come back for {age_ns / NANOSECONDS:.1f} s{more}"
