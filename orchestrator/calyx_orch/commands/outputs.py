"""Where a page, an export or a JUnit file may be written: not over what it is made of, nor over what is something else."""

from __future__ import annotations

from pathlib import Path

from calyx_orch.errors import UsageError

OF_A_RUN = frozenset(
    {"run.json", "plan.json", "facts.json", "found.json", "inventory.yaml", "journal.jsonl", "measurements.jsonl"}
)
BEGINS = {"page": b"<!doctype html", "JUnit file": b"<?xml"}


def checked(out: Path, option: str, what: str = "") -> Path:
    """The file, when it may be written.

    Raises UsageError for a document of a run folder, which would be lost with its run, where the file is there and is not `what`, and
    where there is no directory for it.
    """
    path = out.resolve()
    for folder in path.parents:
        if (folder / "run.json").is_file() and (path.parent != folder or path.name in OF_A_RUN):
            raise UsageError(
                f"{option} {out}: it belongs to the run in {folder}, which would be lost: name another file"
            )
    if not path.parent.is_dir():
        raise UsageError(f"{option} {out}: there is no directory {path.parent}")
    begins = BEGINS.get(what, b"")
    if begins and _begins_otherwise(path, begins):
        raise UsageError(f"{option} {out}: it is there and is no {what}: name another file, or remove it")
    return out


def _begins_otherwise(path: Path, begins: bytes) -> bool:
    if not path.is_file():  # nor is a terminal or a pipe read from
        return False
    try:
        with path.open("rb") as file:
            head = file.read(len(begins))
    except OSError:  # the writing will say why
        return False
    return bool(head) and head.lower() != begins
