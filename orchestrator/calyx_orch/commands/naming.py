"""How a person names what commands are about: runs, inventories of the store, and words of which there are a few; alike in every verb."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from calyx_orch import documents
from calyx_orch.errors import UsageError

if TYPE_CHECKING:
    from calyx_orch.store.database import RunRow, Store


RUNS = Path("calyx-runs")  # where run folders are made when nobody says


def folders(runs: Sequence[str], store: str | None) -> tuple[Path, ...]:
    """The folder of each run, named by its path, its id or the beginning of it, or `latest`.

    The store is opened only for a name that is no path. Raises UsageError for one that names none.
    """
    if all(_is_path(name) for name in runs):
        return tuple(map(Path, runs))
    from calyx_orch.store import database

    try:
        opened = database.open_store(store, create=False)
    except UsageError as error:
        return tuple(Path(name) if _is_path(name) else _beside(name, (), _nowhere(name, error)) for name in runs)
    with closing(opened):
        return tuple(Path(name) if _is_path(name) else _folder(opened, name) for name in runs)


def store_of(run: str, store: str | None) -> Store:
    """The open store in which a run is sought. Raises UsageError when there is none, which of a run beside it says what to do."""
    from calyx_orch.store import database

    try:
        return database.open_store(store, create=False)
    except UsageError:
        _refuse_beside(run, ())
        raise


def id_of(opened: Store, run: str) -> str:
    """The id of a run of the store, named as for `folders`. Raises UsageError, which of a run beside the store says what to do."""
    from calyx_orch.store import indexing

    try:
        return indexing.id_of(opened, run)
    except UsageError:
        if not is_begun(run, known := opened.runs()):
            _refuse_beside(run, known)
        raise


def is_begun(run: str, known: Sequence[RunRow]) -> bool:
    """Whether the id of one of these runs begins so."""
    return any(row.run_id.startswith(run) for row in known)


def taken(run_id: str, holder: str | None) -> str:
    """What there is to say of a run whose folder holds the run `holder` by now; nothing where that is none, as on another machine."""
    return f", folder taken over by run {holder}" if holder not in (None, run_id) else ""


def inventory_key(written: str) -> str:
    """The inventory by which the store knows its runs: of a file that is there its whole path, else what is written."""
    return str(Path(written).absolute()) if Path(written).exists() else written


def known(what: str, word: str, choices: Iterable[str]) -> str:
    """The word. Raises UsageError when it is none of the choices."""
    choices = tuple(choices)
    if word not in choices:
        raise UsageError(
            f"there is no {what} {word!r}{documents.suggestion(word, choices)}: choose {', '.join(choices)}"
        )
    return word


def _folder(opened: Store, name: str) -> Path:
    from calyx_orch.store import indexing

    known = opened.runs()
    if is_begun(name, known):  # what is wrong with such a name or its folder leads to no other run
        return indexing.run_of(opened, name)
    try:
        return indexing.run_of(opened, name)
    except UsageError as error:
        return _beside(name, known, error)


def _beside(name: str, known: Sequence[RunRow], otherwise: UsageError) -> Path:
    """The folder of the run beside these that is named so. Raises `otherwise` when there is not one."""
    from calyx_orch.commands import unindexed

    found = unindexed.named(name, known)
    if len(found) != 1:
        raise otherwise
    return Path(found[0].folder)


def _refuse_beside(run: str, known: Sequence[RunRow]) -> None:
    from calyx_orch.commands import unindexed

    for one in unindexed.named(run, known):
        raise UsageError(f"run {one.run_id} is not in the store: {one.sentence}") from None


def _nowhere(name: str, error: UsageError) -> UsageError:
    return UsageError(f"{name!r} is no directory here, and {error}")


def _is_path(name: str) -> bool:
    return "/" in name or Path(name).is_dir()
