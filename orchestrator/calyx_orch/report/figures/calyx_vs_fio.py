"""calyx against fio, guest by guest: ratios of IOPS, P99 and CPU per I/O, paired by repetition, with an interval."""

from __future__ import annotations

from typing import Literal

import plotly.graph_objects as go

from calyx_orch.report.figures import NothingToDraw, ratios
from calyx_orch.report.frames import Frame, Load, chosen

Metric = Literal["IOPS", "P99", "CPU per I/O"]
METRICS: tuple[Metric, ...] = ("IOPS", "P99", "CPU per I/O")


def figure(
    frame: Frame,
    *,
    load: Load | None = None,
    workloads: list[str] | None = None,
    metrics: list[Metric] | None = None,
) -> go.Figure:
    """Draw calyx / fio for the rounds of `load`; one colour a fio engine."""
    load = load or frame.main_load
    table = chosen(frame.pairs, load=load, workloads=workloads)
    wanted = list(metrics or METRICS)
    table = table if table.empty else table[table["metric"].isin(wanted) & table["ratio"].notna()]
    if table.empty:
        raise NothingToDraw(f"no guest was measured by both calyx and fio under load {load}")
    return ratios.drawn(frame, table, wanted, "calyx / fio", load)
