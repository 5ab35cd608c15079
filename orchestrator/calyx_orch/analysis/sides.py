"""What is compared with what: sides of a comparison (runs, vm_hosts, engines, kernels ...) and the units that each is made of.

The unit is a round for a fleet, vm_host or group, its guests averaged inside it; it is a block for one guest, and under `alone`, where
a round holds only one guest of a domain. Repetitions are never pooled across guests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calyx_orch.analysis.cells import Key, key_of
from calyx_orch.analysis.rounds import Figures, Played
from calyx_orch.errors import UsageError
from calyx_orch.model import Guest, LoadMode, Round, RunRecord

UNKNOWN = "unknown"
ENGINE = "engine"


@dataclass(frozen=True)
class Side:
    """One side: some guests of a run, by one engine (None: by any, engines then are compared like with like)."""

    name: str
    record: RunRecord
    guests: tuple[str, ...]
    engine: str | None = None


@dataclass(frozen=True)
class Unit:
    """What repeats: the figures of all guests of a side in a round, or of one guest in a block.

    Units of two sides with the same `turn` (block, place in the block) were played side by side.
    """

    turn: tuple[int, int]
    figures: tuple[Figures, ...]


def of_run(name: str, record: RunRecord, guests: Iterable[str] | None = None) -> Side:
    """A whole run, or those of its guests that are named, as one side."""
    wanted = None if guests is None else set(guests)
    planned = tuple(guest.name for guest in record.plan.inventory.guests if wanted is None or guest.name in wanted)
    return Side(name, record, planned)


def by_fact(record: RunRecord, fact: str) -> tuple[Side, ...]:
    """The sides of one run by `fact`: vm_host, storage, group, guest, engine, a label, or any fact that the guests told.

    A guest of several groups stands on several sides. Raises UsageError when there are fewer than two sides, naming what was found.
    """
    if fact == ENGINE:
        engines = {round_.engine for round_ in record.plan.rounds}
        found = [
            Side(engine, record, of_run("", record).guests, engine) for engine in sorted(engines, key=_calyx_first)
        ]
    else:
        members: dict[str, list[str]] = {}
        for guest in record.plan.inventory.guests:
            for value in values_of(guest, record.facts.get(guest.name, {}), fact):
                members.setdefault(value, []).append(guest.name)
        found = [Side(value, record, tuple(guests)) for value, guests in members.items() if value != UNKNOWN]
    if len(found) < 2:
        raise UsageError(_not_enough(record, fact, found))
    return tuple(found)


def values_of(guest: Guest, facts: Mapping[str, Any], fact: str) -> tuple[str, ...]:
    """What a guest says of a fact, as text; a dotted name reaches into facts (`fio.version`); `unknown` when nobody said."""
    match fact:
        case "guest":
            return (guest.name,)
        case "vm_host" | "storage":
            return (getattr(guest, fact) or UNKNOWN,)
        case "group":
            return guest.groups or (UNKNOWN,)
    if fact in guest.labels:
        return (guest.labels[fact],)
    value: Any = facts
    for part in fact.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return (UNKNOWN,) if value is None or isinstance(value, (Mapping, list)) else (str(value),)


def units_of(side: Side, played: Sequence[Played]) -> dict[Key, tuple[Unit, ...]]:
    """Every unit of a side under each key (target, workload, engine, load; no engine where the sides are engines).

    The units of one key may hold different guests, where some were lost: `fullest` makes them alike.
    """
    at = {one.round.index: one for one in played}
    turns: dict[tuple[Key, int], int] = {}
    gathered: dict[Key, list[Unit]] = {}
    for round_ in side.record.plan.rounds:
        if side.engine not in (None, round_.engine) or not set(side.guests).intersection(round_.guests):
            continue
        key = _key(side, round_)
        turn = turns.setdefault((key, round_.block), 0)
        turns[key, round_.block] += 1
        one = at.get(round_.index)
        mine = tuple(found for found in (one.figures if one else ()) if found.measurement.guest in side.guests)
        if mine:
            gathered.setdefault(key, []).append(Unit((round_.block, turn), mine))
    return {
        key: _blocks(units) if len(side.guests) == 1 or key[3] == LoadMode.ALONE else tuple(units)
        for key, units in gathered.items()
    }


def fullest(sides: Sequence[Sequence[Unit]], *, enough: int) -> list[tuple[Unit, ...]]:
    """The units of each side cut to one set of guests, that was measured whole in all of them.

    A guest that fails leaves the storage to the others, so a unit without it is of another fleet. Of the sets that were seen, one with
    `enough` units on each side is preferred, then the one with most guests, then with most units.
    """

    def having(names: frozenset[str]) -> list[tuple[Unit, ...]]:
        return [tuple(_cut(unit, names) for unit in units if names <= _names(unit)) for units in sides]

    def worth(names: frozenset[str]) -> tuple[bool, int, int]:
        fewest = min(len(units) for units in having(names))
        return fewest >= enough, len(names), fewest

    seen = {_names(unit) for units in sides for unit in units}
    return having(max(sorted(seen, key=sorted), key=worth)) if seen else [() for _ in sides]


def _blocks(units: Sequence[Unit]) -> tuple[Unit, ...]:
    """A block as one unit, where a round is not the whole side."""
    blocks: dict[int, list[Figures]] = {}
    for unit in units:
        blocks.setdefault(unit.turn[0], []).extend(unit.figures)
    return tuple(Unit((block, 0), tuple(figures)) for block, figures in blocks.items())


def _cut(unit: Unit, names: frozenset[str]) -> Unit:
    return Unit(unit.turn, tuple(found for found in unit.figures if found.measurement.guest in names))


def _names(unit: Unit) -> frozenset[str]:
    return frozenset(found.measurement.guest for found in unit.figures)


def _key(side: Side, round_: Round) -> Key:
    target, workload, engine, load = key_of(round_)
    return (target, workload, "" if side.engine is not None else engine, load)


def _calyx_first(engine: str) -> tuple[bool, str]:
    return engine != "calyx", engine


def _not_enough(record: RunRecord, fact: str, found: Sequence[Side]) -> str:
    known = f"all guests are on {fact} {found[0].name!r}" if found else f"no guest says what its {fact} is"
    facts = sorted(
        {name for told in record.facts.values() for name, value in told.items() if not isinstance(value, (dict, list))}
    )
    return (
        f"cannot compare by {fact}: {known}; two sides are needed. Choose another: vm_host, storage, group, guest, engine, "
        f"a label of the guests, or a fact{' such as ' + ', '.join(facts[:8]) if facts else ''}"
    )
