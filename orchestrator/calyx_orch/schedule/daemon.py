"""The daemon: looks what is due, has it claimed and run, takes over what others left, and tells.

Any number of daemons may share a store. A daemon renews the leases of what it runs; where it dies another one finds them run out and
does what the schedule says of interrupted firings. What may be slow (an inventory that is a program, a service for messages) is done
beside the ticks: it holds up no other schedule.
"""

from __future__ import annotations

import asyncio
import functools
import os
import platform
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calyx_orch.errors import CalyxError
from calyx_orch.schedule import copying, telling
from calyx_orch.schedule.claiming import Claims, Looked
from calyx_orch.schedule.deciding import Firing, Schedule
from calyx_orch.schedule.firings import RETRY_AFTER_S, Clock, Fire, Firings
from calyx_orch.schedule.leases import Key, Leases, key_of, lease_of
from calyx_orch.schedule.rows import firing_of, schedule_of
from calyx_orch.store.schedules import Row, Schedules

TICK_S = 5.0  # so long at most until a pause, a removal or a stepped clock is noticed
LEASE_S = 60.0

Tell = Callable[[Firing], Awaitable[tuple[str, dict[str, Any]]]]
Copy = Callable[[str], copying.Copied]
Work = Callable[[], Coroutine[Any, Any, None]]


