"""Colours that colour-blind readers can tell apart: one for each engine, one hue family for each vm_host.

The engines' colours are of the Okabe and Ito palette (Color Universal Design, 2008), the hues of vm_hosts are near
Paul Tol's muted scheme and none is an engine's. Guests of one vm_host are shades of its hue, dark to light.
"""

from __future__ import annotations

from collections.abc import Sequence

ENGINES = {"calyx": "#0072B2", "fio-io_uring": "#D55E00", "fio-libaio": "#009E73"}
OTHER_ENGINES = ("#CC79A7", "#7A5C00", "#56B4E9", "#444444")
HUES = ("#2A8C82", "#882255", "#8A7A00", "#4B3FA8", "#CC6677", "#117733", "#7A4A1E", "#6699CC", "#AA4499", "#5A5A5A")
PARTS = {"user": "#56B4E9", "system": "#E69F00", "softirq": "#CC79A7", "irq": "#7A5C00", "iowait": "#D9D9D9"}
INK = "#1F2933"
MUTED = "#6B7785"
GRID = "#E4E8EC"


def engine(name: str, engines: Sequence[str]) -> str:
    """Give the colour of an engine, the same in every figure of a run that has `engines`."""
    if name in ENGINES:
        return ENGINES[name]
    others = [other for other in engines if other not in ENGINES]
    return OTHER_ENGINES[others.index(name) % len(OTHER_ENGINES)] if name in others else OTHER_ENGINES[-1]


def hue(position: int) -> str:
    """Give the base colour of the vm_host at `position`; they repeat after ten."""
    return HUES[position % len(HUES)]


def shade(base: str, position: int, count: int) -> str:
    """Give the `position`-th of `count` shades of `base`, from a little darker to clearly lighter."""
    if count <= 1:
        return base
    step = position / (count - 1)
    return (
        _mix(base, "#000000", 0.3 * (1 - step / 0.4))
        if step < 0.4
        else _mix(base, "#FFFFFF", 0.55 * (step - 0.4) / 0.6)
    )


def faint(colour: str, opacity: float) -> str:
    """Give a colour at an opacity."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def _mix(base: str, other: str, part: float) -> str:
    channels = (round(int(base[i : i + 2], 16) * (1 - part) + int(other[i : i + 2], 16) * part) for i in (1, 3, 5))
    return "#" + "".join(f"{channel:02X}" for channel in channels)
