"""What every page shares: one offline HTML file of a header, a verdict, notes, tables, and the figures that a dashboard lists.

    rows --tables--> Table  \
    frame --figures--compact--> JSON  --> template --> FILE.html

`run_page`, `comparison_page` and `history_page` fill a `Page`. Everything that comes from a guest or an inventory is escaped by the
template or by the figures; the content security policy allows nothing but the scripts of this file, by their hashes, so that
what slips through could still not run.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from calyx_orch import __version__, documents
from calyx_orch.errors import Fault, FolderError
from calyx_orch.report import dashboard as dashboards
from calyx_orch.report import facts, figures, wording

SIZE_MAX = 15_000_000  # bytes; browsers and mail take it
DIGITS = 5  # of every number in a figure

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Drawing:
    """A figure on the page: number of its JSON, or the reason why there is nothing to draw."""

    title: str
    text: str
    number: int
    height_px: int
    reason: str = ""


@dataclass(frozen=True)
class Page:
    """All that a page says, as printable text; `drawings` and `plots` are those of `draw`.

    `about` names in the browser's title which run it is of; `source` says at the foot where its figures are kept; `notes` stand
    under `notes_title` below the verdict. `is_short`: the figures are of a run too short for true ones.
    """

    title: str
    about: str
    verdict: str
    header: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    tables: tuple[facts.Table, ...]
    drawings: tuple[Drawing, ...]
    plots: tuple[str, ...]
    source: str
    notes_title: str = "What is doubtful"
    is_short: bool = False


def write(page: Page, out: Path) -> Path:
    """Write the page to `out` and give that path.

    It is whole or not there: it is written beside `out` and renamed; FolderError where that fails. It stays below 15 MB;
    Fault otherwise.
    """
    html = _render(page)
    if len(html) > SIZE_MAX:
        raise Fault(
            f"the report would have {len(html) / 1e6:.1f} MB, more than {SIZE_MAX / 1e6:.0f}: list fewer figures"
        )
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        beside.touch(0o600)  # figures of a fleet are its owner's to share
        beside.write_bytes(html)
        beside.replace(out)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise FolderError(f"cannot write the report {out}: {error.strerror or error}") from error
    return out


def draw(
    frame: Any, board: dashboards.Dashboard, workloads: Sequence[str]
) -> tuple[tuple[Drawing, ...], tuple[str, ...]]:
    """Draw the figures of a dashboard; gives what the page says of each, and the JSON of those that drew something.

    `workloads` are those that the frame knows: a figure that asks for another says so in its place.
    """
    drawings: list[Drawing] = []
    plots: list[str] = []
    for entry in board.entries:
        title, text = wording.printable(entry.title), wording.printable(entry.text)
        unknown = _unknown_workloads(workloads, entry)
        if unknown:
            drawings.append(Drawing(title, text, -1, 0, wording.printable(unknown)))
            continue
        try:
            figure = figures.load(entry.figure, board.kind)(frame, **entry.options)
        except figures.NothingToDraw as nothing:
            drawings.append(Drawing(title, text, -1, 0, wording.printable(str(nothing))))
            continue
        drawings.append(Drawing(title, text, len(plots), int(figure.layout.height or 450)))
        traces = [trace.to_plotly_json() for trace in figure.data]
        plots.append(compact({"data": traces, "layout": figure.layout.to_plotly_json()}))
    return tuple(drawings), tuple(plots)


def _unknown_workloads(known: Sequence[str], entry: dashboards.Entry) -> str:
    """Say which workloads a figure asks for that are not there; nothing when all are."""
    missing = [name for name in entry.options.get("workloads") or () if name not in known]
    if not missing:
        return ""
    told = ", ".join(f"'{name}'{documents.suggestion(name, known)}" for name in missing)
    return f"the run has no workload {told}; it has {', '.join(known)}"


def compact(value: Any) -> str:
    """Write strict JSON for a script element: floats with five digits, NaN and infinity as null, `<` `>` `&` escaped."""
    text = json.dumps(_plain(value), separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.translate(
        {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(child) for key, child in value.items()}
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        return rounded(value)
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, Iterable):
        return [_plain(child) for child in value]
    raise TypeError(f"{type(value).__name__} in a figure")


def rounded(value: float) -> float | int | None:
    """Round to five significant digits; None for what is no number."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _render(page: Page) -> bytes:
    plots = page.plots
    plotly = figures.javascript() if plots else ""  # five megabytes that draw nothing
    boot = (_TEMPLATES / "boot.js").read_text(encoding="utf-8") if plots else ""
    if "</script" in plotly.lower() or "<!--" in plotly:
        plotly = plotly.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    table = environment.get_template("table.html.j2")
    text = environment.get_template("page.html.j2").render(
        page=page,
        with_code=_with_code,
        version=__version__,
        csp=policy(plotly, boot),
        style=Markup((_TEMPLATES / "page.css").read_text(encoding="utf-8")),
        show_table=lambda one: Markup(table.render(table=one, short=page.is_short)),
        plots=Markup("[" + ",".join(plots) + "]"),
        plotly=Markup(plotly),
        boot=Markup(boot),
    )
    return text.encode("utf-8", errors="backslashreplace")


def _with_code(text: str) -> Markup:
    """Escape a sentence, and set what it holds in backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(p) if n % 2 else escape(p) for n, p in enumerate(parts))


def policy(*scripts: str) -> str:
    """Make the content security policy that lets only `scripts` run and nothing load from elsewhere.

    Plotly sets style rules as it draws and hands images out as data and blob, hence these three.
    """
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
