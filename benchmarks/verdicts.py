#!/usr/bin/env python3
"""Are the verdicts right? Comparisons and nightly incidents on simulated fleets whose truth is known.

    benchmarks/verdicts.py              4000 runs a scenario: a few minutes
    benchmarks/verdicts.py --quick      under a minute, with wider intervals: a band that one lies across is left open
    benchmarks/verdicts.py --check      exit 1 where a goal is missed; the last line is the figure furthest from its goal

The functions are those of `calyx-orch compare` and `calyx-orch history`; only the figures are made up: the logarithm of a rate is a
drift that all guests of a round share (first order, 0.5 from slot to slot), plus noise of the round, plus noise of guest and round.
Noise is normal, skewed (gamma), or normal with one round in twenty 26 % slower. Engines are played A B B A, vm_hosts in the same
rounds, runs apart. No disk is touched.

A band (coverage of 93 to 97 %, power of 75 to 85 %) is kept when the whole interval of the simulated share lies in it, as in an equivalence
test: chance alone must not keep it. With 4000 runs the interval is ± 0.3 %; with those of --quick ± 1.2 %, which proves less than it asks.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from side_by_side import present
from side_by_side.goals import Figure, at_least, at_most
from side_by_side.pairs import Estimate

from calyx_orch.analysis import regression, significance
from calyx_orch.analysis.significance import Effect

Floats = npt.NDArray[np.float64]

RUNS, RUNS_QUICK = 4000, 300
SERIES, SERIES_QUICK = 300, 40
FLEETS, FLEETS_QUICK = 100, 10
NIGHTS, CHANGED = 100, 60  # of a simulated series; the night from which it is 12 % lower
ROUND_NOISE, GUEST_NOISE = 0.03, 0.05
ROWS = 15  # of a table of `compare`: five workloads by throughput, IOPS and P99
OUTLIERS, OUTLIER = 0.05, 0.30
LEVEL = 0.05
Z = 1.959964


@dataclass(frozen=True)
class Scenario:
    """How noise looks: `shape` of the rounds' noise, `drift` of the slots (spread of a first-order process), blocks a side."""

    shape: str
    drift: float
    blocks: int

    def __str__(self) -> str:
        return f"{self.shape}{', drift' if self.drift else ''}, {self.blocks} blocks"


SCENARIOS = tuple(
    Scenario(shape, drift, blocks)
    for shape in ("normal", "skewed", "outliers")
    for drift in (0.0, 0.05)
    for blocks in (3, 6, 10)
)


