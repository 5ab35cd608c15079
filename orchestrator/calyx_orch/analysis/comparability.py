"""What differs between the sides of a comparison besides what is meant to: each difference named, and whether it forbids a verdict.

A workload of one name that is not the same I/O on both sides forbids it: such figures have nothing to do with each other. All else
is told: a fact of a guest, its target's file system, the set-up that took effect, the versions of the tools.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calyx_orch.analysis.sides import UNKNOWN, Side, values_of
from calyx_orch.model import RunRecord, Workload

FACTS = {
    "kernel": "kernel",
    "cpus": "vCPUs",
    "cpu_model": "CPU model",
    "product": "virtual hardware",
    "memory_bytes": "memory",
    "clocksource": "clocksource",
    "hypervisor": "hypervisor",
    "arch": "architecture",
    "fio.version": "fio",
    "agent": "agent",
}
PATH_FACTS = {
    "fs_type": "file system",
    "mount_options": "mount options",
    "model": "disk model",
    "scheduler": "I/O scheduler",
    "write_cache": "write cache",
    "queue_depth": "queue depth",
    "rotational": "rotational",
}
NOT_THE_IO = frozenset({"name", "seed", "find", "guests_at"})  # fields of a workload that leave its I/O what it is
CHOSEN = frozenset({"setup", "refill", "buffers"})  # these are told as the set-up that took effect
NOT_THE_SETUP = frozenset({"requested", "why", "seed", "data_seed", "poller_cpus", "command"})  # of what took effect
VALUES_MAX = 3


@dataclass(frozen=True)
class Difference:
    """A fact that the sides do not share: what it is, what each side says, and whether it forbids a verdict."""

    what: str
    values: tuple[tuple[str, str], ...]  # (side, what it says)
    forbids: bool = False

    @property
    def sentence(self) -> str:
        """`kernel: hv1 6.1.0, hv2 6.12.0`."""
        return f"{self.what}: " + ", ".join(f"{side} {value}" for side, value in self.values)


def differences(sides: Sequence[Side], fact: str = "") -> Iterable[Difference]:
    """Every difference, those that forbid a verdict first; `fact`, by which the sides were made, is none."""
    yield from _workloads(sides)
    if fact == "engine":
        return
    for name, title in FACTS.items():
        if name != fact:
            yield from _told(title, [(side.name, _guests_say(side, name)) for side in sides])
    for name, title in PATH_FACTS.items():
        if name != fact:
            yield from _told(title, [(side.name, _targets_say(side, name)) for side in sides])
    for engine in dict.fromkeys(m.engine for side in sides for m in side.record.measurements):
        said = [(side.name, _setups_say(side, engine)) for side in sides]
        yield from _told(f"set-up of {engine}", [one for one in said if one[1]])
    if not fact:
        yield from _told("guests", [(side.name, _names(side.guests)) for side in sides])
        yield from _told("load", [(side.name, ", ".join(side.record.plan.inventory.load)) for side in sides])


def _workloads(sides: Sequence[Side]) -> Iterable[Difference]:
    first = _definitions(sides[0].record)
    for side in sides[1:]:
        for name, workload in _definitions(side.record).items():
            if name in first:
                for field, (mine, theirs) in _other_fields(first[name], workload):
                    said = ((sides[0].name, str(mine)), (side.name, str(theirs)))
                    yield Difference(f"workload {name}, {field}", said, forbids=True)


def _definitions(record: RunRecord) -> Mapping[str, Workload]:
    found = {round_.workload.name: round_.workload for round_ in record.plan.rounds}
    return {workload.name: workload for workload in record.plan.inventory.workloads} | found


def _other_fields(mine: Workload, theirs: Workload) -> Iterable[tuple[str, tuple[Any, Any]]]:
    for field in dataclasses.fields(Workload):
        values = getattr(mine, field.name), getattr(theirs, field.name)
        if field.name not in NOT_THE_IO | CHOSEN and values[0] != values[1]:
            yield field.name, values


def _told(what: str, said: Sequence[tuple[str, str]]) -> Iterable[Difference]:
    if len({value for _, value in said if value != UNKNOWN}) > 1:
        yield Difference(what, tuple(said))


def _guests_say(side: Side, fact: str) -> str:
    guests = {guest.name: guest for guest in side.record.plan.inventory.guests}
    return _several(
        value for name in side.guests for value in values_of(guests[name], side.record.facts.get(name, {}), fact)
    )


def _targets_say(side: Side, fact: str) -> str:
    return _several(
        UNKNOWN if entry.get(fact) is None else str(entry[fact])
        for name in side.guests
        for entry in side.record.facts.get(name, {}).get("paths") or ()
        if isinstance(entry, Mapping)
    )


def _setups_say(side: Side, engine: str) -> str:
    return _several(
        " ".join(
            f"{name}={value}" for name, value in m.setup.items() if name not in NOT_THE_SETUP and value is not None
        )
        for m in side.record.measurements
        if m.guest in side.guests and m.engine == engine and m.setup
    )


def _several(values: Iterable[str]) -> str:
    """All that a side says, the most frequent kinds only."""
    found = sorted(set(values))
    return " / ".join(found[:VALUES_MAX]) + (f" and {len(found) - VALUES_MAX} more" if len(found) > VALUES_MAX else "")


def _names(guests: Sequence[str]) -> str:
    return ", ".join(guests[:VALUES_MAX]) + (
        f" and {len(guests) - VALUES_MAX} more" if len(guests) > VALUES_MAX else ""
    )
