"""What differs between the sides of a comparison besides what is meant to: each difference named, and whether it forbids a verdict.

A workload of one name that is not the same I/O on both sides forbids it: such figures have nothing to do with each other. The same I/O at
another rate is another load: it is told, and `compare` gives such rows no verdict, so that the others keep theirs. All else
is told: a fact of a guest, its target's file system, the set-up that took effect, the versions of the tools.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calyx_orch.analysis.sides import UNKNOWN, Side, values_of
from calyx_orch.model import Guest, RunRecord, Workload

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
    "files": "files",
}
PATH_FACTS = {
    "fs_type": "file system",
    "mount_options": "mount options",
    "model": "disk model",
    "scheduler": "I/O scheduler",
    "write_cache": "write cache",
    "queue_depth": "queue depth",
    "logical_block_size": "logical block size",
    "rotational": "rotational",
}
NOT_THE_IO = frozenset(
    {"name", "seed", "find", "guests_at", "load_share"}
)  # fields of a workload that leave its I/O what it is
CHOSEN = frozenset({"setup", "refill", "buffers"})  # these are told as the set-up that took effect
RATES = frozenset({"rate_iops", "rate_bytes_per_s"})  # what is offered, of a workload
NOT_THE_SETUP = frozenset({"requested", "why", "seed", "data_seed", "poller_cpus", "command"})  # of what took effect
VALUES_MAX = 3

_Setups = dict[tuple[str, str, str], dict[str, set[str]]]  # (engine, workload, field): guest: values


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
    records = {id(side.record): side.record for side in sides}  # each is looked through once, however many sides it has
    guests = {at: {guest.name: guest for guest in record.plan.inventory.guests} for at, record in records.items()}
    for name, title in FACTS.items():
        if name != fact:
            yield from _told(title, [(side.name, _guests_say(side, guests[id(side.record)], name)) for side in sides])
    for name, title in PATH_FACTS.items():
        if name != fact:
            yield from _told(title, [(side.name, _targets_say(side, name)) for side in sides])
    yield from _set_ups(sides, {at: _setups(record) for at, record in records.items()})
    if not fact:
        yield from _told("guests", [(side.name, frozenset(side.guests)) for side in sides])
        loads = [(side.name, ", ".join(side.record.plan.inventory.load)) for side in sides]
        yield from _told("load", [(name, frozenset({load})) for name, load in loads])


def _workloads(sides: Sequence[Side]) -> Iterable[Difference]:
    first = _definitions(sides[0].record)
    for side in sides[1:]:
        for name, workload in _definitions(side.record).items():
            if name in first:
                for field, (mine, theirs) in _other_fields(first[name], workload):
                    said = ((sides[0].name, str(mine)), (side.name, str(theirs)))
                    yield Difference(f"workload {name}, {field}", said, forbids=field not in RATES)


def _definitions(record: RunRecord) -> Mapping[str, Workload]:
    found = {round_.workload.name: round_.workload for round_ in record.plan.rounds}
    return {workload.name: workload for workload in record.plan.inventory.workloads} | found


def _other_fields(mine: Workload, theirs: Workload) -> Iterable[tuple[str, tuple[Any, Any]]]:
    for field in dataclasses.fields(Workload):
        values = getattr(mine, field.name), getattr(theirs, field.name)
        if field.name not in NOT_THE_IO | CHOSEN and values[0] != values[1]:
            yield field.name, values


def _told(what: str, said: Sequence[tuple[str, frozenset[str]]]) -> Iterable[Difference]:
    """A difference where those sides that know anything do not say the same; all that they say counts, also what is too much to show."""
    if len({values for _, values in said if values - {UNKNOWN}}) > 1:
        shared = frozenset.intersection(*(values for _, values in said))
        yield Difference(what, tuple((side, _several(values, shared)) for side, values in said))


def _guests_say(side: Side, guests: Mapping[str, Guest], fact: str) -> frozenset[str]:
    show = _memory if fact == "memory_bytes" else str
    return frozenset(
        show(value) for name in side.guests for value in values_of(guests[name], side.record.facts.get(name, {}), fact)
    )


def _memory(said: str) -> str:
    """In three digits: what the kernel keeps for itself differs by some pages from boot to boot."""
    return f"{int(said) / (1 << 30):.3g} GiB" if said.isdecimal() else said


def _targets_say(side: Side, fact: str) -> frozenset[str]:
    return frozenset(
        UNKNOWN if entry.get(fact) is None else str(entry[fact])
        for name in side.guests
        for entry in side.record.facts.get(name, {}).get("paths") or ()
        if isinstance(entry, Mapping)
    )


def _set_ups(sides: Sequence[Side], setups: Mapping[int, _Setups]) -> Iterable[Difference]:
    """What took effect of a set-up, field by field, where sides that measured the workload do not say the same."""
    found: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[str]] = {}
    for key in dict.fromkeys(key for of in setups.values() for key in of):
        said = [(side.name, _setups_say(side, setups[id(side.record)].get(key, {}))) for side in sides]
        engine, workload, field = key
        for one in _told(field, [one for one in said if one[1]]):
            found.setdefault((engine, field, one.values), []).append(workload)
    for (engine, field, values), workloads in found.items():
        yield Difference(f"set-up of {engine}, {field} ({', '.join(workloads)})", values)


def _setups(record: RunRecord) -> _Setups:
    """The set-ups that took effect: of each engine, workload and field what the guests say."""
    found: _Setups = {}
    for m in record.measurements:
        for field, value in m.setup.items():
            if field not in NOT_THE_SETUP:
                guests = found.setdefault((m.engine, m.workload, field), {})
                guests.setdefault(m.guest, set()).add("none" if value is None else str(value))
    return found


def _setups_say(side: Side, setups: Mapping[str, set[str]]) -> frozenset[str]:
    return frozenset(said for guest in side.guests for said in setups.get(guest, ()))


def _several(values: frozenset[str], shared: frozenset[str]) -> str:
    """What a side says, in the order of its values; of too many those first that not all sides say."""
    shown = sorted(values) if len(values) <= VALUES_MAX else sorted(values, key=lambda value: (value in shared, value))
    more = len(values) - VALUES_MAX
    return " / ".join(shown[:VALUES_MAX]) + (f" and {more} more" if more > 0 else "")
