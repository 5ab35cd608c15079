"""What both engines share: a command as data, and what they read alike from a guest's answers (clock, CPU, words)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from calyx_agent.protocol import parse_json
from calyx_orch.errors import FormatError
from calyx_orch.model import NANOSECONDS, Answers, CpuUse, Guest, Measurement, Round

GRACE_NS = 10 * NANOSECONDS
READY_WITHIN_S = 60.0  # how long a round waits for its slowest guest
ARM_WITHIN_MS = 75_000  # how long a guest that is ready waits for the start line: a little longer than that
IDLE_GRAIN_NS = 30_000_000  # three fields of /proc/stat in ticks of 10 ms, each cut off at both ends of the window
COUNT_MAX = (1 << 63) - 1  # of what may be summed, subtracted and drawn
SENTENCE_MAX_CHARACTERS = 1000


@dataclass(frozen=True)
class Command:
    """One line of docs/protocol.md before its encoding: the verb and its pairs in order; a repeated key is a list."""

    verb: str
    pairs: tuple[tuple[str, str | int], ...]


def ramp_ns(round_: Round) -> int:
    """The workload's ramp in nanoseconds."""
    return round(round_.workload.ramp_s * NANOSECONDS)


def runtime_ns(round_: Round) -> int:
    """The workload's runtime in nanoseconds."""
    return round(round_.workload.runtime_s * NANOSECONDS)


