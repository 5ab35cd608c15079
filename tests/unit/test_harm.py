"""`impact.window` and `impact.abort_if`: a round that harms ends, the reason is kept, and what harms is not run again."""

from __future__ import annotations

import datetime
import itertools
import json
import zoneinfo
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calyx_orch import inventory, workloads
from calyx_orch.errors import InventoryErrors
from calyx_orch.model import AbortIf, Baselines, Impact, LoadMode, LostTime, Window
from calyx_orch.runner import harm
from calyx_orch.store import archive
from calyx_orch.transport.simulated import Script
from replay import check as check_replay
from unit.test_runner import READ, plan_for, run

NIGHT = Window(60, 300, "Europe/Berlin")
OVER_MIDNIGHT = Window(22 * 60, 5 * 60, "Europe/Berlin")
MS, SECOND = 1_000_000, 1_000_000_000


def at(text: str) -> float:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")).timestamp()


@pytest.mark.parametrize(
    ("window", "now", "for_s", "is_open"),
    [
        (NIGHT, "2026-06-01T00:59:59", 1, False),
        (NIGHT, "2026-06-01T01:00", 60, True),
        (NIGHT, "2026-06-01T04:58", 119, True),
        (NIGHT, "2026-06-01T04:58", 180, False),
        (NIGHT, "2026-06-01T05:00", 1, False),
        (OVER_MIDNIGHT, "2026-06-01T23:59:30", 60, True),
        (OVER_MIDNIGHT, "2026-06-01T04:59:30", 20, True),
        (OVER_MIDNIGHT, "2026-06-01T12:00", 1, False),
    ],
)
def test_a_round_begins_only_when_it_is_over_before_the_window_closes(
    window: Window, now: str, for_s: float, is_open: bool
) -> None:
    assert harm.is_open(window, at(now), for_s) is is_open


def text_of(impact: str) -> str:
    return f"guests: {{vm1: {{targets: {{d: /d}}}}}}\nworkloads: [{{rw: read, size: 1g}}]\nimpact: {impact}\n"


def parse(impact: str) -> Impact:
    return inventory.parse(text_of(impact), source="t", base_dir="", presets=workloads.read_presets()).impact


def test_an_inventory_says_when_and_what_harms() -> None:
    found = parse(
        "{window: '22:00-05:00 Europe/Berlin', abort_if: {lost_time_above: 5%, steal_above: 10%, latency_above: 50ms}}"
    )
    assert found.window == OVER_MIDNIGHT
    assert found.abort_if == AbortIf(0.05, 0.10, 50 * MS)


@pytest.mark.parametrize(
    ("impact", "says"),
    [
        ("{window: '25:00-05:00'}", "write begin and end, such as 01:00-05:00 Europe/Berlin"),
        ("{window: '05:00-05:00'}", "it begins when it ends"),
        ("{window: '01:00-05:00 Mars/Base'}", "is no time zone"),
        ("{abort_if: {latency_above: 50}}", "write ns, us, ms or s"),
        ("{abort_if: {lost_time: 5%}}", "lost_time"),
    ],
)
def test_what_is_written_wrongly_is_told(impact: str, says: str) -> None:
    with pytest.raises(InventoryErrors, match=says):
        parse(impact)


def with_impact(**impact: Any) -> Any:
    return plan_for(
        "good1",
        "good2",
        impact=Impact(**impact),
        baselines=Baselines(engines=(), auto=False),
        repetitions=2,
        workloads=(READ, replace(READ, name="second")),
    )


def old_io(message: dict[str, Any]) -> list[bytes]:
    """A guest whose I/O grows old in the run of the first workload."""
    if message.get("type") == "beat" and message.get("phase") == "run":
        message = {**message, "oldest_ns": 80 * MS}
    return [json.dumps(message).encode() + b"\n"]


