"""A latency percentile by guest, grouped by vm_host, engines side by side, a panel per workload and target."""

from __future__ import annotations

from typing import Literal

import numpy as np
import plotly.graph_objects as go

from calyx_orch.report import wording
from calyx_orch.report.figures import NothingToDraw, palette, panels
from calyx_orch.report.frames import Frame, Load, chosen, of_cell

FIELDS = {"p50": ("P50", "p50_ns"), "p99": ("P99", "p99_ns"), "p99.9": ("P99.9", "p999_ns")}


def figure(
    frame: Frame,
    *,
    percentile: Literal["p50", "p99", "p99.9"] = "p99",
    load: Load | None = None,
    workloads: list[str] | None = None,
) -> go.Figure:
    """Draw `percentile` (p50, p99 or p99.9) of the merged rounds of `load`."""
    name, field = FIELDS[percentile]
    load = load or frame.main_load
    table = chosen(frame.guest_rows, load=load, workloads=workloads)
    table = table if table.empty else table[table["rounds"] > 0]
    if table.empty or table[field].isna().all():
        raise NothingToDraw(f"no {name} is known under load {load}")
    cells, engines = frame.cells_in(table), frame.engines_in(table)
    axis, offsets = panels.guest_axis(frame, table["guest"]), panels.engine_offsets(engines, 0.36)
    drawing = panels.grid([[f"{frame.panel(w, t, load)}"] for w, t in cells], row_px=220, gap_px=52, shared_xaxes=True)
    for row, cell in enumerate(cells, 1):
        in_row = of_cell(table, cell)
        for engine in engines:
            part = in_row[in_row["engine"] == engine]
            drawing.add_scatter(
                x=[axis.at[guest] + offsets[engine] for guest in part["guest"]],
                y=part[field],
                mode="markers",
                cliponaxis=False,
                marker={
                    "color": palette.engine(engine, frame.engines),
                    "size": 9,
                    "line": {"width": 1, "color": "#FFF"},
                },
                text=[
                    f"{panels.shown(g)}: {name} {wording.latency(v)}"
                    for g, v in zip(part["guest"], part[field], strict=True)
                ],
                hovertemplate="%{text}<br>%{fullData.name}<extra></extra>",
                name=panels.shown(engine),
                legendgroup=panels.shown(engine),
                showlegend=row == 1,
                row=row,
                col=1,
            )
        for guest, engine in in_row[in_row[field].isna()][["guest", "engine"]].itertuples(index=False):
            drawing.add_annotation(
                x=axis.at[guest] + offsets[engine], y=0, yref="y domain", yanchor="bottom", showarrow=False, text="n/a",
                hovertext=f"{panels.shown(guest)}: too few samples for a {name}",
                font={"size": 10, "color": palette.engine(engine, frame.engines)}, row=row, col=1,
            )  # fmt: skip
        if in_row[field].notna().any():
            low, high = float(np.min(in_row[field])), float(np.max(in_row[field]))
            drawing.update_yaxes(**panels.latency_axis(low / 1.1, high * 1.3), row=row)
    axis.draw(drawing, len(cells), 1)
    panels.left_titles(drawing, len(cells), f"{name}, total latency (log)")
    return drawing
