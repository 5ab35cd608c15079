"""What a clean found on a guest that runs had left there, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Leftover:
    """A directory that a dead agent left, by the record in it. `kind` is files or work; `since_s` is wall clock, 0: not known.

    `keep` names whose kept files it holds; empty: none are kept there.
    """

    path: str
    kind: str
    run: str
    by: str
    since_s: int
    files: int
    bytes: int
    keep: str = ""


@dataclass(frozen=True)
class Untouched:
    """What stays: where, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class Freed:
    """Bytes that were removed below a target; `discard` says what gives them back to a thin disk: see docs/protocol.md."""

    path: str
    mount: str
    bytes: int
    discard: str | None


@dataclass(frozen=True)
class Cleaned:
    """One guest after a clean. `trouble`: it could not be looked at to the end, and why; the rest is what is known all the same.

    `removed` are those of `found` that are gone (or would be: `dry_run`), `kept` what is not ours to remove now, `kept_files` what
    stays for later runs since nobody asked for its removal, `failed` what should be gone and is not. `agents` are executables of
    other versions, path and bytes. `more`: not all that is there was told.
    """

    guest: str
    dry_run: bool
    trouble: str = ""
    removed: tuple[Leftover, ...] = ()
    kept: tuple[Untouched, ...] = ()
    kept_files: tuple[Leftover, ...] = ()
    failed: tuple[Untouched, ...] = ()
    freed: tuple[Freed, ...] = ()
    agents: tuple[tuple[str, int], ...] = ()
    more: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether all is gone that should be."""
        return not self.trouble and not self.failed
