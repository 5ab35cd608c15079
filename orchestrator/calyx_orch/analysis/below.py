"""Doubts about what lies below the engine: files, file system, caches and storage. The rules of `validity` are these and its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from calyx_orch import units
from calyx_orch.analysis import vm_hosts
from calyx_orch.analysis.doubt import Context, Doubt
from calyx_orch.engines.answers import NOT_IDLE
from calyx_orch.model import NANOSECONDS

HOT_RATIO_MIN = 3.0  # a first read this many times slower than its repetition did not come from the same place
FLUSH_AT_ONCE_NS = 150_000  # less than any disk without power-loss protection needs to make 4 KiB durable
MEMORY_RATIO_MIN = 2  # files of less than that many times the memory may be answered from it
SMALL_FILES_BYTES = 1 << 30  # what controllers, arrays and the memory of an SSD commonly cache
STALL_MIN_NS = 500_000_000
STALL_RATIO = 20  # times the mean time between I/Os: a slow or rated workload has gaps of its own
COMPRESSED_AT_ONCE = (
    128 << 10
)  # bytes that a file system compresses together: it sees no two blocks of this size at once
COMPRESSING = {
    "btrfs": ("compress",),
    "bcachefs": ("compression=", "background_compression="),
    "f2fs": ("compress_algorithm=",),
}


def unwritten(context: Context) -> Doubt | None:
    """Some of the file is a hole or an unwritten extent, which reads without any I/O."""
    files = context.prepared.get("files")
    entries = [entry for entry in files if isinstance(entry, dict)] if isinstance(files, list) else []
    missing = sum(int(entry.get("unwritten") or 0) + int(entry.get("holes") or 0) for entry in entries)
    if missing == 0:
        return None
    return Doubt(
        "unwritten",
        "unwritten extents",
        f"{missing} bytes of the files are holes or unwritten and read without any I/O",
        "see whether the file system is thin, compressed or full",
        missing,
    )


def in_memory(context: Context) -> Doubt | None:
    """The target lies in RAM."""
    entries = context.facts.get("paths")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("path") == context.path and entry.get("is_ram") is True:
            return Doubt(
                "ram", "target in RAM", f"{context.path} is memory, not a disk", "choose a directory on a disk"
            )
    return None


def implausible(context: Context) -> Doubt | None:
    """More was read or written than the way to the storage can carry (`limits`): something nearer answered."""
    measurement, limits = context.measurement, context.limits
    found = [
        (part.bytes * NANOSECONDS / (measurement.window_ns * limit), what, limit)
        for what, part, limit in (
            ("read", measurement.read, limits.max_read_bytes_per_s),
            ("written", measurement.write, limits.max_write_bytes_per_s),
        )
        if part is not None and limit is not None and measurement.window_ns > 0
    ]
    ratio, what, limit = max(found, default=(0.0, "", 0))
    if ratio <= 1:
        return None
    return Doubt(
        "implausible",
        "implausible",
        f"{units.format_rate(ratio * limit)} were {what}, and the way to the storage carries {units.format_rate(limit)} (limits:): a cache "
        "on this side of it answered",
        "use direct I/O and files beyond all caches, or correct limits: in the inventory",
        ratio,
    )


def too_small(context: Context) -> Doubt | None:
    """The files of the target are so small that the caches of a controller, an array or an SSD hold them whole."""
    workload = context.round.workload
    files = workload.size_bytes * workload.numjobs
    if files >= SMALL_FILES_BYTES or not workload.direct:
        return None
    return Doubt(
        "small",
        "small files",
        f"{units.format_bytes(files)} of files fit into the cache of a controller, an array or an SSD: its speed may be measured",
        f"use a size of {units.format_bytes(SMALL_FILES_BYTES)} and more, better beyond all caches on the way",
        -files,
    )


def not_idle(context: Context) -> Doubt | None:
    """Before the round the device did not become idle within `settle`: somebody else used it."""
    if NOT_IDLE not in context.measurement.doubts:
        return None
    return Doubt(
        "other-io",
        NOT_IDLE,
        "the device was still busy when the round began, for as long as `settle` waited: something else does I/O on it",
        "stop it, wait longer (settle), or measure at another time",
    )


def other_vm_host(context: Context) -> Doubt | None:
    """The inventory declares another vm_host than the hypervisor told the guest."""
    found, declared = vm_hosts.told(context.facts), context.measurement.vm_host
    if found is None or declared is None or vm_hosts.is_same(declared, found[0]):
        return None
    return Doubt(
        "vm-host",
        "other vm_host",
        f"the inventory says vm_host {declared}, {vm_hosts.HOW[found[1]]} says {found[0]}: figures by vm_host are of another one",
        "correct vm_host: in the inventory, or leave it out: then what the guest is told holds",
    )


def moved(context: Context) -> Doubt | None:
    """The guest was on another vm_host after the last round than before the first."""
    hosts = vm_hosts.moved(context.facts)
    if hosts is None:
        return None
    return Doubt(
        "moved",
        "moved",
        f"the guest moved from {hosts[0]} to {hosts[1]} between the first round and the last: its figures are of both",
        "keep guests where they are while they are measured (no live migration), and measure it again",
    )


def page_cached(context: Context) -> Doubt | None:
    """Buffered I/O on files that may lie in the guest's memory as a whole: how much it has decides, and not its disk."""
    workload, memory = context.round.workload, context.facts.get("memory_bytes")
    files = workload.size_bytes * workload.numjobs
    if workload.direct or not isinstance(memory, int) or files >= MEMORY_RATIO_MIN * memory:
        return None
    return Doubt(
        "page-cache",
        "page cache",
        f"the I/O is buffered, and {units.format_bytes(files)} of files are less than twice the guest's memory of "
        f"{units.format_bytes(memory)}: the page cache decides",
        "use direct I/O, or files of twice the memory, and compare no guests with different memory",
        memory / max(files, 1),
    )


