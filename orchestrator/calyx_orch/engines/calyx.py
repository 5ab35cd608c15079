"""Our own engine: a round becomes a `run` line, and the `result` document becomes a measurement."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from calyx_orch.engines.answers import (
    ARM_WITHIN_MS,
    Command,
    blank,
    count,
    deadline_ns,
    is_count,
    optional_count,
    parse_object,
    ramp_ns,
    refusal,
    runtime_ns,
)
from calyx_orch.errors import FormatError
from calyx_orch.model import Answers, Direction, Guest, Histogram, Measurement, Round, Series, Workload

BUCKETS = 4480  # CALYX_HISTOGRAM_BUCKETS
RESULT = "the result document"
ERRNO_MAX = 4095  # as in the kernel


def command(
    round_: Round, *, paths: tuple[str, ...], data_seed: int, ramp_extra_ns: int = 0, device: bool = False
) -> Command:
    """The `run` line of docs/protocol.md for this round on the files `paths`, one a job, or on the raw `device` that they are."""
    workload = round_.workload
    pairs: list[tuple[str, str | int]] = [("path", path) for path in paths]
    pairs += [
        ("rw", str(workload.rw)),
        ("bs", workload.bs_bytes),
        ("iodepth", workload.iodepth),
        ("size", workload.size_bytes),
        ("ramp_ns", ramp_ns(round_)),
        ("runtime_ns", runtime_ns(round_)),
        ("rwmixread", workload.rwmixread),
        ("rate_iops", workload.rate_iops or 0),
        ("direct", int(workload.direct)),
        ("fsync", workload.fsync),
        ("seed", round_.seed),
        ("data_seed", data_seed),
        ("interval_ns", workload.interval_ms * 1_000_000),
        ("setup", workload.setup),
        ("refill", "each" if workload.refill == "auto" else workload.refill),
        ("buffers", workload.buffers),
        ("deadline_ns", deadline_ns(round_, ramp_extra_ns)),
        ("arm_within_ms", ARM_WITHIN_MS),
        *_further(workload),
    ]
    if ramp_extra_ns:
        pairs.append(("ramp_extra_ns", ramp_extra_ns))
    if device:
        pairs.append(("devices", 1))
    return Command("run", tuple(pairs))


def _further(workload: Workload) -> list[tuple[str, str | int]]:
    """The keys that are sent only where they say something: an older agent knows none of them."""
    sides = (workload.bssplit, workload.bssplit_write)
    split, split_write = (":".join(f"{size}/{percent}" for size, percent in side) for side in sides)
    said: tuple[tuple[str, str | int | None, bool], ...] = (
        ("bssplit", split, bool(split)),
        ("bssplit_write", split_write, bool(split_write)),
        ("offset", workload.offset_bytes, workload.offset_bytes > 0),
        ("rate", workload.rate_bytes_per_s, workload.rate_bytes_per_s is not None),
        ("arrival", workload.arrival, workload.is_open_loop),
        ("random_distribution", workload.random_distribution, workload.random_distribution != "random"),
        ("fdatasync", workload.fdatasync, workload.fdatasync > 0),
        ("sync", 1, workload.sync),
        ("end_fsync", 1, workload.end_fsync),
        ("buffer_compress_percentage", workload.buffer_compress_percentage, workload.buffer_compress_percentage > 0),
        ("dedupe_percentage", workload.dedupe_percentage, workload.dedupe_percentage > 0),
        ("verify", workload.verify, workload.verify is not None),
        ("thinktime_us", workload.thinktime_us, workload.thinktime_us > 0),
        ("thinktime_blocks", workload.thinktime_blocks, workload.thinktime_us > 0),
        ("cpus_allowed", workload.cpus_allowed, workload.cpus_allowed is not None),
        ("iopoll", 1, workload.iopoll),
        ("numa", workload.numa, workload.numa is not None),
        ("huge", 1, workload.huge_pages),
    )
    return [(key, value) for key, value, is_said in said if is_said and value is not None]


def measure(round_: Round, guest: Guest, answers: Answers) -> Measurement:
    """The guest's answers as a measurement; raises FormatError when they make no sense."""
    measurement = blank(round_, guest, answers)
    ended = answers.messages.get("result", {})
    status, why = str(ended.get("status", "failed")), str(ended.get("why") or "")
    refused = refusal(answers)
    if refused is not None:
        return replace(measurement, why=refused)
    text = answers.documents.get("result", "")
    if not text:
        status = "stopped" if status == "stopped" else "failed"
        return replace(measurement, status=status, why=why or "the guest sent no result")
    document = parse_object(text, RESULT)
    measurement = _with_numbers(measurement, document, answers, deadline_ns(round_))
    failures = _failures(document)
    if status == "ok" and failures:
        status, why = "failed", failures
    if status not in ("ok", "stopped", "failed"):
        raise FormatError(f"the message `result` has the unknown status {status!r}")
    if status != "ok" and not why:
        why = failures or f"the engine ended as {status}"
    return replace(measurement, status=status, why=why)


