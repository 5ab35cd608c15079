"""What is compared with what: sides of a comparison (runs, vm_hosts, engines, kernels ...) and the units that each is made of.

The unit is a round for a fleet, vm_host or group, its guests averaged inside it; it is a block for one guest, and under `alone`, where
a round holds only one guest of a domain. Repetitions are never pooled across guests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from calyx_orch import units
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


class Offered(NamedTuple):
    """What each job is given to do in a second, at most or, of an open loop, exactly: I/Os and bytes. None: no bound."""

    iops: int | None
    bytes_per_s: int | None

    def __str__(self) -> str:
        told = [] if self.iops is None else [f"{self.iops} IOPS"]
        told += [] if self.bytes_per_s is None else [units.format_rate(self.bytes_per_s)]
        return " and ".join(told) if told else "all that it takes"


@dataclass(frozen=True)
class Unit:
    """What repeats: the figures of all guests of a side in a round, or of one guest in a block.

    Units of two sides with the same `turn` (block, place in the block) were played side by side. `offered` are the rates that its rounds
    were planned with.
    """

    turn: tuple[int, int]
    figures: tuple[Figures, ...]
    offered: frozenset[Offered] = frozenset()


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
    return units_of_all([side], played)[0]


def units_of_all(sides: Sequence[Side], played: Sequence[Played]) -> list[dict[Key, tuple[Unit, ...]]]:
    """The units of several sides of one run, as `units_of` gives those of one: its rounds are walked once for all of them."""
    on: dict[str, list[int]] = {}  # guest -> places of the sides that it is on
    for place, side in enumerate(sides):
        for guest in side.guests:
            on.setdefault(guest, []).append(place)
    figures = {one.round.index: one.figures for one in played}
    turns: dict[tuple[int, Key, int], int] = {}
    gathered: list[dict[Key, list[Unit]]] = [{} for _ in sides]
    for round_ in sides[0].record.plan.rounds if sides else ():
        mine: dict[int, list[Figures]] = {place: [] for guest in round_.guests for place in on.get(guest, ())}
        for found in figures.get(round_.index, ()):
            for place in on.get(found.measurement.guest, ()):
                mine.setdefault(place, []).append(found)
        for place, measured in mine.items():
            if sides[place].engine not in (None, round_.engine):
                continue
            key = _key(sides[place], round_)
            turn = turns[place, key, round_.block] = turns.get((place, key, round_.block), -1) + 1
            if measured:
                unit = Unit((round_.block, turn), tuple(measured), frozenset({_offered(round_)}))
                gathered[place].setdefault(key, []).append(unit)
    return [
        {
            key: _blocks(mine) if len(side.guests) == 1 or key[3] == LoadMode.ALONE else tuple(mine)
            for key, mine in of.items()
        }
        for side, of in zip(sides, gathered, strict=True)
    ]


def fullest(of_sides: Sequence[Sequence[Unit]], *, enough: int) -> list[tuple[Unit, ...]]:
    """The units of each side cut to one set of guests, that was measured whole in all of them.

    A guest that fails leaves the storage to the others, so a unit without it is of another fleet. Of the sets that were seen, one with
    `enough` units on each side is preferred, then the one with most guests, then with most units.
    """

    def having(names: frozenset[str]) -> list[tuple[Unit, ...]]:
        return [tuple(_cut(unit, names) for unit in mine if names <= _names(unit)) for mine in of_sides]

    def worth(names: frozenset[str]) -> tuple[bool, int, int]:
        fewest = min(map(len, having(names)))
        return fewest >= enough, len(names), fewest

    seen = {_names(unit) for mine in of_sides for unit in mine}
    return having(max(sorted(seen, key=sorted), key=worth)) if seen else [() for _ in of_sides]


def _offered(round_: Round) -> Offered:
    return Offered(round_.workload.rate_iops, round_.workload.rate_bytes_per_s)


def _blocks(rounds: Sequence[Unit]) -> tuple[Unit, ...]:
    """A block as one unit, where a round is not the whole side."""
    blocks: dict[int, list[Unit]] = {}
    for unit in rounds:
        blocks.setdefault(unit.turn[0], []).append(unit)
    return tuple(
        Unit(
            (block, 0),
            tuple(found for unit in mine for found in unit.figures),
            frozenset[Offered]().union(*(unit.offered for unit in mine)),
        )
        for block, mine in blocks.items()
    )


def _cut(unit: Unit, names: frozenset[str]) -> Unit:
    return replace(unit, figures=tuple(found for found in unit.figures if found.measurement.guest in names))


def _names(unit: Unit) -> frozenset[str]:
    return frozenset(found.measurement.guest for found in unit.figures)


def _key(side: Side, round_: Round) -> Key:
    target, workload, engine, load = key_of(round_)
    return (target, workload, "" if side.engine is not None else engine, load)


def _calyx_first(engine: str) -> tuple[bool, str]:
    return engine != "calyx", engine


def _not_enough(record: RunRecord, fact: str, found: Sequence[Side]) -> str:
    if not any(one.status == "ok" for one in record.measurements):
        return f"cannot compare by {fact}: nothing was measured in {record.run_id}"
    known = f"all guests are on {fact} {found[0].name!r}" if found else f"no guest says what its {fact} is"
    facts = sorted(
        {name for told in record.facts.values() for name, value in told.items() if not isinstance(value, (dict, list))}
    )
    others = ", ".join(one for one in ("vm_host", "storage", "group", "guest", "engine") if one != fact)
    return (
        f"cannot compare by {fact}: {known}; two sides are needed. Choose another: {others}, "
        f"a label of the guests, or a fact{' such as ' + ', '.join(facts[:8]) if facts else ''}"
    )
