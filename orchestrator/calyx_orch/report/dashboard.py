"""A page as data: the list of figures with their options, read from YAML and checked against the figures themselves."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pydantic

from calyx_orch import documents
from calyx_orch.errors import UsageError
from calyx_orch.report import figures

_FOLDER = Path(__file__).parent / "dashboards"
FLEET = _FOLDER / "fleet.yaml"
PACKAGED = {
    figures.RUN: FLEET,
    figures.COMPARISON: _FOLDER / "compare.yaml",
    figures.HISTORY: _FOLDER / "history.yaml",
    figures.NIGHTLY: _FOLDER / "nightly.yaml",
}


@dataclass(frozen=True)
class Entry:
    """One figure of a page. `title` and `text` are shown above and below it."""

    figure: str
    title: str
    text: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Dashboard:
    """A page: its title, its figures, top down, and which kind of page they are of."""

    title: str
    entries: tuple[Entry, ...]
    kind: str = figures.RUN


class _Entry(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    figure: str
    title: str | None = None
    text: str | None = None
    options: dict[str, Any] | None = None


class _Page(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    title: str = "calyx-orch report"
    figures: list[_Entry]


def read(path: Path | None, kind: str = figures.RUN) -> Dashboard:
    """Read a dashboard file (None: that of the kind). Raises UsageError with every problem as `file:line:column: sentence`."""
    path = path or PACKAGED[kind]
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the dashboard {path} cannot be read: {error}") from error
    return parse(text, str(path), kind)


def parse(text: str, source: str, kind: str = figures.RUN) -> Dashboard:
    """Parse the text of a dashboard. Raises UsageError as `read` does."""
    document = documents.load(text, source)
    page: _Page | None = None
    entries: list[Entry] = []
    if document.readable:
        page, cut = documents.validate(document, _Page)
        if page is not None and not cut:
            entries = [_checked(document, number, entry, kind) for number, entry in enumerate(page.figures)]
    if document.problems:
        raise UsageError("\n".join(str(problem) for problem in document.problems))
    if page is None or not entries:
        raise UsageError(f"{source}: no figure is listed under `figures:`")
    return Dashboard(page.title, tuple(entries), kind)


def _checked(document: documents.Document, number: int, entry: _Entry, kind: str) -> Entry:
    """Check the figure's name and the options against its signature; problems go to `document`."""
    where: tuple[str | int, ...] = ("figures", number)
    options: dict[str, Any] = {}
    known = figures.names(kind)
    if entry.figure not in known:
        hint = documents.suggestion(entry.figure, known)
        document.problems.append(
            document.problem((*where, "figure"), f"unknown figure '{entry.figure}'{hint}; there are {', '.join(known)}")
        )
        return Entry(entry.figure, entry.figure)
    hints = typing.get_type_hints(figures.load(entry.figure, kind))
    known_options = figures.options_of(entry.figure, kind)
    for name, value in (entry.options or {}).items():
        place = (*where, "options", name)
        if name not in known_options:
            hint = documents.suggestion(name, known_options)
            text = f"unknown option '{name}' of {entry.figure}{hint}; it has {', '.join(known_options)}"
            document.problems.append(document.problem(place, text, at_key=True))
            continue
        try:
            options[name] = pydantic.TypeAdapter(hints[name]).validate_python(value)
        except pydantic.ValidationError as error:
            reason = "; ".join(_lowered(item["msg"]) for item in error.errors(include_url=False))
            document.problems.append(document.problem(place, f"option '{name}' of {entry.figure}: {reason}"))
    title = entry.title or figures.title_of(entry.figure, kind)
    return Entry(entry.figure, title, entry.text or "", options)


def _lowered(message: str) -> str:
    """Begin with a small letter; what is quoted in it stays as one has to write it."""
    return message[:1].lower() + message[1:]
