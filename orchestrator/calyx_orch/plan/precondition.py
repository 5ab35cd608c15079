"""The rounds of a preconditioning: a writing workload again and again, until it is steady or its budget ends. Pure.

Files are written whole by the layout (the prefill). What a disk does to overwritten blocks after that, it does only under writes; so each
writing workload is run by calyx before the first block, as often as the budget allows and at most as often as SNIA's test would. Load
points that are shares of one capacity are one workload here, in a closed loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from calyx_orch.errors import UsageError
from calyx_orch.model import Inventory, LoadMode, Plan, Round, Workload
from calyx_orch.plan import capacity, cost

ROUNDS_MIN, ROUNDS_MAX = 5, 25  # a window of five; SNIA's test gives up after 25
CALYX = "calyx"


def rounds_at_most(inventory: Inventory, workload: Workload) -> int:
    """How often a workload is run to precondition: what `max` has room for, 0 where it is not meant."""
    said = inventory.precondition
    if said is None or workload.find is not None or not _is_meant(said.workloads, workload):
        return 0
    around_s = sum(seconds for _, seconds in cost.around(inventory))
    return min(int(said.max_s / (workload.ramp_s + workload.runtime_s + around_s)), ROUNDS_MAX)


def check(inventory: Inventory) -> None:
    """Raise UsageError where the budget has no room for a window of rounds, or no workload is meant."""
    said = inventory.precondition
    if said is None:
        return
    meant = [one for one in inventory.workloads if _is_meant(said.workloads, one) and one.find is None]
    if not meant:
        raise UsageError("precondition: none of the workloads writes: leave it out, or name workloads there")
    short = [one.name for one in meant if rounds_at_most(inventory, one) < ROUNDS_MIN]
    if short:
        raise UsageError(
            f"precondition: max has no room for {ROUNDS_MIN} rounds of '{short[0]}', the fewest that show a steady state: raise max, "
            "or lower runtime"
        )


def rounds_of(cells: Sequence[Round], inventory: Inventory) -> tuple[Round, ...]:
    """All rounds, by workload, target and set of guests of its first load: cell after cell. `cells` are rounds, one of each cell."""
    made: list[Round] = []
    loads: dict[tuple[str, str], LoadMode] = {}
    shared: dict[tuple[Workload, str], str] = {}  # pattern and target -> the load point that stands for the others
    for cell in cells:
        load = loads.setdefault((cell.workload.name, cell.target), cell.load)
        count = rounds_at_most(inventory, cell.workload)
        if not count or cell.load is not load or cell is not _fullest(cell, cells):
            continue
        workload = cell.workload
        if workload.load_share is not None:
            if shared.setdefault((capacity.pattern_of(workload), cell.target), workload.name) != workload.name:
                continue
            workload = capacity.closed(workload)
        for number in range(count):
            made.append(replace(cell, index=len(made), block=number, engine=CALYX, workload=workload))
    return tuple(made)


def _fullest(cell: Round, cells: Sequence[Round]) -> Round:
    """Of a density the most guests; else the cell itself."""
    if not cell.density:
        return cell
    like = [one for one in cells if (one.workload, one.target, one.load) == (cell.workload, cell.target, cell.load)]
    return max(like, key=lambda one: one.density)


def moved(rounds: Iterable[Round], by: int) -> tuple[Round, ...]:
    """The rounds, numbered behind those of the preconditioning."""
    return tuple(replace(one, index=one.index + by) for one in rounds) if by else tuple(rounds)


def conditioned(plan: Plan, first_of_cells: Sequence[Round]) -> Plan:
    """The plan with its preconditioning in front."""
    made = rounds_of(first_of_cells, plan.inventory)
    by = len(made)
    return replace(plan, conditioning=made, capacity=moved(plan.capacity, by), rounds=moved(plan.rounds, by))


def _is_meant(named: tuple[str, ...], workload: Workload) -> bool:
    return workload.name in named if named else workload.rw.writes and not workload.rw.trims
