"""The guests of a run: who is open, who was given up and why, what is to be told of each; letting go and cleaning."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from calyx_orch import transport
from calyx_orch.engines import clipped
from calyx_orch.errors import CalyxError, FolderError
from calyx_orch.model import Guest, GuestOutcome, Measurement
from calyx_orch.report.live import Live
from calyx_orch.runner import border
from calyx_orch.runner.display import Display
from calyx_orch.runner.session import Session
from calyx_orch.store.archive import RunFolder

CLEAN_WITHIN_S = 30.0
CLOSE_WITHIN_S = 120.0  # of a guest that keeps files, which are flushed and looked at
LET_GO_WITHIN_S = 2.0
ALIVE_EACH_S = 2.0  # at the least; and several times within the shortest lease
ALIVE_PART = 4
ALIVE_WITHIN_S = 0.05
REMOVE_WITHIN_S = 20.0


@dataclass
class Fleet:
    """All guests of a run by name. `answered` are the measurements of each so far, `notes` what its outcome tells.

    `unjudged` are the indices of rounds that enter no figure.
    """

    folder: RunFolder
    live: Live
    display: Display
    unjudged: frozenset[int] = frozenset()
    sessions: dict[str, Session] = field(default_factory=dict)
    transports: dict[str, transport.Transport] = field(default_factory=dict)
    troubles: dict[str, tuple[str, str]] = field(default_factory=dict)  # guest -> (step, reason)
    notes: dict[str, list[str]] = field(default_factory=dict)
    stayed: dict[str, list[str]] = field(default_factory=dict)  # guest -> what could not be removed, and why
    answered: dict[str, list[Measurement]] = field(default_factory=dict)

    async def each(self, guests: Sequence[Guest], act: Callable[[Guest], Awaitable[None]], step: str) -> None:
        """Do one step on all guests at once; one that fails is left out with its reason, the others go on."""

        async def guarded(guest: Guest) -> None:
            try:
                await act(guest)
            except FolderError:
                raise
            except CalyxError as error:
                own = getattr(error, "step", "") or step
                await self.give_up(guest.name, own, str(error))
            except Exception as error:  # the last net: one guest's nonsense is that guest's failure only
                trace = traceback.format_exc()
                self.folder.note("unexpected", time.monotonic_ns(), guest=guest.name, step=step, trace=trace)
                await self.give_up(guest.name, step, f"unexpected, see the journal: {type(error).__name__}: {error}")

        raise_first(await asyncio.gather(*(guarded(guest) for guest in guests), return_exceptions=True))

    def in_order(self, guests: Sequence[Guest]) -> None:
        """Sort the sessions as the inventory does; they were filled in as guests answered."""
        self.sessions = {guest.name: self.sessions[guest.name] for guest in guests if guest.name in self.sessions}

    async def give_up(self, name: str, step: str, reason: str) -> None:
        """Leave a guest out from now on, with the step and the sentence for the table; close it and clean after it."""
        reason = clipped(reason)
        self.troubles.setdefault(name, (step, reason))
        self.display.state(name, "lost", f"{step}: {reason}")
        self.folder.note("gave up", time.monotonic_ns(), guest=name, step=step, reason=reason)
        session, way = self.sessions.pop(name, None), self.transports.pop(name, None)
        if session is not None:
            ended_by_itself = not session.is_open
            await session.close()
            if ended_by_itself and way is not None:
                await self._remove_what_is_left(session, way)
        if way is not None:
            await way.close()

    async def give_up_all(self, lost: Mapping[str, str], step: str) -> None:
        """Give up several guests at once, each with its reason: one that takes long to be closed holds up no other."""
        giving_up = [self.give_up(name, step, reason) for name, reason in lost.items()]
        raise_first(await asyncio.gather(*giving_up, return_exceptions=True))

    async def _remove_what_is_left(self, session: Session, way: transport.Transport) -> None:
        """An agent that was killed could not clean: remove the directories that it made, as far as it had told of them."""
        places = session.directories()
        try:
            done = await way.run((*session.guest.become, "/bin/rm", "-rf", "--", *places), timeout_s=REMOVE_WITHIN_S)
        except CalyxError:
            done = None
        if done is None or done.status is None:
            self.note(session.guest.name, "not cleaned by us: its agent removes its files when its channel closes")
        elif done.status != 0:
            self.note(session.guest.name, f"its agent ended without cleaning: remove {', '.join(places)}")

    async def keep_leases(self, shortest_s: float) -> None:
        """Tell every agent that its controller lives, until cancelled. One that takes nothing holds up the others for a moment only.

        `shortest_s` is the shortest lease that an agent has.
        """
        while True:
            await asyncio.sleep(min(ALIVE_EACH_S, shortest_s / ALIVE_PART))
            for session in list(self.sessions.values()):
                await session.say_alive(ALIVE_WITHIN_S)

    async def clean_all(self) -> None:
        """Clean every guest that still answers, bounded; a cancellation ends it."""
        if self.sessions:
            self.display.phase(f"cleaning {count_of(self.alive())}")
        cleaning = [self._clean(session) for session in list(self.sessions.values())]
        raise_first(await asyncio.gather(*cleaning, return_exceptions=True))

    async def let_go(self) -> None:
        """Close every channel and connection within a moment: an agent whose channel is closed ends by itself and cleans."""
        open_ = [session for session in self.sessions.values() if session.is_open]
        ends = [*(session.close() for session in open_), *(way.close() for way in self.transports.values())]
        closing = [asyncio.create_task(end) for end in ends]
        if closing:
            _, late = await asyncio.wait(closing, timeout=LET_GO_WITHIN_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=LET_GO_WITHIN_S)
            for task in closing:
                if task.done() and not task.cancelled():
                    task.exception()  # heard, and of no more use: that guest is let go of in any case

    async def _clean(self, session: Session) -> None:
        name = session.guest.name
        try:
            arrival = await session.clean(CLOSE_WITHIN_S if session.kept else CLEAN_WITHIN_S)
            answer = border.checked(arrival.message, "clean")
            for failure in answer.get("failed") or []:
                stayed = f"{failure.get('path')}: {failure.get('why')}"
                self.stayed.setdefault(name, []).append(clipped(stayed))
                self.note(name, f"could not remove {stayed}")
            for path in sorted(session.kept.intersection(answer.get("removed") or ())):
                self.note(name, f"{path} could not be closed for the next run and was removed: that one lays out anew")
            self.folder.note("cleaned", time.monotonic_ns(), guest=name, answer=answer)
        except FolderError:
            await session.close()
            raise
        except CalyxError as error:
            self.note(
                name, f"cleaning was not confirmed ({error}); the agent removes its files when its channel closes"
            )
        await session.close()

    def note(self, guest: str, note: str) -> None:
        """Tell something of a guest, once, now and in its outcome."""
        note = clipped(note)
        notes = self.notes.setdefault(guest, [])
        if note not in notes:
            notes.append(note)
            self.live.note(f"{guest}: {note}")

    def alive(self) -> list[Guest]:
        """The guests that still answer."""
        return [session.guest for session in self.sessions.values()]

    def outcome(self, guest: Guest) -> GuestOutcome:
        """How a guest ended: lost at a step, measured in all its rounds, or in some, or in none."""
        notes = tuple(self.notes.get(guest.name, ()))
        if guest.name in self.troubles:
            step, reason = self.troubles[guest.name]
            return GuestOutcome(guest.name, "lost", step, reason, notes)
        found = self.answered.get(guest.name, [])
        has_figures = any(one.status == "ok" and one.round_index not in self.unjudged for one in found)
        bad = [m for m in found if m.status == "failed"]
        if bad:
            state = "partial" if len(bad) < len(found) else "lost"
            return GuestOutcome(guest.name, state, f"round {bad[0].round_index + 1}", bad[0].why, notes)
        if guest.name in self.stayed:
            first, *more = self.stayed[guest.name]
            reason = f"could not remove {first}{f' and {len(more)} more' if more else ''}: remove it by hand"
            return GuestOutcome(guest.name, "partial" if has_figures else "lost", "clean", reason, notes)
        return GuestOutcome(guest.name, "measured" if has_figures else "skipped", notes=notes)


def raise_first(ended: Sequence[object]) -> None:
    """Raise what ended one of several tasks, now that all have ended."""
    for one in ended:
        if isinstance(one, BaseException):
            raise one


def count_of(guests: Sequence[Guest]) -> str:
    """`1 guest`, `4 guests`."""
    return f"{len(guests)} guest{'s' * (len(guests) != 1)}"
