"""fio as a baseline, fair by construction: the same files, ramp, start line and set-up as calyx, and total latency.

fio is started early and held before its first I/O by `exec_prerun`, in every job, until the agent opens the gate. What
its options do was seen with fio 3.33: the interval logs count from the end of the ramp, in KiB/s and IOPS; an interval
without I/O has no line; the first may be longer and the last, if not whole, is missing; `rate_iops` is per direction.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calyx_orch.engines import fio_options
from calyx_orch.engines.answers import (
    ARM_WITHIN_MS,
    READY_WITHIN_S,
    Command,
    blank,
    deadline_ns,
    optional_count,
    ramp_ns,
    raw_device,
    refusal,
    runtime_ns,
)
from calyx_orch.engines.buckets import BUCKETS
from calyx_orch.engines.fio_documents import PRERUN, FioDirection, FioOutput, LogLine, parse_log, read_output
from calyx_orch.errors import FormatError
from calyx_orch.model import Answers, Direction, Guest, Histogram, LoadMode, Measurement, Round, Series, Workload

LOG = "calyx"  # stem of the interval logs in the agent's work directory
STEADY_CLOCKS = ("tsc", "hyperv_clocksource_tsc_page")  # where fio may read the time stamp counter itself
NOTES_MAX = 20
RUNTIME_SHORTFALL = 0.9  # a job that ran less than this of its runtime did not run to its end


def command(
    round_: Round,
    *,
    ioengine: str,
    paths: tuple[str, ...],
    data_seed: int,
    taken: Mapping[str, Any],
    facts: Mapping[str, Any],
    hello: Mapping[str, Any],
    fio_path: str,
    ramp_extra_ns: int = 0,
) -> Command:
    """The held `exec` line that makes fio wait at the gate, once a job, and collects its interval logs."""
    workload = round_.workload
    ramp = ramp_ns(round_) + ramp_extra_ns
    arguments = [
        *fio_options.environment(taken),
        fio_path,
        "--output-format=json+",
        "--eta=never",
        "--name=global",
        "--thread",
        f"--ioengine={ioengine}",
        *fio_options.pattern(workload),
        *(("--allow_mounted_write=0",) if raw_device(facts, round_.target) is not None else ()),
        f"--ramp_time={ramp // 1000}us",
        f"--runtime={runtime_ns(round_) // 1000}us",
        f"--randseed={_seed(round_, data_seed)}",
        *fio_options.set_up(workload, taken, ioengine),
        "--lat_percentiles=1",
        "--clat_percentiles=0",
        "--disable_slat=1",  # the parts of total latency are not asked for: 40 ns an I/O that fio is spared
        "--disable_clat=1",
        f"--write_bw_log={LOG}",
        f"--write_iops_log={LOG}",
        f"--log_avg_msec={workload.interval_ms}",
        *(() if facts.get("clocksource") in STEADY_CLOCKS else ("--clocksource=clock_gettime",)),
        f"--exec_prerun={_waiter(hello)}",
    ]
    for number, path in enumerate(paths):
        arguments += [f"--name=job{number}", file_option(path)]
    pairs: list[tuple[str, str | int]] = [("hold", len(paths))]
    pairs += [("arg", argument) for argument in arguments]
    pairs += [("ramp_ns", ramp), ("runtime_ns", runtime_ns(round_))]
    pairs += [("collect", name) for number in range(1, len(paths) + 1) for name in _logs(number)]
    pairs.append(("deadline_ns", deadline_ns(round_, ramp_extra_ns)))
    device = raw_device(facts, round_.target)
    if device is not None:
        pairs.append(("device", device))
    pairs += [("timeout_ms", int(READY_WITHIN_S * 1000)), ("arm_within_ms", ARM_WITHIN_MS)]
    return Command("exec", tuple(pairs))


def file_option(path: str) -> str:
    """The option that makes fio use exactly this one file.

    `filename` splits at colons that are not escaped (a backslash means something only in front of one) and ends at `;` or
    `#`; a path with one of these goes as `filename_format`, which fio takes as it is but for `$jobname` and the like.
    """
    if ";" in path or "#" in path:
        return f"--filename_format={path}"
    return "--filename=" + path.replace(":", "\\:")


def measure(round_: Round, guest: Guest, answers: Answers) -> Measurement:
    """The guest's answers as a measurement; raises FormatError when they make no sense."""
    measurement = blank(round_, guest, answers)
    refused = refusal(answers)
    if refused is not None:
        return replace(measurement, why=refused)
    exited = answers.messages.get("exited")
    if exited is None:
        return replace(measurement, why="the guest sent no end of fio")
    exit_status = 0 if _was_stopped(exited) else optional_count(exited, "status", "the message `exited`") or 0
    stderr = answers.documents.get("stderr", "")
    output = read_output(answers.documents.get("stdout", ""), stderr, exit_status)
    status, why = _verdict(round_, output, exited)
    if not output.jobs:
        return replace(measurement, status=status, why=why, notes=_notes(output))
    return replace(_with_numbers(measurement, round_, output, answers), status=status, why=why, notes=_notes(output))


