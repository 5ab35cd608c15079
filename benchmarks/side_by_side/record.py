"""The JSON file of a benchmark: written after every turn of all cells, and gone on with where it ended.

So the full run can be made in parts: some cells today, the others tonight, and what was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from side_by_side.cells import Samples
from side_by_side.goals import Figure, Goal
from side_by_side.guest import BenchGuest
from side_by_side.pairs import Estimate


class RecordError(Exception):
    """Why a file cannot be gone on with, as a sentence."""


@dataclass
class Earlier:
    """What an earlier part has measured. `choice`: samples that only chose what is compared."""

    samples: Samples = field(default_factory=Samples)
    choice: Samples = field(default_factory=Samples)
    counted: list[Figure] = field(default_factory=list)


def read(path: Path, conditions: Mapping[str, Any]) -> Earlier:
    """The samples and the counted figures of an earlier part; none where there is no file yet.

    Raises RecordError for what is no such file, and where it was measured under other conditions.
    """
    if not path.exists():
        return Earlier()
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        then = dict(document["conditions"])
        found = Earlier(
            Samples.of_document(document["samples"]),
            Samples.of_document(document.get("choice", {})),
            [_figure(entry) for entry in document.get("counted", [])],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} is not the result of such a run ({error}): name another file for --json") from None
    other = [
        f"{key} {then.get(key)}, now {value}" for key, value in conditions.items() if then.get(key) != _plain(value)
    ]
    if other:
        raise RecordError(f"{path} was measured with {'; '.join(other)}: name another file for --json")
    return found


def conditions(options: argparse.Namespace, guest: BenchGuest, agent_sha256: str, **more: Any) -> dict[str, Any]:
    """What must be the same in all parts of one result."""
    return {
        "agent": agent_sha256,
        "fio": str(guest.session.fio.get("version")),
        "kernel": platform.release(),
        "seconds": options.seconds,
        "size_mib": options.size_mib,
        "seed": options.seed,
        "directory": str(options.directory),
        **more,
    }


def write(path: Path, document: Mapping[str, Any]) -> None:
    """The whole document at once: a reader never finds half of it, and an end in mid-write costs nothing."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8")
    temporary.replace(path)


def counted_document(figures: list[Figure]) -> list[dict[str, Any]]:
    """Counted figures as `read` takes them; those that could not be counted are left out, so that they are tried again."""
    return [asdict(figure) for figure in figures if figure.estimate is not None]


def _figure(entry: Mapping[str, Any]) -> Figure:
    goal, estimate = entry["goal"], entry["estimate"]
    return Figure(
        entry["cell"], entry["name"], Estimate(**estimate), None if goal is None else Goal(**goal), entry["reason"],
        entry["unit"],
    )  # fmt: skip


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))
