"""One machine by itself: the files are laid out and cleaned by the agent, the I/O is made by the engine in this very process.

The agent beside it is what makes cleaning sure: it removes the files when this process ends, however it ends. Jobs, result
documents and measurements are those of a guest.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from calyx_orch import deploy, engines, transport
from calyx_orch.engines.answers import ramp_ns
from calyx_orch.errors import CalyxError, GuestError, RefusedError
from calyx_orch.model import Answers, ClockBound, Measurement, Plan, Round
from calyx_orch.runner import hanging, interrupting, preflight, preparing, probes
from calyx_orch.runner.interrupting import RunInterrupted
from calyx_orch.runner.rounds import data_seed
from calyx_orch.runner.session import Session

CLEAN_WITHIN_S = 30.0
LEASE_MS = 30_000
ALIVE_EVERY_S = 2.0
SAMPLES_MAX = 1_000_000


@dataclass(frozen=True)
class Done:
    """One workload that ran: its round, the measurement and the engine's own document."""

    round: Round
    measurement: Measurement
    document: Mapping[str, Any]


@dataclass(frozen=True)
class Look:
    """How a workload goes: the share of its time that is over (0 to 1), whether it is measured yet, and I/Os per second.

    `hangs` says which I/O does not come back; it is empty while all do.
    """

    round: Round
    share: float
    is_measured: bool
    iops: float
    hangs: str = ""


@dataclass
class Benched:
    """What a bench gave, as far as it came."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    done: list[Done] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False


async def bench(
    plan: Plan, *, interrupted: asyncio.Event, phase: Callable[[str], None], look: Callable[[Look], None]
) -> Benched:
    """Run the rounds of a plan for one local guest.

    Raises RefusedError when the target cannot be used, before anything is measured, and GuestError or AgentError when the machine
    cannot do its part later.

    When `interrupted` is set the I/O stops, and what was measured is kept; the files are removed in every case.
    """
    found = Benched()
    (guest,) = plan.inventory.guests
    async with transport.Pool() as pool:
        way = await transport.connect(guest.connection, pool=pool)
        agent = await deploy.deploy(way, guest)
        session = Session(guest, agent, on_beat=lambda _: None)
        session.start()
        lease = asyncio.create_task(_keep_lease(session))
        try:
            await _run(session, plan, found, interrupted, phase, look)
        except RunInterrupted:
            found.interrupted = True
        finally:
            found.notes += await _clean(session)
            lease.cancel()  # not before: cleaning may take longer than the lease
            await way.close()
    return found


async def _run(
    session: Session,
    plan: Plan,
    found: Benched,
    interrupted: asyncio.Event,
    phase: Callable[[str], None],
    look: Callable[[Look], None],
) -> None:
    async def step(work: Coroutine[Any, Any, Any]) -> Any:
        return await interrupting.unless(interrupted, work)

    try:
        await step(preflight.inspect(session, plan))
        phase("laying out files")
        for layout in plan.layouts:
            await step(preparing.lay_out(session, layout, plan, lambda _, note: found.notes.append(note)))
    except GuestError as error:
        raise RefusedError(str(error)) from None
    phase("probing")
    found.notes += await step(probes.ask_all([session]))
    found.facts = session.facts
    settle_s = plan.inventory.settle_s
    for round_ in plan.rounds:
        phase(f"waiting for the device before {round_.workload.name}")
        path = next(one.path for one in plan.layouts if one.target == round_.target)
        if settle_s > 0:
            pairs = (("path", path), ("timeout_ms", int(settle_s * 1000)))
            await step(session.ask("settle", pairs, answer="settled", timeout_s=settle_s + 15.0))
        found.done.append(await _measure(session, plan, round_, interrupted, look))
        if interrupted.is_set():
            found.done.pop()
            raise RunInterrupted


async def _measure(
    session: Session, plan: Plan, round_: Round, interrupted: asyncio.Event, look: Callable[[Look], None]
) -> Done:
    from calyx_agent import engine

    seed = data_seed(plan.seed, session.guest.name, round_.index)
    command = engines.command(
        round_, paths=session.files[round_.target][: round_.workload.numjobs], data_seed=seed, taken={}, facts=session.facts,
        hello=session.agent.hello, fio_path=None,
    )  # fmt: skip
    clock = _CpuClock()
    watch = _Watch(round_, clock, interrupted, look)
    try:
        document = await asyncio.to_thread(_in_thread, clock, _job(command), watch.seen)
    except engine.EngineError as error:  # as when a guest refuses: the others go on
        refused = Answers({"refused": {"why": str(error)}}, {}, ClockBound(0, 0), 0, facts=session.facts)
        return Done(round_, engines.measure(round_, session.guest, refused), {})
    return Done(round_, measurement_of(round_, session, document, clock.usage(document)), document)


def measurement_of(
    round_: Round, session: Session, document: Mapping[str, Any], usage: Mapping[str, Any]
) -> Measurement:
    """The document as the measurement that a guest's answers would give; the start line is the window's start without the ramp."""
    started = {"now_ns": document.get("started_ns"), "bound_ns": 0, "how": "published"}
    messages: dict[str, Mapping[str, Any]] = {"result": {"status": "ok", "why": ""}, "usage": usage, "started": started}
    line_ns = int(document["window_start_ns"]) - ramp_ns(round_)
    answers = Answers(messages, {"result": json.dumps(document)}, ClockBound(0, 0), line_ns, facts=session.facts)
    return engines.measure(round_, session.guest, answers)


def _job(command: engines.Command) -> dict[str, Any]:
    """The pairs of a `run` line as a mapping; `path` is a list, one a job."""
    job: dict[str, Any] = dict(command.pairs)
    job["path"] = [value for key, value in command.pairs if key == "path"]
    return job


def _in_thread(clock: _CpuClock, job: Mapping[str, Any], seen: Callable[[Any], bool]) -> dict[str, Any]:
    from calyx_agent import engine

    clock.leave_out(threading.get_ident())
    document: dict[str, Any] = engine.run(job, seen)
    clock.sample()
    return document


class _CpuClock:
    """CPU time of the engine: that of this process without the threads that draw and wait, sampled some ten times a second."""

    def __init__(self) -> None:
        self._samples: list[tuple[int, int]] = []
        self._left_out = [time.pthread_getcpuclockid(threading.main_thread().ident or 0)]

    def leave_out(self, thread: int) -> None:
        """A thread that only waits for the engine."""
        self._left_out.append(time.pthread_getcpuclockid(thread))

    def sample(self) -> None:
        """Take one reading now."""
        if len(self._samples) < SAMPLES_MAX:
            others_ns = sum(time.clock_gettime_ns(clock) for clock in self._left_out)
            self._samples.append((time.monotonic_ns(), time.process_time_ns() - others_ns))

    def usage(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The readings over the measured window, as the agent's `usage` says it; busy time of the machine is not asked for."""
        start_ns, end_ns = int(document["window_start_ns"]), int(document["window_end_ns"])
        window = {
            "window_start_ns": start_ns,
            "window_end_ns": end_ns,
            "cpus": os.cpu_count() or 1,
            "steal_known": False,
        }
        if len(self._samples) < 2:
            return window
        return window | {"engine_ns": max(0, round(self._at(end_ns) - self._at(start_ns)))}

    def _at(self, instant_ns: int) -> float:
        """CPU time at an instant, on the line between the readings around it."""
        pairs = zip(self._samples, self._samples[1:], strict=False)
        for (t0, c0), (t1, c1) in pairs:
            if instant_ns <= t1 and t1 > t0:
                return c0 + (c1 - c0) * (instant_ns - t0) / (t1 - t0) if instant_ns >= t0 else c0
        return self._samples[-1][1]


