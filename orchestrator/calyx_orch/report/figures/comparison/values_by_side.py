"""Values of all sides side by side: a faint dot a unit, a bar at their mean, a panel per workload and metric, engines in their colours."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from calyx_orch.report import comparison
from calyx_orch.report.comparison_frame import ComparisonFrame, of_cell, only
from calyx_orch.report.figures import NothingToDraw, palette, panels

METRICS = ("throughput", "P99", "CPU per I/O")
UNITS = {"throughput": ("MB/s", 1e-6), "IOPS": ("IOPS", 1.0)}
SIDES_NAMED_MAX = 40


def figure(
    frame: ComparisonFrame, *, workloads: list[str] | None = None, metrics: list[str] | None = None
) -> go.Figure:
    """Draw the units of every side for `metrics` (throughput, P99 and CPU per I/O)."""
    table = only(frame.values, workloads=workloads, metrics=metrics or METRICS)
    if table.empty:
        raise NothingToDraw("none of the sides has such a figure")
    cells = frame.cells_in(table)
    found = [metric for metric in metrics or METRICS if metric in set(table["metric"])]
    drawing = panels.grid(
        [[f"{frame.panel(cell)}: {metric}" for metric in found] for cell in cells], row_px=220, gap_px=56
    )
    engines = [engine for engine in frame.engines if engine in set(table["engine"])]
    offsets = panels.engine_offsets(engines, 0.36)
    at = {side: float(place) for place, side in enumerate(frame.sides)}
    said: set[str] = set()
    for row, cell in enumerate(cells, 1):
        for column, metric in enumerate(found, 1):
            part = of_cell(table, cell)
            part = part[part["metric"] == metric]
            unit, scale = UNITS.get(metric, ("", 1.0))
            for engine in engines:
                mine = part[part["engine"] == engine]
                if mine.empty:
                    continue
                colour, name = palette.engine(engine, frame.engines), panels.shown(engine)
                place = {"row": row, "col": column}
                drawing.add_scatter(
                    x=[at[side] + offsets[engine] for side in mine["side"]],
                    y=mine["value"] * scale,
                    mode="markers",
                    marker={"color": palette.faint(colour, 0.35), "size": 7},
                    text=[
                        f"{panels.shown(side)}: a unit, {comparison.shown(metric, value)}"
                        for side, value in zip(mine["side"], mine["value"], strict=True)
                    ],
                    hovertemplate="%{text}<br>%{fullData.name}<extra></extra>",
                    name=name,
                    legendgroup=name,
                    showlegend=False,
                    **place,
                )
                means = mine.groupby("side", sort=False)["value"].mean()
                drawing.add_scatter(
                    x=[at[str(side)] + offsets[engine] for side in means.index],
                    y=means.to_numpy() * scale,
                    mode="markers",
                    marker={"color": colour, "symbol": "line-ew", "size": 17, "line": {"width": 3, "color": colour}},
                    text=[
                        f"{panels.shown(str(side))}: {metric} {comparison.shown(metric, value)}"
                        for side, value in means.items()
                    ],
                    hovertemplate="%{text}<br>%{fullData.name}<extra></extra>",
                    name=name,
                    legendgroup=name,
                    showlegend=engine not in said,
                    **place,
                )
                said.add(engine)
            drawing.update_yaxes(
                **_axis(metric, float(part["value"].min()), float(part["value"].max())),
                title_text=unit,
                row=row,
                col=column,
            )
    named = len(frame.sides) <= SIDES_NAMED_MAX
    names = [panels.shown(side) for side in frame.sides]
    drawing.update_xaxes(
        tickmode="array",
        tickvals=list(at.values()),
        ticktext=names,
        showticklabels=named,
        tickangle=-35 if sum(map(len, names)) * len(found) > 90 else 0,
        range=[-0.7, len(at) - 0.3],
        showgrid=False,
    )
    for row in range(1, len(cells)):
        drawing.update_xaxes(showticklabels=False, row=row)
    return drawing


def _axis(metric: str, low: float, high: float) -> dict[str, Any]:
    """A log axis of time for latencies and CPU per I/O, else one from zero."""
    if metric.startswith("P") or metric == "CPU per I/O":
        return panels.latency_axis(low / 1.1, high * 1.1)
    return {"rangemode": "tozero"} | ({"tickformat": ".1%"} if metric.startswith("CV ") else {})
