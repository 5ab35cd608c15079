"""How many guests a place carries: throughput of a guest and P99 against the number of guests that run at once, a line a place."""

from __future__ import annotations

from typing import Literal

import plotly.graph_objects as go

from calyx_orch.report.figures import NothingToDraw, palette, panels
from calyx_orch.report.frames import Frame, chosen, of_cell

SHOWN = (("throughput_per_guest", "MB/s a guest", 1e-6), ("p99_ns", "P99, µs", 1e-3))


def figure(
    frame: Frame, *, workloads: list[str] | None = None, scope: Literal["vm_host", "storage"] = "vm_host"
) -> go.Figure:
    """Draw each `scope` (vm_host or storage), calyx solid and other engines dashed."""
    table = chosen(frame.density, load=None, workloads=workloads)
    table = table if table.empty else table[table["scope"] == scope]
    if table.empty:
        raise NothingToDraw("no load with a density was measured on any " + scope)
    cells, places = frame.cells_in(table), list(dict.fromkeys(table["name"]))
    titles = [[f"{frame.panel(*cell, None)}: {title}" for _, title, _ in SHOWN] for cell in cells]
    drawing = panels.grid(titles, row_px=230)
    said: set[str] = set()
    for row, cell in enumerate(cells, 1):
        here = of_cell(table, cell)
        for place in places:
            for engine in frame.engines_in(here):
                line = here[(here["name"] == place) & (here["engine"] == engine)].sort_values("guests")
                for column, (field, title, scale) in enumerate(SHOWN, 1):
                    name = place if engine == "calyx" else f"{place}, {engine}"
                    drawing.add_scatter(
                        x=line["guests"],
                        y=scale * line[field],
                        mode="lines+markers",
                        line={
                            "color": palette.hue(places.index(place)),
                            "dash": "solid" if engine == "calyx" else "dash",
                        },
                        meta=[panels.shown(name), title],
                        hovertemplate="%{meta[0]}, %{x} guests: %{y:,.4~r} %{meta[1]}<extra></extra>",
                        name=panels.shown(name),
                        legendgroup=panels.shown(name),
                        showlegend=column == 1 and name not in said and len(places) <= panels.LEGEND_ENTRIES_MAX,
                        row=row,
                        col=column,
                    )
                    said.add(name)
    drawing.update_yaxes(rangemode="tozero")
    panels.bottom_titles(drawing, len(cells), len(SHOWN), f"guests of a {scope} at once")
    return drawing
