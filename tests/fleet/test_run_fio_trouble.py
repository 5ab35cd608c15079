"""fio that hangs, overruns or starts late on a real guest, by the stand-ins of A-020, A-021 and A-025; what it costs the others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from calyx_orch import inventory as inventories
from calyx_orch.analysis.summary import summarise
from calyx_orch.commands.loopback import LoopbackFleet, LoopbackGuest, inventory_yaml
from calyx_orch.commands.run import RunOptions, run_inventory
from calyx_orch.engines import answers
from calyx_orch.model import Measurement, RunRecord
from calyx_orch.report import facts
from calyx_orch.store import archive
from fleet.disks import need_root
from fleet.whole_runs import guests_up, nothing_left

CASES = Path(__file__).parent.parent / "golden" / "fio-run"
HANGS, OVERRUNS = CASES / "A-020" / "fake_fio_hang.sh", CASES / "A-021" / "fake_fio_overrun.sh"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MS = 1_000_000
RUNTIME_S = 2.0
pytestmark = [pytest.mark.fleet]

BODY = """\
workloads:
  - {name: randread, rw: randread, bs: 4k, iodepth: 4, size: 4m, runtime: 2s, ramp_time: 0, rate_iops: 400}
baselines: [fio-libaio]
repetitions: 1
settle: 0
lost_time_probe: 0
"""


async def with_fio(fleet: LoopbackFleet, name: str, stand_in: Path, **environment: str) -> LoopbackGuest:
    """One more guest, whose fio is `stand_in`."""
    directory = fleet.directory / f"{name}-bin"
    directory.mkdir()
    (directory / "fio").symlink_to(CASES / "held.sh")
    found = {"PATH": f"{directory}:{PATH}", "FAKE_FIO": str(stand_in), **environment}
    return await fleet.add(name, environment=found)


async def run(fleet: LoopbackFleet, body: str, base: Path) -> tuple[int, RunRecord]:
    """The whole run as the command makes it, in this process; its exit code and its record."""
    inventory = inventories.parse(inventory_yaml(fleet, body=body), source="test.yaml", base_dir=str(base), presets={})
    status = await run_inventory(inventory, RunOptions(out=base / "run", quiet=True))
    await nothing_left(fleet)
    return status, archive.read(base / "run")


def of(record: RunRecord, guest: str, engine: str) -> list[Measurement]:
    return [one for one in record.measurements if (one.guest, one.engine) == (guest, engine)]


@pytest.mark.parametrize(
    ("grace_s", "hangs"),
    [
        pytest.param(1.0, False, id="overruns"),
        pytest.param(1.0, True, id="short grace", marks=pytest.mark.slow),
        pytest.param(10.0, True, id="the grace of every run", marks=pytest.mark.slow),
    ],
)
async def test_fio_that_hangs_or_overruns_costs_no_other_guest_anything(
    grace_s: float, hangs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A-020: TERM at the deadline, KILL 5 s later. A-021: 3 % over is accepted; 20 s over is ended by the deadline and marked.

    The others are reported, and the fleet's row is of the common window of those that ran to their end.
    """
    monkeypatch.setattr(answers, "GRACE_NS", round(grace_s * 1e9))
    async with guests_up(1, tmp_path) as fleet:
        if hangs:
            await with_fio(fleet, "hangs", HANGS)
        await with_fio(fleet, "three", OVERRUNS, FIO_OVERRUN_S=str(0.03 * RUNTIME_S))
        await with_fio(fleet, "twenty", OVERRUNS, FIO_OVERRUN_S="20")
        status, record = await run(fleet, BODY, tmp_path)
    said = capsys.readouterr().out
    assert status == 3, said
    assert record.status == "finished"
    troubled = {"hangs", "twenty"} if hangs else {"twenty"}
    for guest in ("guest1", "three", *troubled):
        assert [one.status for one in of(record, guest, "calyx")] == ["ok", "ok"], "calyx is not touched by it"
    assert [one.status for one in of(record, "guest1", "fio-libaio")] == ["ok", "ok"]

    killed = "fio ran past its deadline: ended by KILL: it went on past its deadline and ignored TERM"
    told = {"hangs": killed, "twenty": "fio ran past its deadline: ended by TERM: it went on past its deadline"}
    for guest in troubled:
        assert [(one.status, one.why) for one in of(record, guest, "fio-libaio")] == [("failed", told[guest])] * 2
    table = facts.failures(record)
    assert table is not None
    assert {row[0] for row in table.rows} == troubled
    assert "past its deadline" in said

    of_three = [(one.status, one.why, one.window_ns) for one in of(record, "three", "fio-libaio")]
    assert of_three == [("ok", "", 2060 * MS)] * 2
    (row,) = [row for row in summarise(record).fleet if row.engine == "fio-libaio"]
    assert row.guests == 2, "those that fio ran on to its end"
    assert row.overlap is not None
    assert 0.9 < row.overlap < 0.99, "the common window is the shorter one, and that is flagged"
    _ended_in_bounded_time(record, tmp_path, RUNTIME_S + grace_s + (5 if hangs else 0))


