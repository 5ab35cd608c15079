"""Load points: open loops at a share of what the slowest guest can do, so that latencies are of equal offered load. Pure.

`with_capacity` puts short closed loops in front of the measured rounds, one of each such pattern, target, load, set of guests and
engine. The lowest rate that any guest shows in them is the capacity of that pattern on that target; `points` are the rates that follow
from it, and `pinned` is the plan with them: the same rate for every guest, engine and load mode, or their latencies say nothing of
each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from calyx_orch.model import LoadPoint, Measurement, Plan, Round, Workload

CAPACITY_S, CAPACITY_RAMP_S = 3.0, 1.0  # a second of a shared disk differs by 6 to 8 % from the next
INTERVAL_MS = 100


def closed(workload: Workload) -> Workload:
    """The same I/O in a closed loop; bounded by what `impact` allows, and else by nothing."""
    return replace(workload, arrival="closed", load_share=None)


def pattern_of(workload: Workload) -> Workload:
    """What load points have in common that are shares of one capacity: the nameless closed loop by which it is measured."""
    runtime_s = min(workload.runtime_s, CAPACITY_S)
    return replace(
        closed(workload), name="", ramp_s=min(workload.ramp_s, CAPACITY_RAMP_S), runtime_s=runtime_s,
        interval_ms=min(workload.interval_ms, INTERVAL_MS), end_fsync=False,
    )  # fmt: skip


def with_capacity(plan: Plan) -> Plan:
    """The plan with the rounds that measure capacity, numbered from 0, and the measured ones behind them."""
    found: dict[tuple[object, ...], Round] = {}
    for one in plan.rounds:
        if one.workload.load_share is not None:
            pattern = pattern_of(one.workload)
            key = (pattern, one.target, one.load, one.density, one.guests, one.engine)
            if key not in found:
                workload = replace(pattern, name=one.workload.name)
                found[key] = replace(one, index=len(found), block=0, workload=workload)
    if not found:
        return plan
    rounds = tuple(replace(one, index=one.index + len(found)) for one in plan.rounds)
    return replace(plan, capacity=tuple(found.values()), rounds=rounds)


def points(plan: Plan, measurements: Iterable[Measurement]) -> tuple[LoadPoint, ...]:
    """The rate of each load point of which some guest showed its capacity, in the plan's order."""
    lowest = _lowest(plan.capacity, measurements)
    found: dict[tuple[str, str], LoadPoint] = {}
    for one in plan.rounds:
        workload = one.workload
        slowest = lowest.get((pattern_of(workload), one.target))
        if workload.load_share is not None and slowest is not None:
            rate_iops = _rate_iops(workload, _iops(slowest))
            point = LoadPoint(
                workload.name, one.target, workload.load_share, rate_iops, _iops(slowest), slowest.guest, slowest.engine,
                slowest.load,
            )  # fmt: skip
            found.setdefault((workload.name, one.target), point)
    return tuple(found.values())


def pinned(plan: Plan, found: Sequence[LoadPoint]) -> Plan:
    """The plan with the rates of its load points."""
    rates = {(point.workload, point.target): point.rate_iops for point in found}
    return replace(plan, rounds=tuple(_at_rate(one, rates) for one in plan.rounds), load_points=tuple(found))


def without_rate(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Load points (workload and target) that have no rate, as no guest showed its capacity: they cannot be run."""
    rated = {(point.workload, point.target) for point in plan.load_points}
    wanted = dict.fromkeys(
        (one.workload.name, one.target) for one in plan.rounds if one.workload.load_share is not None
    )
    return tuple(key for key in wanted if key not in rated)


def sentence(point: LoadPoint) -> str:
    """`lookup-load50 on data: 640 IOPS a job are 50 % of 1,280 IOPS, the least that a guest did (guest2, calyx, together)`."""
    return (
        f"{point.workload} on {point.target}: {point.rate_iops:,} IOPS a job are {100 * point.share:g} % of "
        f"{point.capacity_iops:,.0f} IOPS, the least that a guest did ({point.guest}, {point.engine}, {point.load})"
    )


def _lowest(rounds: Sequence[Round], measurements: Iterable[Measurement]) -> Mapping[tuple[Workload, str], Measurement]:
    """The measurement of the slowest guest by pattern and target; one without I/O shows no capacity."""
    at = {one.index: one for one in rounds}
    lowest: dict[tuple[Workload, str], Measurement] = {}
    for measured in measurements:
        round_ = at.get(measured.round_index)
        if round_ is not None and measured.status == "ok" and measured.window_ns > 0 and measured.total_ios > 0:
            key = replace(round_.workload, name=""), round_.target
            if key not in lowest or _iops(measured) < _iops(lowest[key]):
                lowest[key] = measured
    return lowest


def _iops(measured: Measurement) -> float:
    return measured.total_ios * 1e9 / measured.window_ns


def _rate_iops(workload: Workload, capacity_iops: float) -> int:
    """Per job, at least 1; never above what `impact` allows."""
    rate_iops = max(1, math.floor((workload.load_share or 0.0) * capacity_iops / workload.numjobs))
    return rate_iops if workload.rate_iops is None else min(rate_iops, workload.rate_iops)


def _at_rate(round_: Round, rates: Mapping[tuple[str, str], int]) -> Round:
    rate_iops = rates.get((round_.workload.name, round_.target))
    if rate_iops is None or round_.workload.load_share is None:
        return round_
    return replace(round_, workload=replace(round_.workload, rate_iops=rate_iops))
