"""The coefficient of variation of throughput by guest, grouped by vm_host: within a run and between repetitions, by name."""

from __future__ import annotations

from typing import Literal

import plotly.graph_objects as go

from calyx_orch.report import wording
from calyx_orch.report.figures import NothingToDraw, palette, panels
from calyx_orch.report.frames import Frame, Load, chosen, of_cell

KINDS = (
    ("within", "within a run", "cv_within_run", "circle"),
    ("between", "between repetitions", "cv_between_repetitions", "diamond-open"),
)


def figure(
    frame: Frame,
    *,
    load: Load | None = None,
    workloads: list[str] | None = None,
    kind: Literal["within", "between", "both"] = "both",
) -> go.Figure:
    """Draw the CVs of the rounds of `load`; `kind` is within, between or both."""
    kinds = [entry for entry in KINDS if kind in (entry[0], "both")]
    load = load or frame.main_load
    table = chosen(frame.guest_rows, load=load, workloads=workloads)
    if table.empty or table[[field for _, _, field, _ in kinds]].isna().all(axis=None):
        raise NothingToDraw(f"no CV is known under load {load}: it needs several intervals or repetitions")
    cells, engines = frame.cells_in(table), frame.engines_in(table)
    axis, offsets = panels.guest_axis(frame, table["guest"]), panels.engine_offsets(engines, 0.36)
    drawing = panels.grid([[f"{frame.panel(w, t, load)}"] for w, t in cells], row_px=200, gap_px=52, shared_xaxes=True)
    for row, cell in enumerate(cells, 1):
        in_row = of_cell(table, cell)
        for engine in engines:
            part = in_row[in_row["engine"] == engine]
            for _, surname, field, symbol in kinds:
                values = 100 * part[field].astype(float)
                if values.isna().all():
                    continue
                name = f"{panels.shown(engine)}, {surname}"
                drawing.add_scatter(
                    x=[axis.at[guest] + offsets[engine] for guest in part["guest"]],
                    y=values,
                    mode="markers",
                    cliponaxis=False,
                    marker={"color": palette.engine(engine, frame.engines), "size": 9, "symbol": symbol},
                    text=[
                        f"{panels.shown(g)}: CV {wording.percent(v)}"
                        for g, v in zip(part["guest"], values, strict=True)
                    ],
                    hovertemplate="%{text}<br>%{fullData.name}<extra></extra>",
                    name=name,
                    legendgroup=name,
                    showlegend=row == 1,
                    row=row,
                    col=1,
                )
    drawing.update_yaxes(rangemode="tozero", ticksuffix=" %")
    axis.draw(drawing, len(cells), 1)
    panels.left_titles(drawing, len(cells), "CV of throughput")
    return drawing
