"""The jobs of one JSON document of fio, of any version: what each direction did, its latencies in our buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calyx_orch.engines.buckets import of_fio_index, of_fio_value
from calyx_orch.engines.fio_versions import FioVersion, parse_version
from calyx_orch.errors import FormatError
from calyx_orch.model import Histogram

ALL_CLIENTS = "All clients"  # the entry of a client run that repeats the sum of the others
NUMBER_MAX = float(1 << 63)  # of all that fio counts or measures


@dataclass(frozen=True)
class FioDirection:
    """One direction of one job. `ios` are those completed; `latency_kind` is `total` or `completion`.

    `percentiles` are those that fio printed, ascending (percent, ns), empty without samples. `latency` has buckets only
    where fio gave json+ bins.
    """

    ios: int
    bytes: int
    bytes_per_s: int
    iops: float
    runtime_ms: int
    latency_kind: str
    latency: Histogram
    samples: int
    percentiles: tuple[tuple[float, int], ...] = ()

    def percentile(self, percent: float, kind: str | None = None) -> int | None:
        """What fio printed for this percentile in ns; None when it printed none, or only one of another kind."""
        if kind is not None and kind != self.latency_kind:
            return None
        return dict(self.percentiles).get(percent)


@dataclass(frozen=True)
class FioJob:
    """One job (or one client's job) of a document. A direction that was not reported is None."""

    name: str
    host: str | None
    error: int
    runtime_ms: int
    read: FioDirection | None
    write: FioDirection | None
    sync: FioDirection | None = None
    mixed: FioDirection | None = None
    trim: FioDirection | None = None

    @property
    def total_ios(self) -> int:
        """I/Os of all directions; from `mixed` only where fio gave nothing else."""
        parts = [part for part in (self.read, self.write, self.trim) if part is not None]
        return sum(part.ios for part in parts) if parts else (self.mixed.ios if self.mixed else 0)


def jobs_of(document: Mapping[str, Any]) -> tuple[FioJob, ...]:
    """The jobs of one document of any version. Raises FormatError when they make no sense."""
    entries = document.get("jobs", document.get("client_stats"))
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise FormatError("fio's document has no list of jobs")
    version = parse_version(str(document.get("fio version", "")))
    return tuple(_job(entry, version) for entry in entries if entry.get("jobname") != ALL_CLIENTS)


def options_of(document: Mapping[str, Any]) -> dict[str, str]:
    """The options that were given to all jobs, as fio understood them."""
    given = document.get("global options")
    return {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}


def _job(entry: Mapping[str, Any], version: FioVersion | None) -> FioJob:
    name = str(entry.get("jobname", "?"))
    ways = [key for key in ("read", "write", "mixed") if key in entry]
    parts = {key: _direction(entry[key], version, f"job {name}, {key}") for key in ways}
    sync = _direction(entry["sync"], version, f"job {name}, sync") if "sync" in entry else None
    trim = _direction(entry["trim"], version, f"job {name}, trim") if "trim" in entry else None
    longest_ms = max((part.runtime_ms for part in parts.values()), default=0)  # 2.x has no job_runtime
    return FioJob(
        name=name,
        host=str(entry["hostname"]) if "hostname" in entry else None,
        error=_whole(entry, "error", f"job {name}"),
        runtime_ms=_whole(entry, "job_runtime", f"job {name}") or longest_ms,
        read=parts.get("read"),
        write=parts.get("write"),
        sync=sync if sync is not None and sync.ios else None,
        mixed=parts.get("mixed"),
        trim=trim if trim is not None and trim.ios else None,
    )


def _direction(values: Any, version: FioVersion | None, where: str) -> FioDirection:
    if not isinstance(values, dict):
        raise FormatError(f"{where}: no object in fio's document")
    kind, latency = _latency(values, where)
    samples = _whole(latency, "N", where) if latency is not None and "N" in latency else None
    histogram, percentiles = _distribution(latency, where)
    ios = _whole(values, "total_ios", where)
    if samples is not None and (samples or kind == "total"):
        ios = samples  # `total_ios` counts those issued in the window, `io_bytes` and latencies those completed in it
    in_kib = "io_kbytes" not in values and "bw_bytes" not in values and (version is None or version.major < 3)
    bytes_per_s = _whole(values, "bw_bytes", where) if "bw_bytes" in values else _whole(values, "bw", where) * 1024
    return FioDirection(
        ios=ios,
        bytes=_whole(values, "io_bytes", where) * (1024 if in_kib else 1),
        bytes_per_s=bytes_per_s,
        iops=_number(values, "iops", where),
        runtime_ms=_whole(values, "runtime", where),
        latency_kind=kind,
        latency=histogram,
        samples=ios if samples is None else samples,
        percentiles=percentiles,
    )


def _latency(values: Mapping[str, Any], where: str) -> tuple[str, Mapping[str, Any] | None]:
    """The latency object that carries the distribution: total where it has one, else completion; both in ns.

    With fio 2.x, whose keys have no `_ns`, the object is translated from microseconds.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for kind, stem in (("total", "lat"), ("completion", "clat")):
        for key, scale in ((f"{stem}_ns", 1), (stem, 1000)):
            if isinstance(values.get(key), dict):
                found[kind] = values[key] if scale == 1 else _from_microseconds(values[key], where)
                break
    for kind, latency in found.items():
        if latency.get("bins") or latency.get("percentile"):
            return kind, latency
    if "completion" in found and found["completion"].get("N", 1):
        return "completion", found["completion"]
    return "total", found.get("total")


def _from_microseconds(latency: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A 2.x latency object in ns. Its json+ bins are indices into fio's table of microseconds, not durations."""
    scaled: dict[str, Any] = {"N": latency["N"]} if "N" in latency else {}
    for key in ("min", "max", "mean", "stddev"):
        scaled[key] = _number(latency, key, where) * 1000
    for key in ("percentile", "bins"):
        if isinstance(latency.get(key), dict):
            scaled[key] = dict(latency[key])
    if "percentile" in scaled:
        scaled["percentile"] = {key: _as_number(value, where) * 1000 for key, value in scaled["percentile"].items()}
    if "bins" in scaled:
        scaled["bins"] = {of_fio_index(_as_integer(key, where)) * 1000: times for key, times in scaled["bins"].items()}
    return scaled


def _distribution(latency: Mapping[str, Any] | None, where: str) -> tuple[Histogram, tuple[tuple[float, int], ...]]:
    if latency is None:
        return Histogram(grid=64), ()
    counts: dict[int, int] = {}
    bins = latency.get("bins")
    for key, times in bins.items() if isinstance(bins, dict) else ():
        index = of_fio_value(_as_integer(key, where))
        counts[index] = counts.get(index, 0) + _as_integer(times, where)
    buckets = tuple(sorted((index, times) for index, times in counts.items() if times))
    samples = sum(times for _, times in buckets)
    histogram = Histogram(
        buckets=buckets,
        min_ns=round(_number(latency, "min", where)) if samples else None,
        max_ns=round(_number(latency, "max", where)) if samples else None,
        sum_ns=round(_number(latency, "mean", where) * samples),
        grid=64,
    )
    printed = latency.get("percentile")
    pairs = sorted(
        (_as_number(key, where), round(_as_number(value, where)))
        for key, value in (printed.items() if isinstance(printed, dict) else ())
    )
    return histogram, tuple((percent, value) for percent, value in pairs if percent > 0)  # 3.1 pads with "0.00"


def _whole(values: Mapping[str, Any], key: str, where: str) -> int:
    return round(_number(values, key, where))


def _number(values: Mapping[str, Any], key: str, where: str) -> float:
    number = _as_number(values.get(key, 0), f"{where}, {key}")
    if number < 0:
        raise FormatError(f"{where}, {key}: {number:g} in fio's document is less than nothing")
    return number


def _as_number(value: Any, where: str) -> float:
    try:
        number = value if type(value) is int else float(value)
    except (TypeError, ValueError):
        raise FormatError(f"{where}: {repr(value)[:80]} in fio's document is no number") from None
    if not abs(number) < NUMBER_MAX:  # also of what is not a number at all
        raise FormatError(f"{where}: {repr(value)[:80]} in fio's document is no number")
    return number


def _as_integer(value: Any, where: str) -> int:
    number = _as_number(value, where)
    if number != int(number) or number < 0:
        raise FormatError(f"{where}: {repr(value)[:80]} in fio's document is no count")
    return int(number)
