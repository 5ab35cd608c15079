"""Latency distribution per side: one curve a side, latency (log) against percentile, a panel per workload and engine."""

from __future__ import annotations

import plotly.graph_objects as go

from calyx_orch.report.comparison_frame import ComparisonFrame, of_cell, only
from calyx_orch.report.figures import NothingToDraw, curves, palette, panels
from calyx_orch.report.frames import records


def figure(frame: ComparisonFrame, *, workloads: list[str] | None = None, points: int = 90) -> go.Figure:
    """Draw the merged latencies of every side's units; `points` a curve."""
    table = only(frame.histograms, workloads=workloads)
    if table.empty:
        raise NothingToDraw("no latency was measured")
    is_by_engine = frame.fact == "engine"
    cells = frame.cells_in(table)
    engines = [""] if is_by_engine else [name for name in frame.engines if name in set(table["engine"])]
    titles = [
        [f"{frame.panel(cell)}: {engine}" if engine else frame.panel(cell) for engine in engines] for cell in cells
    ]
    drawing = panels.grid(titles, shared_yaxes=True)
    said: set[str] = set()

    def entry(side: str) -> dict[str, object]:
        first = side not in said and (len(said) < panels.LEGEND_ENTRIES_MAX)
        said.add(side)
        return {"name": panels.shown(side), "legendgroup": panels.shown(side), "showlegend": first}

    for row, cell in enumerate(cells, 1):
        mine = (
            curves.Curve(
                histogram=line["histogram"],
                colour=_colour(frame, line["side"], is_by_engine),
                legend=entry(line["side"]),
                column=1 if is_by_engine else engines.index(line["engine"]) + 1,
                said=(line["side"], "the reference" if line["side"] == frame.sides[0] else "a side", line["engine"]),
                dash="dash" if line["side"] == frame.sides[0] else "solid",
            )
            for line in records(of_cell(table, cell))
        )
        curves.draw_row(drawing, row, mine, points)
    panels.bottom_titles(drawing, len(cells), len(engines), "total latency (log)")
    panels.left_titles(drawing, len(cells), "percentile of I/O")
    return drawing


def _colour(frame: ComparisonFrame, side: str, is_by_engine: bool) -> str:
    """An engine keeps its colour; other sides have hues, the reference is ink."""
    if is_by_engine:
        return palette.engine(side, frame.sides)
    return palette.INK if side == frame.sides[0] else palette.hue(frame.sides.index(side) - 1)
