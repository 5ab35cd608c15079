"""Who ran at once, and the rounds that they share: the fleet's row and what guests are compared by come from these alone.

A guest that failed in some rounds left the storage to the others in them. A sum, or a comparison, of figures from different rounds
would be of a fleet that never was; so all of it is taken from the rounds in which every guest that counts was measured.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

from calyx_orch.analysis import rounds, tails, variation
from calyx_orch.analysis.cells import Key, key_of, keys_of
from calyx_orch.analysis.histogram import percentile_or_none
from calyx_orch.analysis.rounds import Figures, Played
from calyx_orch.analysis.rows import FleetRow, SharedRow
from calyx_orch.analysis.variation import mean_known
from calyx_orch.model import LoadMode, Round, RunRecord

FLEET = "fleet"


@dataclass(frozen=True)
class Fleet:
    """Guests that the plan has run at once under one key; under `alone` each guest is by itself.

    `counted` are the guests of the fullest of its rounds, in the plan's order, and `shared` the rounds in which all of them, and
    no others, were measured: of several as full the set that was measured most often, then first. Both are empty when nobody was
    measured. `played` counts the rounds that were played at all; `turns` says for each round of `shared` which of those planned for these
    guests it is, from 0.
    """

    scope: str
    key: Key
    planned: tuple[str, ...]
    counted: tuple[str, ...]
    shared: tuple[Played, ...]
    turns: tuple[int, ...]
    played: int

    @cached_property
    def figures(self) -> Mapping[str, tuple[Figures, ...]]:
        """What each counted guest did in the shared rounds."""
        return {name: tuple(one.of[name] for one in self.shared) for name in self.counted}


def fleets_of(record: RunRecord, played: Sequence[Played]) -> tuple[Fleet, ...]:
    """Every fleet of the plan: keys in the inventory's order, then as planned."""
    domains = {guest.name: guest.domain for guest in record.plan.inventory.guests}
    by_key: dict[Key, list[Round]] = {}
    for round_ in record.plan.rounds:
        if round_.guests:
            by_key.setdefault(key_of(round_), []).append(round_)
    at = {one.round.index: one for one in played}
    found = []
    for key in (key for key in keys_of(record) if key in by_key):
        sets = _sets(by_key[key])
        scopes = _parts([_scope(by_key[key][0].load, names, domains) for names in sets])
        for scope, names, mine in zip(scopes, sets, _rounds_of(sets, by_key[key]), strict=True):
            found.append(_fleet(scope, key, names, mine, at))
    return tuple(found)


def shared_row(of: Fleet, guest: str) -> SharedRow | None:
    """A guest's figures in the rounds that its fleet shares; None when it does not count there."""
    figures = of.figures.get(guest, ())
    if not figures:
        return None
    throughput = [found.throughput_bytes_per_s for found in figures]
    p99s = [found.p99_ns for found in figures]
    return SharedRow(
        turns=of.turns,
        throughput_bytes_per_s=fmean(throughput),
        iops=fmean(found.iops for found in figures),
        p99_ns=percentile_or_none(rounds.latencies(figures), 99.0),
        cv_between_repetitions=variation.between_repetitions(throughput).value,
        cv_p99_between_repetitions=variation.between_repetitions([p99 for p99 in p99s if p99 is not None]).value,
    )


