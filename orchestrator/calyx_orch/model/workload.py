"""One I/O pattern in fio's vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Rw(StrEnum):
    """fio's `rw`."""

    READ = "read"
    WRITE = "write"
    RANDREAD = "randread"
    RANDWRITE = "randwrite"
    RW = "rw"
    RANDRW = "randrw"
    TRIM = "trim"
    RANDTRIM = "randtrim"

    @property
    def trims(self) -> bool:
        """Whether blocks are discarded instead of written; such a pattern `writes`, too, as it destroys content."""
        return self in (Rw.TRIM, Rw.RANDTRIM)

    @property
    def writes(self) -> bool:
        """Whether any of the I/O writes."""
        return self not in (Rw.READ, Rw.RANDREAD)

    @property
    def reads(self) -> bool:
        """Whether any of the I/O reads."""
        return self not in (Rw.WRITE, Rw.RANDWRITE, Rw.TRIM, Rw.RANDTRIM)


@dataclass(frozen=True)
class Workload:
    """One I/O pattern in fio's vocabulary. `rate_iops` is per job; `seed` None: drawn from the plan's seed.

    `setup`, `refill` and `buffers` steer the calyx engine (see docs/protocol.md). `targets` names those it runs on
    (empty: every target of the guest). `bssplit` is (bytes, percent) pairs that sum to 100, then `bs_bytes` is its largest;
    `bssplit_write` is that of the writes of a mixed workload (empty: as `bssplit`). `find` is what is searched for instead
    of a plain measurement, such as `iops_at p99<2ms`. `load_share` is an open loop at that share (0 to 1) of what the slowest guest
    does in a closed one; its `rate_iops` is set by the run once that is known, and bounds that closed loop until then.
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
    guests_at: str | None = None  # of `find: guests_at 'p99<2ms'`: `p99<2ms`, held against each number of guests
    load_share: float | None = None

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
        if self.rw.trims:
            found.append("trim")
        elif self.setup == "psync":
            found.append("psync")
        if self.is_open_loop:
            found.append("open loop")
        if self.load_share is not None:
            found.append(f"{100 * self.load_share:g} % of capacity")
        return tuple(found)

    @property
    def file_bytes(self) -> int:
        """How long each job's file must be."""
        return self.offset_bytes + self.size_bytes

    @property
    def is_short(self) -> bool:
        """Shorter than what gives true figures (ramp 10 s, runtime 60 s): labelled in every table."""
        return self.ramp_s < 10.0 or self.runtime_s < 60.0
