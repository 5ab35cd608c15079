"""What the journal says of the documents beside it, by their digests. Pure but for reading them.

    keeping {file, sha256}   before a document is written, on the disk before its first byte
    kept    {file, sha256}   after it is there

So a document is what the last `kept` says of it, or, when its controller ended in between, what a `keeping` after that says.
Anything else was changed by another hand: a run that goes on with it would put figures of two plans into one table.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from calyx_orch.errors import UsageError

KEEPING, KEPT = "keeping", "kept"
NEEDED = ("plan.json", "inventory.yaml")  # without a word about these a journal is not one of this version

Entry = Mapping[str, Any]  # one line of the journal


def digest(data: bytes) -> str:
    """The SHA-256 of a document, in hex."""
    return hashlib.sha256(data).hexdigest()


def refuse_changed(path: Path, entries: Iterable[Entry]) -> None:
    """Raise UsageError that names every document of the run folder `path` that is not what its journal says."""
    said = _said(entries)
    lines = [f"{name} is not mentioned in the journal" for name in NEEDED if name not in said]
    for name, (last, begun) in said.items():
        there = _digest_of(path / name)
        if there != last and there not in begun:
            was = f"its sha256 was {last[:12]}" if last else "there was none yet"
            lines.append(f"{name} is not what it was ({was}, {f'is {there[:12]}' if there else 'now it is missing'})")
    if lines:
        raise UsageError(
            f"not resumed: what stands was measured by other documents than {shlex.quote(str(path))} holds now:\n  "
            + "\n  ".join(lines)
            + "\nput back what was there, or begin a new run with what was changed; what was measured is kept"
        )


def _said(entries: Iterable[Entry]) -> dict[str, tuple[str, frozenset[str]]]:
    """For each document the digest of the last `kept` (empty: none), and those of each `keeping` since."""
    said: dict[str, tuple[str, frozenset[str]]] = {}
    for entry in entries:
        match entry:
            case {"event": "keeping", "file": str(name), "sha256": str(sha256)}:
                last, begun = said.get(name, ("", frozenset()))
                said[name] = last, begun | {sha256}
            case {"event": "kept", "file": str(name), "sha256": str(sha256)}:
                said[name] = sha256, frozenset()
    return said


def _digest_of(path: Path) -> str:
    """Empty: there is no such file."""
    try:
        return digest(path.read_bytes())
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
