"""A metric night by night: a panel a series, incidents as bands, suspects ringed, where a new series began a dotted line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from calyx_orch.report import history
from calyx_orch.report.figures import NothingToDraw, palette, panels
from calyx_orch.report.history_frame import HistoryFrame, Line

WORSE, BETTER, SUSPECT = "#D55E00", "#0072B2", "#CC3311"
LINE = "#2A8C82"
FORMER = "#B8C0C8"
UNITS = {"throughput": ("MB/s", 1e-6), "iops": ("IOPS", 1.0)}


def figure(frame: HistoryFrame, *, workloads: list[str] | None = None, series_max: int = 24) -> go.Figure:
    """Draw at most `series_max` series, those with open incidents, suspects and the largest changes first."""
    lines = [line for line in frame.lines if workloads is None or line.workload in workloads]
    if not lines:
        raise NothingToDraw("no series is of these workloads")
    shown = sorted(lines, key=lambda line: line.weight, reverse=True)[: max(1, series_max)]
    drawing = panels.grid([[line.key] for line in shown], row_px=120, gap_px=46, shared_xaxes=True)
    said: set[str] = set()
    unit, scale = UNITS.get(frame.metric, ("", 1.0))
    for row, line in enumerate(shown, 1):
        _course(drawing, row, frame.metric, line, scale, said)
        _bands(drawing, row, line, said)  # after the course: plotly draws no shape into a panel that is still empty
        _suspect(drawing, row, frame.metric, line, scale, said)
        _new_series(drawing, row, line)
        every = np.concatenate([line.values, line.former_values])
        drawing.update_yaxes(
            **_axis(frame.metric, float(every.min()), float(every.max())), title_text=unit, row=row, col=1
        )
    first = min(
        min(line.nights[0], *line.former_nights[:1]) if len(line.former_nights) else line.nights[0] for line in shown
    )
    last = max(line.nights[-1] for line in shown)
    room = max((last - first) * 0.02, pd.Timedelta(hours=12))
    drawing.update_xaxes(type="date", range=[_text(first - room), _text(last + room)])
    return drawing


def _bands(drawing: go.Figure, row: int, line: Line, said: set[str]) -> None:
    """Shade each incident from its first night to its recovery, or to the last night where it is open."""
    for one in line.incidents:
        colour, name = (WORSE, "incident: worse") if one.worse else (BETTER, "lasting improvement")
        end = line.nights[-1 if one.recovered is None else one.recovered]
        half = _step(line) / 2
        drawing.add_vrect(
            _text(line.nights[one.since] - half),
            _text(end + half if one.recovered is None else end),
            fillcolor=palette.faint(colour, 0.16 if one.recovered is None else 0.09),
            line={"color": palette.faint(colour, 0.6), "width": 1},
            layer="below",
            row=row,
            col=1,
        )
        drawing.add_annotation(
            x=_text(line.nights[one.since] - half),
            y=1,
            yref="y domain",
            xanchor="left",
            yanchor="top",
            text=f"{100 * abs(one.change):.3g} % {'worse' if one.worse else 'better'}{', open' if one.recovered is None else ''}",
            showarrow=False,
            font={"size": 11, "color": colour},
            bgcolor="rgba(255,255,255,0.7)",
            row=row,
            col=1,
        )
        _legend(drawing, row, name, {"color": palette.faint(colour, 0.3), "symbol": "square", "size": 13}, said)


def _course(drawing: go.Figure, row: int, metric: str, line: Line, scale: float, said: set[str]) -> None:
    for nights, values, colour, name in (
        (line.former_nights, line.former_values, FORMER, "another make, not judged"),
        (line.nights, line.values, LINE, "a night"),
    ):
        if not len(values):
            continue
        drawing.add_scatter(
            x=[_text(night) for night in nights],
            y=values * scale,
            mode="lines+markers",
            line={"color": colour, "width": 1.4},
            marker={"size": 4, "color": colour},
            text=[
                f"{night:%Y-%m-%d %H:%M}: {history.shown(metric, value)}"
                for night, value in zip(nights, values, strict=True)
            ],
            **_entry(name, said),
            row=row,
            col=1,
        )


def _suspect(drawing: go.Figure, row: int, metric: str, line: Line, scale: float, said: set[str]) -> None:
    if line.suspect is None:
        return
    drawing.add_scatter(
        x=[_text(line.nights[-1])],
        y=[float(line.values[-1]) * scale],
        mode="markers",
        cliponaxis=False,
        marker={"symbol": "circle-open", "size": 15, "color": SUSPECT, "line": {"width": 2.4, "color": SUSPECT}},
        text=[
            f"{100 * line.suspect.change:+.3g} % against the nights before: {history.shown(metric, float(line.values[-1]))}"
        ],
        **_entry("suspect: one night, measure again", said),
        row=row,
        col=1,
    )


def _new_series(drawing: go.Figure, row: int, line: Line) -> None:
    """Mark where guests, set-up or workload became others, so that nights before are not compared."""
    if not len(line.former_nights):
        return
    at = _text(line.nights[0] - _step(line) / 2)
    drawing.add_vline(at, line={"color": palette.MUTED, "width": 1.4, "dash": "dot"}, row=row, col=1)
    drawing.add_annotation(
        x=at, y=0, yref="y domain", xanchor="left", yanchor="bottom", text="a new series", showarrow=False,
        font={"size": 11, "color": palette.MUTED}, bgcolor="rgba(255,255,255,0.7)", row=row, col=1,
    )  # fmt: skip


def _entry(name: str, said: set[str]) -> dict[str, Any]:
    """What hovering shows of a trace, and its entry in the legend, which has each name once."""
    first = name not in said
    said.add(name)
    return {"name": name, "legendgroup": name, "showlegend": first, "hovertemplate": "%{text}<extra></extra>"}


def _legend(drawing: go.Figure, row: int, name: str, marker: dict[str, Any], said: set[str]) -> None:
    """An entry for what is drawn as a shape, which has none."""
    if name not in said:
        drawing.add_scatter(
            x=[None], y=[None], mode="markers", marker=marker, name=name, showlegend=True, row=row, col=1
        )
        said.add(name)


def _step(line: Line) -> pd.Timedelta:
    """How far nights lie apart, usually."""
    if len(line.nights) < 2:
        return pd.Timedelta(days=1)
    return pd.Timedelta(np.median(np.diff(line.nights.to_numpy())))


def _axis(metric: str, low: float, high: float) -> dict[str, Any]:
    """A log axis for what is a time; else a linear one around the values, so that a change of a tenth is seen."""
    if metric not in UNITS and metric != "cv":
        return panels.latency_axis(low / 1.02, high * 1.02) | {"nticks": 4}
    scale = UNITS.get(metric, ("", 1.0))[1]
    room = 0.12 * (high - low) or 0.05 * high or 1.0
    bounds = {"range": [max(0.0, (low - room)) * scale, (high + room) * scale], "nticks": 4}
    return bounds | ({"tickformat": ".1%"} if metric == "cv" else {})


def _text(moment: pd.Timestamp) -> str:
    return moment.strftime("%Y-%m-%d %H:%M")
