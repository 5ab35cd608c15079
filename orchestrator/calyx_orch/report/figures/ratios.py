"""What the two figures of ratios share: a dot a guest with its interval, a line at 1, a panel per workload and metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from calyx_orch.report import wording
from calyx_orch.report.figures import palette, panels
from calyx_orch.report.frames import Frame, grouped, of_cell, records


def drawn(frame: Frame, table: pd.DataFrame, metrics: Sequence[str], title: str, load: str | None = None) -> go.Figure:
    """Draw `table` (guest, workload, target, engine, metric, ratio, low, high), coloured by engine; `title` of the y axes."""
    cells, engines = frame.cells_in(table), frame.engines_in(table)
    metrics = [metric for metric in metrics if metric in set(table["metric"])]
    axis, offsets = panels.guest_axis(frame, table["guest"]), panels.engine_offsets(engines, 0.36)
    drawing = panels.grid(
        [[f"{frame.panel(w, t, load)}: {m}" for m in metrics] for w, t in cells], row_px=200, gap_px=52
    )
    said: set[str] = set()
    for engine, (workload, target, metric), rows in (
        (name, key, rows)
        for name in engines
        for key, rows in grouped(table[table["engine"] == name], "workload", "target", "metric")
    ):
        row, column = cells.index((workload, target)) + 1, metrics.index(metric) + 1
        colour, name = palette.engine(engine, frame.engines), panels.shown(engine)
        drawing.add_scatter(
            x=[axis.at[guest] + offsets[engine] for guest in rows["guest"]],
            y=rows["ratio"],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": (rows["high"] - rows["ratio"]).tolist(),
                "arrayminus": (rows["ratio"] - rows["low"]).tolist(),
                "color": colour,
                "thickness": 1.4,
                "width": 3,
            },
            mode="markers",
            cliponaxis=False,
            marker={"color": colour, "size": 8, "line": {"width": 1, "color": "#FFF"}},
            text=[_text(line, metric) for line in records(rows)],
            hovertemplate="%{text}<br>%{fullData.name}<extra></extra>",
            name=name,
            legendgroup=name,
            showlegend=engine not in said,
            row=row,
            col=column,
        )
        said.add(engine)
    for row, cell in enumerate(cells, 1):
        here = of_cell(table, cell)
        for column, metric in enumerate(metrics, 1):
            part = here[here["metric"] == metric]
            drawing.update_yaxes(
                **panels.ratio_axis([*part["ratio"], *part["low"], *part["high"]]), row=row, col=column
            )
            drawing.add_hline(1.0, line={"color": palette.INK, "width": 1, "dash": "dot"}, row=row, col=column)
    axis.draw(drawing, len(cells), len(metrics))
    panels.left_titles(drawing, len(cells), title)
    return drawing


def _text(line: dict[str, Any], metric: str) -> str:
    ratio, low, high = line["ratio"], line["low"], line["high"]
    interval = "" if pd.isna(low) else f" ({wording.ratio(low)} to {wording.ratio(high)}, {line['interval']})"
    return f"{panels.shown(line['guest'])}: {metric} {wording.ratio(ratio)}{interval}"
