"""The rows of a summary as data; docs/methods.md says how each field comes about. None: unknown, or too few samples."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WayRow:
    """Reads or writes alone, of a guest's mixed workload."""

    iops: float
    throughput_bytes_per_s: float
    p50_ns: int | None
    p99_ns: int | None
    p999_ns: int | None


@dataclass(frozen=True)
class SharedRow:
    """A guest in the rounds that all counted guests of its fleet share; guests are summed and compared by these figures alone.

    `turns` are the places of those rounds among the rounds planned for these guests, from 0.
    """

    turns: tuple[int, ...]
    throughput_bytes_per_s: float
    iops: float
    p99_ns: int | None
    cv_between_repetitions: float | None = None
    cv_p99_between_repetitions: float | None = None


@dataclass(frozen=True)
class GuestRow:
    """One guest under one workload by one engine. None: unknown, or too few samples.

    `labels` say what kind of figures these are (buffered, psync, open loop). Of an open loop `p99_intended_ns` counts from when
    an I/O was due, and `late_share` is the part of I/Os that began more than 1 ms after that.
    """

    guest: str
    vm_host: str | None
    storage: str | None
    target: str
    workload: str
    engine: str
    load: str
    rounds: int
    rounds_planned: int
    status: str
    throughput_bytes_per_s: float | None = None
    iops: float | None = None
    cv_within_run: float | None = None
    cv_between_repetitions: float | None = None
    cv_p99_between_repetitions: float | None = None
    p50_ns: int | None = None
    p99_ns: int | None = None
    p999_ns: int | None = None
    mean_ns: float | None = None
    latency_kind: str = "total"
    samples: int = 0
    read: WayRow | None = None
    write: WayRow | None = None
    cpu_percent: float | None = None
    engine_cpu_percent: float | None = None
    steal_percent: float | None = None
    cpu_ns_per_io: float | None = None
    guest_cpu_ns_per_io: float | None = None
    skew_median_ns: float | None = None
    skew_max_ns: int | None = None
    skew_bound_ns: int | None = None
    skew_how: str = ""
    doubts: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    p99_intended_ns: int | None = None
    late_share: float | None = None
    doubt_names: tuple[str, ...] = ()
    shared: SharedRow | None = None
    cv_within_low: float | None = None
    cv_within_high: float | None = None
    interval_ms: float | None = None
    p90_ns: int | None = None
    p95_ns: int | None = None
    p9999_ns: int | None = None
    p99999_ns: int | None = None
    tail_ratio: float | None = None
    far_tail_ratio: float | None = None


@dataclass(frozen=True)
class FleetRow:
    """All guests that ran together: `scope` is `fleet`, or the domain (`storage:pool`, `vm_host:hv1`) under `per_domain`.

    All figures come from the `rounds_shared` of its `rounds` in which every one of its `guests` was measured.
    """

    scope: str
    target: str
    workload: str
    engine: str
    load: str
    guests: int
    guests_planned: int
    rounds: int
    status: str
    throughput_bytes_per_s: float
    iops: float
    cv_between_guests: float | None
    cv_reason: str
    p50_ns: int | None
    p99_ns: int | None
    p999_ns: int | None
    samples: int
    cpu_percent: float | None
    cpu_ns_per_io: float | None
    overlap: float | None
    skew_median_ns: float | None
    skew_max_ns: int | None
    skew_bound_ns: int | None
    skew_how: str
    doubts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    doubt_names: tuple[str, ...] = ()
    rounds_shared: int = 0
    p90_ns: int | None = None
    p95_ns: int | None = None
    p9999_ns: int | None = None
    p99999_ns: int | None = None
    tail_ratio: float | None = None
    far_tail_ratio: float | None = None


