"""What fio prints, read robustly: its JSON among other lines, its interval logs, its version and its list of engines.

`read_output` never raises: whatever a fio of any version, or a dying one, left behind becomes a FioOutput with a status
and a sentence. Units are decided by the keys (`lat_ns` or `lat`, `io_kbytes`, `bw_bytes`), then by the version.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from calyx_orch.engines.buckets import of_fio_index, of_fio_value
from calyx_orch.engines.fio_versions import FioVersion, fio_facts, fio_lacks, parse_version
from calyx_orch.errors import FormatError
from calyx_orch.model import Histogram

__all__ = [
    "FioDirection",
    "FioJob",
    "FioOutput",
    "FioVersion",
    "LogLine",
    "fio_facts",
    "fio_lacks",
    "parse_log",
    "parse_version",
    "read_output",
]

PRERUN = "Saving output of prerun in"  # what each job says of its `exec_prerun`
VERIFY_ERRNO = 84  # EILSEQ: fio's word for data that is not what was written
ERRNO_MAX = 4095  # as in the kernel
ALL_CLIENTS = "All clients"  # the entry of a client run that repeats the sum of the others

NUMBER_MAX = float(1 << 63)  # of all that fio counts or measures
BROKEN_MAX = (
    100  # objects that begin and are none, before the rest is taken as cut: each costs a reading of all that follows
)

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_DOCUMENT_START = re.compile(r'\{\s*"fio version"')
_KILLED = re.compile(r"pid=\d+, got signal=(\d+)")
_ERROR_LINE = re.compile(r"\berr=\s*(\d+)/")
_LOG_NUMBER = re.compile(r"-?[0-9]{1,18}\Z")
_CLIENT_LINE = re.compile(r"^hostname=([^,\s]+),")


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

    @property
    def total_ios(self) -> int:
        """I/Os of both directions; from `mixed` only where fio gave nothing else."""
        parts = [part for part in (self.read, self.write) if part is not None]
        return sum(part.ios for part in parts) if parts else (self.mixed.ios if self.mixed else 0)


@dataclass(frozen=True)
class FioOutput:
    """All that one fio left: `ok`, `partial` (cut; the last whole document is shown) or `failed`, and why in words.

    Only `ok` may enter an aggregate or a baseline. `messages` are the lines around the documents. `interval_ios` are
    the differences of cumulative documents (--status-interval), the last of which is the result.
    """

    status: str
    why: str = ""
    errno: int | None = None
    version: FioVersion | None = None
    jobs: tuple[FioJob, ...] = ()
    failed_jobs: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    documents: int = 0
    interval_ios: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    missing_hosts: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)  # those given to all jobs, as fio understood them

    @property
    def total_ios(self) -> int:
        """I/Os of all jobs."""
        return sum(job.total_ios for job in self.jobs)


@dataclass
class _Found:
    documents: list[dict[str, Any]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    cut: bool = False


def read_output(stdout: str, stderr: str = "", exit_status: int = 0) -> FioOutput:
    """Reads fio's stdout (or its --output file) with its stderr and exit status. Never raises."""
    found = _find_documents(stdout)
    messages = (*found.messages, *(line for line in stderr.splitlines() if line.strip()))
    try:
        readings = [_jobs(document) for document in found.documents]
    except FormatError as error:
        return FioOutput("failed", str(error), messages=messages, documents=len(found.documents))
    if not readings:
        return _without_document(found, messages, exit_status)
    jobs = readings[-1]
    totals = [sum(job.total_ios for job in reading) for reading in readings]
    hosts = tuple(dict.fromkeys(job.host for job in jobs if job.host is not None))
    announced = [match[1] for line in messages if (match := _CLIENT_LINE.match(line))]
    missing = tuple(name for name in dict.fromkeys(announced) if name not in hosts)
    number = next((job.error for job in jobs if job.error), None) or _errno_of(messages)
    status, why = _judge(found, jobs, messages, exit_status, number, missing)
    return FioOutput(
        status=status,
        why=why,
        errno=number,
        version=parse_version(str(found.documents[-1].get("fio version", ""))),
        jobs=jobs,
        failed_jobs=tuple(job.name for job in jobs if job.error),
        messages=messages,
        documents=len(readings),
        interval_ios=tuple(after - before for before, after in zip([0, *totals], totals, strict=False)),
        hosts=hosts,
        missing_hosts=missing,
        options=_options(found.documents[-1]),
    )


@dataclass(frozen=True)
class LogLine:
    """One line of a bandwidth (KiB/s) or IOPS log: `end_ms` since the window's start, direction 0 read, 1 write."""

    end_ms: int
    value: int
    direction: int


