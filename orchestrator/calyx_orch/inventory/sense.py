"""Whether the keys of a workload go together: what has no meaning beside what is told, what cannot be run is refused. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from calyx_orch import units
from calyx_orch.inventory.settings.workloads import WorkloadSettings
from calyx_orch.model import Rw, Workload

BUFFER_BYTES_MAX = units.GIB  # of each job: the kernel registers no more in one piece
INTERVALS_MAX = 1_000_000  # as the engine has it
VERIFY_BLOCK_MIN = 512

Complaint = tuple[str, str]  # the key, and what is wrong with it
_WRITES_ONLY = ("fsync", "fdatasync", "sync", "end_fsync", "buffer_compress_percentage", "dedupe_percentage")
_SYNCS = ("fsync", "fdatasync", "sync", "end_fsync")
_IO_URING_ONLY = ("iopoll", "huge_pages")


def of_keys(settings: WorkloadSettings) -> Iterator[Complaint]:
    """What an entry says that has no meaning in any of the workloads it becomes."""
    patterns = [Rw(value) for value in settings.rw or ()]
    said = settings.model_fields_set
    if "rwmixread" in said and not any(one in (Rw.RW, Rw.RANDRW) for one in patterns):
        yield "rwmixread", "'rwmixread' has no meaning unless rw is rw or randrw"
    for key in _WRITES_ONLY:
        if any(getattr(settings, key) or ()) and not any(one.writes for one in patterns):
            yield key, f"'{key}' has no meaning for a workload that only reads"
    if any(one != "random" for one in settings.random_distribution or ()) and not any(
        one.value.startswith("rand") for one in patterns
    ):
        yield "random_distribution", "'random_distribution' has no meaning for a sequential workload"
    if "bs" in said and "bssplit" in said:
        yield "bssplit", "'bs' and 'bssplit' both say the size of an I/O: leave one out"
    if "rate" in said and "rate_iops" in said:
        yield "rate", "'rate' and 'rate_iops' both bound the rate: leave one out"
    if "thinktime_blocks" in said and not any(settings.thinktime or ()):
        yield "thinktime_blocks", "'thinktime_blocks' has no meaning without thinktime"


def of_workload(workload: Workload) -> Iterator[Complaint]:
    """Why one workload cannot be run; the first is told."""
    yield from _sizes(workload)
    yield from _times(workload)
    yield from _rates(workload)
    yield from _set_up(workload)
    yield from _trims(workload)
    if workload.bssplit_write and not (workload.rw.reads and workload.rw.writes):
        yield "bssplit", "a split for writes behind the comma has a meaning only where rw is rw or randrw"
    if workload.verify and (workload.buffer_compress_percentage or workload.dedupe_percentage):
        yield (
            "verify",
            "blocks that can be checked carry data of their own: leave out buffer_compress_percentage and dedupe_percentage",
        )
    if workload.verify and workload.rw.reads and len(workload.block_sizes) > 1:
        yield "verify", "blocks are checked as they were written, in one size: leave out bssplit"


def _trims(workload: Workload) -> Iterator[Complaint]:
    """A discard carries no data and blocks its caller, in fio as well."""
    if not workload.rw.trims:
        return
    if workload.setup != "psync":
        yield "setup", f"a trim is made by one call after another: leave out setup {workload.setup}"
    for key in ("verify", "buffer_compress_percentage", "dedupe_percentage", *_SYNCS):
        if getattr(workload, key):
            yield key, f"a trim carries no data: leave out {key}"
    if not workload.direct:
        yield "direct", "a trim passes by the page cache: leave out direct: false"
    if workload.find is not None:
        yield "find", "a search needs an open loop of reads or writes"


def _sizes(workload: Workload) -> Iterator[Complaint]:
    least = workload.bs_bytes * workload.iodepth
    if workload.size_bytes < least:
        yield (
            "size",
            (
                f"size {units.format_bytes(workload.size_bytes)} is less than bs x iodepth = {units.format_bytes(least)}: "
                "every I/O in flight needs a place of its own"
            ),
        )
    if least > BUFFER_BYTES_MAX:
        yield (
            "iodepth",
            (
                f"bs x iodepth = {units.format_bytes(least)} of buffers a job: more than {units.format_bytes(BUFFER_BYTES_MAX)}"
            ),
        )
    align = min(workload.block_sizes)
    if workload.offset_bytes % align:
        yield "offset", f"offset {workload.offset_bytes} is no multiple of the smallest block, {align} bytes"
    odd = [size for size in workload.block_sizes if size % align]
    if odd:
        yield "bssplit", f"{odd[0]} bytes are no multiple of the smallest block, {align} bytes"


def _times(workload: Workload) -> Iterator[Complaint]:
    if workload.runtime_s * 1000 / workload.interval_ms >= INTERVALS_MAX:
        yield "runtime", f"its runtime holds {INTERVALS_MAX} intervals or more: choose a longer interval_ms"
    if workload.interval_ms > workload.runtime_s * 1000:
        yield "interval_ms", "interval_ms is longer than its runtime"


def _rates(workload: Workload) -> Iterator[Complaint]:
    if workload.load_share is not None:
        yield from _load_points(workload)
    if workload.is_open_loop and workload.rate_iops is None and workload.find is None and workload.load_share is None:
        yield "arrival", f"arrival {workload.arrival} needs rate_iops: how many I/Os are due each second"
    if workload.is_open_loop and workload.thinktime_us:
        yield "thinktime", "an open loop does not think between I/Os: leave out thinktime, or the arrival"
    if workload.rate_bytes_per_s is not None and workload.rate_bytes_per_s < min(workload.block_sizes):
        yield "rate", "its rate is less than one I/O per second"
    if workload.find is not None and (workload.rate_iops is not None or workload.rate_bytes_per_s is not None):
        yield "find", "the rate is what is searched for: leave out rate_iops and rate"
    if workload.find is not None and workload.thinktime_us:
        yield "find", "a search has an open loop, which does not think: leave out thinktime"


def _load_points(workload: Workload) -> Iterator[Complaint]:
    if not workload.is_open_loop:
        yield "arrival", "a share of capacity is an open loop: leave out arrival: closed, or say the rate in bytes"
    if workload.find is not None:
        yield "find", "the rate is what is searched for: leave out rate"
    if workload.guests_at is not None:
        yield "rate", "how many guests a place carries is a question at a known rate: say it by rate_iops"


def _set_up(workload: Workload) -> Iterator[Complaint]:
    if workload.setup == "psync":
        if workload.iodepth != 1:
            what = "a trim" if workload.rw.trims else "setup psync"
            yield "setup", f"{what} has one I/O in flight: iodepth must be 1, not {workload.iodepth}"
        for key in _IO_URING_ONLY:
            if getattr(workload, key):
                yield key, f"{key} is a matter of io_uring: leave it out with setup psync"
        if workload.buffers == "registered":
            yield "buffers", "buffers are registered with io_uring: leave it out with setup psync"
    if workload.iopoll and not workload.direct:
        yield "iopoll", "polled I/O must be direct: leave out direct: false"
    if workload.iopoll and (workload.fsync or workload.fdatasync or workload.end_fsync):
        yield "iopoll", "a polled ring takes no fsync: leave out fsync, fdatasync and end_fsync"