def test_an_io_that_grows_too_old_stops_the_round_and_its_workload(tmp_path: Path) -> None:
    ended, folder = run(
        with_impact(abort_if=AbortIf(latency_above_ns=50 * MS)), tmp_path, scripts={"good2": Script(bend=old_io)}
    )
    said = "by impact.abort_if.latency_above (50 ms): guest good2 had an I/O in flight for 80 ms"
    assert any(said in note and "is not run again in this run" in note for note in ended.notes)
    record = archive.read(folder.path)
    assert any(said in note for note in record.notes)
    assert {one.workload for one in record.measurements} == {"randread", "second"}
    rounds = {one.round_index for one in record.measurements if one.engine == "calyx"}
    assert len(rounds) == 2, "the workload of a stopped round was run again"
    assert [entry for entry in archive.journal(folder.path) if entry["event"] == "Harmed"]
    assert check_replay(archive.journal(folder.path)) > 0


def test_a_guest_that_lost_its_cpu_before_keeps_the_round_from_beginning(tmp_path: Path) -> None:
    """Its neighbours are busy: nothing is measured, and nothing is made worse; the next round looks again."""
    ended, folder = run(with_impact(abort_if=AbortIf(lost_time_above=0.0005)), tmp_path)
    stopped = [note for note in ended.notes if "lost 0.1 % of its CPU before the round" in note]
    assert len(stopped) == len(with_impact().rounds)
    assert not any("not run again" in note for note in stopped)
    found = archive.read(folder.path).measurements
    assert {one.status for one in found} == {"failed"}
    assert "abort_if" in found[0].why
    assert check_replay(archive.journal(folder.path)) > 0


def stolen_once(share: float) -> Script:
    """A guest whose hypervisor took so much of its CPUs in its first round, and nothing later."""
    rounds = itertools.count()

    def bend(message: dict[str, Any]) -> list[bytes]:
        if message["type"] == "usage":
            capacity_ns = message["cpus"] * (message["window_end_ns"] - message["window_start_ns"])
            steal_ns = int(share * capacity_ns) if next(rounds) == 0 else 0
            stat = {**message["stat"], "steal_ns": steal_ns, "idle_ns": message["stat"]["idle_ns"] - steal_ns}
            message = {**message, "stat": stat, "steal_known": True}
        return [json.dumps(message).encode()]

    return Script(bend=bend)


def test_stolen_time_ends_the_workload_and_not_the_others(tmp_path: Path) -> None:
    plan = with_impact(abort_if=AbortIf(steal_above=0.5))
    ended, folder = run(plan, tmp_path, scripts={"good2": stolen_once(0.6)})
    stopped = [note for note in ended.notes if "stolen" in note]
    assert len(stopped) == 1
    assert "by impact.abort_if.steal_above (50.0 %): guest good2 had 60.0 % of its CPU stolen" in stopped[0]
    ended_one = plan.rounds[0].workload.name
    rounds = {(one.workload, one.round_index) for one in archive.read(folder.path).measurements}
    assert Counter(workload for workload, _ in rounds) == {
        name: 1 if name == ended_one else 2 for name in ("randread", "second")
    }


def stolen_in(share: float) -> Script:
    """A guest that beats on while so much of its CPUs is taken."""

    def bend(message: dict[str, Any]) -> list[bytes]:
        if message["type"] != "beat" or message["phase"] != "run":
            return [json.dumps(message).encode()]
        steal_ns = int(share * message["cpus"] * SECOND)
        return [
            json.dumps({**message, "now_ns": message["now_ns"] + at * SECOND, "steal_ns": at * steal_ns}).encode()
            for at in range(8)
        ]

    return Script(bend=bend)


@pytest.mark.parametrize(("share", "stops"), [(0.6, True), (0.4, False)])
def test_time_that_is_stolen_in_a_round_stops_it(tmp_path: Path, share: float, stops: bool) -> None:
    plan = with_impact(abort_if=AbortIf(steal_above=0.5))
    ended, folder = run(plan, tmp_path, scripts={"good2": stolen_in(share)})
    said = "was stopped by impact.abort_if.steal_above (50.0 %): guest good2 had 60.0 % of its CPU stolen; "
    notes = [note for note in ended.notes if "stolen" in note]
    assert [said in note and "is not run again in this run" in note for note in notes] == [True] * 2 * stops
    rounds = {(one.workload, one.round_index) for one in archive.read(folder.path).measurements}
    assert len(rounds) == (2 if stops else 4)
    assert check_replay(archive.journal(folder.path)) > 0