class Noise:
    """Draws the logarithms of simulated rates."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)

    def drift(self, slots: int, spread: float, rho: float = 0.5) -> Floats:
        """A first-order process."""
        values = self.draw.normal(size=slots)
        for at in range(1, slots):
            values[at] = rho * values[at - 1] + math.sqrt(1 - rho * rho) * values[at]
        return values * spread

    def rounds(self, count: int, shape: str) -> Floats:
        """What one round has for itself."""
        if shape == "skewed":
            return (self.draw.gamma(2.0, 1.0, count) - 2.0) / math.sqrt(2.0) * ROUND_NOISE
        values = self.draw.normal(0.0, ROUND_NOISE, count)
        return values - OUTLIER * (self.draw.random(count) < OUTLIERS) if shape == "outliers" else values

    def guests(self, rounds: int, guests: int) -> Floats:
        """The mean over guests of what each has for itself in each round."""
        return self.draw.normal(0.0, GUEST_NOISE / math.sqrt(guests), rounds)


Comparison = Callable[[Noise, Scenario, float], Effect]


def engines(noise: Noise, scenario: Scenario, effect: float) -> Effect:
    """One engine against another on a fleet of four guests, played A B B A and paired by place."""
    slots = 4 * scenario.blocks
    logs = noise.drift(slots, scenario.drift) + noise.rounds(slots, scenario.shape) + noise.guests(slots, 4)
    values = np.exp(logs).reshape(-1, 4)
    ours, theirs = values[:, [0, 3]].ravel() * math.exp(effect), values[:, [1, 2]].ravel()
    return significance.paired(list(zip(ours.tolist(), theirs.tolist(), strict=True)))


def vm_hosts(noise: Noise, scenario: Scenario, effect: float) -> Effect:
    """A vm_host of four guests against another in the same rounds: the drift and half of the noise are shared."""
    count = 2 * scenario.blocks
    shared = noise.drift(count, scenario.drift) + noise.rounds(count, scenario.shape)
    sides = [np.exp(shared + noise.rounds(count, scenario.shape) + noise.guests(count, 4)) for _ in range(2)]
    return significance.paired(list(zip((sides[0] * math.exp(effect)).tolist(), sides[1].tolist(), strict=True)))


def runs(noise: Noise, scenario: Scenario, effect: float) -> Effect:
    """A run against another: the calyx rounds of two A B B A runs, nothing in common."""
    slots = 4 * scenario.blocks

    def run() -> Floats:
        logs = noise.drift(slots, scenario.drift) + noise.rounds(slots, scenario.shape) + noise.guests(slots, 4)
        return np.exp(logs).reshape(-1, 4)[:, [0, 3]].ravel()

    return significance.unpaired((run() * math.exp(effect)).tolist(), run().tolist())


COMPARISONS: tuple[tuple[str, Comparison], ...] = (("engines", engines), ("vm_hosts", vm_hosts), ("runs", runs))


def main() -> int:
    """Simulate, print and judge. Returns the exit status."""
    options = argparse.ArgumentParser(description="Are the verdicts right? Simulated fleets whose truth is known.")
    options.add_argument("--quick", action="store_true", help="under a minute, with wider intervals")
    options.add_argument("--json", metavar="FILE", type=Path, help="write all figures")
    options.add_argument("--check", action="store_true", help="exit 1 where a goal is missed")
    options.add_argument("--seed", type=int, default=1, help="seed of all noise")
    given = options.parse_args()
    noise = Noise(given.seed)
    count = RUNS_QUICK if given.quick else RUNS
    figures = [
        figure
        for name, compare in COMPARISONS
        for figure in verdict_figures(name, compare, noise, count, decides=not given.quick)
    ]
    figures += history_figures(noise, SERIES_QUICK if given.quick else SERIES)
    figures += fleet_figures(noise, FLEETS_QUICK if given.quick else FLEETS)
    present.print_figures(figures)
    return present.finish(figures, given, document(figures, given))


def verdict_figures(
    name: str, compare: Comparison, noise: Noise, count: int, *, decides: bool = True
) -> Iterable[Figure]:
    """False differences, coverage and power of one comparison: in each scenario, and over all of them, which is what is judged.

    `decides` False: a share whose interval lies across a bound of its band is open, else it is missed.
    """
    told: list[tuple[int, int, int]] = []
    wrong: list[bool] = []
    for scenario in SCENARIOS:
        same = [compare(noise, scenario, 0.0) for _ in range(count)]
        different = sum(one.p is not None and one.p < LEVEL for one in same)
        covered = sum(one.low is not None and one.high is not None and one.low <= 1.0 <= one.high for one in same)
        stated = math.log1p(float(np.median([one.detectable or 0.0 for one in same])))
        seen = sum((one.p or 1.0) < LEVEL for one in (compare(noise, scenario, stated) for _ in range(count)))
        told.append((different, covered, seen))
        wrong += (any(p < LEVEL for p in corrected) for corrected in tables(same))
        cell = f"{name}: {scenario}"
        yield Figure(cell, "A/A called different", share(different, count))
        yield Figure(cell, "coverage of 95 % intervals", share(covered, count))
        yield Figure(cell, f"power at the stated {100 * math.expm1(stated):.1f} %", share(seen, count))
    whole = count * len(SCENARIOS)
    different, covered, seen = (sum(one[at] for one in told) for at in range(3))
    cell = f"{name}: all"
    yield Figure(cell, "A/A called different", share(different, whole), at_most(0.05, significant=True))
    in_tables = share(sum(wrong), len(wrong))
    yield Figure(cell, f"any of {ROWS} rows, corrected", in_tables, at_most(0.05, significant=True))
    coverage, power = (share(hits, whole, decides=decides) for hits in (covered, seen))
    yield Figure(cell, "coverage, at least", coverage, at_least(0.93))
    yield Figure(cell, "coverage, at most", coverage, at_most(0.97))
    yield Figure(cell, "power, at least", power, at_least(0.75))
    yield Figure(cell, "power, at most", power, at_most(0.85))


def tables(effects: Sequence[Effect]) -> Iterable[list[float]]:
    """The p-values of comparisons with `ROWS` rows each, as a table of `compare` has them: corrected together."""
    for first in range(0, len(effects) - ROWS + 1, ROWS):
        yield significance.holm([1.0 if one.p is None else one.p for one in effects[first : first + ROWS]])


def history_figures(noise: Noise, count: int) -> Iterable[Figure]:
    """False incidents of steady series, and 12 % drops found within seven nights."""
    for rho in (0.0, 0.5):
        false = nights = found = 0
        for _ in range(count):
            steady, dropped = (series(noise, rho) for _ in range(2))
            false += len(incidents(steady))
            nights += NIGHTS - regression.NIGHTS_MIN + 1
            dropped[CHANGED:] += math.log(0.88)
            found += any(one.worse and CHANGED <= one.opened < CHANGED + 7 for one in incidents(dropped))
        cell = f"nights: neighbours correlate by {rho:g}, one in 33 wild"
        yield Figure(cell, "false incidents per 1000", rate(false, nights), at_most(3.0, significant=True))
        yield Figure(cell, "12 % drop found in 7 nights", share(found, count), at_least(0.90, significant=True))


def fleet_figures(noise: Noise, count: int) -> Iterable[Figure]:
    """Five vm_hosts of eight guests over 60 nights, one 12 % slower from night 40: false, named alone, in time."""
    early = named = 0
    for _ in range(count):
        fleet = {f"hv{host}": host_nights(noise) for host in range(5)}
        fleet["hv2"][40:] += math.log(0.88)
        told = regression.incidents({name: np.exp(values).tolist() for name, values in fleet.items()}, "higher")
        early += any(one.opened < 40 for one in told)
        late = [one for one in told if one.opened >= 40]
        named += len(late) == 1 and late[0].series == "hv2" and late[0].opened < 47
    yield Figure(
        "fleets: one vm_host 12 % slower",
        "silent before",
        share(count - early, count),
        at_least(0.95, significant=True),
    )
    yield Figure(
        "fleets: one vm_host 12 % slower",
        "named alone in 7 nights",
        share(named, count),
        at_least(0.90, significant=True),
    )


def series(noise: Noise, rho: float) -> Floats:
    """A series of nights with 3 % of noise, one night in 33 wild."""
    values = noise.drift(NIGHTS, 0.03, rho)
    wild = noise.draw.random(NIGHTS) < 0.03
    return values - wild * noise.draw.uniform(0.1, 0.4, NIGHTS)


def host_nights(noise: Noise) -> Floats:
    """The nights of a vm_host: the mean of eight guests with noise of their own."""
    return (
        noise.drift(60, 0.02)
        + np.mean([noise.drift(60, 0.03) for _ in range(8)], axis=0)
        - (noise.draw.random(60) < 0.03) * 0.2
    )


def incidents(logs: Floats) -> tuple[regression.Incident, ...]:
    """The incidents of one series of logarithms."""
    return regression.incidents({"one": np.exp(logs).tolist()}, "higher")


def share(hits: int, count: int, *, decides: bool = True) -> Estimate:
    """A share with Wilson's 95 % interval (1927); `decides` False: too few tries to say on which side of a bound it lies."""
    p = hits / count
    centre = (p + Z * Z / (2 * count)) / (1 + Z * Z / count)
    reach = Z * math.sqrt(p * (1 - p) / count + Z * Z / (4 * count * count)) / (1 + Z * Z / count)
    return Estimate(p, centre - reach, centre + reach, count if decides else 1)


def rate(hits: int, count: int) -> Estimate:
    """Events per 1000 with an interval for Poisson counts (Byar's approximation)."""
    scale = 1000.0 / count
    low = hits * (1 - 1 / (9 * hits) - Z / (3 * math.sqrt(hits))) ** 3 if hits else 0.0
    high = (hits + 1) * (1 - 1 / (9 * (hits + 1)) + Z / (3 * math.sqrt(hits + 1))) ** 3
    return Estimate(hits * scale, low * scale, high * scale, count)


def document(figures: list[Figure], given: argparse.Namespace) -> dict[str, Any]:
    """All figures and how they were made."""
    return present.document(figures, {"seed": given.seed, "quick": given.quick})


if __name__ == "__main__":
    sys.exit(main())
