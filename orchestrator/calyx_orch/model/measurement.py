"""What comes back: histograms, series, CPU, one measurement a guest and round, and a whole run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calyx_orch.model.plan import Found, Plan


@dataclass(frozen=True)
class Histogram:
    """Latency counts in the buckets of `native/include/calyx/histogram.h`: ascending (index, count) pairs.

    fio's json+ bins (64 per power of two) are held at the lower of the two buckets that each covers; `grid` says how fine
    the counts really are (128 or 64 per power of two). `min_ns` and `max_ns` are exact, None without samples.
    """

    buckets: tuple[tuple[int, int], ...] = ()
    min_ns: int | None = None
    max_ns: int | None = None
    sum_ns: int = 0
    overflow: int = 0
    grid: int = 128

    @property
    def count(self) -> int:
        """Number of samples."""
        return sum(count for _, count in self.buckets)


@dataclass(frozen=True)
class Direction:
    """What one direction (read, write) did in the measured window. Failed I/O is in `errors`, never in `latency`.

    `latency_intended` is of open loops: from when an I/O was due instead of when it began; `late` began over 1 ms late.
    """

    ios: int
    bytes: int
    latency: Histogram
    errors: int = 0
    latency_intended: Histogram | None = None
    late: int = 0


@dataclass(frozen=True)
class Series:
    """Per-interval counts from the start of the window; the last interval may be shorter. fio: from its interval logs."""

    interval_ns: int
    read_ios: tuple[float, ...] = ()
    read_bytes: tuple[float, ...] = ()
    write_ios: tuple[float, ...] = ()
    write_bytes: tuple[float, ...] = ()

    @property
    def total_bytes(self) -> tuple[float, ...]:
        """Reads and writes of each interval, in bytes."""
        return tuple(r + w for r, w in zip(self.read_bytes, self.write_bytes, strict=True))

    @property
    def total_ios(self) -> tuple[float, ...]:
        """Reads and writes of each interval."""
        return tuple(r + w for r, w in zip(self.read_ios, self.write_ios, strict=True))


@dataclass(frozen=True)
class ClockBound:
    """A guest's clock against the controller's: `guest = controller + offset_ns`, wrong by at most `bound_ns`."""

    offset_ns: int
    bound_ns: int


@dataclass(frozen=True)
class CpuUse:
    """CPU over the measured window only, in nanoseconds summed over CPUs. None: the guest cannot say.

    `busy_ns` comes from the scheduler (`busy_how` schedstat), or is what the kernel's idle time leaves over (idle) where the two
    differ or there is no /proc/schedstat, or is at least the engine's own (engine); `scheduled_ns` is the scheduler's figure,
    whichever was taken; user .. softirq are tick-sampled; `steal_ns` is None where the hypervisor reports none. `engine_ns` is
    the engine alone with its SQPOLL and io-wq threads, or fio with its workers.
    """

    window_ns: int
    cpus: int
    busy_ns: int | None
    engine_ns: int | None
    user_ns: int | None = None
    system_ns: int | None = None
    iowait_ns: int | None = None
    softirq_ns: int | None = None
    irq_ns: int | None = None
    idle_ns: int | None = None
    steal_ns: int | None = None
    delay_ns: int | None = None
    busy_how: str = "schedstat"
    scheduled_ns: int | None = None
    poller_ns: int | None = None  # of all SQPOLL threads, `pollers` of them
    pollers: int = 0

    @property
    def busy_percent(self) -> float | None:
        """Share of all CPUs of the guest that was busy, in percent."""
        return None if self.busy_ns is None else 100.0 * self.busy_ns / (self.window_ns * self.cpus)

    @property
    def engine_percent(self) -> float | None:
        """Share of all CPUs of the guest that the engine used, in percent."""
        return None if self.engine_ns is None else 100.0 * self.engine_ns / (self.window_ns * self.cpus)


@dataclass(frozen=True)
class LostTime:
    """A spin on one CPU before the round: how much time was taken away (steal, other load)."""

    spin_ns: int
    lost_ns: int
    gaps: int
    gap_max_ns: int


@dataclass(frozen=True)
class Measurement:
    """What one guest answers for one round: every fact that the analysis needs.

    All times with `_ns` that are instants are on the controller's monotonic clock. `skew_ns` is the first I/O's distance from
    the start line (positive: late), `skew_bound_ns` how wrong that can be; `skew_how` is published, first-io or released.
    `status` is `ok`, `stopped` or `failed`; only `ok` enters aggregates. `doubts` are short labels such as `short`, `overlap 93 %`.
    `window_*` is the guest's own measured window.
    """

    guest: str
    round_index: int
    block: int
    workload: str
    target: str
    engine: str
    load: str
    status: str
    why: str = ""
    vm_host: str | None = None
    storage: str | None = None
    start_line_ns: int = 0
    started_ns: int | None = None
    skew_ns: int | None = None
    skew_bound_ns: int | None = None
    skew_how: str = ""
    window_start_ns: int = 0
    window_end_ns: int = 0
    read: Direction | None = None
    write: Direction | None = None
    sync: Direction | None = None
    series: Series | None = None
    cpu: CpuUse | None = None
    lost_time: LostTime | None = None
    setup: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    latency_kind: str = "total"  # total (submission to reaping) or completion
    verify: Mapping[str, Any] = field(default_factory=dict)  # checked, bad and where, of workloads with `verify`
    clock: Mapping[str, Any] = field(default_factory=dict)  # source, cost_ns and resolution_ns of the engine's clock

    @property
    def window_ns(self) -> int:
        """Length of the guest's measured window."""
        return self.window_end_ns - self.window_start_ns

    @property
    def total_bytes(self) -> int:
        """Bytes read and written in the window."""
        return sum(d.bytes for d in (self.read, self.write) if d is not None)

    @property
    def total_ios(self) -> int:
        """I/Os of both directions in the window."""
        return sum(d.ios for d in (self.read, self.write) if d is not None)


@dataclass(frozen=True)
class Answers:
    """All that a guest sent for one round, raw: up-messages by type (the last of each), documents by name, and clocks.

    `clock` converts the guest's times to the controller's; `held_start_ns` is the start line on the guest's clock.
    `start_line_ns` is the start line on the controller's clock (None: `held_start_ns` converted by `clock`).
    """

    messages: Mapping[str, Mapping[str, Any]]
    documents: Mapping[str, str]
    clock: ClockBound
    held_start_ns: int
    lost_time: LostTime | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    start_line_ns: int | None = None


@dataclass(frozen=True)
class GuestOutcome:
    """How a guest ended: `measured`, `partial`, `lost`, `skipped`, with the step and the sentence for the table."""

    guest: str
    state: str
    step: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resumed:
    """A run was continued: when (ISO 8601), how long after its last sign of life, and what stood.

    `kept` rounds stood, `again` were begun and are measured again since their block was not whole. `rebooted` are guests that
    were measured before and were started anew in between.
    """

    at: str
    gap_s: float
    kept: int
    again: int
    rebooted: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunRecord:
    """A finished (or interrupted) run as it is read back from its folder: the input of analysis and report."""

    run_id: str
    folder: str
    plan: Plan
    measurements: tuple[Measurement, ...]
    outcomes: tuple[GuestOutcome, ...]
    facts: Mapping[str, Mapping[str, Any]]
    started_at: str  # ISO 8601 with offset
    status: str  # finished, interrupted, failed
    notes: tuple[str, ...] = ()
    found: tuple[Found, ...] = ()
    resumed: tuple[Resumed, ...] = ()
