"""What a continued run knows of its earlier part, and whether guests are still those that were measured then. Pure.

Figures of before and after stand in one table. So what would make them figures of two different things refuses: another agent
(the engine itself), kernel, fio, machine, CPU count, file system, disk or way of queueing, another set-up that takes effect. What
may be the same thing is a doubt: a guest that was started anew is the same guest, but its hypervisor may have placed it elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from calyx_orch.analysis.validity import REBOOTED
from calyx_orch.errors import RefusedError
from calyx_orch.model import Found, Inventory, Measurement, Pin, Plan, Resumed
from calyx_orch.plan.standing import Standing
from calyx_orch.runner import identity
from calyx_orch.runner.session import Session

SETUP_FACTS = (
    "took",
    "sqpoll",
    "fixed_files",
    "fixed_buffers",
    "refill",
    "direct",
    "iopoll",
    "huge",
    "transparent_huge",
    "numa",
    "psync",
)
REACHED_BY = (
    "connection",
    "labels",
    "groups",
    "agent_dir",
    "line",
)  # of a guest: how it is reached, and what it is called
DIFFERENCES_SHOWN = 20


@dataclass(frozen=True)
class Earlier:
    """The part of a run that stands: its measurements, what its guests said of themselves, what its searches found.

    `attempt` counts: the first resume is the second attempt. `resumed_at` is ISO 8601, `gap_s` the time since the last round that
    stands.
    """

    standing: Standing
    measurements: tuple[Measurement, ...] = ()
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    found: tuple[Found, ...] = ()
    attempt: int = 2
    resumed_at: str = ""
    gap_s: float = 0.0

    def resumed(self, rebooted: tuple[str, ...] = ()) -> Resumed:
        """What the run folder keeps of it."""
        standing = self.standing
        return Resumed(self.resumed_at, self.gap_s, len(standing.kept), len(standing.again), rebooted)

    @property
    def measured(self) -> frozenset[str]:
        """Guests with a figure that stands."""
        return frozenset(one.guest for one in self.measurements if one.status == "ok")


def refuse_others(earlier: Earlier, sessions: Sequence[Session]) -> None:
    """Raise RefusedError when a guest is not what it was when it was measured; it names every fact that differs."""
    lines = []
    for session in sessions:
        name = session.guest.name
        if name in earlier.measured:
            agent = str(session.agent.hello.get("sha256", ""))
            found = [
                *_agent(earlier.standing.agents.get(name), agent),
                *identity.differences(earlier.facts.get(name, {}), session.facts),
            ]
            lines += [f"guest {name}: {one}" for one in found]
    _refuse(lines)


def refuse_other_setups(earlier: Earlier, sessions: Sequence[Session]) -> None:
    """Raise RefusedError when calyx's set-up that takes effect is not the one with which a guest was measured."""
    before = {
        (one.guest, one.workload, one.target): one.setup
        for one in earlier.measurements
        if one.engine == "calyx" and one.status == "ok"
    }
    lines = []
    for session in sessions:
        for (workload, target), taken in session.taken.items():
            then = before.get((session.guest.name, workload, target), {})
            lines += [
                f"guest {session.guest.name}: set-up of workload '{workload}' on {target}: {key} was {then[key]}, is {taken[key]}"
                for key in SETUP_FACTS
                if key in then and key in taken and then[key] != taken[key]
            ]
    _refuse(lines)


def _refuse(lines: Sequence[str]) -> None:
    if lines:
        more = [f"and {len(lines) - DIFFERENCES_SHOWN} differences more"] if len(lines) > DIFFERENCES_SHOWN else []
        told = "\n  ".join([*lines[:DIFFERENCES_SHOWN], *more])
        raise RefusedError(
            "not resumed, as the figures of before and after would be of different things:\n  "
            f"{told}\nput it back as it was, or begin a new run; what was measured is kept"
        )


def _agent(before: str | None, now: str) -> list[str]:
    if not before or before == now:
        return []
    return [
        f"agent sha256 was {before[:12]}, is {now[:12]}: the engine is another (was calyx-orch updated in between?)"
    ]


def pins_that_hold(earlier: Earlier | None, plan: Plan, sessions: Mapping[str, Session]) -> tuple[Pin, ...] | None:
    """The set-ups that were chosen before, of the guests that are there; None when they were not chosen for all."""
    if earlier is None or not earlier.measurements:
        return None
    pins = {(pin.guest, pin.workload, pin.target): pin for pin in plan.pins if pin.guest in sessions}
    wanted = {
        (name, one.workload.name, one.target)
        for one in plan.rounds
        for name in one.guests
        if name in sessions and one.workload.setup == "auto"
    }
    return tuple(pins.values()) if wanted <= pins.keys() else None


def rebooted(earlier: Earlier, sessions: Iterable[Session]) -> tuple[str, ...]:
    """Measured guests that were started anew since: a doubt, not a refusal."""
    found = []
    for session in sessions:
        name = session.guest.name
        before, now = earlier.facts.get(name, {}).get("boot_id"), session.facts.get("boot_id")
        if name in earlier.measured and before and now and before != now:
            found.append(name)
    return tuple(found)


def doubted(found: Sequence[Measurement], rebooted: Sequence[str]) -> tuple[Measurement, ...]:
    """Measurements with the doubt of guests that were started anew."""
    return tuple(replace(one, doubts=(*one.doubts, REBOOTED)) if one.guest in rebooted else one for one in found)


def inventory_differences(ours: Inventory, other: Inventory) -> list[str]:
    """What of another text of the inventory would change the plan of a run, as sentences. How guests are reached may change."""
    found = []
    guests = {guest.name: guest for guest in other.guests}
    for guest in ours.guests:
        new = guests.get(guest.name)
        if new is None:
            found.append(f"guest {guest.name} is not in it")
            continue
        found += [
            f"guest {guest.name}: {key} was {_short(value)}, is {_short(getattr(new, key))}"
            for key, value in vars(guest).items()
            if key not in REACHED_BY and getattr(new, key) != value
        ]
    workloads = {workload.name: workload for workload in other.workloads}
    for workload in ours.workloads:
        there = workloads.get(workload.name)
        if there is None:
            found.append(f"workload {workload.name} is not in it")
            continue
        found += [
            f"workload {workload.name}: {key} was {_short(value)}, is {_short(getattr(there, key))}"
            for key, value in vars(workload).items()
            if getattr(there, key) != value
        ]
    found += [
        f"{key} was {_short(getattr(ours, key))}, is {_short(getattr(other, key))}"
        for key in ("baselines", "load", "impact", "settle_s", "stagger_s", "lost_time_probe_s")
        if getattr(ours, key) != getattr(other, key)
    ]
    return found


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "..."
