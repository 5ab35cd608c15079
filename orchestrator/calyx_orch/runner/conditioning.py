"""Preconditions before the first block: round after round of each writing workload, until `analysis.conditioning` says it is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from calyx_orch.analysis import conditioning
from calyx_orch.analysis.repeating import Cell, cell_of
from calyx_orch.model import Conditioned, Measurement, Plan, Round

Play = Callable[[Round], Awaitable[bool]]


async def condition(
    plan: Plan, *, measured: Callable[[], list[Measurement]], play: Play, ended: Callable[[Conditioned], None]
) -> None:
    """Play what is needed of `plan.conditioning`; what was measured before an interrupt is not played again.

    `play` says whether a round was played; when it was not, as nobody is left for it or its workload harms, the next workload's turn
    has come. `ended` hears how each workload's preconditioning ended.
    """
    budget = plan.inventory.precondition
    if budget is None:
        return
    done = {Cell(one.workload, one.target, one.load, one.guests) for one in plan.conditioned}
    for cell, rounds in _cells(plan.conditioning).items():
        if cell in done:
            continue
        while (found := conditioning.ended(rounds, plan.conditioning, measured(), budget)) is None:
            played = {one.round_index for one in measured()}
            following = next((one for one in rounds if one.index not in played), None)
            if following is None or not await play(following):
                break
        else:
            ended(found)


def with_ended(plan: Plan, found: Conditioned) -> Plan:
    """The plan with how one preconditioning ended, and without its rounds that were not needed."""
    cell = Cell(found.workload, found.target, found.load, found.guests)
    mine = [one.index for one in plan.conditioning if cell_of(one) == cell]
    gone = set(mine[found.rounds :])
    kept = tuple(one for one in plan.conditioning if one.index not in gone)
    return replace(plan, conditioning=kept, conditioned=(*plan.conditioned, found))


def _cells(rounds: Iterable[Round]) -> dict[Cell, list[Round]]:
    cells: dict[Cell, list[Round]] = {}
    for one in rounds:
        cells.setdefault(cell_of(one), []).append(one)
    return cells
