"""One round as a pure state machine: `step(progress, event) -> (progress, actions)`.

    guest   PREPARING --Ready--> READY --Armed--> ARMED --Started--> RUNNING --Reported--> REPORTED
            FAILED(reason): this round failed there, the agent lives on; LOST(reason): nobody answers any more

    phase   LOADING    every guest opens, registers and allocates; nobody is armed before every guest is ready or given up
            STARTING   the start line is set; guests run until each has reported
            STOPPING   an interrupt, a round that harms, or too few guests by the policy: those that run are told to stop
            DONE       nothing is awaited

No clock is read here: every event says when it happened (`at_ns`, controller's monotonic clock), and `Tick` lets time pass.
The journal of a run is the list of these events; replaying them gives the same actions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from calyx_orch.model import Policy


class GuestState(StrEnum):
    """Where one guest is within a round."""

    PREPARING = "preparing"
    READY = "ready"
    ARMED = "armed"
    RUNNING = "running"
    REPORTED = "reported"
    FAILED = "failed"
    LOST = "lost"


_ALIVE = frozenset({GuestState.PREPARING, GuestState.READY, GuestState.ARMED, GuestState.RUNNING, GuestState.REPORTED})
_AWAITED = frozenset({GuestState.PREPARING, GuestState.READY, GuestState.ARMED, GuestState.RUNNING})

_BEFORE = {
    GuestState.READY: frozenset({GuestState.PREPARING}),
    GuestState.ARMED: frozenset({GuestState.READY}),
    GuestState.RUNNING: frozenset({GuestState.READY, GuestState.ARMED}),
}


class Phase(StrEnum):
    """Where a round is."""

    LOADING = "loading"
    STARTING = "starting"
    STOPPING = "stopping"
    DONE = "done"


@dataclass(frozen=True)
class Rules:
    """What the plan says about time and loss, in nanoseconds.

    The policy counts the fleet, not the round: `fleet` is how many guests the run was planned with (0: those of the round), and
    `elsewhere` how many of them are alive and have no part in this round.
    """

    policy: Policy
    ready_within_ns: int
    report_within_ns: int
    stop_within_ns: int
    fleet: int = 0
    elsewhere: int = 0


@dataclass(frozen=True)
class GuestProgress:
    """One guest's state and, when it failed or was lost, the sentence that says why."""

    name: str
    state: GuestState
    reason: str = ""


@dataclass(frozen=True)
class RoundProgress:
    """All that is known of one round. `deadline_ns` is when the present phase is given up."""

    rules: Rules
    guests: tuple[GuestProgress, ...]
    phase: Phase = Phase.LOADING
    deadline_ns: int = 0
    interrupted: bool = False
    harmed: str = ""  # by what a guest showed that the round harms
    stopped_because: str = ""

    def named(self, *states: GuestState) -> tuple[str, ...]:
        """Names of the guests in one of these states."""
        return tuple(guest.name for guest in self.guests if guest.state in states)

    def has(self, *states: GuestState) -> bool:
        """Whether a guest is in one of these states."""
        return any(guest.state in states for guest in self.guests)

    def state_of(self, name: str) -> GuestProgress:
        """The progress of one guest."""
        return next(guest for guest in self.guests if guest.name == name)


# --- events ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """Something that happened at `at_ns`."""

    at_ns: int


@dataclass(frozen=True)
class Opened(Event):
    """The round begins with these guests; `harmed`: it does not, for what they showed before."""

    guests: tuple[str, ...]
    harmed: str = ""


@dataclass(frozen=True)
class Ready(Event):
    """A guest has everything open, registered and allocated."""

    guest: str


@dataclass(frozen=True)
class Armed(Event):
    """A guest knows the start line and has time left to reach it."""

    guest: str


@dataclass(frozen=True)
class Started(Event):
    """A guest has published its first I/O."""

    guest: str


@dataclass(frozen=True)
class Reported(Event):
    """A guest has answered with its result."""

    guest: str


@dataclass(frozen=True)
class Failed(Event):
    """A guest could not do this round; its agent lives."""

    guest: str
    reason: str


@dataclass(frozen=True)
class Lost(Event):
    """A guest's agent is gone."""

    guest: str
    reason: str


