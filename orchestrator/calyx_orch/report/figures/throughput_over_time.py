"""Throughput over time of all guests on one axis, which begins at the start line; a panel per workload and engine.

One repetition is drawn at a time: that in which the throughput of a guest left its median furthest, unless told otherwise.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from calyx_orch.report.figures import NothingToDraw, palette, panels
from calyx_orch.report.frames import Floats, Frame, Load, chosen, grouped, records, stretch_of, stretched

HOVER = (
    "%{meta[0]} (%{meta[1]}) at %{x:.1f} s<br>mean %{y:,.4~r} %{meta[2]} over %{meta[3]} s<br>"
    "from %{customdata[0]:,.4~r} to %{customdata[1]:,.4~r}<extra></extra>"
)


def figure(
    frame: Frame,
    *,
    load: Load | None = None,
    workloads: list[str] | None = None,
    repetition: Literal["roughest"] | int = "roughest",
    unit: Literal["MB/s", "IOPS"] = "MB/s",
    points: int = 120,
) -> go.Figure:
    """Draw one `repetition` (`roughest` or a number from 1) in `unit` (MB/s or IOPS), a line as at most `points` means and extremes."""
    load = load or frame.main_load
    table = chosen(frame.series, load=load, workloads=workloads)
    if table.empty:
        raise NothingToDraw(f"no interval series was measured under load {load}")
    cells, engines = frame.cells_in(table), frame.engines_in(table)
    picked = {key: _repetition(rows, repetition, load) for key, rows in grouped(table, "workload", "target", "engine")}
    titles = [
        [_title(frame.panel(*cell, load), (*cell, engine), picked, repetition == "roughest") for engine in engines]
        for cell in cells
    ]
    drawing = panels.grid(titles, row_px=240, shared_yaxes=True)
    colours, legend = panels.guest_colours(frame), panels.legend(frame)
    field, scale = ("ios_per_s", 1.0) if unit == "IOPS" else ("bytes_per_s", 1e-6)
    for (workload, target, engine), (_, rows, _) in picked.items():
        where = {"row": cells.index((workload, target)) + 1, "col": engines.index(engine) + 1}
        many = len(rows) > panels.LEGEND_ENTRIES_MAX
        for line in records(rows):
            colour, entry = colours[line["guest"]], legend.entry(line["guest"])
            stretch_s = stretch_of(_span(line["time_s"]), line["interval_s"], points)
            time, mean, low, high = stretched(line["time_s"], line[field] * scale, stretch_s)
            known = np.isfinite(mean)
            drawing.add_scatter(
                x=np.concatenate([time[known], time[known][::-1]]),
                y=np.concatenate([high[known], low[known][::-1]]),
                fill="toself",
                fillcolor=palette.faint(colour, 0.07 if many else 0.16),
                line={"color": palette.faint(colour, 0.25 if many else 0.4), "width": 0.5},
                mode="lines",
                hoverinfo="skip",
                **entry | {"showlegend": False},
                **where,
            )
            drawing.add_scatter(
                x=time,
                y=mean,
                mode="lines",
                line={"color": colour, "width": 1.0 if many else 1.6},
                customdata=np.column_stack([low, high]),
                meta=[panels.shown(line["guest"]), panels.shown(line["vm_host"]), unit, f"{stretch_s:g}"],
                hovertemplate=HOVER,
                **entry,
                **where,
            )
    drawing.update_yaxes(rangemode="tozero")
    panels.bottom_titles(drawing, len(cells), len(engines), "seconds since the start line")
    panels.left_titles(drawing, len(cells), unit)
    return drawing


def _title(
    panel: str, key: tuple[str, str, str], picked: dict[tuple[str, ...], tuple[int, pd.DataFrame, int]], roughest: bool
) -> str:
    if key not in picked:
        return ""
    number, _, count = picked[key]
    why = " (its roughest)" if roughest else ""
    which = f", repetition {number} of {count}{why}" if count > 1 else ""
    return f"{panel}: {key[2]}{which}"


def _span(time_s: Floats) -> float:
    return float(time_s[-1] - time_s[0]) if len(time_s) else 0.0


def _repetition(rows: pd.DataFrame, repetition: Literal["roughest"] | int, load: Load) -> tuple[int, pd.DataFrame, int]:
    """Pick the rows of one repetition. Gives its number, its rows, and how many there are.

    It is a round where all guests share one, else the n-th round of each guest.
    """
    if load in ("together", "staggered"):
        order = rows["round"].rank(method="dense").astype(int)
    else:
        order = rows.sort_values("round").groupby("guest").cumcount().reindex(rows.index) + 1
    count = int(order.max())
    if isinstance(repetition, int):
        number = min(max(1, repetition), count)
    else:
        roughness = pd.Series([_roughness(values) for values in rows["bytes_per_s"]], index=rows.index)
        number = int(order.to_numpy()[int(roughness.to_numpy().argmax())])
    return number, rows[order == number], count


def _roughness(values: Floats) -> float:
    """Say how far the series leaves its median, relative to it."""
    finite = values[np.isfinite(values)]
    middle = float(np.median(finite)) if len(finite) else 0.0
    return float(np.max(np.abs(finite - middle))) / middle if middle > 0 else 0.0
