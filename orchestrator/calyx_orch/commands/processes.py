"""A server of a loopback guest and all that runs under it: found by who started whom, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

END_TIMEOUT_S = 3.0


async def end_tree(process: asyncio.subprocess.Process) -> None:
    """End a server, its sessions and all they started: by TERM, and what is left after a while by KILL."""
    family = descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + END_TIMEOUT_S
        _send(family, number)
        while _alive(family) and time.monotonic() < deadline:  # noqa: ASYNC110 - not our children: nothing to await
            await asyncio.sleep(0.01)


def descendants(pid: int) -> dict[int, str]:
    """All processes below `pid`, with their start times: a pid alone could be another process by the time it is used."""
    parents: dict[int, list[int]] = {}
    started: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None:
            parents.setdefault(int(stat[1]), []).append(int(entry.name))
            started[int(entry.name)] = stat[19]
    found: dict[int, str] = {}
    queue = [pid]
    while queue:
        for child in parents.get(queue.pop(), []):
            found[child] = started[child]
            queue.append(child)
    return found


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on (0: state, 1: parent, 19: start time)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()
    except OSError:
        return None


def _alive(family: Mapping[int, str]) -> list[int]:
    alive = []
    for pid, started in family.items():
        stat = _stat(pid)
        if stat is not None and stat[19] == started and stat[0] != "Z":
            alive.append(pid)
    return alive


def _send(family: Mapping[int, str], number: signal.Signals) -> None:
    for pid in _alive(family):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
