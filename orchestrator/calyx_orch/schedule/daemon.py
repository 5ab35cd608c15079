"""The daemon: looks what is due, claims it in the store, has it run, and tells.

Any number of daemons may share a store. One due time is one row, put in under a lock by the daemon that fires it; that daemon renews
the row's lease, and where it dies another one finds the lease run out and does what the schedule says of interrupted firings.
Everything that reads or writes the store runs in a thread; what is decided is in `deciding`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import platform
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from calyx_orch import units
from calyx_orch.errors import EXIT_FAULT, EXIT_FINE, EXIT_INTERRUPTED, EXIT_MISSED, CalyxError, UsageError
from calyx_orch.schedule import copying, telling
from calyx_orch.schedule.deciding import Decision, Firing, Schedule, Settings, decide, is_wanted_again, may_still_start
from calyx_orch.store.schedules import Deciding, Row, Schedules

TICK_S = 5.0  # so long at most until a pause, a removal or a stepped clock is noticed
LEASE_S = 60.0
RENEW_S = 10.0
RETRY_AFTER_S = 30.0
FINE = (EXIT_FINE, EXIT_MISSED)

Fire = Callable[[Schedule, Firing], Awaitable[int]]
Tell = Callable[[Firing], Awaitable[tuple[str, dict[str, Any]]]]
Copy = Callable[[str], copying.Copied]


def _passed_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Clock:
    """Time for a daemon: the wall clock, one that counts all time that passes (also asleep), and waiting."""

    now_s: Callable[[], float] = time.time
    passed_s: Callable[[], float] = _passed_s
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


def name_of_daemon() -> str:
    """A name that no other daemon has, and that says where it is."""
    return f"{platform.node()}/{os.getpid()}/{secrets.token_hex(3)}"


def schedule_of(row: Row) -> Schedule:
    """A schedule from its row."""
    return Schedule(row["name"], Settings(**row["settings"]), row["added_s"], row["considered_s"], bool(row["paused"]))


def firing_of(row: Row) -> Firing:
    """A firing from its row."""
    return Firing(**{**row, "places": tuple(row["places"])})


@dataclass
class Daemon:
    """One daemon at work.

    `fire` runs a firing and gives its exit code; `tell` delivers a message and gives why not, or "", and the message with what is
    still to be told of it; `say` hears a line for the log.
    """

    store: Schedules
    fire: Fire
    tell: Tell
    say: Callable[[str], None]
    clock: Clock = field(default_factory=Clock)
    copy: Copy = copying.copy
    tick_s: float = TICK_S
    lease_s: float = LEASE_S
    name: str = field(default_factory=name_of_daemon)
    _running: dict[tuple[str, int], asyncio.Task[None]] = field(default_factory=dict)
    _last: tuple[float, float] | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; what runs then is interrupted in good order. A store that fails is tried again."""
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                wait_s = await self._ticked()
                sleeping = asyncio.ensure_future(self.clock.sleep(wait_s))
                await asyncio.wait({stopping, sleeping}, return_when=asyncio.FIRST_COMPLETED)
                sleeping.cancel()
        finally:
            stopping.cancel()
            running = dict(self._running)
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)
            for name, due_s in running:  # one that was cancelled before it began, or while it wrote its end
                await asyncio.to_thread(self._leave, name, due_s)

    async def idle(self) -> None:
        """Wait until nothing runs."""
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _ticked(self) -> float:
        try:
            return await self.tick()
        except CalyxError as error:
            self.say(f"{error}; tried again in {self.tick_s:g} s")
            return self.tick_s

    async def tick(self) -> float:
        """Do all that is due now. Returns for how long nothing will be."""
        now_s, stepped_s = self._time()
        await self._take_over(now_s)
        schedules = [schedule_of(row) for row in await asyncio.to_thread(self.store.all)]
        for schedule in schedules:
            if self._is_due(schedule, now_s):
                await self._look(schedule, now_s, stepped_s)
        await self._start_waiting(now_s)
        await self._deliver({schedule.name: schedule for schedule in schedules}, now_s)
        due = [at_s for one in schedules if not one.paused and (at_s := one.settings.times.next(now_s)) is not None]
        return min([self.tick_s, *(max(0.0, at_s - self.clock.now_s()) for at_s in due)])

    def _time(self) -> tuple[float, float]:
        """What the clock says, and by how much it was stepped since it was last read."""
        now_s, passed_s = self.clock.now_s(), self.clock.passed_s()
        before, self._last = self._last, (now_s, passed_s)
        return now_s, 0.0 if before is None else (now_s - before[0]) - (passed_s - before[1])

    @staticmethod
    def _is_due(schedule: Schedule, now_s: float) -> bool:
        if schedule.considered_s > now_s:
            return schedule.considered_s - now_s > 3600  # a clock that went back: `decide` says what that means
        next_s = schedule.settings.times.next(max(schedule.considered_s, schedule.added_s))
        return next_s is not None and next_s <= now_s

    # --- claiming ---

    async def _look(self, schedule: Schedule, now_s: float, stepped_s: float) -> None:
        """Copy the inventory, decide, claim; what is claimed is fired."""
        copied, trouble = None, ""
        if not schedule.paused:
            try:
                copied = await asyncio.to_thread(self.copy, schedule.settings.inventory)
            except CalyxError as error:
                trouble = f"its inventory: {error}"
        claimed = await asyncio.to_thread(self._claim, schedule.name, now_s, stepped_s, copied, trouble)
        for one in claimed:
            self.say(
                f"{one.schedule}: due {schedule.settings.times.local(one.due_s)}: {one.state}{one.reason and f' ({one.reason})'}"
            )
            if one.state == "running":
                self._spawn(schedule, one)

    def _claim(
        self, name: str, now_s: float, stepped_s: float, copied: copying.Copied | None, trouble: str
    ) -> tuple[Firing, ...]:
        sha256 = "" if copied is None else self.store.keep_inventory(copied.text)
        places = () if copied is None else copied.places
        with self.store.deciding() as deciding:
            row = deciding.schedule(name)
            if row is None:
                return ()
            schedule = schedule_of(row)
            at_work = [firing_of(one) for one in deciding.at_work()]
            decision = decide(
                schedule,
                now_s=now_s,
                stepped_s=stepped_s,
                in_the_way=in_the_way(at_work, name, places),
                is_waiting=any(one.schedule == name and one.state == "queued" for one in at_work),
                fired=deciding.fired(name, min(schedule.considered_s, now_s) - 86400.0),
            )
            return tuple(self._put(deciding, schedule, decision, now_s, sha256, places, trouble))

    def _put(
        self, deciding: Deciding, schedule: Schedule, decision: Decision, now_s: float, sha256: str,
        places: tuple[str, ...], trouble: str,
    ) -> Iterable[Firing]:  # fmt: skip
        if decision.considered_s != schedule.considered_s:
            deciding.considered(schedule.name, decision.considered_s)
        for verdict in decision.verdicts:
            is_last = verdict is decision.verdicts[-1]  # of many that were missed one message tells
            values: dict[str, Any] = {"state": verdict.state, "kind": verdict.kind, "reason": verdict.reason}
            if verdict.state in ("running", "queued"):
                values |= {"daemon": self.name, "lease_s": now_s + self.lease_s, "started_s": now_s}
                values |= {"inventory_sha256": sha256, "places": list(places)}
                if trouble:
                    values |= {"state": "failed", "reason": trouble, "ended_s": now_s}
            firing = Firing(schedule.name, verdict.due_s, **{**values, "places": places})
            if firing.state not in ("running", "queued") and is_last:
                values |= telling.notice(schedule, firing, now_s)
            deciding.put(schedule.name, verdict.due_s, **values)
            yield firing

    async def _start_waiting(self, now_s: float) -> None:
        """Start what waited once its way is free; what waited too long is skipped."""
        for schedule, firing in await asyncio.to_thread(self._freed, now_s):
            self.say(f"{firing.schedule}: {firing.state} after it waited")
            if firing.state == "running":
                self._spawn(schedule, firing)

    def _freed(self, now_s: float) -> list[tuple[Schedule, Firing]]:
        if not self.store.firings(states=("queued",)):
            return []
        found = []
        with self.store.deciding() as deciding:
            for row in deciding.at_work():
                held, waiting = deciding.schedule(row["schedule"]), firing_of(row)
                if waiting.state != "queued" or held is None:
                    continue
                schedule = schedule_of(held)
                at_work = [firing_of(one) for one in deciding.at_work() if one["state"] == "running"]
                blocked = in_the_way(at_work, "", waiting.places)
                values: dict[str, Any] = {}
                if not may_still_start(schedule, waiting, now_s):
                    reason = f"waited too long for {blocked}" if blocked else "its time passed while it waited"
                    values = {"state": "skipped", "reason": reason, "ended_s": now_s}
                    values |= telling.notice(schedule, firing_of({**row, **values}), now_s)
                elif not blocked:
                    values = {
                        "state": "running",
                        "daemon": self.name,
                        "lease_s": now_s + self.lease_s,
                        "started_s": now_s,
                    }
                if values:
                    deciding.update(waiting.schedule, waiting.due_s, **values)
                    found.append((schedule, firing_of({**row, **values})))
        return found

    async def _take_over(self, now_s: float) -> None:
        """Firings whose daemon no longer renews its lease."""
        for schedule, firing in await asyncio.to_thread(self._abandoned, now_s):
            self.say(f"{firing.schedule}: {firing.state}: {firing.reason}")
            if firing.state == "running":
                self._spawn(schedule, firing)

    def _abandoned(self, now_s: float) -> list[tuple[Schedule, Firing]]:
        if not any(self._is_abandoned(row, now_s) for row in self.store.firings(states=("running",))):
            return []
        found = []
        with self.store.deciding() as deciding:
            for row in deciding.at_work():
                held = deciding.schedule(row["schedule"])
                if held is None or not self._is_abandoned(row, now_s):
                    continue
                schedule, before = schedule_of(held), firing_of(row)
                values = self._after_death(schedule, before, now_s)
                if values["state"] != "running":
                    values |= telling.notice(schedule, firing_of({**row, **values}), now_s)
                deciding.update(before.schedule, before.due_s, **values)
                found.append((schedule, firing_of({**row, **values})))
        return found

    def _is_abandoned(self, row: Row, now_s: float) -> bool:
        if row["state"] != "running":
            return False
        key = row["schedule"], row["due_s"]
        return row["lease_s"] < now_s and not (row["daemon"] == self.name and key in self._running)

    def _after_death(self, schedule: Schedule, firing: Firing, now_s: float) -> dict[str, Any]:
        """By the policy: marked, or begun again by this daemon, at most once besides its retries."""
        why = f"its daemon {firing.daemon} ended in the middle"
        policy = schedule.settings.interrupted
        if (
            policy == "mark"
            or firing.attempt > 1 + schedule.settings.retry
            or not may_still_start(schedule, firing, now_s)
        ):
            return {"state": "interrupted", "reason": why, "ended_s": now_s}
        details = {**firing.details, "resume": firing.folder if policy == "resume" else ""}
        return {
            "state": "running", "reason": f"{why}; {policy}", "attempt": firing.attempt + 1, "daemon": self.name,
            "lease_s": now_s + self.lease_s, "details": details,
        }  # fmt: skip

    # --- firing ---

    def _spawn(self, schedule: Schedule, firing: Firing) -> None:
        key = firing.schedule, firing.due_s
        task = asyncio.create_task(self.fired(schedule, firing), name=f"firing {firing.schedule}")
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key, None))

    async def fired(self, schedule: Schedule, firing: Firing) -> None:
        """Run one firing that is claimed, again as often as `retry` allows, and note how it ended."""
        while True:
            trouble = ""
            try:
                status = await self._leased(schedule, firing)
            except Exception as error:  # whatever it is, the firing is over and says so
                status, trouble = EXIT_FAULT, f"{type(error).__name__}: {error}"
            now_s = self.clock.now_s()
            row = await asyncio.to_thread(self.store.firing, firing.schedule, firing.due_s)
            if row["daemon"] != self.name:
                self.say(f"{firing.schedule}: {row['daemon']} took it over")
                return
            ended = firing_of(row)
            values: dict[str, Any] = {}
            if ended.state == "running":
                values = _ended(status, schedule, now_s - (ended.started_s or now_s))
                values |= {"reason": trouble} if trouble else {}
            ended = firing_of({**row, **values})
            if ended.state == "failed" and is_wanted_again(schedule, ended, now_s):
                firing = await self._again(ended, now_s)
                continue
            values |= {"ended_s": now_s, "lease_s": 0.0}
            ended = firing_of({**row, **values})
            values |= telling.notice(schedule, ended, now_s)
            await asyncio.to_thread(functools.partial(self.store.update, firing.schedule, firing.due_s, **values))
            self.say(f"{firing.schedule}: {ended.state}{ended.reason and f': {ended.reason}'}")
            return

    async def _again(self, ended: Firing, now_s: float) -> Firing:
        self.say(f"{ended.schedule}: failed ({ended.reason}), tried again in {RETRY_AFTER_S:g} s")
        tried = [*ended.details.get("tried", []), ended.reason]
        values: dict[str, Any] = {
            "state": "running", "attempt": ended.attempt + 1, "reason": "", "run_id": None, "folder": "",
            "details": {"tried": tried}, "lease_s": now_s + RETRY_AFTER_S + self.lease_s,
        }  # fmt: skip
        await asyncio.to_thread(functools.partial(self.store.update, ended.schedule, ended.due_s, **values))
        await self.clock.sleep(RETRY_AFTER_S)
        return firing_of(await asyncio.to_thread(self.store.firing, ended.schedule, ended.due_s))

    async def _leased(self, schedule: Schedule, firing: Firing) -> int | None:
        """Fire, and renew the lease meanwhile; when it is lost the run is ended. Returns the exit code, None without one."""
        work = asyncio.ensure_future(self.fire(schedule, firing))
        lease = asyncio.ensure_future(self._renew(firing))
        try:
            await asyncio.wait({work, lease}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
            return await work
        except asyncio.CancelledError:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
            if asyncio.current_task() is not None and asyncio.current_task().cancelling():  # type: ignore[union-attr]
                await asyncio.to_thread(self._interrupted, schedule, firing)
                raise
            return None
        finally:
            lease.cancel()

    def _leave(self, name: str, due_s: int) -> None:
        row = self.store.firing(name, due_s)
        if row["state"] == "running" and row["daemon"] == self.name and row["lease_s"] > 0:
            self._interrupted(schedule_of(self.store.one(name)), firing_of(row))

    def _interrupted(self, schedule: Schedule, firing: Firing) -> None:
        """The daemon is told to end: what it ran is marked at once, unless another daemon is to go on with it."""
        if schedule.settings.interrupted != "mark":
            self.store.update(firing.schedule, firing.due_s, lease_s=0.0)
            return
        now_s = self.clock.now_s()
        values: dict[str, Any] = {
            "state": "interrupted",
            "reason": "the daemon was told to end",
            "ended_s": now_s,
            "lease_s": 0.0,
        }
        row = self.store.firing(firing.schedule, firing.due_s)
        if row["state"] == "running":
            values |= telling.notice(schedule, firing_of({**row, **values}), now_s)
            self.store.update(firing.schedule, firing.due_s, **values)

    async def _renew(self, firing: Firing) -> None:
        """Renew until the lease is lost: to another daemon, or because the store did not answer for so long."""
        passed_s = self.clock.passed_s
        until_s = passed_s() + self.lease_s
        while passed_s() < until_s:
            await asyncio.sleep(min(RENEW_S, self.lease_s / 6))
            try:
                lease_s = self.clock.now_s() + self.lease_s
                if not await asyncio.to_thread(self.store.renew, firing.schedule, firing.due_s, self.name, lease_s):
                    row = await asyncio.to_thread(self.store.firing, firing.schedule, firing.due_s)
                    if row["daemon"] != self.name:
                        return
                until_s = passed_s() + self.lease_s
            except CalyxError as error:
                self.say(f"{firing.schedule}: the lease was not renewed: {error}")

    # --- telling ---

    async def deliver(self) -> None:
        """Tell what is to be told by now."""
        schedules = [schedule_of(row) for row in await asyncio.to_thread(self.store.all)]
        await self._deliver({schedule.name: schedule for schedule in schedules}, self.clock.now_s())

    async def _deliver(self, schedules: Mapping[str, Schedule], now_s: float) -> None:
        for row in await asyncio.to_thread(self.store.waiting_notices, now_s):
            schedule = schedules.get(row["schedule"])
            wait_s = telling.wait_s(row["notice_tries"] + 1)
            if schedule is None or not await asyncio.to_thread(self.store.take_notice, row, now_s + wait_s):
                continue
            why, left = await self.tell(firing_of(row))
            values = {**telling.told(row["notice_tries"] + 1, why), "message": left}
            await asyncio.to_thread(functools.partial(self.store.update, row["schedule"], row["due_s"], **values))
            if why:
                self.say(f"{row['schedule']}: nobody could be told: {why}")

    # --- by hand ---

    def claim_by_hand(self, schedule: Schedule) -> Firing:
        """Claim a firing for now. Raises UsageError, with a record, when a run is in the way."""
        now_s = self.clock.now_s()
        copied = self.copy(schedule.settings.inventory)
        sha256 = self.store.keep_inventory(copied.text)
        with self.store.deciding() as deciding:
            blocked = in_the_way([firing_of(row) for row in deciding.at_work()], schedule.name, copied.places)
            due_s = int(now_s)
            while due_s in deciding.fired(schedule.name, due_s - 60.0):
                due_s += 1
            values: dict[str, Any] = {"state": "running", "kind": "by hand", "daemon": self.name, "started_s": now_s}
            values |= {"lease_s": now_s + self.lease_s, "inventory_sha256": sha256, "places": list(copied.places)}
            if blocked:
                values |= {"state": "skipped", "reason": f"in the way: {blocked}", "ended_s": now_s}
            deciding.put(schedule.name, due_s, **values)
        if blocked:
            raise UsageError(f"not run, and noted as skipped; in the way: {blocked}")
        return firing_of(self.store.firing(schedule.name, due_s))


def in_the_way(at_work: Iterable[Firing], name: str, places: tuple[str, ...]) -> str:
    """The run that burdens one of these places, or is of the same schedule, in words; "": none."""
    for one in at_work:
        shared = [place for place in one.places if place in places]
        if one.state != "running" or not (shared or one.schedule == name):
            continue
        what = f"the run of schedule {one.schedule} due {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(one.due_s))}"
        return f"{what}, at work on {shared[0].replace(':', ' ', 1)}" if shared else what
    return ""


def settings_row(settings: Settings) -> dict[str, Any]:
    """Settings as the store keeps them."""
    return asdict(settings)


def _ended(status: int | None, schedule: Schedule, took_s: float) -> dict[str, Any]:
    """What the exit code of a firing means that said nothing of itself."""
    if status is None:
        return {"state": "interrupted", "reason": "its lease was lost"}
    if status in FINE:
        return {"state": "finished"}
    most_s = schedule.settings.max_duration_s
    if most_s is not None and took_s >= most_s:
        return {
            "state": "interrupted",
            "reason": f"stopped: it took longer than {units.format_duration(most_s)} (--max-duration)",
        }
    if status == EXIT_INTERRUPTED or status in (128 + 15, 128 + 1):
        return {"state": "interrupted", "reason": "it was interrupted"}
    how = f"ended by signal {-status}" if status < 0 else f"exit code {status}"
    return {"state": "failed", "reason": f"{how}; its log says more"}
