"""One round of a run, from whether it may begin to what it leaves in the folder: gate, play, keep, tell, give up who was lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from calyx_orch import coordination as co
from calyx_orch.model import Measurement, Round
from calyx_orch.runner import harm, resume
from calyx_orch.runner.course import Course, RunOver
from calyx_orch.runner.interrupting import RunInterrupted
from calyx_orch.runner.rounds import RoundRunner, measurements
from calyx_orch.runner.session import Session


def who_plays(course: Course, round_: Round) -> list[Session]:
    """Who plays a round if it begins now: nobody where its guests are lost, or its workload harms.

    Raises RunOver when the window of `impact` is closed, or the policy ends the run.
    """
    if round_.workload.name in course.harmful:
        return []
    if shut := harm.closed(course.plan.inventory.impact, round_, time.time()):
        course.notes.append(f"ended before round {round_.number}: {shut}; `calyx-orch run --resume` goes on with it")
        raise RunOver("interrupted")
    left, planned = len(course.fleet.sessions), len(course.guests)
    if not co.is_quorum_met(course.plan.inventory.policy, alive=left, planned=planned):
        by = "by the policy" if left else "as nobody is left to measure"
        course.notes.append(f"stopped before round {round_.number} {by}: {left} of {planned} guests are left")
        raise RunOver("failed")
    return [course.fleet.sessions[name] for name in round_.guests if name in course.fleet.sessions]


async def play(
    course: Course, round_: Round, sessions: Sequence[Session], *, shown: tuple[int, tuple[Round, ...]] | None = None
) -> tuple[Measurement, ...]:
    """Play a round on these guests, and keep what it gave. `shown` is its place (from 1) among rounds, for the view; None: it is alone.

    Raises RunInterrupted when the user ends the run, RunOver when the policy does.
    """
    number, rounds = shown or (1, (round_,))
    course.display.round(number, rounds, alive=len(sessions))
    progress, found = await _played(course, round_, sessions)
    if course.interrupted.is_set():
        raise RunInterrupted
    if progress.stopped_because and not progress.harmed:
        course.notes.append(f"stopped in round {round_.number} by the {progress.stopped_because}")
        raise RunOver("failed")
    return found


async def flushed(course: Course) -> None:
    """Wait until the round before is on the disk. Raises FolderError."""
    if course.flushing is not None:
        await asyncio.shield(course.flushing)  # a thread that writes is waited for in any case
        course.flushing = None


async def _played(
    course: Course, round_: Round, sessions: Sequence[Session]
) -> tuple[co.RoundProgress, tuple[Measurement, ...]]:
    course.journal("round", round=round_.index, name=round_.name, guests=[one.guest.name for one in sessions])

    def journal(event: co.Event, more: Mapping[str, Any]) -> None:
        course.folder.note(type(event).__name__, event.at_ns, round=round_.index, **co.to_entry(event), **more)

    def status(guest: str, state: co.GuestState, reason: str) -> None:
        course.display.state(guest, state.value, reason)

    began_ns = time.monotonic_ns()
    runner = RoundRunner(
        course.plan, round_, sessions, journal, status, course.interrupted,
        fleet=len(course.guests), elsewhere=len(course.fleet.sessions) - len(sessions),
    )  # fmt: skip
    course.running = runner
    try:
        progress, answers = await runner.run()
    finally:
        course.running = None
    await flushed(course)
    for name, answer in answers.items():
        course.folder.keep_answers(round_, name, answer)
    found = resume.doubted(measurements(course.plan, round_, progress, answers), course.rebooted)
    course.folder.keep_measurements(found)
    spent = {**runner.spent_ns, "whole": time.monotonic_ns() - began_ns}
    wall_s = round(time.time(), 3)
    course.journal("done", round=round_.index, because=progress.stopped_because, wall_s=wall_s, spent_ns=spent)
    _look_for_harm(course, round_, progress, found)
    course.flushing = asyncio.create_task(asyncio.to_thread(course.folder.flush))  # while the next round settles
    await _tell(course, round_, progress, found)
    return progress, found


async def _tell(course: Course, round_: Round, progress: co.RoundProgress, found: Sequence[Measurement]) -> None:
    """Who failed the round is shown, who was lost in it is given up."""
    for measurement in found:
        course.fleet.answered.setdefault(measurement.guest, []).append(measurement)
        if measurement.status == "failed":
            course.display.state(measurement.guest, "failed", measurement.why)
    lost = {guest.name: guest.reason for guest in progress.guests if guest.state is co.GuestState.LOST}
    await course.fleet.give_up_all(lost, f"round {round_.number}")


def _look_for_harm(course: Course, round_: Round, progress: co.RoundProgress, found: Sequence[Measurement]) -> None:
    """Note why a round was stopped; a workload that harms is not run again."""
    why = progress.harmed or harm.after(course.plan.inventory.impact.abort_if, found)
    if not why:
        return
    lasting = f"; {round_.workload.name} is not run again in this run" if harm.is_lasting(why) else ""
    course.tell(f"round {round_.number} {'was stopped' if progress.harmed else 'harmed'} by {why}{lasting}")
    if lasting:
        course.harmful.add(round_.workload.name)
