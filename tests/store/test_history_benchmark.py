"""The benchmark of the store measures what it says, on a small fleet and both databases."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("history_benchmark", BENCHMARKS / "history.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(made)
    sys.path[:] = before
    for name, value in {"GUESTS": 8, "PER_HOST": 4, "INTERVALS": 20, "NIGHTS": 14, "REPEATS": 2}.items():
        monkeypatch.setattr(made, name, value)
    return made


def test_every_figure_is_measured_and_a_missed_goal_is_seen(benchmark: Any, url: str) -> None:
    found = {one.name: one for one in benchmark.measured("here", url, 8, argparse.Namespace(seed=1))}
    assert all(one.estimate.value > 0 for one in found.values() if "room" not in one.name)
    judged = {name for name, one in found.items() if one.goal is not None}
    assert judged == {
        "stored in",
        "room, histograms and all",
        "trend of one guest",
        "trend of all vm_hosts, one engine",
        "trend of all vm_hosts, all engines",
    }
    assert {benchmark.present.judge(found[name]) for name in judged} == {"met"}
    slow = benchmark.Figure("x", "y", benchmark.spread([0.4, 0.6, 0.7]), benchmark.at_most(0.5))
    assert benchmark.present.judge(slow) == "missed"


def test_the_large_run_has_the_intervals_that_its_title_says(benchmark: Any) -> None:
    run = benchmark.large_run(1)
    assert sum(len(m.series.read_ios) for m in run.measurements) == 8 * 20
    assert len({m.guest for m in run.measurements}) == 8
    assert len({tuple(m.series.read_ios) for m in run.measurements}) == 8
