"""A/A: how often do the thresholds of `regression` alarm on this very fleet when nothing changes, and what change would they see? Pure.

Nights are drawn again from the nights that there are, in blocks of BLOCK that follow each other, the same blocks for all series: so
made-up histories keep the noise, the likeness of neighbouring nights, and what vm_hosts share, and hold no lasting change (the
circular block bootstrap of Politis and Romano 1992). Known incidents are taken out first. The alarms in these are false. For
the smallest change one series in each is made slower from a night on: found is what opens within SEEN_WITHIN nights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calyx_orch import units
from calyx_orch.analysis import regression
from calyx_orch.analysis.regression import Direction

Floats = npt.NDArray[np.float64]

NIGHTS_MIN = 20  # of a series, before its noise is known
BLOCK = 5
NIGHTS, CHANGED, SEEN_WITHIN = 60, 40, 7
SERIES_MAX = 16  # drawn from; of more the longest
TRIALS = 40
POWER = 0.8
CHANGES = (0.05, 0.06, 0.08, 0.10, 0.12, 0.15, 0.20, 0.25, 0.30, 0.40, 0.50)
Z = 1.959964


@dataclass(frozen=True)
class Calibration:
    """False incidents per 1000 series-nights with a 95 % interval, and the smallest change that is seen in POWER of the trials.

    `smallest` None: not even half is. `why` says why there is nothing else: too few nights.
    """

    series: int = 0
    nights: int = 0
    false_per_1000: float = 0.0
    low: float = 0.0
    high: float = 0.0
    suspects_per_100: float = 0.0  # series of 100 nights that would be measured again for nothing
    smallest: float | None = None
    why: str = ""

    @property
    def sentence(self) -> str:
        """For the verdict of a night."""
        if self.why:
            return f"How often this fleet alarms falsely is not known yet: {self.why}."
        seen = (
            f"a change of {units.format_percent(100 * self.smallest)} would be seen within {SEEN_WITHIN} nights"
            if self.smallest is not None
            else f"not even a change of {units.format_percent(100 * CHANGES[-1])} would be seen within {SEEN_WITHIN} nights"
        )
        return (
            f"On this fleet {self.false_per_1000:.2g} incidents in 1000 series-nights are false "
            f"({self.low:.2g} to {self.high:.2g}), and {seen} (from {self.nights} nights of {self.series} series)."
        )


def calibrate(
    series: Mapping[str, Sequence[float]], better: Direction, *, seed: int = 1, trials: int = TRIALS
) -> Calibration:
    """Estimate both for the series of one metric; `trials` made-up fleets each."""
    long = sorted(
        (name for name, values in series.items() if len(values) >= NIGHTS_MIN and min(values) > 0),
        key=lambda name: -len(series[name]),
    )
    chosen = long[:SERIES_MAX]
    if not chosen:
        most = max((len(values) for values in series.values()), default=0)
        return Calibration(why=f"{NIGHTS_MIN} nights of a series tell, and the longest has {most}")
    length = min(len(series[name]) for name in chosen)
    noise = _noise({name: series[name][-length:] for name in chosen}, better)
    draw = np.random.default_rng(seed)
    false = again = 0
    for fleet in _fleets(noise, draw, trials):
        false += len(regression.incidents(fleet, better))
        again += len(regression.suspects(fleet, better))
    judged = trials * len(chosen) * (NIGHTS - regression.NIGHTS_MIN + 1)
    rate, low, high = _per_1000(false, judged)
    return Calibration(
        len(chosen),
        length,
        rate,
        low,
        high,
        100.0 * again / (trials * len(chosen)),
        _smallest(noise, better, draw, trials),
    )


def _noise(series: Mapping[str, Sequence[float]], better: Direction) -> Floats:
    """Logarithms of the series (a row each) about their level, what is known to have changed taken out."""
    rows = {name: np.log(np.asarray(values, dtype=np.float64)) for name, values in series.items()}
    for incident in regression.incidents(series, better):
        end = incident.recovered if incident.recovered is not None else len(rows[incident.series])
        rows[incident.series][incident.since : end] -= math.log1p(incident.change)
    return np.array([row - np.median(row) for row in rows.values()])


def _fleets(noise: Floats, draw: np.random.Generator, trials: int) -> Iterator[dict[str, list[float]]]:
    for _ in range(trials):
        drawn = np.exp(noise[:, _blocks(noise.shape[1], NIGHTS, draw)])
        yield {str(number): row.tolist() for number, row in enumerate(drawn)}


def _blocks(nights: int, wanted: int, draw: np.random.Generator) -> npt.NDArray[np.intp]:
    starts = draw.integers(0, nights, size=-(-wanted // BLOCK))
    return ((starts[:, None] + np.arange(BLOCK)) % nights).ravel()[:wanted].astype(np.intp)


def _smallest(noise: Floats, better: Direction, draw: np.random.Generator, trials: int) -> float | None:
    """The least of CHANGES that is seen, by bisection: a larger one is never harder to see."""
    low, high = 0, len(CHANGES)
    while low < high:
        middle = (low + high) // 2
        if _seen(noise, better, CHANGES[middle], draw, trials) >= POWER:
            high = middle
        else:
            low = middle + 1
    return CHANGES[low] if low < len(CHANGES) else None


def _seen(noise: Floats, better: Direction, change: float, draw: np.random.Generator, trials: int) -> float:
    """In which share of trials a series that gets worse by `change` is found in time."""
    factor = 1 - change if better == "higher" else 1 / (1 - change)
    found = 0
    for _ in range(trials):
        drawn = np.exp(noise[:, _blocks(noise.shape[1], CHANGED + SEEN_WITHIN, draw)])
        worse = int(draw.integers(len(drawn)))
        drawn[worse, CHANGED:] *= factor
        told = regression.incidents({str(number): row.tolist() for number, row in enumerate(drawn)}, better)
        found += any(one.series == str(worse) and one.opened >= CHANGED and one.worse for one in told)
    return found / trials


def _per_1000(hits: int, count: int) -> tuple[float, float, float]:
    """Events per 1000 with an interval for Poisson counts (Byar's approximation)."""
    low = hits * (1 - 1 / (9 * hits) - Z / (3 * math.sqrt(hits))) ** 3 if hits else 0.0
    high = (hits + 1) * (1 - 1 / (9 * (hits + 1)) + Z / (3 * math.sqrt(hits + 1))) ** 3
    return 1000.0 * hits / count, 1000.0 * low / count, 1000.0 * high / count
