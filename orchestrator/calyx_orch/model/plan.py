"""What is to be done: the inventory as a whole, its rounds, layouts and growth, and what was found by trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from calyx_orch.model.fleet import Guest, Place
from calyx_orch.model.workload import Workload

LAYOUT_BYTES_PER_S = 500_000_000


class LoadMode(StrEnum):
    """Who runs at once."""

    TOGETHER = "together"
    PER_DOMAIN = "per_domain"
    ALONE = "alone"
    STAGGERED = "staggered"
    DENSITY = "density"


@dataclass(frozen=True)
class Baselines:
    """Which fio engines are run besides calyx. `auto`: those that a guest has, the rest told in words; else required."""

    engines: tuple[str, ...] = ("fio-io_uring",)
    auto: bool = True
    skip_when_missing: bool = False


@dataclass(frozen=True)
class Window:
    """The time of day in which rounds may run, in minutes since midnight in `timezone`; `end_min` before `begin_min`: over midnight."""

    begin_min: int
    end_min: int
    timezone: str

    def __str__(self) -> str:
        begin, end = (f"{minutes // 60:02d}:{minutes % 60:02d}" for minutes in (self.begin_min, self.end_min))
        return f"{begin}-{end} {self.timezone}"


@dataclass(frozen=True)
class AbortIf:
    """Signs that a round harms: shares of time (0.05 is 5 %), and the age of an I/O in nanoseconds. None: not looked at."""

    lost_time_above: float | None = None
    steal_above: float | None = None
    latency_above_ns: int | None = None


@dataclass(frozen=True)
class Impact:
    """Bounds of what a run may do to its neighbours; they hold for every engine. None: unbounded."""

    max_rate_bytes_per_s: int | None = None  # per guest
    max_guests_per_domain: int | None = None
    max_bytes_written: int | None = None  # per guest and run, layout included
    layout_rate_bytes_per_s: int | None = None  # per guest; see `layout_bytes_per_s`
    window: Window | None = None
    abort_if: AbortIf | None = None
    stagger_by_domain: bool = False  # `load: staggered` goes from domain to domain instead of from guest to guest

    @property
    def layout_bytes_per_s(self) -> int:
        """How quickly a guest lays out: as said, else as `max_rate`, never above it, else LAYOUT_BYTES_PER_S."""
        said = [rate for rate in (self.layout_rate_bytes_per_s, self.max_rate_bytes_per_s) if rate is not None]
        return min(said, default=LAYOUT_BYTES_PER_S)


@dataclass(frozen=True)
class Policy:
    """What a lost guest means: `continue`, `stop`, or a quorum (fraction of guests that must answer)."""

    on_lost: str = "continue"
    quorum: float | None = None


@dataclass(frozen=True)
class Until:
    """When a workload needs no further block: after `blocks_min`, once the interval of its throughput is narrow enough.

    `interval` is half of the 95 % interval of the mean over blocks / the mean, of every engine.
    """

    blocks_min: int
    interval: float


@dataclass(frozen=True)
class Precondition:
    """Before the first block: writing workloads (or those named) are run until steady, for `max_s` each at most.

    `max_bytes` is what each guest may write by it in the whole run (None: not bounded).
    """

    max_s: float
    max_bytes: int | None = None
    workloads: tuple[str, ...] = ()


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
    density: tuple[int, ...] = ()  # of `load: density`: how many guests of each vm_host run at once; 0: all of them
    impact: Impact = Impact()
    policy: Policy = Policy()
    settle_s: float = 60.0  # the longest wait for the device to become idle between rounds; 0: no settling
    stagger_s: float = 1.0
    lost_time_probe_s: float = 1.0  # 0: no probe
    seed: int | None = None
    source: str = ""
    text: str = ""
    allow_psync: bool = False  # a workload may have `setup: psync`
    origin: str = (
        ""  # the whole path of the file or program, by which the store knows its runs; empty: it came from neither
    )
    until: Until | None = None  # then `repetitions` are the most
    precondition: Precondition | None = None

    @property
    def key(self) -> str:
        """What the runs of this inventory have in common in the store: two files of one name are two inventories."""
        return self.origin or self.source or self.name


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
    density: int = 0  # of `load: density`: how many guests of each vm_host run at once

    @property
    def load_name(self) -> str:
        """The load as tables tell it: `together`, or `density 4`."""
        return f"{self.load} {self.density}" if self.density else str(self.load)

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
    """What one target of one guest needs, made once for the whole run: `files` files of `size_bytes` each in the directory `path`.

    On a raw `device` `files` jobs share its first `size_bytes`, which are overwritten. `keep` names whose kept files these are,
    which are reused while they are what they were; empty: they are removed at the end.
    """

    guest: str
    target: str
    path: str
    files: int
    size_bytes: int
    allow_ram: bool = False
    verify: str | None = None  # blocks that can be checked
    device: bool = False
    serial: str | None = None
    reserve_bytes: int | None = None
    keep: str = ""

    @property
    def total_bytes(self) -> int:
        """All bytes this layout writes, where no kept files are reused."""
        return self.size_bytes if self.device else self.files * self.size_bytes


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
class LoadPoint:
    """The rate of a workload with `load_share` on one target, the same for all guests, engines and load modes.

    `capacity_iops` is the lowest that a whole guest did in a closed loop; `guest`, `engine` and `load` say which, and when.
    `rate_iops` is per job.
    """

    workload: str
    target: str
    share: float
    rate_iops: int
    capacity_iops: float
    guest: str
    engine: str
    load: str


@dataclass(frozen=True)
class Settled:
    """How the repetitions of a workload ended: after how many blocks, how wide the interval was, whether narrow enough, and why."""

    workload: str
    target: str
    load: str
    guests: tuple[str, ...]
    blocks: int
    half_width: float | None
    is_narrow: bool
    why: str


@dataclass(frozen=True)
class Conditioned:
    """How a preconditioning ended: after how many rounds, whether steady, and why; range and slope of its last five rounds."""

    workload: str
    target: str
    load: str
    guests: tuple[str, ...]
    rounds: int
    is_steady: bool
    range_share: float | None
    slope_share: float | None
    why: str


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
    settled: tuple[
        Settled, ...
    ] = ()  # of a run with `Inventory.until`; the rounds that were not needed are no longer in it

    conditioning: tuple[Round, ...] = ()  # at most; they are numbered before `rounds` and enter no figure
    conditioned: tuple[Conditioned, ...] = ()
    capacity: tuple[Round, ...] = ()  # closed loops of load points; numbered before `rounds`, in no figure
    load_points: tuple[LoadPoint, ...] = ()  # the rates that they led to; empty until they are known

    @property
    def all_rounds(self) -> tuple[Round, ...]:
        """Every round in the order of play: those of the preconditioning, those that measure capacity, and the rest."""
        return (*self.conditioning, *self.capacity, *self.rounds)

    @property
    def measured(self) -> tuple[Round | SearchPlan, ...]:
        """All that is measured: every round, and every search, whose rounds are made on the way."""
        return (*self.rounds, *self.searches)

    @cached_property
    def parts(self) -> Mapping[str, tuple[Round | SearchPlan, ...]]:
        """Of each guest that has a part in the plan the first round, or the search, of each workload and target."""
        found: dict[str, dict[tuple[str, str], Round | SearchPlan]] = {}
        for one in self.measured:
            for guest in one.guests:
                found.setdefault(guest, {}).setdefault((one.workload.name, one.target), one)
        return {guest: tuple(mine.values()) for guest, mine in found.items()}

    @cached_property
    def layouts_of(self) -> Mapping[str, tuple[Layout, ...]]:
        """The layouts of each guest that has any."""
        found: dict[str, list[Layout]] = {}
        for one in self.layouts:
            found.setdefault(one.guest, []).append(one)
        return {guest: tuple(mine) for guest, mine in found.items()}
