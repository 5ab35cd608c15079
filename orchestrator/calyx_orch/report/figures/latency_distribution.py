"""Latency distribution per guest: one curve a guest, latency (log) against percentile, a panel per workload and engine.

The curves come from merged buckets of all rounds, and end where fewer than ten samples lie beyond.
"""

from __future__ import annotations

import plotly.graph_objects as go

from calyx_orch.report.figures import NothingToDraw, curves, panels
from calyx_orch.report.frames import Frame, Load, chosen, of_cell, records


def figure(
    frame: Frame, *, load: Load | None = None, workloads: list[str] | None = None, points: int = 90
) -> go.Figure:
    """Draw the rounds of `load`; `points` a curve."""
    load = load or frame.main_load
    table = chosen(frame.histograms, load=load, workloads=workloads)
    if table.empty:
        raise NothingToDraw(f"no latency was measured under load {load}")
    cells, engines = frame.cells_in(table), frame.engines_in(table)
    drawing = panels.grid([[f"{frame.panel(w, t, load)}: {e}" for e in engines] for w, t in cells], shared_yaxes=True)
    colours, legend = panels.guest_colours(frame), panels.legend(frame)
    for row, cell in enumerate(cells, 1):
        mine = (
            curves.Curve(
                histogram=line["histogram"],
                colour=colours[line["guest"]],
                legend=legend.entry(line["guest"]),
                column=engines.index(line["engine"]) + 1,
                said=(line["guest"], line["vm_host"], line["engine"]),
            )
            for line in records(of_cell(table, cell))
        )
        curves.draw_row(drawing, row, mine, points)
    panels.bottom_titles(drawing, len(cells), len(engines), "total latency (log)")
    panels.left_titles(drawing, len(cells), "percentile of I/O")
    return drawing
