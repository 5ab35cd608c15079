"""A run held to budgets and to a baseline: exit 1, a JUnit file, and its place in the store."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from calyx_orch.commands.loopback import inventory_yaml
from calyx_orch.store import database
from fleet.whole_runs import TINY, guests_up, run

pytestmark = pytest.mark.fleet


async def test_a_run_is_stored_and_held_to_its_budgets(tmp_path: Path) -> None:
    """A kept budget is exit 0; a broken one exit 1, told by guest and written for CI; both runs are in the store."""
    store = f"sqlite:///{tmp_path / 'store.sqlite'}"
    async with guests_up(2, tmp_path) as fleet:
        text = inventory_yaml(fleet, body=TINY)
        (tmp_path / "first").mkdir()
        (tmp_path / "second").mkdir()
        kept = await run(text, tmp_path / "first", "--store", store, "--budget", "randread.iops>10")
        junit = tmp_path / "limits.xml"
        words = ("--budget", "randread.iops>1_000_000", "--budget", "randread.p99.9<1s", "--junit", str(junit))
        mistyped = await run(text, tmp_path, "--store", store, "--budget", "nothing.p99<1s")
        broken = await run(text, tmp_path / "second", "--store", store, *words)
    assert kept.status == 0, kept.out + kept.err
    assert "limits: 2 of 2 limits kept" in kept.out
    assert broken.status == 1, broken.out + broken.err
    assert broken.out.count("broken: randread.iops>1_000_000: guest") == 2
    assert broken.out.count("unknown: randread.p99.9<1s: guest") == 2
    assert broken.out.rstrip().splitlines()[-1].startswith("2 of 4 limits broken, 2 could not be judged. ")
    assert (mistyped.status, mistyped.folder.exists()) == (2, False)
    assert "no workload nothing by calyx is planned; there are randread" in mistyped.err
    suite = ET.parse(junit).getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("6", "2", "2")
    opened = database.open_store(store)
    assert [row.folder for row in opened.runs()] == [str(broken.folder), str(kept.folder)]
    opened.close()


async def test_a_run_is_held_against_its_baseline_and_says_when_it_cannot_tell(tmp_path: Path) -> None:
    """One repetition is one unit: neither better nor worse can be told, so nothing is called kept, and no gate opens."""
    store = f"sqlite:///{tmp_path / 'store.sqlite'}"
    async with guests_up(1, tmp_path) as fleet:
        text = inventory_yaml(fleet, body=TINY)
        (tmp_path / "first").mkdir()
        first = await run(text, tmp_path / "first", "--store", store)
        second = await run(text, tmp_path, "--store", store, "--against", str(first.folder), "--max-regression", "10%")
        missing = await run(text, tmp_path, "--store", store, "--against", "baseline")
    assert second.status == 1, second.out + second.err
    assert "unknown: at most 10 % worse than" in second.out
    assert "not enough data: 1 of 6 units a side" in second.out
    assert missing.status == 2
    assert "has no baseline: `calyx-orch baseline set RUN` makes a run of it one" in missing.err


async def test_a_store_that_fails_costs_a_note_and_not_the_run(tmp_path: Path) -> None:
    async with guests_up(1, tmp_path) as fleet:
        ended = await run(inventory_yaml(fleet, body=TINY), tmp_path, "--store", "sqlite:////proc/nowhere/x.sqlite")
    assert ended.status == 0, ended.out + ended.err
    assert "note: not in the store: the store sqlite:////proc/nowhere/x.sqlite cannot be opened" in ended.out
    assert len(ended.record.measurements) == 1