def deadline_ns(round_: Round, ramp_extra_ns: int = 0) -> int:
    """How long after the start line a round may last before the guest ends it: ramp + runtime + grace.

    The grace is 10 s or a twentieth of the runtime, the longer: fio may overrun by some percent, but not by 20 s in a
    minute.
    """
    return ramp_ns(round_) + ramp_extra_ns + runtime_ns(round_) + max(GRACE_NS, runtime_ns(round_) // 20)


POLLER = "iou-sqp"  # the kernel's name of SQPOLL threads
NOT_IDLE = "device not idle"  # the label of a measurement before which the device did not settle


def unmeasured(round_: Round, guest: Guest, why: str = "") -> Measurement:
    """A failed measurement: who and what it is of, and why it is none."""
    return Measurement(
        guest=guest.name,
        round_index=round_.index,
        block=round_.block,
        workload=round_.workload.name,
        target=round_.target,
        engine=round_.engine,
        load=round_.load_name,
        status="failed",
        why=why,
        vm_host=guest.vm_host,
        storage=guest.storage,
    )


def blank(round_: Round, guest: Guest, answers: Answers) -> Measurement:
    """A measurement with all that is known without the engine's own documents: identity, start line, skew and CPU.

    Raises FormatError when the agent's messages make no sense.
    """
    line_ns = answers.start_line_ns
    if line_ns is None:
        line_ns = answers.held_start_ns - answers.clock.offset_ns
    measurement = replace(
        unmeasured(round_, guest),
        start_line_ns=line_ns,
        cpu=cpu_use(answers.messages.get("usage")),
        lost_time=answers.lost_time,
        doubts=(NOT_IDLE,) if answers.messages.get("settled", {}).get("idle") is False else (),
    )
    started = answers.messages.get("started")
    now_ns = optional_count(started, "now_ns", "the message `started`") if started else None
    if started is None or not now_ns:
        return measurement
    started_ns = now_ns - answers.clock.offset_ns
    bound_ns = optional_count(started, "bound_ns", "the message `started`") or 0
    return replace(
        measurement,
        started_ns=started_ns,
        skew_ns=started_ns - line_ns,
        skew_bound_ns=bound_ns + answers.clock.bound_ns,
        skew_how=clipped(str(started.get("how", ""))),
    )


def cpu_use(usage: Mapping[str, Any] | None) -> CpuUse | None:
    """The message `usage` as CpuUse; None without one or when the window was never reached."""
    if usage is None:
        return None
    where = "the message `usage`"
    begin_ns, end_ns = (optional_count(usage, key, where) or 0 for key in ("window_start_ns", "window_end_ns"))
    window_ns = end_ns - begin_ns
    cpus = optional_count(usage, "cpus", where) or 0
    if window_ns <= 0 or cpus <= 0:
        return None
    stat = usage.get("stat")
    if not isinstance(stat, Mapping):
        stat = {}

    def ticks(name: str) -> int | None:
        return optional_count(stat, name, where)

    user_ns = ticks("user_ns")
    scheduled_ns = optional_count(usage, "busy_ns", where)
    idle_is_timed = usage.get("idle_timed") is not False
    busy_ns, busy_how = _busy(scheduled_ns, ticks, window_ns * cpus, idle_is_timed=idle_is_timed)
    engine_ns = optional_count(usage, "engine_ns", where)
    if busy_ns is not None and engine_ns is not None and busy_ns + IDLE_GRAIN_NS < engine_ns <= window_ns * cpus:
        busy_ns, busy_how = engine_ns, "engine"  # whatever was not counted, the engine ran on this guest
    pollers = _pollers(usage)
    return CpuUse(
        poller_ns=sum(pollers) if pollers else None,
        pollers=len(pollers),
        window_ns=window_ns,
        cpus=cpus,
        busy_ns=busy_ns,
        busy_how=busy_how,
        scheduled_ns=scheduled_ns,
        engine_ns=engine_ns,
        user_ns=None if user_ns is None else user_ns + (ticks("nice_ns") or 0),
        system_ns=ticks("system_ns"),
        iowait_ns=ticks("iowait_ns"),
        softirq_ns=ticks("softirq_ns"),
        irq_ns=ticks("irq_ns"),
        idle_ns=ticks("idle_ns"),
        steal_ns=ticks("steal_ns") if usage.get("steal_known") is True else None,
        delay_ns=optional_count(usage, "delay_ns", where),
    )


def _pollers(usage: Mapping[str, Any]) -> list[int]:
    """CPU time of each SQPOLL thread; what makes no sense is left out."""
    threads = usage.get("threads")
    told = [one for one in threads if isinstance(one, Mapping)] if isinstance(threads, list) else []
    return [one["ns"] for one in told if str(one.get("name", "")).startswith(POLLER) and is_count(one.get("ns"))]


def _busy(
    scheduled_ns: int | None, ticks: Callable[[str], int | None], capacity_ns: int, *, idle_is_timed: bool
) -> tuple[int | None, str]:
    """Busy time of all CPUs and where it is from: the scheduler, or what the kernel's idle time leaves over.

    /proc/schedstat counts a task when it leaves its CPU, so it knows nothing of one that spins through the window (an SQPOLL
    thread does), counts one that span before it too much, and leaves out interrupts that come in while a CPU is idle. Idle time is
    taken at each way in and out of idle, and knows all of that; it is told in ticks, and the scheduler's ns are preferred where
    both say the same. Without tickless idle it is a sample, and a load that follows the timer fools it: then it is only the way
    out of having no /proc/schedstat.
    """
    idle_ns = ticks("idle_ns")
    if idle_ns is None:
        return scheduled_ns, "" if scheduled_ns is None else "schedstat"
    left_ns = max(0, capacity_ns - idle_ns - (ticks("iowait_ns") or 0) - (ticks("steal_ns") or 0))
    if scheduled_ns is None:
        return left_ns, "idle"
    if idle_is_timed and abs(scheduled_ns - left_ns) > IDLE_GRAIN_NS:
        return left_ns, "idle"
    return min(scheduled_ns, capacity_ns), "schedstat"


def refusal(answers: Answers) -> str | None:
    """Why the agent would not do what it was told, or None when it did."""
    refused = answers.messages.get("refused")
    if refused is None:
        return None
    return str(refused.get("why") or f"the agent refused `{refused.get('verb', 'the command')}`")


def clipped(text: str) -> str:
    """A guest's sentence, not longer than a table can bear."""
    return text if len(text) <= SENTENCE_MAX_CHARACTERS else text[:SENTENCE_MAX_CHARACTERS] + " ..."


def parse_object(text: str, what: str) -> dict[str, Any]:
    """The JSON object in `text`; FormatError names the document as `what`."""
    try:
        value = parse_json(text)
    except ValueError as error:
        raise FormatError(f"{what} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise FormatError(f"{what} is no JSON object")
    return value


def count(values: Mapping[str, Any], key: str, where: str) -> int:
    """The integer `values[key]`, which must be there and not negative; FormatError otherwise."""
    value = optional_count(values, key, where)
    if value is None:
        raise FormatError(f"{where} has no {key}")
    return value


def optional_count(values: Mapping[str, Any], key: str, where: str) -> int | None:
    """The integer `values[key]`, None where it is null or missing; FormatError when it is anything else or out of range."""
    value = values.get(key)
    if value is None or is_count(value):
        return value
    raise FormatError(f"{where} has {key} {repr(value)[:80]}, which is no count")


def is_count(value: Any) -> bool:
    """Whether a value is an integer from 0 to COUNT_MAX."""
    return type(value) is int and 0 <= value <= COUNT_MAX


def raw_device(facts: Mapping[str, Any], target: str) -> str | None:
    """The node of the raw device that was prepared as this target; None where files were laid out."""
    prepared = facts.get("prepared")
    laid = prepared.get(target) if isinstance(prepared, Mapping) else None
    node = laid.get("device") if isinstance(laid, Mapping) else None
    return str(node) if node else None
