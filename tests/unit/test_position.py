"""The effect of the place in a block is found apart from those of engines and blocks, and not where there is none."""

from __future__ import annotations

import math
import random

import pytest

from calyx_orch.analysis.position import Turn, effect
from calyx_orch.plan import engine_orders


def turns(engines: tuple[str, ...], blocks: int, *, place: float, engine: float, noise: float, seed: int) -> list[Turn]:
    """Rounds in the order in which a plan has them; each place is `place` above the one before, the first engine `engine` above."""
    draw = random.Random(seed)
    found = []
    for block, order in enumerate(engine_orders(engines, blocks, random.Random(seed))):
        of_block = draw.gauss(0, 0.2)
        for at, name in enumerate(order):
            log = of_block + place * at + engine * (name == engines[0]) + draw.gauss(0, noise)
            found.append(Turn(block, name, at, 1000 * math.exp(log)))
    return found


def test_without_noise_it_is_found_exactly() -> None:
    """Four places, each 1 % above the one before: the largest is exp(0.03) times the smallest, whatever engines and blocks do."""
    found = effect(turns(("calyx", "fio"), 3, place=0.01, engine=0.3, noise=0.0, seed=1))
    assert found is not None
    assert found.ratio == pytest.approx(math.exp(0.03))
    assert found.p < 1e-6
    three = effect(turns(("calyx", "fio", "aio"), 4, place=0.01, engine=0.3, noise=0.0, seed=1))
    assert three is not None
    assert three.ratio == pytest.approx(math.exp(0.02))


@pytest.mark.parametrize(("engines", "blocks"), [(("calyx", "fio"), 4), (("calyx", "fio", "aio"), 6)])
def test_where_there_is_none_it_is_called_sure_in_five_of_a_hundred(engines: tuple[str, ...], blocks: int) -> None:
    found = [effect(turns(engines, blocks, place=0.0, engine=0.1, noise=0.02, seed=seed)) for seed in range(600)]
    sure = sum(one is not None and one.p < 0.05 for one in found)
    assert 0.025 <= sure / 600 <= 0.08


def test_where_there_is_one_it_is_seen() -> None:
    found = [effect(turns(("calyx", "fio"), 4, place=0.02, engine=0.1, noise=0.01, seed=seed)) for seed in range(100)]
    assert sum(one is not None and one.p < 0.05 for one in found) >= 95


def test_it_is_a_doubt_above_half_of_the_engines_effect() -> None:
    """Places from 1 to exp(0.06): a ratio of exp(0.1) is doubtful, one of exp(0.3) is not."""
    found = effect(turns(("calyx", "fio"), 4, place=0.02, engine=0.1, noise=0.0, seed=1))
    assert found is not None
    assert found.is_doubtful(math.exp(0.1))
    assert found.is_doubtful(math.exp(-0.1))
    assert not found.is_doubtful(math.exp(0.3))
    assert not found.is_doubtful(None)
    noise = effect(turns(("calyx", "fio"), 3, place=0.0, engine=0.0, noise=0.05, seed=2))
    assert noise is not None
    assert not noise.is_doubtful(1.001)  # chance alone is no effect


def test_where_it_cannot_be_told_it_is_not() -> None:
    assert effect([]) is None
    assert effect(turns(("calyx", "fio"), 1, place=0.1, engine=0.1, noise=0.01, seed=1)) is None  # nothing to spare
    assert effect(turns(("calyx",), 5, place=0.1, engine=0.1, noise=0.01, seed=1)) is None  # one place
    same = [Turn(block, name, at, 1.0) for block in range(4) for at, name in enumerate(("calyx", "fio"))]
    assert effect(same) is None  # an engine that always stands at one place
