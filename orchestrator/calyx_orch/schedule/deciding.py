"""What is to be done with due times: fire, queue, skip or miss. Pure: clocks are handed in.

    due, at most LATE_S ago             fires, or by `overlap` waits or is skipped when a run is in the way
    due while the clock was stepped     fires: the step jumped over it; of a step of more than STEP_MAX_S it is missed
    due longer ago                      missed; with `catch_up: once` the newest of these fires, unless one that is on time does

At most one fires at a time. `considered_s` moves on with each decision, so nothing is decided twice; where the clock goes back a
little, nothing is due until it has caught up. A clock that shows a time before the schedule was added is wrong: nothing is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from calyx_orch.schedule.times import LISTED, Times

LATE_S = 90.0  # a daemon that was busy or just started may be so late
STEP_MAX_S = 3 * 3600.0  # no clock is set right by more while it measures nights
BACK_MAX_S = 86400.0  # a clock that goes back further was wrong before
QUEUE_S = 3600.0  # a firing waits so long behind another, without --max-duration

State = Literal["running", "queued", "finished", "failed", "interrupted", "skipped", "missed"]
OVER: tuple[State, ...] = ("finished", "failed", "interrupted", "skipped", "missed")


@dataclass(frozen=True)
class Settings:
    """What `schedule add` said. `inventory` is a whole path, `runs` the directory of run folders.

    `notify` and `ping` name where a secret is (env:NAME or file:PATH), never the secret; `link` stands before a run's folder name.
    """

    inventory: str
    cron: str
    timezone: str
    runs: str
    max_duration_s: float | None = None
    retry: int = 0
    overlap: Literal["skip", "queue"] = "skip"
    catch_up: Literal["none", "once"] = "none"
    interrupted: Literal["mark", "resume", "retry"] = "mark"
    keep: str = ""
    notify: str = ""
    quiet: bool = False
    ping: str = ""
    link: str = ""
    allow_growth: bool = False

    @property
    def times(self) -> Times:
        """When it is due."""
        return Times(self.cron, self.timezone)


@dataclass(frozen=True)
class Schedule:
    """A schedule as the store has it."""

    name: str
    settings: Settings
    added_s: float
    considered_s: float
    paused: bool = False


@dataclass(frozen=True)
class Firing:
    """One due time of a schedule and what became of it. `places` are the domains that it burdens."""

    schedule: str
    due_s: int
    state: State
    kind: str = "planned"
    reason: str = ""
    attempt: int = 1
    daemon: str = ""
    lease_s: float = 0.0
    started_s: float | None = None
    ended_s: float | None = None
    run_id: str | None = None
    folder: str = ""
    inventory_sha256: str = ""
    places: tuple[str, ...] = ()
    verdict: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    notice: str = ""
    notice_tries: int = 0
    notice_next_s: float = 0.0
    notice_why: str = ""
    message: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What becomes of one due time."""

    due_s: int
    state: State
    kind: str
    reason: str = ""


@dataclass(frozen=True)
class Decision:
    """What becomes of all that is due, and up to when that has been decided."""

    considered_s: float
    verdicts: tuple[Verdict, ...] = ()


def decide(
    schedule: Schedule,
    *,
    now_s: float,
    stepped_s: float = 0.0,
    in_the_way: str = "",
    is_waiting: bool = False,
    fired: frozenset[int] = frozenset(),
) -> Decision:
    """Judge the times that became due since they were judged last.

    `stepped_s` is by how much the wall clock went on beyond the time that passed; `in_the_way` names a run that burdens the same
    places, `is_waiting`: a firing of this schedule waits already; `fired` are due times that have a record.
    """
    if now_s < schedule.added_s:
        return Decision(schedule.considered_s)
    considered_s = schedule.considered_s
    if considered_s - now_s > BACK_MAX_S:
        considered_s = now_s
    if schedule.paused or now_s <= considered_s:
        return Decision(now_s if schedule.paused else considered_s)
    times = schedule.settings.times
    due = [at_s for at_s in times.between(max(considered_s, schedule.added_s), now_s) if at_s not in fired]
    if not due:
        return Decision(now_s)
    jumped_s = stepped_s if 0 < stepped_s <= STEP_MAX_S else 0.0
    newest, older = due[-1], due[:-1]
    late_s = now_s - newest
    if late_s <= LATE_S + jumped_s:
        chosen = _admitted(schedule, newest, "planned", in_the_way, is_waiting)
    elif schedule.settings.catch_up == "once":
        chosen = _admitted(schedule, newest, "catch-up", in_the_way, is_waiting)
    else:
        chosen = Verdict(newest, "missed", "planned", _missed(late_s))
    missed = tuple(Verdict(at_s, "missed", "planned", _missed(now_s - at_s)) for at_s in older[-LISTED:])
    return Decision(now_s, (*missed, chosen))


def may_still_start(schedule: Schedule, firing: Firing, now_s: float) -> bool:
    """Whether a firing that waited, or is tried again, still belongs to its due time and not to another part of the day."""
    begun_s = firing.due_s if firing.kind == "planned" else firing.started_s or firing.due_s
    return now_s - begun_s <= (schedule.settings.max_duration_s or QUEUE_S)


def is_wanted_again(schedule: Schedule, firing: Firing, now_s: float) -> bool:
    """Whether a firing that failed is tried once more."""
    return firing.attempt <= schedule.settings.retry and may_still_start(schedule, firing, now_s)


def _admitted(schedule: Schedule, due_s: int, kind: str, in_the_way: str, is_waiting: bool) -> Verdict:
    if is_waiting:
        return Verdict(due_s, "skipped", kind, "an earlier firing of this schedule still waits")
    if not in_the_way:
        return Verdict(due_s, "running", kind)
    if schedule.settings.overlap == "queue":
        return Verdict(due_s, "queued", kind, f"waits for {in_the_way}")
    return Verdict(due_s, "skipped", kind, f"in the way: {in_the_way}")


def _missed(late_s: float) -> str:
    hours = late_s / 3600
    return f"no daemon was at work then; seen {hours:.1f} h late" if hours >= 0.1 else f"seen {late_s:.0f} s late"
