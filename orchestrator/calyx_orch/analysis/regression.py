"""Did it get worse: a night's figure against the nights before, an incident from its first night to its recovery, and suspects.

A step is looked for between the last RECENT nights and the WINDOW nights before. Nights that follow each other are alike (an array that
rebuilds, a busy month), so the series is freed of that first: each night less `rho` times the night before. On what remains, the
likeness of the last nights to a step is compared with that of nights drawn at random (a permutation test), so no shape of the noise
is assumed; single wild nights are cut to CLIP spreads, so that one of them is no step. A step must also be larger than STEP_MIN.

An incident opens once and stays open until the figure has recovered: the window slides past a change, and would forget it. Nothing is
said before NIGHTS_MIN nights. With the constants below, measured in benchmarks/verdicts.py: at most 3 false incidents in 1000
series-nights, also where nights correlate by 0.5; a step of 12 % is found within seven nights in over 90 of 100.

Sources: the permutation test of a weighted sum (Pitman 1937); prewhitening for serial correlation (von Storch 1995); the shift by
Hodges and Lehmann (1963); false discoveries by Benjamini and Hochberg (1995).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from calyx_orch.analysis import significance

Floats = npt.NDArray[np.float64]

RECENT = 5  # nights that a step must have lasted
WINDOW = 40  # nights before them
NIGHTS_MIN = 12  # of a series, before anything is said
STEP_MIN = 0.05  # a smaller step is nobody's night call
P_MAX = 0.002
RECOVERED = 0.5  # of the step: a figure nearer to the old level than that has recovered
CLIP = 4.0  # spreads (median absolute deviation) beyond which one night says no more
RHO_PRIOR, RHO_PRIOR_NIGHTS = 0.5, 20  # what is assumed of neighbouring nights, and how many nights overrule it
RHO_MAX = 0.8
DRAWS = 20_000
DRAWS_TRUSTED = 20  # fewer draws beyond than that: the tail is taken from the normal curve of the draws
MAD_TO_SIGMA = 1.4826
SUSPECT_P_MAX = 0.05
ZERO = 1e-3  # of the least night above it: what a night counts as on which nothing was done, so that it has a logarithm

Direction = Literal["higher", "lower"]


@dataclass(frozen=True)
class Step:
    """The last nights against the window: `change` (-0.12 is 12 % less), with its p-value; `rho` is how alike neighbours were."""

    change: float
    p: float
    rho: float
    nights: int


@dataclass(frozen=True)
class Incident:
    """A lasting change of one series: nights are places in the series. `recovered` None: still open.

    `opened` is the night on which it was said, `since` about the first at the new level; `change` is that of all its nights so far;
    `worse` False is an improvement.
    """

    series: str
    since: int
    opened: int
    change: float
    p: float
    worse: bool
    recovered: int | None = None


@dataclass(frozen=True)
class Suspect:
    """One night that may be worse: `change` against the window's middle, and its p-value before any correction."""

    change: float
    p: float


def step(values: Sequence[float]) -> Step | None:
    """Tell whether the last RECENT nights differ from those before. None: too few nights, or values that are not above 0.

    Of a change below STEP_MIN, which is never told, the p-value is left at 1.
    """
    if len(values) < NIGHTS_MIN or min(values) <= 0:
        return None
    series = np.log(np.asarray(values[-(WINDOW + RECENT) :], dtype=np.float64))
    window, recent = series[:-RECENT], series[-RECENT:]
    rho = _likeness(window)
    change = math.expm1(shift(recent, window))
    p = _step_p(series - np.median(window), rho) if abs(change) >= STEP_MIN else 1.0
    return Step(change, p, rho, len(series))


def floored(values: Sequence[float]) -> list[float]:
    """The nights with those of exactly 0 raised to ZERO of the least above it: the worst night there is must not silence its series."""
    least = min((value for value in values if value > 0), default=0.0)
    return [ZERO * least if value == 0 else value for value in values]


def shift(recent: Floats, window: Floats) -> float:
    """The median of all differences (Hodges and Lehmann 1963), of logarithms when those are given."""
    return float(np.median(recent[:, None] - window[None, :]))


