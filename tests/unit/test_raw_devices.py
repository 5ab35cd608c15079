"""Raw devices and trims in inventory, plan, preflight and the engines' commands: decisions, without any device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from calyx_orch import deploy, engines, inventory, plan
from calyx_orch.engines import fio
from calyx_orch.errors import InventoryErrors, UsageError
from calyx_orch.model import Guest, Impact, Inventory, Layout, Plan, Round
from calyx_orch.runner import preflight

HEAD = "guests: {vm1: {targets: {raw: {device: /dev/disk/by-id/x, destructive: true}, files: /data}}}\n"
RAW = Layout("vm1", "raw", "/dev/disk/by-id/x", files=4, size_bytes=1 << 30, device=True)
FILES = Layout("vm1", "files", "/data", files=2, size_bytes=1 << 30)
GIB = 1 << 30


def parse(workloads: str) -> Inventory:
    return inventory.parse(HEAD + f"workloads: [{workloads}]\n", source="i.yaml", base_dir="", presets={})


def made(workloads: str) -> Plan:
    return plan.make(parse(workloads), seed=1)


TRIM = "{rw: randtrim, bs: 64k, size: 1g, targets: [raw]}"


def test_jobs_share_a_device_and_are_laid_out_once() -> None:
    (layout,) = made("{rw: randread, size: 1g, numjobs: 4, targets: [raw]}").layouts
    assert layout == RAW
    assert (layout.total_bytes, FILES.total_bytes) == (GIB, 2 * GIB)


def test_a_trim_is_made_by_one_call_after_another_and_says_so_in_every_table() -> None:
    """No allow_psync is wanted: there is no other way, in fio neither. Its baseline is fio's psync."""
    found = made(TRIM)
    workload = found.rounds[0].workload
    assert (workload.setup, workload.labels[0], workload.rw.writes, workload.rw.reads) == ("psync", "trim", True, False)
    assert {round_.engine for round_ in found.rounds} == {"calyx", "fio-psync"}


