"""When schedules are due, and what is decided of it: clocks are handed in, and nothing is waited for."""

from __future__ import annotations

import datetime
import itertools
import json
import zoneinfo
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calyx_orch.errors import UsageError
from calyx_orch.schedule import times
from calyx_orch.schedule.deciding import (
    Firing,
    Schedule,
    Settings,
    Verdict,
    decide,
    is_wanted_again,
    may_still_start,
)

CASES = json.loads((Path(__file__).parent.parent / "golden" / "scheduler" / "A-103" / "dst.json").read_text())
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")
HOUR_S, DAY_S = 3600.0, 86400.0


def at(text: str, zone: str = "Europe/Berlin") -> float:
    """Seconds since 1970 of a local time; with an offset of its own where it has one."""
    found = datetime.datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=zoneinfo.ZoneInfo(zone))).timestamp()


def schedule(cron: str = "30 2 * * *", zone: str = "Europe/Berlin", *, since_s: float, **settings: Any) -> Schedule:
    return Schedule("nightly", Settings("/i.yaml", cron, zone, "/runs", **settings), since_s, since_s)


def fired(one: Schedule, moments: list[tuple[float, float]]) -> list[Verdict]:
    """What a daemon that looks at these moments (clock, step since the last) decides, one after the other."""
    told: list[Verdict] = []
    for now_s, stepped_s in moments:
        known = frozenset(verdict.due_s for verdict in told)
        decision = decide(one, now_s=now_s, stepped_s=stepped_s, fired=known)
        one = replace(one, considered_s=decision.considered_s)
        told += decision.verdicts
    assert len({verdict.due_s for verdict in told}) == len(told)
    return told


def running(told: list[Verdict]) -> list[Verdict]:
    return [verdict for verdict in told if verdict.state == "running"]


# --- the clock-change nights -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["note"])
def test_a_night_on_which_clocks_change_has_one_run(case: dict[str, Any]) -> None:
    """A-103: 02:30 does not exist in spring and exists twice in autumn."""
    when = times.Times(CASES["cron"], CASES["tz"])
    found = when.between(at(case["now"]), at(case["runs_until"]))
    assert len(found) == case["expected_count"]
    days = [datetime.datetime.fromtimestamp(one, zoneinfo.ZoneInfo(CASES["tz"])).date() for one in found]
    assert len(set(days)) == len(days)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("cron", ["30 2 * * *", "15 2 * * *", "45 1 * * *", "0 0 * * *"])
def test_each_night_of_three_years_is_due_once(zone: str, cron: str) -> None:
    """Whichever minute the clock jumps over or shows twice: Lord Howe moves by half an hour."""
    begin, end = at("2026-01-01T00:00", zone), at("2029-01-01T00:00", zone)
    found = list(itertools.takewhile(lambda one: one < end, times.Times(cron, zone).after(begin - 1)))
    days = [datetime.datetime.fromtimestamp(one, zoneinfo.ZoneInfo(zone)).date() for one in found]
    assert len(days) == len(set(days)) == 3 * 365 + 1
    assert found == sorted(found)


def test_a_time_that_does_not_exist_is_the_first_that_does_and_the_first_of_two() -> None:
    when = times.Times("30 2 * * *", "Europe/Berlin")
    assert when.local(when.next(at("2026-03-29T00:00")) or 0) == "2026-03-29 03:00 CEST"
    assert when.local(when.next(at("2026-10-25T00:00")) or 0) == "2026-10-25 02:30 CEST"


def test_a_look_from_the_second_of_two_equal_hours_finds_the_first() -> None:
    """At 02:10 for the second time the run of 02:30 was due forty minutes ago."""
    when = times.Times("30 2 * * *", "Europe/Berlin")
    assert len(when.between(at("2026-10-25T02:20+02:00"), at("2026-10-25T02:10+01:00"))) == 1
    assert when.between(at("2026-10-25T02:40+02:00"), at("2026-10-25T03:40+01:00")) == ()


def test_the_gap_of_a_lifetime_is_looked_at_in_a_moment() -> None:
    """Only the newest are looked at, however many there were."""
    found = times.Times("* * * * *", "Europe/Berlin").between(0, at("2026-06-01T12:00"))
    assert times.LISTED <= len(found) <= 60
    assert found[-1] == at("2026-06-01T12:00")