def _with_numbers(
    measurement: Measurement, document: Mapping[str, Any], answers: Answers, longest_ns: int
) -> Measurement:
    offset_ns = answers.clock.offset_ns
    setup = document.get("setup")
    counts = document.get("counts")
    setup = dict(setup) if isinstance(setup, dict) else {}
    counts = counts if isinstance(counts, dict) else {}
    start_ns, end_ns = (count(document, key, RESULT) for key in ("window_start_ns", "window_end_ns"))
    if not 0 <= end_ns - start_ns <= longest_ns:
        raise FormatError(
            f"{RESULT} tells of a window of {(end_ns - start_ns) / 1e9:g} s, which the round did not have"
        )
    return replace(
        measurement,
        window_start_ns=start_ns - offset_ns,
        window_end_ns=end_ns - offset_ns,
        read=_direction(document, "read"),
        write=_direction(document, "write"),
        sync=_direction(document, "sync"),
        series=_series(document, longest_ns),
        setup=setup | {key: document[key] for key in ("seed", "data_seed") if type(document.get(key)) is int},
        counts={key: value for key, value in counts.items() if is_count(value)},
        notes=(str(setup["why"]),) if setup.get("why") else (),
        latency_kind="total",
        verify=_object(document, "verify"),
        clock=_object(document, "clock"),
    )


def _object(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _direction(document: Mapping[str, Any], name: str) -> Direction | None:
    """`read`, `write` or `sync` of the document; None where nothing of it was done or tried."""
    values = document.get(name)
    if values is None:
        return None
    where = f"`{name}` of {RESULT}"
    if not isinstance(values, dict):
        raise FormatError(f"{where} is no object")
    intended = values.get("latency_intended")
    direction = Direction(
        ios=count(values, "ios", where),
        bytes=count(values, "bytes", where),
        latency=_histogram(values.get("latency"), where),
        errors=optional_count(values, "errors", where) or 0,
        latency_intended=_histogram(intended, f"the intended latency in {where}")
        if isinstance(intended, dict)
        else None,
        late=optional_count(values, "late", where) or 0,
    )
    return direction if direction.ios or direction.errors else None


def _histogram(values: Any, where: str) -> Histogram:
    if not isinstance(values, dict) or not isinstance(values.get("buckets"), list):
        raise FormatError(f"{where} has no latency buckets")
    buckets: list[tuple[int, int]] = []
    last = -1
    for pair in values["buckets"]:
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(number) is int for number in pair)):
            raise FormatError(f"{where} has a bucket {pair!r}, which is no pair of integers")
        index, samples = pair
        if not last < index < BUCKETS or samples <= 0 or not is_count(samples):
            raise FormatError(f"{where} has the bucket {index} with {samples} samples: not ascending, or out of range")
        buckets.append((index, samples))
        last = index
    return Histogram(
        buckets=tuple(buckets),
        min_ns=optional_count(values, "min_ns", where) if buckets else None,
        max_ns=optional_count(values, "max_ns", where) if buckets else None,
        sum_ns=optional_count(values, "sum_ns", where) or 0,
        overflow=optional_count(values, "overflow", where) or 0,
        grid=128,
    )


def _series(document: Mapping[str, Any], longest_ns: int) -> Series | None:
    values = document.get("series")
    if not isinstance(values, dict):
        return None
    where = f"the series of {RESULT}"
    interval_ns = count(values, "interval_ns", where)
    columns: list[tuple[float, ...]] = []
    for key in ("read_ios", "read_bytes", "write_ios", "write_bytes"):
        column = values.get(key)
        if not isinstance(column, list) or not all(map(is_count, column)):
            raise FormatError(f"{where} has no list of counts {key}")
        columns.append(tuple(float(number) for number in column))
    if interval_ns == 0 or len({len(column) for column in columns}) != 1:
        raise FormatError(f"{where} has columns of different lengths or no interval")
    if (len(columns[0]) - 1) * interval_ns > longest_ns:
        raise FormatError(f"{where} is longer than the round could last")
    return Series(interval_ns, *columns)


def _failures(document: Mapping[str, Any]) -> str:
    """Failed I/O in words (`3 reads failed: EIO (Input/output error), first at byte 4096`); empty without any."""
    sentences = []
    errors = document.get("errors")
    for entry in errors if isinstance(errors, list) else ():
        where = f"an error of {RESULT}"
        if not isinstance(entry, dict):
            raise FormatError(f"{where} is no object")
        number, times = count(entry, "errno", where), count(entry, "count", where)
        sentences.append(
            f"{times} {entry.get('op', 'I/O')}{'s' if times != 1 else ''} failed: "
            f"{errno.errorcode.get(number, str(number))} ({os.strerror(min(number, ERRNO_MAX))}), "
            f"first at byte {optional_count(entry, 'first_offset', where) or 0}"
        )
    return "; ".join([*sentences, *_read_back_wrong(document)])


def _read_back_wrong(document: Mapping[str, Any]) -> list[str]:
    """Blocks that read back wrong, the first of them by offset: data that is not what was written fails the round."""
    verify = _object(document, "verify")
    bad = optional_count(verify, "bad", f"`verify` of {RESULT}") or 0
    if not bad:
        return []
    told = verify.get("first_bad")
    first = [entry for entry in told if isinstance(entry, dict)] if isinstance(told, list) else []
    where = ", ".join(f"byte {one.get('offset')} of {one.get('path')} ({one.get('why')})" for one in first[:3])
    return [f"{bad} blocks read back wrong" + (f", first at {where}" if where else "")]
