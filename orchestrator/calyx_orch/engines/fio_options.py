"""A workload in the options of fio 3.33, and why a workload has no equal in fio. Pure.

What is not the same in both engines is no baseline: `no_equal` says why, and such a round is not planned. Seen with fio 3.33:

* `rate` and `rate_iops` are per direction; a mixed workload's are shared out by `rwmixread`.
* before it waits (for a rate, for `thinktime`) fio lets all that is in flight come back, unless submission is offloaded to
  threads; so it has no open loop, and thinks with an empty queue.
* the poller of `sqthread_poll` inherits the CPUs of its job, unless `sqthread_poll_cpu` names its own, one for all jobs.
* zipf, pareto and normal are drawn once for reads and writes: with different smallest blocks (`bssplit` with a comma) the mix is bent,
  and a job may end with its first write.
* `verify` checks blocks that fio wrote itself, in a phase after the measured one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calyx_orch.model import Workload

SYNCHRONOUS = "psync"
BY_BLOCK = ("zipf", "pareto", "normal")


def no_equal(ioengine: str, workload: Workload) -> str | None:
    """Why fio with this ioengine (io_uring, libaio, psync) does not make the same I/O as calyx; None when it does."""
    if workload.find is not None or workload.guests_at is not None:
        return "a search is made by calyx alone"
    if workload.is_open_loop:
        return (
            "fio has no open loop: before it waits for the next I/O that is due it lets all in flight come back, "
            "and it measures no latency from when an I/O was due"
        )
    if workload.verify is not None:
        return "fio checks only blocks that it wrote itself, in a phase after the measured one"
    if workload.random_distribution.partition(":")[0] in BY_BLOCK and _smallest_differ(workload):
        return (
            "fio draws the places of reads and writes from one distribution of blocks: where their smallest blocks differ, "
            "it runs off the file and ends early"
        )
    if workload.thinktime_us and workload.iodepth > 1:
        return f"fio thinks with an empty queue: it lets all {workload.iodepth} in flight come back first"
    if workload.setup == SYNCHRONOUS and ioengine != SYNCHRONOUS:
        return f"setup psync makes one call after another, {ioengine} does not: fio-psync does"
    if ioengine == SYNCHRONOUS and workload.setup != SYNCHRONOUS:
        return "fio's psync makes one call after another: it compares with setup psync only"
    if workload.setup == "sqpoll" and workload.cpus_allowed is not None and ioengine == "io_uring":
        return "fio's poller inherits cpus_allowed and takes a CPU from the job that it serves; that of calyx has one of its own"
    if workload.iopoll and ioengine != "io_uring":
        return f"fio's {ioengine} has no polled completions"
    return None


def _smallest_differ(workload: Workload) -> bool:
    reads, writes = workload.bssplit, workload.bssplit_write
    return bool(reads and writes) and min(size for size, _ in reads) != min(size for size, _ in writes)


def pattern(workload: Workload) -> list[str]:
    """The options that say which I/O is made."""
    mixed = workload.rw.reads and workload.rw.writes
    options = [f"--rw={workload.rw}", *_sizes(workload), f"--iodepth={workload.iodepth}"]
    options += [f"--size={workload.size_bytes}", *_said("offset", workload.offset_bytes)]
    options += [f"--direct={int(workload.direct)}", *(() if workload.direct else ("--invalidate=1",))]
    options += ["--time_based", "--norandommap", "--allow_file_create=0", *_data(workload)]
    if mixed:
        options.append(f"--rwmixread={workload.rwmixread}")
    if workload.rate_iops:
        options.append(f"--rate_iops={_rates(workload, workload.rate_iops) if mixed else workload.rate_iops}")
    if workload.rate_bytes_per_s:
        options.append(f"--rate={_rates(workload, workload.rate_bytes_per_s) if mixed else workload.rate_bytes_per_s}")
    if workload.random_distribution != "random":
        options.append(f"--random_distribution={workload.random_distribution}")
    if workload.rw.writes:
        options += _durability(workload)
    if workload.thinktime_us:
        options += [f"--thinktime={workload.thinktime_us}", f"--thinktime_blocks={workload.thinktime_blocks}"]
    return options


# What makes glibc's malloc, from which fio takes its buffers, ask for transparent huge pages as calyx does. fio has no option for it.
HUGE_BY_MALLOC = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"


def environment(taken: Mapping[str, Any]) -> tuple[str, ...]:
    """The words in front of fio that give it an environment: where calyx's buffers lie on transparent huge pages, fio's do too."""
    return ("env", HUGE_BY_MALLOC) if taken.get("transparent_huge") else ()


def set_up(workload: Workload, taken: Mapping[str, Any], ioengine: str) -> list[str]:
    """What took effect for calyx on this guest, in fio's words; what concerns io_uring only where fio uses it."""
    options = []
    if ioengine == "io_uring":
        for name, option in (
            ("fixed_buffers", "--fixedbufs=1"),
            ("fixed_files", "--registerfiles=1"),
            ("sqpoll", "--sqthread_poll=1"),
            ("iopoll", "--hipri=1"),
        ):
            options += [option] if taken.get(name) else []
        pollers = taken.get("poller_cpus")
        if (
            taken.get("sqpoll")
            and isinstance(pollers, list)
            and pollers
            and type(pollers[0]) is int
            and workload.numjobs == 1
        ):
            options.append(f"--sqthread_poll_cpu={pollers[0]}")
    if taken.get("huge"):
        options.append("--mem=mmaphuge")
    if workload.cpus_allowed is not None:
        options += [f"--cpus_allowed={workload.cpus_allowed}", "--cpus_allowed_policy=split"]
    if workload.numa is not None:
        options += [f"--numa_mem_policy=bind:{workload.numa}"]
        options += [f"--numa_cpu_nodes={workload.numa}"] if workload.cpus_allowed is None else []
    return options


def _said(name: str, value: int) -> list[str]:
    return [f"--{name}={value}"] if value else []


def _sizes(workload: Workload) -> list[str]:
    if not workload.bssplit:
        return [f"--bs={workload.bs_bytes}"]
    sides = [workload.bssplit, *([workload.bssplit_write] if workload.bssplit_write else [])]
    return ["--bssplit=" + ",".join(":".join(f"{size}/{percent}" for size, percent in side) for side in sides)]


def _data(workload: Workload) -> list[str]:
    """Each write differs at next to no cost; compressible or repeating data must be made anew for each."""
    if not (workload.buffer_compress_percentage or workload.dedupe_percentage):
        return ["--refill_buffers=0", "--scramble_buffers=1"]
    return [
        "--refill_buffers=1",
        *_said("buffer_compress_percentage", workload.buffer_compress_percentage),
        *_said("dedupe_percentage", workload.dedupe_percentage),
    ]


def _durability(workload: Workload) -> list[str]:
    options = [*_said("fsync", workload.fsync), *_said("fdatasync", workload.fdatasync)]
    return options + [f"--{name}=1" for name in ("sync", "end_fsync") if getattr(workload, name)]


def _rates(workload: Workload, total: int) -> str:
    """A rate is of reads and writes together for us, but per direction for fio: it is shared out by `rwmixread`."""
    reads = min(max(round(total * workload.rwmixread / 100), 1), max(total - 1, 1))
    return f"{reads},{max(total - reads, 1)}"
