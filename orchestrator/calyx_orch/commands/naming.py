"""How a person names a run: by its folder, its id or the beginning of it, or `latest`; the same in every verb."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def folders(runs: Sequence[str], store: str | None) -> tuple[Path, ...]:
    """The folder of each run. The store is opened only for a name that is no path. Raises UsageError for one that names none."""
    if all(_is_path(name) for name in runs):
        return tuple(map(Path, runs))
    from calyx_orch.store import database, indexing

    opened = database.open_store(store, create=False)
    try:
        return tuple(Path(name) if _is_path(name) else indexing.run_of(opened, name) for name in runs)
    finally:
        opened.close()


def _is_path(name: str) -> bool:
    return "/" in name or Path(name).is_dir()
