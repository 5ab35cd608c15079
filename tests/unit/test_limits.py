"""A-043: what the way to the storage cannot carry did not come from the storage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from measured import measurement

from calyx_orch import inventory
from calyx_orch import plan as planning
from calyx_orch.analysis import rounds
from calyx_orch.analysis.doubt import Doubt
from calyx_orch.errors import InventoryErrors
from calyx_orch.model import Inventory, Limits, RunRecord

MIB = 1 << 20
LIMITED = "{vm1: {address: 127.0.0.1, limits: {max_read: 500MiB/s}}}"


def read(guests: str, defaults: str = "{targets: {data: /data}}", direct: str = "false") -> Inventory:
    text = (
        f"defaults: {defaults}\nguests: {guests}\n"
        f"workloads: [{{name: w, rw: rw, bs: 1m, size: 64m, direct: {direct}}}]\nbaselines: none\n"
    )
    return inventory.parse(text, source="inventory.yaml", base_dir="", presets={})


def doubts(one: Inventory, *, read_mib_s: float = 0.0, write_mib_s: float = 0.0) -> dict[str, Doubt]:
    """What is doubtful, by rule, when the only guest moved that much in each second of its window."""
    plan = planning.make(one, seed=1)
    round_ = plan.rounds[0]
    found = measurement(one.guests[0], round_, 1000.0)
    assert found.read is not None
    parts: dict[str, Any] = {
        name: replace(found.read, bytes=round(rate * MIB * found.window_ns / 1e9))
        for name, rate in (("read", read_mib_s), ("write", write_mib_s))
    }
    record = RunRecord("r", "", plan, (replace(found, **parts),), (), {}, "", "finished", ())
    ((figures,),) = (played.figures for played in rounds.played(record))
    return {doubt.name: doubt for doubt in figures.doubts}


def test_more_than_the_way_carries_is_implausible() -> None:
    """The case's own figures: 5060 MiB/s on a way of 500, from the page cache."""
    doubt = doubts(read(LIMITED), read_mib_s=5060)["implausible"]
    assert "5.31 GB/s were read" in doubt.sentence
    assert "carries 524 MB/s" in doubt.sentence
    assert "direct I/O" in doubt.remedy


@pytest.mark.parametrize(
    ("guests", "read_mib_s", "write_mib_s", "is_doubtful"),
    [
        (LIMITED, 500, 9000, False),
        (LIMITED, 501, 0, True),
        ("{vm1: {limits: {max_write: 500MiB/s}}}", 9000, 500, False),
        ("{vm1: {limits: {max_write: 500MiB/s}}}", 0, 501, True),
        ("{vm1: {}}", 9000, 9000, False),
        ("{vm1: {limits: null}}", 9000, 9000, False),
    ],
)
def test_each_direction_has_its_limit(guests: str, read_mib_s: float, write_mib_s: float, is_doubtful: bool) -> None:
    """Direct I/O, too: a cache of host or array may answer that as well."""
    found = doubts(read(guests, direct="true"), read_mib_s=read_mib_s, write_mib_s=write_mib_s)
    assert ("implausible" in found) is is_doubtful


def test_the_closest_setting_holds() -> None:
    fleet = read(
        "{vm1: {}, vm2: {limits: {max_write: 1GB/s}}}", "{targets: {data: /data}, limits: {max_read: 500MB/s}}"
    )
    assert [guest.limits for guest in fleet.guests] == [Limits(500_000_000), Limits(None, 1_000_000_000)]


@pytest.mark.parametrize("limits", ["{max_read: 0}", "{max_reads: 5MB/s}", "5MB/s", "{max_read: much}"])
def test_nonsense_is_refused(limits: str) -> None:
    with pytest.raises(InventoryErrors):
        read(f"{{vm1: {{limits: {limits}}}}}")
