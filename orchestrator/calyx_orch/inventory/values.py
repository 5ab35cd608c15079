"""The values of an inventory: they arrive as text (see documents/), and each type here says what that text must be."""

from __future__ import annotations

import posixpath
import re
import zoneinfo
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, WithJsonSchema

from calyx_orch import units
from calyx_orch.inventory import words
from calyx_orch.model import Rw, Window

T = TypeVar("T")
_WHOLE = re.compile(r"^-?(0|[1-9][0-9]*)$", re.ASCII)
_TRUE, _FALSE = frozenset({"true", "yes", "on"}), frozenset({"false", "no", "off"})
_WORKLOAD_NAME = re.compile(r"^\w[\w.+-]{0,79}$")

_DEVICES_ELSEWHERE = (
    "a path is that of a directory; a raw device, whose content is destroyed, is given as "
    "{device: /dev/disk/by-id/..., destructive: true}"
)
BY_ID = "/dev/disk/by-id/"
SHARED_MEMORY = "/dev/shm/"  # below /dev, and all the same a directory


def text(value: Any) -> str:
    """Text as written. ValueError for nothing, a list or a mapping, and for control characters."""
    if value is None:
        raise ValueError("is empty: give a text, or leave the key out")
    if not isinstance(value, str):
        raise ValueError(f"is text, not a {'list' if isinstance(value, list) else 'mapping'}")
    if not value.strip():
        raise ValueError("is empty: give a text, or leave the key out")
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise ValueError("holds a control character (a line break or tab?)")
    return value


def _whole(value: Any) -> int:
    written = text(value)
    if not _WHOLE.match(written) or len(written) > 20:
        raise ValueError(f"{written[:40]!r} is no whole number (digits only, no leading zero, no _ or exponent)")
    return int(written)


def _boolean(value: Any) -> bool:
    written = text(value).lower()
    if written not in _TRUE | _FALSE:
        raise ValueError(f"{written[:40]!r} is neither true nor false")
    return written in _TRUE


def parsed(parse: Callable[[str], Any]) -> BeforeValidator:
    """A value that `parse` makes of its text; what it raises as ValueError is the problem that is told."""
    return BeforeValidator(lambda value: parse(text(value)))


def _directory(value: Any) -> str:
    written = text(value)
    path = "/" + posixpath.normpath(written).lstrip("/")
    if not written.startswith("/"):
        raise ValueError(f"{written[:60]!r} is a relative path: give the absolute path of a directory on the guest")
    if ".." in written.split("/"):
        raise ValueError("holds '..': give the plain path")
    if (path == "/dev" or path.startswith("/dev/")) and not f"{path}/".startswith(SHARED_MEMORY):
        raise ValueError(_DEVICES_ELSEWHERE)
    return path


def _device(value: Any) -> str:
    written = text(value)
    path = "/" + posixpath.normpath(written).lstrip("/")
    if not path.startswith("/dev/") or f"{path}/".startswith(SHARED_MEMORY) or ".." in written.split("/"):
        raise ValueError(f"{written[:60]!r} is no path below /dev: give /dev/disk/by-id/..., or a path and its serial:")
    return path


def _program(value: Any) -> str:
    path = text(value)
    if not path.startswith("/"):
        raise ValueError(f"{path[:60]!r} is a relative path: give an absolute path on the guest")
    return path


def _agent_dir(value: Any) -> str:
    path = text(value)
    if not path.startswith(("/", "~/")):
        raise ValueError(
            f"{path[:60]!r} is a relative path: give an absolute path on the guest, or one that begins with ~/"
        )
    return path


def _workload_name(value: Any) -> str:
    name = text(value)
    if not _WORKLOAD_NAME.match(name):
        raise ValueError(f"{name[:60]!r} is no name of a workload: letters, digits and . _ + - only")
    return name


