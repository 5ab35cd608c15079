"""Doubts about time: when a guest began and for how long it ran, whether the others ran with it, and whose clock can be believed."""

from __future__ import annotations

from calyx_orch.analysis.doubt import Context, Doubt
from calyx_orch.model import NANOSECONDS

OVERLAP_MIN = 0.99
SKEW_MAX_NS = 5_000_000
CLOCK_BOUND_MAX_NS = 100_000_000
WINDOW_OFF_MAX = 0.03  # of the planned runtime
UNSTABLE_CLOCKS = frozenset({"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"})
GATE_ONLY = "released"  # `skew_how` of an engine whose gate was seen to open, but not its first I/O


def too_short(context: Context) -> Doubt | None:
    """A ramp below 10 s or a runtime below 60 s."""
    workload = context.round.workload
    if not workload.is_short:
        return None
    return Doubt(
        "short",
        "short",
        f"ramp {workload.ramp_s:g} s and runtime {workload.runtime_s:g} s are too short for true figures",
        "use ramp_time 10s and runtime 60s or more",
    )


def overlaps_badly(context: Context) -> Doubt | None:
    """The guests of the round shared less than 99 % of the longest window."""
    if context.overlap is None or context.overlap >= OVERLAP_MIN:
        return None
    return Doubt(
        "overlap",
        f"overlap {100 * context.overlap:.0f} %",
        f"the guests ran at once for only {100 * context.overlap:.1f} % of the window",
        "see which guest started late or ended early",
        1 - context.overlap,
    )


def started_off_the_line(context: Context) -> Doubt | None:
    """The first I/O of calyx came more than 5 ms from the start line."""
    skew_ns = _late_ns(context)
    if skew_ns is None or context.measurement.engine != "calyx":
        return None
    return Doubt(
        "skew",
        f"skew {skew_ns / 1e6:.1f} ms",
        f"the first I/O came {skew_ns / 1e6:.1f} ms from the start line",
        "see whether the guest's CPUs are overloaded",
        abs(skew_ns),
    )


def fio_started_late(context: Context) -> Doubt | None:
    """The first I/O of fio came more than 5 ms from the start line: what it does between its gate and its first I/O takes that long."""
    skew_ns = _late_ns(context)
    if skew_ns is None or context.measurement.engine == "calyx":
        return None
    return Doubt(
        "fio-start",
        f"fio start {skew_ns / 1e6:.1f} ms",
        "fio's own start-up up to its first I/O, at which its window begins",
        "nothing to mend unless the overlap is bad as well",
        abs(skew_ns),
    )


def start_is_unknown(context: Context) -> Doubt | None:
    """Nothing tells when the first I/O was made: no answer, or only that of the gate that fio waits at."""
    measurement = context.measurement
    if measurement.skew_ns is None:
        return Doubt("start", "start unknown", "nothing tells when the guest began", "see the guest's raw answers", 1.0)
    if measurement.skew_how == GATE_ONLY:
        return Doubt(
            "start",
            "gate only",
            "the gate was seen to open, but not the first I/O: when fio began is not known",
            "see whether the guest's user may read /proc/PID/io",
        )
    return None


def clock_is_slow(context: Context) -> Doubt | None:
    """The kernel reads time from a device: it does not trust the TSC, and each reading costs a trip out of the guest."""
    source = context.facts.get("clocksource")
    if source not in UNSTABLE_CLOCKS:
        return None
    return Doubt(
        "clocksource",
        f"clocksource {source}",
        f"the guest's clock is {source}: its kernel found the TSC unstable or has none, and each reading of the time is slow",
        "see dmesg | grep -i tsc, and which clock the hypervisor offers (kvm-clock, hyperv_clocksource_tsc_page)",
    )


def clock_error(context: Context) -> Doubt | None:
    """The window lies where it cannot be, and the measurement enters no common window; or it is not well known where it lies."""
    measurement = context.measurement
    if measurement.window_ns <= 0:
        return Doubt("clock", "clock error", "the window ends before it begins", "see the clock probes in the journal")
    bound_ns = measurement.skew_bound_ns or 0
    if bound_ns <= CLOCK_BOUND_MAX_NS or measurement.skew_how == GATE_ONLY:
        return None
    return Doubt(
        "clock",
        f"clock ± {bound_ns / 1e6:.0f} ms",
        f"the guest's clock was known to no better than {bound_ns / 1e6:.0f} ms",
        "see whether its clock runs at the right rate (dmesg | grep -i clocksource), or the way to it is that slow",
        bound_ns,
    )


def window_is_off(context: Context) -> Doubt | None:
    """The engine's window was not as long as planned (by more than 3 %)."""
    planned_ns = context.round.workload.runtime_s * NANOSECONDS
    off = abs(context.measurement.window_ns / planned_ns - 1) if planned_ns > 0 else 0.0
    if off <= WINDOW_OFF_MAX or context.measurement.window_ns <= 0:
        return None
    actual_s = context.measurement.window_ns / NANOSECONDS
    return Doubt(
        "runtime",
        f"ran {actual_s:.1f} s",
        f"the engine measured {actual_s:.2f} s instead of {context.round.workload.runtime_s:g} s",
        "see whether the storage stalled",
        off,
    )


def _late_ns(context: Context) -> int | None:
    """The distance of a first I/O that was seen from the start line, when it is more than 5 ms."""
    measurement = context.measurement
    known = measurement.skew_ns if measurement.skew_how != GATE_ONLY else None
    return known if known is not None and abs(known) > SKEW_MAX_NS else None
