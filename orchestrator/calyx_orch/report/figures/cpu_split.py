"""CPU of each guest over the measured window: the sampled split stacked, the scheduler's total and the engine's part marked.

The split is tick-sampled by the guest's kernel; the total comes from schedstat and is exact, so the two may differ.
"""

from __future__ import annotations

from typing import Literal

import plotly.graph_objects as go

from calyx_orch.report import wording
from calyx_orch.report.figures import NothingToDraw, palette, panels
from calyx_orch.report.frames import Frame, Load, chosen, grouped

Part = Literal["user", "system", "softirq", "irq", "iowait"]
STACK: tuple[Part, ...] = ("user", "system", "softirq", "irq", "iowait")


def figure(
    frame: Frame, *, load: Load | None = None, workloads: list[str] | None = None, parts: list[Part] | None = None
) -> go.Figure:
    """Draw the means over the rounds of `load`, in percent of all CPUs of a guest; `parts` of the split, bottom up."""
    load = load or frame.main_load
    table = chosen(frame.measurements, load=load, workloads=workloads)
    fields = [f"{part}_percent" for part in (*STACK, "busy", "engine", "steal")]
    if table.empty or table[fields].isna().all(axis=None):
        raise NothingToDraw(f"no CPU use is known under load {load}")
    keys = ["workload", "target", "engine", "guest"]
    means = table.groupby(keys, sort=False)[fields].mean().reset_index()
    cells, engines = frame.cells_in(means), frame.engines_in(means)
    axis = panels.guest_axis(frame, means["guest"])
    drawing = panels.grid(
        [[f"{frame.panel(w, t, load)}: {e}" for e in engines] for w, t in cells],
        row_px=220,
        gap_px=52,
        shared_yaxes=True,
    )
    said: set[str] = set()
    for (workload, target, engine), rows in grouped(means, "workload", "target", "engine"):
        where = {"row": cells.index((workload, target)) + 1, "col": engines.index(engine) + 1}
        x = [axis.at[guest] for guest in rows["guest"]]
        for part in parts or STACK:
            values = rows[f"{part}_percent"]
            if values.isna().all() or (part == "irq" and not values.any()):
                continue
            drawing.add_bar(
                x=x, y=values, marker={"color": palette.PARTS.get(part, "#999999")}, width=0.62,
                hovertext=_texts(rows["guest"], part, values), **_named(f"{part} (sampled)", said), **where,
            )  # fmt: skip
        for field, symbol, name in (("busy", "line-ew", "busy (total)"), ("engine", "diamond", "engine alone")):
            values = rows[f"{field}_percent"]
            if values.isna().all():
                continue
            drawing.add_scatter(
                x=x, y=values, mode="markers",
            cliponaxis=False, marker=_marker(symbol, len(axis.at)),
                hovertext=_texts(rows["guest"], name, values), **_named(name, said), **where,
            )  # fmt: skip
    drawing.update_layout(barmode="stack", bargap=0.2)
    drawing.update_yaxes(ticksuffix=" %", rangemode="tozero")
    axis.draw(drawing, len(cells), len(engines))
    panels.left_titles(drawing, len(cells), "share of all CPUs")
    return drawing


def _texts(guests: object, part: str, values: object) -> list[str]:
    return [f"{panels.shown(g)}: {part} {wording.percent(v)}" for g, v in zip(guests, values, strict=True)]  # type: ignore[call-overload]


def _named(name: str, said: set[str]) -> dict[str, object]:
    first = name not in said
    said.add(name)
    return {
        "name": name,
        "legendgroup": name,
        "showlegend": first,
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _marker(symbol: str, guests: int) -> dict[str, object]:
    size = 16 if guests <= 16 else 9
    if symbol == "line-ew":
        return {"symbol": symbol, "size": size, "line": {"width": 3, "color": palette.INK}}
    return {"symbol": symbol, "size": size / 2, "color": "#FFFFFF", "line": {"width": 1.5, "color": palette.INK}}
