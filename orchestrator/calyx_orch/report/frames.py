"""The run as tables for the figures: one `Frame` of pandas DataFrames, made once for a page.

A figure gets nothing else. Only measurements with status `ok` are in; NaN stands for what a guest could not say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from calyx_orch.analysis import histogram
from calyx_orch.analysis.cells import keys_of
from calyx_orch.analysis.rows import Summary
from calyx_orch.model import NANOSECONDS, Histogram, Measurement, RunRecord

Load = Literal["together", "per_domain", "alone", "staggered"]
NO_VM_HOST = "no vm_host"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Frame:
    """Tables of one run; every one has the columns guest (but fleet), workload, target, engine, load where they make sense.

    measurements  a row per guest and round: rates, CPU parts in percent of the guest's CPUs, CPU per I/O, skew
    histograms    a row per guest, workload, target, engine, load: the merged `histogram` of all its rounds
    series        a row per guest and round: `interval_s` and arrays `time_s` (from the start line), `bytes_per_s`, `ios_per_s`
    guest_rows, fleet_rows, pairs, interference, steady, density   the rows of the Summary, field by field
    """

    run_id: str
    guests: tuple[str, ...]
    by_vm_host: dict[str, tuple[str, ...]]
    vm_host_of: dict[str, str]
    engines: tuple[str, ...]
    cells: tuple[tuple[str, str], ...]  # (workload, target), in the inventory's order
    measurements: pd.DataFrame
    histograms: pd.DataFrame
    series: pd.DataFrame
    guest_rows: pd.DataFrame
    fleet_rows: pd.DataFrame
    pairs: pd.DataFrame
    interference: pd.DataFrame
    steady: pd.DataFrame
    density: pd.DataFrame

    @property
    def main_load(self) -> Load:
        """The load that figures show unless told otherwise: together, else the first that was measured."""
        loads = [] if self.measurements.empty else list(dict.fromkeys(self.measurements["load"]))
        return "together" if "together" in loads or not loads else cast(Load, loads[0])

    def panel(self, workload: str, target: str, load: str | None) -> str:
        """Name a panel: the target when there are several, the load when there are several or it is not the usual one."""
        several = len({target for _, target in self.cells}) > 1
        name = f"{workload} on {target}" if several else workload
        return name if load is None or (load == "together" and len(self.loads) < 2) else f"{name} ({load})"

    @property
    def loads(self) -> tuple[str, ...]:
        """The loads that were measured."""
        return () if self.measurements.empty else tuple(dict.fromkeys(self.measurements["load"]))

    def cells_in(self, table: pd.DataFrame) -> list[tuple[str, str]]:
        """Give those of `cells` that `table` has rows for."""
        if table.empty:
            return []
        present = set(zip(table["workload"], table["target"], strict=True))
        return [cell for cell in self.cells if cell in present]

    def engines_in(self, table: pd.DataFrame) -> list[str]:
        """Give the engines that `table` has rows for, in the run's order."""
        present = set() if table.empty else set(table["engine"])
        return [engine for engine in self.engines if engine in present]


def chosen(table: pd.DataFrame, *, load: str | None, workloads: Sequence[str] | None) -> pd.DataFrame:
    """Keep the rows of one load mode and of the workloads named; None keeps all."""
    if table.empty:
        return table
    keep = pd.Series(True, index=table.index)
    if load is not None:
        keep &= table["load"] == load
    if workloads is not None:
        keep &= table["workload"].isin(list(workloads))
    return table[keep]