def test_stolen_time_is_judged_over_five_seconds_of_late() -> None:
    """A burst that is over in them, and one that is long past, are no harm of now."""
    watch = harm.Watch(AbortIf(steal_above=0.1))

    def beat(at_s: float, stolen_s: float, guest: str = "a") -> str:
        return watch.beat(guest, {"now_ns": int(at_s * SECOND), "steal_ns": int(stolen_s * SECOND), "cpus": 2})

    assert [beat(at, min(at, 1) * 0.9) for at in range(12)] == [""] * 12  # 0.9 s of ten CPU seconds: 9 %
    assert beat(0, 0, "b") == beat(1, 2, "b") == ""  # too short to say
    assert [bool(beat(at, 0.9 + (at - 11) * 0.25)) for at in range(12, 17)] == [False] * 4 + [True]  # 12.5 % at last
    for odd in (
        {},
        {"now_ns": True, "steal_ns": 1, "cpus": 1},
        {"now_ns": 99 * SECOND, "steal_ns": 99 * SECOND, "cpus": 0},
    ):
        assert watch.beat("a", odd) == ""


def test_time_is_stolen_below_the_limit_or_in_no_known_amount(tmp_path: Path) -> None:
    """A guest that is told of no steal time lost none that would end anything, whatever the limit."""
    ended, folder = run(with_impact(abort_if=AbortIf(steal_above=0.5)), tmp_path, scripts={"good2": stolen_once(0.4)})
    assert not [note for note in ended.notes if "stolen" in note]
    assert len({one.round_index for one in archive.read(folder.path).measurements}) == 4
    (tmp_path / "strict").mkdir()
    ended, folder = run(with_impact(abort_if=AbortIf(steal_above=0.0)), tmp_path / "strict")
    measured = archive.read(folder.path).measurements
    assert {one.cpu.steal_ns for one in measured if one.cpu is not None} == {None}
    assert not [note for note in ended.notes if "stolen" in note]


def test_outside_of_its_window_a_run_ends_and_can_be_resumed(tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    begin = (now.hour * 60 + now.minute + 120) % 1440
    ended, folder = run(with_impact(window=Window(begin, (begin + 60) % 1440, "UTC")), tmp_path)
    assert ended.status == "interrupted"
    assert any("is closed, or closes before the round is over" in note for note in ended.notes)
    assert archive.read(folder.path).measurements == ()


def test_no_reason_without_a_limit() -> None:
    assert harm.before(None, {"a": LostTime(100, 100, 1, 1)}) == ""
    assert harm.before(AbortIf(), {"a": LostTime(100, 100, 1, 1)}) == ""
    assert harm.before(AbortIf(lost_time_above=0.5), {"a": None, "b": LostTime(0, 0, 0, 0)}) == ""
    assert harm.Watch(None).beat("a", {"oldest_ns": 10**12}) == ""
    assert harm.Watch(AbortIf(latency_above_ns=1)).beat("a", {"oldest_ns": True}) == ""
    assert harm.Watch(AbortIf(latency_above_ns=1)).beat("a", {"oldest_ns": None}) == ""
    assert harm.Watch(AbortIf(latency_above_ns=5)).beat("a", {"oldest_ns": 5}) == ""


@pytest.mark.parametrize(("by_domain", "starts_s"), [(False, [0.0, 1.0, 2.0, 3.0]), (True, [0.0, 1.0, 0.0, 1.0])])
def test_a_staggered_start_goes_from_guest_to_guest_or_from_domain_to_domain(
    tmp_path: Path, by_domain: bool, starts_s: list[float]
) -> None:
    """Guests of one vm_host start together, and all end together."""
    names = ("good1", "good2", "good3", "good4")  # on hv0, hv1, hv0, hv1
    impact = Impact(stagger_by_domain=by_domain)
    alone = Baselines(engines=(), auto=False)
    plan = plan_for(*names, impact=impact, baselines=alone, load=(LoadMode.STAGGERED,))
    _, folder = run(plan, tmp_path)
    found = {one.guest: one for one in archive.read(folder.path).measurements}
    lines = [found[name].start_line_ns for name in names]
    starts = [round((line - min(lines)) / 1e9, 3) for line in lines]
    assert starts == starts_s if by_domain else sorted(starts) == starts_s
    ends = [found[name].window_end_ns for name in names]
    assert max(ends) - min(ends) < 0.2e9
