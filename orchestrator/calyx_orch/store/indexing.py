"""From a run folder into the index: read, summarise, store."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from calyx_orch.analysis import rounds, summary, verdict
from calyx_orch.analysis.scopes import scope_rows
from calyx_orch.errors import UsageError
from calyx_orch.model import RunRecord
from calyx_orch.store import archive
from calyx_orch.store.database import Store


def put(store: Store, record: RunRecord) -> None:
    """Index a run that is in memory. Raises UsageError when its figures cannot be kept: then they are damaged."""
    try:
        played = rounds.played(record)  # looked at once for both
        told = verdict.sentence(record, summary.summarise(record, played))
        store.index(record, scope_rows(record, played), sentence=told)
    except (ArithmeticError, ValueError, struct.error) as error:
        raise UsageError(f"{record.folder} holds figures that cannot be: {error}") from error


def folders(paths: tuple[Path, ...]) -> Iterator[Path]:
    """Every run folder among `paths` and one level below them, sorted. Raises UsageError for a path that holds none."""
    for path in paths:
        if (path / "run.json").is_file():
            yield path
            continue
        below = sorted(one.parent for one in path.glob("*/run.json")) if path.is_dir() else []
        if not below:
            raise UsageError(f"{path} is no run folder, and there is none right below it")
        yield from below


def run_of(store: Store, name: str) -> Path:
    """The folder of a run that is named by its path, its id or the beginning of it, or `latest`.

    Raises UsageError when neither names a run, and when the folder is no longer where it was indexed or holds another run by now.
    """
    if (Path(name) / "run.json").is_file():
        return Path(name)
    row = store.find(name)
    folder = Path(row.folder)
    if not (folder / "run.json").is_file():
        raise UsageError(
            f"the folder of run {row.run_id} is gone: {folder}; where it was moved, `calyx-orch index DIR` finds it again"
        )
    holder = archive.run_id_in(folder)
    if holder not in (None, row.run_id):  # of a damaged one the reader says what is wrong with it
        raise UsageError(
            f"the folder of run {row.run_id} now holds run {holder}: {folder}; the figures of {row.run_id} are still in the store "
            f"(`calyx-orch show {row.run_id}`), but not what was measured: where its folder was moved, `calyx-orch index DIR` finds it "
            f"again; else name {holder}, and make a run that is there the baseline (`calyx-orch baseline set RUN`) where this one is"
        )
    return folder


def id_of(store: Store, name: str) -> str:
    """The id of a run that is named by its path, its id or the beginning of it, or `latest`; it has to be in the store."""
    folder = Path(name)
    return store.find(archive.read(folder).run_id if (folder / "run.json").is_file() else name).run_id


def read(store: Store, name: str) -> RunRecord:
    """The run that `run_of` finds."""
    return archive.read(run_of(store, name))
