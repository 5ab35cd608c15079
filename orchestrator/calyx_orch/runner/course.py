"""What the stages of one run share: its plan, its guests, its folder, and what is known so far."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calyx_agent.executables import Executable
from calyx_orch import transport
from calyx_orch.model import Guest, Measurement, Plan, Round
from calyx_orch.report.live import Live
from calyx_orch.runner import interrupting, resume
from calyx_orch.runner.calibration import Cache
from calyx_orch.runner.display import Display
from calyx_orch.runner.fleet import Fleet, count_of
from calyx_orch.runner.former import DEAD_GRACE_S
from calyx_orch.runner.rounds import RoundRunner
from calyx_orch.store.archive import RunFolder


class RunOver(Exception):
    """The run goes no further: `status` is how it ended (interrupted or failed); why stands in its notes."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


@dataclass
class Course:
    """One run while it goes on. `guests` are those with a part in its plan, also those that are lost.

    `plan` is what is left to be done, without guests in rounds of engines that they lack; `planned` is as in the run folder, with
    them. `pool` and `cache` are shared with other runs.
    """

    plan: Plan
    folder: RunFolder
    live: Live
    interrupted: asyncio.Event
    pool: transport.Pool
    cache: Cache
    earlier: resume.Earlier | None = None
    guests: tuple[Guest, ...] = field(init=False)
    planned: Plan = field(init=False)
    display: Display = field(init=False)
    fleet: Fleet = field(init=False)
    notes: list[str] = field(default_factory=list)
    known: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # what each guest said of itself, also lost ones
    executables: Mapping[str, Executable] = field(default_factory=dict)  # the agents there are: read once
    running: RoundRunner | None = None  # the round that is played just now
    flushing: asyncio.Task[None] | None = None  # of what the round before left
    harmful: set[str] = field(default_factory=set)  # workloads that were stopped for what they did to the guests
    rebooted: tuple[str, ...] = ()  # of a run that is continued
    shortest_lease_s: float = field(init=False)
    dead_until_s: float = field(init=False)  # until when agents of a controller that died may still be there

    def __post_init__(self) -> None:
        plan = self.planned = self.plan
        self.guests = tuple(guest for guest in plan.inventory.guests if guest.name in plan.parts)
        self.display = Display(self.live, plan, (guest.name for guest in self.guests))
        unjudged = frozenset(one.index for one in (*plan.conditioning, *plan.capacity))
        self.fleet = Fleet(self.folder, self.live, self.display, unjudged)
        leases_s = [guest.dead_man_s for guest in plan.inventory.guests]
        self.shortest_lease_s = min(leases_s, default=math.inf)
        self.dead_until_s = time.monotonic() + max(leases_s, default=0.0) + DEAD_GRACE_S

    def journal(self, event: str, **details: Any) -> None:
        """Add one event to the journal, now. Raises FolderError."""
        self.folder.note(event, time.monotonic_ns(), **details)

    def tell(self, note: str) -> None:
        """Tell something of the whole run, now and in its record."""
        self.notes.append(note)
        self.live.note(note)

    def keep_planned(self, plan: Plan) -> None:
        """Write the plan of the run folder anew. Raises FolderError."""
        self.planned = plan
        self.folder.keep_plan(plan)

    def keep_facts(self) -> None:
        """Write what the guests have said of themselves by now. Raises FolderError."""
        self.known |= {name: session.facts for name, session in self.fleet.sessions.items()}
        self.folder.keep_facts(self.known)

    def measured(self) -> list[Measurement]:
        """All measurements so far, also of rounds that enter no figure."""
        return [one for answered in self.fleet.answered.values() for one in answered]

    def stands(self, round_: Round) -> bool:
        """Whether a measured round is not played, since it was in an earlier part of the run."""
        if self.earlier is None:
            return False
        missing = self.earlier.standing.missing
        return not missing or round_.index < missing[0].index

    async def each(
        self, words: str, act: Callable[[Guest], Awaitable[None]], step: str, guests: Sequence[Guest] | None = None
    ) -> None:
        """Do one step on all these guests at once (None: on all that live), with `words` in the view; see `Fleet.each`."""
        wanted = self.fleet.alive() if guests is None else guests
        if wanted:
            self.display.phase(f"{words} {count_of(wanted)}")
            await self.unless_interrupted(self.fleet.each(wanted, act, step))

    async def unless_interrupted(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for a piece of work, or end it when the user interrupts. Raises RunInterrupted then, and what the work raises."""
        await interrupting.unless(self.interrupted, work)
