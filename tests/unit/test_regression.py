"""Did it get worse: steps, incidents and suspects, on the published failure cases and on series whose truth is known."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calyx_orch.analysis import history, regression
from calyx_orch.analysis import nights as of_nights

GOLDEN = Path(__file__).parent.parent / "golden" / "statistics"


def case(name: str, file: str) -> Any:
    return json.loads((GOLDEN / name / file).read_text())


def nights(count: int, *, rho: float = 0.0, spread: float = 0.03, seed: int = 0) -> np.ndarray:
    """Logarithms of a steady series, each night like the one before by `rho`."""
    draw = np.random.default_rng(seed)
    values = np.empty(count)
    values[0] = draw.normal()
    for at in range(1, count):
        values[at] = rho * values[at - 1] + np.sqrt(1 - rho**2) * draw.normal()
    return values * spread


def rates(logs: np.ndarray) -> list[float]:
    return [float(value) for value in 20_000 * np.exp(logs)]


def test_noise_is_no_regression() -> None:
    """A-108: of 200 series of 40 nights of pure noise at most 10 alarm, and none in its first nights."""
    alarmed = 0
    for values in case("A-108", "noise.json"):
        found = regression.incidents({"x": values}, "higher")
        alarmed += bool(found)
        assert all(one.opened + 1 >= regression.NIGHTS_MIN for one in found)
    assert alarmed <= case("A-108", "expected.json")["max_false_alarm_series"]


def test_the_spread_inside_a_night_is_not_the_spread_between_nights() -> None:
    """A-109: each night is one figure, however steady it was in itself; with one night alone nothing is said."""
    series = [float(np.mean(night)) for night in case("A-109", "within_between.json")]
    assert bool(regression.incidents({"x": series}, "higher")) is case("A-109", "expected.json")["alarm"]
    assert not regression.suspects({"x": series}, "higher")
    assert regression.step(series[:1]) is None


@pytest.mark.parametrize(("file", "verdict"), [("single_bad", "cleared"), ("confirm", "regression")])
def test_a_bad_night_is_measured_again_before_it_is_an_alarm(file: str, verdict: str) -> None:
    """A-110: one night at -15 % is a suspect; the rerun clears it, or confirms it."""
    told = case("A-110", f"{file}.json")
    values = [*told["history"], told["tonight"]]
    assert list(regression.suspects({"x": values}, "higher")) == ["x"]
    assert not regression.incidents({"x": values}, "higher")
    assert ("regression" if regression.confirms(values, told["rerun"]) else "cleared") == verdict
    assert case("A-110", "expected.json")[file] == verdict


def test_three_hundred_metrics_of_noise_give_no_alarm() -> None:
    """A-111: three of them exceed three sigma tonight; looked at together none is a suspect."""
    series = {one["metric"]: [*one["history"], one["tonight"]] for one in case("A-111", "many.json")}
    assert len(regression.suspects(series, "higher") | regression.suspects(series, "lower")) <= 1
    assert len(regression.incidents(series, "higher")) <= 1


def test_a_lasting_drop_opens_one_incident_and_recovery_closes_it() -> None:
    logs = nights(120, seed=4)
    logs[60:90] += np.log(0.88)
    (found,) = regression.incidents({"hv1": rates(logs)}, "higher")
    assert 58 <= found.since <= 61
    assert 60 <= found.opened < 67
    assert found.worse
    assert found.change == pytest.approx(-0.12, abs=0.03)
    assert found.recovered is not None
    assert 90 <= found.recovered < 97


def test_an_incident_stays_open_when_the_window_has_slid_past_the_change() -> None:
    logs = nights(150, seed=5)
    logs[50:] += np.log(0.85)
    (found,) = regression.incidents({"hv1": rates(logs)}, "higher")
    assert found.recovered is None


@pytest.mark.parametrize(("better", "worse"), [("higher", False), ("lower", True)])
def test_which_way_is_worse_depends_on_the_metric(better: Any, worse: bool) -> None:
    logs = nights(70, seed=6)
    logs[50:] += np.log(1.2)
    (found,) = regression.incidents({"x": rates(logs)}, better)
    assert found.worse is worse


def test_a_wild_night_is_no_step() -> None:
    logs = nights(60, seed=7)
    logs[50] += np.log(0.5)
    assert not regression.incidents({"x": rates(logs)}, "higher")


def test_a_step_smaller_than_five_per_cent_is_not_told() -> None:
    logs = nights(70, spread=0.003, seed=8)
    logs[50:] += np.log(0.97)
    assert not regression.incidents({"x": rates(logs)}, "higher")
    found = regression.step(rates(logs[:55]))
    assert found is not None
    assert -0.05 < found.change < -0.02


@pytest.mark.parametrize("values", [[1.0] * 11, [], [0.0] * 40, [1.0] * 30 + [-1.0]])
def test_nothing_is_said_of_few_nights_or_of_figures_that_are_none(values: Sequence[float]) -> None:
    assert regression.step(values) is None
    assert not regression.incidents({"x": values}, "higher")
    assert not regression.suspects({"x": values}, "higher")


def test_a_night_on_which_nothing_was_done_is_the_worst_and_silences_nobody() -> None:
    """0 has no logarithm; a storage that hung all night is a suspect, and an incident when it stays so."""
    steady = rates(nights(50, seed=11))
    hung = [*steady, 0.0]
    assert list(regression.suspects({"x": hung}, "higher")) == ["x"]
    assert regression.confirms(hung, 0.0)
    assert not regression.confirms(hung, steady[0])
    (found,) = regression.incidents({"x": [*steady, *[0.0] * 8]}, "higher")
    assert found.worse
    assert found.change < -0.9
    dropped = [*steady[:20], 0.0, *steady[20:40], *[0.8 * value for value in steady[40:]]]
    assert [one.opened for one in regression.incidents({"x": dropped}, "higher")] != []


def test_a_series_that_is_measured_no_more_is_no_suspect() -> None:
    """The last night of a guest that was bad when it went away is not last night; another fleet's last night is its own."""
    steady = rates(nights(40, seed=12))

    def told(name: str, runs: Sequence[str], last: float) -> list[history.Night]:
        values = [*steady[: len(runs) - 1], last * steady[len(runs) - 1]]
        return [history.Night(run, run, name, "io", "k", value) for run, value in zip(runs, values, strict=True)]

    ours, theirs = [f"a{day:02d}" for day in range(40)], [f"b{day:02d}" for day in range(30)]
    series = [*told("here", ours, 0.7), *told("gone", ours[:30], 0.7), *told("elsewhere", theirs, 0.7)]
    found = history.history("iops", sorted(series, key=lambda night: (night.run_id[1:], night.run_id)))
    assert set(found.suspects) == {"here io", "elsewhere io"}


