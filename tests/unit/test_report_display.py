"""What the live view is told: one word for a state, rates from the first beat on, and rounds counted from 1 as in the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calyx_orch.model import LoadMode
from calyx_orch.report.live import Progress, Silent
from calyx_orch.runner import display as displays
from calyx_orch.runner.display import Display
from report_records import run_record

RECORD = run_record(2, per_host=2, blocks=1, runtime_s=2.0)
NAMES = [guest.name for guest in RECORD.plan.inventory.guests]


class Heard(Silent):
    """Keeps the phases that were told."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.notes: list[str] = []

    def phase(self, text: str) -> None:
        """Keep it."""
        self.phases.append(text)

    def note(self, text: str) -> None:
        """Keep it."""
        self.notes.append(text)


class Clock:
    """A clock that is set by hand."""

    now_s = 100.0

    def monotonic(self) -> float:
        """The time now."""
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    mine = Clock()
    monkeypatch.setattr(displays, "time", mine)
    return mine


def running(engine: str) -> Display:
    display = Display(Heard(), RECORD.plan, NAMES)
    number = next(r.number for r in RECORD.plan.rounds if r.engine == engine)
    display.round(number, RECORD.plan.rounds, alive=2)
    display.state(NAMES[0], "running")
    return display


def now(display: Display) -> Progress:
    return display._progress()


def test_the_first_beat_gives_a_rate_and_the_state_keeps_its_word(clock: Clock) -> None:
    display = running("calyx")
    clock.now_s += 1.0
    display.beat(NAMES[0], {"phase": "run", "now_ns": 7_000_000_000, "ios": 500, "bytes": 500 * 4096})
    first = now(display).guests[0]
    assert (first.state, first.ios_per_s, first.bytes_per_s) == ("running", 500.0, 500 * 4096.0)
    display.beat(NAMES[0], {"phase": "run", "now_ns": 8_000_000_000, "ios": 1500, "bytes": 1500 * 4096})
    assert now(display).guests[0].ios_per_s == 1000.0


def test_of_fio_the_bytes_are_shown_or_that_there_are_no_figures(clock: Clock) -> None:
    display = running("fio-io_uring")
    assert (now(display).guests[0].state, now(display).guests[0].detail) == ("running", "no live figures from fio")
    clock.now_s += 1.0
    display.beat(NAMES[0], {"phase": "run", "now_ns": 7_000_000_000, "ios": None, "bytes": 0, "oldest_ns": None})
    assert now(display).guests[0].detail == "no live figures from fio"
    display.beat(
        NAMES[0], {"phase": "run", "now_ns": 8_000_000_000, "ios": None, "bytes": 6_000_000, "oldest_ns": None}
    )
    told = now(display).guests[0]
    assert (told.state, told.ios_per_s, told.bytes_per_s, told.detail) == ("running", None, 6_000_000.0, "")


@pytest.mark.parametrize(
    "odd", [{}, {"phase": "run"}, {"phase": "run", "now_ns": "x", "bytes": []}, {"phase": "prepare"}]
)
def test_an_odd_beat_is_passed_over(odd: dict[str, object], clock: Clock) -> None:
    display = running("calyx")
    before = now(display).guests
    display.beat(NAMES[0], odd)
    assert now(display).guests == before


def test_a_round_keeps_its_number_of_the_plan_when_others_were_left_out() -> None:
    live = Heard()
    display = Display(live, RECORD.plan, NAMES)
    ours = tuple(r for r in RECORD.plan.rounds if r.engine == "calyx")
    display.round(2, ours, alive=2)
    assert live.phases[-1].startswith(f"round {ours[1].number} of {len(RECORD.plan.rounds)}: block 1, ")
    assert (now(display).round_number, now(display).phase) == (ours[1].number, "")


def test_after_the_rounds_the_phase_is_told_and_no_time_is_made_up() -> None:
    display = running("calyx")
    display.phase("cleaning 2 guests")
    told = now(display)
    assert (told.phase, told.rounds, told.label, told.remaining_s) == ("cleaning 2 guests", 0, "", None)


def test_a_round_of_a_search_beyond_the_plan_counts_on() -> None:
    live = Heard()
    display = Display(live, RECORD.plan, NAMES)
    count = len(RECORD.plan.rounds)
    display.round(1, (replace(RECORD.plan.rounds[0], index=count),), alive=2)
    assert live.phases[-1].startswith(f"round {count + 1} of a search: ")


def test_a_guest_that_runs_and_says_nothing_is_silent_and_not_lost(clock: Clock) -> None:
    """It is shown so with the time, told once, and told once more when it speaks again; who has reported is not silent."""
    display = running("calyx")
    assert isinstance(display.live, Heard)
    clock.now_s += 2.9
    assert now(display).guests[0].state == "running"
    clock.now_s += 4.1
    assert (now(display).guests[0].state, now(display).guests[0].detail) == (
        "silent",
        "since 7 s, waited for until its deadline",
    )
    assert now(display).guests[0].ios_per_s is None
    display.beat(NAMES[0], {"now_ns": 8_000_000_000, "ios": 800, "bytes": 800 * 4096, "phase": "run"})
    assert now(display).guests[0].state == "running"
    assert display.live.notes == [
        f"{NAMES[0]}: silent; it is waited for until its job's deadline has passed", f"{NAMES[0]}: speaks again after 7 s",
    ]  # fmt: skip
    display.state(NAMES[0], "reported")
    clock.now_s += 60.0
    assert now(display).guests[0].state == "reported"


def test_a_guest_that_is_armed_and_never_starts_is_silent_unless_its_turn_comes_later(clock: Clock) -> None:
    display = running("calyx")
    display.state(NAMES[0], "armed")
    clock.now_s += 4.9
    assert now(display).guests[0].state == "armed"
    clock.now_s += 0.2
    assert now(display).guests[0].state == "silent"
    staggered = tuple(replace(r, load=LoadMode.STAGGERED) for r in RECORD.plan.rounds)
    display.round(1, staggered, alive=2)
    display.state(NAMES[0], "armed")
    clock.now_s += 60.0
    assert now(display).guests[0].state == "armed"