def of_cell(table: pd.DataFrame, cell: tuple[str, str]) -> pd.DataFrame:
    """Keep the rows of one workload and target."""
    workload, target = cell
    return table[(table["workload"] == workload) & (table["target"] == target)]


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Give the rows of a table one by one."""
    return cast("list[dict[str, Any]]", table.to_dict("records"))


def grouped(table: pd.DataFrame, *keys: str) -> list[tuple[tuple[str, ...], pd.DataFrame]]:
    """Split a table by columns of text, in the order of its rows."""
    return [(cast("tuple[str, ...]", key), rows) for key, rows in table.groupby(list(keys), sort=False)]


def frame_of(record: RunRecord, summary: Summary) -> Frame:
    """Make the tables of a run."""
    counted = {round_.index for round_ in record.plan.rounds}
    measured = [m for m in record.measurements if m.status == "ok" and m.round_index in counted]
    guests = tuple(guest.name for guest in record.plan.inventory.guests)
    vm_host_of = {guest.name: guest.vm_host or NO_VM_HOST for guest in record.plan.inventory.guests}
    by_vm_host = {
        name: tuple(guest for guest in guests if vm_host_of[guest] == name)
        for name in dict.fromkeys(vm_host_of.values())
    }
    rounds = record.plan.rounds
    return Frame(
        run_id=record.run_id,
        guests=guests,
        by_vm_host=by_vm_host,
        vm_host_of=vm_host_of,
        engines=tuple(
            sorted(dict.fromkeys(round_.engine for round_ in rounds), key=lambda name: (name != "calyx", name))
        ),
        cells=tuple(dict.fromkeys((key[1], key[0]) for key in keys_of(record))),
        measurements=pd.DataFrame([_measurement_row(m) for m in measured]),
        histograms=_histograms(measured),
        series=pd.DataFrame([_series_row(m) for m in measured if m.series is not None]),
        guest_rows=_table(summary.guests),
        fleet_rows=_table(summary.fleet),
        pairs=_table(summary.pairs),
        interference=_table(summary.interference),
        steady=_table(summary.steady),
        density=_table(summary.density),
    )


def _table(rows: Sequence[Any]) -> pd.DataFrame:
    """One column a field; None becomes NaN in columns of numbers, nested rows are left out."""
    if not rows:
        return pd.DataFrame()
    columns = {field.name: [getattr(row, field.name) for row in rows] for field in fields(rows[0])}
    return pd.DataFrame({name: _column(values) for name, values in columns.items()})


def _column(values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    is_number = all(isinstance(value, int | float) for value in known)
    return np.array(values, dtype=np.float64) if is_number else pd.Series(values, dtype=object)


def _key(m: Measurement) -> dict[str, Any]:
    return {
        "guest": m.guest,
        "vm_host": m.vm_host or NO_VM_HOST,
        "workload": m.workload,
        "target": m.target,
        "engine": m.engine,
        "load": m.load,
        "round": m.round_index,
        "block": m.block,
    }


def _measurement_row(m: Measurement) -> dict[str, Any]:
    seconds = m.window_ns / NANOSECONDS if m.window_ns > 0 else math.nan
    return _key(m) | {
        "bytes_per_s": m.total_bytes / seconds,
        "ios_per_s": m.total_ios / seconds,
        "skew_ns": _float(m.skew_ns),
        **_cpu_percent(m),
        "cpu_per_io_ns": _float(m.cpu.engine_ns if m.cpu else None) / m.total_ios if m.total_ios else math.nan,
    }


def _cpu_percent(m: Measurement) -> dict[str, float]:
    parts = ("user", "system", "iowait", "softirq", "irq", "steal", "busy", "engine")
    if m.cpu is None or m.cpu.window_ns <= 0 or m.cpu.cpus <= 0:
        return {f"{part}_percent": math.nan for part in parts}
    capacity = m.cpu.window_ns * m.cpu.cpus
    return {f"{part}_percent": 100.0 * _float(getattr(m.cpu, f"{part}_ns")) / capacity for part in parts}


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _series_row(m: Measurement) -> dict[str, Any]:
    assert m.series is not None
    width_s = m.series.interval_ns / NANOSECONDS
    total_bytes = np.asarray(m.series.total_bytes, dtype=np.float64)
    total_ios = np.asarray(m.series.total_ios, dtype=np.float64)
    widths = np.full(len(total_bytes), width_s)
    rest_s = m.window_ns / NANOSECONDS - width_s * (len(widths) - 1)
    if len(widths) and 0 < rest_s < width_s:
        widths[-1] = rest_s
    keep = widths >= 0.2 * width_s  # the rate of a sliver says nothing
    begin_s = (m.window_start_ns - m.start_line_ns) / NANOSECONDS
    time_s = begin_s + width_s * (np.arange(len(widths)) + 0.5)
    return _key(m) | {
        "interval_s": width_s,
        "time_s": time_s[keep],
        "bytes_per_s": (total_bytes / widths)[keep],
        "ios_per_s": (total_ios / widths)[keep],
    }


def _histograms(measured: Iterable[Measurement]) -> pd.DataFrame:
    parts: dict[tuple[str, ...], list[Histogram]] = {}
    for m in measured:
        key = (m.guest, m.vm_host or NO_VM_HOST, m.workload, m.target, m.engine, m.load)
        parts.setdefault(key, []).extend(d.latency for d in (m.read, m.write) if d is not None and d.latency.buckets)
    names = ("guest", "vm_host", "workload", "target", "engine", "load")
    rows = [
        dict(zip(names, key, strict=True)) | {"histogram": histogram.merge(found)}
        for key, found in parts.items()
        if found
    ]
    return pd.DataFrame(rows)


STRETCHES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 3600.0)


def stretch_of(span_s: float, interval_s: float, points_max: int) -> float:
    """Choose the shortest round stretch, no shorter than an interval, of which `points_max` cover `span_s`."""
    enough = (stretch for stretch in STRETCHES_S if stretch >= interval_s and span_s / stretch <= points_max)
    return next(enough, max(interval_s, span_s / points_max))


def stretched(time_s: Floats, values: Floats, stretch_s: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Shorten a series to stretches of `stretch_s`: middle time, mean, lowest and highest value of each.

    So a single spike or dip stays visible however long the series is. A stretch without any number is NaN: a gap.
    """
    if not len(time_s):
        return time_s, values, values, values
    number = np.floor(time_s / stretch_s + 1e-6).astype(int)
    starts = np.flatnonzero(np.diff(number, prepend=number[0] - 1))
    known = np.isfinite(values)
    counts = np.add.reduceat(known.astype(np.float64), starts)
    with np.errstate(invalid="ignore"):
        mean = np.add.reduceat(np.where(known, values, 0.0), starts) / counts
    low = np.where(counts > 0, np.minimum.reduceat(np.where(known, values, np.inf), starts), np.nan)
    high = np.where(counts > 0, np.maximum.reduceat(np.where(known, values, -np.inf), starts), np.nan)
    return (number[starts] + 0.5) * stretch_s, mean, low, high


def percentile_curve(latency: Histogram, shares_beyond: Floats) -> Floats:
    """Find the latency that each share (1 .. 0) of the samples exceeds, in ns; NaN where too few samples lie beyond."""
    samples = latency.count
    percents = [float(percent) for percent in 100.0 * (1.0 - shares_beyond)]
    known = [n for n, percent in enumerate(percents) if samples and histogram.has_enough(samples, percent)]
    curve = np.full(len(percents), math.nan)
    curve[known] = histogram.percentiles(latency, [percents[n] for n in known])
    return curve
