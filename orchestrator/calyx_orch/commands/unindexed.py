"""Run folders that the store does not have: of runs that were killed or still go on, and of runs that were kept out of it.

They are looked for beside the folders of the runs that it has, and where runs are made when nobody says.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from calyx_orch.commands import naming
from calyx_orch.errors import CalyxError
from calyx_orch.model import RunRecord
from calyx_orch.store import archive
from calyx_orch.store.database import RunRow, row_of

RUNNING = "running"
LOOKED_AT_MOST = 200  # folders among which a run is sought by its id: each is read as a whole


def beside(known: Sequence[RunRow], *, most: int | None = None) -> tuple[RunRow, ...]:
    """The runs that lie beside these and are none of them, the newest first, `most` at most; `sentence` says what to do with each."""
    ids, places = {row.run_id for row in known}, {row.folder: row.run_id for row in known}
    others = (one for one in _folders(known) if str(one) not in places or archive.run_id_in(one) != places[str(one)])
    folders = sorted(others, key=_written_s, reverse=True)
    found = (row for folder in folders[:most] if (row := _row(folder)) is not None)
    return tuple(sorted((row for row in found if row.run_id not in ids), key=lambda row: -row.started_s))


def named(run: str, known: Sequence[RunRow]) -> tuple[RunRow, ...]:
    """The runs that are none of `known` and are named so: by their folder, their id or the beginning of it."""
    if not (Path(run) / "run.json").is_file():
        return tuple(row for row in beside(known, most=LOOKED_AT_MOST) if row.run_id.startswith(run))
    row = _row(Path(run))
    return (row,) if row is not None and all(one.run_id != row.run_id for one in known) else ()


def _folders(known: Sequence[RunRow]) -> Iterator[Path]:
    for parent in dict.fromkeys((naming.RUNS.resolve(), *(Path(row.folder).parent for row in known))):
        yield from (one.parent for one in parent.glob("*/run.json"))


def _written_s(folder: Path) -> float:
    try:
        return (folder / "run.json").stat().st_mtime
    except OSError:  # gone meanwhile
        return 0.0


def _row(folder: Path) -> RunRow | None:
    """The run as the store would have it; None when it cannot be read."""
    try:
        record = archive.read(folder)
    except CalyxError:
        return None
    if archive.is_going_on(folder):
        record = replace(record, status=RUNNING)
    return row_of(record, sentence=_next(record))


def _next(record: RunRecord) -> str:
    path = shlex.quote(record.folder)
    if record.status == RUNNING:
        return "its controller is at work, and puts it there when it ends"
    put = f"`calyx-orch index {path}` puts it there"
    if record.status != "interrupted":
        return put
    return f"it was interrupted; `calyx-orch run --resume {path}` goes on with it, {put} as it is"