def name_of_daemon() -> str:
    """A name that no other daemon has, and that says where it is."""
    return f"{platform.node()}/{os.getpid()}/{secrets.token_hex(3)}"


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
    _running: dict[Key, asyncio.Task[None]] = field(default_factory=dict)
    _beside: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _last: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        self._claims = Claims(self.store, self.name, self.lease_s)
        self._firings = Firings(self.store, self.name, self.lease_s, self.fire, self.say, self.clock)
        self._leases = Leases(self.lease_s)

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
            await self.end()

    async def end(self) -> None:
        """End all that is at work; what runs is interrupted in good order."""
        await _cancelled(self._beside.values())  # a claim that is being made comes to its end, and then runs
        running = dict(self._running)
        await _cancelled(running.values())
        for name, due_s in running:  # one that was cancelled before it began, or while it wrote its end
            await asyncio.to_thread(self._firings.leave, name, due_s)

    async def once(self) -> None:
        """Do what is due now to its end, and tell; leases that may have run out are watched until that is sure."""
        until_s = self.clock.passed_s() + self.lease_s + 2 * self.tick_s
        await self.tick()
        while self.clock.passed_s() < until_s and await asyncio.to_thread(self._has_doubtful, self.clock.now_s()):
            await self.clock.sleep(self.tick_s)
            await self.tick()
        await self._beside_is_done()
        await self.idle()
        await self.deliver()

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
        now_s, passed_s, stepped_s = self._time()
        await self._take_over(now_s, passed_s)
        schedules = [schedule_of(row) for row in await asyncio.to_thread(self.store.all)]
        due = [one for one in schedules if _is_due(one, now_s)]
        await self._do_beside(
            {f"schedule {one.name}": functools.partial(self._look, one, now_s, stepped_s) for one in due}
        )
        await self._start_waiting(now_s)
        by_name = {schedule.name: schedule for schedule in schedules}
        await self._do_beside({"messages": functools.partial(self._deliver, by_name, now_s)})
        self._last = now_s, passed_s
        next_s = [at_s for one in schedules if not one.paused and (at_s := one.settings.times.next(now_s)) is not None]
        return min([self.tick_s, *(max(0.0, at_s - self.clock.now_s()) for at_s in next_s)])

    def _time(self) -> tuple[float, float, float]:
        """What the clocks say, and by how much that on the wall was stepped since the last tick that came to its end."""
        now_s, passed_s = self.clock.now_s(), self.clock.passed_s()
        last = self._last
        return now_s, passed_s, 0.0 if last is None else (now_s - last[0]) - (passed_s - last[1])

    async def _do_beside(self, works: Mapping[str, Work]) -> None:
        """Have work done, each unless it is at work still. It is waited for no longer than a tick; what is slow goes on beside them.

        Raises what a work has raised, then or before.
        """
        for name, work in works.items():
            if name not in self._beside:
                self._beside[name] = asyncio.create_task(work(), name=name)
        if works:
            await asyncio.wait([self._beside[name] for name in works], timeout=self.tick_s)
        self._reap()

    async def _beside_is_done(self) -> None:
        while self._beside:
            await asyncio.wait(self._beside.values())
            self._reap()

    def _reap(self) -> None:
        over = [name for name, task in self._beside.items() if task.done()]
        for task in [self._beside.pop(name) for name in over]:
            task.result()

    # --- claims ---

    async def _look(self, schedule: Schedule, now_s: float, stepped_s: float) -> None:
        """Copy the inventory, decide, claim; what is claimed is fired."""
        looked = Looked() if schedule.paused else await self._copied(schedule)
        claim = functools.partial(
            self._claims.due,
            schedule.name,
            looked,
            looked_s=now_s,
            stepped_s=stepped_s,
            now_s=max(now_s, self.clock.now_s()),
        )
        claiming = asyncio.ensure_future(asyncio.to_thread(claim))
        try:
            await asyncio.shield(claiming)
        finally:  # also where the daemon is told to end meanwhile: what is claimed is not left behind
            for one in await claiming:
                self.say(
                    f"{one.schedule}: due {schedule.settings.times.local(one.due_s)}: {one.state}{one.reason and f' ({one.reason})'}"
                )
                if one.state == "running":
                    self._spawn(schedule, one)

    async def _copied(self, schedule: Schedule) -> Looked:
        """The inventory as it is now, tried as often as a run is."""
        tries = 1 + schedule.settings.retry
        for at in range(tries):
            try:
                return Looked(await asyncio.to_thread(self.copy, schedule.settings.inventory))
            except CalyxError as error:
                why = f"its inventory: {error}"
            if at + 1 < tries:
                self.say(f"{schedule.name}: {why}; tried again in {RETRY_AFTER_S:g} s")
                await self.clock.sleep(RETRY_AFTER_S)
        return Looked(trouble=why if tries == 1 else f"{why} (tried {tries} times)")

    async def _start_waiting(self, now_s: float) -> None:
        """Start what waited once its way is free; what waited too long is skipped."""
        for schedule, firing in await asyncio.to_thread(self._claims.freed, now_s):
            self.say(f"{firing.schedule}: {firing.state} after it waited")
            if firing.state == "running":
                self._spawn(schedule, firing)

    async def _take_over(self, now_s: float, passed_s: float) -> None:
        """Firings whose daemon no longer renews its lease."""
        running = await asyncio.to_thread(self.store.firings, states=("running",))
        over = self._leases.run_out(running, passed_s)

        def is_abandoned(row: Row) -> bool:
            return over.get(key_of(row)) == lease_of(row) and not self._is_mine(row)

        if not any(map(is_abandoned, running)):
            return
        for schedule, firing in await asyncio.to_thread(self._claims.abandoned, now_s, is_abandoned):
            self.say(f"{firing.schedule}: {firing.state}: {firing.reason}")
            if firing.state == "running":
                self._spawn(schedule, firing)

    def _is_mine(self, row: Row) -> bool:
        return row["daemon"] == self.name and key_of(row) in self._running

    def _has_doubtful(self, now_s: float) -> bool:
        """Whether the lease of another daemon's firing is over by the clock."""
        running = self.store.firings(states=("running",))
        return any(row["lease_s"] < now_s and not self._is_mine(row) for row in running)

    def claim_by_hand(self, schedule: Schedule) -> Firing:
        """Claim a firing for now. Raises UsageError, with a record, when a run is in the way."""
        return self._claims.by_hand(schedule, self.copy(schedule.settings.inventory), self.clock.now_s())

    # --- firing ---

    async def fired(self, schedule: Schedule, firing: Firing) -> None:
        """Run one firing that is claimed, and note how it ended."""
        await self._firings.run(schedule, firing)

    def _spawn(self, schedule: Schedule, firing: Firing) -> None:
        key = firing.schedule, firing.due_s
        task = asyncio.create_task(self.fired(schedule, firing), name=f"firing {firing.schedule}")
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key, None))

    # --- telling ---

    async def deliver(self) -> None:
        """Tell what is to be told by now."""
        schedules = [schedule_of(row) for row in await asyncio.to_thread(self.store.all)]
        await self._deliver({schedule.name: schedule for schedule in schedules}, self.clock.now_s())

    async def _deliver(self, schedules: Mapping[str, Schedule], now_s: float) -> None:
        for row in await asyncio.to_thread(self.store.waiting_notices, now_s):
            wait_s = telling.wait_s(row["notice_tries"] + 1)
            if row["schedule"] not in schedules or not await asyncio.to_thread(
                self.store.take_notice, row, now_s + wait_s
            ):
                continue
            why, left = await self._told(firing_of(row))
            values = {**telling.told(row["notice_tries"] + 1, why), "message": left}
            await asyncio.to_thread(functools.partial(self.store.update, row["schedule"], row["due_s"], **values))
            if why:
                self.say(f"{row['schedule']}: nobody could be told: {why}")

    async def _told(self, firing: Firing) -> tuple[str, dict[str, Any]]:
        try:
            return await self.tell(firing)
        except CalyxError as error:
            return str(error), firing.message
        except Exception as error:  # its words may hold an address
            return f"the message failed ({type(error).__name__})", firing.message


async def _cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


def _is_due(schedule: Schedule, now_s: float) -> bool:
    if now_s < schedule.added_s:
        return False  # as `decide` has it: that clock is wrong
    if schedule.considered_s > now_s:
        return schedule.considered_s - now_s > 3600  # a clock that went back: `decide` says what that means
    next_s = schedule.settings.times.next(max(schedule.considered_s, schedule.added_s))
    return next_s is not None and next_s <= now_s