def stalled(context: Context) -> Doubt | None:
    """No I/O of either direction was completed for half a second and 20 times as long as usual: something stood still.

    Counted in whole intervals of the series, so it lasted at least that long. What a workload waits for by itself is not counted.
    """
    measurement, series = context.measurement, context.measurement.series
    if series is None or measurement.window_ns <= 0:
        return None
    idle_ns = min(_longest_gap(series.total_ios) * series.interval_ns, measurement.window_ns)
    usual_ns = (measurement.window_ns - idle_ns) / max(measurement.total_ios, 1)
    longest_ns = max(STALL_MIN_NS, STALL_RATIO * usual_ns) + 1000 * context.round.workload.thinktime_us
    if idle_ns < longest_ns:
        return None
    idle_s = idle_ns / NANOSECONDS
    return Doubt(
        "stalled",
        f"stalled {idle_s:.1f} s",
        f"for {idle_s:.1f} s of the window not one I/O was completed: the storage, the engine or the whole guest stood still",
        "see whether the guest or its engine was paused (a snapshot, a migration, a signal) or its storage hung",
        idle_ns,
    )


def _longest_gap(values: Iterable[float]) -> int:
    """The largest number of consecutive intervals without anything."""
    return max(
        (sum(1 for _ in run) for is_empty, run in groupby(value <= 0 for value in values) if is_empty), default=0
    )


def compressible(context: Context) -> Doubt | None:
    """fio, which writes few buffers over and over with a mark, onto a file system that compresses several blocks at once.

    calyx marks each sector of many more buffers. fio could make each write anew, but at a cost in CPU that calyx does not have.
    """
    workload = context.round.workload
    if context.measurement.engine == "calyx" or not workload.rw.writes or workload.block_sizes[0] >= COMPRESSED_AT_ONCE:
        return None
    if workload.buffer_compress_percentage or workload.dedupe_percentage:
        return None  # data is made anew for each write, and is meant to shrink
    how = _compresses(context)
    if how is None:
        return None
    return Doubt(
        "compressible",
        "compressible",
        f"fio writes its buffers again and again, and {how} may find that they recur: fio then writes less than calyx",
        "switch compression off for the target, or do not compare written data there",
    )


def _compresses(context: Context) -> str | None:
    """The file system of the target where it is known to compress; None where it does not, or nothing tells."""
    entries = context.facts.get("paths")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("path") == context.path:
            kind, options = entry.get("fs_type"), str(entry.get("mount_options") or "").split(",")
            named = [option for option in options if option.startswith(COMPRESSING.get(str(kind), ()))]
            if kind == "zfs" or any(option.partition("=")[2] not in ("no", "none") for option in named):
                return f"{kind} ({named[0]})" if named else f"{kind}"
    return None


def cached_below(context: Context) -> Doubt | None:
    """After the layout a block was read again more than three times quicker than the first time: a cache of host or array."""
    cold, hot = (_truth(context, f"{name}_read_ns") for name in ("cold", "hot"))
    if not context.round.workload.rw.reads or cold is None or hot is None or cold < HOT_RATIO_MIN * hot:
        return None
    return Doubt(
        "cache",
        "cache below",
        f"a block is read again in {hot / 1000:.0f} µs, {cold / hot:.1f} times quicker than at first: a cache of host or array answers",
        "use a size beyond that cache, or take the figures as those of the cache",
        cold / hot,
    )


def flush_at_once(context: Context) -> Doubt | None:
    """4 KiB and a flush take less than a disk needs: the flush is ignored, or the device is protected against power loss."""
    workload, took = context.round.workload, _truth(context, "flush_write_ns")
    durable = workload.fsync or workload.fdatasync or workload.sync or workload.end_fsync
    if not (durable and workload.rw.writes) or took is None or took >= FLUSH_AT_ONCE_NS:
        return None
    return Doubt(
        "flush",
        "flush at once",
        f"4 KiB and a flush take {took / 1000:.0f} µs: the flush is ignored somewhere, or the device is protected against power loss",
        "ask which (cache mode of the virtual disk, protection of the device); if it is ignored, written data is not durable",
        FLUSH_AT_ONCE_NS / max(took, 1),
    )


def _truth(context: Context, name: str) -> int | None:
    """One figure of the probe after the layout of this target; None when it was not made or makes no sense."""
    probes = context.facts.get("truth")
    probe = probes.get(context.round.target) if isinstance(probes, Mapping) else None
    value = probe.get(name) if isinstance(probe, Mapping) else None
    return value if isinstance(value, int) and value > 0 else None
