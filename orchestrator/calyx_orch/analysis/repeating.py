"""Whether a further block is needed: how wide the interval of the throughput still is, for each engine. Pure.

A block is whole or not played at all, so the engines stay balanced. What stops a workload is what it showed itself: the interval of the
mean over blocks is narrow enough for every engine, or the blocks that were planned are used up; a sentence says which.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from calyx_orch.model import Measurement, Round, Settled, Until

LEVEL = 0.95


@dataclass(frozen=True)
class Cell:
    """What is repeated: one workload on one target by one set of guests under one load."""

    workload: str
    target: str
    load: str
    guests: tuple[str, ...]


def cell_of(round_: Round) -> Cell:
    """The cell of a round. `guests` are those of the plan: an engine that some guests lack has a cell with the others'."""
    return Cell(round_.workload.name, round_.target, round_.load_name, round_.guests)


def half_width(values: Sequence[float]) -> float | None:
    """Half of Student's 95 % interval of the mean / the mean: t CV / sqrt(n). None for fewer than two values or a mean of 0."""
    if len(values) < 2 or fmean(values) <= 0:
        return None
    from scipy import stats  # takes a second to load, and few inventories say `until`

    reach = float(stats.t.ppf(0.5 + LEVEL / 2, len(values) - 1))
    return reach * stdev(values) / math.sqrt(len(values)) / fmean(values)


def widest(rounds: Iterable[Round], measurements: Iterable[Measurement]) -> tuple[int, float | None]:
    """How many blocks stand, and the widest half-width of any engine's throughput over them; None: one cannot be told.

    A block stands when all of its rounds were measured, but for those of an engine that no guest has. Only guests that were measured in
    every round of the blocks count: a guest that is lost on the way takes nothing from the sums of earlier blocks.
    """
    given = list(rounds)
    at = {one.index: one for one in given}
    rates: dict[int, dict[str, float]] = {}
    for m in measurements:
        if m.round_index in at and m.status == "ok" and m.window_ns > 0:
            rates.setdefault(m.round_index, {})[m.guest] = m.total_bytes / m.window_ns
    blocks: dict[int, list[Round]] = {}
    for one in given:
        blocks.setdefault(one.block, []).append(one)
    measured = {at[index].engine for index in rates}
    of_engines = {block: [one for one in of if one.engine in measured] for block, of in blocks.items()}
    whole = {block: of for block, of in of_engines.items() if of and all(rates.get(one.index) for one in of)}
    if not whole:
        return 0, None
    counted = set.intersection(*(set(rates[one.index]) for of in whole.values() for one in of))
    engines = {one.engine for of in whole.values() for one in of}
    widths = []
    for engine in sorted(engines):
        means = [
            fmean(math.fsum(rates[one.index][guest] for guest in counted) for one in of if one.engine == engine)
            for of in whole.values()
            if any(one.engine == engine for one in of)
        ]
        widths.append(half_width(means) if counted else None)
    known = [width for width in widths if width is not None]
    return len(whole), max(known) if len(known) == len(widths) else None


def settled(cell: Cell, until: Until, *, blocks: int, width: float | None, is_last: bool) -> Settled | None:
    """How a cell ended after `blocks` blocks of this half-width; None: it needs a further one. `is_last`: none is left."""
    is_narrow = width is not None and width <= until.interval
    if blocks >= until.blocks_min and is_narrow and width is not None:
        why = f"after {blocks} blocks: the interval of the throughput is narrow enough, ± {100 * width:.1f} %"
    elif is_last:
        reached = (
            "no interval is known" if width is None else f"the interval of the throughput is ± {100 * width:.1f} %"
        )
        why = f"after {blocks} blocks, all that were allowed: {reached}, ± {100 * until.interval:g} % was wanted"
        is_narrow = is_narrow and blocks >= until.blocks_min
    else:
        return None
    return Settled(cell.workload, cell.target, cell.load, cell.guests, blocks, width, is_narrow, why)
