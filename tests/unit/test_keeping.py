"""Kept files in inventory, plan, preflight, results and cleaning: decisions, without any guest."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from calyx_orch import inventory, plan
from calyx_orch.analysis import keeping
from calyx_orch.commands import firing
from calyx_orch.commands.run import growth_refusal
from calyx_orch.errors import InventoryErrors, UsageError
from calyx_orch.model import Cleaned, Connection, Guest, Inventory, Layout, Plan, Target
from calyx_orch.report import cleaning, terminal
from calyx_orch.runner import clean, preflight

READ = "workloads: [{name: r, rw: randread, size: 1g, numjobs: 4}]\nbaselines: none\n"
LAYOUT = Layout("vm1", "data", "/data", files=4, size_bytes=1 << 30, keep="vm1/data")
GIB = 1 << 30


def parse(text: str) -> Inventory:
    return inventory.parse(text, source="fleet.yaml", base_dir="/base", presets={})


def made(text: str) -> Plan:
    return plan.make(parse(text), seed=1)


def keeps(text: str) -> dict[str, bool]:
    return {f"{guest.name}/{one.name}": one.keep_files for guest in parse(text).guests for one in guest.targets}


# --- inventory -------------------------------------------------------------------------------------------------------


def test_the_closest_of_target_guest_and_defaults_says_whether_files_are_kept() -> None:
    text = """