@dataclass(frozen=True)
class PairRow:
    """calyx / fio for one guest and one metric (throughput, IOPS, P99, CPU per I/O, CV within a run), paired by block.

    `place_ratio` is the figure at the largest place in the block / at the smallest, `place_p` how likely chance makes it that.
    """

    guest: str
    vm_host: str | None
    target: str
    workload: str
    engine: str  # the fio engine
    load: str
    metric: str
    ratio: float | None
    low: float | None
    high: float | None
    pairs: int
    interval: str
    reason: str
    labels: tuple[str, ...] = ()
    place_ratio: float | None = None
    place_p: float | None = None
    doubt_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class FleetPairRow:
    """calyx / fio for one metric over all guests: the geometric mean of their ratios, and the lowest and highest guest's."""

    target: str
    workload: str
    engine: str  # the fio engine
    load: str
    metric: str
    ratio: float
    low: float
    high: float
    guests: int
    labels: tuple[str, ...] = ()
    doubt_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class InterferenceRow:
    """`load` / alone for one guest, vm_host or storage (`scope`) and one metric (throughput, P99), with both figures.

    `guest` is the name of what `scope` says.
    """

    scope: str
    guest: str
    target: str
    workload: str
    engine: str
    load: str
    metric: str
    ratio: float | None
    low: float | None
    high: float | None
    together: float | None
    alone: float | None
    pairs: int
    interval: str
    reason: str
    doubt_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class FairnessRow:
    """How the guests of one vm_host or storage (`scope`) shared what they got under a load, in the rounds that all of them share."""

    scope: str
    name: str
    target: str
    workload: str
    engine: str
    load: str
    guests: int
    throughput_bytes_per_s: float
    fairness: float | None
    lowest: str
    lowest_bytes_per_s: float
    highest: str
    highest_bytes_per_s: float
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartsRow:
    """Where the variance of a metric (throughput, P99 of a round) comes from: shares of the whole, which sum to 1.

    None: that level cannot be told (one vm_host, one guest on each, one round). `cv` is that of a single round of a single guest.
    """

    target: str
    workload: str
    engine: str
    load: str
    metric: str
    vm_hosts: int
    guests: int
    rounds: int
    mean: float
    cv: float | None
    between_vm_hosts: float | None
    between_guests: float | None
    between_rounds: float | None
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class SteadyRow:
    """Whether what was measured was steady: one guest, or the fleet (`scope`, as in its row), over the rounds of a key.

    `verdict` is `steady`, `not steady`, `burst`, or `not enough rounds`. `values` are the throughputs of its rounds, in order;
    `window_first` and `window_last` (from 0) are the places of the last five of them, `range_share` and `slope_share` theirs. `unsteady`
    counts rounds that were not steady in themselves. Of a burst `burst_at_s` is when it ended: from the start line of a round, or, with a
    `burst_round` (from 0, the first after it), from that of the first of these rounds.
    """

    scope: str
    guest: str
    target: str
    workload: str
    engine: str
    load: str
    verdict: str
    why: str
    rounds: int
    values: tuple[float, ...]
    window_first: int | None
    window_last: int | None
    mean: float | None
    range_share: float | None
    slope_share: float | None
    unsteady: int
    burst_at_s: float | None
    burst_round: int | None
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class DensityRow:
    """One vm_host or storage (`scope`) with so many of its guests at once; `kept` is a guest's throughput / that with the fewest.

    `holds` is whether the budget of `find: guests_at` held; None without one, or with too few samples.
    """

    scope: str
    name: str
    target: str
    workload: str
    engine: str
    load: str
    guests: int
    throughput_bytes_per_s: float
    throughput_per_guest: float
    p99_ns: int | None
    kept: float | None
    budget: str | None
    holds: bool | None
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class CarriedRow:
    """How many guests a vm_host or storage carries within a budget: the most that held, the fewest that broke (None: none did)."""

    scope: str
    name: str
    target: str
    workload: str
    engine: str
    budget: str
    guests_held: int | None
    guests_broke: int | None
    guests_most: int
    why: str
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class DoubtRow:
    """One rule that struck: its label at its worst, a sentence, a remedy, on which guests, and in how many measurements."""

    name: str
    label: str
    sentence: str
    remedy: str
    guests: tuple[str, ...]
    measurements: int


@dataclass(frozen=True)
class Summary:
    """All rows of a run. `places` are the rows of `interference` for vm_hosts and storage."""

    guests: tuple[GuestRow, ...]
    fleet: tuple[FleetRow, ...]
    pairs: tuple[PairRow, ...]
    interference: tuple[InterferenceRow, ...]
    places: tuple[InterferenceRow, ...]
    doubts: tuple[DoubtRow, ...]
    fleet_pairs: tuple[FleetPairRow, ...] = ()
    fairness: tuple[FairnessRow, ...] = ()
    parts: tuple[PartsRow, ...] = ()
    steady: tuple[SteadyRow, ...] = ()
    density: tuple[DensityRow, ...] = ()
    carried: tuple[CarriedRow, ...] = ()
