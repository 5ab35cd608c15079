"""What a guest says of itself, its files and its cleaning, checked once where it comes in; all behind may trust the types. Pure.

A shape names the keys that somebody reads. A key that is missing or null is unknown, and further keys are kept as they are:
an agent may be older or newer. Numbers, text and depth are bounded already (calyx_agent.protocol.parse_json).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from calyx_orch.engines import clipped, is_count
from calyx_orch.errors import AgentError

Message = Mapping[str, Any]
Shape = Callable[
    [Any], str
]  # what is wrong with a value, as `is no text` or `[2].path is no text`; empty when nothing is

PATH_MAX = 4096
TEXT_MAX = 8192  # of a fact
LIST_MAX = 10_000
SHARED_MAX = 64
_NODES = re.compile(r"(?:[0-9]{1,5}(?:-[0-9]{1,5})?)(?:,[0-9]{1,5}(?:-[0-9]{1,5})?){0,99}\Z")


def text(value: Any) -> str:
    """A string of no more than TEXT_MAX characters."""
    if not isinstance(value, str):
        return " is no text"
    return f" is longer than {TEXT_MAX} characters" if len(value) > TEXT_MAX else ""


def path(value: Any) -> str:
    """An absolute path that the kernel could take."""
    if not isinstance(value, str) or not value.startswith("/"):
        return " is no absolute path"
    return "" if "\0" not in value and len(value.encode()) <= PATH_MAX else " is no path that the kernel takes"


def number(value: Any) -> str:
    """A count from 0 to below 2^63."""
    return "" if is_count(value) or isinstance(value, bool) else " is no count"


def flag(value: Any) -> str:
    """True or false; 0 and 1 will do."""
    return "" if value in (0, 1) and isinstance(value, bool | int) else " is neither true nor false"


def nodes(value: Any) -> str:
    """Numbers of NUMA nodes as the kernel lists them, `0-1,4`."""
    return "" if isinstance(value, str) and (not value or _NODES.match(value)) else " is no list of nodes"


@dataclass(frozen=True)
class Each:
    """A list whose every entry has a shape."""

    shape: Shape

    def __call__(self, value: Any) -> str:
        """What is wrong with the list or its first bad entry."""
        if not isinstance(value, list):
            return " is no list"
        if len(value) > LIST_MAX:
            return f" has more than {LIST_MAX} entries"
        return next((f"[{at}]{wrong}" for at, one in enumerate(value) if (wrong := self.shape(one))), "")


@dataclass(frozen=True)
class Keys:
    """An object whose keys have shapes; `needed` ones must be there."""

    shapes: Mapping[str, Shape]
    needed: tuple[str, ...] = ()

    def __call__(self, value: Any) -> str:
        """What is wrong with the object or its first bad key."""
        if not isinstance(value, dict):
            return " is no object"
        for key in self.needed:
            if value.get(key) is None:
                return f" has no {key}"
        for key, shape in self.shapes.items():
            if value.get(key) is not None and (wrong := shape(value[key])):
                return f".{key}{wrong}"
        return ""


def _all(shape: Shape, names: str) -> dict[str, Shape]:
    return dict.fromkeys(names.split(), shape)


CLOCK = Keys({"source": text, "cost_ns": number, "resolution_ns": number})
PATH_FACTS = Keys(
    {
        **_all(text, "path why fs_type fs_uuid mount mount_options source device scheduler write_cache model"),
        **_all(flag, "exists is_dir writable is_block is_fuse is_ram rotational"),
        **_all(number, "free_bytes free_inodes total_inodes total_bytes logical_block_size physical_block_size queue_depth io_poll"),
        "stale": Each(text),
        "kept": Each(text),
        "disk": Keys(_all(text, "number serial wwid uuid backing_file") | _all(number, "size_bytes")),
        "block": Keys(_all(text, "node serial wwid refused") | _all(number, "size_bytes") | _all(flag, "discard")),
    },
    needed=("path",),
)  # fmt: skip
FACTS = Keys(
    {
        **_all(text, "hostname kernel machine_id boot_id arch clocksource hypervisor product path_env cpu_model"),
        **_all(number, "cpus memory_bytes huge_page_bytes huge_pages_free io_uring_disabled memlock_bytes uid"),
        "numa_nodes": nodes,
        "clock": CLOCK,
        "vm_host": Keys(_all(text, "kvp smbios")),
        "vm_host_at_end": Keys(_all(text, "kvp smbios")),
        "virtual": Keys(_all(text, "cpuid vendor container")),
        "io_uring": Keys({"ok": flag, "why": text, "errno": number, "features": number, "setups": Each(text)}),
        "paths": Each(PATH_FACTS),
        "programs": Each(Keys({"name": text, "path": path}, needed=("name",))),
    }
)
PREPARED = Keys(
    {
        "directory": path,
        "device": path,
        "serial": text,
        **_all(text, "layout anew"),
        "files": Each(Keys({"path": path, **_all(number, "size extents unwritten holes")}, needed=("path",))),
        **_all(number, "written_bytes took_ns free_bytes free_inodes laid_s uses"),
    },
    needed=("files",),
)
WHY = Each(Keys({"path": text, "why": text}))
CLEANED = Keys(
    {
        "removed": Each(text), "failed": WHY, "kept": WHY, "list": flag, "more": flag, "stay": number,
        "found": Each(Keys({**_all(text, "path kind run by keep"), **_all(number, "since_s pid files bytes")}, needed=("path",))),
        "freed": Each(Keys({**_all(text, "path mount discard"), "bytes": number}, needed=("path",))),
    }
)  # fmt: skip
FLOOR = Keys(_all(number, "iodepth ios ns_per_io p50_ns p99_ns"))
TRUTH = Keys(
    {
        "direct": flag,
        **_all(
            number,
            "reads cold_read_ns cold_min_ns cold_max_ns hot_read_ns hot_min_ns hot_max_ns writes write_ns flush_write_ns "
            "flush_min_ns flush_max_ns",
        ),
    }
)
SHAPES: Mapping[str, Shape] = {
    "facts": FACTS, "prepared": PREPARED, "cleaned": CLEANED, "floor": FLOOR, "truth": TRUTH,
}  # fmt: skip


def checked(message: Message, step: str) -> dict[str, Any]:
    """The message without its type, when it has the shape of that type. Raises AgentError for `step` with what is wrong."""
    kind = str(message.get("type"))
    wrong = SHAPES[kind](message)
    if wrong:
        raise AgentError(clipped(f"its answer `{kind}` makes no sense: {wrong.lstrip('. ')}"), step=step)
    return {sys.intern(key): _shared(value) for key, value in message.items() if key != "type"}


def _shared(value: Any) -> Any:
    """The same with every key and short text held once for all guests: what a thousand say of themselves is mostly one text."""
    if isinstance(value, dict):
        return {sys.intern(key): _shared(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_shared(one) for one in value]
    return sys.intern(value) if type(value) is str and len(value) <= SHARED_MAX else value
