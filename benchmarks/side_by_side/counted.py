"""Figures that are counted and not sampled: instructions, system calls, allocations and sizes. Each says why where it has none."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from calyx_agent.executables import Executable
from calyx_orch.model import Rw, Workload
from side_by_side import costs, pairs, progress
from side_by_side.goals import Figure, at_most
from side_by_side.guest import CALYX, FIO, BenchGuest, Side


def count_costs(guest: BenchGuest, executable: Executable, *, quick: bool, until_s: float = math.inf) -> list[Figure]:
    """Instructions, system calls, allocations and sizes. What cannot be counted here, or by `until_s` (monotonic), says why."""
    session = guest.session
    path = session.files["ext4"][0]
    size = Path(path).stat().st_size
    workload = Workload("randread-4k-q32", rw=Rw.RANDREAD, bs_bytes=4096, iodepth=32, size_bytes=size)
    taken = {"fixed_buffers": True, "fixed_files": True}
    fio = str(session.fio.get("path") or "fio")
    bench = costs.Bench(path, workload, executable.path, fio, taken, session.facts)
    lengths = (0.3, 1.0) if quick else (2.0, 6.0)
    # What takes long comes last, so that it alone may find no time left.
    brief = [_allocations(), _counted("resident besides buffers, MB", lambda: _resident(bench)), _size(executable.path)]
    figures = []
    if not quick:
        for side in (CALYX, Side("calyx sqpoll", "calyx", setup="sqpoll")):
            figures += _system_calls(bench, side, lengths)
    return [_counted("user instructions per I/O", lambda: _instructions(bench, lengths, until_s)), *figures, *brief]


def _counted(name: str, count: Callable[[], Figure]) -> Figure:
    progress.show(f"counting: {name}")
    try:
        return count()
    except (costs.CostError, OSError, subprocess.TimeoutExpired) as error:
        return Figure("randread-4k-q32", name, None, reason=str(error))
    finally:
        progress.end()


def _instructions(bench: costs.Bench, lengths: Sequence[float], until_s: float) -> Figure:
    each = []
    for side in (CALYX, FIO):
        both = []
        for length in lengths:
            if time.monotonic() > until_s:
                raise costs.CostError("no time is left in this minute: leave --quick out")
            both.append(costs.instructions(bench, side, length))
        each.append(costs.per_io(*both)["instructions"])
    said = f"callgrind: {each[0]:,.0f} and {each[1]:,.0f}"
    return Figure("randread-4k-q32", "user instructions per I/O", pairs.exact(each[0] / each[1]), at_most(0.25), said)


def _system_calls(bench: costs.Bench, side: Side, lengths: Sequence[float]) -> list[Figure]:
    cell = f"randread-4k-q32, {side.name}"
    name = "io_uring_enter per I/O"
    try:
        progress.show(f"counting system calls: {side.name}")
        short, long = (costs.system_calls(bench, side, length) for length in lengths)
        calls = costs.per_io(short, long)
    except (costs.CostError, OSError, subprocess.TimeoutExpired) as error:
        return [Figure(cell, name, None, at_most(2.0), reason=str(error))]
    finally:
        progress.end()
    entered = calls.pop("io_uring_enter", 0.0)
    polled = side.setup == "sqpoll"
    said = "strace: wake-ups and sleeps only" if polled else "strace: one an I/O, one a reaped pass"
    others = ", ".join(f"{call} {count:.4f}" for call, count in calls.items() if count > 0.0005) or "none"
    return [
        Figure(cell, name, pairs.exact(entered), None if polled else at_most(2.0), said),
        Figure(cell, "other system calls per I/O", pairs.exact(max(0.0, sum(calls.values()))), at_most(0.01), others),
    ]


def _allocations() -> Figure:
    """The C test that fails on one allocation; it is run when it has been built."""
    name = "allocations after the start line"
    root = Path(__file__).resolve().parents[2]
    test = root / "build" / "native" / "test_nothing_is_allocated_after_start"
    if not test.exists():
        return Figure("engine", name, None, at_most(0.0), "`make test-native` builds the test that counts them")
    done = subprocess.run([str(test)], capture_output=True, text=True, timeout=60)
    if done.returncode == 77:
        return Figure("engine", name, None, at_most(0.0), done.stdout.strip() or "the test was skipped")
    said = "" if done.returncode == 0 else (done.stdout + done.stderr).strip()[-200:]
    return Figure("engine", name, pairs.exact(0.0 if done.returncode == 0 else 1.0), at_most(0.0), said)


def _resident(bench: costs.Bench) -> Figure:
    mb = costs.resident_bytes(bench) / 1e6
    return Figure("randread-4k-q32", "resident besides buffers, MB", pairs.exact(mb), at_most(4.0))


def _size(agent: Path) -> Figure:
    library = costs.c_library(agent)
    size = pairs.exact(agent.stat().st_size / 1000)
    if library == "glibc":
        return Figure("agent", "executable, KB", size, reason="glibc; the goal is for musl (`make agents`, --agent)")
    return Figure("agent", "executable, KB", size, at_most(150.0))
