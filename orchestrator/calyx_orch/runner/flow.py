"""A whole run from connecting to cleaning: its stages in order, and how it ends, whatever ends it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from calyx_orch import transport
from calyx_orch.errors import RefusedError
from calyx_orch.model import GuestOutcome, Plan
from calyx_orch.report.live import Live
from calyx_orch.runner import measuring, playing, resume, resuming, stages
from calyx_orch.runner.calibration import Cache
from calyx_orch.runner.course import Course, RunOver
from calyx_orch.runner.interrupting import RunInterrupted
from calyx_orch.store.archive import RunFolder

Stage = Callable[[Course], Awaitable[None]]

# What is done in a run, in this order. A stage before the rounds leaves out the guests that fail in it.
BEFORE: tuple[Stage, ...] = (
    stages.connect, stages.inspect, stages.lay_out, stages.probe, stages.calibrate, stages.rehearse,
)  # fmt: skip
ROUNDS: tuple[Stage, ...] = (measuring.precondition, measuring.find_capacity, measuring.measure, measuring.find)


@dataclass(frozen=True)
class Ended:
    """How a run ended: `status` is finished, interrupted or failed."""

    status: str
    outcomes: tuple[GuestOutcome, ...]
    notes: tuple[str, ...]


async def run(
    plan: Plan,
    *,
    folder: RunFolder,
    live: Live,
    interrupted: asyncio.Event,
    pool: transport.Pool | None = None,
    cache: Cache | None = None,
    earlier: resume.Earlier | None = None,
) -> Ended:
    """Run a plan and write everything into `folder`; of a run that is continued, what is missing beside what stands `earlier`.

    Single guests that fail are outcomes, not errors. Raises RefusedError when preflight refuses the whole plan, or when a guest is
    no longer what it was when it was measured. When
    `interrupted` is set the guests are stopped and cleaned, and what was measured is kept. `cache` holds the set-ups that
    earlier runs chose (None: none, and nothing is kept).
    """
    kept = cache or Cache(None)
    if pool is None:
        async with transport.Pool() as own:
            return await _run(Course(plan, folder, live, interrupted, own, kept, earlier))
    return await _run(Course(plan, folder, live, interrupted, pool, kept, earlier))


async def _run(course: Course) -> Ended:
    """The stages between a beginning and an end that are the same for every run: leases, view, cleaning, outcomes."""
    resuming.take_over(course)
    teller = asyncio.create_task(course.display.tell())
    leases = asyncio.create_task(course.fleet.keep_leases(course.shortest_lease_s))
    status, at_once = "failed", False
    try:
        status = await _stages(course)
    except RunInterrupted:
        status = "interrupted"
        await playing.flushed(course)
    except RefusedError:
        status = "failed" if course.earlier is None else "interrupted"  # what stands, stands
        raise
    except asyncio.CancelledError:
        status, at_once = "interrupted", True
        raise
    finally:
        gc.unfreeze()
        try:
            if not at_once:
                await course.fleet.clean_all()
        except asyncio.CancelledError:
            status = "interrupted"
            raise
        finally:
            leases.cancel()  # not before: a guest that takes long to clean must not take us for dead
            await course.fleet.let_go()
            teller.cancel()
            course.live.close()
            flushing = [] if course.flushing is None else [course.flushing]
            await asyncio.gather(teller, leases, *flushing, return_exceptions=True)
            outcomes = tuple(course.fleet.outcome(guest) for guest in course.guests)
            if status == "finished" and not any(course.fleet.answered.values()):
                status = "failed"
            course.folder.finish(status=status, outcomes=outcomes, notes=tuple(course.notes))
    return Ended(status, outcomes, tuple(course.notes))


async def _stages(course: Course) -> str:
    """All stages in order. Returns how the run ended; leaves by RunInterrupted when the user interrupts."""
    if resuming.is_complete(course):
        return "finished"  # its controller died when all was measured
    for stage in BEFORE:
        await stage(course)
    status = "finished"
    try:
        for stage in ROUNDS:
            await stage(course)
    except RunOver as over:
        status = over.status
    await playing.flushed(course)
    await stages.look_again(course)
    return status
