"""What the figures share: a grid of panels, axes of latency and of guests, and text that plotly shows as it is."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from calyx_orch.report import wording
from calyx_orch.report.figures import palette
from calyx_orch.report.frames import Frame

TOP_PX, BOTTOM_PX, GAP_PX = 86, 58, 74
LINE_PX = 16
LEGEND_ENTRIES_MAX = 16
GROUPS_NAMED_MAX = 16
NEAR_TICKS = 0.12  # of an axis: closer ticks would have their names turned
TICKS_NAMED_MAX = 80  # of all columns; beyond it names would overlap, and hovering tells them
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def shown(text: str) -> str:
    """Escape untrusted text: plotly reads a few HTML tags, and `%{..}` in templates."""
    return html.escape(wording.printable(text), quote=False).replace("%{", "%\u200b{")


def grid(
    titles: Sequence[Sequence[str]],
    *,
    row_px: int = 260,
    gap_px: int = GAP_PX,
    bottom_px: int = BOTTOM_PX,
    **options: Any,
) -> go.Figure:
    """Make an empty figure of `titles` rows by columns; `options` go to make_subplots. Empty titles leave no panel title."""
    rows, columns = len(titles), len(titles[0])
    fold = columns > 1 and any(len(title) > 60 / columns for row in titles for title in row)
    folded = [[_folded(title) if fold else shown(title) for title in row] for row in titles]
    gap_px += LINE_PX if fold else 0
    inner = rows * row_px + (rows - 1) * gap_px
    options.setdefault("horizontal_spacing", min(0.09, 0.5 / columns))
    figure = make_subplots(
        rows,
        columns,
        subplot_titles=[title for row in folded for title in row],
        vertical_spacing=gap_px / inner if rows > 1 else 0.0,
        **options,
    )
    figure.update_annotations(font={"size": 13, "color": palette.INK}, yanchor="bottom", yshift=4)
    figure.update_layout(
        template="none",
        height=inner + TOP_PX + bottom_px,
        margin={"l": 70, "r": 18, "t": TOP_PX, "b": bottom_px},
        font={"family": FONT, "size": 12, "color": palette.INK},
        paper_bgcolor="#FFFFFF",
        plot_bgcolor="#FFFFFF",
        hoverlabel={
            "align": "left",
            "bgcolor": "#FFFFFF",
            "bordercolor": palette.MUTED,
            "font": {"color": palette.INK},
        },
        hovermode="closest",
        legend={
            "orientation": "h",
            "x": 0.0,
            "xanchor": "left",
            "y": 1 + 54 / inner,
            "yanchor": "bottom",
            "tracegroupgap": 0,
            "itemsizing": "constant",
        },
        showlegend=True,
    )
    figure.update_xaxes(**_axis())
    figure.update_yaxes(**_axis())
    return figure


def _folded(title: str) -> str:
    """Break a title in two lines at its last colon."""
    first, colon, second = title.rpartition(": ")
    return f"{shown(first)}<br>{shown(second)}" if colon else shown(title)


def _axis() -> dict[str, Any]:
    return {
        "gridcolor": palette.GRID,
        "zeroline": False,
        "linecolor": palette.MUTED,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": palette.MUTED,
        "title": {"standoff": 8},
        "automargin": True,
    }


def bottom_titles(figure: go.Figure, rows: int, columns: int, title: str) -> None:
    """Write the x title under the last row only."""
    for column in range(1, columns + 1):
        figure.update_xaxes(title_text=title, row=rows, col=column)


def left_titles(figure: go.Figure, rows: int, titles: str | Sequence[str]) -> None:
    """Write the y title at the first column of each row."""
    for row in range(1, rows + 1):
        figure.update_yaxes(title_text=titles if isinstance(titles, str) else titles[row - 1], row=row, col=1)


def log_ticks(low: float, high: float) -> list[float]:
    """Choose about 3 to 8 round ticks of a log axis from `low` to `high`: decades, 1-2-5 or finer as the span asks."""
    if not (0 < low <= high < math.inf):
        return []
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in _STEPS:
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        inside = [tick for tick in ticks if low * 0.9999 <= tick <= high * 1.0001]
        if 3 <= len(inside) <= 8:
            return inside
    return (
        _even_ticks(low, high) if high < 3 * low else [10.0**decade for decade in decades][:: max(1, len(decades) // 6)]
    )


_STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))


def _even_ticks(low: float, high: float) -> list[float]:
    rough = max((high - low) / 4, low * 1e-3)
    decade = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * decade for factor in (1.0, 2.0, 5.0, 10.0) if factor * decade >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def latency_axis(low_ns: float, high_ns: float) -> dict[str, Any]:
    """Settings of a log axis in nanoseconds whose ticks read `100 us`, `2 ms`."""
    if not (0 < low_ns <= high_ns):
        return {}
    low_ns, high_ns = low_ns / 1.1, high_ns * 1.1
    ticks = log_ticks(low_ns, high_ns)
    if not ticks or ticks[0] > low_ns:  # nothing may lie below the lowest tick, where no one can read it
        below = _below(low_ns)
        is_near = len(ticks) > 2 and math.log(ticks[0] / below) < NEAR_TICKS * math.log(high_ns / below)
        ticks, low_ns = [below, *ticks[is_near:]], below / 1.02
    if ticks[-1] * 2 < high_ns:
        ticks.append(_below(high_ns))
    return {
        "type": "log",
        "range": [math.log10(low_ns), math.log10(high_ns)],
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [_short_latency(tick) for tick in ticks],
    }


def _below(value: float) -> float:
    """The next round number at or below a positive one: 1, 1.5, 2, 3, 5 or 7 times a power of ten."""
    decade = 10.0 ** math.floor(math.log10(value))
    return max(step * decade for step in _STEPS[-1] if step * decade <= value * 1.0001)


def _short_latency(nanoseconds: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size * 0.9999:
            return f"{nanoseconds / size:.4g} {unit}"
    return f"{nanoseconds:.4g} ns"


def ratio_axis(values: Iterable[float]) -> dict[str, Any]:
    """Settings of a log axis of ratios around 1, at least from 0.8 to 1.25."""
    finite = [value for value in values if value is not None and math.isfinite(value) and value > 0]
    low, high = min([0.8, *finite]) / 1.04, max([1.25, *finite]) * 1.04
    ticks = [tick for tick in log_ticks(low, high) if not 0.97 < tick < 1.03]
    ticks = sorted([*ticks, 1.0])
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [f"{tick:.3g}" for tick in ticks],
    }


@dataclass(frozen=True)
class GuestAxis:
    """An axis of guests grouped by vm_host, with a gap between the groups: `at[guest]` is its place."""

    at: dict[str, float]
    groups: tuple[tuple[str, float, float], ...]

    @property
    def is_crowded(self) -> bool:
        """Whether names no longer fit side by side."""
        return len(self.at) > 10

    def draw(self, figure: go.Figure, rows: int, columns: int) -> None:
        """Name the guests under the last row, shade every other group, and write the vm_hosts' names into each panel."""
        names = [shown(name) for name in self.at]
        size = 12 if len(names) <= 16 else 10 if len(names) <= 40 else 8
        room = max(0.8, (4 - len(names)) / 2)  # so that engines of a lone guest stay side by side
        low, high = min(self.at.values()) - room, max(self.at.values()) + room
        named = len(names) * columns <= TICKS_NAMED_MAX
        figure.update_xaxes(
            tickmode="array",
            tickvals=list(self.at.values()),
            ticktext=names,
            showticklabels=named,
            ticks="outside" if named else "",
            tickangle=-90 if self.is_crowded else -35 if max(map(len, names)) * len(names) > 80 / columns else 0,
            tickfont={"size": size},
            range=[low, high],
            showgrid=False,
        )
        for row in range(1, rows):
            figure.update_xaxes(showticklabels=False, row=row)
        for number, (_, left, right) in enumerate(self.groups):
            if number % 2:
                figure.add_vrect(left, right, fillcolor="#F3F5F7", line_width=0, layer="below", row="all", col="all")
        if 1 < len(self.groups) <= GROUPS_NAMED_MAX:
            figure.for_each_annotation(lambda title: title.update(yshift=18))  # make way for the names below it
            for name, left, right in self.groups:
                self._name_group(figure, name, (left + right) / 2, rows, columns)

    @staticmethod
    def _name_group(figure: go.Figure, name: str, middle: float, rows: int, columns: int) -> None:
        for row in range(1, rows + 1):
            for column in range(1, columns + 1):
                figure.add_annotation(
                    x=middle,
                    y=1,
                    yref="y domain",
                    yanchor="bottom",
                    text=shown(name),
                    showarrow=False,
                    font={"size": 10, "color": palette.MUTED},
                    row=row,
                    col=column,
                )


