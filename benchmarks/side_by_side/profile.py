"""Where the CPU time of a cell goes, for those whose goals are missed: one more round of each side below `perf record`.

The whole machine is sampled on its CPU clocks, which virtual machines have, too, and only what falls into the measured window is told:
what an engine does to get ready, to warm up and to end is in no CPU per I/O either. A profiled round is no sample: it is in no figure.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from calyx_orch.errors import CalyxError
from side_by_side.cells import Cell
from side_by_side.guest import BenchGuest, Side

FREQUENCY_HZ = 997  # a prime: not in step with anything that ticks
SHOWN_MAX = 12
LEAST_PERCENT = 0.5
REPORT_WITHIN_S = 60.0
ENGINES = ("calyx", "fio", "iou-", "kworker", "ksoftirqd")  # with the kernel threads that work for them
_ROW = re.compile(r"^\s*([\d.]+)%\s+(\S.*?)\s{2,}\[(.)\]\s+(\S+)\s*$")


@dataclass(frozen=True)
class Place:
    """A function and its share of the engine's samples, in percent. `space`: `k` for the kernel, `.` for a program."""

    percent: float
    command: str
    space: str
    symbol: str


class ProfileError(Exception):
    """Why there is no profile, as a sentence."""


async def profile(guest: BenchGuest, cell: Cell, side: Side, seed: int) -> list[Place]:
    """The busiest functions while one side runs the cell once. Raises ProfileError."""
    if shutil.which("perf") is None:
        raise ProfileError("perf is not installed")
    with tempfile.TemporaryDirectory(prefix="calyx-bench-") as directory:
        data = Path(directory) / "perf.data"
        command = ("perf", "record", "-a", "-k", "mono", "-e", "cpu-clock", "-F", str(FREQUENCY_HZ), "-o", str(data))
        recorder = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        try:
            await guest.play(side, cell.workload, cell.target, seed)
        except CalyxError as error:
            raise ProfileError(str(error)) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                recorder.terminate()
            _, said = await recorder.communicate()
        if not data.exists() or guest.window_ns is None:
            raise ProfileError(f"perf recorded nothing: {said.decode(errors='replace').strip()[-200:]}")
        return places(await _report(data, time_span(*guest.window_ns)))


def time_span(start_ns: int, end_ns: int) -> str:
    """A window in the words of `perf report --time`: seconds of the clock that was recorded with."""
    return ",".join(f"{ns // 10**9}.{ns % 10**9:09}" for ns in (start_ns, end_ns))


async def _report(data: Path, span: str) -> str:
    command = (
        "perf",
        "report",
        "-i",
        str(data),
        "--stdio",
        "--no-children",
        "-g",
        "none",
        "--sort",
        "comm,sym",
        "--time",
        span,
    )
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(REPORT_WITHIN_S):
            text, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise ProfileError(f"perf report took longer than {REPORT_WITHIN_S:.0f} s") from None
    return text.decode(errors="replace")


def places(report: str) -> list[Place]:
    """The rows of `perf report --sort comm,sym` that are of an engine. Raises ProfileError where there is none."""
    found = [
        Place(float(match[1]), match[2], match[3], match[4])
        for line in report.splitlines()
        if (match := _ROW.match(line)) and match[2].startswith(ENGINES)
    ]
    total = sum(place.percent for place in found)
    if not total:
        raise ProfileError("perf saw no engine at work")
    shares = [Place(100 * one.percent / total, one.command, one.space, one.symbol) for one in found]
    return [one for one in shares if one.percent >= LEAST_PERCENT][:SHOWN_MAX]


def print_profile(cell: str, side: str, found: list[Place]) -> None:
    """One profile as a few lines."""
    print(f"where the CPU time goes: {cell}, {side} (percent of the engine and of kernel threads)")
    for one in found:
        where = "kernel" if one.space == "k" else "program"
        print(f"  {one.percent:5.1f}  {one.command:<16} {where:<7} {one.symbol}")
    print()
