"""How many guests a place carries: its figures at each number of guests, and up to which of them a budget held. Pure.

A place is a vm_host, or a storage whose guests lie on several. At each level the first so many guests of every vm_host run at once;
figures come from the rounds that all of them share.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import fmean

from calyx_orch.analysis import rounds
from calyx_orch.analysis.fleet import Fleet
from calyx_orch.analysis.histogram import mean_ns, percentile_or_none
from calyx_orch.analysis.rows import CarriedRow, DensityRow
from calyx_orch.model import LoadMode, RunRecord

SCOPES = ("vm_host", "storage")
_BUDGET = re.compile(r"^(p[0-9.]+|mean)<([0-9.]+)(us|ms|s)$")
_SCALES = {"us": 10**3, "ms": 10**6, "s": 10**9}


def density_rows(record: RunRecord, fleets: Sequence[Fleet]) -> list[DensityRow]:
    """A row for each vm_host and storage, key and number of its guests that ran at once, from few to many."""
    budgets = {workload.name: workload.guests_at for workload in record.plan.inventory.workloads}
    found: list[DensityRow] = []
    for scope in SCOPES:
        places = dict.fromkeys(getattr(guest, scope) for guest in record.plan.inventory.guests)
        for name in places:
            if name is not None:
                mine = [row for of in fleets for row in _rows(record, of, scope, name, budgets.get(of.key[1]))]
                found += sorted(_as_one(mine), key=lambda row: (row.workload, row.target, row.engine, row.guests))
    return found


def carried_rows(rows: Iterable[DensityRow]) -> Iterable[CarriedRow]:
    """Of each place and workload with a budget: the most guests at which it held, and the fewest at which it broke.

    It is not held where it broke with fewer guests.
    """
    places: dict[tuple[str, ...], list[DensityRow]] = {}
    for row in rows:
        if row.budget is not None:
            places.setdefault((row.scope, row.name, row.target, row.workload, row.engine), []).append(row)
    for mine in places.values():
        first = mine[0]
        broke = next((row for row in mine if row.holds is not True), None)
        held = [row for row in mine if broke is None or row.guests < broke.guests]
        why = "" if broke is None or broke.holds is False else f"too few samples with {broke.guests} guests"
        yield CarriedRow(
            scope=first.scope,
            name=first.name,
            target=first.target,
            workload=first.workload,
            engine=first.engine,
            budget=first.budget or "",
            guests_held=held[-1].guests if held else None,
            guests_broke=broke.guests if broke is not None and broke.holds is False else None,
            guests_most=mine[-1].guests,
            why=why,
            doubts=tuple(dict.fromkeys(doubt for row in mine for doubt in row.doubts)),
        )


def budget_of(written: str) -> tuple[float | None, int]:
    """(percentile, nanoseconds) of `p99<2ms`; percentile None: the mean. ValueError: it is none."""
    match = _BUDGET.match(written)
    if match is None:
        raise ValueError(f"{written!r} is no budget")
    return None if match[1] == "mean" else float(match[1][1:]), int(Fraction(match[2]) * _SCALES[match[3]])


# --- how --------------------------------------------------------------------------------------------------------------


def _rows(record: RunRecord, of: Fleet, scope: str, name: str, budget: str | None) -> Iterable[DensityRow]:
    target, workload, engine, load = of.key
    if not load.startswith(LoadMode.DENSITY):
        return
    counted = frozenset(of.counted)
    guests = [one.name for one in record.plan.inventory.guests if getattr(one, scope) == name and one.name in counted]
    if not guests:
        return
    figures = [found for guest in guests for found in of.figures[guest]]
    throughput = math.fsum(fmean(found.throughput_bytes_per_s for found in of.figures[guest]) for guest in guests)
    latency = rounds.intended_latencies(figures)
    latency = latency if latency.count else rounds.latencies(figures)
    holds: bool | None = None
    if budget is not None:
        percent, limit_ns = budget_of(budget)
        figure_ns = mean_ns(latency) if percent is None else percentile_or_none(latency, percent)
        holds = None if figure_ns is None else figure_ns < limit_ns
    yield DensityRow(
        scope=scope,
        name=name,
        target=target,
        workload=workload,
        engine=engine,
        load=load,
        guests=len(guests),
        throughput_bytes_per_s=throughput,
        throughput_per_guest=throughput / len(guests),
        p99_ns=percentile_or_none(latency, 99.0),
        kept=None,
        budget=budget,
        holds=holds,
        doubts=rounds.doubt_names(figures),
    )


def _as_one(rows: Sequence[DensityRow]) -> Iterable[DensityRow]:
    """Each number of guests once (a small vm_host is full before the others are), and what a guest keeps of the fewest's figure."""
    kept: dict[tuple[str, str, str], dict[int, DensityRow]] = {}
    for row in rows:
        kept.setdefault((row.workload, row.target, row.engine), {}).setdefault(row.guests, row)
    for levels in kept.values():
        fewest = levels[min(levels)].throughput_per_guest
        for row in levels.values():
            yield replace(row, kept=row.throughput_per_guest / fewest if fewest > 0 else None)