def guest_axis(frame: Frame, guests: Iterable[str]) -> GuestAxis:
    """Place `guests` (those of the frame's order that are among them), one unit apart and two between vm_hosts."""
    wanted = set(guests)
    at: dict[str, float] = {}
    groups: list[tuple[str, float, float]] = []
    place = 0.0
    for vm_host, members in frame.by_vm_host.items():
        present = [guest for guest in members if guest in wanted]
        if not present:
            continue
        left = place - 0.5
        for guest in present:
            at[guest] = place
            place += 1
        groups.append((vm_host, left, place - 0.5))
        place += 0.6
    return GuestAxis(at, tuple(groups))


def engine_offsets(engines: Sequence[str], width: float = 0.5) -> dict[str, float]:
    """Set engines side by side within a guest's place."""
    count = len(engines)
    return {name: 0.0 if count == 1 else width * (i / (count - 1) - 0.5) for i, name in enumerate(engines)}


def guest_colours(frame: Frame) -> dict[str, str]:
    """Give each guest a shade of its vm_host's hue."""
    colours = {}
    for position, members in enumerate(frame.by_vm_host.values()):
        for i, guest in enumerate(members):
            colours[guest] = palette.shade(palette.hue(position), i, len(members))
    return colours


@dataclass
class Legend:
    """Says for each guest's line which legend entry it belongs to: its own, or that of its vm_host when guests are many."""

    frame: Frame
    said: set[str]

    def entry(self, guest: str) -> dict[str, Any]:
        """Give `legendgroup`, `name` and `showlegend` of the next trace of `guest`."""
        frame = self.frame
        per_guest = len(frame.guests) <= LEGEND_ENTRIES_MAX
        name = guest if per_guest else frame.vm_host_of[guest]
        wanted = per_guest or len(frame.by_vm_host) <= LEGEND_ENTRIES_MAX
        first = name not in self.said and wanted
        self.said.add(name)
        return {"legendgroup": shown(name), "name": shown(name), "showlegend": first}


def legend(frame: Frame) -> Legend:
    """Begin a legend."""
    return Legend(frame, set())
