"""Interference: what a guest keeps when its neighbours run as well, together divided by alone, by engine."""

from __future__ import annotations

from typing import Literal

import plotly.graph_objects as go

from calyx_orch.report.figures import NothingToDraw, ratios
from calyx_orch.report.frames import Frame, chosen

Metric = Literal["throughput", "P99"]
METRICS: tuple[Metric, ...] = ("throughput", "P99")


def figure(frame: Frame, *, workloads: list[str] | None = None, metrics: list[Metric] | None = None) -> go.Figure:
    """Draw together / alone for each guest that was measured under both loads."""
    table = chosen(frame.interference, load=None, workloads=workloads)
    wanted = list(metrics or METRICS)
    table = table if table.empty else table[table["metric"].isin(wanted) & table["ratio"].notna()]
    if table.empty:
        raise NothingToDraw("the run has no guest measured both together and alone (`load: [together, alone]` has)")
    return ratios.drawn(frame, table, wanted, "together / alone")
