"""Here as a guest of a benchmark: on this machine, by the same agent, start line, window, CPU accounting and parsers as a run.

Nothing is measured here by other means than those of `calyx-orch run`: a side of a pair is one round of
`calyx_orch.runner.rounds`, over the local transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calyx_agent.executables import Executable, available
from calyx_orch import coordination, deploy, engines, transport
from calyx_orch.analysis.histogram import merge, percentile
from calyx_orch.errors import GuestError
from calyx_orch.model import (
    Connection,
    Guest,
    Inventory,
    LoadMode,
    Measurement,
    Plan,
    Round,
    Rw,
    Target,
    TransportKind,
    Workload,
)
from calyx_orch.runner import preflight
from calyx_orch.runner.rounds import RoundRunner, data_seed, measurements
from calyx_orch.runner.session import Session

NAME = "here"
LAYOUT_WITHIN_S = 1800.0
ANSWER_WITHIN_S = 60.0
LOAD_AFTER_S = 0.3  # from the end of a window to the loading of the next round: what ends slowest, fio, ends within it


@dataclass(frozen=True)
class Side:
    """One side of a comparison: who makes the I/O, and how.

    `plain_buffers`: fio goes without registered buffers. `plain_memory`: without the environment that lays its buffers on huge pages.
    """

    name: str
    engine: str
    setup: str = "auto"
    refill: str = "each"
    plain_buffers: bool = False
    plain_memory: bool = False


CALYX = Side("calyx", "calyx")
FIO = Side("fio", "fio-io_uring")


@dataclass(frozen=True)
class Sample:
    """What one round of one side gave. `cpu_*_ns` are the engine's over the measured window, `busy_percent` the guest's."""

    iops: float
    bytes_per_s: float
    p50_ns: int
    p99_ns: int
    ios: int
    cpu_ns: int
    cpu_user_ns: int
    busy_percent: float
    engine_percent: float
    setup: Mapping[str, Any]
    counts: Mapping[str, int]
    rested_s: float | None = None  # from the end of the sample before it to its own first I/O; None: it was the first

    @property
    def cpu_per_io_ns(self) -> float:
        """Total CPU of the engine for each I/O of the window."""
        return self.cpu_ns / self.ios


@dataclass
class BenchGuest:
    """An open agent on this machine. Make one with `open_guest`."""

    session: Session
    seed: int
    settle_s: float = 0.0
    _rounds: int = 0
    window_ns: tuple[int, int] | None = None  # of the last sample, on this machine's monotonic clock
    _ended_ns: int | None = None  # when the window of the sample before ended
    taken: dict[tuple[str, str, str], Mapping[str, Any]] = field(default_factory=dict)

    async def lay_out(self, target: str, size_bytes: int) -> None:
        """Write the file of a target in full. Raises GuestError when it has holes."""
        session = self.session
        path = next(each.path for each in session.guest.targets if each.name == target)
        pairs: list[tuple[str, str | int]] = [
            ("path", path),
            ("size", size_bytes),
            ("files", 1),
            ("seed", data_seed(self.seed, NAME, f"layout/{target}")),
        ]
        arrival = await session.ask("prepare", pairs, answer="prepared", timeout_s=LAYOUT_WITHIN_S)
        files = arrival.message["files"]
        if any(entry.get("holes") or entry.get("unwritten") for entry in files):
            raise GuestError(f"{path}: the layout has holes or unwritten extents")
        session.files[target] = tuple(str(entry["path"]) for entry in files)

    async def play(self, side: Side, workload: Workload, target: str, seed: int) -> Sample:
        """One round of one side, as rested as any other. Raises GuestError when it fails: a failed round is no figure.

        A throttled disk that has rested longer is a faster one. A round is loaded at a fixed time after the window before it
        has ended, and its start line lies a fixed time after that: how long an engine takes to end or to start is in neither.
        """
        round_ = self._round(side, workload, target, seed)
        key = (round_.workload.name, target)
        self.session.taken[key] = await self._taken(side, round_)
        before_ns = self._ended_ns
        if before_ns is not None:
            await asyncio.sleep(max(0.0, (before_ns - time.monotonic_ns()) / 1e9 + LOAD_AFTER_S))
        plan = Plan(self._inventory(round_.workload), self.seed, (), (round_,), (), 0.0)
        runner = RoundRunner(plan, round_, [self.session], _ignore, _ignore_status, asyncio.Event())
        progress, answers = await runner.run()
        found = measurements(plan, round_, progress, answers)[0]
        if found.status != "ok":
            self._ended_ns = time.monotonic_ns()
            raise GuestError(f"{side.name}: {workload.name}: {found.status}: {found.why}")
        self.window_ns = (found.window_start_ns, found.window_end_ns)
        self._ended_ns = found.window_end_ns  # the guest is here: its clock is that of this process
        rested_s = None if before_ns is None else (answers[NAME].held_start_ns - before_ns) / 1e9
        return replace(sample_of(found, answers[NAME].messages.get("usage", {})), rested_s=rested_s)

    def _round(self, side: Side, workload: Workload, target: str, seed: int) -> Round:
        self._rounds += 1
        own = replace(workload, setup=side.setup, refill=side.refill)
        return Round(self._rounds, 0, own, target, side.engine, LoadMode.TOGETHER, (NAME,), seed)

    def _inventory(self, workload: Workload) -> Inventory:
        settle_s = self.settle_s if workload.rw.writes else 0.0
        return Inventory(
            "benchmark", (self.session.guest,), (workload,), settle_s=settle_s, lost_time_probe_s=0.0, seed=self.seed
        )

    async def _taken(self, side: Side, round_: Round) -> Mapping[str, Any]:
        """The set-up that calyx gets for this workload, which fio is given, too: looked up once, without any I/O."""
        key = (round_.workload.name, round_.target, side.setup)
        if key not in self.taken:
            trial = replace(round_, engine="calyx")
            command = engines.command(
                trial,
                paths=self.session.files[round_.target],
                data_seed=1,
                taken={},
                facts=self.session.facts,
                hello=self.session.agent.hello,
                fio_path=None,
            )
            arrival = await self.session.ask(command.verb, command.pairs, answer="ready", timeout_s=ANSWER_WITHIN_S)
            self.taken[key] = arrival.message["setup"]
            await self.session.ask("stop", answer="result", timeout_s=ANSWER_WITHIN_S)
        taken = self.taken[key]
        without = {"fixed_buffers": side.plain_buffers, "transparent_huge": side.plain_memory}
        return {**taken, **{name: False for name, left_out in without.items() if left_out}}


@contextlib.asynccontextmanager
async def open_guest(
    targets: Mapping[str, Path], *, seed: int, executable: Executable | None = None
) -> AsyncIterator[BenchGuest]:
    """An agent on this machine with these targets; its files are gone afterwards. Raises GuestError without io_uring.

    `executable` is another agent than that of this installation.
    """
    guest = Guest(
        NAME,
        Connection(address="localhost", transport=TransportKind.LOCAL),
        tuple(Target(name, str(path), allow_ram=True) for name, path in targets.items()),
    )
    chosen = {executable.arch: executable} if executable else available()
    async with transport.Pool() as pool:
        way = await transport.connect(guest.connection, pool=pool)
        session = Session(guest, await deploy.deploy(way, guest, executables=chosen))
        session.start()
        try:
            workload = Workload("any", rw=Rw.READ)
            rounds = tuple(
                Round(0, 0, workload, name, "fio-io_uring", LoadMode.TOGETHER, (NAME,), seed) for name in targets
            )
            plan = Plan(Inventory("benchmark", (guest,), (workload,)), seed, (), rounds, (), 0.0)
            await preflight.inspect(session, plan)
            yield BenchGuest(session, seed)
        finally:
            await session.close()
            await way.close()


def sample_of(measurement: Measurement, usage: Mapping[str, Any]) -> Sample:
    """The figures of one round. Raises GuestError where the round has no I/O or no CPU accounting."""
    parts = [part for part in (measurement.read, measurement.write) if part is not None]
    latency = merge(part.latency for part in parts)
    p50_ns, p99_ns = percentile(latency, 50.0), percentile(latency, 99.0)
    cpu = measurement.cpu
    if p50_ns is None or p99_ns is None or not measurement.total_ios:
        raise GuestError(f"{measurement.workload}: {measurement.engine} did no I/O in its window")
    if cpu is None or cpu.engine_ns is None or cpu.busy_percent is None or cpu.engine_percent is None:
        raise GuestError(f"{measurement.workload}: the guest does not say what CPU {measurement.engine} used")
    seconds = measurement.window_ns / 1e9
    return Sample(
        iops=measurement.total_ios / seconds,
        bytes_per_s=measurement.total_bytes / seconds,
        p50_ns=p50_ns,
        p99_ns=p99_ns,
        ios=measurement.total_ios,
        cpu_ns=cpu.engine_ns,
        cpu_user_ns=int(usage.get("engine_user_ns") or 0),
        busy_percent=cpu.busy_percent,
        engine_percent=cpu.engine_percent,
        setup=dict(measurement.setup),
        counts=dict(measurement.counts),
    )


def _ignore(*event: object) -> None:
    """The journal of a round: a benchmark keeps samples."""


def _ignore_status(guest: str, state: coordination.GuestState, reason: str) -> None:
    """What a guest is doing: a benchmark has one and waits for it."""