class _Many:
    """A list, or one value that stands for a list of one."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
        many = handler(core)
        return {"anyOf": [many["items"], many]} if "items" in many else many


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


_LATENCY_PATTERN = r"^[0-9.]+ *(ns|us|µs|ms|s)$"
_WINDOW_PATTERN = r"^([01]?\d|2[0-3]):([0-5]\d) *- *([01]?\d|2[0-3]):([0-5]\d)(?: +(\S+))?$"


def _day_window(value: Any) -> Window:
    found = re.match(_WINDOW_PATTERN, value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is no window: write begin and end, such as 01:00-05:00 Europe/Berlin")
    begin, end = int(found[1]) * 60 + int(found[2]), int(found[3]) * 60 + int(found[4])
    if begin == end:
        raise ValueError(f"{value!r} is no window: it begins when it ends")
    zone = found[5] or "UTC"
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{zone!r} is no time zone: write one such as Europe/Berlin, or none for UTC") from None
    return Window(begin, end, zone)


_SIZE_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": units.SIZE_PATTERN}]}
_RATE_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": units.RATE_PATTERN}]}
_SHARE_SCHEMA = {
    "anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "pattern": units.PERCENT_PATTERN}]
}
_DURATION_SCHEMA = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": units.DURATION_PATTERN}]}

Text = Annotated[str, BeforeValidator(text)]
Boolean = Annotated[bool, BeforeValidator(_boolean)]
Whole = Annotated[int, BeforeValidator(_whole)]
Size = Annotated[int, parsed(units.parse_size), WithJsonSchema(_SIZE_SCHEMA)]
BlockSize = Annotated[int, parsed(words.block_size), WithJsonSchema(_SIZE_SCHEMA)]
Duration = Annotated[float, parsed(units.parse_duration), WithJsonSchema(_DURATION_SCHEMA)]
Rate = Annotated[int, parsed(units.parse_rate), WithJsonSchema(_RATE_SCHEMA), Field(gt=0)]
RateOrShare = Annotated[
    int | float,
    parsed(words.rate),
    WithJsonSchema({"anyOf": [*_RATE_SCHEMA["anyOf"], {"type": "string", "pattern": units.PERCENT_PATTERN}]}),
    Field(gt=0),
]
Latency = Annotated[
    float, parsed(units.parse_latency), WithJsonSchema({"type": "string", "pattern": _LATENCY_PATTERN}), Field(gt=0)
]
DayWindow = Annotated[
    Window, BeforeValidator(_day_window), WithJsonSchema({"type": "string", "pattern": _WINDOW_PATTERN})
]
Share = Annotated[float, parsed(units.parse_share), WithJsonSchema(_SHARE_SCHEMA)]
Directory = Annotated[str, BeforeValidator(_directory)]
Device = Annotated[str, BeforeValidator(_device)]
Program = Annotated[str, BeforeValidator(_program)]
AgentDir = Annotated[str, BeforeValidator(_agent_dir)]
WorkloadName = Annotated[str, BeforeValidator(_workload_name)]
Pattern = Annotated[
    Literal["read", "write", "randread", "randwrite", "rw", "randrw", "trim", "randtrim"],
    BeforeValidator(words.pattern),
    WithJsonSchema({"type": "string", "enum": [*map(str, Rw), words.READWRITE]}),
]
Split = Annotated[
    tuple[words.Split, words.Split], parsed(words.bssplit), WithJsonSchema({"type": "string", "pattern": r"^[0-9].*/"})
]
Distribution = Annotated[
    str, parsed(words.random_distribution), WithJsonSchema({"type": "string", "pattern": words.DISTRIBUTION_PATTERN})
]
Cpus = Annotated[
    str,
    parsed(words.cpus_allowed),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": words.CPUS_PATTERN}]}),
]
Thinktime = Annotated[
    int,
    parsed(words.thinktime_us),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^[0-9]+\s*[a-z]*$"}]}),
]
Find = Annotated[str, parsed(words.find), WithJsonSchema({"type": "string", "pattern": words.FIND_PATTERN})]
Many = Annotated[list[T], BeforeValidator(_as_list), Field(min_length=1), _Many]
Label = Annotated[str, BeforeValidator(text), WithJsonSchema({"type": ["string", "number", "boolean"]})]
Labels = dict[str, Label]
