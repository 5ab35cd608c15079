"""Drives a search: what `plan.search.step` asks for becomes a round of an open loop, and its answers become a probe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from calyx_orch.analysis.histogram import merge, percentile_or_none
from calyx_orch.inventory import words
from calyx_orch.model import Found, Histogram, Measurement, Round, SearchPlan
from calyx_orch.plan import search

RunRound = Callable[[Round], Awaitable[tuple[Measurement, ...]]]


def first_probe(plan: SearchPlan) -> Round:
    """The round by which a search is rehearsed: under the search's own name."""
    return _round(plan, search.RATE_START, index=0, seed=1, name=plan.workload.name)


async def find(plan: SearchPlan, *, seed: int, first_index: int, run_round: RunRound) -> Found:
    """Run rounds until the search has ended. A round in which a guest fails ends it, too."""
    budget = plan.workload.find or ""
    percentile, limit_ns = words.budget(budget)
    probes: list[search.Probe] = []
    while True:
        after = search.step(probes, ceiling=plan.workload.rate_iops)
        if isinstance(after, search.Ended):
            return _found(plan, budget, probes, after)
        name = f"{plan.workload.name}@{after}"
        round_ = _round(plan, after, index=first_index + len(probes), seed=seed, name=name)
        answers = await run_round(round_)
        bad = [one for one in answers if one.status != "ok"]
        if bad or not answers:
            why = f"guest {bad[0].guest}: {bad[0].why}" if bad else "no guest was left"
            held = [probe.rate_iops for probe in probes if probe.held]
            broke = [probe.rate_iops for probe in probes if not probe.held]
            ended = search.Ended(max(held, default=None), min(broke, default=None), f"a round failed ({why})")
            return _found(plan, budget, probes, ended)
        probes.append(_probe(round_, answers, percentile, limit_ns))


def _round(plan: SearchPlan, rate_iops: int, *, index: int, seed: int, name: str) -> Round:
    workload = plan.workload
    arrival = workload.arrival if workload.is_open_loop else "constant"
    probed = replace(workload, name=name, rate_iops=rate_iops, arrival=arrival, find=None)
    return Round(index, 0, probed, plan.target, "calyx", plan.load, plan.guests, workload.seed or seed)


def _probe(round_: Round, answers: Sequence[Measurement], percentile: float | None, limit_ns: int) -> search.Probe:
    """The figure of all guests together, from when each I/O was due."""
    parts = [part for one in answers for part in (one.read, one.write) if part is not None]
    intended = merge(part.latency_intended or part.latency for part in parts)
    figure_ns = _mean(intended) if percentile is None else percentile_or_none(intended, percentile)
    rate = round_.workload.rate_iops or 0
    asked = rate * round_.workload.numjobs
    reached = min(one.total_ios / (one.window_ns / 1e9) for one in answers)  # the guest that kept up worst
    held = search.holds(figure_ns, limit_ns, asked_iops=asked, reached_iops=reached)
    return search.Probe(rate, figure_ns, held)


def _mean(histogram: Histogram) -> int | None:
    return histogram.sum_ns // histogram.count if histogram.count else None


def _found(plan: SearchPlan, budget: str, probes: Sequence[search.Probe], ended: search.Ended) -> Found:
    tried = tuple((probe.rate_iops, probe.figure_ns, probe.held) for probe in probes)
    return Found(
        plan.workload.name,
        plan.target,
        str(plan.load),
        plan.guests,
        budget,
        ended.rate_iops,
        ended.broke_iops,
        ended.why,
        tried,
    )
