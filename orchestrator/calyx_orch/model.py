"""The words of calyx-orch as frozen data: guest, target, workload, round, plan, measurement.

Nothing here does I/O, reads a clock or knows a file. Times are integer nanoseconds, sizes integer bytes; `_s` fields are
seconds as the inventory states them. Guest names are unique within an inventory and are the key of everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

NANOSECONDS = 1_000_000_000


class HostKeyPolicy(StrEnum):
    """How an unknown host key is met: refused, or recorded at the first sight."""

    STRICT = "strict"
    ACCEPT_NEW = "accept-new"


class TransportKind(StrEnum):
    """What carries the agent's lines."""

    SSH = "ssh"
    LOCAL = "local"
    SIMULATED = "simulated"


@dataclass(frozen=True)
class Connection:
    """How a guest (or a jump host) is reached. `user` None: the SSH default; `key_files` empty: agent and default keys."""

    address: str
    port: int = 22
    user: str | None = None
    key_files: tuple[str, ...] = ()
    jump: Connection | None = None
    ssh_config: str | None = None
    known_hosts: str | None = None
    host_key_policy: HostKeyPolicy = HostKeyPolicy.STRICT
    connect_timeout_s: float = 15.0
    transport: TransportKind = TransportKind.SSH


@dataclass(frozen=True)
class Target:
    """A named directory on a guest in which the files of the I/O are made. `allow_ram`: a tmpfs is meant."""

    name: str
    path: str
    allow_ram: bool = False


@dataclass(frozen=True)
class Guest:
    """One virtual machine that is measured. `line` is where the inventory names it (0: nowhere)."""

    name: str
    connection: Connection
    targets: tuple[Target, ...]
    vm_host: str | None = None
    storage: str | None = None
    groups: tuple[str, ...] = ()
    fio_path: str | None = None
    agent_dir: str | None = None
    same_machine: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    line: int = 0

    @property
    def domain(self) -> str:
        """The contention domain: `storage:NAME`, else `vm_host:NAME`, else the guest itself."""
        if self.storage is not None:
            return f"storage:{self.storage}"
        return f"vm_host:{self.vm_host}" if self.vm_host is not None else f"guest:{self.name}"


@dataclass(frozen=True)
class Place:
    """A vm_host or a storage pool: its name and the free space the inventory declares (None: undeclared)."""

    name: str
    free_bytes: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


class Rw(StrEnum):
    """fio's `rw`."""

    READ = "read"
    WRITE = "write"
    RANDREAD = "randread"
    RANDWRITE = "randwrite"
    RW = "rw"
    RANDRW = "randrw"

    @property
    def writes(self) -> bool:
        """Whether any of the I/O writes."""
        return self not in (Rw.READ, Rw.RANDREAD)

    @property
    def reads(self) -> bool:
        """Whether any of the I/O reads."""
        return self not in (Rw.WRITE, Rw.RANDWRITE)


@dataclass(frozen=True)
class Workload:
    """One I/O pattern in fio's vocabulary. `rate_iops` is per job; `seed` None: drawn from the plan's seed.

    `setup`, `refill` and `buffers` steer the calyx engine (see docs/protocol.md). `targets` names those it runs on
    (empty: every target of the guest). `bssplit` is (bytes, percent) pairs that sum to 100, then `bs_bytes` is its largest;
    `bssplit_write` is that of the writes of a mixed workload (empty: as `bssplit`). `find` is what is searched for instead
    of a plain measurement, such as `iops_at p99<2ms`.
    """

    name: str
    rw: Rw
    bs_bytes: int = 4096
    iodepth: int = 1
    numjobs: int = 1
    size_bytes: int = 1 << 30
    runtime_s: float = 60.0
    ramp_s: float = 10.0
    rwmixread: int = 50
    rate_iops: int | None = None
    direct: bool = True
    fsync: int = 0
    seed: int | None = None
    setup: str = "auto"
    refill: str = "auto"  # each, unless a calibration chooses batch
    buffers: str = "auto"
    interval_ms: int = 100
    targets: tuple[str, ...] = ()
    bssplit: tuple[tuple[int, int], ...] = ()
    bssplit_write: tuple[tuple[int, int], ...] = ()
    offset_bytes: int = 0
    rate_bytes_per_s: int | None = None  # per job, reads and writes together
    arrival: str = "closed"  # closed, constant or poisson: open loop with `rate_iops`
    random_distribution: str = "random"
    fdatasync: int = 0
    sync: bool = False
    end_fsync: bool = False
    buffer_compress_percentage: int = 0
    dedupe_percentage: int = 0
    verify: str | None = None
    thinktime_us: int = 0
    thinktime_blocks: int = 1
    cpus_allowed: str | None = None
    iopoll: bool = False
    numa: int | None = None
    huge_pages: bool = False
    find: str | None = None

    @property
    def is_open_loop(self) -> bool:
        """Whether I/Os are due at times of their own, however long those before them take."""
        return self.arrival != "closed"

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """Every size in bytes that an I/O may have."""
        split = {size for size, _ in (*self.bssplit, *self.bssplit_write)}
        return tuple(sorted(split or {self.bs_bytes}))

    @property
    def labels(self) -> tuple[str, ...]:
        """What stands beside this workload in every table: its figures mean something else than those of direct I/O in a closed loop."""
        found = []
        if not self.direct:
            found.append("buffered")
        if self.setup == "psync":
            found.append("psync")
        if self.is_open_loop:
            found.append("open loop")
        return tuple(found)

    @property
    def file_bytes(self) -> int:
        """How long each job's file must be."""
        return self.offset_bytes + self.size_bytes

    @property
    def is_short(self) -> bool:
        """Shorter than what gives true figures (ramp 10 s, runtime 60 s): labelled in every table."""
        return self.ramp_s < 10.0 or self.runtime_s < 60.0


