"""Which vm_host a guest is on: as the inventory declares it, else as the hypervisor told the guest. Pure.

Hyper-V writes the name of its host into the guest's key-value pool, and anew after a live migration; an OEM string of SMBIOS
(`calyx.host=NAME`), which an administrator of KVM sets, is as old as the guest's boot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from calyx_orch.model import Guest, RunRecord

HOW = {"kvp": "Hyper-V's key-value pool", "smbios": "an OEM string of SMBIOS"}


def told(facts: Mapping[str, Any], key: str = "vm_host") -> tuple[str, str] | None:
    """(name, how it was told) by a guest's facts, the pool first; None when nothing told it. `vm_host_at_end`: after the last round."""
    said = facts.get(key)
    for how in HOW:
        name = said.get(how) if isinstance(said, Mapping) else None
        if isinstance(name, str) and name.strip():
            return name.strip(), how
    return None


def is_same(one: str, other: str) -> bool:
    """Whether two names may mean one host: `hv1` and `HV1.corp.example` do, two different domains do not."""
    first, second = one.casefold().rstrip("."), other.casefold().rstrip(".")
    if "." in first and "." in second:
        return first == second
    return first.split(".")[0] == second.split(".")[0]


def moved(facts: Mapping[str, Any]) -> tuple[str, str] | None:
    """(before, after) of a guest whose vm_host was another one after the last round; None when it was not, or is not known."""
    before, after = told(facts), told(facts, "vm_host_at_end")
    if before is None or after is None or before[1] != after[1] or is_same(before[0], after[0]):
        return None
    return before[0], after[0]


def placed(record: RunRecord) -> RunRecord:
    """The record with the vm_host that each guest told, where the inventory declares none."""
    names = {guest.name: _placed(guest, record.facts.get(guest.name, {})) for guest in record.plan.inventory.guests}
    guests = tuple(names[guest.name] for guest in record.plan.inventory.guests)
    if guests == record.plan.inventory.guests:
        return record
    return replace(
        record,
        plan=replace(record.plan, inventory=replace(record.plan.inventory, guests=guests)),
        measurements=tuple(
            replace(m, vm_host=names[m.guest].vm_host) if m.vm_host is None and m.guest in names else m
            for m in record.measurements
        ),
    )


def _placed(guest: Guest, facts: Mapping[str, Any]) -> Guest:
    found = told(facts)
    return guest if guest.vm_host is not None or found is None else replace(guest, vm_host=found[0])
