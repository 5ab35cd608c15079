"""A `Field` is a column that knows how to write its value; `rank` says which columns a narrow terminal keeps. And how rows are ordered."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True)
class Field(Generic[Row]):
    """A column of rows: `text` writes the value of a row; `rank` 0 stays however narrow a terminal is."""

    title: str
    text: Callable[[Row], str]
    rank: int = 0
    is_number: bool = True
    explanation: str = ""


def named(*titles: str) -> tuple[Field[Any], ...]:
    """Columns of text that are called what their rows call it: `workload`, `target`, `load` ..."""
    return tuple(Field(title, operator.attrgetter(title), is_number=False) for title in titles)


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Put the rows of a workload, target and load together, in them those of a guest, and in them calyx before fio."""
    of: Callable[[Any], tuple[str, ...]] = operator.attrgetter("workload", "target", "load")
    guests = {name: place for place, name in enumerate(dict.fromkeys(getattr(row, "guest", "") for row in rows))}
    cells = {cell: place for place, cell in enumerate(dict.fromkeys(map(of, rows)))}

    def place(row: Any) -> tuple[int, int, bool, str]:
        return cells[of(row)], guests[getattr(row, "guest", "")], row.engine != "calyx", row.engine

    return sorted(rows, key=place)
