"""The stages of a run before its first round, and the one behind its last: each a function of the course of the run.

What is done on one guest is a function of the course and the guest; what fails there costs that guest alone.
"""

from __future__ import annotations

import functools
import gc
import getpass
import platform
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from calyx_agent.executables import available
from calyx_orch import deploy, transport
from calyx_orch import plan as planning
from calyx_orch.analysis import keeping
from calyx_orch.model import Guest, Round
from calyx_orch.runner import buffers, preflight, preparing, probes, resume, resuming, search
from calyx_orch.runner.calibration import Calibration
from calyx_orch.runner.course import Course
from calyx_orch.runner.fleet import count_of
from calyx_orch.runner.former import past_the_dead
from calyx_orch.runner.session import Session


async def connect(course: Course) -> None:
    """Reach every guest and start its agent."""
    wanted = [guest for guest in course.guests if guest.name not in course.fleet.troubles]
    await course.each("connecting to", functools.partial(_connect, course), "connect", wanted)
    course.fleet.in_order(course.guests)


async def inspect(course: Course) -> None:
    """Ask every guest what it is and can; before anything is written on one. Raises RefusedError for the whole plan."""
    await course.each("inspecting", functools.partial(_inspect, course), "preflight")
    _settle_baselines(course)
    resuming.refuse_others(course)
    course.keep_facts()


async def lay_out(course: Course) -> None:
    """Make the files of all targets."""
    await course.each("laying out files on", functools.partial(_lay_out, course), "prepare")
    for note in keeping.told(course.plan, {name: one.facts for name, one in course.fleet.sessions.items()}):
        course.tell(note)


async def probe(course: Course) -> None:
    """Ask what the engine itself costs, and whether caches and flushes below are what they seem."""
    if course.fleet.sessions:
        await course.unless_interrupted(_probe(course))


async def calibrate(course: Course) -> None:
    """Choose the set-up of each guest where a workload says `auto`, and pin it in the plan of the run folder."""
    await course.unless_interrupted(_calibrate(course))


async def rehearse(course: Course) -> None:
    """Open every job once without starting it; what then holds for all guests is settled. Raises RefusedError."""
    await course.each("rehearsing on", functools.partial(_rehearse, course), "rehearse")
    _settle_buffers(course)
    if course.earlier is not None:
        resume.refuse_other_setups(course.earlier, list(course.fleet.sessions.values()))
    course.keep_facts()
    gc.collect()
    gc.freeze()  # a collection in the middle of a clock probe would widen its bound


async def look_again(course: Course) -> None:
    """See on which vm_host each guest is after the last round."""
    before = course.earlier.facts if course.earlier is not None else {}
    sessions = course.fleet.sessions
    act = functools.partial(_look_again, sessions, before)
    await course.fleet.each(course.fleet.alive(), act, "preflight")
    course.keep_facts()


# --- one guest -------------------------------------------------------------------------------------------------------


async def _connect(course: Course, guest: Guest) -> None:
    course.display.state(guest.name, "connecting")
    way = await transport.connect(guest.connection, pool=course.pool)
    course.fleet.transports[guest.name] = way
    course.executables = course.executables or available()
    agent = await deploy.deploy(way, guest, executables=course.executables)
    session = Session(guest, agent, _owner(course), on_beat=functools.partial(_beat, course, guest.name))
    session.start()
    course.fleet.sessions[guest.name] = session
    for note in agent.notes:
        course.fleet.note(guest.name, note)
    course.journal("deployed", guest=guest.name, uploaded=agent.uploaded, hello=agent.hello)
    await session.send("lease", (("ms", round(guest.dead_man_s * 1000)),))
    course.display.state(guest.name, "connected")


def _beat(course: Course, guest: str, message: Mapping[str, Any]) -> None:
    course.display.beat(guest, message)
    if course.running is not None:
        course.running.beat(guest, message)


def _owner(course: Course) -> tuple[tuple[str, str], ...]:
    """Who uses a directory: a run that is continued is told from its own earlier part, whose agents may still be there."""
    part = f"+{course.earlier.attempt - 1}" if course.earlier is not None else ""
    return ("run", f"{course.folder.run_id}{part}"), ("by", f"{getpass.getuser()}@{platform.node()}")