def is_step(found: Step | None, *, p_max: float = P_MAX) -> bool:
    """Whether a step is large and certain enough to be told."""
    return found is not None and abs(found.change) >= STEP_MIN and found.p <= p_max


def incidents(series: Mapping[str, Sequence[float]], better: Direction) -> tuple[Incident, ...]:
    """Replay many series night by night, false discoveries held down over all of them on each night; in order of opening.

    All series end on the same night; shorter ones began later. `better` says which direction is good.
    """
    tracks = {name: _Track(name, values) for name, values in series.items()}
    last = max((len(values) for values in series.values()), default=0)
    for night in range(NIGHTS_MIN, last + 1):
        steps = {}
        for name, track in tracks.items():
            if (found := track.at(len(track.values) - (last - night))) is not None:
                steps[name] = found
        for name, found in _told(steps):
            tracks[name].open(found, better)
    told = (incident for track in tracks.values() for incident in track.incidents)
    return tuple(sorted(told, key=lambda one: (one.opened, one.series)))


def suspects(series: Mapping[str, Sequence[float]], better: Direction) -> dict[str, Suspect]:
    """The series whose last night alone is worse than the nights before, false discoveries held down over all of them.

    A suspect is a reason to measure again, no alarm: `cleared` or `confirmed` by what the rerun says.
    """
    found = {name: one for name, values in series.items() if (one := _suspect(values)) is not None}
    adjusted = significance.benjamini_hochberg([one.p for one in found.values()])
    return {
        name: one
        for (name, one), p in zip(found.items(), adjusted, strict=True)
        if p <= SUSPECT_P_MAX and abs(one.change) >= STEP_MIN and (one.change < 0) == (better == "higher")
    }


def confirms(values: Sequence[float], rerun: float) -> bool:
    """Whether a measurement made again on the last night agrees with it rather than with the nights before.

    The suspect night and its rerun together are held against the window (an exact rank test), and the rerun must lie nearer to
    the suspect night than to the middle of the window, so that what is borderline and real is not cleared.
    """
    nights = floored([*values, rerun])
    window = np.log(np.asarray(nights[-(WINDOW + 2) : -2], dtype=np.float64))
    pair = np.log(np.asarray(nights[-2:], dtype=np.float64))
    middle = float(np.median(window))
    is_nearer = abs(pair[1] - middle) > abs(pair[0] - middle) / 2 and (pair[1] - middle) * (pair[0] - middle) > 0
    p = float(stats.mannwhitneyu(pair, window, method="exact").pvalue)
    return is_nearer and p <= max(SUSPECT_P_MAX, _least_p(len(window)))


class _Track:
    """One series on its way through the nights: its incidents so far, and the nights that are fit for a window.

    The nights of an incident that has recovered are left out from then on, or the way back would look like a change.
    """

    def __init__(self, name: str, values: Sequence[float]) -> None:
        self.name = name
        self.values = floored(values)
        self.incidents: list[Incident] = []
        self._fit: list[int] = []
        self._before = 0.0

    def at(self, count: int) -> Step | None:
        """Go on to the first `count` nights; a step to be judged, None while there is none or an incident is open."""
        if count <= 0:
            return None
        seen = self._fit[-1] + 1 if self._fit else 0
        self._fit.extend(range(seen, count))
        if self._is_open:
            incident = self.incidents[-1]
            if _has_recovered(self._known(RECENT), self._before, incident.change):
                self.incidents[-1] = replace(incident, recovered=count - 1)
                back = count - (RECENT + 1) // 2  # most of the last nights are back, these certainly
                self._fit = [night for night in self._fit if night < incident.since or night >= back]
            else:
                now = _level([self.values[night] for night in range(incident.since, count)])
                self.incidents[-1] = replace(incident, change=now / self._before - 1)
            return None
        return step(self._known(WINDOW + RECENT))

    def open(self, found: Step, better: Direction) -> None:
        """Open an incident with the step of the last night."""
        worse = (found.change < 0) == (better == "higher")
        self._before = _level(self._known(WINDOW + RECENT)[:-RECENT])
        self.incidents.append(Incident(self.name, self._fit[-RECENT], self._fit[-1], found.change, found.p, worse))

    @property
    def _is_open(self) -> bool:
        return bool(self.incidents) and self.incidents[-1].recovered is None

    def _known(self, nights: int) -> list[float]:
        return [self.values[night] for night in self._fit[-nights:]]


