"""A firing that is claimed, from its start to its record: run under a lease that is renewed, tried again, ended, and told.

What the store holds of it is changed only as long as it is this daemon's. A store that does not answer when a firing ends is asked
again until it does: no night goes without its record.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from calyx_orch import units
from calyx_orch.errors import EXIT_FAULT, EXIT_FINE, EXIT_INTERRUPTED, CalyxError
from calyx_orch.schedule import telling
from calyx_orch.schedule.deciding import Firing, Schedule, is_wanted_again
from calyx_orch.schedule.rows import firing_of, schedule_of
from calyx_orch.store.schedules import Row, Schedules

RENEW_S = 10.0
RETRY_AFTER_S = 30.0
STORE_AGAIN_S = 5.0
STORE_PATIENCE_S = 3600.0  # so long a store may be away before the end of a firing is given up
ENDED_BY_SIGNAL = (EXIT_INTERRUPTED, 128 + 15, 128 + 1)
FAILURE = "failure"  # where in the details a firing says itself why it failed

Fire = Callable[[Schedule, Firing], Awaitable[int]]

_T = TypeVar("_T")


def _passed_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Clock:
    """Time for a daemon: the wall clock, one that counts all time that passes (also asleep), and waiting."""

    now_s: Callable[[], float] = time.time
    passed_s: Callable[[], float] = _passed_s
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True)
class Firings:
    """What one daemon fires. `fire` runs a firing and gives its exit code; `say` hears a line for the log."""

    store: Schedules
    daemon: str
    lease_s: float
    fire: Fire
    say: Callable[[str], None]
    clock: Clock = field(default_factory=Clock)

    async def run(self, schedule: Schedule, firing: Firing) -> None:
        """Run one firing that is claimed, again as often as `retry` allows, and note how it ended."""
        again: Firing | None = firing
        while again is not None:
            begun_s = self.clock.passed_s()
            status, trouble = await self._attempt(schedule, again)
            took_s = self.clock.passed_s() - begun_s
            row = await self._patiently(functools.partial(self.store.firing, firing.schedule, firing.due_s))
            if row["daemon"] != self.daemon or row["state"] != "running":
                self.say(f"{firing.schedule}: {row['daemon']} took it over: {row['state']}")
                return
            values = how_it_ended(row, status, trouble, schedule.settings.max_duration_s, took_s)
            ended = firing_of({**row, **values})
            again = None
            if ended.state == "failed" and is_wanted_again(schedule, ended, self.clock.now_s()):
                again = await self._again(ended)
            else:
                await self._end(schedule, row, values)

    async def _attempt(self, schedule: Schedule, firing: Firing) -> tuple[int | None, str]:
        """The exit code (None: its lease was lost), and what went wrong here."""
        try:
            return await self._leased(schedule, firing), ""
        except CalyxError as error:
            return EXIT_FAULT, str(error)
        except Exception as error:  # whatever it is, the firing is over and says so
            return EXIT_FAULT, f"{type(error).__name__}: {error}"

    async def _end(self, schedule: Schedule, row: Row, values: dict[str, Any]) -> None:
        now_s = self.clock.now_s()
        values = {**values, "ended_s": now_s, "lease_s": 0.0}
        ended = firing_of({**row, **values})
        if await self._patiently(
            functools.partial(self._keep, ended, **values, **telling.notice(schedule, ended, now_s))
        ):
            self.say(f"{ended.schedule}: {ended.state}{ended.reason and f': {ended.reason}'}")

    async def _again(self, ended: Firing) -> Firing | None:
        """Wait a while, and give the next attempt; None: somebody else has it by now."""
        self.say(f"{ended.schedule}: failed ({ended.reason}), tried again in {RETRY_AFTER_S:g} s")
        values: dict[str, Any] = {
            "state": "running", "attempt": ended.attempt + 1, "reason": "", "run_id": None, "folder": "",
            "details": {"tried": [*ended.details.get("tried", []), ended.reason]},
            "lease_s": self.clock.now_s() + self.lease_s,
        }  # fmt: skip
        if not await self._patiently(functools.partial(self._keep, ended, **values)):
            return None
        lease = asyncio.ensure_future(self._renew(ended))
        try:
            await self.clock.sleep(RETRY_AFTER_S)
        finally:
            lease.cancel()
        row = await self._patiently(functools.partial(self.store.firing, ended.schedule, ended.due_s))
        return firing_of(row) if row["daemon"] == self.daemon and row["state"] == "running" else None

    def _keep(self, firing: Firing, **values: Any) -> bool:
        """Change what the store holds of a firing; False: it is somebody else's by now, or over."""
        return self.store.update(firing.schedule, firing.due_s, owner=self.daemon, **values)

    async def _patiently(self, act: Callable[[], _T]) -> _T:
        """What the store says, asked until it answers. Raises UsageError when it did not for STORE_PATIENCE_S."""
        until_s = self.clock.passed_s() + STORE_PATIENCE_S
        while True:
            try:
                return await asyncio.to_thread(act)
            except CalyxError as error:
                if self.clock.passed_s() > until_s:
                    raise
                self.say(f"{error}; tried again in {STORE_AGAIN_S:g} s")
            await self.clock.sleep(STORE_AGAIN_S)

    # --- the lease ---

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
                await asyncio.to_thread(self.leave, firing.schedule, firing.due_s)
                raise
            return None
        finally:
            lease.cancel()

    async def _renew(self, firing: Firing) -> None:
        """Renew until the lease is lost: to another daemon, or because the store did not answer for so long."""
        passed_s = self.clock.passed_s
        until_s = passed_s() + self.lease_s
        while passed_s() < until_s:
            await asyncio.sleep(min(RENEW_S, self.lease_s / 6))
            try:
                lease_s = self.clock.now_s() + self.lease_s
                if not await asyncio.to_thread(self.store.renew, firing.schedule, firing.due_s, self.daemon, lease_s):
                    row = await asyncio.to_thread(self.store.firing, firing.schedule, firing.due_s)
                    if row["daemon"] != self.daemon:
                        return
                until_s = passed_s() + self.lease_s
            except CalyxError as error:
                self.say(f"{firing.schedule}: the lease was not renewed: {error}")

    def leave(self, name: str, due_s: int) -> None:
        """The daemon is told to end: what it still runs is marked at once, unless another daemon is to go on with it. Blocks."""
        row = self.store.firing(name, due_s)
        if row["state"] != "running" or row["daemon"] != self.daemon or row["lease_s"] == 0:
            return
        schedule, now_s = schedule_of(self.store.one(name)), self.clock.now_s()
        values: dict[str, Any] = {"state": "interrupted", "reason": "the daemon was told to end"}
        if row["verdict"]:
            values = {"state": "finished"}
        elif schedule.settings.interrupted != "mark":
            self.store.update(name, due_s, owner=self.daemon, lease_s=0.0)
            return
        values |= {"ended_s": now_s, "lease_s": 0.0}
        values |= telling.notice(schedule, firing_of({**row, **values}), now_s)
        self.store.update(name, due_s, owner=self.daemon, **values)


def how_it_ended(
    row: Row, status: int | None, trouble: str, max_duration_s: float | None, took_s: float
) -> dict[str, Any]:
    """What the exit code of an attempt means, by what the firing has written of itself; `trouble` is what went wrong around it."""
    if row["verdict"]:  # its record is whole
        return {"state": "finished"}
    if trouble:
        return {"state": "failed", "reason": trouble}
    if status is None:
        return {"state": "interrupted", "reason": "its lease was lost"}
    if status == EXIT_FINE:
        return {"state": "finished"}
    if status in ENDED_BY_SIGNAL and max_duration_s is not None and took_s >= max_duration_s:
        limit = units.format_duration(max_duration_s)
        return {"state": "interrupted", "reason": f"stopped: it took longer than {limit} (--max-duration)"}
    if status in ENDED_BY_SIGNAL:
        return {"state": "interrupted", "reason": "it was interrupted"}
    how = f"ended by signal {-status}" if status < 0 else f"exit code {status}"
    said = row["details"].get(FAILURE)
    return {"state": "failed", "reason": f"{how}: {said}" if said else f"{how}; its log says more"}