class LoadMode(StrEnum):
    """Who runs at once."""

    TOGETHER = "together"
    PER_DOMAIN = "per_domain"
    ALONE = "alone"
    STAGGERED = "staggered"


@dataclass(frozen=True)
class Baselines:
    """Which fio engines are run besides calyx. `auto`: those that a guest has, the rest told in words; else required."""

    engines: tuple[str, ...] = ("fio-io_uring",)
    auto: bool = True
    skip_when_missing: bool = False


@dataclass(frozen=True)
class Impact:
    """Bounds of what a run may do to its neighbours; they hold for every engine. None: unbounded."""

    max_rate_bytes_per_s: int | None = None  # per guest
    max_guests_per_domain: int | None = None
    max_bytes_written: int | None = None  # per guest and run, layout included


@dataclass(frozen=True)
class Policy:
    """What a lost guest means: `continue`, `stop`, or a quorum (fraction of guests that must answer)."""

    on_lost: str = "continue"
    quorum: float | None = None


@dataclass(frozen=True)
class Inventory:
    """A whole inventory, checked and with every default applied. `source` is the file's name for messages."""

    name: str
    guests: tuple[Guest, ...]
    workloads: tuple[Workload, ...]
    vm_hosts: tuple[Place, ...] = ()
    storage: tuple[Place, ...] = ()
    baselines: Baselines = Baselines()
    repetitions: int = 3
    load: tuple[LoadMode, ...] = (LoadMode.TOGETHER,)
    impact: Impact = Impact()
    policy: Policy = Policy()
    settle_s: float = 60.0  # the longest wait for the device to become idle between rounds; 0: no settling
    stagger_s: float = 1.0
    lost_time_probe_s: float = 1.0  # 0: no probe
    seed: int | None = None
    source: str = ""
    text: str = ""
    allow_psync: bool = False  # a workload may have `setup: psync`


@dataclass(frozen=True)
class Round:
    """One synchronised start of one workload by one engine on `guests`, on the target named `target` of each."""

    index: int
    block: int
    workload: Workload
    target: str
    engine: str
    load: LoadMode
    guests: tuple[str, ...]
    seed: int
    rate_limited: bool = False  # `workload.rate_iops` was lowered by `impact`

    @property
    def number(self) -> int:
        """The round as people count, from 1; `index` counts from 0, as do the names of the raw folders."""
        return self.index + 1

    @property
    def name(self) -> str:
        """`0007-randread-4k-data-calyx`: unique in a plan, safe as a file name when escaped."""
        return f"{self.index:04d}-{self.workload.name}-{self.target}-{self.engine}"


@dataclass(frozen=True)
class Layout:
    """The files of one target of one guest: `files` files of `size_bytes` each, made once for the whole run."""

    guest: str
    target: str
    path: str
    files: int
    size_bytes: int
    allow_ram: bool = False
    verify: str | None = None  # blocks that can be checked

    @property
    def total_bytes(self) -> int:
        """All bytes this layout writes."""
        return self.files * self.size_bytes


@dataclass(frozen=True)
class Growth:
    """New bytes on one place: `kind` is guest, vm_host or storage; `limit_bytes` declared, or the default limit."""

    kind: str
    name: str
    new_bytes: int
    limit_bytes: int
    declared: bool

    @property
    def exceeds(self) -> bool:
        """Whether the run wants `--allow-growth` for this place."""
        return self.kind != "guest" and self.new_bytes > self.limit_bytes


@dataclass(frozen=True)
class Pin:
    """The set-up that one guest runs a workload with where its workload says `auto`, and how that was decided.

    `how` is calibrated, cached or ladder; `why` a sentence; `leader` the guest on which it was tried.
    """

    guest: str
    workload: str
    target: str
    setup: str
    refill: str
    how: str
    why: str
    leader: str = ""


@dataclass(frozen=True)
class SearchPlan:
    """One search: the workload whose `find` is looked for, where, on which guests, in which load mode."""

    index: int
    workload: Workload
    target: str
    load: LoadMode
    guests: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """What a search found: the highest rate (IOPS per job) at which the budget held, and the lowest at which it did not.

    `rate_iops` None: it held nowhere; `broke_iops` None: it held everywhere that was tried. `probes` are (rate, figure, held)
    in the order tried; `figure` is the percentile in nanoseconds, None without enough samples.
    """

    workload: str
    target: str
    load: str
    guests: tuple[str, ...]
    budget: str
    rate_iops: int | None
    broke_iops: int | None
    why: str
    probes: tuple[tuple[int, int | None, bool], ...] = ()


@dataclass(frozen=True)
class Plan:
    """All rounds of a run, in order, and what they cost. `estimated_s` is the expected time without connecting."""

    inventory: Inventory
    seed: int
    layouts: tuple[Layout, ...]
    rounds: tuple[Round, ...]
    growth: tuple[Growth, ...]
    estimated_s: float
    notes: tuple[str, ...] = ()  # what was left out of it and why, such as a baseline that is no equal
    pins: tuple[Pin, ...] = ()
    searches: tuple[SearchPlan, ...] = ()

    @property
    def measured(self) -> tuple[Round | SearchPlan, ...]:
        """All that is measured: every round, and every search, whose rounds are made on the way."""
        return (*self.rounds, *self.searches)


# --- what comes back ---------------------------------------------------------------------------------------------


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

    `busy_ns` comes from the scheduler (`busy_how` schedstat), or is what the kernel's idle time leaves over (idle) where there is
    no /proc/schedstat; user .. softirq are tick-sampled; `steal_ns` is None where the hypervisor
    reports none. `engine_ns` is the engine alone with its SQPOLL and io-wq threads, or fio with its workers.
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
