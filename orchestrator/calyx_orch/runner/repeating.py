"""Ends the repetitions of a workload when they are enough: `analysis.repeating` decides, the plan loses the rounds not needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from calyx_orch.analysis import repeating
from calyx_orch.analysis.repeating import Cell
from calyx_orch.model import Measurement, Plan, Round, Settled

Journal = Callable[[str, Mapping[str, Any]], None]


@dataclass
class Repetitions:
    """Asked before every round, and once at the end. What was decided stands in the plan, so that a resume finds it there."""

    plan: Plan  # as in the run folder
    journal: Journal
    keep: Callable[[Plan], None]  # told of every change of the plan

    def needs(self, round_: Round, measurements: Iterable[Measurement]) -> tuple[bool, Settled | None]:
        """Whether this round is to be played, and what was decided just now; then `plan` has changed.

        A decision falls only before the first round of a block.
        """
        until = self.plan.inventory.until
        if until is None:
            return True, None
        here = next((one for one in self.plan.rounds if one.index == round_.index), None)
        if here is None:
            return False, None  # settled before
        cell = repeating.cell_of(here)  # with all guests, also those that lack this engine
        mine = [one for one in self.plan.rounds if repeating.cell_of(one) == cell]
        behind = [one for one in mine if one.block < round_.block]
        if not behind or any(one.block == round_.block and one.index < round_.index for one in mine):
            return True, None
        blocks, width = repeating.widest(behind, measurements)
        found = repeating.settled(cell, until, blocks=blocks, width=width, is_last=False)
        if found is not None:
            self._settle(found, [one for one in mine if one.block >= round_.block])
        return found is None, found

    def end(self, measurements: Iterable[Measurement]) -> list[Settled]:
        """Say of each cell that used up its blocks how narrow its interval became."""
        until = self.plan.inventory.until
        if until is None:
            return []
        given, ended = list(measurements), []
        done = {Cell(one.workload, one.target, one.load, one.guests) for one in self.plan.settled}
        own = {
            workload.name for workload in self.plan.inventory.workloads
        }  # the rounds of searches have names of their own
        for cell in dict.fromkeys(map(repeating.cell_of, self.plan.rounds)):
            if cell not in done and cell.workload in own:
                mine = [one for one in self.plan.rounds if repeating.cell_of(one) == cell]
                blocks, width = repeating.widest(mine, given)
                found = repeating.settled(cell, until, blocks=blocks, width=width, is_last=True)
                if found is not None:
                    self._settle(found, [])
                    ended.append(found)
        return ended

    def _settle(self, found: Settled, skipped: list[Round]) -> None:
        gone = {one.index for one in skipped}
        rounds = tuple(one for one in self.plan.rounds if one.index not in gone)
        self.plan = replace(self.plan, rounds=rounds, settled=(*self.plan.settled, found))
        self.keep(self.plan)
        self.journal("settled", {**asdict(found), "skipped": sorted(gone)})


def sentence(found: Settled) -> str:
    """What is told of it."""
    return f"{found.workload} on {found.target}, {found.load}: ended {found.why}"
