"""Whether it matters at which place in its block a round stands: a disk that tires, or a cache that the round before filled.

In a balanced block such an effect falls on all engines alike, so their ratio stays what it is; but where it is as large as what the engines
differ by, the balance carries the whole result. It is estimated from the rounds of all engines of a guest, by least squares on logarithms:

    log figure = block + engine + place + noise

Source: Montgomery, Design and Analysis of Experiments, chapter 4 (Latin squares and the balance of nuisance factors); the test is the
partial F test of the places.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]

SURE = 0.05  # below it the places differ by more than chance makes them
SHARE_MAX = 0.5  # of the engine's effect


@dataclass(frozen=True)
class Turn:
    """One round: its block, its engine, its place in the block from 0, and a figure above 0."""

    block: int
    engine: str
    place: int
    figure: float


@dataclass(frozen=True)
class Effect:
    """The largest place / the smallest (1.03: they differ by 3 %), and how likely chance alone makes them differ so."""

    ratio: float
    p: float

    def is_doubtful(self, ratio: float | None) -> bool:
        """Whether an engine's ratio is doubtful for it: the places differ surely, and by more than half of what the engine does."""
        return ratio is not None and self.p < SURE and math.log(self.ratio) > SHARE_MAX * abs(math.log(ratio))


def effect(turns: Sequence[Turn]) -> Effect | None:
    """The effect of the place; None where it is mixed with that of engines and blocks, as in one block, or no round is to spare."""
    if any(turn.figure <= 0 for turn in turns):
        return None
    design = _design(tuple((turn.block, turn.engine, turn.place) for turn in turns))
    if design is None:
        return None
    y = np.log([turn.figure for turn in turns])
    found = design.solve_whole @ y
    left = float(((y - design.whole @ found) ** 2).sum())
    without = float(((y - design.nuisance @ (design.solve_nuisance @ y)) ** 2).sum())
    effects = [0.0, *map(float, found[design.nuisance.shape[1] :])]
    spread = max(effects) - min(effects)
    noise = left / design.freedom
    if noise <= 1e-20:  # figures without any noise
        return Effect(math.exp(spread), 0.0 if spread > 1e-9 else 1.0)
    f = max(without - left, 0.0) / design.between / noise
    return Effect(math.exp(spread), float(stats.f.sf(f, design.between, design.freedom)))


@dataclass(frozen=True)
class _Design:
    """What explains the figures: blocks and engines (`nuisance`), and the places as well (`whole`); and what solves each for figures."""

    nuisance: Floats
    whole: Floats
    solve_nuisance: Floats
    solve_whole: Floats
    between: int  # degrees of freedom of the places
    freedom: int  # those that are left for noise


@functools.lru_cache(maxsize=64)
def _design(turns: tuple[tuple[int, str, int], ...]) -> _Design | None:
    """Of rounds (block, engine, place); the same for all guests that were measured in all of them. None: it tells nothing of the places."""
    blocks = sorted({block for block, _, _ in turns})
    engines = sorted({engine for _, engine, _ in turns})
    places = sorted({place for _, _, place in turns})
    if len(places) < 2:
        return None
    nuisance = np.array(
        [[turn[0] == one for one in blocks] + [turn[1] == one for one in engines[1:]] for turn in turns],
        dtype=np.float64,
    )
    ours = np.array([[turn[2] == one for one in places[1:]] for turn in turns], dtype=np.float64)
    whole = np.hstack([nuisance, ours])
    rank, rank_without = int(np.linalg.matrix_rank(whole)), int(np.linalg.matrix_rank(nuisance))
    between, freedom = len(places) - 1, len(turns) - rank
    if rank - rank_without < between or freedom < 1:
        return None
    without, all_ = (np.asarray(np.linalg.pinv(one), dtype=np.float64) for one in (nuisance, whole))
    return _Design(nuisance, whole, without, all_, between, freedom)