defaults: {keep_files: true, targets: {a: /a, b: {path: /b, keep_files: false}, c: {path: /c, keep_files: true}}}
groups: {g: {keep_files: false}}
guests: {vm1: {}, vm2: {groups: [g]}, vm3: {groups: [g], keep_files: true}}
"""
    assert keeps(text + READ) == {
        "vm1/a": True, "vm1/b": False, "vm1/c": True,
        "vm2/a": False, "vm2/b": False, "vm2/c": True,
        "vm3/a": True, "vm3/b": False, "vm3/c": True,
    }  # fmt: skip
    assert set(keeps("guests: {vm1: {targets: {a: /a}}}\n" + READ).values()) == {False}


def test_a_raw_device_keeps_no_files() -> None:
    """Said on the device it is refused; said for a guest as a whole it holds for its directories, and that is told."""
    raw = "{device: /dev/disk/by-id/x, destructive: true, keep_files: true}"
    with pytest.raises(InventoryErrors, match="'keep_files' has no meaning for a raw device"):
        parse(f"guests: {{vm1: {{targets: {{raw: {raw}}}}}}}\n" + READ)
    one = made(
        "guests: {vm1: {keep_files: true, targets: {raw: {device: /dev/disk/by-id/x, destructive: true}, data: /data}}}\n"
        + READ
    )
    assert {layout.target: layout.keep for layout in one.layouts} == {"raw": "", "data": "vm1/data"}
    (note,) = one.notes
    assert "keep_files does not hold for target 'raw', a raw device" in note


# --- plan ------------------------------------------------------------------------------------------------------------


def test_kept_files_have_a_name_that_fits_and_is_no_other_target_s() -> None:
    long = [
        Guest("vm" + "ü" * 190 + end, Connection("vm"), (Target("data", "/data", keep_files=True),)) for end in "ab"
    ]
    names = [guest.kept_as(guest.targets[0]) for guest in long]
    assert all(len(name.encode()) <= 120 for name in names)
    assert names[0] != names[1]
    short = replace(long[0], name="vm1")
    assert short.kept_as(short.targets[0]) == "vm1/data"
    assert short.kept_as(replace(short.targets[0], keep_files=False)) == ""


@pytest.mark.parametrize("word", ["buffer_compress_percentage: 50", "dedupe_percentage: 50"])
def test_data_that_shrinks_is_not_written_to_kept_files(word: str) -> None:
    """Within a run its own rounds would read it; the next run would find files that are none of a layout."""
    guests = "guests: {vm1: {keep_files: KEEP, targets: {data: /data}}}\n"
    text = guests + f"workloads: [{{name: w, rw: write, size: 1g, {word}}}]\n"
    with pytest.raises(UsageError, match="workload 'w' writes data that can be compressed or deduplicated"):
        made(text.replace("KEEP", "true"))
    assert made(text.replace("KEEP", "false")).rounds


def test_new_bytes_of_kept_files_are_a_range_until_guests_are_asked() -> None:
    text = "vm_hosts: {hv1: {free: 5GiB}}\nguests: {vm1: {vm_host: hv1, targets: {data: /data, log: {path: /log, keep_files: true}}}}\n"
    one = made(text + READ)
    rows = {row.kind: row for row in plan.describe(one)}
    for kind in ("total", "vm_host", "guest"):
        assert (rows[kind].new_bytes, rows[kind].kept_bytes) == (8 * GIB, 4 * GIB)
    console = Console(file=io.StringIO(), width=200)
    terminal.dry_run(one, plan.describe(one), console)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "4 GiB to 8 GiB" in said
    assert "which is known once it is asked" in " ".join(said.split())
    assert "kept files count, since only the guests know" in growth_refusal(one)
    without = made(text.replace(", keep_files: true", "") + READ)
    assert "kept files" not in growth_refusal(without)
    assert {row.kept_bytes for row in plan.describe(without)} == {0}


def test_a_schedule_counts_layouts_of_kept_files_once_a_year() -> None:
    text = "guests: {vm1: {keep_files: true, targets: {data: /data}}}\n"
    (_, together, one) = firing.yearly(parse(text + READ), 365, allow_growth=True)
    assert (
        together
        == "all guests together will write at most 4 GiB a year while kept files are found as they were left (1.43 TiB if never)"
    )
    assert one.startswith("guest vm1 will write at most 4 GiB a year")
    (_, together, _) = firing.yearly(parse(text.replace("true", "false") + READ), 365, allow_growth=True)
    assert together == "all guests together will write at most 1.43 TiB a year"


# --- preflight -------------------------------------------------------------------------------------------------------

FULL = {
    "path": "/data", "exists": True, "is_dir": True, "writable": True, "free_bytes": 0, "total_bytes": 8 * GIB, "kept": [],
}  # fmt: skip


def test_kept_files_need_no_second_place() -> None:
    """They fill the disk that a preflight looks at. Those of another name are no reason to go on."""
    one = made("guests: {vm1: {keep_files: true, targets: {data: /data}}}\n" + READ)
    (guest,) = one.inventory.guests

    def spaces(kept: list[str]) -> list[str]:
        facts = {"io_uring": {"ok": True, "setups": ["defer"]}, "paths": [{**FULL, "kept": kept}]}
        return [found.why for found in preflight.guest_findings(guest, one, facts) if "no space" in found.why]

    assert spaces([".calyx-orch-a1b2c3 vm1/data"]) == []
    assert len(spaces([])) == len(spaces([".calyx-orch-a1b2c3 vm2/data"])) == len(spaces(["x vm1/data"])) == 1


def test_kept_files_that_nobody_needs_are_told_and_no_others() -> None:
    one = parse("guests: {vm1: {keep_files: true, targets: {data: /data/}}}\n" + READ)
    kept = [".calyx-orch-a1b2c3 vm1/data", ".calyx-orch-d4e5f6 vm0/data", "../../etc vm0/x"]
    (note,) = keeping.unused({"paths": [{"path": "/data/", "kept": kept}]}, one)
    assert note.endswith("`calyx-orch clean --kept` removes them: /data/.calyx-orch-d4e5f6 (of vm0/data)")
    assert keeping.unused({"paths": [{"path": "/data", "kept": kept[:1]}, {"path": "/x"}]}, one) == ()


# --- results ---------------------------------------------------------------------------------------------------------


def facts_of(**prepared: Any) -> dict[str, Any]:
    return {"prepared": {"data": {"layout": "new", "anew": None, "laid_s": 1_796_123_456, "uses": 0, **prepared}}}


def fleet_plan() -> Plan:
    return made(
        "guests: {vm1: {keep_files: true}, vm2: {keep_files: true}, vm3: {}}\ndefaults: {targets: {data: /data}}\n"
        + READ
    )


def test_a_run_tells_how_much_it_did_not_write() -> None:
    facts = {"vm1": facts_of(layout="reused", uses=3), "vm2": facts_of(), "vm3": facts_of()}
    assert keeping.told(fleet_plan(), facts) == ("kept files were reused on 1 of 2 guests: 4 GiB were not written",)
    first = {name: facts_of() for name in ("vm1", "vm2", "vm3")}
    (note,) = keeping.told(fleet_plan(), first)
    assert note == "files to be kept were laid out on 2 guests: the next run can reuse them"
    assert keeping.told(fleet_plan(), {"vm3": facts_of()}) == ()
    assert keeping.told(fleet_plan(), {"vm1": {"prepared": "nonsense"}}) == ()


def test_files_that_were_laid_out_anew_are_news() -> None:
    why = "job.0: samples=1, was samples=2"
    facts = {"vm1": facts_of(anew=why), "vm2": facts_of(layout="reused", anew="of a second set"), "vm3": facts_of()}
    assert keeping.anew(fleet_plan(), facts) == (f"vm1: kept files of target data were laid out anew: {why}",)


def test_the_files_that_a_guest_was_measured_on_are_a_fact() -> None:
    """Nights on the same files say the same; a night on new ones says another; runs that keep nothing are alike."""
    log = replace(LAYOUT, target="log", keep="")
    laid = {"data": {"laid_s": 1_796_123_456}, "log": {"laid_s": 1_796_200_000}}
    assert keeping.files([LAYOUT], laid) == "kept since 2026-12-01"
    assert keeping.files([replace(LAYOUT, keep="")], laid) == "laid out for this run alone"
    assert keeping.files([LAYOUT, log], laid) == "data kept since 2026-12-01, log laid out for this run alone"
    assert "nobody knows" in keeping.files([LAYOUT], {"data": {"laid_s": 1 << 62}})


# --- clean -----------------------------------------------------------------------------------------------------------

KEPT = {
    "path": "/data/.calyx-orch-a1b2c3", "kind": "files", "run": "20261201-aa", "by": "ann@desk", "keep": "vm1/data", "since_s": 100,
    "pid": 7, "files": 2, "bytes": 2 * GIB,
}  # fmt: skip


def told(one: Cleaned) -> str:
    console = Console(file=io.StringIO(), width=200)
    cleaning.show([one], console)
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_clean_that_was_not_told_so_says_which_kept_files_stay(dry_run: bool) -> None:
    one = clean.of_answers("vm1", [{"found": [KEPT], "removed": []}], dry_run=dry_run)
    assert (one.removed, [left.keep for left in one.kept_files], one.is_clean) == ((), ["vm1/data"], True)
    said = told(one)
    assert "vm1: kept /data/.calyx-orch-a1b2c3 (2 files, 2 GiB, kept for vm1/data, of run 20261201-aa" in said
    assert "`calyx-orch clean --kept` removes it" in said
    assert "1 set of kept files" in said
    assert "stays for later runs" in said


def test_a_clean_of_kept_files_tells_them_as_removed() -> None:
    listed = clean.of_answers("vm1", [{"found": [KEPT]}], dry_run=True, with_kept=True)
    gone = clean.of_answers("vm1", [{"found": [KEPT], "removed": [KEPT["path"]]}], dry_run=False, with_kept=True)
    for one, words in ((listed, "would remove /data"), (gone, "removed /data")):
        assert ([left.path for left in one.removed], one.kept_files) == ([KEPT["path"]], ())
        assert words in told(one)
