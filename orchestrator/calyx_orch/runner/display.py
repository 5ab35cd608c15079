"""What the live view is told: the state of every guest, put together from rounds and beats, at most twice a second."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

from calyx_orch.model import LoadMode, Plan, Round
from calyx_orch.report.live import SILENT, GuestStatus, Live, Progress
from calyx_orch.runner import hanging

EVERY_S = 0.5
SHORTEST_S = 0.2  # a rate over less says nothing
ARMED = "armed"
RUNNING = "running"
SILENT_AFTER_S = 3.0  # a guest that runs says something every second
ARMED_S = 2.0  # from being armed to the start line at most, unless guests start one after another
NO_FIGURES = "no live figures from fio"
ROUND_OVERHEAD_S = 2.5


class Display:
    """Keeps the state of the fleet for a `Live`. All methods are cheap; the drawing happens in `tell_while`."""

    def __init__(self, live: Live, plan: Plan, guests: Iterable[str]) -> None:
        self.live = live
        self.plan = plan
        self._status = {name: GuestStatus(name, "waiting") for name in guests}
        self._last_beat: dict[str, tuple[int, int, int]] = {}
        self._running_since: dict[str, float] = {}
        self._heard: dict[str, float] = {}  # of guests that run: when they last said something
        self._silent: set[str] = set()
        self._hanging: set[str] = set()
        self._staggered = False
        self._engine = ""
        self._in_round = False
        self._began = time.monotonic()
        self._phase = ""
        self._label = ""
        self._round_number = 0
        self._rounds: tuple[Round, ...] = plan.rounds
        self._round_began = 0.0

    def phase(self, text: str) -> None:
        """A new phase begins."""
        self._phase, self._in_round = text, False
        self.live.phase(text)

    def round(self, number: int, rounds: tuple[Round, ...], *, alive: int) -> None:
        """The `number`-th (from 1) of `rounds` begins, on as many of its guests as are alive.

        It is shown by its number in the whole plan, as in the tables, also when other rounds were left out.
        """
        self._round_number, self._rounds, self._round_began = number, rounds, time.monotonic()
        r = rounds[number - 1]
        self._engine = r.engine
        self._label = f"{self._what(r)}, {r.workload.name} on {r.target}, {r.engine}, {r.load_name}"
        self._last_beat.clear()
        self._running_since.clear()
        self._heard.clear()
        self._silent.clear()
        self._hanging.clear()
        self._staggered = r.load is LoadMode.STAGGERED
        for name, known in self._status.items():
            if known.state not in ("lost", "failed"):
                self._status[name] = GuestStatus(name, "settling" if name in r.guests else "idle")
        of = f" of {len(r.guests)}" if alive < len(r.guests) else ""
        planned = max((one.number for one in self.plan.all_rounds), default=0)
        place = f"of {planned}" if r.number <= planned else "of a search"  # which goes on until it has found
        self.phase(f"round {r.number} {place}: {self._label} ({alive}{of} guest{'s' * (len(r.guests) != 1)})")
        self._in_round = True

    def _what(self, round_: Round) -> str:
        """What a round is for: its block, or what is done before the first."""
        for what, rounds in (("preconditioning", self.plan.conditioning), ("capacity", self.plan.capacity)):
            if any(round_.index == one.index for one in rounds):
                return what
        return f"block {round_.block + 1}"

    def _planned(self) -> int:
        """How many rounds the whole plan has; a search adds its own as it goes."""
        return max((r.number for r in (*self.plan.rounds, *self._rounds)), default=0)

    def state(self, guest: str, state: str, detail: str = "") -> None:
        """A guest has a new state."""
        known = self._status[guest]
        if state in ("lost", "failed") and known.state not in ("lost", "failed"):
            self.live.note(f"{guest}: {state}: {detail}" if detail else f"{guest}: {state}")
        if state == RUNNING:
            self._speaks_again(guest)
            self._running_since[guest] = self._heard[guest] = time.monotonic()
            detail = detail or ("" if self._engine == "calyx" else NO_FIGURES)
        elif state == ARMED and not self._staggered:
            self._heard[guest] = time.monotonic() + ARMED_S
        self._status[guest] = GuestStatus(guest, state, detail)

    def beat(self, guest: str, message: Mapping[str, Any]) -> None:
        """A guest says how far it is; untrusted, so anything odd is passed over.

        The first beat of a round gives the rate since the start, a later one that since the beat before. Of fio only the
        bytes are known, and where the kernel counts none, nothing.
        """
        try:
            if message.get("phase") == "prepare":
                share = 100 * int(message["done_bytes"]) // max(1, int(message["total_bytes"]))  # of 64 bits at most
                self._status[guest] = GuestStatus(guest, "laying out", f"{share} %")
                return
            now, moved, ios = message["now_ns"], message["bytes"], message.get("ios")
        except (KeyError, TypeError, ValueError):
            return
        if not all(type(value) is int for value in (now, moved, ios or 0)):
            return
        if self._status[guest].state in ("lost", "failed", "reported"):
            return
        self._speaks_again(guest)
        self._heard[guest] = time.monotonic()
        hangs = hanging.of_beat(message)
        self._tell_hanging(guest, hangs)
        before = self._last_beat.get(guest)
        self._last_beat[guest] = (now, ios or 0, moved)
        seconds = (
            time.monotonic() - self._running_since.get(guest, math.inf) if before is None else (now - before[0]) / 1e9
        )
        if seconds < SHORTEST_S:
            return
        _, ios_before, moved_before = before or (0, 0, 0)
        rate = None if ios is None else max(0.0, (ios - ios_before) / seconds)
        if ios is None and moved == 0:
            self._status[guest] = GuestStatus(guest, RUNNING, NO_FIGURES)
            return
        detail = hangs or ("ramp" if message.get("phase") == "ramp" else "")
        self._status[guest] = GuestStatus(guest, RUNNING, detail, rate, max(0.0, (moved - moved_before) / seconds))

    def _tell_hanging(self, guest: str, hangs: str) -> None:
        if hangs and guest not in self._hanging:
            self._hanging.add(guest)
            self.live.note(f"{guest}: {hangs}")
        elif not hangs and guest in self._hanging:
            self._hanging.remove(guest)
            self.live.note(f"{guest}: all I/O comes back again")

    async def tell(self) -> None:
        """Show the fleet until cancelled."""
        while True:
            self.live.update(self._progress())
            await asyncio.sleep(EVERY_S)

    def _progress(self) -> Progress:
        now = time.monotonic()
        return Progress(
            phase="" if self._in_round else self._phase,
            round_number=self._rounds[self._round_number - 1].number if self._in_round else 0,
            rounds=self._planned() if self._in_round else 0,
            label=self._label if self._in_round else "",
            elapsed_s=now - self._began,
            remaining_s=self._remaining_s(now),
            guests=tuple(self._with_silence(status, now) for status in self._status.values()),
        )

    def _with_silence(self, status: GuestStatus, now: float) -> GuestStatus:
        """A guest that should speak and does not is shown so, without a rate; it is waited for until its job's deadline."""
        silent_s = now - self._heard.get(status.guest, now)
        if status.state not in (RUNNING, ARMED) or silent_s < SILENT_AFTER_S:
            return status
        if status.guest not in self._silent:
            self._silent.add(status.guest)
            self.live.note(f"{status.guest}: silent; it is waited for until its job's deadline has passed")
        return GuestStatus(status.guest, SILENT, f"since {silent_s:.0f} s, waited for until its deadline")

    def _speaks_again(self, guest: str) -> None:
        if guest in self._silent:
            self._silent.remove(guest)
            silent_s = time.monotonic() - self._heard[guest]
            self.live.note(f"{guest}: speaks again after {silent_s:.0f} s")

    def _remaining_s(self, now: float) -> float | None:
        if self._round_number and not self._in_round:
            return None  # the rounds are over, and cleaning takes as long as it takes
        if self._round_number == 0:
            return max(0.0, self.plan.estimated_s - (now - self._began))
        costs = [self._cost_s(r) for r in self._rounds[self._round_number - 1 :]]
        return max(0.0, costs[0] - (now - self._round_began)) + sum(costs[1:])

    def _cost_s(self, round_: Round) -> float:
        w = round_.workload
        return w.ramp_s + w.runtime_s + self.plan.inventory.lost_time_probe_s + ROUND_OVERHEAD_S