@dataclass(frozen=True)
class Harmed(Event):
    """A guest shows that the round harms it or its neighbours."""

    reason: str


@dataclass(frozen=True)
class Interrupted(Event):
    """The user wants to end."""


@dataclass(frozen=True)
class Tick(Event):
    """Time has passed."""


# --- actions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """Tell a guest its job."""

    guest: str


@dataclass(frozen=True)
class Arm:
    """Set one start line for these guests."""

    guests: tuple[str, ...]


@dataclass(frozen=True)
class Stop:
    """Tell a guest to stop."""

    guest: str


@dataclass(frozen=True)
class Abandon:
    """Wait no longer for a guest: it did not answer in time."""

    guest: str
    reason: str


@dataclass(frozen=True)
class Finish:
    """The round is over. `because` is empty when it ran to its end."""

    because: str


Action = Load | Arm | Stop | Abandon | Finish


def open_round(
    guests: Iterable[str], rules: Rules, *, at_ns: int, harmed: str = ""
) -> tuple[RoundProgress, tuple[Action, ...]]:
    """Begin a round: every guest is told its job. With `harmed`, why it would harm, it is over before anyone is told."""
    if harmed:
        failed = tuple(GuestProgress(name, GuestState.FAILED, harmed) for name in guests)
        return RoundProgress(rules, failed, Phase.DONE, at_ns, harmed=harmed, stopped_because=harmed), (Finish(harmed),)
    states = tuple(GuestProgress(name, GuestState.PREPARING) for name in guests)
    progress = RoundProgress(rules, states, deadline_ns=at_ns + rules.ready_within_ns)
    return progress, tuple(Load(guest.name) for guest in states)


def step(progress: RoundProgress, event: Event) -> tuple[RoundProgress, tuple[Action, ...]]:
    """Take one event into account and say what is to be done now."""
    if progress.phase is Phase.DONE:
        return progress, ()
    progress, expired = _expire(_note(progress, event), event.at_ns)
    progress, actions = _decide(progress, event)
    return progress, expired + actions


def is_quorum_met(policy: Policy, *, alive: int, planned: int) -> bool:
    """Whether a run may go on with `alive` of `planned` guests."""
    if alive == 0:
        return False
    if policy.on_lost == "stop":
        return alive == planned
    return policy.quorum is None or alive >= policy.quorum * planned - 1e-9  # 55 % of 20 is 11, also in floats


# --- the journal ---------------------------------------------------------------------------------------------------

_EVENTS: dict[str, type[Event]] = {
    kind.__name__: kind for kind in (Ready, Armed, Started, Reported, Failed, Lost, Harmed, Interrupted, Tick)
}


def to_entry(event: Event) -> dict[str, Any]:
    """What the journal holds of an event, besides its name and time."""
    return {name: value for name, value in vars(event).items() if name != "at_ns"}


def told(actions: Iterable[Action]) -> list[list[Any]]:
    """Actions as the journal holds them: `["Arm", ["a", "b"]]`."""
    return [
        [type(one).__name__, *(list(v) if isinstance(v, tuple) else v for v in vars(one).values())] for one in actions
    ]


def replay(entries: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], list[list[Any]]]]:
    """Play one round of a journal again, from its `Opened` on: each entry that is an event, with the actions it leads to now.

    The journal holds the actions that it led to then as `actions` of the entry: the same, whatever became of the run since.
    Raises ValueError where the first event is not `Opened`.
    """
    progress: RoundProgress | None = None
    for entry in entries:
        if entry["event"] == "Opened":
            rules = Rules(**{**entry["rules"], "policy": Policy(**entry["rules"]["policy"])})
            progress, actions = open_round(entry["guests"], rules, at_ns=entry["at_ns"], harmed=entry.get("harmed", ""))
            yield entry, told(actions)
        elif kind := _EVENTS.get(entry["event"]):
            if progress is None:
                raise ValueError(f"a round whose journal begins with {entry['event']}")
            fields = [one.name for one in dataclasses.fields(kind)]
            progress, actions = step(progress, kind(**{name: entry[name] for name in fields}))
            yield entry, told(actions)


# --- one step ------------------------------------------------------------------------------------------------------