# --- how ------------------------------------------------------------------------------------------------------------


def _suspect(values: Sequence[float]) -> Suspect | None:
    """The last night against a prediction from the nights before it (Student, wild nights cut)."""
    values = floored(values)
    if len(values) <= NIGHTS_MIN or min(values) <= 0:
        return None
    window = np.log(np.asarray(values[-(WINDOW + 1) : -1], dtype=np.float64))
    middle = float(np.median(window))
    spread = float(_clipped(window - middle, window).std(ddof=1))
    away = math.log(values[-1]) - middle
    if spread <= 0:
        return Suspect(math.expm1(away), 0.0 if away else 1.0)
    n = len(window)
    return Suspect(math.expm1(away), float(2 * stats.t.sf(abs(away) / (spread * math.sqrt(1 + 1 / n)), n - 1)))


def _least_p(nights: int) -> float:
    """The least p that two values against so many can have."""
    return 2.0 / math.comb(nights + 2, 2)


def _told(steps: Mapping[str, Step]) -> Iterable[tuple[str, Step]]:
    """The steps that hold when all series of the night are looked at together."""
    adjusted = significance.benjamini_hochberg([found.p for found in steps.values()])
    for (name, found), p in zip(steps.items(), adjusted, strict=True):
        if is_step(replace(found, p=p)):
            yield name, found


def _has_recovered(values: Sequence[float], before: float, change: float) -> bool:
    """Whether the last RECENT nights are nearer to the level before than to the new one."""
    now = math.log(_level(values[-RECENT:]) / before)
    whole = math.log1p(change)
    return whole == 0 or now / whole < RECOVERED


def _level(values: Sequence[float]) -> float:
    return float(np.exp(np.median(np.log(np.asarray(values, dtype=np.float64)))))


def _likeness(window: Floats) -> float:
    """The correlation of a night with the next, wild nights cut, freed of its bias and drawn to RHO_PRIOR where nights are few."""
    centred = _clipped(window - np.median(window), window)
    centred = centred - centred.mean()
    whole = float((centred * centred).sum())
    if whole <= 0:
        return RHO_PRIOR
    n = len(window)
    raw = float((centred[1:] * centred[:-1]).sum()) / whole
    free = (n * raw + 1) / (n - 3)
    return min(max((n * free + RHO_PRIOR_NIGHTS * RHO_PRIOR) / (n + RHO_PRIOR_NIGHTS), 0.0), RHO_MAX)


def _clipped(values: Floats, spread_of: Floats) -> Floats:
    middle = np.median(spread_of)
    spread = MAD_TO_SIGMA * float(np.median(np.abs(spread_of - middle)))
    return np.clip(values, -CLIP * spread, CLIP * spread) if spread > 0 else values


def _step_p(centred: Floats, rho: float) -> float:
    """The p-value of a step at the start of the last RECENT nights, two-sided, by permutation of the freed nights."""
    freed = np.concatenate([[centred[0] * math.sqrt(1 - rho * rho)], centred[1:] - rho * centred[:-1]])
    before = freed[:-RECENT]
    freed = _clipped(freed - np.median(before), before)
    if not np.ptp(freed):
        return 1.0
    weights = np.full(RECENT, 1.0 - rho)
    weights[0] = 1.0
    drawn = freed[_draws(len(freed))] @ weights
    middle = float(freed.mean()) * float(weights.sum())
    seen = abs(float(freed[-RECENT:] @ weights) - middle)
    beyond = int((np.abs(drawn - middle) >= seen * (1 - 1e-12)).sum())
    if beyond >= DRAWS_TRUSTED:
        return (1 + beyond) / (1 + DRAWS)
    return float(max(2 * stats.norm.sf(seen / float(drawn.std())), 1e-12))


@functools.cache
def _draws(nights: int) -> npt.NDArray[np.intp]:
    """DRAWS ordered choices of RECENT of `nights` places, the same each time."""
    draw = np.random.default_rng(nights)
    return np.argsort(draw.random((DRAWS, nights)), axis=1)[:, :RECENT]