def test_constant_nights_are_no_step_and_a_change_of_them_is() -> None:
    assert not regression.incidents({"x": [5.0] * 60}, "higher")
    assert len(regression.incidents({"x": [5.0] * 50 + [4.0] * 10}, "higher")) == 1


def test_a_series_that_began_later_is_judged_by_its_own_nights() -> None:
    old, new = nights(60, seed=9), nights(30, seed=10)
    new[20:] += np.log(0.7)
    (found,) = regression.incidents({"old": rates(old), "new": rates(new)}, "higher")
    assert found.series == "new"
    assert 20 <= found.opened < 30


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_false_incidents_are_rare_also_when_nights_are_alike(rho: float) -> None:
    """At most 3 in 1000 series-nights; here 60 series of 100 nights."""
    found = sum(
        len(regression.incidents({"x": rates(nights(100, rho=rho, seed=seed))}, "higher")) for seed in range(60)
    )
    assert found <= 0.003 * 60 * 100


@pytest.mark.parametrize(("before", "rank"), [(10, 8), (15, 14), (20, 20)])
def test_the_interval_of_a_change_has_the_ranks_of_the_published_table(
    before: int, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mann and Whitney's critical values for 5 nights against so many, two-sided at 5 %; widened for a likeness of a half."""
    monkeypatch.setattr(regression, "step", lambda values: None)
    logs = np.random.default_rng(before).normal(size=before + 5)
    apart = np.sort((logs[before:, None] - logs[None, :before]).ravel())
    middle = float(np.median(apart))
    low, high = (middle + math.sqrt(3) * (apart[at] - middle) for at in (rank, -1 - rank))
    told = of_nights.interval(np.exp(logs).tolist(), before)
    assert told == pytest.approx((math.expm1(middle), math.expm1(low), math.expm1(high)))
