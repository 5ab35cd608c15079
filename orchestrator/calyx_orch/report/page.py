"""The report as one offline HTML file: header, verdict, doubts, tables, and the figures that a dashboard lists.

    RunRecord + Summary --tables--> Table  \
                        --frames--> Frame --> figures --compact--> JSON  --> template --> report.html

Everything that comes from a guest or an inventory is escaped by the template or by the figures; the content security policy
allows nothing but the scripts of this file, by their hashes, so that what slips through could still not run.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from calyx_orch import __version__, documents
from calyx_orch.analysis import verdict
from calyx_orch.analysis.summary import Summary
from calyx_orch.errors import Fault, FolderError
from calyx_orch.model import RunRecord
from calyx_orch.report import dashboard as dashboards
from calyx_orch.report import figures, tables, wording

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
class _Page:
    title: str
    run_id: str
    folder: str
    verdict: Markup
    short: bool
    header: tuple[tuple[str, str], ...]
    doubts: tuple[str, ...]
    tables: tuple[tables.Table, ...]
    drawings: tuple[Drawing, ...]


def write(record: RunRecord, summary: Summary, *, out: Path, dashboard: Path | None = None) -> Path:
    """Write the report of a run to `out` and give that path. Raises UsageError for a faulty dashboard.

    The page is whole or not there: it is written beside `out` and renamed; FolderError where that fails. It stays below 15 MB;
    Fault otherwise.
    """
    board = dashboards.read(dashboard)
    drawings, plots = draw(record, summary, board)
    page = _Page(
        title=wording.printable(board.title),
        run_id=wording.printable(record.run_id),
        folder=wording.printable(record.folder),
        verdict=_with_code(wording.printable(verdict.sentence(record, summary, on_page=True))),
        short=tables.is_short(record),
        header=tables.header(record),
        doubts=tuple(dict.fromkeys((*tables.doubts(record, summary), *map(wording.printable, record.plan.notes)))),
        tables=tables.of_page(record, summary),
        drawings=drawings,
    )
    html = _render(page, plots)
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
        raise FolderError(
            f"cannot write the report {out}: {error.strerror or error}; `calyx-orch report RUN --out FILE` draws it elsewhere"
        ) from error
    return out


def draw(record: RunRecord, summary: Summary, board: dashboards.Dashboard) -> tuple[tuple[Drawing, ...], list[str]]:
    """Draw the figures of a dashboard; gives what the page says of each, and the JSON of those that drew something.

    A run in which nothing was measured has none.
    """
    from calyx_orch.report import frames

    frame = frames.frame_of(record, summary)
    drawings: list[Drawing] = []
    plots: list[str] = []
    if not tables.is_measured(summary):
        return (), []
    for entry in board.entries:
        title, text = wording.printable(entry.title), wording.printable(entry.text)
        unknown = _unknown_workloads(record, entry)
        if unknown:
            drawings.append(Drawing(title, text, -1, 0, wording.printable(unknown)))
            continue
        try:
            figure = figures.load(entry.figure)(frame, **entry.options)
        except figures.NothingToDraw as nothing:
            drawings.append(Drawing(title, text, -1, 0, wording.printable(str(nothing))))
            continue
        drawings.append(Drawing(title, text, len(plots), int(figure.layout.height or 450)))
        traces = [trace.to_plotly_json() for trace in figure.data]
        plots.append(compact({"data": traces, "layout": figure.layout.to_plotly_json()}))
    return tuple(drawings), plots


def _unknown_workloads(record: RunRecord, entry: dashboards.Entry) -> str:
    """Say which workloads a figure asks for that the run does not have; nothing when it has them all."""
    known = list(dict.fromkeys(one.workload.name for one in record.plan.measured))
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


def _render(page: _Page, plots: list[str]) -> bytes:
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
        version=__version__,
        csp=policy(plotly, boot),
        style=Markup((_TEMPLATES / "page.css").read_text(encoding="utf-8")),
        show_table=lambda one: Markup(table.render(table=one, short=page.short)),
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
