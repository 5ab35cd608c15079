"""How far a run got, by its journal: which rounds stand, which are measured again, who stays out. Pure.

A run is continued where it broke off, in the order of its plan. What stands are rounds that ended by themselves, with a
measurement of every guest that took part, up to the last in which somebody was measured. A block of one workload (its engines'
turns, ABBA) stands whole or not at all: it is balanced only when no gap lies in it. What follows is forgotten, losses included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from calyx_orch.model import Found, Measurement, Plan, Round

Entry = Mapping[str, Any]  # one line of the journal


@dataclass(frozen=True)
class Standing:
    """Where a run goes on.

    `plan` is the run's, without rounds of a search that had not ended; `kept` are the indices of the rounds that stand and
    `again` those that were begun and are measured again; `out` the guests that stay out: the step and the reason. `searches` is
    how many searches have ended. `agents` are the digests of the agents that measured, by guest; `ended_at_s` is when the last
    round that stands ended, in seconds since 1970.
    """

    plan: Plan
    kept: frozenset[int]
    again: frozenset[int]
    missing: tuple[Round, ...]
    searches: int
    out: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    agents: Mapping[str, str] = field(default_factory=dict)
    ended_at_s: float | None = None

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to be measured."""
        return not self.missing and self.searches >= len(self.plan.searches)


@dataclass
class _Journal:
    """What the lines of the journal add up to."""

    begun: dict[int, tuple[str, ...]] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)  # round -> why it ended early, empty: by itself
    at_s: dict[int, float] = field(default_factory=dict)  # round -> when it ended
    out: dict[int, dict[str, tuple[str, str]]] = field(default_factory=dict)  # after which round -> who was given up
    searches: dict[int, int] = field(default_factory=dict)  # search -> its first round
    agents: dict[str, str] = field(default_factory=dict)  # guest -> digest of the agent that took part in a round


def standing(
    plan: Plan,
    entries: Iterable[Entry],
    measurements: Iterable[Measurement],
    found: Sequence[Found],
    *,
    is_finished: bool,
) -> Standing:
    """Where the run of these documents goes on. `is_finished`: it came to its own end, so nothing but failures can be missing."""
    said = _read(entries)
    answered: dict[int, set[str]] = {}
    good: set[int] = set()
    for one in measurements:
        answered.setdefault(one.round_index, set()).add(one.guest)
        if one.status == "ok":
            good.add(one.round_index)
    whole = {
        index
        for index, guests in said.begun.items()
        if said.ended.get(index) == "" and set(guests) <= answered.get(index, set())
    }
    broken = min((index for index in said.begun if index not in whole), default=None)
    last = max((index for index in whole & good if broken is None or index < broken), default=-1)
    first_of_searches = said.searches.get(0)
    fixed = [one for one in plan.rounds if first_of_searches is None or one.index < first_of_searches]
    missing = _from_a_whole_block(fixed, last)
    if is_finished and not any(index > last for index in said.begun):
        missing = ()  # what was not begun had no guest, or no engine
    searches = 0 if missing else min(len(found), len(plan.searches))
    end = missing[0].index if missing else said.searches.get(searches)
    behind = (*fixed, *(one for one in plan.rounds[len(fixed) :] if not missing and (end is None or one.index < end)))
    kept = frozenset(index for index in whole if end is None or index < end)
    after = max((index for index in kept), default=None)
    out = {} if after is None else dict(said.out.get(after, {}))
    return Standing(
        plan=replace(plan, rounds=behind),
        kept=kept,
        again=frozenset(said.begun) - kept,
        missing=missing,
        searches=searches,
        out=out,
        agents=said.agents,
        ended_at_s=None if after is None else said.at_s.get(after),
    )


def strangers(plan: Plan, kept: frozenset[int], measurements: Iterable[Measurement]) -> list[str]:
    """Measurements of rounds that stand and are not what the plan's round of that number measures, as sentences."""
    rounds = {one.index: one for one in plan.all_rounds}
    found = []
    for one in measurements:
        if one.round_index not in kept:
            continue  # it is put aside
        what = f"round {one.round_index + 1} of guest {one.guest}"
        round_ = rounds.get(one.round_index)
        if round_ is None or one.guest not in round_.guests:
            found.append(f"{what} is not in the plan")
            continue
        pairs = (
            ("workload", one.workload, round_.workload.name),
            ("engine", one.engine, round_.engine),
            ("target", one.target, round_.target),
            ("block", one.block, round_.block),
            ("load", one.load, round_.load_name),
        )
        found += [f"{what} has {key} {has}, in the plan it is {wanted}" for key, has, wanted in pairs if has != wanted]
    return found


def _from_a_whole_block(rounds: Sequence[Round], last: int) -> tuple[Round, ...]:
    """The rounds after `last`, and those before that share their block with one of them."""
    at = next((at for at, one in enumerate(rounds) if one.index > last), len(rounds))
    while 0 < at < len(rounds) and _block(rounds[at - 1]) == _block(rounds[at]):
        at -= 1
    return tuple(rounds[at:])


def _block(one: Round) -> tuple[object, ...]:
    return one.block, one.workload.name, one.target, one.load, one.guests


def _read(entries: Iterable[Entry]) -> _Journal:
    """Add up the journal of a run, also one that was resumed before."""
    said = _Journal()
    last, deployed = -1, dict[str, str]()
    given_up: dict[str, tuple[str, str]] = {}  # made anew at every change: each round keeps its own
    for entry in entries:
        match entry:
            case {"event": "resumed", "kept": [*kept], "out": {**out}}:
                stays = {index for index in kept if isinstance(index, int)}
                said.begun = {index: guests for index, guests in said.begun.items() if index in stays}
                said.ended = {index: why for index, why in said.ended.items() if index in stays}
                said.out = {index: who for index, who in said.out.items() if index in stays}
                pairs: Mapping[Any, Any] = out
                given_up = {str(name): (str(said_of[0]), str(said_of[1])) for name, said_of in pairs.items()}
                said.out[max(stays, default=-1)] = given_up
                last = -1
            case {"event": "reopened"}:
                last = -1  # who cannot be reached now was there in the rounds that stand
            case {"event": "round", "round": int(index), "guests": [*guests]}:
                said.begun[index] = tuple(map(str, guests))
                said.ended.pop(index, None)
                last = -1
            case {"event": "done", "round": int(index)}:
                said.ended[index] = str(entry.get("because", ""))
                said.at_s[index] = float(entry.get("wall_s", 0.0))
                said.out[index] = given_up
                said.agents.update(deployed)
                last = index
            case {"event": "gave up", "guest": str(name)}:
                given_up = {**given_up, name: (str(entry.get("step", "")), str(entry.get("reason", "")))}
                if last in said.ended:  # in that round, or before the next
                    said.out[last] = given_up
            case {"event": "search", "search": int(number), "round": int(index)}:
                said.searches[number] = index
            case {"event": "deployed", "guest": str(name), "hello": {"sha256": str(digest)}}:
                deployed[name] = digest
            case _:
                pass
    return said