def parse_log(text: str, name: str) -> tuple[LogLine, ...]:
    """The lines of one of fio's logs. Columns beyond the fourth are ignored; FormatError names a line that is none."""
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        fields = [part.strip() for part in line.split(",")]
        if len(fields) < 4:
            raise FormatError(f"{name}:{number}: {len(fields)} columns where a log of fio has at least 4")
        if not all(_LOG_NUMBER.match(part) for part in fields[:3]):
            raise FormatError(f"{name}:{number}: {line[:80]!r} is no line of a log of fio")
        lines.append(LogLine(int(fields[0]), int(fields[1]), int(fields[2])))
    return tuple(lines)


# --- finding documents -------------------------------------------------------------------------------------------


def _find_documents(text: str) -> _Found:
    """Every object with `fio version` and jobs, and the lines around them; `cut` when one begins and does not end."""
    found = _Found()
    decoder = json.JSONDecoder()
    text = _SURROGATE.sub("\\\\ufffd", text)  # half a character is none; fio writes no whole one so
    position = outside = broken = 0
    while (position := text.find("{", position)) >= 0:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            broken += 1
            if _DOCUMENT_START.match(text, position) or broken > BROKEN_MAX:
                found.cut = True
                break
            position += 1
            continue
        if isinstance(value, dict) and "fio version" in value and ("jobs" in value or "client_stats" in value):
            found.messages += _lines(text[outside:position])
            found.documents.append(value)
            outside = end
        position = end
    found.messages += _lines(text[outside : position if found.cut else len(text)])
    return found


def _lines(text: str) -> Iterator[str]:
    return (line.rstrip() for line in text.splitlines() if line.strip())


def _without_document(found: _Found, messages: tuple[str, ...], exit_status: int) -> FioOutput:
    if found.cut:
        why = "fio's output ends in the middle of its document"
    elif messages:
        why = "fio gave no result: " + "; ".join(line.removeprefix("fio: ") for line in messages[-3:])
    else:
        why = "no output"
    if exit_status:
        why += f" (exit status {exit_status})"
    return FioOutput("failed", why, errno=_errno_of(messages), messages=messages)


# --- judging -----------------------------------------------------------------------------------------------------


def _judge(
    found: _Found,
    jobs: tuple[FioJob, ...],
    messages: tuple[str, ...],
    exit_status: int,
    number: int | None,
    missing: tuple[str, ...],
) -> tuple[str, str]:
    """Status and reason. When a worker was killed, fio 3.33 answers exit status 0 and error 0: stderr decides."""
    killed = next((match[1] for line in messages if (match := _KILLED.search(line))), None)
    if killed is not None:
        return "failed", f"worker killed by signal {killed}"
    if number is not None:
        names = ", ".join(job.name for job in jobs if job.error)
        return "failed", _errno_sentence(number) + (f" in {names}" if names else "")
    if missing:
        return "failed", f"no result of {', '.join(missing)}"
    if found.cut:
        return "partial", "fio's output ends in the middle of a document; the last whole one is shown"
    if exit_status:
        return "failed", f"fio ended with exit status {exit_status}{_last_words(messages)}"
    if not jobs:
        return "failed", "fio's document has no job"
    return "ok", ""


def _last_words(messages: tuple[str, ...]) -> str:
    """The last line around the document that is fio's own and says more than where a prerun's output is."""
    own = [line.strip() for line in messages if PRERUN not in line and not line.strip().isdecimal()]
    return f": {own[-1].removeprefix('fio: ')}" if own else ""


def _errno_sentence(number: int) -> str:
    if number == VERIFY_ERRNO:
        return "data verification failed (EILSEQ)"
    return f"{errno.errorcode.get(number, f'errno {number}')} ({os.strerror(min(abs(number), ERRNO_MAX))})"


def _errno_of(messages: tuple[str, ...]) -> int | None:
    """The error number of the first `fio: pid=.., err=N/..` line, else None."""
    numbers = (
        int(match[1][:9]) for line in messages if line.startswith("fio: ") and (match := _ERROR_LINE.search(line))
    )
    return next((number for number in numbers if number), None)


# --- the document ------------------------------------------------------------------------------------------------


def _jobs(document: Mapping[str, Any]) -> tuple[FioJob, ...]:
    entries = document.get("jobs", document.get("client_stats"))
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise FormatError("fio's document has no list of jobs")
    version = parse_version(str(document.get("fio version", "")))
    return tuple(_job(entry, version) for entry in entries if entry.get("jobname") != ALL_CLIENTS)


def _options(document: Mapping[str, Any]) -> dict[str, str]:
    given = document.get("global options")
    return {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}


def _job(entry: Mapping[str, Any], version: FioVersion | None) -> FioJob:
    name = str(entry.get("jobname", "?"))
    ways = [key for key in ("read", "write", "mixed") if key in entry]
    parts = {key: _direction(entry[key], version, f"job {name}, {key}") for key in ways}
    sync = _direction(entry["sync"], version, f"job {name}, sync") if "sync" in entry else None
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
