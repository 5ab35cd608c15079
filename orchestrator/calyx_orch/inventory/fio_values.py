"""The values of fio's options that have an equal here: from fio's spelling to that of an inventory. Pure.

Each translator takes the value (None: the option stands alone) and the options around it, and gives keys of a workload and notes.
ValueError: the value has no equal, and the sentence says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Translated = tuple[dict[str, str], list[str]]
_SIZES = {
    "": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "ki": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "mi": 1 << 20, "g": 1 << 30,
    "gb": 1 << 30, "gi": 1 << 30, "t": 1 << 40, "tb": 1 << 40, "ti": 1 << 40,
    "kib": 10**3, "mib": 10**6, "gib": 10**9, "tib": 10**12,  # the other way round than elsewhere, as fio has them by default
}  # fmt: skip
_TIMES_US = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1000,
    "msec": 1000,
    "us": 1,
    "usec": 1,
}
_MIX_DEFAULT = 50


@dataclass(frozen=True)
class Around:
    """The other options of the section, by name."""

    options: Mapping[str, Any]

    def value(self, name: str, default: str = "") -> str:
        """The value of another option of the section."""
        option = self.options.get(name)
        return default if option is None or option.value is None else str(option.value)


def size(written: str | None) -> int:
    """Bytes as fio 3.33 reads them: 4k and 4kb are 4096, 4kib is 4000, 0x is hexadecimal."""
    match = re.match(r"^(0x[0-9a-f]+|[0-9]+)([a-z]*)$", (written or "").strip().lower(), re.ASCII)
    if match is None or match[2] not in _SIZES:
        raise ValueError("is no size that has an equal here: write bytes, k, m, g or t")
    return int(match[1], 0 if match[1].startswith("0x") else 10) * _SIZES[match[2]]


def time_us(written: str | None, *, bare_us: int) -> int:
    """Microseconds of a time as fio reads it; `bare_us` is what a number without a unit counts."""
    match = re.match(r"^([0-9]+)([a-z]*)$", (written or "").strip().lower(), re.ASCII)
    if match is None or (match[2] and match[2] not in _TIMES_US):
        raise ValueError("is no time that has an equal here: write d, h, m, s, ms or us")
    return int(match[1]) * (_TIMES_US[match[2]] if match[2] else bare_us)


def is_off(written: str | None) -> bool:
    """Whether a switch is off; standing alone, it is on."""
    return written is not None and written.strip() in ("0", "false")


def _switch(key: str, *, on: str = "true", off: str = "false") -> Callable[[str | None, Around], Translated]:
    def translate(value: str | None, _: Around) -> Translated:
        if value is not None and value.strip() not in ("0", "1"):
            raise ValueError("is neither 0 nor 1")
        chosen = off if is_off(value) else on
        return ({key: chosen} if chosen else {}), []

    return translate


def _as_it_is(key: str) -> Callable[[str | None, Around], Translated]:
    return lambda value, _: ({key: value or ""}, [])


def _rw(value: str | None, _: Around) -> Translated:
    word = {"readwrite": "rw"}.get(value or "", value or "")
    if word not in ("read", "write", "randread", "randwrite", "rw", "randrw"):
        why = (
            "calyx does not trim" if "trim" in word else "read, write, randread, randwrite, rw and randrw have an equal"
        )
        raise ValueError(f"has no equivalent in calyx-orch: {why}")
    return {"rw": word}, []


def _bs(value: str | None, around: Around) -> Translated:
    sizes = [size(part) for part in (value or "").split(",") if part.strip()]
    if not sizes:
        raise ValueError("names no size")
    pattern = around.value("rw", "read")
    if len(set(sizes[:2])) == 1 or pattern in ("read", "randread"):
        return {"bs": str(sizes[0])}, []
    if pattern in ("write", "randwrite"):
        return {"bs": str(sizes[1])}, []
    return {"bssplit": f"{sizes[0]}/100,{sizes[1]}/100"}, []


def _bssplit(value: str | None, _: Around) -> Translated:
    sides = [[part.partition("/") for part in side.split(":")] for side in (value or "").split(",")[:2]]
    return {"bssplit": ",".join(":".join(f"{size(s)}/{percent}" for s, _, percent in side) for side in sides)}, []


def _size(key: str) -> Callable[[str | None, Around], Translated]:
    def translate(value: str | None, _: Around) -> Translated:
        if "%" in (value or ""):
            raise ValueError(f"has no equivalent in calyx-orch: write the {key} in bytes, the files are made anew")
        return {key: str(size(value))}, []

    return translate


def _time(key: str) -> Callable[[str | None, Around], Translated]:
    return lambda value, _: ({key: f"{time_us(value, bare_us=1_000_000) / 1e6:.6f}".rstrip("0").rstrip(".") + "s"}, [])


def _thinktime(value: str | None, _: Around) -> Translated:
    return {"thinktime": f"{time_us(value, bare_us=1)}us"}, []


def _rate(key: str, read: Callable[[str | None], int]) -> Callable[[str | None, Around], Translated]:
    """A rate is of each direction in fio, and of both together here: equal where it is shared out as the I/O is mixed."""

    def translate(value: str | None, around: Around) -> Translated:
        parts = [read(part) for part in (value or "").split(",") if part.strip()]
        if not parts or not all(parts):
            raise ValueError("is no rate that has an equal here")
        pattern = around.value("rw", "read")
        if pattern in ("read", "randread"):
            return {key: str(parts[0])}, []
        writes = parts[1] if len(parts) > 1 else parts[0]
        if pattern in ("write", "randwrite"):
            return {key: str(writes)}, []
        mix = int(around.value("rwmixread", str(_MIX_DEFAULT)))
        total = parts[0] + writes
        if abs(parts[0] * 100 - mix * total) > total:
            raise ValueError(
                f"has no equivalent in calyx-orch: a rate is of reads and writes together, {mix} % of it reads; "
                f"here {100 * parts[0] / total:.0f} % would be"
            )
        return {key: str(total)}, []

    return translate


def _rate_process(value: str | None, _: Around) -> Translated:
    if value == "linear":
        return {}, []
    raise ValueError(
        "has no equivalent in calyx-orch: arrival: poisson in an inventory is an open loop, which fio's is not"
    )


def _rwmixwrite(value: str | None, _: Around) -> Translated:
    share = int(value or "x") if (value or "").isdecimal() else -1
    if not 0 <= share <= 100:
        raise ValueError("is no percentage")
    return {"rwmixread": str(100 - share)}, []


def _sync(value: str | None, _: Around) -> Translated:
    if value in ("dsync",):
        raise ValueError("has no equivalent in calyx-orch: sync=1 (O_SYNC) has, and fdatasync=1")
    if value not in (None, "0", "none", "1", "sync"):
        raise ValueError("is neither none nor sync")
    return ({} if value in ("0", "none") else {"sync": "true"}), []


def _cpus_allowed(value: str | None, around: Around) -> Translated:
    split = around.value("cpus_allowed_policy", "shared") == "split"
    note = "each job is pinned to the next of these CPUs in turn (cpus_allowed_policy=split), by fio too"
    return {"cpus_allowed": value or ""}, [] if split else [note]


def _numa(value: str | None, _: Around) -> Translated:
    match = re.match(r"^bind:([0-9]+)$", value or "", re.ASCII)
    if match is None:
        raise ValueError("has no equivalent in calyx-orch: bind:NODE has, for threads and buffers")
    return {"numa": match[1]}, []


def _mem(value: str | None, _: Around) -> Translated:
    kind = (value or "").partition(":")[0]
    if kind in ("malloc", "mmap", "shm"):
        return {}, []
    if kind in ("mmaphuge", "shmhuge"):
        return {"huge_pages": "true"}, []
    raise ValueError("has no equivalent in calyx-orch")


def _verify(value: str | None, _: Around) -> Translated:
    if value in ("0", "none"):
        return {}, []
    if value != "crc32c":
        raise ValueError("has no equivalent in calyx-orch: crc32c has")
    return {"verify": "crc32c"}, [
        "blocks are checked whenever they are read, not in a phase of its own; fio is no baseline of that"
    ]


def _invalidate(value: str | None, _: Around) -> Translated:
    if is_off(value):
        raise ValueError("has no equivalent in calyx-orch: the page cache is always emptied of the file first")
    return {}, []


def _policy(value: str | None, around: Around) -> Translated:
    if "cpus_allowed" not in around.options and value == "shared":
        return {}, []
    if value not in ("split", "shared"):
        raise ValueError("is neither shared nor split")
    return {}, []


def _offset_increment(value: str | None, _: Around) -> Translated:
    if value is not None and size(value) == 0:
        return {}, []
    raise ValueError("has no equivalent in calyx-orch: each job has a file of its own")


TRANSLATED: Mapping[str, Callable[[str | None, Around], Translated]] = {
    "rw": _rw,
    "bs": _bs,
    "bssplit": _bssplit,
    "size": _size("size"),
    "offset": _size("offset"),
    "offset_increment": _offset_increment,
    "iodepth": _as_it_is("iodepth"),
    "numjobs": _as_it_is("numjobs"),
    "runtime": _time("runtime"),
    "ramp_time": _time("ramp_time"),
    "direct": _switch("direct"),
    "buffered": _switch("direct", on="false", off="true"),
    "rwmixread": _as_it_is("rwmixread"),
    "rwmixwrite": _rwmixwrite,
    "rate": _rate("rate", size),
    "rate_iops": _rate("rate_iops", size),
    "rate_process": _rate_process,
    "random_distribution": _as_it_is("random_distribution"),
    "randseed": _as_it_is("randseed"),
    "fsync": _as_it_is("fsync"),
    "fdatasync": _as_it_is("fdatasync"),
    "sync": _sync,
    "end_fsync": _switch("end_fsync", off=""),
    "buffer_compress_percentage": _as_it_is("buffer_compress_percentage"),
    "dedupe_percentage": _as_it_is("dedupe_percentage"),
    "thinktime": _thinktime,
    "thinktime_blocks": _as_it_is("thinktime_blocks"),
    "cpus_allowed": _cpus_allowed,
    "cpus_allowed_policy": _policy,
    "numa_mem_policy": _numa,
    "mem": _mem,
    "hipri": _switch("iopoll", off=""),
    "sqthread_poll": _switch("setup", on="sqpoll", off=""),
    "verify": _verify,
    "invalidate": _invalidate,
}