# --- the command -------------------------------------------------------------------------------------------------


def _seed(round_: Round, data_seed: int) -> int:
    """From one seed fio draws offsets and data. What writes must differ by guest and round, so both of ours go in."""
    seed = round_.seed
    if round_.workload.rw.writes:
        seed ^= (data_seed * 0x9E3779B97F4A7C15) & (2**64 - 1)
    return (seed & (2**62 - 1)) or 1


def _waiter(hello: Mapping[str, Any]) -> str:
    """The command that fio gives to `sh` in each job before its I/O; `exec`, so that no shell stays in between."""
    return f"exec {shlex.quote(str(hello['path']))} wait {shlex.quote('gate=' + str(hello['work']) + '/gate')}"


def _logs(number: int) -> tuple[str, str]:
    """The names by fio of the two interval logs of the job `number` (from 1)."""
    return f"{LOG}_bw.{number}.log", f"{LOG}_iops.{number}.log"


# --- the answers -------------------------------------------------------------------------------------------------


def _verdict(round_: Round, output: FioOutput, exited: Mapping[str, Any]) -> tuple[str, str]:
    """Status and reason; exit status and fio's own error are not trusted alone."""
    if exited.get("timed_out"):
        return "failed", f"fio ran past its deadline: {exited.get('why') or 'it was ended'}"
    if _was_stopped(exited):
        return "stopped", str(exited.get("why") or "fio was stopped")
    signal = exited.get("signal")
    if signal:
        return "failed", f"fio was ended by signal {signal}"
    if exited.get("why"):
        return "failed", str(exited["why"])
    if output.status != "ok":
        return "failed", output.why
    wanted_ms = runtime_ns(round_) / 1_000_000
    short = [job for job in output.jobs if job.runtime_ms < RUNTIME_SHORTFALL * wanted_ms]
    if short:
        return "failed", f"fio's {short[0].name} ran {short[0].runtime_ms} ms of {wanted_ms:.0f} ms"
    return "ok", ""


def _was_stopped(exited: Mapping[str, Any]) -> bool:
    return exited.get("stopped") is True or exited.get("status") == "stopped"


def _notes(output: FioOutput) -> tuple[str, ...]:
    """What fio said besides its result, without the word that each job has about its `exec_prerun`."""
    return tuple(line for line in output.messages if PRERUN not in line)[:NOTES_MAX]


def _with_numbers(measurement: Measurement, round_: Round, output: FioOutput, answers: Answers) -> Measurement:
    """The window of fio begins with its first I/O plus the ramp; where that was not seen, with the gate plus the ramp."""
    began_ns = measurement.started_ns if measurement.started_ns is not None else measurement.start_line_ns
    ramp = _ramp_of(round_, answers)
    window_ns = max(job.runtime_ms for job in output.jobs) * 1_000_000
    if window_ns > deadline_ns(round_):
        raise FormatError(f"fio's document tells of {window_ns / 1e9:g} s, longer than the round could last")
    read = _sum([job.read for job in output.jobs])
    write = _sum([job.trim if round_.workload.rw.trims else job.write for job in output.jobs])
    kinds = {
        part.latency_kind
        for job in output.jobs
        for part in (job.read, job.write, job.mixed, job.trim)
        if part is not None and part.samples
    }
    return replace(
        measurement,
        window_start_ns=began_ns + ramp,
        window_end_ns=began_ns + ramp + window_ns,
        read=read,
        write=write,
        sync=_sum([job.sync for job in output.jobs]),
        series=_series(round_.workload, answers.documents, len(output.jobs), window_ns, read, write),
        setup=_taken(output),
        latency_kind="completion" if "completion" in kinds else "total",
    )


def _taken(output: FioOutput) -> dict[str, Any]:
    """What fio ran with, in the words of our own set-up; registration and polling are questions to io_uring only."""
    given = output.options
    setup: dict[str, Any] = {"fio_version": str(output.version) if output.version else None}
    if given.get("ioengine") == "io_uring":
        for name, option in (
            ("fixed_buffers", "fixedbufs"),
            ("fixed_files", "registerfiles"),
            ("sqpoll", "sqthread_poll"),
            ("iopoll", "hipri"),
        ):
            setup[name] = given.get(option) == "1"
    seed = given.get("randseed", "")
    return setup | ({"seed": int(seed)} if seed.isdecimal() and len(seed) <= 20 else {})