class _Watch:
    """Is called by the engine's door some ten times a second; says stop when the user interrupts."""

    def __init__(
        self, round_: Round, clock: _CpuClock, interrupted: asyncio.Event, look: Callable[[Look], None]
    ) -> None:
        self._round, self._clock, self._interrupted, self._look = round_, clock, interrupted, look
        self._began_ns: int | None = None
        self._before = (0, 0)

    def seen(self, progress: Any) -> bool:
        """Takes a reading, shows how far it is; True stops the engine."""
        now_ns = time.monotonic_ns()
        self._clock.sample()
        workload = self._round.workload
        if progress.started_ns:
            self._began_ns = self._began_ns or progress.started_ns
        if self._began_ns is not None:
            elapsed_s = (now_ns - self._began_ns) / 1e9
            then_ns, ios = self._before
            iops = (progress.ios - ios) * 1e9 / (now_ns - then_ns) if then_ns else 0.0
            share = min(1.0, elapsed_s / (workload.ramp_s + workload.runtime_s))
            self._look(Look(self._round, share, elapsed_s >= workload.ramp_s, iops, _hangs(progress)))
        self._before = (now_ns, progress.ios)
        return self._interrupted.is_set()


def _hangs(progress: Any) -> str:
    if not progress.hung:
        return ""
    oldest = progress.hung[0]
    return hanging.said(progress.hung_count, oldest.op, oldest.offset, oldest.age_ns, oldest.job)


async def _keep_lease(session: Session) -> None:
    with contextlib.suppress(CalyxError):
        await session.send("lease", (("ms", LEASE_MS),))
        while True:
            await asyncio.sleep(ALIVE_EVERY_S)
            await session.send("alive")


async def _clean(session: Session) -> list[str]:
    """Remove the files; what could not be removed is told."""
    told = []
    try:
        arrival = await session.clean(CLEAN_WITHIN_S)
        for failure in arrival.message.get("failed") or []:
            told.append(f"could not remove {failure.get('path')}: {failure.get('why')}")
    except CalyxError as error:
        told.append(f"cleaning was not confirmed ({error}); the agent removes its files when its channel closes")
    await session.close()
    return told
