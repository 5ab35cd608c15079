"""fio's interval logs, line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from calyx_orch.errors import FormatError

_LOG_NUMBER = re.compile(r"-?[0-9]{1,18}\Z")


@dataclass(frozen=True)
class LogLine:
    """One line of a bandwidth (KiB/s) or IOPS log: `end_ms` since the window's start, direction 0 read, 1 write."""

    end_ms: int
    value: int
    direction: int


def parse_log(text: str, name: str) -> tuple[LogLine, ...]:
    """The lines of one of fio's logs. Columns beyond the fourth are ignored; FormatError names a line that is none."""
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        fields = [part.strip() for part in line.split(",")]
        if len(fields) < 4:
            raise FormatError(f"{name}:{number}: {len(fields)} columns where a log of fio has at least 4")
        if not all(_LOG_NUMBER.match(part) for part in fields[:3]):
            raise FormatError(f"{name}:{number}: {line[:80]!r} is no line of a log of fio")
        lines.append(LogLine(int(fields[0]), int(fields[1]), int(fields[2])))
    return tuple(lines)
