"""Who fires what: due times are claimed in the store, where no two daemons decide at once.

One due time is one row, put in under a lock by the daemon that fires it. What is to be done is in `deciding`; here it is looked up and
written down, in one transaction each. All of this blocks: the daemon has it done in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from calyx_orch.errors import UsageError
from calyx_orch.schedule import telling
from calyx_orch.schedule.copying import Copied
from calyx_orch.schedule.deciding import LATE_S, OVER, Decision, Firing, Schedule, decide, may_still_start
from calyx_orch.schedule.rows import firing_of, schedule_of
from calyx_orch.store.schedules import Deciding, Row, Schedules

IsAbandoned = Callable[[Row], bool]


@dataclass(frozen=True)
class Looked:
    """What a schedule's inventory was at a look: `copied` is None, and `trouble` says why, where it could not be read."""

    copied: Copied | None = None
    trouble: str = ""

    @property
    def places(self) -> tuple[str, ...]:
        """What a run of it burdens."""
        return () if self.copied is None else self.copied.places


@dataclass(frozen=True)
class Claims:
    """The claims of one daemon, whose name is `daemon`. Each method raises UsageError when the store fails."""

    store: Schedules
    daemon: str
    lease_s: float

    def due(self, name: str, looked: Looked, *, looked_s: float, stepped_s: float, now_s: float) -> tuple[Firing, ...]:
        """Decide what was due when the daemon looked (`looked_s`), and put it down; what is `running` then is this daemon's from now on."""
        sha256 = "" if looked.copied is None else self.store.keep_inventory(looked.copied.text)
        with self.store.deciding() as deciding:
            row = deciding.schedule(name)
            if row is None:
                return ()
            schedule = schedule_of(row)
            at_work = [firing_of(one) for one in deciding.at_work()]
            decision = decide(
                schedule,
                now_s=looked_s,
                stepped_s=stepped_s,
                in_the_way=in_the_way(at_work, name, looked.places),
                is_waiting=any(one.schedule == name and one.state == "queued" for one in at_work),
                fired=deciding.fired(name, min(schedule.considered_s, looked_s) - 86400.0),
            )
            return tuple(self._put(deciding, schedule, decision, now_s, sha256, looked))

    def _put(
        self, deciding: Deciding, schedule: Schedule, decision: Decision, now_s: float, sha256: str, looked: Looked
    ) -> Iterable[Firing]:
        if decision.considered_s != schedule.considered_s:
            deciding.considered(schedule.name, decision.considered_s)
        late_s = decision.considered_s - LATE_S  # what was passed over within a tick is noted, and not worth a message
        missed = [one.due_s for one in decision.verdicts if one.state == "missed" and one.due_s < late_s]
        for verdict in decision.verdicts:
            values: dict[str, Any] = {"state": verdict.state, "kind": verdict.kind, "reason": verdict.reason}
            if verdict.state in ("running", "queued"):
                values |= self._taken(now_s) | {"inventory_sha256": sha256, "places": list(looked.places)}
                if looked.trouble:
                    values |= {"state": "failed", "reason": looked.trouble, "ended_s": now_s}
            firing = Firing(schedule.name, verdict.due_s, **{**values, "places": looked.places})
            if firing.state in OVER and (firing.state != "missed" or firing.due_s in missed[-1:]):
                news = telling.missed(schedule, missed) if firing.state == "missed" else {}
                values |= news | telling.notice(schedule, firing_of({**vars(firing), **news}), now_s)
            deciding.put(schedule.name, verdict.due_s, **values)
            yield firing

    def freed(self, now_s: float) -> list[tuple[Schedule, Firing]]:
        """Firings that waited, by their due times: `running` where the way is free now, `skipped` where it is too late for them."""
        if not self.store.firings(states=("queued",)):
            return []
        found = []
        with self.store.deciding() as deciding:
            for row in sorted(deciding.at_work(), key=lambda row: (row["due_s"], row["schedule"])):
                held, waiting = deciding.schedule(row["schedule"]), firing_of(row)
                if waiting.state != "queued" or held is None:
                    continue
                schedule = schedule_of(held)
                running = [firing_of(one) for one in deciding.at_work() if one["state"] == "running"]
                blocked = in_the_way(running, waiting.schedule, waiting.places)
                values: dict[str, Any] = {}
                if why := _too_late(schedule, waiting, blocked, now_s):
                    values = {"state": "skipped", "reason": why, "ended_s": now_s}
                    values |= telling.notice(schedule, firing_of({**row, **values}), now_s)
                elif not blocked:
                    values = {"state": "running", **self._taken(now_s)}
                if values:
                    deciding.update(waiting.schedule, waiting.due_s, **values)
                    found.append((schedule, firing_of({**row, **values})))
        return found

    def abandoned(self, now_s: float, is_abandoned: IsAbandoned) -> list[tuple[Schedule, Firing]]:
        """Firings whose daemon is gone: ended by what the schedule says of interrupted ones, or `running` anew as this daemon's."""
        if not any(is_abandoned(row) for row in self.store.firings(states=("running",))):
            return []
        found = []
        with self.store.deciding() as deciding:
            for row in deciding.at_work():
                held = deciding.schedule(row["schedule"])
                if held is None or row["state"] != "running" or not is_abandoned(row):
                    continue
                schedule, before = schedule_of(held), firing_of(row)
                values = self._after_death(schedule, before, now_s)
                if values["state"] != "running":
                    values |= telling.notice(schedule, firing_of({**row, **values}), now_s)
                deciding.update(before.schedule, before.due_s, **values)
                found.append((schedule, firing_of({**row, **values})))
        return found

    def _after_death(self, schedule: Schedule, firing: Firing, now_s: float) -> dict[str, Any]:
        """By the policy: marked, or begun again by this daemon, at most once besides its retries."""
        if firing.verdict:  # all was done but its end
            return {"state": "finished", "reason": "", "ended_s": now_s, "lease_s": 0.0}
        why = f"its daemon {firing.daemon} ended in the middle"
        policy = schedule.settings.interrupted
        if (
            policy == "mark"
            or firing.attempt > 1 + schedule.settings.retry
            or not may_still_start(schedule, firing, now_s)
        ):
            return {"state": "interrupted", "reason": why, "ended_s": now_s, "lease_s": 0.0}
        details = {**firing.details, "resume": firing.folder if policy == "resume" else ""}
        return {
            **self._taken(now_s), "state": "running", "reason": f"{why}; {policy}", "attempt": firing.attempt + 1,
            "details": details, "started_s": firing.started_s,
        }  # fmt: skip

    def by_hand(self, schedule: Schedule, copied: Copied, now_s: float) -> Firing:
        """Claim a firing for now. Raises UsageError, with a record, when a run is in the way."""
        sha256 = self.store.keep_inventory(copied.text)
        with self.store.deciding() as deciding:
            blocked = in_the_way([firing_of(row) for row in deciding.at_work()], schedule.name, copied.places)
            due_s = int(now_s)
            while due_s in deciding.fired(schedule.name, due_s - 60.0):
                due_s += 1
            values: dict[str, Any] = {"state": "running", "kind": "by hand", **self._taken(now_s)}
            values |= {"inventory_sha256": sha256, "places": list(copied.places)}
            if blocked:
                values |= {"state": "skipped", "reason": f"in the way: {blocked}", "ended_s": now_s, "lease_s": 0.0}
            deciding.put(schedule.name, due_s, **values)
        if blocked:
            raise UsageError(f"not run, and noted as skipped; in the way: {blocked}")
        return firing_of(self.store.firing(schedule.name, due_s))

    def _taken(self, now_s: float) -> dict[str, Any]:
        return {"daemon": self.daemon, "lease_s": now_s + self.lease_s, "started_s": now_s}


def in_the_way(at_work: Iterable[Firing], name: str, places: tuple[str, ...]) -> str:
    """The run that burdens one of these places, or is of the same schedule, in words; "": none."""
    for one in at_work:
        shared = [place for place in one.places if place in places]
        if one.state != "running" or not (shared or one.schedule == name):
            continue
        what = f"the run of schedule {one.schedule} due {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(one.due_s))}"
        return f"{what}, at work on {shared[0].replace(':', ' ', 1)}" if shared else what
    return ""


def _too_late(schedule: Schedule, waiting: Firing, blocked: str, now_s: float) -> str:
    """Why a firing that waits is given up; "": it may wait still, or start."""
    if schedule.paused:
        return "the schedule was paused while it waited"
    if may_still_start(schedule, waiting, now_s):
        return ""
    return f"waited too long for {blocked}" if blocked else "its time passed while it waited"
