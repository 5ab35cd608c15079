"""Whether guests are ready: each fact by its check, on the fake fleet, and what a terminal shows of it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from calyx_orch import plan as planning
from calyx_orch.model import (
    Baselines,
    Check,
    Connection,
    Guest,
    Inventory,
    Readiness,
    Rw,
    Target,
    TransportKind,
    Verdict,
    Workload,
)
from calyx_orch.report import readiness
from calyx_orch.runner import check
from calyx_orch.transport import Pool
from calyx_orch.transport.simulated import Script, Simulation

READ = Workload("randread", Rw.RANDREAD, iodepth=8, size_bytes=64 << 20, runtime_s=2.0, ramp_s=0.5)


def looked(
    *addresses: str, scripts: Mapping[str, Script] | None = None, **changes: object
) -> tuple[tuple[Readiness, ...], tuple[str, ...]]:
    """Check simulated guests; the address says how each behaves (see transport/simulated.py)."""
    guests = tuple(
        Guest(address, Connection(address, transport=TransportKind.SIMULATED), (Target("data", "/data"),))
        for address in addresses
    )
    inventory = replace(Inventory("test", guests, (READ,), repetitions=1, settle_s=0.0), **changes)  # type: ignore[arg-type]

    async def go() -> tuple[tuple[Readiness, ...], tuple[str, ...]]:
        async with Pool(simulation=Simulation(scripts=scripts or {})) as pool:
            return await check.check(planning.make(inventory, seed=5), pool=pool, phase=lambda _: None)

    return asyncio.run(go())


def said(kind: str, change: Callable[[dict[str, Any]], None]) -> Script:
    """A guest whose messages of one kind are changed."""

    def bend(message: dict[str, Any]) -> list[bytes]:
        if message["type"] == kind:
            change(message)
        return [json.dumps(message).encode()]

    return Script(bend=bend)


def one(script: Script, **changes: object) -> Readiness:
    (found,), _ = looked("odd", scripts={"odd": script}, **changes)
    return found


def why(found: Readiness, which: Check) -> str:
    return " | ".join(finding.why for finding in found.findings if finding.check is which)


def test_a_good_guest_is_good_in_every_respect() -> None:
    (found,), notes = looked("good1")
    assert set(found.verdicts.values()) == {Verdict.GOOD}
    assert found.findings == ()
    assert found.facts[Check.FIO] == "/usr/bin/fio 3.33"
    assert notes == ()


def test_what_was_not_reached_is_not_asked_and_costs_nobody_else_anything() -> None:
    (bad, good), _ = looked("unreachable1", "good1")
    assert bad.verdicts[Check.REACH] is Verdict.BAD
    assert {bad.verdicts[one] for one in list(Check)[1:]} == {Verdict.NOT_ASKED}
    assert good.is_ready


def test_the_wrong_architecture_is_found_by_the_agent() -> None:
    found = one(Script(arch="vax"))
    assert (found.verdicts[Check.LOGIN], found.verdicts[Check.AGENT]) == (Verdict.GOOD, Verdict.BAD)
    assert "no agent for vax" in why(found, Check.AGENT)
    assert found.verdicts[Check.IO_URING] is Verdict.NOT_ASKED


def test_without_io_uring_no_job_is_tried_unless_all_are_psync() -> None:
    def forbid(facts: dict[str, Any]) -> None:
        facts["io_uring"] = {"ok": False, "why": "EPERM", "setups": []}
        facts["io_uring_disabled"] = 2

    found = one(said("facts", forbid))
    assert found.verdicts[Check.IO_URING] is Verdict.BAD
    assert "set kernel.io_uring_disabled to 0" in why(found, Check.IO_URING)
    assert found.verdicts[Check.SETUP] is found.verdicts[Check.MEMORY_LOCK] is Verdict.NOT_ASKED
    psync = replace(READ, setup="psync", iodepth=1)
    assert one(said("facts", forbid), workloads=(psync,), allow_psync=True, baselines=Baselines(())).is_ready


@pytest.mark.parametrize(("disabled", "by_group"), [(1, True), (2, False)])
def test_where_io_uring_is_for_some_the_way_among_them_is_told(disabled: int, by_group: bool) -> None:
    """A-027: 1 leaves it to root and to a group, 2 to nobody."""

    def forbid(facts: dict[str, Any]) -> None:
        facts.update(io_uring={"ok": False, "why": "EPERM", "setups": []}, io_uring_disabled=disabled)

    assert ("kernel.io_uring_group" in why(one(said("facts", forbid)), Check.IO_URING)) is by_group


def test_a_named_set_up_that_the_kernel_has_not() -> None:
    found = one(
        said("facts", lambda facts: facts["io_uring"].update(setups=["plain"])),
        workloads=(replace(READ, setup="defer"),),
    )
    assert found.verdicts[Check.SETUP] is Verdict.BAD
    assert "it has plain" in why(found, Check.SETUP)


def test_what_a_guest_says_of_a_trial_counts() -> None:
    """The very job is opened: its refusal is a finding about the set-up, whatever the facts said."""

    def refuse(message: dict[str, Any]) -> None:
        message.clear()
        message.update(type="refused", verb="run", why="no ring of that size", errno=12)

    found = one(said("ready", refuse))
    assert found.verdicts[Check.SETUP] is Verdict.BAD
    assert why(found, Check.SETUP) == "workload 'randread': no ring of that size"


@pytest.mark.parametrize(
    ("buffers", "verdict"), [("auto", Verdict.DOUBTFUL), ("registered", Verdict.BAD), ("plain", Verdict.GOOD)]
)
def test_buffers_that_cannot_be_registered(buffers: str, verdict: Verdict) -> None:
    found = one(
        said("ready", lambda ready: ready["setup"].update(fixed_buffers=False)),
        workloads=(replace(READ, buffers=buffers),),
    )
    assert found.verdicts[Check.MEMORY_LOCK] is verdict
    assert ("raise the limit" in why(found, Check.MEMORY_LOCK)) is (verdict is not Verdict.GOOD)


def test_each_thread_of_a_job_is_tried_on_a_file_of_its_own() -> None:
    laid_out: list[int] = []
    found = one(
        said("prepared", lambda message: laid_out.append(len(message["files"]))), workloads=(replace(READ, numjobs=3),)
    )
    assert found.is_ready
    assert laid_out == [3]


PATHS: list[tuple[dict[str, Any], Check, str]] = [
    ({"exists": False}, Check.TARGET, "does not exist"),
    ({"writable": False, "why": "Permission denied"}, Check.TARGET, "Permission denied"),
    ({"is_ram": True, "fs_type": "tmpfs"}, Check.TARGET, "allow_ram"),
    ({"free_bytes": 1 << 20}, Check.SPACE, "no space left on /data (needs "),
    ({"free_inodes": 3}, Check.SPACE, "no inodes left"),
    ({"logical_block_size": 8192}, Check.ALIGNMENT, "8192-byte sectors"),
]


@pytest.mark.parametrize(("change", "which", "words"), PATHS)
def test_what_keeps_a_target_from_being_measured(change: dict[str, Any], which: Check, words: str) -> None:
    found = one(said("facts", lambda facts: facts["paths"][0].update(change)))
    assert {check_ for check_, verdict in found.verdicts.items() if verdict is Verdict.BAD} == {which}
    assert words in why(found, which)
    assert (found.verdicts[Check.SPACE] is Verdict.NOT_ASKED) is (which is Check.TARGET)


def test_a_poller_wants_a_second_cpu() -> None:
    found = one(said("facts", lambda facts: facts.update(cpus=1)), workloads=(replace(READ, setup="sqpoll"),))
    assert found.verdicts[Check.CPUS] is Verdict.BAD


def test_other_load_and_a_dear_clock_are_doubts_that_keep_nobody_out() -> None:
    def bend(message: dict[str, Any]) -> list[bytes]:
        if message["type"] == "lost":
            message["lost_ns"] = message["spin_ns"] // 10
        elif message["type"] == "settled":
            message["idle"] = False
        elif message["type"] == "facts":
            message["clock"] = {"source": "monotonic", "cost_ns": 1_500, "resolution_ns": 1}
        return [json.dumps(message).encode()]

    found = one(Script(bend=bend))
    assert found.is_ready
    assert {c for c, verdict in found.verdicts.items() if verdict is Verdict.DOUBTFUL} == {Check.LOAD, Check.CLOCK}
    assert "10.0 % of a CPU's time" in why(found, Check.LOAD)
    assert "busy" in why(found, Check.LOAD)
    assert "1500 ns" in why(found, Check.CLOCK)


def test_facts_that_make_no_sense_are_that_guest_s_failure_alone() -> None:
    (odd, good), _ = looked(
        "odd", "good1", scripts={"odd": said("facts", lambda facts: facts.update(cpus="many", paths=7))}
    )
    assert odd.verdicts[Check.AGENT] is Verdict.BAD
    assert good.is_ready


def test_what_the_dead_left_is_noted_with_the_way_to_remove_it() -> None:
    found = one(said("facts", lambda facts: facts["paths"][0].update(stale=[".calyx-orch-a1b2c3"])))
    assert found.is_ready
    (note,) = found.notes
    assert "/data/.calyx-orch-a1b2c3" in note
    assert "calyx-orch clean" in note


def test_guests_of_one_machine_are_told_once() -> None:
    same = said("facts", lambda facts: facts.update(boot_id="one"))
    _, notes = looked("a", "b", scripts={"a": same, "b": same})
    assert len(notes) == 1
    assert "same machine" in notes[0]


# --- what is shown -----------------------------------------------------------------------------------------------


def shown(found: tuple[Readiness, ...], width: int = 120, notes: tuple[str, ...] = ()) -> str:
    out = io.StringIO()
    readiness.show(found, notes, Console(file=out, width=width, force_terminal=True, color_system=None))
    return out.getvalue()


def test_a_wide_fleet_shows_the_worst_and_how_many_there_are() -> None:
    """300 guests, 100 of them unreachable for one reason and two doubtful: a screen or two, and all numbers."""
    names = (
        [f"unreachable{n}" for n in range(100)] + [f"fioless{n}" for n in range(2)] + [f"good{n}" for n in range(198)]
    )
    found, _ = looked(*names)
    text = shown(found)
    assert len(text.splitlines()) < 60
    assert "of all 300" in text
    assert "unreachable0" in text
    assert "72 guests more with findings, 198 guests without any" in text
    assert "200 of 300 guests can be measured" in text
    assert text.count("refused the connection") == 1, "one line for one reason"
    assert "unreachable5 and 94 more" in " ".join(text.split())


def test_a_narrow_terminal_loses_columns_in_which_all_is_well() -> None:
    found, _ = looked("good1", "fioless1")
    wide, narrow = shown(found, 120), shown(found, 60)
    assert "no room" not in wide
    assert "every guest asked is good in: " in narrow
    head = narrow.partition("─")[0]
    assert "fio" in head
    assert "CPUs" not in head
    assert max(map(len, narrow.splitlines())) <= 60


def test_a_guest_s_words_are_shown_without_control_characters() -> None:
    found = one(said("facts", lambda facts: facts["io_uring"].update(ok=False, why="\x1b[2J\x07" + "z" * 9)))
    text = shown((found,))
    assert "\x1b[2J" not in text
    assert "\\x1b[2J" in text


def test_all_of_it_is_strict_json() -> None:
    found, notes = looked("good1", "unreachable1")
    told = json.loads(json.dumps(readiness.to_json(found, notes), allow_nan=False))
    assert told["format"] == "calyx-orch-check/1"
    assert [guest["ready"] for guest in told["guests"]] == [True, False]
    assert set(told["guests"][0]["checks"]) == {str(check_) for check_ in Check}
    (finding,) = told["guests"][1]["findings"]
    assert (finding["check"], finding["verdict"]) == ("reach", "bad")