def _ended_in_bounded_time(record: RunRecord, base: Path, longest_s: float) -> None:
    """No round lasts longer than its deadline, the grace between TERM and KILL, and the second that it rests."""
    events = [json.loads(line) for line in (base / "run" / "journal.jsonl").read_text().splitlines()]
    begun = [event["at_ns"] for event in events if event["event"] == "round"]
    ended = [max(event["at_ns"] for event in events if event.get("round") == one.index) for one in record.plan.rounds]
    lasted_s = [(end - begin) / 1e9 for begin, end in zip(begun, ended, strict=True)]
    assert max(lasted_s) < longest_s + 5, lasted_s


@pytest.mark.slow
async def test_nobody_is_started_before_the_slowest_fio_is_ready(tmp_path: Path) -> None:
    """A-025: fio needs 0.1, 2 and 8 s to its gate; all begin at one start line after that, and the spread is told."""
    need_root("fio")
    async with guests_up(1, tmp_path) as fleet:
        real = tmp_path / "real-fio"
        real.write_text("#!/bin/sh\nPATH=" + PATH + '\nsleep ${FIO_START_S:-0}\nexec fio "$@"\n')
        real.chmod(0o755)
        for name, seconds in (("quick", "0.1"), ("slow", "2"), ("slowest", "8")):
            directory = fleet.directory / f"{name}-bin"
            directory.mkdir()
            (directory / "fio").symlink_to(real)
            await fleet.add(name, environment={"PATH": f"{directory}:{PATH}", "FIO_START_S": seconds})
        status, record = await run(fleet, BODY, tmp_path)
    assert status == 0
    events = [json.loads(line) for line in (tmp_path / "run" / "journal.jsonl").read_text().splitlines()]
    for round_ in (one for one in record.plan.rounds if one.engine == "fio-libaio"):
        mine = [event for event in events if event.get("round") == round_.index]
        ready = {event["guest"]: event["at_ns"] for event in mine if event["event"] == "Ready"}
        (loaded_ns,) = [event["at_ns"] for event in mine if event["event"] == "Opened"]
        assert [name for name, _ in sorted(ready.items(), key=lambda one: one[1])][-2:] == ["slow", "slowest"]
        assert (ready["slowest"] - loaded_ns) / 1e9 > 7.9
        assert min(event["at_ns"] for event in mine if event["event"] == "Armed") > ready["slowest"]
        found = [one for one in record.measurements if one.round_index == round_.index]
        assert [one.status for one in found] == ["ok"] * 4
        assert len({one.start_line_ns for one in found}) == 1
        assert min(one.start_line_ns for one in found) > ready["slowest"]
        assert all(one.skew_ns is not None and one.skew_ns < 200 * MS for one in found)
    (row,) = [row for row in summarise(record).fleet if row.engine == "fio-libaio"]
    assert row.skew_max_ns is not None
    assert re.search(r"\d", str(row.skew_bound_ns)), "the start spread has its bound"
