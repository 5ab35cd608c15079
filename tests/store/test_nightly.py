"""What comes after a night: suspects measured again, incidents told once, guests lost twice, retention, what the thresholds are worth."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calyx_orch.analysis import false_alarms, history, nights, regression
from calyx_orch.errors import UsageError
from calyx_orch.model import LoadMode, RunRecord
from calyx_orch.schedule import nightly, retention, rows
from calyx_orch.schedule.deciding import Firing, Schedule, Settings
from calyx_orch.store import database, indexing
from calyx_orch.store.schedules import EMPTY, Schedules
from report_records import renamed, run_record
from store.test_verbs import slower

BEGIN = datetime.datetime(2026, 11, 1, 2, 30, tzinfo=datetime.UTC)
DAY_S = 86400.0
NOT_AGAIN = "not in this test"


class Nights:
    """A schedule's nights, one after the other; `hv2` is slower by a factor of the night's own."""

    def __init__(self, store: database.Store, folder: Path, **settings: Any) -> None:
        self.store, self.folder, self.count = store, folder, 0
        self.again: list[tuple[str, ...]] = []
        made = Settings("/fleet.yaml", "30 2 * * *", "UTC", str(folder), **settings)
        self.schedules = Schedules(store)
        self.schedules.add("nightly", rows.settings_row(made), BEGIN.timestamp())
        self.schedule = Schedule("nightly", made, BEGIN.timestamp(), BEGIN.timestamp())

    def record(self, factor: float, *, seed: int | None = None) -> RunRecord:
        at = BEGIN + datetime.timedelta(days=self.count)
        made = run_record(
            2,
            per_host=1,
            blocks=1,
            runtime_s=2.0,
            loads=(LoadMode.TOGETHER,),
            seed=self.count if seed is None else seed,
        )
        folder = self.folder / f"night-{self.count:02d}"
        made = replace(made, run_id=folder.name, folder=str(folder), started_at=at.isoformat())
        return slower(made, "hv2", factor)

    def night(
        self, factor: float = 1.0, *, measured_again: Callable[[], RunRecord] | None = None,
        change: Callable[[RunRecord], RunRecord] = lambda record: record,
    ) -> nightly.Night:  # fmt: skip
        record = change(self.record(factor))
        indexing.put(self.store, record)
        due_s = int((BEGIN + datetime.timedelta(days=self.count)).timestamp())
        with self.schedules.deciding() as deciding:
            deciding.put("nightly", due_s, **{**EMPTY, "state": "running", "run_id": record.run_id})

        def again(workloads: tuple[str, ...]) -> RunRecord | str:
            self.again.append(workloads)
            return NOT_AGAIN if measured_again is None else measured_again()

        told = nightly.after(
            self.store, self.schedule, Firing("nightly", due_s, "running"), record, measure_again=again,
            now_s=float(due_s) + 3600.0, trials=2,
        )  # fmt: skip
        self.schedules.update("nightly", due_s, state="finished")
        self.count += 1
        return told


@pytest.fixture
def kept(tmp_path: Path) -> Nights:
    return Nights(database.open_store(f"sqlite:///{tmp_path / 'store.sqlite'}"), tmp_path)


def test_a_suspect_is_measured_again_and_confirmed_or_cleared(kept: Nights) -> None:
    """A-110: one bad night is no alarm when the second measurement says otherwise, and is one when it agrees."""
    for _ in range(16):
        assert kept.night().news == ()
    cleared = kept.night(0.6, measured_again=lambda: kept.record(1.0, seed=99))
    assert kept.again == [("randread-4k", "seqwrite-1m")]
    assert not any("hv2" in line for line in cleared.news)
    assert any(line.startswith("measured again and cleared: hv2 randread-4k") for line in cleared.notes)
    assert "suspects cleared by measuring again" in cleared.verdict.lower()
    kept.night()
    confirmed = kept.night(0.6, measured_again=lambda: kept.record(0.6, seed=99))
    assert any(
        line.startswith("worse tonight, measured twice: hv2 randread-4k data together calyx") for line in confirmed.news
    )
    assert not any("hv1" in line for line in confirmed.news)
    assert "% less to" in confirmed.findings[0]


def test_a_regression_is_told_when_it_opens_and_when_it_recovers_and_not_in_between(kept: Nights) -> None:
    told = [kept.night(0.7 if 18 <= at < 26 else 1.0) for at in range(34)]
    opened = [
        at for at, night in enumerate(told) if any(line.startswith("regression opened: hv2") for line in night.news)
    ]
    recovered = [at for at, night in enumerate(told) if any(line.startswith("recovered: hv2") for line in night.news)]
    assert len(opened) == len(recovered) == 1
    assert 18 <= opened[0] <= 23
    assert 26 <= recovered[0] <= 31
    assert "regression" in told[opened[0] + 1].verdict
    assert told[opened[0] + 1].findings[0].startswith("hv2 ")
    assert not any("hv1" in line for night in told for line in night.news)
    rows = kept.schedules.incidents("nightly")
    assert {row["recovered_run"] is None for row in rows} == {False}
    assert not any("hv1" in row["series"] for row in rows)
    assert [night.verdict for night in told[:12]] == [
        f"Too few nights to judge yet ({at + 1} of 12); 2 of 2 guests measured." for at in range(11)
    ] + ["Nothing changed; 2 of 2 guests measured."]
    assert "Nothing changed" in told[-1].verdict


def test_what_is_not_measured_again_says_why(kept: Nights) -> None:
    for _ in range(16):
        kept.night()
    night = kept.night(0.6)
    assert f"suspects were not measured again: {NOT_AGAIN}" in night.notes
    assert any("suspect tonight" in line for line in night.findings)
    assert night.news == ()


def lost(record: RunRecord) -> RunRecord:
    first, *rest = record.outcomes
    gone = replace(first, state="lost", step="connect", reason="no route to host")
    return replace(record, outcomes=(gone, *rest))


def test_a_guest_that_is_lost_twice_in_a_row_is_told(kept: Nights) -> None:
    kept.night()
    assert kept.night(change=lost).news == ()
    again = kept.night(change=lost)
    assert again.news == ("guest hv1-vm01 was lost twice in a row: connect: no route to host",)
    still = kept.night(change=lost)
    assert still.news == (), "it was told"
    assert "guest hv1-vm01 is lost still: connect: no route to host" in still.notes
    assert kept.night().news == ()


def test_a_guest_that_is_called_like_a_vm_host_confirms_nothing_of_that(kept: Nights) -> None:
    """Figures of vm_hosts are held against vm_hosts."""

    def alike(record: RunRecord) -> RunRecord:
        """The guest of hv1 is called hv2, where it is not: it is fast while hv2 is slow."""
        return renamed(record, "hv1-vm01", "hv2")

    for _ in range(16):
        kept.night(change=alike)
    told = kept.night(0.6, change=alike, measured_again=lambda: alike(kept.record(0.6, seed=99)))
    assert any(line.startswith("worse tonight, measured twice: hv2 randread-4k") for line in told.news)
    assert not any("cleared" in line for line in told.notes)


def test_another_schedules_nights_are_not_looked_at(kept: Nights) -> None:
    for _ in range(16):
        kept.night()
    for number in range(8):
        stray = replace(kept.record(0.5), run_id=f"stray-{number}")
        indexing.put(kept.store, stray)
    assert kept.night().news == ()


def test_an_incident_that_was_told_as_recovered_is_not_told_again(kept: Nights) -> None:
    """Also where the history, played again, still shows it as open."""
    found = history.History(
        "throughput_bytes_per_s",
        (history.Track("hv2", "w", tuple(history.Point(f"n{at}", "2026-11-01", 1.0) for at in range(20))),),
        (regression.Incident("hv2 w", 12, 14, -0.2, 0.001, True),),
        {},
    )
    told = nights.Told(found.metric, "hv2 w", "n12", "n14", "2026-11-01", -0.2, True, recovered_run="n18")
    assert nights.tonight(found, [told], run_id="n19").opened == ()
    assert len(nights.tonight(found, [], run_id="n19").opened) == 1


# --- retention -------------------------------------------------------------------------------------------------------


def folder_of(base: Path, name: str) -> retention.Night:
    path = base / name
    (path / "raw" / "0001").mkdir(parents=True)
    (path / "raw" / "0001" / "messages.json").write_text("{}")
    (path / "run.json").write_text(json.dumps({"run_id": name}))
    return retention.Night(name, path, 0.0)


def test_raw_answers_go_first_then_the_night_and_what_is_spared_stays(tmp_path: Path) -> None:
    keep = retention.parse("90d raw, 2y summaries")
    old, older, newer = (
        replace(folder_of(tmp_path, name), started_s=-age * DAY_S) for name, age in (("a", 100), ("b", 800), ("c", 10))
    )
    raw, whole = retention.expired([old, older, newer], keep, 0.0, frozenset())
    assert ([one.run_id for one in raw], [one.run_id for one in whole]) == (["a"], ["b"])
    assert retention.expired([old, older], keep, 0.0, frozenset({"a", "b"})) == ([], [])
    assert retention.remove_raw(old)
    assert not retention.remove_raw(old)
    assert (old.folder / "run.json").is_file()
    assert list((old.folder / "raw").iterdir()) == []
    log, other = tmp_path / "b.log", tmp_path / "c.log"
    log.touch()
    other.touch()
    assert retention.remove_whole(older)
    assert not older.folder.exists()
    assert (log.exists(), other.exists()) == (False, True)


def test_nothing_is_removed_that_is_not_the_run(tmp_path: Path) -> None:
    """A folder that another run lies in by now, a link, and what has no record."""
    other = folder_of(tmp_path, "other")
    assert not retention.remove_whole(replace(other, run_id="mine"))
    assert not retention.remove_raw(replace(other, run_id="mine"))
    (tmp_path / "link").symlink_to(other.folder)
    assert not retention.remove_whole(replace(other, folder=tmp_path / "link"))
    assert not retention.remove_whole(retention.Night("x", tmp_path, 0.0))
    assert (other.folder / "raw" / "0001" / "messages.json").is_file()


@pytest.mark.parametrize("text", ["90 days raw", "90d", "90d raw, 80d raw", "2y raw, 90d summaries", "-1d raw"])
def test_how_long_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="--keep"):
        retention.parse(text)


def test_a_schedule_forgets_its_old_nights(tmp_path: Path) -> None:
    kept = Nights(database.open_store(f"sqlite:///{tmp_path / 'store.sqlite'}"), tmp_path, keep="2d raw, 4d summaries")
    for number in range(7):
        folder_of(tmp_path, f"night-{number:02d}")
        last = kept.night()
    assert any("raw answers of 1 night, 1 night whole" in note for note in last.notes)
    assert sorted(row.run_id for row in kept.store.runs()) == [f"night-{number:02d}" for number in range(3, 7)]
    left = {path.name: any((path / "raw").iterdir()) for path in tmp_path.glob("night-*")}
    assert left == {f"night-{number:02d}": number >= 5 for number in range(3, 7)}


def test_nights_that_failed_go_with_their_time_and_those_of_open_incidents_stay(tmp_path: Path) -> None:
    """Also of an incident whose series is measured no more: nobody said that it recovered."""
    kept = Nights(database.open_store(f"sqlite:///{tmp_path / 'store.sqlite'}"), tmp_path, keep="4d summaries")
    for number in range(6):
        folder_of(tmp_path, f"night-{number:02d}")
        record = kept.record(1.0)
        indexing.put(kept.store, record)
        due_s = int((BEGIN + datetime.timedelta(days=number)).timestamp())
        with kept.schedules.deciding() as deciding:
            state = ("failed", "interrupted", "finished")[number % 3]
            deciding.put("nightly", due_s, state=state, run_id=record.run_id, folder=record.folder)
        kept.count += 1
    gone = {
        "metric": "p99_ns", "series": "hv9 gone", "since_run": "night-01", "opened_run": "night-02", "since_at": "2026-11-02",
        "change": 0.3, "worse": 1, "recovered_run": None,
    }  # fmt: skip
    kept.schedules.keep_incidents("nightly", [gone], [], [])
    kept.store.set_baseline("/fleet.yaml", "night-03")
    now_s = (BEGIN + datetime.timedelta(days=20)).timestamp()
    notes = nightly.expire(kept.store, kept.schedule, "/fleet.yaml", now_s, tonight="night-05")
    assert notes == ["removed by --keep '4d summaries': raw answers of 0 nights, 2 nights whole"]
    assert sorted(path.name for path in tmp_path.glob("night-*")) == [f"night-{number:02d}" for number in (1, 2, 3, 5)]
    assert sorted(row.run_id for row in kept.store.runs()) == [f"night-{number:02d}" for number in (1, 2, 3, 5)]


# --- intervals and false alarms --------------------------------------------------------------------------------------


def rates(seed: int, count: int, *, rho: float = 0.0, spread: float = 0.03) -> np.ndarray:
    draw = np.random.default_rng(seed)
    values = draw.normal(size=count)
    for at in range(1, count):
        values[at] = rho * values[at - 1] + np.sqrt(1 - rho**2) * values[at]
    return np.exp(spread * values)


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_the_interval_of_a_change_covers_it(rho: float) -> None:
    """Of 95 % intervals at least 88 in 100 do, of six nights after the change; the estimate is not off."""
    covered, estimates = 0, []
    for seed in range(150):
        values = rates(seed, 46, rho=rho)
        values[40:] *= 0.88
        told = nights.interval(values.tolist(), 40)
        assert told is not None
        estimates.append(told[0])
        covered += told[1] <= -0.12 <= told[2]
    assert covered >= 0.88 * 150
    assert np.mean(estimates) == pytest.approx(-0.12, abs=0.01)
    assert nights.interval(rates(1, 46).tolist(), 44) is None


def test_a_fleet_that_is_noisier_sees_less_and_few_nights_tell_nothing() -> None:
    calm = {f"hv{n}": rates(n, 60, spread=0.01).tolist() for n in range(3)}
    wild = {f"hv{n}": rates(n, 60, spread=0.10).tolist() for n in range(3)}
    of_calm, of_wild = (false_alarms.calibrate(series, "higher", trials=12) for series in (calm, wild))
    assert of_calm.smallest is not None
    assert of_calm.smallest <= 0.08
    assert of_wild.smallest is None or of_wild.smallest >= 0.15
    assert of_calm.low <= of_calm.false_per_1000 <= of_calm.high
    few = false_alarms.calibrate({"hv1": [1.0] * 15}, "higher")
    assert (
        few.sentence
        == "How often this fleet alarms falsely is not known yet: 20 nights of a series tell, and the longest has 15."
    )


def test_an_incident_in_the_nights_is_not_taken_for_noise() -> None:
    values = rates(5, 80, spread=0.01)
    values[50:65] *= 0.7
    found = false_alarms.calibrate({"hv1": values.tolist()}, "higher", trials=12)
    assert found.smallest is not None
    assert found.smallest <= 0.08


# --- the page of a schedule --------------------------------------------------------------------------------------------


def test_the_page_shows_coverage_trends_with_incidents_and_the_last_night(kept: Nights) -> None:
    for at in range(24):
        kept.night(0.7 if at >= 16 else 1.0)
    missed_s = int((BEGIN + datetime.timedelta(days=40)).timestamp())
    with kept.schedules.deciding() as deciding:
        deciding.put("nightly", missed_s, state="missed", reason="no daemon was at work then")
    page = nightly.draw(kept.store, kept.schedule, out=kept.folder / "page.html").read_text()
    for text in (
        "Coverage of nights",
        "Night by night, with incidents",
        "finished: 24",
        "missed: 1",
        "2026-12-11 02:30",
        "no daemon was at work then",
        "Last night",
        "worse, open",
        "hv2 randread-4k data together calyx",
        "1 missed",
    ):
        assert text in page, text
    board = kept.folder / "mine.yaml"
    board.write_text("figures:\n  - figure: coverage\n")
    other = nightly.draw(kept.store, kept.schedule, out=kept.folder / "other.html", dashboard=board).read_text()
    assert "Night by night, with incidents" not in other


def test_a_night_that_is_judged_stands_as_finished_on_the_page_that_its_own_run_draws(kept: Nights) -> None:
    """Its daemon says so only when the run has ended."""
    kept.night()
    (row,) = kept.schedules.firings("nightly")
    kept.schedules.update("nightly", row["due_s"], state="running", verdict="Nothing changed.")
    page = nightly.draw(kept.store, kept.schedule, out=kept.folder / "page.html").read_text()
    assert "1 night: 1 finished" in page
    assert "Nothing changed." in page
