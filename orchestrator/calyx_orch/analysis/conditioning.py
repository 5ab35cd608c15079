"""Whether a preconditioning is over: its last five rounds are steady, or its budget of rounds or bytes ends. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from calyx_orch import units
from calyx_orch.analysis import steady
from calyx_orch.model import Conditioned, Measurement, Precondition, Round


def written_bytes(rounds: Iterable[Round], measurements: Iterable[Measurement]) -> int:
    """What the guest that wrote most has written in these rounds, their ramps taken to write as fast as their windows."""
    at = {one.index: one.workload for one in rounds}
    guests: dict[str, float] = {}
    for m in measurements:
        workload = at.get(m.round_index)
        if workload is not None and m.write is not None and m.window_ns > 0:
            whole = m.write.bytes * (1 + workload.ramp_s / max(m.window_ns / 1e9, 1e-3))
            guests[m.guest] = guests.get(m.guest, 0.0) + whole
    return round(max(guests.values(), default=0.0))


def rates(rounds: Sequence[Round], measurements: Iterable[Measurement]) -> list[float]:
    """The throughput of each round that was measured, in bytes/s: of those guests that were measured in all of them."""
    indices = [one.index for one in rounds]
    found: dict[int, dict[str, float]] = {index: {} for index in indices}
    for m in measurements:
        if m.round_index in found and m.status == "ok" and m.window_ns > 0:
            found[m.round_index][m.guest] = m.total_bytes * 1e9 / m.window_ns
    measured = [guests for guests in (found[index] for index in indices) if guests]
    counted = set.intersection(*map(set, measured)) if measured else set()
    return [math.fsum(guests[name] for name in counted) for guests in measured] if counted else []


def ended(
    cell: Sequence[Round], every: Sequence[Round], measurements: Sequence[Measurement], budget: Precondition
) -> Conditioned | None:
    """How the preconditioning of `cell` ended after what was measured of it; None: it needs a further round.

    `every` are the rounds of all preconditioning, against which the bytes count.
    """
    values = rates(cell, measurements)
    window = steady.last_window(values)
    played = {m.round_index for m in measurements}
    done = sum(one.index in played for one in cell)
    spent = written_bytes(every, measurements)
    each = written_bytes([one for one in cell if one.index in played][-1:], measurements)
    is_steady = window is not None and window.is_steady
    if window is not None and is_steady:
        why = f"steady after {done} rounds: range {100 * window.range_share:.0f} %, slope {100 * window.slope_share:.0f} % of the mean"
    elif budget.max_bytes is not None and done and spent + each > budget.max_bytes:
        why = (
            f"not steady after {done} rounds: a further one would exceed {units.format_bytes(budget.max_bytes)} a guest"
        )
    elif done >= len(cell):
        why = f"not steady after {done} rounds, all that its time has room for"
    else:
        return None
    first = cell[0]
    return Conditioned(
        workload=first.workload.name,
        target=first.target,
        load=first.load_name,
        guests=first.guests,
        rounds=done,
        is_steady=is_steady,
        range_share=window.range_share if window else None,
        slope_share=window.slope_share if window else None,
        why=why,
    )
