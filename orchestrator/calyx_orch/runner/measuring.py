"""The stages of a run that play rounds, in their order: preconditioning, capacity, the rounds of the plan, searches.

Each may leave by RunOver, when the policy, the window of `impact` or the loss of all guests ends the run, or by RunInterrupted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from calyx_orch.model import Conditioned, Found, Measurement, Round, Settled
from calyx_orch.plan import capacity
from calyx_orch.runner import conditioning, playing, repeating, search
from calyx_orch.runner.course import Course


async def precondition(course: Course) -> None:
    """Run writing workloads until they are steady, where the inventory says so."""

    async def play(round_: Round) -> bool:
        return bool(await _play(course, round_))

    def ended(found: Conditioned) -> None:
        course.keep_planned(conditioning.with_ended(course.planned, found))
        course.journal("conditioned", **asdict(found))
        course.live.note(f"precondition {found.workload} on {found.target}: {found.why}")

    await conditioning.condition(course.planned, measured=course.measured, play=play, ended=ended)


async def find_capacity(course: Course) -> None:
    """Measure in closed loops what the guests can do, and pin the rates of load points; a run that is continued has them pinned."""
    if not course.plan.capacity or course.planned.load_points:
        return
    played = {one.round_index for one in course.measured()}
    for round_ in course.plan.capacity:
        if round_.index not in played:
            await _play(course, round_)
    points = capacity.points(course.plan, course.measured())
    course.plan = capacity.pinned(course.plan, points)
    course.keep_planned(capacity.pinned(course.planned, points))
    course.journal("load points", points=[asdict(point) for point in points])
    for point in points:
        course.live.note(capacity.sentence(point))
    for workload, target in capacity.without_rate(course.plan):
        course.tell(f"{workload} on {target} is left out: no guest showed of what its rate is a share")


async def measure(course: Course) -> None:
    """The rounds of the plan, but those that stand, that are not needed, and of workloads that cannot or must not be run."""
    rounds = course.plan.rounds
    without_rate = frozenset(capacity.without_rate(course.plan))
    for number, round_ in enumerate(rounds, start=1):
        if course.stands(round_) or round_.workload.name in course.harmful:
            continue
        if (round_.workload.name, round_.target) in without_rate or not _is_needed(course, round_):
            continue
        sessions = playing.who_plays(course, round_)
        if sessions:
            await playing.play(course, round_, sessions, shown=(number, rounds))
    if course.plan.inventory.until is not None:
        for settled in _repetitions(course).end(course.measured()):
            _tell_settled(course, settled)


async def find(course: Course) -> None:
    """Each search in turn; its rounds join the plan of the run folder as they are made."""
    found: list[Found] = list(course.earlier.found) if course.earlier is not None else []

    async def play(round_: Round) -> tuple[Measurement, ...]:
        return await _play(course, round_, joins=True)

    for number, plan in enumerate(course.plan.searches):
        if number < len(found):
            continue
        first = 1 + max((one.index for one in course.planned.all_rounds), default=-1)
        course.journal("search", search=number, round=first)
        found.append(await search.find(plan, seed=course.plan.seed, first_index=first, run_round=play))
        course.folder.keep_found(found)


async def _play(course: Course, round_: Round, *, joins: bool = False) -> tuple[Measurement, ...]:
    """One round on the guests that are left, nothing where there are none; one that `joins` is put into the plan of the run folder."""
    sessions = playing.who_plays(course, round_)
    if not sessions:
        return ()
    if joins:
        course.keep_planned(replace(course.planned, rounds=(*course.planned.rounds, round_)))
    return await playing.play(course, round_, sessions)


# --- repetitions that end when they are enough -----------------------------------------------------------------------


def _is_needed(course: Course, round_: Round) -> bool:
    if course.plan.inventory.until is None:
        return True
    needed, settled = _repetitions(course).needs(round_, course.measured())
    if settled is not None:
        _tell_settled(course, settled)
    return needed


def _repetitions(course: Course) -> repeating.Repetitions:
    def journal(event: str, more: Mapping[str, Any]) -> None:
        course.journal(event, **more)

    return repeating.Repetitions(course.planned, journal, course.keep_planned)


def _tell_settled(course: Course, settled: Settled) -> None:
    course.live.note(repeating.sentence(settled))
