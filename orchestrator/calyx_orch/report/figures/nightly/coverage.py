"""Coverage of nights: what became of each time at which a schedule was due."""

from __future__ import annotations

import plotly.graph_objects as go

from calyx_orch.report.figures import NothingToDraw, palette, panels
from calyx_orch.report.history_frame import ScheduleFrame

COLOURS = {
    "finished": "#2A8C82",
    "running": "#0072B2",
    "queued": "#56B4E9",
    "skipped": "#8A7A00",
    "missed": "#6B7785",
    "interrupted": "#E69F00",
    "failed": "#D55E00",
}


def figure(frame: ScheduleFrame, *, workloads: list[str] | None = None) -> go.Figure:
    """Draw a row a state. A night is one of the schedule, whatever `workloads` it has."""
    if not frame.due:
        raise NothingToDraw("the schedule was not due yet")
    states = [state for state in COLOURS if any(one.state == state for one in frame.due)]
    drawing = go.Figure()
    for state in states:
        mine = [one for one in frame.due if one.state == state]
        drawing.add_scatter(
            x=[one.at for one in mine],
            y=[state] * len(mine),
            mode="markers",
            marker={"symbol": "square", "size": 9, "color": COLOURS[state]},
            text=[panels.shown(f"{one.at}: {one.state}{one.said and f' ({one.said})'}") for one in mine],
            hovertemplate="%{text}<extra></extra>",
            name=f"{state}: {len(mine)}",
        )
    drawing.update_layout(
        template="plotly_white",
        height=120 + 34 * len(states),
        margin={"l": 90, "r": 20, "t": 10, "b": 40},
        font={"color": palette.INK},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    )
    drawing.update_xaxes(type="date", gridcolor=palette.GRID)
    drawing.update_yaxes(categoryorder="array", categoryarray=states[::-1], gridcolor=palette.GRID)
    return drawing
