"""Trends night by night: a panel a series, as on the page of a history."""

from __future__ import annotations

import plotly.graph_objects as go

from calyx_orch.report.figures.history import nights
from calyx_orch.report.history_frame import HistoryFrame


def figure(frame: HistoryFrame, *, workloads: list[str] | None = None, series_max: int = 24) -> go.Figure:
    """Draw at most `series_max` series, those with open incidents, suspects and the largest changes first."""
    return nights.figure(frame, workloads=workloads, series_max=series_max)
