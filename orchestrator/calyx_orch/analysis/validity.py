"""What makes a measurement doubtful: one rule a function, each with a short label, a sentence and a way out.

A doubt never removes a figure; it stands beside it. What cannot be a figure at all has the status `failed` instead.
"""

from __future__ import annotations

from collections.abc import Callable

from calyx_orch.analysis import below, timing
from calyx_orch.analysis.doubt import Context, Doubt, Peers, peers_of, union
from calyx_orch.analysis.histogram import has_enough
from calyx_orch.analysis.timing import GATE_ONLY, SKEW_MAX_NS
from calyx_orch.model import NANOSECONDS, Histogram, Measurement

__all__ = ["GATE_ONLY", "RULES", "SKEW_MAX_NS", "Context", "Doubt", "Peers", "doubts", "peers_of", "union"]

LOST_MAX = 0.02
STEAL_MAX = 0.02
POLLER_MIN = 0.8  # of the window, of a thread that spins
BUSY_MAX_PERCENT = 95.0
REBOOTED = "rebooted"  # the label of a measurement that a resumed run took after its guest was started anew


def doubts(context: Context) -> tuple[Doubt, ...]:
    """All doubts about a measurement, in the order of RULES."""
    return tuple(doubt for rule in RULES if (doubt := rule(context)) is not None)


def lost_time(context: Context) -> Doubt | None:
    """A spin before the round lost more than 2 % of its time: something else had the CPU."""
    lost = context.measurement.lost_time
    if lost is None or lost.spin_ns <= 0 or lost.lost_ns / lost.spin_ns <= LOST_MAX:
        return None
    share = lost.lost_ns / lost.spin_ns
    return Doubt(
        "lost-time",
        f"lost time {100 * share:.0f} %",
        f"before the round {100 * share:.1f} % of a CPU's time was taken away",
        "find what else uses this guest's or its vm_host's CPUs",
        share,
    )


def steal(context: Context) -> Doubt | None:
    """The hypervisor took more than 2 % of the guest's CPU time."""
    cpu = context.measurement.cpu
    if cpu is None or cpu.steal_ns is None or cpu.steal_ns / (cpu.window_ns * cpu.cpus) <= STEAL_MAX:
        return None
    share = cpu.steal_ns / (cpu.window_ns * cpu.cpus)
    return Doubt(
        "steal",
        f"steal {100 * share:.0f} %",
        f"the hypervisor took {100 * share:.1f} % of the guest's CPU time",
        "the vm_host's CPUs are overcommitted",
        share,
    )


def buffers_unregistered(context: Context) -> Doubt | None:
    """The engine could not register its buffers, although it should have."""
    setup = context.measurement.setup
    workload = context.round.workload
    if setup.get("fixed_buffers") is not False or workload.buffers == "plain" or workload.setup == "psync":
        return None
    return Doubt(
        "buffers",
        "buffers not registered",
        str(setup.get("why") or "the engine ran without registered buffers"),
        "raise memlock (ulimit -l) for the user on the guest",
    )


def not_direct(context: Context) -> Doubt | None:
    """The page cache was in the way, although direct I/O was wanted."""
    if not context.round.workload.direct or context.measurement.setup.get("direct") is not False:
        return None
    return Doubt("direct", "not direct", "the I/O went through the page cache", "choose a target that takes O_DIRECT")


def rate_limited(context: Context) -> Doubt | None:
    """`impact` held the rate down: the disk could do more."""
    if not context.round.rate_limited:
        return None
    limit = context.round.workload.rate_iops
    return Doubt("rate", "rate limited", f"`impact` held the rate at {limit} IOPS a job", "raise impact.max_rate")


def io_errors(context: Context) -> Doubt | None:
    """Some I/O failed."""
    measurement = context.measurement
    failed = sum(part.errors for part in (measurement.read, measurement.write, measurement.sync) if part is not None)
    if failed == 0:
        return None
    return Doubt("errors", "I/O errors", f"{failed} I/Os failed", "see the guest's kernel log", failed)


def unfinished(context: Context) -> Doubt | None:
    """Some I/O never came back before the deadline."""
    left = context.measurement.counts.get("unfinished", 0)
    if left == 0:
        return None
    return Doubt("unfinished", "unfinished I/O", f"{left} I/Os never came back", "see the guest's kernel log", left)


def setups_differ(context: Context) -> Doubt | None:
    """The guests of a round ran with different set-ups, so that they do not compare."""
    differing = context.peers.differing
    if not differing:
        return None
    return Doubt(
        "set-ups",
        "set-ups differ",
        f"the guests of the round differ in {', '.join(differing)}",
        "name one set-up in the workload, or use equal kernels and limits",
    )


def guests_missing(context: Context) -> Doubt | None:
    """Some guest of the round failed, so that the others had the storage to themselves."""
    planned = len(context.round.guests)
    measured = context.peers.measured
    if measured >= planned:
        return None
    gone = planned - measured
    return Doubt(
        "missing",
        f"{gone} guest{'s' if gone > 1 else ''} missing",
        f"only {measured} of the {planned} guests of the round were measured",
        "see why the others failed",
        gone,
    )


