"""A whole run from connecting to cleaning; the order of its steps reads from top to bottom in `_Run._steps`."""

from __future__ import annotations

import asyncio
import functools
import gc
import getpass
import platform
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from calyx_agent.executables import Executable, available
from calyx_orch import coordination as co
from calyx_orch import deploy, transport
from calyx_orch import plan as planning
from calyx_orch.analysis import keeping
from calyx_orch.errors import RefusedError
from calyx_orch.model import Conditioned, Found, Guest, GuestOutcome, Measurement, Plan, Round, Settled
from calyx_orch.report.live import Live
from calyx_orch.runner import buffers, conditioning, harm, preflight, preparing, probes, resume, search
from calyx_orch.runner.calibration import Cache, Calibration
from calyx_orch.runner.display import Display
from calyx_orch.runner.fleet import Fleet, count_of
from calyx_orch.runner.former import DEAD_GRACE_S, past_the_dead
from calyx_orch.runner.repeating import Repetitions
from calyx_orch.runner.repeating import sentence as settled_sentence
from calyx_orch.runner.rounds import RoundRunner, measurements
from calyx_orch.runner.session import Session
from calyx_orch.store.archive import RunFolder


@dataclass(frozen=True)
class Ended:
    """How a run ended: `status` is finished, interrupted or failed."""

    status: str
    outcomes: tuple[GuestOutcome, ...]
    notes: tuple[str, ...]


class _InterruptedRun(Exception):
    """The user wants to end; whatever was measured is kept."""


async def run(
    plan: Plan,
    *,
    folder: RunFolder,
    live: Live,
    interrupted: asyncio.Event,
    pool: transport.Pool | None = None,
    cache: Cache | None = None,
    earlier: resume.Earlier | None = None,
) -> Ended:
    """Run a plan and write everything into `folder`; of a run that is continued, what is missing beside what stands `earlier`.

    Single guests that fail are outcomes, not errors. Raises RefusedError when preflight refuses the whole plan, or when a guest is
    no longer what it was when it was measured. When
    `interrupted` is set the guests are stopped and cleaned, and what was measured is kept. `cache` holds the set-ups that
    earlier runs chose (None: none, and nothing is kept).
    """
    kept = cache or Cache(None)
    if pool is None:
        async with transport.Pool() as own:
            return await _Run(plan, folder, live, interrupted, own, cache=kept, earlier=earlier).run()
    return await _Run(plan, folder, live, interrupted, pool, cache=kept, earlier=earlier).run()