def fleet_row(of: Fleet, labels: tuple[str, ...]) -> FleetRow | None:
    """The row of a fleet, the sum of its guests' shared rows; None for guests alone and where nobody was measured."""
    target, workload, engine, load = of.key
    rows = [row for name in of.counted if (row := shared_row(of, name)) is not None]
    if load == LoadMode.ALONE or not rows:
        return None
    figures = tuple(found for one in of.shared for found in one.figures)
    latency = rounds.latencies(figures)
    spread = variation.between_guests([row.throughput_bytes_per_s for row in rows])
    skews = [one.largest_skew_ns for one in of.shared if one.largest_skew_ns is not None]
    bounds = [one.largest_bound_ns for one in of.shared if one.largest_bound_ns is not None]
    overlaps = [one.overlap for one in of.shared if one.overlap is not None and len(one.figures) > 1]
    of_rounds = "" if len(of.shared) == of.played else f", {len(of.shared)} of {of.played} rounds"
    return FleetRow(
        scope=of.scope,
        target=target,
        workload=workload,
        engine=engine,
        load=load,
        guests=len(rows),
        guests_planned=len(of.planned),
        rounds=of.played,
        rounds_shared=len(of.shared),
        status=f"{len(rows)} of {len(of.planned)} guests{of_rounds}",
        throughput_bytes_per_s=math.fsum(row.throughput_bytes_per_s for row in rows),
        iops=math.fsum(row.iops for row in rows),
        cv_between_guests=spread.value,
        cv_reason=spread.reason or spread.warning,
        **tails.of(latency),
        samples=latency.count,
        cpu_percent=_of_guests(of, lambda found: found.measurement.cpu.busy_percent if found.measurement.cpu else None),
        cpu_ns_per_io=_of_guests(of, lambda found: found.engine_ns_per_io),
        overlap=min(overlaps, default=None),
        skew_median_ns=median(skews) if skews else None,
        skew_max_ns=max(skews, default=None),
        skew_bound_ns=max(bounds, default=None),
        skew_how=rounds.agreed(found.measurement.skew_how for found in figures),
        doubts=rounds.doubt_labels(figures),
        doubt_names=rounds.doubt_names(figures),
        labels=labels,
    )


def _of_guests(of: Fleet, figure: Callable[[Figures], float | None]) -> float | None:
    """The mean over guests of each one's mean over the shared rounds."""
    return mean_known(mean_known(figure(found) for found in of.figures[name]) for name in of.counted)


def _sets(planned: Sequence[Round]) -> list[tuple[str, ...]]:
    """The guests that run at once: those that a round has in common, or several that overlap. Alone, each for itself."""
    if planned[0].load is LoadMode.ALONE:
        return [(name,) for name in dict.fromkeys(name for round_ in planned for name in round_.guests)]
    sets: list[tuple[str, ...]] = []
    for round_ in planned:
        met = [one for one in sets if not set(one).isdisjoint(round_.guests)]
        whole = tuple(dict.fromkeys(name for one in (*met, round_.guests) for name in one))
        at = sets.index(met[0]) if met else len(sets)
        sets[at:at] = [whole]
        sets = [one for one in sets if one is whole or one not in met]
    return sets


def _scope(load: LoadMode, names: Sequence[str], domains: Mapping[str, str]) -> str:
    mine = {domains[name] for name in names}
    return mine.pop() if load is LoadMode.PER_DOMAIN and len(mine) == 1 else FLEET


def _parts(scopes: Sequence[str]) -> list[str]:
    """The scopes, numbered where their guests run one part after another (`impact: max_guests_per_domain`)."""
    parts, begun = Counter(scopes), Counter[str]()
    named = []
    for scope in scopes:
        begun[scope] += 1
        named.append(scope if parts[scope] == 1 else f"{scope}, part {begun[scope]} of {parts[scope]}")
    return named


def _rounds_of(sets: Sequence[tuple[str, ...]], planned: Iterable[Round]) -> list[list[Round]]:
    """The planned rounds in which guests of each set run."""
    at = {name: place for place, names in enumerate(sets) for name in names}
    found: list[list[Round]] = [[] for _ in sets]
    for round_ in planned:
        for place in dict.fromkeys(at[name] for name in round_.guests):
            found[place].append(round_)
    return found


def _fleet(
    scope: str, key: Key, planned: tuple[str, ...], mine: Sequence[Round], played: Mapping[int, Played]
) -> Fleet:
    had = [(turn, played[round_.index]) for turn, round_ in enumerate(mine) if round_.index in played]
    measured = [frozenset(name for name in planned if name in one.of) for _, one in had]
    often = Counter(measured)
    fullest = max(often, key=lambda names: (len(names), often[names]), default=frozenset[str]())
    shared = [one for one, names in zip(had, measured, strict=True) if names == fullest and names]
    return Fleet(
        scope=scope,
        key=key,
        planned=planned,
        counted=tuple(name for name in planned if name in fullest),
        shared=tuple(one for _, one in shared),
        turns=tuple(turn for turn, _ in shared),
        played=len(had),
    )
