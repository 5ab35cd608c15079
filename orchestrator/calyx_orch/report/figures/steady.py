"""Steady state, round by round: throughput in the order played, the window of five rounds, and where a burst ended."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from calyx_orch.analysis import steady
from calyx_orch.report.figures import NothingToDraw, palette, panels
from calyx_orch.report.frames import Frame, Load, chosen, records

LINES_MAX = 32  # of one panel: of more guests the first are drawn


def figure(frame: Frame, *, load: Load | None = None, workloads: list[str] | None = None) -> go.Figure:
    """Draw the rounds of the fleet under `load`, or those of each guest where the guests were not one fleet."""
    load = load or frame.main_load
    table = chosen(frame.steady, load=load, workloads=workloads)
    if table.empty or table["rounds"].max() < 2:
        raise NothingToDraw(f"under load {load} nothing was measured in two rounds or more")
    cells, engines = frame.cells_in(table), frame.engines_in(table)
    lines = {
        (cell, engine): _lines([row for row in records(table) if _is_of(row, cell, engine)])
        for cell in cells
        for engine in engines
    }
    titles = [[_title(frame.panel(*cell, load), engine, lines[cell, engine]) for engine in engines] for cell in cells]
    drawing = panels.grid(titles, row_px=230, shared_yaxes=True)
    colours = panels.guest_colours(frame)
    for (cell, engine), rows in lines.items():
        where = {"row": cells.index(cell) + 1, "col": engines.index(engine) + 1}
        for row in rows:
            _draw(drawing, row, colours.get(row["guest"]) or palette.engine(engine, frame.engines), where)
        if rows:
            _mark(drawing, rows[0], where)
    drawing.update_yaxes(rangemode="tozero")
    drawing.update_xaxes(dtick=1 if table["rounds"].max() <= 20 else None)
    drawing.update_layout(showlegend=False)
    panels.bottom_titles(drawing, len(cells), len(engines), "round, as played")
    panels.left_titles(drawing, len(cells), "MB/s")
    return drawing


def _is_of(row: dict[str, Any], cell: tuple[str, str], engine: str) -> bool:
    return (row["workload"], row["target"]) == cell and row["engine"] == engine


def _lines(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fleets' rows, else the guests'."""
    return ([row for row in rows if not row["guest"]] or rows)[:LINES_MAX]


def _title(panel: str, engine: str, rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    verdicts = [row["verdict"] for row in rows]
    said = (
        verdicts[0] if len(rows) == 1 else ", ".join(f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts))
    )
    return f"{panel}: {engine}, {said}"


def _draw(drawing: go.Figure, row: dict[str, Any], colour: str, where: dict[str, int]) -> None:
    """One line through its rounds, and where a burst ended between them."""
    drawing.add_scatter(
        x=list(range(1, len(row["values"]) + 1)),
        y=[value / 1e6 for value in row["values"]],
        mode="lines+markers",
        line={"color": colour, "width": 1.4},
        marker={"size": 7},
        meta=[panels.shown(row["guest"] or row["scope"]), panels.shown(row["verdict"]), panels.shown(row["why"])],
        hovertemplate="%{meta[0]}, round %{x}: %{y:,.4~r} MB/s<br>%{meta[1]}: %{meta[2]}<extra></extra>",
        **where,
    )
    if np.isfinite(row["burst_round"]):
        drawing.add_vline(row["burst_round"] + 0.5, line={"color": colour, "dash": "dot", "width": 1.5}, **where)


def _mark(drawing: go.Figure, row: dict[str, Any], where: dict[str, int]) -> None:
    """The window of the first line: shaded, its allowed range dashed around the mean, its fitted line."""
    if not np.isfinite(row["window_first"]):
        return
    first, last, mean = int(row["window_first"]), int(row["window_last"]), row["mean"] / 1e6
    drawing.add_vrect(first + 0.5, last + 1.5, fillcolor="#F3F5F7", line_width=0, layer="below", **where)
    edges = [first + 0.5, last + 1.5]
    for share in (1 - steady.RANGE_MAX / 2, 1 + steady.RANGE_MAX / 2):
        drawing.add_scatter(
            x=edges,
            y=[mean * share] * 2,
            mode="lines",
            line={"color": palette.MUTED, "dash": "dash", "width": 1},
            hoverinfo="skip",
            **where,
        )
    places = np.arange(first, last + 1)
    slope, level = np.polyfit(places, [value / 1e6 for value in row["values"][first : last + 1]], 1)
    drawing.add_scatter(
        x=[first + 1, last + 1],
        y=[level + slope * first, level + slope * last],
        mode="lines",
        line={"color": palette.INK, "width": 1},
        hoverinfo="skip",
        **where,
    )
