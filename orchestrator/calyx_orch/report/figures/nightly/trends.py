"""Trends night by night: a panel a series, as on the page of a history."""

from __future__ import annotations

from typing import Literal

import plotly.graph_objects as go

from calyx_orch.report.figures import NothingToDraw
from calyx_orch.report.figures.history import nights
from calyx_orch.report.history_frame import ScheduleFrame


def figure(
    frame: ScheduleFrame,
    *,
    metric: Literal["throughput", "p99"] = "throughput",
    workloads: list[str] | None = None,
    series_max: int = 24,
) -> go.Figure:
    """Draw at most `series_max` series of `metric`, those with open incidents, suspects and the largest changes first."""
    found = frame.histories.get(metric)
    if found is None or not found.lines:
        raise NothingToDraw(f"no night has a {metric} yet")
    return nights.figure(found, workloads=workloads, series_max=series_max)
