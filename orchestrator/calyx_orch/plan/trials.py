"""How often set-ups are tried before one is chosen: in turns, until chance alone would hardly have chosen another. Pure.

    step(candidates, turns, spent_s) -> who is tried in the next turn, in that order, or the choice

A second of a shared disk says little: IOPS differ by 6 to 8 %, P99 by 20 to 30 % from one second to the next. So all candidates are
tried one after another in a turn, every other turn backwards, and what all have in common in a turn is taken out of their figures (a
median polish): what drifts more slowly than a turn is in none of them. With the noise that is left the figures are drawn again and
again, and the rule of `plan.choice` is held against each draw. Who keeps its bounds in too few draws is out; the others cannot be told
from the best, so the least CPU per I/O decides among them. Three turns are played in any case; more while the draws choose now one and
now another, without those whom hardly any chooses.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from calyx_orch import units
from calyx_orch.plan import choice
from calyx_orch.plan.choice import Candidate, Choice, Figures, Trial, rank

TURNS_MIN, TURNS_MAX = 3, 9
WITHIN_S = 60.0  # no turn is begun later
DRAWS = 400
POLISHES = 6
SURE = 0.9  # the support that ends the trials
IN_BOUNDS = 0.2  # who keeps the bounds in fewer of the draws is out of them
HOPE = 0.05  # the least support with which a candidate is tried again

Turn = Mapping[Candidate, Trial]


def step(candidates: Sequence[Candidate], turns: Sequence[Turn], *, spent_s: float) -> tuple[Candidate, ...] | Choice:
    """The next turn, or the choice. `candidates` are those that may be tried at all. Raises ValueError when none did any I/O."""
    played = [{one: trial for one, trial in turn.items() if trial.iops > 0} for turn in turns]
    alive = [one for one in candidates if all(one in turn for turn in played)]
    if len(played) < TURNS_MIN:
        return _turn(alive or candidates, len(played))
    if not alive:
        raise ValueError("no trial did any I/O")
    found = draws(played)
    hopeful = [one for one in alive if one == found.won or found.support.get(one, 0.0) >= HOPE]
    is_over = len(played) >= TURNS_MAX or spent_s >= WITHIN_S
    if max(found.support.values()) >= SURE or is_over or len(hopeful) < 2:
        return _choice(found, played)
    return _turn(hopeful, len(played))


@dataclass(frozen=True)
class Draws:
    """Who is chosen, in which share of the draws each one is, and who is not out of bounds (nobody: the calmest is chosen)."""

    won: Candidate
    support: Mapping[Candidate, float]
    within: frozenset[Candidate]


def draws(turns: Sequence[Turn]) -> Draws:
    """Draws all figures anew with the noise that the turns show, and holds the rule against each draw."""
    draw = random.Random(len(turns))
    parted = [
        _Parted.of(turns, of) for of in (lambda one: one.iops, lambda one: one.p99_ns, lambda one: one.cpu_ns_per_io)
    ]
    candidates = sorted({one for turn in turns for one in turn}, key=rank)
    levels = {one: [part.level.get(one, math.inf) for part in parted] for one in candidates}
    # The median of n values is 1.25 times as uncertain as their mean.
    count = {one: sum(one in turn for turn in turns) for one in candidates}
    errors = {one: [1.2533 * part.noise / math.sqrt(count[one]) for part in parted] for one in candidates}
    chosen: Counter[Candidate] = Counter()
    kept: Counter[Candidate] = Counter()
    for _ in range(DRAWS):
        drawn = [
            _figures(
                one, (level + draw.gauss(0.0, error) for level, error in zip(levels[one], errors[one], strict=True))
            )
            for one in candidates
        ]
        fair = choice.within_bounds(drawn)
        kept.update(one.candidate for one in fair)
        chosen[(choice.cheapest(fair) if fair else choice.calmest(choice.quick(drawn))).candidate] += 1
    figures = [_figures(one, levels[one]) for one in candidates]
    within = [one for one in figures if kept[one.candidate] >= IN_BOUNDS * DRAWS]
    won = choice.cheapest(within) if within else choice.calmest(choice.quick(figures))
    support = {candidate: times / DRAWS for candidate, times in chosen.items()}
    return Draws(won.candidate, support, frozenset(one.candidate for one in within))


def _turn(candidates: Iterable[Candidate], number: int) -> tuple[Candidate, ...]:
    return tuple(candidates) if number % 2 == 0 else tuple(candidates)[::-1]


def _choice(found: Draws, turns: Sequence[Turn]) -> Choice:
    """The choice and why; the figures are medians as they were measured."""
    rule = (
        f"least CPU per I/O of {len(found.within)} that keep 0.98 of the best IOPS and 1.05 of the best P99"
        if found.within
        else "none keeps both 0.98 of the best IOPS and 1.05 of the best P99: the lowest P99 of those with the IOPS"
    )
    mine = [turn[found.won] for turn in turns if found.won in turn]
    p99s = [trial.p99_ns for trial in mine if trial.p99_ns is not None]
    cpus = [trial.cpu_ns_per_io for trial in mine if trial.cpu_ns_per_io is not None]
    told = (
        f"{median(trial.iops for trial in mine):,.0f} IOPS",
        f"P99 {units.format_latency(median(p99s)) if p99s else units.UNKNOWN}",
        f"CPU per I/O {units.format_latency(median(cpus)) if cpus else units.UNKNOWN}",
        f"{len(turns)} turns, chosen in {found.support.get(found.won, 0.0):.0%} of draws",
    )
    tried = len({one for turn in turns for one in turn})
    return Choice(found.won, f"{found.won}: {rule}, of {tried} tried ({', '.join(told)})")


@dataclass(frozen=True)
class _Parted:
    """The logarithms of one figure as a level of each candidate and the noise around it; what the turns have in common is in neither.

    By Tukey's median polish: it does not mind turns in which some were not tried, nor a disturbed second.
    """

    level: Mapping[Candidate, float]
    noise: float

    @classmethod
    def of(cls, turns: Sequence[Turn], figure: Callable[[Trial], float | None]) -> _Parted:
        """A candidate of which the figure is not known in any turn has no level."""
        cells = {
            (one, number): math.log(value)
            for number, turn in enumerate(turns)
            for one, trial in turn.items()
            if (value := figure(trial)) is not None and value > 0
        }
        level = dict.fromkeys((one for one, _ in cells), 0.0)
        common = dict.fromkeys((number for _, number in cells), 0.0)
        for _ in range(POLISHES):
            for one in level:
                level[one] = median(value - common[number] for (who, number), value in cells.items() if who == one)
            for number in common:
                common[number] = median(value - level[one] for (one, turn), value in cells.items() if turn == number)
        rest = {key: value - level[key[0]] - common[key[1]] for key, value in cells.items()}
        apart = [abs(rest[one] - rest[other]) for one, other in itertools.combinations(rest, 2) if one[0] == other[0]]
        noise = median(apart) / (0.6745 * math.sqrt(2)) if apart else 0.0
        return cls(level, noise if noise > 1e-9 else 0.0)


def _figures(candidate: Candidate, logarithms: Iterable[float]) -> Figures:
    """What is not known is as bad as can be."""
    iops, p99_ns, cpu_ns_per_io = map(math.exp, logarithms)
    return Figures(candidate, iops, p99_ns, cpu_ns_per_io)