async def _inspect(course: Course, guest: Guest) -> None:
    session = course.fleet.sessions[guest.name]
    await _past_the_dead(course, guest, lambda: preflight.inspect(session, course.plan))
    kept = keeping.unused(session.facts, course.plan.inventory)
    for note in (*preflight.left_by_the_dead(session.facts), *kept):
        course.fleet.note(guest.name, note)
    course.display.state(guest.name, "inspected")


async def _lay_out(course: Course, guest: Guest) -> None:
    session = course.fleet.sessions[guest.name]
    for layout in course.plan.layouts_of.get(guest.name, ()):
        act = functools.partial(preparing.lay_out, session, layout, course.plan, course.fleet.note)
        await _past_the_dead(course, guest, act)
        answer = session.laid_out[layout.target]
        course.journal("prepared", guest=layout.guest, target=layout.target, answer=answer)
    course.display.state(guest.name, "laid out")


async def _past_the_dead(course: Course, guest: Guest, act: Callable[[], Awaitable[None]]) -> None:
    """One act on a guest; in a run that is continued, once its former agent is gone."""
    if course.earlier is None:
        await act()
        return
    await past_the_dead(
        guest.name, act, run_id=course.folder.run_id, until_s=course.dead_until_s, note=course.live.note,
        state=course.display.state,
    )  # fmt: skip


async def _rehearse(course: Course, guest: Guest) -> None:
    """Open every calyx job once without starting it: what set-up takes effect is what fio is given, too."""
    session = course.fleet.sessions[guest.name]
    for one in course.plan.parts.get(guest.name, ()):
        round_ = one if isinstance(one, Round) else search.first_probe(one)
        taken = await preparing.rehearse(session, round_, course.fleet.note)
        session.taken[round_.workload.name, round_.target] = taken
    course.display.state(guest.name, "ready")


async def _look_again(sessions: Mapping[str, Session], before: Mapping[str, Mapping[str, Any]], guest: Guest) -> None:
    await preflight.look_again(sessions[guest.name], before.get(guest.name, {}))


# --- all guests ------------------------------------------------------------------------------------------------------


def _settle_baselines(course: Course) -> None:
    sessions = list(course.fleet.sessions.values())
    missing = preflight.missing_baselines(course.plan, sessions)
    preflight.refuse_missing(course.plan, missing)
    for guest, gaps in missing.items():
        for engine, why in gaps.items():
            course.fleet.note(guest, f"no {engine} baseline: {why}")
    course.plan = planning.without(course.plan, {guest: frozenset(gaps) for guest, gaps in missing.items()})
    for note in preflight.twins(sessions):
        course.tell(note)


async def _probe(course: Course) -> None:
    course.display.phase(f"probing {count_of(course.fleet.alive())}")
    course.notes += await probes.ask_all(list(course.fleet.sessions.values()))


async def _calibrate(course: Course) -> None:
    sessions = course.fleet.sessions
    chosen = resume.pins_that_hold(course.earlier, course.planned, sessions)
    is_new = chosen is None
    if chosen is None:
        calibration = Calibration(
            course.plan, sessions, course.cache, course.notes.append, course.display.phase, course.folder.note
        )
        chosen = await calibration.run()
    for pin in chosen:
        sessions[pin.guest].pins[pin.workload, pin.target] = pin
    if is_new:
        course.keep_planned(replace(course.planned, pins=chosen))
        for why in dict.fromkeys(pin.why for pin in chosen if pin.how != "ladder"):
            course.live.note(f"set-up: {why}")


def _settle_buffers(course: Course) -> None:
    """All register their buffers, or nobody does."""
    sessions = course.fleet.sessions
    taken = {name: session.taken for name, session in sessions.items()}
    facts = {name: session.facts for name, session in sessions.items()}
    found = buffers.gaps(course.plan, taken, facts)
    buffers.refuse_where_required(course.plan, found)
    course.plan, told = buffers.without(course.plan, found)
    names = {gap.workload for gap in found}
    for session in sessions.values():
        for key in session.taken:
            if key[0] in names:
                session.taken[key] = {**session.taken[key], "fixed_buffers": False}
    for note in told:
        course.tell(note)
    if told:
        course.keep_planned(buffers.without(course.planned, found)[0])
