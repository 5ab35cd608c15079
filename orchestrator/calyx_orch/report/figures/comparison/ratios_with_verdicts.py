"""Ratios with intervals and verdicts: each side divided by the reference, a panel per workload, a line a metric and side."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from calyx_orch.analysis.comparison import BETTER, NO_DIFFERENCE, NOT_ENOUGH, OTHER_LOAD, WORSE
from calyx_orch.report import wording
from calyx_orch.report.comparison_frame import ComparisonFrame, of_cell, only
from calyx_orch.report.figures import NothingToDraw, palette, panels
from calyx_orch.report.frames import records

MARKS = {  # colour and shape, so that either tells
    BETTER: ("#0072B2", "triangle-up"),
    WORSE: ("#D55E00", "triangle-down"),
    NO_DIFFERENCE: ("#5B6673", "circle"),
    OTHER_LOAD: ("#8A7A00", "diamond-open"),
    NOT_ENOUGH: ("#9AA3AD", "circle-open"),
}
MAIN = ("throughput", "P99", "CPU per I/O")
LINES_MAX = 40  # of a panel; beyond it only the main metrics are drawn unless others are asked for
LINE_PX, PANEL_PX_MIN = 21, 90


def figure(
    frame: ComparisonFrame, *, workloads: list[str] | None = None, metrics: list[str] | None = None
) -> go.Figure:
    """Draw side / reference of `metrics` (all, or the main ones where that were too many lines)."""
    table = only(frame.rows, workloads=workloads, metrics=metrics)
    table = table if table.empty else table[table["ratio"].notna()]
    if table.empty:
        raise NothingToDraw("nothing was measured on both sides")
    if metrics is None and max(len(of_cell(table, cell)) for cell in frame.cells_in(table)) > LINES_MAX:
        table = only(table, workloads=None, metrics=MAIN)
    cells = frame.cells_in(table)
    lines = {cell: _lines(frame, of_cell(table, cell)) for cell in cells}
    longest = max(map(len, lines.values()))
    drawing = panels.grid(
        [[frame.panel(cell)] for cell in cells], row_px=max(PANEL_PX_MIN, LINE_PX * longest + 20), gap_px=64
    )
    several = len({line["engine"] for line in records(table)}) > 1
    said: set[str] = set()
    for row, cell in enumerate(cells, 1):
        for at, line in enumerate(lines[cell]):
            colour, symbol = MARKS[line["verdict"]]
            drawing.add_scatter(
                x=[line["ratio"]],
                y=[-at],
                error_x=_interval(line, colour),
                mode="markers",
                cliponaxis=False,
                marker={"color": colour, "symbol": symbol, "size": 10, "line": {"width": 1.4, "color": colour}},
                text=[_text(line, frame.sides[0])],
                hovertemplate="%{text}<extra></extra>",
                name=line["verdict"],
                legendgroup=line["verdict"],
                showlegend=line["verdict"] not in said,
                row=row,
                col=1,
            )
            said.add(line["verdict"])
        part = of_cell(table, cell)
        drawing.update_xaxes(**panels.ratio_axis([*part["ratio"], *part["low"], *part["high"]]), row=row, col=1)
        drawing.update_yaxes(
            tickmode="array",
            tickvals=[-at for at in range(len(lines[cell]))],
            ticktext=[panels.shown(_name(frame, line, several)) for line in lines[cell]],
            range=[-len(lines[cell]) + 0.4, 0.6],
            row=row,
            col=1,
        )
        drawing.add_vline(1.0, line={"color": palette.INK, "width": 1, "dash": "dot"}, row=row, col=1)
    panels.bottom_titles(drawing, len(cells), 1, f"ratio to {panels.shown(frame.sides[0])} (log)")
    return drawing


def _lines(frame: ComparisonFrame, table: pd.DataFrame) -> list[dict[str, Any]]:
    """The lines of a panel: by metric, in it by side, in it by engine."""
    places = {name: at for at, name in enumerate(frame.metrics)}
    sides = {name: at for at, name in enumerate(frame.sides)}
    return sorted(records(table), key=lambda line: (places[line["metric"]], sides[line["side"]], line["engine"]))


def _name(frame: ComparisonFrame, line: dict[str, Any], several: bool) -> str:
    parts = [line["metric"]]
    if len(frame.sides) > 2:
        parts.append(line["side"])
    if several:
        parts.append(line["engine"])
    return ", ".join(parts)


def _interval(line: dict[str, Any], colour: str) -> dict[str, Any] | None:
    if math.isnan(line["low"]):
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": [line["high"] - line["ratio"]],
        "arrayminus": [line["ratio"] - line["low"]],
        "color": colour,
        "thickness": 1.6,
        "width": 4,
    }


def _text(line: dict[str, Any], reference: str) -> str:
    interval = "" if math.isnan(line["low"]) else f" ({wording.ratio(line['low'])} to {wording.ratio(line['high'])})"
    engine = f", {line['engine']}" if line["engine"] else ""
    words = f"{line['side']} / {reference}{engine}: {line['metric']} {wording.ratio(line['ratio'])}{interval}"
    return f"{panels.shown(words)}<br>{line['verdict']}"
