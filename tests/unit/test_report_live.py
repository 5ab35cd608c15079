"""The live display: plain lines are few, the table is drawn at most twice a second, untrusted text does no harm."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from calyx_orch.report import live
from calyx_orch.report.live import GuestStatus, PlainLive, Progress, Silent, TableLive, live_for


class Clock:
    """A clock that is set by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def progress(count: int = 3, *, lost: int = -1, detail: str = "") -> Progress:
    guests = tuple(
        GuestStatus(f"vm{i:03d}", "lost" if i == lost else "running", detail, 1000.0 + i, 4096_000.0 + i)
        for i in range(count)
    )
    return Progress("running", 3, 12, "randread-4k by calyx", 65.0, 250.0, guests)


def terminal(width: int = 100, height: int = 40) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def plain() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=60)


def test_a_pipe_gets_plain_lines_and_a_terminal_a_table() -> None:
    assert isinstance(live_for(plain()), PlainLive)
    assert isinstance(live_for(terminal()), TableLive)
    assert isinstance(live_for(terminal(), quiet=True), Silent)


def test_plain_updates_are_ten_seconds_apart_and_phases_are_not_held_back() -> None:
    console, clock = plain(), Clock()
    display = PlainLive(console, clock)
    for tenth in range(0, 251):
        clock.now_s = tenth / 10
        display.update(progress())
    display.phase("cleaning")
    display.phase("done")
    lines = written(console).splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("round 3 of 12: randread-4k by calyx, 1 min 05 s gone")
    assert "3 guests: 3 running; 3,003 IOPS" in lines[0]
    assert lines[2:] == ["cleaning", "done"]


def test_plain_lines_are_never_wrapped_or_coloured() -> None:
    console = plain()
    PlainLive(console).note("x" * 200 + " [bold]not markup[/bold]")
    assert written(console) == "x" * 200 + " [bold]not markup[/bold]\n"


def test_the_table_is_drawn_at_most_twice_a_second() -> None:
    console, clock = terminal(), Clock()
    display = TableLive(console, clock)
    for hundredth in range(300):
        clock.now_s = hundredth / 100
        display.update(progress())
    display.close()
    assert written(console).count("round 3 of 12") <= 7  # 6 in three seconds, and the one that close() may repeat


def test_control_characters_of_a_guest_do_not_reach_the_terminal() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202e"
    for console, display in ((c := plain(), PlainLive(c)), (t := terminal(), TableLive(t))):
        display.note(evil)
        assert "\x1b]0" not in written(console)
        assert "\\x1b]0;owned\\x07\\x1b[2J\\u202e" in written(console)
    console = plain()
    console.print(live.table_of(progress(detail=evil), 40))
    assert "\x1b" not in written(console)


def test_the_lost_and_the_slowest_are_shown_when_guests_are_many() -> None:
    shown = live.worst_first(progress(100, lost=99).guests, 30)
    assert [status.guest for status in shown[:3]] == ["vm099", "vm000", "vm001"]
    assert len(shown) == 30
    console = plain()
    console.print(live.table_of(progress(100, lost=99), 50))
    assert "and 70 guests more" in written(console)


@pytest.mark.parametrize("height", [1, 5, 24, 200])
def test_the_table_fits_the_screen(height: int) -> None:
    console = plain()
    console.print(live.table_of(progress(100), height))
    assert len(written(console).splitlines()) <= max(height, 6) + 2
    assert "100 guests" in written(console)


def test_nothing_is_shown_after_close_and_close_may_come_twice() -> None:
    for console, display in ((c := plain(), PlainLive(c)), (t := terminal(), TableLive(t))):
        display.close()
        display.close()
        display.note("late")
        display.update(progress())
        assert "late" not in written(console)
        assert "round" not in written(console)


def test_a_run_without_rounds_or_rates_yet_reads_well() -> None:
    early = Progress("connecting", 0, 0, "", 2.4, None, (GuestStatus("vm1", "connecting"),))
    assert (live.headline(early), live.timing(early)) == ("connecting", "2 s gone")
    assert live.fleet_now(early.guests) == "1 guest: 1 connecting"


def test_the_headline_says_round_and_label_once() -> None:
    told = live.headline(replace(progress(), label="block 1, rr4k on ext4, calyx, together"))
    assert told == "round 3 of 12: block 1, rr4k on ext4, calyx, together"
    assert live.timing(progress()) == "1 min 05 s gone, about 4 min 10 s left"


def test_throughput_alone_is_told_when_no_ios_are_known() -> None:
    assert live.fleet_now((GuestStatus("vm1", "running", "", None, 5e6),)) == "1 guest: 1 running; 5.00 MB/s"


def test_who_is_waited_for_is_named_where_they_are_few() -> None:
    """A-050: also in the lines of a log, which has no table."""
    ready = tuple(GuestStatus(f"vm{number}", "ready") for number in range(6))
    slow = (GuestStatus("vm6", "laying out", "40 %"), GuestStatus("vm7", "lost"))
    assert live.fleet_now((*ready, *slow)) == "8 guests: 6 ready, 1 laying out (vm6), 1 lost (vm7)"
    many = tuple(GuestStatus(f"vm{number}", "laying out") for number in range(10, 14))
    assert live.fleet_now((*ready, *many)) == "10 guests: 6 ready, 4 laying out"