@pytest.mark.parametrize(
    ("workloads", "why"),
    [
        ("{rw: trim, size: 1g, targets: [files]}", "'files' is a directory"),
        ("{rw: trim, size: 1g}", "'files' is a directory"),
        (f"{TRIM}, {{rw: randread, size: 1g, targets: [raw]}}", "from which 'randread-4k' reads"),
        ("{rw: randrw, size: 1g, numjobs: 2, verify: crc32c, targets: [raw]}", "which share the raw device"),
        (f"{TRIM}, {{rw: write, verify: crc32c, size: 1g, targets: [raw]}}", "writes blocks of another kind"),
    ],
)
def test_what_makes_no_sense_on_a_target_is_refused(workloads: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        made(workloads)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("iodepth: 4", "a trim has one I/O in flight"), ("setup: defer", "leave out setup defer"), ("verify: crc32c", "carries no data"),
        ("fsync: 1", "carries no data"), ("dedupe_percentage: 10", "carries no data"), ("direct: no", "page cache"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_in_a_trim_is_refused(words: str, why: str) -> None:
    with pytest.raises(InventoryErrors, match=why):
        parse(f"{{rw: trim, size: 1g, targets: [raw], {words}}}")


BLOCK = {"node": "/dev/sdb", "size_bytes": 2 * GIB, "serial": "S1", "refused": ""}


@pytest.mark.parametrize(
    ("layout", "entry", "why"),
    [
        (RAW, {"exists": False}, "/dev/disk/by-id/x does not exist, and is not made"),
        (RAW, {"exists": True, "is_dir": True}, "is no block device, and none is made of it"),
        (RAW, {"block": {**BLOCK, "refused": "/dev/sdb is mounted on /"}}, "/dev/sdb is mounted on /"),
        (
            RAW,
            {"block": BLOCK, "is_ram": True},
            "/dev/sdb is RAM, not a disk: give another device, or set allow_ram: true",
        ),
        (replace(RAW, serial="S2"), {"block": BLOCK}, "is /dev/sdb with S1, not S2: it is another disk"),
        (replace(RAW, size_bytes=3 * GIB), {"block": BLOCK}, r"no space left on /dev/sdb \(needs 3 GiB, has 2 GiB\)"),
    ],
)
def test_preflight_refuses_in_one_sentence(layout: Layout, entry: dict[str, Any], why: str) -> None:
    """A-046: a name that leads to another disk today is found by its serial number."""
    (said,) = preflight.raw_device_problems(layout, entry)
    assert why.replace("\\", "") in said


def test_preflight_lets_a_free_device_pass() -> None:
    assert preflight.raw_device_problems(replace(RAW, serial="S1"), {"block": BLOCK}) == []
    assert preflight.raw_device_problems(replace(RAW, allow_ram=True), {"block": BLOCK, "is_ram": True}) == []


@pytest.mark.parametrize(
    ("total", "reserve"), [(None, 64 << 20), (GIB, 64 << 20), (20 * GIB, GIB), (1000 * GIB, 4 * GIB)]
)
def test_a_twentieth_of_a_file_system_stays_free_within_bounds(total: int | None, reserve: int) -> None:
    assert preflight.reserve_of(FILES, {"total_bytes": total}) == reserve
    assert preflight.reserve_of(replace(FILES, reserve_bytes=0), {"total_bytes": total}) == 0


def test_the_reserve_is_part_of_what_is_needed() -> None:
    entry = {"path": "/data", "exists": True, "is_dir": True, "writable": True, "total_bytes": 100 * GIB}
    enough, short = ({**entry, "free_bytes": free} for free in (6 * GIB, 6 * GIB - 1))
    assert preflight._path_problems(FILES, enough) == []
    (finding,) = preflight._path_problems(FILES, short)
    assert "needs 6 GiB, of which 4 GiB stay free" in finding.why


@pytest.mark.parametrize(
    ("impact", "rate"),
    [
        (Impact(), 500_000_000), (Impact(max_rate_bytes_per_s=7), 7), (Impact(layout_rate_bytes_per_s=9_000_000_000), 9_000_000_000),
        (Impact(max_rate_bytes_per_s=7, layout_rate_bytes_per_s=9), 7),
    ],
)  # fmt: skip
def test_a_layout_is_never_quicker_than_its_bounds(impact: Impact, rate: int) -> None:
    assert impact.layout_bytes_per_s == rate


def command(engine: str, round_: Round, prepared: dict[str, Any]) -> dict[str, list[Any]]:
    made = engines.command(
        replace(round_, engine=engine), paths=("/dev/sdb",), data_seed=1, taken={}, facts={"prepared": {"raw": prepared}},
        hello={"path": "/agent", "work": "/work"}, fio_path="/usr/bin/fio",
    )  # fmt: skip
    found: dict[str, list[Any]] = {}
    for key, value in made.pairs:
        found.setdefault(key, []).append(value)
    return found


def test_the_agent_is_told_that_a_device_is_meant_by_both_engines() -> None:
    """It refuses any but the one that it holds; fio refuses mounted ones of its own."""
    (round_, *_) = made(TRIM).rounds
    prepared = {"device": "/dev/sdb"}
    assert command("calyx", round_, prepared)["devices"] == [1]
    assert "devices" not in command("calyx", round_, {"directory": "/data/x"})
    said = command("fio-psync", round_, prepared)
    assert said["device"] == ["/dev/sdb"]
    assert {"--allow_mounted_write=0", "--rw=randtrim", "--allow_file_create=0", "--filename=/dev/sdb"} <= set(
        said["arg"]
    )
    said = command("fio-psync", round_, {"directory": "/data/x"})
    assert "device" not in said
    assert "--allow_mounted_write=0" not in said["arg"]


def test_a_device_by_its_path_is_escaped_for_fio() -> None:
    """A-024: `/dev/disk/by-path/pci-0000:06:00.0` is one name."""
    assert fio.file_option("/dev/disk/by-path/pci-0000:06:00.0") == r"--filename=/dev/disk/by-path/pci-0000\:06\:00.0"


def test_no_agent_is_put_on_a_raw_device() -> None:
    guest: Guest = parse(TRIM).guests[0]
    assert not any("/dev/" in place for place in deploy.candidates(guest))
    assert "shared:/data" in deploy.candidates(guest)
