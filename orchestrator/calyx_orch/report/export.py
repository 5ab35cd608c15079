"""A run's figures by place in other tools' forms: CSV, Parquet, OpenMetrics. Names and units are those of docs/methods.md."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calyx_orch.errors import FolderError, UsageError

LABELS = ("scope", "name", "target", "workload", "engine", "load")
GAUGES: Mapping[str, tuple[str, str, float]] = {  # our field: (metric, unit, factor): OpenMetrics wants base units
    "throughput_bytes_per_s": ("calyx_throughput", "Bytes read and written per second by all guests of the place", 1.0),
    "guest_throughput_bytes_per_s": (
        "calyx_guest_throughput",
        "Bytes read and written per second by its mean guest",
        1.0,
    ),
    "iops": ("calyx_iops", "I/Os per second of all guests of the place", 1.0),
    "guest_iops": ("calyx_guest_iops", "I/Os per second of its mean guest", 1.0),
    "p50_ns": ("calyx_latency_p50_seconds", "Median total latency", 1e-9),
    "p99_ns": ("calyx_latency_p99_seconds", "99th percentile of total latency", 1e-9),
    "p999_ns": ("calyx_latency_p999_seconds", "99.9th percentile of total latency", 1e-9),
    "cv_within_run": ("calyx_cv_within_run_ratio", "CV of throughput over the intervals of a round", 1.0),
    "cpu_ns_per_io": ("calyx_cpu_seconds_per_io", "CPU time of the engine for each I/O", 1e-9),
}


def csv_text(run_id: str, figures: Sequence[Mapping[str, Any]]) -> str:
    """A header and a line a figure; what is unknown is empty."""
    out = io.StringIO()
    names = list(figures[0]) if figures else list(LABELS)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["run_id", *names])
    for row in figures:
        writer.writerow([run_id, *(_cell(row[name]) for name in names)])
    return out.getvalue()


def write_parquet(path: Path, run_id: str, figures: Sequence[Mapping[str, Any]]) -> None:
    """Write the figures as one Parquet file. Raises UsageError without pyarrow, FolderError when the file cannot be written."""
    import pandas as pd

    table = pd.DataFrame([{"run_id": run_id, **row} for row in figures])
    try:
        table.to_parquet(path, index=False)
    except ImportError as error:
        raise UsageError("Parquet needs pyarrow: `pip install 'calyx-orch[parquet]'`") from error
    except OSError as error:
        raise FolderError(f"cannot write {path}: {error.strerror or error}") from error


def openmetrics_text(run_id: str, started_s: float, figures: Sequence[Mapping[str, Any]]) -> str:
    """The OpenMetrics text format, each sample with the time at which the run began."""
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.openmetrics.exposition import generate_latest
    from prometheus_client.registry import Collector, CollectorRegistry

    class Figures(Collector):
        """What is exported."""

        def collect(self) -> list[GaugeMetricFamily]:
            """One gauge a metric."""
            found = []
            for field, (metric, said, factor) in GAUGES.items():
                family = GaugeMetricFamily(metric, said, labels=("run", *LABELS))
                for row in figures:
                    if row[field] is not None:
                        labels = [run_id, *(str(row[label]) for label in LABELS)]
                        family.add_metric(labels, row[field] * factor, timestamp=started_s)
                found.append(family)
            return found

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures())
    return str(generate_latest(registry).decode("utf-8"))  # type: ignore[no-untyped-call]


def _cell(value: Any) -> Any:
    return "; ".join(map(str, value)) if isinstance(value, list) else "" if value is None else value
