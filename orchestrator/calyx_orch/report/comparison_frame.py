"""A comparison as tables for its figures: one `ComparisonFrame` of pandas DataFrames, made once for a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from calyx_orch.analysis import histogram
from calyx_orch.analysis.compare import METRICS, units_by_side
from calyx_orch.analysis.comparison import Comparison, SideUnits
from calyx_orch.analysis.rounds import latencies
from calyx_orch.model import Histogram

Cell = tuple[str, str, str]  # workload, target, load


@dataclass(frozen=True)
class ComparisonFrame:
    """Tables of one comparison; every one has the columns side, workload, target, load, engine.

    rows        a row per side but the reference, cell, engine and metric: ratio, low, high, verdict, value, reference_value
    values      a row per side, cell, engine, metric and unit: `value`
    histograms  a row per side, cell and engine: the merged `histogram` of its units
    """

    fact: str
    sides: tuple[str, ...]  # the reference first
    engines: tuple[str, ...]
    cells: tuple[Cell, ...]
    metrics: tuple[str, ...]
    rows: pd.DataFrame
    values: pd.DataFrame
    histograms: pd.DataFrame

    def panel(self, cell: Cell) -> str:
        """Name a panel: the workload, with its target and load where there are several."""
        workload, target, load = cell
        several = len({target for _, target, _ in self.cells}) > 1
        loads = {load for _, _, load in self.cells}
        name = f"{workload} on {target}" if several else workload
        return f"{name} ({load})" if len(loads) > 1 or load != "together" else name

    def cells_in(self, table: pd.DataFrame) -> list[Cell]:
        """Give those of `cells` that `table` has rows for."""
        present = set() if table.empty else set(zip(table["workload"], table["target"], table["load"], strict=True))
        return [cell for cell in self.cells if cell in present]


def of_cell(table: pd.DataFrame, cell: Cell) -> pd.DataFrame:
    """Keep the rows of one cell."""
    workload, target, load = cell
    return table[(table["workload"] == workload) & (table["target"] == target) & (table["load"] == load)]


def only(table: pd.DataFrame, *, workloads: Sequence[str] | None, metrics: Sequence[str] | None = None) -> pd.DataFrame:
    """Keep the rows of the workloads and metrics named; None keeps all."""
    if table.empty:
        return table
    keep = pd.Series(True, index=table.index)
    if workloads is not None:
        keep &= table["workload"].isin(list(workloads))
    if metrics is not None:
        keep &= table["metric"].isin(list(metrics))
    return table[keep]


def frame_of(found: Comparison, fact: str) -> ComparisonFrame:
    """Make the tables of a comparison."""
    shown = units_by_side(found.sides)
    rows = pd.DataFrame(
        [
            {
                "side": row.side,
                "workload": row.workload,
                "target": row.target,
                "load": row.load,
                "engine": row.engine,
                "metric": row.metric,
                "ratio": _float(row.effect.ratio),
                "low": _float(row.effect.low),
                "high": _float(row.effect.high),
                "verdict": row.verdict,
            }
            for row in found.rows
        ]
    )
    known = {row.metric for row in found.rows}
    values = pd.DataFrame([line for one in shown for line in _values(one)])
    merged = [_key(one) | {"histogram": histogram.merge([_latency(one)])} for one in shown if _latency(one).count]
    return ComparisonFrame(
        fact=fact,
        sides=tuple(side.name for side in found.sides),
        engines=tuple(sorted(dict.fromkeys(one.engine for one in shown), key=lambda name: (name != "calyx", name))),
        cells=tuple(dict.fromkeys((one.workload, one.target, one.load) for one in shown)),
        metrics=tuple(metric.name for metric in METRICS if metric.name in known),
        rows=rows,
        values=values,
        histograms=pd.DataFrame(merged),
    )


def _values(one: SideUnits) -> list[dict[str, object]]:
    return [
        _key(one) | {"metric": metric.name, "value": value}
        for metric in METRICS
        for unit in one.units
        if (value := metric.figure(unit.figures)) is not None
    ]


def _latency(one: SideUnits) -> Histogram:
    return latencies(found for unit in one.units for found in unit.figures)


def _key(one: SideUnits) -> dict[str, object]:
    return {
        "side": one.side,
        "workload": one.workload,
        "target": one.target,
        "load": one.load,
        "engine": one.engine,
    }


def _float(value: float | None) -> float:
    return math.nan if value is None else value