@pytest.mark.parametrize(
    ("cron", "count"), [("30 2 * * *", 365), ("0 0 1 * *", 12), ("* * * * *", 525_600), ("* * * * * *", 31_536_000)]
)
def test_how_often_a_year_is_told_also_of_what_is_due_each_second(cron: str, count: int) -> None:
    assert times.Times(cron, "Europe/Berlin").in_a_year(at("2026-06-01T12:00")) == pytest.approx(count, rel=0.01)


def test_what_is_written_wrongly_is_told_with_an_example() -> None:
    for cron, zone, says in (
        ("30 2 * *", "UTC", "write minute, hour"),
        ("61 2 * * *", "UTC", "Bad minute"),
        ("30 2 * * * *", "UTC", "has 6 fields: write five, minute, hour, day, month and weekday, without seconds"),
        ("30 2 30 2 *", "UTC", "."),
        ("30 2 * * *", "Mars/Base", "no such time zone"),
        ("30 2 * * *", "../../etc/passwd", "no such time zone"),
    ):
        with pytest.raises(UsageError, match=says):
            times.checked(cron, zone)


@pytest.mark.parametrize(
    ("tz", "zone"), [("Australia/Lord_Howe", "Australia/Lord_Howe"), (":Europe/Berlin", "Europe/Berlin")]
)
def test_the_time_zone_of_a_machine_is_the_one_that_its_programs_see(
    tz: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", tz)
    assert times.zone_of_machine() == zone
    monkeypatch.setenv("TZ", "no/such/zone")
    assert zoneinfo.ZoneInfo(times.zone_of_machine())


# --- what is decided -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ZONES)
def test_a_year_of_nights_fires_each_once(zone: str) -> None:
    """A daemon that looks every five minutes of a simulated year."""
    begin, end = at("2026-01-01T00:00", zone), at("2027-01-01T00:00", zone)
    one = schedule(zone=zone, since_s=begin)
    due = set(itertools.takewhile(lambda when: when < end, one.settings.times.after(begin)))
    moments = sorted({*due, *(begin + 300.0 * step for step in range(int((end - begin) / 300)))})
    told = []
    for now_s in moments:
        if now_s in due or now_s % 3600 == 0:
            decision = decide(one, now_s=now_s)
            one = replace(one, considered_s=decision.considered_s)
            told += decision.verdicts
    days = [datetime.datetime.fromtimestamp(verdict.due_s, zoneinfo.ZoneInfo(zone)).date() for verdict in told]
    assert len(days) == len(set(days)) == 365
    assert {verdict.state for verdict in told} == {"running"}


@pytest.mark.parametrize(("catch_up", "states"), [("none", ["missed"] * 3), ("once", ["missed", "missed", "running"])])
def test_three_missed_nights_are_caught_up_once_at_most(catch_up: str, states: list[str]) -> None:
    """A-104: the other two are recorded as missed."""
    begin = at("2026-06-01T12:00")
    told = fired(schedule(since_s=begin, catch_up=catch_up), [(begin + 3 * DAY_S, 0.0), (begin + 3 * DAY_S + 5, 0.0)])
    assert [verdict.state for verdict in told] == states
    assert [verdict.kind for verdict in running(told)] == (["catch-up"] if catch_up == "once" else [])


def test_a_night_that_is_on_time_needs_no_other_caught_up() -> None:
    begin = at("2026-06-01T12:00")
    told = fired(schedule(since_s=begin, catch_up="once"), [(at("2026-06-05T02:30:20"), 0.0)])
    assert [(one.state, one.kind) for one in told] == [("missed", "planned")] * 3 + [("running", "planned")]


def test_a_paused_schedule_misses_nothing() -> None:
    begin = at("2026-06-01T12:00")
    one = replace(schedule(since_s=begin, catch_up="once"), paused=True)
    decision = decide(one, now_s=begin + 3 * DAY_S)
    assert decision.verdicts == ()
    assert (
        decide(replace(one, paused=False, considered_s=decision.considered_s), now_s=begin + 3 * DAY_S + 60).verdicts
        == ()
    )


def test_a_step_forward_over_the_due_time_fires_it_once() -> None:
    """A-106: 02:10 is 03:10 at once; the night is not lost, and not run twice."""
    begin, now = at("2026-06-01T12:00"), at("2026-06-02T02:10")
    told = fired(schedule(since_s=begin), [(now, 0.0), (now + HOUR_S, HOUR_S - 5), (now + HOUR_S + 5, 0.0)])
    assert [verdict.state for verdict in told] == ["running"]


def test_a_sleep_over_the_due_time_is_no_step() -> None:
    begin, now = at("2026-06-01T12:00"), at("2026-06-02T02:10")
    assert [one.state for one in fired(schedule(since_s=begin), [(now, 0.0), (now + HOUR_S, 0.0)])] == ["missed"]


def test_a_step_back_over_the_due_time_runs_the_night_once() -> None:
    """A-106: what was fired at 02:30 is not fired again when it becomes 02:30 again."""
    begin = at("2026-06-01T12:00")
    moments = [at("2026-06-02T02:30"), *(at("2026-06-02T01:30:05") + 60.0 * step for step in range(120))]
    told = fired(schedule(since_s=begin), [(now_s, 0.0) for now_s in moments])
    assert [verdict.state for verdict in told] == ["running"]


def test_a_machine_that_boots_in_1970_does_nothing_until_its_clock_is_set() -> None:
    """A-106: neither a hang nor a burst; the nights while it was off are missed, once each."""
    added = at("2026-06-01T12:00")
    now = at("2026-06-10T09:00")
    told = fired(schedule(since_s=added), [(5.0, 0.0), (10.0, 0.0), (now, now - 15.0), (now + 5, 0.0)])
    assert [verdict.state for verdict in told] == ["missed"] * 9
    one = schedule(since_s=added)
    assert decide(one, now_s=5.0).considered_s == one.considered_s, "what was decided is not forgotten"


def test_a_clock_that_was_years_ahead_does_not_silence_a_schedule() -> None:
    begin = at("2026-06-01T12:00")
    told = fired(
        schedule(since_s=begin),
        [(at("2036-06-01T12:00"), 10 * 365 * DAY_S), (at("2026-06-01T13:00"), 0.0), (at("2026-06-02T02:30:01"), 0.0)],
    )
    assert [(one.state, one.due_s) for one in told if one.due_s < at("2026-07-01T00:00")] == [
        ("running", at("2026-06-02T02:30"))
    ]


def test_a_machine_resumed_from_a_snapshot_has_missed_its_nights() -> None:
    """A-106: the clock went on by days and no time passed: more than a step, so nothing is fired late."""
    begin, now = at("2026-06-01T12:00"), at("2026-06-05T12:00")
    assert {one.state for one in fired(schedule(since_s=begin), [(begin, 0.0), (now, now - begin)])} == {"missed"}


@pytest.mark.parametrize(("overlap", "state"), [("skip", "skipped"), ("queue", "queued")])
def test_a_run_in_the_way_is_named(overlap: str, state: str) -> None:
    """A-105: never two at once, and never in silence."""
    one = schedule("* * * * *", since_s=at("2026-06-01T12:00:30"), overlap=overlap)
    now_s = at("2026-06-01T12:01:01")
    (verdict,) = decide(one, now_s=now_s, in_the_way="the run of schedule other").verdicts
    assert verdict.state == state
    assert "the run of schedule other" in verdict.reason
    (second,) = decide(one, now_s=now_s, in_the_way="x", is_waiting=True).verdicts
    assert second.state == "skipped"


def test_what_waited_does_not_start_hours_late() -> None:
    begin = at("2026-06-01T12:00")
    one, waiting = schedule(since_s=begin), Firing("nightly", int(begin), "queued", started_s=begin)
    assert may_still_start(one, waiting, begin + 3500)
    assert not may_still_start(one, waiting, begin + 3700)
    assert may_still_start(schedule(since_s=begin, max_duration_s=7200.0), waiting, begin + 3700)


def test_retries_are_counted() -> None:
    begin = at("2026-06-01T12:00")
    one = schedule(since_s=begin, retry=1)
    first = Firing("nightly", int(begin), "failed", started_s=begin)
    assert is_wanted_again(one, first, begin + 60)
    assert not is_wanted_again(one, replace(first, attempt=2), begin + 60)
    assert not is_wanted_again(schedule(since_s=begin), first, begin + 60)
