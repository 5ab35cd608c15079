"""A `Field` is a column that knows how to write its value; `rank` says which columns a narrow terminal keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True)
class Field(Generic[Row]):
    """A column of rows: `text` writes the value of a row; `rank` 0 stays however narrow a terminal is."""

    title: str
    text: Callable[[Row], str]
    rank: int = 0
    is_number: bool = True
    explanation: str = ""
