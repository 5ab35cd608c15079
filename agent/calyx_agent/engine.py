"""The engine in this process: the same jobs and the same result document as the agent's `run` (docs/protocol.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from calyx_agent import protocol
from calyx_agent._engine import ffi, lib

HISTOGRAM_BUCKETS: int = lib.CALYX_HISTOGRAM_BUCKETS
START_AHEAD_NS = 20_000_000  # from `run` to its start line
_LOOK_NS = 100_000_000
_OPERATIONS = {lib.CALYX_DIR_READ: "read", lib.CALYX_DIR_WRITE: "write", lib.CALYX_DIR_SYNC: "sync"}


class EngineError(RuntimeError):
    """The engine refused a job, or the job failed: a sentence."""


@dataclass(frozen=True)
class Hung:
    """An I/O that has not come back for a second and more: `op` is read, write or sync, `job` its place among the paths."""

    op: str
    offset: int
    age_ns: int
    job: int


@dataclass(frozen=True)
class Progress:
    """How a job goes. `started_ns` is None before the first I/O; `ios` and `bytes` count from the start, ramp included.

    `hung_count` I/Os have been in flight for a second and more; `hung` are the oldest of them, a few, oldest first.
    """

    started_ns: int | None
    ios: int
    bytes: int
    oldest_ns: int
    hung_count: int = 0
    hung: tuple[Hung, ...] = ()


def run(
    job: Mapping[str, Any],
    progress: Callable[[Progress], bool | None] | None = None,
    *,
    start_ns: int | None = None,
) -> dict[str, Any]:
    """Runs one job and returns its result document.

    `job` has the keys of the `run` line; `path` is one path or a list of them, one a thread. `progress` is called some ten
    times a second and stops the job early when it returns True; so does an exception, which is passed on. `start_ns` is an
    instant of CLOCK_MONOTONIC, by default 20 ms from now. Raises EngineError when the job is refused or fails.
    """
    line = protocol.encode("run", _pairs(job)).rstrip(b"\n")
    why = ffi.new("char[]", lib.CALYX_DOOR_WHY_MAX)
    door = lib.calyx_door_open(line, len(line), why)
    if door == ffi.NULL:
        raise EngineError(ffi.string(why).decode("utf-8", "replace"))
    try:
        if lib.calyx_door_start(door, start_ns or now_ns() + START_AHEAD_NS):
            raise EngineError("the start line has passed")
        _wait(door, progress)
        failure = ffi.string(lib.calyx_door_failure(door)).decode("utf-8", "replace")
        if failure:
            raise EngineError(failure)
        return _document(door)
    finally:
        lib.calyx_door_stop(door)
        lib.calyx_door_close(door)


def now_ns() -> int:
    """The engine's clock: CLOCK_MONOTONIC in nanoseconds."""
    return int(lib.calyx_now_ns())


def histogram_index(value_ns: int) -> int:
    """The bucket of a latency: 0 <= index < HISTOGRAM_BUCKETS. Values beyond the last octave are in the last bucket."""
    return int(lib.calyx_histogram_index(value_ns))


def histogram_lower(index: int) -> int:
    """The lowest latency, in nanoseconds, that a bucket holds. Raises IndexError."""
    return int(lib.calyx_histogram_lower_ns(_checked(index)))


def histogram_upper(index: int) -> int:
    """The lowest latency, in nanoseconds, of the bucket after this one. Raises IndexError."""
    return int(lib.calyx_histogram_upper_ns(_checked(index)))


def _checked(index: int) -> int:
    if not 0 <= index < HISTOGRAM_BUCKETS:
        raise IndexError(f"there is no bucket {index}: they go from 0 to {HISTOGRAM_BUCKETS - 1}")
    return index


def _pairs(job: Mapping[str, Any]) -> Iterable[tuple[str, protocol.Value]]:
    for key, value in job.items():
        if isinstance(value, list | tuple):
            yield from ((key, item) for item in value)
        else:
            yield key, value


def _wait(door: Any, progress: Callable[[Progress], bool | None] | None) -> None:
    now = ffi.new("struct calyx_progress *")
    while lib.calyx_door_wait(door, _LOOK_NS):
        lib.calyx_door_progress(door, now)
        if progress is not None and progress(_progress(now)):
            lib.calyx_door_stop(door)


def _progress(now: Any) -> Progress:
    named = now.hung[0 : min(now.hung_count, len(now.hung))]
    hung = tuple(Hung(_OPERATIONS.get(one.direction, "?"), one.offset, one.age_ns, one.job) for one in named)
    return Progress(now.started_ns or None, now.ios, now.bytes, now.oldest_ns, now.hung_count, hung)


def _document(door: Any) -> dict[str, Any]:
    length = ffi.new("size_t *")
    text = lib.calyx_door_document(door, length)
    if text == ffi.NULL:
        raise EngineError("no memory for the result")
    document: dict[str, Any] = json.loads(ffi.buffer(text, length[0])[:])
    return document