def _note(progress: RoundProgress, event: Event) -> RoundProgress:
    match event:
        case Ready(guest=name):
            return _move(progress, name, GuestState.READY)
        case Armed(guest=name):
            return _move(progress, name, GuestState.ARMED)
        case Started(guest=name):
            return _move(progress, name, GuestState.RUNNING)
        case Reported(guest=name):
            return _move(progress, name, GuestState.REPORTED)
        case Failed(guest=name, reason=reason):
            return _move(progress, name, GuestState.FAILED, reason)
        case Lost(guest=name, reason=reason):
            return _move(progress, name, GuestState.LOST, reason)
        case Harmed(reason=reason):
            return replace(progress, harmed=progress.harmed or reason)
        case Interrupted():
            return replace(progress, interrupted=True)
        case _:
            return progress


def _move(progress: RoundProgress, name: str, state: GuestState, reason: str = "") -> RoundProgress:
    """Move one guest, never backwards: what is reported, failed or lost stays so."""
    before = _BEFORE.get(state, _AWAITED)
    if state in (GuestState.ARMED, GuestState.RUNNING) and progress.phase is Phase.LOADING:
        return progress  # nobody was told a start line yet: a guest that says so is wrong
    guests = progress.guests
    at = next((number for number, guest in enumerate(guests) if guest.name == name), None)
    if at is None or guests[at].state not in before:
        return progress
    return replace(progress, guests=(*guests[:at], GuestProgress(name, state, reason), *guests[at + 1 :]))


def _expire(progress: RoundProgress, now_ns: int) -> tuple[RoundProgress, tuple[Action, ...]]:
    if now_ns < progress.deadline_ns:
        return progress, ()
    late = progress.named(GuestState.PREPARING) if progress.phase is Phase.LOADING else progress.named(*_AWAITED)
    reason = _lateness(progress)
    for name in late:
        progress = _move(progress, name, GuestState.LOST, reason)
    return progress, tuple(Abandon(name, reason) for name in late)


def _lateness(progress: RoundProgress) -> str:
    rules = progress.rules
    match progress.phase:
        case Phase.LOADING:
            return f"not ready within {rules.ready_within_ns / 1e9:.0f} s"
        case Phase.STARTING:
            return f"no result within {rules.report_within_ns / 1e9:.0f} s of the start line, grace included"
        case _:
            return f"did not stop within {rules.stop_within_ns / 1e9:.0f} s"


def _decide(progress: RoundProgress, event: Event) -> tuple[RoundProgress, tuple[Action, ...]]:
    why = _reason_to_stop(progress)
    if why and progress.phase is not Phase.STOPPING:
        return _stop(progress, why, event.at_ns)
    if progress.phase is Phase.LOADING and not progress.has(GuestState.PREPARING):
        ready = progress.named(GuestState.READY)
        if ready:
            deadline_ns = event.at_ns + progress.rules.report_within_ns
            return replace(progress, phase=Phase.STARTING, deadline_ns=deadline_ns), (Arm(ready),)
    if not progress.has(*_AWAITED):
        return replace(progress, phase=Phase.DONE), (Finish(progress.stopped_because),)
    return progress, ()


def _reason_to_stop(progress: RoundProgress) -> str:
    if progress.interrupted:
        return "interrupted"
    if progress.harmed:
        return progress.harmed
    rules = progress.rules
    if rules.policy.on_lost == "continue" and rules.policy.quorum is None:
        return ""
    here = sum(guest.state in _ALIVE for guest in progress.guests)
    alive, planned = here + rules.elsewhere, rules.fleet or len(progress.guests)
    if not is_quorum_met(rules.policy, alive=alive, planned=planned):
        return f"policy: {alive} of {planned} guests are left"
    return ""


def _stop(progress: RoundProgress, why: str, now_ns: int) -> tuple[RoundProgress, tuple[Action, ...]]:
    running = progress.named(*_AWAITED)
    deadline_ns = now_ns + progress.rules.stop_within_ns
    progress = replace(progress, phase=Phase.STOPPING, stopped_because=why, deadline_ns=deadline_ns)
    if not running:
        return replace(progress, phase=Phase.DONE), (Finish(why),)
    return progress, tuple(Stop(name) for name in running)
