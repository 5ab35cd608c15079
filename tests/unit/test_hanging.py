"""While an I/O hangs it is told which: at the guest's row as long as it does, and in a line of its own once."""

from __future__ import annotations

from typing import Any

import pytest

from calyx_orch.report.live import GuestStatus, Silent
from calyx_orch.runner import hanging
from calyx_orch.runner.display import Display
from report_records import run_record

RECORD = run_record(2, per_host=2, blocks=1, runtime_s=2.0)
NAMES = [guest.name for guest in RECORD.plan.inventory.guests]
OLDEST = {"op": "write", "offset": 40960, "age_ns": 3_240_000_000, "job": 1}
SAID = "write of job 1 at offset 40960 has not come back for 3.2 s"


class Heard(Silent):
    """Keeps the notes that were told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Keep it."""
        self.notes.append(text)


def beat(second: int, *hung: dict[str, Any], count: int | None = None) -> dict[str, Any]:
    """What a guest says `second` seconds after its start."""
    told = {"phase": "run", "now_ns": second * 1_000_000_000, "ios": 100 * second, "bytes": 409_600 * second}
    return told | ({"hung_count": len(hung) if count is None else count, "hung": list(hung)} if hung else {})


@pytest.mark.parametrize(
    ("count", "said"), [(1, SAID), (2, f"{SAID}, nor has 1 more"), (7, f"{SAID}, nor have 6 more")]
)
def test_the_oldest_is_named_and_the_others_are_counted(count: int, said: str) -> None:
    assert hanging.of_beat(beat(5, OLDEST, count=count)) == said


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"hung_count": 0, "hung": [OLDEST]},
        {"hung_count": True, "hung": [OLDEST]},
        {"hung_count": 1},
        {"hung_count": 1, "hung": []},
        {"hung_count": 1, "hung": ["read"]},
        {"hung_count": 1, "hung": [OLDEST | {"op": "\x1b[2J"}]},
        {"hung_count": 1, "hung": [OLDEST | {"op": []}]},
        {"hung_count": 1, "hung": [OLDEST | {"offset": -1}]},
        {"hung_count": 1, "hung": [OLDEST | {"age_ns": "long"}]},
    ],
)
def test_what_makes_no_sense_is_passed_over(odd: dict[str, Any]) -> None:
    assert hanging.of_beat(odd) == ""


def test_it_stands_at_its_guest_until_it_comes_back_and_is_told_once() -> None:
    live = Heard()
    display = Display(live, RECORD.plan, NAMES)
    display.round(next(r.number for r in RECORD.plan.rounds if r.engine == "calyx"), RECORD.plan.rounds, alive=2)
    display.state(NAMES[0], "running")

    def shown(message: dict[str, Any]) -> GuestStatus:
        display.beat(NAMES[0], message)
        return display._progress().guests[0]

    shown(beat(1))
    assert shown(beat(2, OLDEST)).detail == SAID
    later = shown(beat(3, OLDEST | {"age_ns": 4_200_000_000}, count=2))
    assert later.detail == SAID.replace("3.2 s", "4.2 s, nor has 1 more")
    assert later.ios_per_s == 100.0
    assert live.notes == [f"{NAMES[0]}: {SAID}"]
    assert shown(beat(4)).detail == ""
    assert live.notes[1:] == [f"{NAMES[0]}: all I/O comes back again"]
    shown(beat(5, OLDEST))
    assert len(live.notes) == 3