def started_anew(context: Context) -> Doubt | None:
    """The guest was booted between rounds of one run, which was resumed after it: its hypervisor may have placed it elsewhere."""
    if REBOOTED not in context.measurement.doubts:
        return None
    return Doubt(
        REBOOTED,
        REBOOTED,
        "the guest was started anew while the run was interrupted, so its rounds before and after may differ",
        "compare its rounds before and after, or measure it in one go",
    )


def poller_starved(context: Context) -> Doubt | None:
    """An SQPOLL thread, which spins as long as there is I/O, had its CPU for less than four fifths of the window and did not sleep."""
    cpu, measurement = context.measurement.cpu, context.measurement
    if cpu is None or not measurement.setup.get("sqpoll") or not cpu.pollers or cpu.poller_ns is None:
        return None
    share = cpu.poller_ns / (cpu.window_ns * cpu.pollers)
    asleep = (
        measurement.counts.get("wakeups", 0) * NANOSECONDS > cpu.window_ns
    )  # more than once a second: it had nothing to do
    if share >= POLLER_MIN or asleep:
        return None
    return Doubt(
        "sqpoll",
        "SQPOLL starved",
        f"the kernel thread that submits (SQPOLL) had a CPU for only {100 * share:.0f} % of the window",
        "name another set-up (setup: defer), or give the guest more CPUs",
        1 - share,
    )


def cpu_saturated(context: Context) -> Doubt | None:
    """The guest's CPUs were the limit, not its disk."""
    busy = context.measurement.cpu.busy_percent if context.measurement.cpu is not None else None
    if busy is None or busy <= BUSY_MAX_PERCENT:
        return None
    return Doubt("cpu", "CPU saturated", f"the guest's CPUs were {busy:.0f} % busy", "give the guest more CPUs", busy)


def too_few_samples(context: Context) -> Doubt | None:
    """Fewer than a thousand I/Os: a P99 would be the story of a few, and stays blank."""
    samples = sum(latency.count for latency in _latencies(context.measurement))
    if has_enough(samples, 99.0):
        return None
    return Doubt(
        "samples",
        "few samples",
        f"{samples} I/Os are too few for a P99",
        "use a longer runtime",
        -samples,
    )


def completion_latency(context: Context) -> Doubt | None:
    """Completion latency leaves out submission, so it does not compare with total latency."""
    if context.measurement.latency_kind == "total":
        return None
    return Doubt(
        "latency-kind",
        "completion latency",
        "this fio gives completion latency only, which leaves out the submission",
        "use a fio that knows lat_percentiles (3.14 or later)",
    )


def plateau(context: Context) -> Doubt | None:
    """The rate fell once within the round and stayed down: a burst credit, a cache or a thermal limit was exhausted."""
    found = context.inside
    if found is None or found.fall is None or found.fall_s is None or below.stalled(context) is not None:
        return None
    at_s = found.fall_s + (context.measurement.window_start_ns - context.measurement.start_line_ns) / NANOSECONDS
    lost = 1 - found.fall.after / found.fall.before
    return Doubt(
        "plateau",
        f"fell at {at_s:.0f} s",
        f"{at_s:.0f} s after the start line the rate fell by {100 * lost:.0f} % and stayed there: a cache or credit was exhausted, or the "
        "storage throttles",
        "measure what follows alone (precondition, or a longer ramp_time), or take the figures as those of both",
        lost,
    )


def unsteady(context: Context) -> Doubt | None:
    """Within the round the rate wandered by more than SNIA's window of fifths allows, without one fall."""
    found = context.inside
    if found is None or found.verdict != "not steady" or below.stalled(context) is not None:
        return None
    window = found.fifths
    return Doubt(
        "unsteady",
        "not steady",
        f"over the fifths of the round the rate ranges over {100 * window.range_share:.0f} % of its mean and drifts by "
        f"{100 * window.slope_share:.0f} %; 20 and 10 % are allowed",
        "precondition until steady, or use a longer ramp_time",
        window.range_share,
    )


def _latencies(measurement: Measurement) -> list[Histogram]:
    return [part.latency for part in (measurement.read, measurement.write) if part is not None]


RULES: tuple[Callable[[Context], Doubt | None], ...] = (
    timing.too_short,
    below.stalled,
    timing.overlaps_badly,
    timing.started_off_the_line,
    timing.fio_started_late,
    timing.start_is_unknown,
    lost_time,
    steal,
    below.unwritten,
    below.in_memory,
    below.implausible,
    below.page_cached,
    buffers_unregistered,
    not_direct,
    rate_limited,
    io_errors,
    unfinished,
    setups_differ,
    guests_missing,
    started_anew,
    cpu_saturated,
    too_few_samples,
    completion_latency,
    timing.clock_error,
    timing.window_is_off,
    plateau,
    unsteady,
    poller_starved,
    timing.clock_is_slow,
    below.too_small,
    below.not_idle,
    below.other_vm_host,
    below.moved,
    below.cached_below,
    below.flush_at_once,
    below.compressible,
)
