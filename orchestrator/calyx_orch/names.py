"""What a written name stands for: a range `hv[1:2]-vm[01:16]` for 32 names in counting order, a workload's name for its kin.

A range is [1:16] (1 2 .. 16), [01:16] (01 02 .. 16, as wide as the first), [1:9:2] (1 3 5 7 9) or [a:f].
"""

from __future__ import annotations

import itertools
import re
from fnmatch import fnmatchcase

NAMES_MAX = 100_000

_RANGE = re.compile(
    r"\[([0-9]{1,9}):([0-9]{1,9})(?::([0-9]{1,9}))?\]|\[([a-z]):([a-z])\]|\[([A-Z]):([A-Z])\]", re.ASCII
)


def has_range(pattern: str) -> bool:
    """Whether any range is in it."""
    return _RANGE.search(pattern) is not None


def expand(pattern: str) -> tuple[str, ...]:
    """All names of a pattern; a text without ranges is itself. ValueError: backwards, too many, or stray brackets."""
    parts: list[tuple[str, ...]] = []
    end, count = 0, 1
    for match in _RANGE.finditer(pattern):
        parts += [(_literal(pattern, pattern[end : match.start()]),), _values(match)]
        count *= len(parts[-1])
        if count > NAMES_MAX:
            raise ValueError(f"{pattern!r} stands for more than {NAMES_MAX} names")
        end = match.end()
    parts.append((_literal(pattern, pattern[end:]),))
    return tuple("".join(chosen) for chosen in itertools.product(*parts))


def is_workload(name: str, written: str) -> bool:
    """Whether `written` (a name, a glob, or the part in front of a generated suffix) means the workload called `name`."""
    return fnmatchcase(name, written) or name.startswith(f"{written}-")


def _literal(pattern: str, part: str) -> str:
    if "[" in part or "]" in part:
        raise ValueError(f"{pattern!r} has a bracket that is no range: a range is written [01:16] or [a:f]")
    return part


def _values(match: re.Match[str]) -> tuple[str, ...]:
    first, last, step, *letters = match.groups()
    if first is None:
        low, high = (letters[0], letters[1]) if letters[0] is not None else (letters[2], letters[3])
        values = tuple(chr(code) for code in range(ord(low), ord(high) + 1))
    else:
        stride = int(step or 1)
        if stride < 1:
            raise ValueError(f"the range {match[0]} has a step of 0")
        if (int(last) - int(first)) // stride > NAMES_MAX:
            raise ValueError(f"the range {match[0]} stands for more than {NAMES_MAX} names")
        width = len(first) if first.startswith("0") or len(first) == len(last) else 0
        values = tuple(f"{number:0{width}d}" for number in range(int(first), int(last) + 1, stride))
    if not values:
        raise ValueError(f"the range {match[0]} runs backwards")
    return values
