"""What figures of latency distributions share: curves of latency (log) against percentile, from merged buckets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from calyx_orch.model import Histogram
from calyx_orch.report import wording
from calyx_orch.report.figures import panels
from calyx_orch.report.frames import percentile_curve

TICKS = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999)


@dataclass(frozen=True)
class Curve:
    """One curve: what it is of, its colour, its entry in the legend, the column it stands in, and three words for hovering."""

    histogram: Histogram
    colour: str
    legend: dict[str, Any]
    column: int
    said: tuple[str, str, str]
    dash: str = "solid"


def draw_row(drawing: go.Figure, row: int, curves: Iterable[Curve], points: int) -> None:
    """Draw curves into a row of panels and set its axes; a curve ends where fewer than ten samples lie beyond."""
    beyond = np.logspace(0, -6, points)
    beyond = np.unique(np.concatenate([beyond, [1 - tick / 100 for tick in TICKS]]))[::-1]
    lows, highs, deepest = [], [], 0.1
    for one in curves:
        curve = percentile_curve(one.histogram, beyond)
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
            line={"color": one.colour, "width": 1.6, "dash": one.dash},
            text=[
                f"P{100 * (1 - b):.6g}  {wording.latency(x)}" for x, b in zip(curve[keep], beyond[keep], strict=True)
            ],
            meta=[panels.shown(word) for word in one.said],
            hovertemplate="%{meta[0]} (%{meta[1]}), %{meta[2]}<br>%{text}<extra></extra>",
            row=row,
            col=one.column,
            **one.legend,
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
