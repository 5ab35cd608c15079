"""Whether it matters at which place in its block a round stands: a disk that tires, or a cache that the round before filled.

In a balanced block such an effect falls on all engines alike, so their ratio stays what it is; but where it is as large as what the engines
differ by, the balance carries the whole result. It is estimated from the rounds of all engines of a guest, by least squares on logarithms:

    log figure = block + engine + place + noise

Source: Montgomery, Design and Analysis of Experiments, chapter 4 (Latin squares and the balance of nuisance factors); the test is the
partial F test of the places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

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
    places = sorted({turn.place for turn in turns})
    if len(places) < 2 or any(turn.figure <= 0 for turn in turns):
        return None
    y = np.log([turn.figure for turn in turns])
    nuisance = np.column_stack([
        *((np.array([turn.block == block for turn in turns], dtype=float)) for block in sorted({t.block for t in turns})),
        *((np.array([turn.engine == name for turn in turns], dtype=float)) for name in sorted({t.engine for t in turns})[1:]),
    ])  # fmt: skip
    ours = np.column_stack([[float(turn.place == place) for turn in turns] for place in places[1:]])
    whole = np.column_stack([nuisance, ours])
    rank, rank_without = np.linalg.matrix_rank(whole), np.linalg.matrix_rank(nuisance)
    freedom = len(turns) - int(rank)
    if rank - rank_without < len(places) - 1 or freedom < 1:
        return None
    found, *_ = np.linalg.lstsq(whole, y, rcond=None)
    left = float(((y - whole @ found) ** 2).sum())
    without, *_ = np.linalg.lstsq(nuisance, y, rcond=None)
    gained = max(float(((y - nuisance @ without) ** 2).sum()) - left, 0.0)
    effects = [0.0, *map(float, found[nuisance.shape[1] :])]
    spread = max(effects) - min(effects)
    noise = left / freedom
    if noise <= 1e-20:  # figures without any noise
        return Effect(math.exp(spread), 0.0 if spread > 1e-9 else 1.0)
    f = gained / (len(places) - 1) / noise
    return Effect(math.exp(spread), float(stats.f.sf(f, len(places) - 1, freedom)))
