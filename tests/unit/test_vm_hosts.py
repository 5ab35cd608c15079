"""The vm_host of a guest is the declared one, else the one it was told; one that differs or changes is a doubt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measured import guest, measurement, record, round_
from test_resume import READ, plan_for, play

from calyx_orch.analysis import vm_hosts
from calyx_orch.analysis.summary import summarise
from calyx_orch.report import facts
from calyx_orch.store import archive
from calyx_orch.transport.simulated import Script


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"kvp": "hv1.corp", "smbios": "kvm1"}, ("hv1.corp", "kvp")),
        ({"kvp": None, "smbios": " kvm1 "}, ("kvm1", "smbios")),
        ({"kvp": "", "smbios": None}, None),
        ("nonsense", None),
        (None, None),
    ],
)
def test_the_pool_is_asked_before_smbios(said: object, told: tuple[str, str] | None) -> None:
    assert vm_hosts.told({"vm_host": said}) == told


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("hv1", "HV1.corp.example", True),
        ("hv1.corp.example.", "hv1.corp.example", True),
        ("hv1.a.example", "hv1.b.example", False),
        ("hv1", "hv10", False),
    ],
)
def test_a_short_name_and_a_full_one_may_be_one_host(one: str, other: str, same: bool) -> None:
    assert vm_hosts.is_same(one, other) is same
    assert vm_hosts.is_same(other, one) is same


def test_an_undeclared_vm_host_is_the_told_one_in_every_row() -> None:
    guests = (guest("vm1"), guest("vm2"), guest("vm3", "declared"))
    one = round_(0, ["vm1", "vm2", "vm3"])
    said = {name: {"vm_host": {"kvp": "hv1.corp"}} for name in ("vm1", "vm2", "vm3")}
    found = vm_hosts.placed(record(guests, [one], [measurement(each, one, 100.0) for each in guests], facts=said))
    summary = summarise(found)
    assert [row.vm_host for row in summary.guests] == ["hv1.corp", "hv1.corp", "declared"]
    assert {row.name for row in summary.fairness} == {"hv1.corp"}
    assert [row.doubt_names for row in summary.guests] == [(), (), ("vm-host",)]
    table = facts.guests(found)
    assert table is not None
    assert [row[1] for row in table.rows] == ["hv1.corp", "hv1.corp", "declared, told: hv1.corp"]


def told_in_turn(*names: str) -> Callable[[dict[str, Any]], list[bytes]]:
    """A guest that is told one name after another, each time it is asked for its facts."""
    left = list(names)

    def bend(message: dict[str, Any]) -> list[bytes]:
        if message["type"] == "facts":
            message = {**message, "vm_host": {"kvp": left.pop(0) if len(left) > 1 else left[0], "smbios": None}}
        return [json.dumps(message).encode()]

    return bend


def test_a_guest_that_is_migrated_in_the_middle_is_flagged_and_who_stays_is_not(tmp_path: Path) -> None:
    plan = plan_for("good1", "good2", workloads=(READ,), repetitions=1)
    folder = archive.RunFolder.create(tmp_path, plan)
    bends = {"good1": Script(bend=told_in_turn("hv1.corp", "hv2.corp")), "good2": Script(bend=told_in_turn("hv1.corp"))}
    play(folder, plan, scripts=bends)
    found = archive.read(folder.path)
    assert {one.name: one.vm_host for one in found.plan.inventory.guests} == {"good1": "hv1.corp", "good2": "hv1.corp"}
    (doubt,) = [row for row in summarise(found).doubts if row.name == "moved"]
    assert doubt.guests == ("good1",)
    assert "hv1.corp to hv2.corp" in doubt.sentence