@dataclass
class _Run:
    plan: Plan
    folder: RunFolder
    live: Live
    interrupted: asyncio.Event
    pool: transport.Pool
    notes: list[str] = field(default_factory=list)
    known: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # what each guest said of itself, also lost ones
    cache: Cache = field(default_factory=lambda: Cache(None))
    earlier: resume.Earlier | None = None
    display: Display = field(init=False)
    fleet: Fleet = field(init=False)
    planned: Plan = field(init=False)  # as in the run folder: with all guests, also those that lack an engine

    executables: Mapping[str, Executable] = field(
        default_factory=dict
    )  # the agents there are: read once, not once a guest
    flushing: asyncio.Task[None] | None = None
    stopped: str = ""  # why the latest round was ended early
    running: RoundRunner | None = None
    harmful: set[str] = field(default_factory=set)  # workloads that were stopped for what they did to the guests
    first: int | None = None  # of a run that is continued: the first round to be measured
    rebooted: tuple[str, ...] = ()
    dead_until: float = 0.0  # until when agents of a controller that died may still be there

    def __post_init__(self) -> None:
        self.planned = self.plan
        lease_s = max((guest.dead_man_s for guest in self.plan.inventory.guests), default=0.0)
        self.dead_until = time.monotonic() + lease_s + DEAD_GRACE_S

    async def run(self) -> Ended:
        guests = _guests_of(self.plan)
        self.display = Display(self.live, self.plan, (guest.name for guest in guests))
        self.fleet = Fleet(self.folder, self.live, self.display)
        self._take_over()
        teller = asyncio.create_task(self.display.tell())
        leases = asyncio.create_task(self.fleet.keep_leases())
        status, at_once = "failed", False
        try:
            status = await self._steps(guests)
        except _InterruptedRun:
            status = "interrupted"
        except RefusedError:
            status = "failed" if self.earlier is None else "interrupted"  # what stands, stands
            raise
        except asyncio.CancelledError:
            status, at_once = "interrupted", True
            raise
        finally:
            gc.unfreeze()
            leases.cancel()
            try:
                if not at_once:
                    await self.fleet.clean_all()
            except asyncio.CancelledError:
                status = "interrupted"
                raise
            finally:
                await self.fleet.let_go()
                teller.cancel()
                self.live.close()
                flushing = [] if self.flushing is None else [self.flushing]
                await asyncio.gather(teller, leases, *flushing, return_exceptions=True)
                outcomes = tuple(self.fleet.outcome(guest) for guest in guests)
                if status == "finished" and not any(self.fleet.answered.values()):
                    status = "failed"
                self.folder.finish(status=status, outcomes=outcomes, notes=tuple(self.notes))
        return Ended(status, outcomes, tuple(self.notes))

    async def _steps(self, guests: Sequence[Guest]) -> str:
        """The order of everything. Returns how it ended; leaves by _InterruptedRun when the user interrupts."""
        if self.earlier is not None and self.earlier.standing.is_complete:
            self._put_aside()
            return "finished"  # its controller died when all was measured
        wanted = [guest for guest in guests if guest.name not in self.fleet.troubles]
        await self._step("connecting to", wanted, self._connect, "connect")
        self.fleet.in_order(guests)
        await self._step("inspecting", self.fleet.alive(), self._inspect, "preflight")
        self._settle_baselines()
        self._refuse_others()
        self._keep_facts()
        await self._step("laying out files on", self.fleet.alive(), self._lay_out, "prepare")
        for note in keeping.told(self.plan, {name: one.facts for name, one in self.fleet.sessions.items()}):
            self.notes.append(note)
            self.live.note(note)
        await self._unless_interrupted(self._probe())
        await self._unless_interrupted(self._calibrate())
        await self._unless_interrupted(self.fleet.each(self.fleet.alive(), self._rehearse, "rehearse"))
        self._settle_buffers()
        if self.earlier is not None:
            resume.refuse_other_setups(self.earlier, list(self.fleet.sessions.values()))
        self._keep_facts()
        gc.collect()
        gc.freeze()  # a collection in the middle of a clock probe would widen its bound
        await conditioning.condition(
            self.planned, measured=self._measured, play=self._run_conditioning, ended=self._tell_conditioned
        )
        status = "failed" if self.stopped else await self._run_rounds()
        if status == "finished":
            await self._run_searches()
        await self._flushed()
        before = self.earlier.facts if self.earlier is not None else {}
        sessions = self.fleet.sessions
        await asyncio.gather(*(preflight.look_again(one, before.get(name, {})) for name, one in sessions.items()))
        self._keep_facts()
        return status

    async def _step(
        self, words: str, guests: Sequence[Guest], act: Callable[[Guest], Awaitable[None]], step: str
    ) -> None:
        if guests:
            self.display.phase(f"{words} {count_of(guests)}")
            await self._unless_interrupted(self.fleet.each(guests, act, step))

    # --- steps for one guest ---

    async def _connect(self, guest: Guest) -> None:
        self.display.state(guest.name, "connecting")
        way = await transport.connect(guest.connection, pool=self.pool)
        self.fleet.transports[guest.name] = way
        self.executables = self.executables or available()
        agent = await deploy.deploy(way, guest, executables=self.executables)
        session = Session(guest, agent, self._owner(), on_beat=lambda message: self._beat(guest.name, message))
        session.start()
        self.fleet.sessions[guest.name] = session
        for note in agent.notes:
            self.fleet.note(guest.name, note)
        self.folder.note("deployed", time.monotonic_ns(), guest=guest.name, uploaded=agent.uploaded, hello=agent.hello)
        await session.send("lease", (("ms", round(guest.dead_man_s * 1000)),))
        self.display.state(guest.name, "connected")

    def _beat(self, guest: str, message: Mapping[str, Any]) -> None:
        self.display.beat(guest, message)
        if self.running is not None and (why := harm.during(self.plan.inventory.impact.abort_if, guest, message)):
            self.running.harm(why)

    def _owner(self) -> tuple[tuple[str, str], ...]:
        """Who uses a directory: a run that is continued is told from its own earlier part, whose agents may still be there."""
        part = f"+{self.earlier.attempt - 1}" if self.earlier is not None else ""
        return ("run", f"{self.folder.run_id}{part}"), ("by", f"{getpass.getuser()}@{platform.node()}")

    async def _inspect(self, guest: Guest) -> None:
        session = self.fleet.sessions[guest.name]
        await self._past_the_dead(guest, lambda: preflight.inspect(session, self.plan))
        kept = keeping.unused(session.facts, self.plan.inventory)
        for note in (*preflight.left_by_the_dead(session.facts), *kept):
            self.fleet.note(guest.name, note)
        self.display.state(guest.name, "inspected")

    async def _lay_out(self, guest: Guest) -> None:
        session = self.fleet.sessions[guest.name]
        for layout in self.plan.layouts:
            if layout.guest == guest.name:
                lay_out = functools.partial(preparing.lay_out, session, layout, self.plan, self.fleet.note)
                await self._past_the_dead(guest, lay_out)
                answer = session.laid_out[layout.target]
                self.folder.note(
                    "prepared", time.monotonic_ns(), guest=layout.guest, target=layout.target, answer=answer
                )
        self.display.state(guest.name, "laid out")

    async def _past_the_dead(self, guest: Guest, act: Callable[[], Awaitable[None]]) -> None:
        """One act on a guest; in a run that is continued, once its former agent is gone."""
        if self.earlier is None:
            await act()
            return
        note, state = self.live.note, self.display.state
        await past_the_dead(guest.name, act, run_id=self.folder.run_id, until_s=self.dead_until, note=note, state=state)

    async def _rehearse(self, guest: Guest) -> None:
        """Open every calyx job once without starting it: what set-up takes effect is what fio is given, too."""
        session = self.fleet.sessions[guest.name]
        seen: set[tuple[str, str]] = set()
        for round_ in (*self.plan.rounds, *map(search.first_probe, self.plan.searches)):
            key = (round_.workload.name, round_.target)
            if guest.name in round_.guests and key not in seen:
                seen.add(key)
                session.taken[key] = await preparing.rehearse(session, round_, self.fleet.note)
        self.display.state(guest.name, "ready")

    # --- all guests, once ---

    async def _probe(self) -> None:
        """What the engine itself costs, and whether caches and flushes below are what they seem."""
        if not self.fleet.sessions:
            return
        self.display.phase(f"probing {count_of(self.fleet.alive())}")
        self.notes += await probes.ask_all(list(self.fleet.sessions.values()))

    async def _calibrate(self) -> None:
        """Choose the set-up of each guest where a workload says `auto`, and pin it in the plan of the run folder."""
        chosen = resume.pins_that_hold(self.earlier, self.planned, self.fleet.sessions)
        if chosen is not None:
            for pin in chosen:
                self.fleet.sessions[pin.guest].pins[pin.workload, pin.target] = pin
            return
        calibration = Calibration(
            self.plan, self.fleet.sessions, self.cache, self.notes.append, self.display.phase, self.folder.note
        )
        pins = await calibration.run()
        for pin in pins:
            self.fleet.sessions[pin.guest].pins[pin.workload, pin.target] = pin
        self.planned = replace(self.planned, pins=pins)
        self.folder.keep_plan(self.planned)
        for why in dict.fromkeys(pin.why for pin in pins if pin.how != "ladder"):
            self.live.note(f"set-up: {why}")

    def _settle_buffers(self) -> None:
        """All register their buffers, or nobody does."""
        taken = {name: session.taken for name, session in self.fleet.sessions.items()}
        facts = {name: session.facts for name, session in self.fleet.sessions.items()}
        found = buffers.gaps(self.plan, taken, facts)
        buffers.refuse_where_required(self.plan, found)
        self.plan, told = buffers.without(self.plan, found)
        self.planned, _ = buffers.without(self.planned, found)
        names = {gap.workload for gap in found}
        for session in self.fleet.sessions.values():
            for key in session.taken:
                if key[0] in names:
                    session.taken[key] = {**session.taken[key], "fixed_buffers": False}
        for note in told:
            self.notes.append(note)
            self.live.note(note)
        if told:
            self.folder.keep_plan(self.planned)

    # --- a run that is continued ---

    def _take_over(self) -> None:
        """What stands of the earlier part: its measurements, its facts, and who stays out."""
        if self.earlier is None:
            return
        standing = self.earlier.standing
        self.known = dict(self.earlier.facts)
        for measurement in self.earlier.measurements:
            self.fleet.answered.setdefault(measurement.guest, []).append(measurement)
        for guest, (step, reason) in standing.out.items():
            self.fleet.troubles[guest] = (step, reason)
            self.display.state(guest, "lost", f"{step}: {reason}")
        self.first = standing.missing[0].index if standing.missing else None

    def _refuse_others(self) -> None:
        """Before anything is written: guests that are no longer those that were measured refuse the run."""
        if self.earlier is None:
            return
        sessions = list(self.fleet.sessions.values())
        resume.refuse_others(self.earlier, sessions)
        self.rebooted = resume.rebooted(self.earlier, sessions)
        self._put_aside()
        for name in self.rebooted:
            self.fleet.note(name, "was started anew between its rounds before the resume and those after")

    def _put_aside(self) -> None:
        """Note that the run goes on; from here on only what stands is its result."""
        if self.earlier is not None:
            standing = self.earlier.standing
            self.folder.keep_plan(self.planned)
            self.folder.resume(self.earlier.resumed(self.rebooted), standing.kept, out=standing.out)

    # --- rounds ---

    def _settle_baselines(self) -> None:
        sessions = list(self.fleet.sessions.values())
        missing = preflight.missing_baselines(self.plan, sessions)
        preflight.refuse_missing(self.plan, missing)
        for guest, gaps in missing.items():
            for engine, why in gaps.items():
                self.fleet.note(guest, f"no {engine} baseline: {why}")
        self.plan = planning.without(self.plan, {guest: frozenset(gaps) for guest, gaps in missing.items()})
        self.notes += preflight.twins(sessions)
        for note in self.notes:
            self.live.note(note)

    async def _run_rounds(self) -> str:
        rounds = self.plan.rounds
        planned = len(_guests_of(self.plan))
        for number, round_ in enumerate(rounds, start=1):
            if self.earlier is not None and (self.first is None or round_.index < self.first):
                continue  # it stands
            if round_.workload.name in self.harmful or not self._is_needed(round_):
                continue
            if shut := harm.closed(self.plan.inventory.impact, round_, time.time()):
                self.notes.append(
                    f"ended before round {round_.number}: {shut}; `calyx-orch run --resume` goes on with it"
                )
                return "interrupted"
            alive = [self.fleet.sessions[name] for name in round_.guests if name in self.fleet.sessions]
            if not co.is_quorum_met(self.plan.inventory.policy, alive=len(self.fleet.sessions), planned=planned):
                left = len(self.fleet.sessions)
                by = "by the policy" if left else "as nobody is left to measure"
                self.notes.append(f"stopped before round {round_.number} {by}: {left} of {planned} guests are left")
                return "failed"
            if not alive:
                continue
            self.display.round(number, rounds, alive=len(alive))
            await self._run_round(round_, alive)
            if self.interrupted.is_set():
                raise _InterruptedRun
            if self.stopped:
                self.notes.append(f"stopped in round {round_.number} by the {self.stopped}")
                return "failed"
        for settled in self._repetitions().end(self._measured()):
            self._tell_settled(settled)
        return "finished"

    # --- preconditioning ---

    async def _run_conditioning(self, round_: Round) -> bool:
        """One round that enters no figure; False when nobody is left, or the policy ended the run."""
        alive = [self.fleet.sessions[name] for name in round_.guests if name in self.fleet.sessions]
        if not alive or self.stopped:
            return False
        self.display.round(1, (round_,), alive=len(alive))
        await self._run_round(round_, alive)
        if self.interrupted.is_set():
            raise _InterruptedRun
        if self.stopped:
            self.notes.append(f"stopped in round {round_.number}, while preconditioning, by the {self.stopped}")
        return not self.stopped

    def _tell_conditioned(self, found: Conditioned) -> None:
        self._keep_planned(conditioning.with_ended(self.planned, found))
        self.folder.note("conditioned", time.monotonic_ns(), **asdict(found))
        self.live.note(f"precondition {found.workload} on {found.target}: {found.why}")

    # --- repetitions that end when they are enough ---

    def _is_needed(self, round_: Round) -> bool:
        needed, settled = self._repetitions().needs(round_, self._measured())
        if settled is not None:
            self._tell_settled(settled)
        return needed

    def _repetitions(self) -> Repetitions:
        def journal(event: str, more: Mapping[str, Any]) -> None:
            self.folder.note(event, time.monotonic_ns(), **more)

        return Repetitions(self.planned, journal, self._keep_planned)

    def _keep_planned(self, plan: Plan) -> None:
        self.planned = plan
        self.folder.keep_plan(plan)

    def _measured(self) -> list[Measurement]:
        return [one for answered in self.fleet.answered.values() for one in answered]

    def _tell_settled(self, settled: Settled) -> None:
        self.live.note(settled_sentence(settled))

    async def _run_searches(self) -> None:
        """Each search in turn; its rounds join the plan of the run folder as they are made."""
        found: list[Found] = list(self.earlier.found) if self.earlier is not None else []
        for number, plan in enumerate(self.plan.searches):
            if number < len(found):
                continue
            first = 1 + max((one.index for one in self.planned.rounds), default=-1)
            self.folder.note("search", time.monotonic_ns(), search=number, round=first)
            found.append(await search.find(plan, seed=self.plan.seed, first_index=first, run_round=self._run_probe))
            self.folder.keep_found(found)

    async def _run_probe(self, round_: Round) -> tuple[Measurement, ...]:
        """One round of a search on the guests that are left."""
        alive = [self.fleet.sessions[name] for name in round_.guests if name in self.fleet.sessions]
        if not alive:
            return ()
        self.planned = replace(self.planned, rounds=(*self.planned.rounds, round_))
        self.folder.keep_plan(self.planned)
        self.display.round(1, (round_,), alive=len(alive))
        found = await self._run_round(round_, alive)
        if self.interrupted.is_set():
            raise _InterruptedRun
        return found

    async def _run_round(self, round_: Round, sessions: Sequence[Session]) -> tuple[Measurement, ...]:
        self.folder.note(
            "round", time.monotonic_ns(), round=round_.index, name=round_.name, guests=[s.guest.name for s in sessions]
        )

        def journal(event: co.Event, more: Mapping[str, Any]) -> None:
            self.folder.note(type(event).__name__, event.at_ns, round=round_.index, **co.to_entry(event), **more)

        def status(guest: str, state: co.GuestState, reason: str) -> None:
            self.display.state(guest, state.value, reason)

        began_ns = time.monotonic_ns()
        runner = RoundRunner(
            self.plan, round_, sessions, journal, status, self.interrupted,
            fleet=len(_guests_of(self.plan)), elsewhere=len(self.fleet.sessions) - len(sessions),
        )  # fmt: skip
        self.running = runner
        try:
            progress, answers = await runner.run()
        finally:
            self.running = None
        await self._flushed()
        for name, answer in answers.items():
            self.folder.keep_answers(round_, name, answer)
        found = resume.doubted(measurements(self.plan, round_, progress, answers), self.rebooted)
        self.folder.keep_measurements(found)
        spent = {**runner.spent_ns, "whole": time.monotonic_ns() - began_ns}
        self.folder.note(
            "done", time.monotonic_ns(), round=round_.index, because=progress.stopped_because,
            wall_s=round(time.time(), 3), spent_ns=spent,
        )  # fmt: skip
        self.stopped = "" if progress.harmed else progress.stopped_because
        self._look_for_harm(round_, progress, found)
        self.flushing = asyncio.create_task(asyncio.to_thread(self.folder.flush))  # while the next round settles
        for measurement in found:
            self.fleet.answered.setdefault(measurement.guest, []).append(measurement)
            if measurement.status == "failed":
                self.display.state(measurement.guest, "failed", measurement.why)
        for guest in progress.guests:
            if guest.state is co.GuestState.LOST:
                await self.fleet.give_up(guest.name, f"round {round_.number}", guest.reason)
        return found

    def _look_for_harm(self, round_: Round, progress: co.RoundProgress, found: Sequence[Measurement]) -> None:
        """Note why a round was stopped; a workload that harms is not run again."""
        impact = self.plan.inventory.impact
        why = progress.harmed or harm.after(impact.abort_if, found)
        if not why:
            return
        lasting = f"; {round_.workload.name} is not run again in this run" if harm.is_lasting(why) else ""
        note = f"round {round_.number} {'was stopped' if progress.harmed else 'harmed'} by {why}{lasting}"
        self.notes.append(note)
        self.live.note(note)
        if lasting:
            self.harmful.add(round_.workload.name)

    async def _flushed(self) -> None:
        """Wait until the round before is on the disk. Raises FolderError."""
        if self.flushing is not None:
            await self.flushing
            self.flushing = None

    # --- all guests ---

    async def _unless_interrupted(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for a phase, or leave it when the user interrupts."""
        task = asyncio.create_task(work)
        bell = asyncio.create_task(self.interrupted.wait())
        try:
            await asyncio.wait({task, bell}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                raise _InterruptedRun
            await task
        finally:
            bell.cancel()
        if self.interrupted.is_set():
            raise _InterruptedRun

    def _keep_facts(self) -> None:
        self.known |= {name: session.facts for name, session in self.fleet.sessions.items()}
        self.folder.keep_facts(self.known)


def _guests_of(plan: Plan) -> list[Guest]:
    named = {name for one in plan.measured for name in one.guests}
    return [guest for guest in plan.inventory.guests if guest.name in named]
