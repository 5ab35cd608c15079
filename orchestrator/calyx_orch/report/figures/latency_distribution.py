"""Latency distribution per guest: one curve a guest, latency (log) against percentile, a panel per workload and engine.

The curves come from merged buckets of all rounds, and end where fewer than ten samples lie beyond.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from calyx_orch.report import wording
from calyx_orch.report.figures import NothingToDraw, panels
from calyx_orch.report.frames import Frame, Load, chosen, percentile_curve, records

TICKS = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999)


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
    beyond = np.logspace(0, -6, points)
    beyond = np.unique(np.concatenate([beyond, [1 - tick / 100 for tick in TICKS]]))[::-1]
    for row, (workload, target) in enumerate(cells, 1):
        in_row = table[(table["workload"] == workload) & (table["target"] == target)]
        lows, highs, deepest = [], [], 0.1
        for line in records(in_row):
            curve = percentile_curve(line["histogram"], beyond)
            keep = np.isfinite(curve)
            if not keep.any():
                continue
            lows.append(curve[keep].min())
            highs.append(curve[keep].max())
            deepest = min(deepest, beyond[keep].min())
            drawing.add_scatter(
                x=curve[keep],
                y=beyond[keep],
                mode="lines",
                line={"color": colours[line["guest"]], "width": 1.6},
                text=[
                    f"P{100 * (1 - b):.6g}  {wording.latency(x)}"
                    for x, b in zip(curve[keep], beyond[keep], strict=True)
                ],
                meta=[panels.shown(line["guest"]), panels.shown(line["vm_host"]), panels.shown(line["engine"])],
                hovertemplate="%{meta[0]} (%{meta[1]}), %{meta[2]}<br>%{text}<extra></extra>",
                row=row,
                col=engines.index(line["engine"]) + 1,
                **legend.entry(line["guest"]),
            )
        if lows:
            drawing.update_xaxes(**panels.latency_axis(min(lows), max(highs)), row=row)
        ticks = [tick for tick in (0.0, *TICKS) if 1 - tick / 100 >= deepest * 0.999]
        drawing.update_yaxes(
            type="log",
            range=[0.02, np.log10(deepest) - 0.05],
            tickmode="array",
            tickvals=[1 - tick / 100 for tick in ticks],
            ticktext=["min" if tick == 0 else f"P{tick:g}" for tick in ticks],
            row=row,
        )
    panels.bottom_titles(drawing, len(cells), len(engines), "total latency (log)")
    panels.left_titles(drawing, len(cells), "percentile of I/O")
    return drawing
