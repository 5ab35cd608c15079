"""What happened to each guest under each key (target, workload, engine, load): what the rows of a summary are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from calyx_orch.analysis.rounds import Figures, Played
from calyx_orch.model import LoadMode, Measurement, Round, RunRecord

Key = tuple[str, str, str, str]  # target, workload, engine, load


@dataclass(frozen=True)
class Cell:
    """All that happened to one guest under one key."""

    guest: str
    vm_host: str | None
    storage: str | None
    key: Key
    planned: int
    figures: tuple[Figures, ...]
    failed: tuple[Measurement, ...]
    labels: tuple[str, ...] = ()
    places: Mapping[int, int] = field(default_factory=dict)  # round -> its place in its block, from 0

    def by_block(self) -> dict[int, list[Figures]]:
        """The figures of each block."""
        blocks: dict[int, list[Figures]] = {}
        for found in self.figures:
            blocks.setdefault(found.measurement.block, []).append(found)
        return blocks


def key_of(round_: Round) -> Key:
    """The key under which a round is summed up."""
    return (round_.target, round_.workload.name, round_.engine, round_.load_name)


def keys_of(record: RunRecord) -> tuple[Key, ...]:
    """The keys of the plan in the inventory's order, not in that in which chance played them: workload, target, load, engine.

    calyx comes before fio. What an inventory does not name comes last, in the plan's order.
    """
    inventory = record.plan.inventory
    workloads = [workload.name for workload in inventory.workloads]
    targets = list(dict.fromkeys(target.name for guest in inventory.guests for target in guest.targets))
    loads = [str(load) for load in inventory.load if load is not LoadMode.DENSITY]
    loads += [f"{LoadMode.DENSITY} {level}" for level in sorted({one.density for one in record.plan.rounds} - {0})]

    def place(known: Sequence[str], name: str) -> int:
        return known.index(name) if name in known else len(known)

    def order(key: Key) -> tuple[int, int, int, bool, str]:
        target, workload, engine, load = key
        return place(workloads, workload), place(targets, target), place(loads, load), engine != "calyx", engine

    return tuple(sorted(dict.fromkeys(key_of(round_) for round_ in record.plan.rounds), key=order))


def cells_of(record: RunRecord, played: Sequence[Played]) -> tuple[Cell, ...]:
    """One cell for each guest and key of the plan, guests and keys in the inventory's order."""
    planned: dict[tuple[str, Key], int] = {}
    figures: dict[tuple[str, Key], list[Figures]] = {}
    failed: dict[tuple[str, Key], list[Measurement]] = {}
    for round_ in record.plan.rounds:
        for name in round_.guests:
            planned[name, key_of(round_)] = planned.get((name, key_of(round_)), 0) + 1
    for one in played:
        for found in one.figures:
            figures.setdefault((found.measurement.guest, key_of(one.round)), []).append(found)
        for measurement in one.failed:
            failed.setdefault((measurement.guest, key_of(one.round)), []).append(measurement)
    labels = {round_.workload.name: round_.workload.labels for round_ in record.plan.rounds}
    places = _places(record)
    return tuple(
        Cell(
            guest=guest.name,
            vm_host=guest.vm_host,
            storage=guest.storage,
            key=key,
            planned=planned[guest.name, key],
            figures=tuple(figures.get((guest.name, key), ())),
            failed=tuple(failed.get((guest.name, key), ())),
            labels=labels[key[1]],
            places=places[guest.name],
        )
        for key in keys_of(record)
        for guest in record.plan.inventory.guests
        if (guest.name, key) in planned
    )


def _places(record: RunRecord) -> dict[str, dict[int, int]]:
    """At which place of its block each round of a guest stands, among those of its workload, target and load."""
    counts: dict[tuple[str, int, str, str, str], int] = {}
    found: dict[str, dict[int, int]] = {guest.name: {} for guest in record.plan.inventory.guests}
    for round_ in record.plan.rounds:
        target, workload, _, load = key_of(round_)
        for guest in round_.guests:
            at = (guest, round_.block, target, workload, load)
            found.setdefault(guest, {})[round_.index] = counts[at] = counts.get(at, -1) + 1
    return found