def _ramp_of(round_: Round, answers: Answers) -> int:
    """The ramp that fio had in ns. In a staggered round it was lengthened: then the agent's CPU window tells by how much."""
    usage = answers.messages.get("usage")
    if round_.load is not LoadMode.STAGGERED or usage is None:
        return ramp_ns(round_)
    start_ns = optional_count(usage, "window_start_ns", "the message `usage`") or 0
    return max(start_ns - answers.held_start_ns, ramp_ns(round_))


def _sum(parts: Sequence[FioDirection | None]) -> Direction | None:
    """Several jobs' directions as one; None where nothing was done."""
    present = [part for part in parts if part is not None and part.ios]
    if not present:
        return None
    counts = [0] * BUCKETS
    for part in present:
        for index, times in part.latency.buckets:
            counts[index] += times
    lows = [part.latency.min_ns for part in present if part.latency.min_ns is not None]
    highs = [part.latency.max_ns for part in present if part.latency.max_ns is not None]
    return Direction(
        ios=sum(part.ios for part in present),
        bytes=sum(part.bytes for part in present),
        latency=Histogram(
            buckets=tuple((index, times) for index, times in enumerate(counts) if times),
            min_ns=min(lows, default=None),
            max_ns=max(highs, default=None),
            sum_ns=sum(part.latency.sum_ns for part in present),
            grid=64,
        ),
    )


# --- the interval series -----------------------------------------------------------------------------------------


def _series(
    workload: Workload,
    documents: Mapping[str, str],
    jobs: int,
    window_ns: int,
    read: Direction | None,
    write: Direction | None,
) -> Series | None:
    """The interval logs of all jobs as counts per interval; None where the guest sent no log."""
    names = [_logs(number) for number in range(1, jobs + 1)]
    if not any(name in documents for pair in names for name in pair):
        return None
    rates = [parse_log(documents.get(bandwidth, ""), bandwidth) for bandwidth, _ in names]
    iops = [parse_log(documents.get(name, ""), name) for _, name in names]
    interval_ms, window_ms = workload.interval_ms, window_ns / 1_000_000
    done = [(part.ios, part.bytes) if part is not None else (0, 0) for part in (read, write)]
    ways = (0, 2 if workload.rw.trims else 1)  # as fio numbers them in its logs
    read_ios, write_ios = (
        _spread(iops, way, interval_ms, window_ms, 0.001, of[0]) for way, of in zip(ways, done, strict=True)
    )
    read_bytes, write_bytes = (
        _spread(rates, way, interval_ms, window_ms, 1.024, of[1]) for way, of in zip(ways, done, strict=True)
    )
    return Series(interval_ms * 1_000_000, read_ios, read_bytes, write_ios, write_bytes)


def _spread(
    logs: Sequence[Sequence[LogLine]], direction: int, interval_ms: int, window_ms: float, per_ms: float, total: int
) -> tuple[float, ...]:
    """Amounts per interval of one direction: rates over their time, the rest where no line covers it, summing to `total`."""
    whole, rest = divmod(window_ms, interval_ms)
    amounts = [0.0] * max(int(whole) + (rest > interval_ms * 0.05), 1)
    covered_ms = window_ms
    for log in logs:
        begins = _begins(log, interval_ms)
        for line in log:
            if line.direction == direction:
                _add(amounts, interval_ms, begins[line.end_ms], line.end_ms, line.value * per_ms)
        covered_ms = min(covered_ms, max(begins, default=0))
    missing = total - sum(amounts)
    if missing > 0 and window_ms - covered_ms > interval_ms * 0.05:
        _add(amounts, interval_ms, covered_ms, window_ms, missing / (window_ms - covered_ms))
    logged = sum(amounts)
    if logged == 0:
        return (total / len(amounts),) * len(amounts)  # the log has nothing of it: only the mean is known
    return tuple(amount * total / logged for amount in amounts)


def _begins(log: Sequence[LogLine], interval_ms: int) -> dict[int, float]:
    """When the time began that the lines ending at each instant tell of.

    That is the end before it; after a gap only one interval, since fio leaves idle intervals out. The first reaches
    back to the window's start, as it may be up to two and a half intervals long.
    """
    begins: dict[int, float] = {}
    before: int | None = None
    for end in sorted({line.end_ms for line in log}):  # reads and writes of one interval end at the same instant
        if before is None:
            begins[end] = 0 if end <= 3 * interval_ms else end - interval_ms
        else:
            begins[end] = before if end - before <= 1.5 * interval_ms else end - interval_ms
        before = end
    return begins


def _add(amounts: list[float], interval_ms: int, begin_ms: float, end_ms: float, per_ms: float) -> None:
    """Adds a constant rate over a time to the intervals it touches; what lies beyond the last goes into the last."""
    while begin_ms < end_ms:
        at = min(int(begin_ms // interval_ms), len(amounts) - 1)
        edge = end_ms if at == len(amounts) - 1 else min((at + 1) * interval_ms, end_ms)
        amounts[at] += (edge - begin_ms) * per_ms
        begin_ms = edge
