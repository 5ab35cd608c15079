"""One round for real: sends what `coordination.step` asks for, and turns what guests send into its events.

settle -> lost-time probe -> clock -> load .. ready -> arm -> run -> report -> clock -> measurement
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from calyx_orch import clock, engines
from calyx_orch import coordination as co
from calyx_orch.errors import AgentError, CalyxError
from calyx_orch.model import Answers, LostTime, Measurement, Plan, Round
from calyx_orch.plan import cost
from calyx_orch.plan.order import turns
from calyx_orch.runner import clocks, harm, interrupting
from calyx_orch.runner.clocks import GuestClock
from calyx_orch.runner.session import Arrival, Session

RESTED_NS = int(cost.REST_S * 1e9)
LEAD_NS = 300_000_000  # from arming to the start line, besides the slowest guest's round trip
ARM_EACH_NS = 2_000_000  # for each guest besides: on a busy controller a thousand were told 1.3 s after the first
REPORT_GRACE_S = 15.0  # after the guest's own deadline
REST_WITHIN_S = 12.0
STOP_WITHIN_S = 12.0
TICK_S = 0.5
KEPT = frozenset({"ready", "armed", "started", "usage", "result", "exited"})  # what a round's answers are made of


@dataclass
class GuestRound:
    """What one guest has said in this round."""

    session: Session
    clock: GuestClock
    messages: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    start_ns: int = 0  # the start line on the controller's clock
    held_start_ns: int = 0  # the same on the guest's
    lost_time: LostTime | None = None


@dataclass
class RoundRunner:
    """Runs one round on the given sessions.

    `journal` hears every event with what it led to, `status` every change of a guest's state. `fleet` is how many guests the run
    was planned with, `elsewhere` how many of them live and have no part in this round.
    """

    plan: Plan
    round: Round
    sessions: Sequence[Session]
    journal: Callable[[co.Event, Mapping[str, Any]], None]
    status: Callable[[str, co.GuestState, str], None]
    interrupted: asyncio.Event
    fleet: int = 0
    elsewhere: int = 0
    spent_ns: dict[str, int] = field(default_factory=dict)  # how long each step before and after the I/O took
    _loaded_at_ns: int = 0
    _guests: dict[str, GuestRound] = field(default_factory=dict)
    _turns: dict[str, int] = field(default_factory=dict)  # the step of a staggered start at which each guest begins
    _events: asyncio.Queue[co.Event] = field(default_factory=asyncio.Queue)
    _followers: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._watch = harm.Watch(self.plan.inventory.impact.abort_if)

    async def run(self) -> tuple[co.RoundProgress, dict[str, Answers]]:
        """Run to the end. Returns how each guest ended and, for those that reported, their answers.

        Raises RunInterrupted when the user ends the run before the round has begun.
        """
        self._guests = {session.guest.name: GuestRound(session, GuestClock(session)) for session in self.sessions}
        self._turns = turns(
            [session.guest for session in self.sessions],
            self.round.load,
            by_domain=self.plan.inventory.impact.stagger_by_domain,
        )
        for session in self.sessions:
            session.begin()
        await interrupting.unless(self.interrupted, self._before())
        try:
            with self._timed("round"):
                progress = await self._coordinate()
        finally:
            for task in self._followers.values():
                task.cancel()
            await asyncio.gather(*self._followers.values(), return_exceptions=True)
        with self._timed("clocks_after"):
            return progress, await self._answers(progress)

    @contextlib.contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        began_ns = time.monotonic_ns()
        yield
        self.spent_ns[step] = time.monotonic_ns() - began_ns

    # --- before ---

    async def _before(self) -> None:
        with self._timed("settle"):
            await self._each(self._settle)
        with self._timed("lost_time"):
            await self._probe_lost_time()
        with self._timed("clocks_before"):
            await self._each(lambda guest: guest.clock.learn_distance(), at_once=clocks.AT_ONCE_FIRST)
            gate = clocks.gate_of(self.sessions)
            await self._each(lambda guest: guest.clock.probe(gate))

    async def _each(self, act: Callable[[GuestRound], Awaitable[None]], *, at_once: int = 1000) -> None:
        """Do something on every guest; one that fails is found out when it is loaded."""
        gate = asyncio.Semaphore(at_once)

        async def guarded(guest: GuestRound) -> None:
            async with gate:
                try:
                    await act(guest)
                except Exception as error:  # also what no rule foresaw: it is this guest's trouble alone
                    guest.messages["trouble"] = {"type": "trouble", "why": _told(error)}

        await asyncio.gather(*(guarded(guest) for guest in self._guests.values()))

    async def _settle(self, guest: GuestRound) -> None:
        limit_s = self.plan.inventory.settle_s
        if limit_s <= 0:
            return
        path = next(t.path for t in guest.session.guest.targets if t.name == self.round.target)
        pairs = (("path", path), ("timeout_ms", int(limit_s * 1000)))
        arrival = await guest.session.ask("settle", pairs, answer="settled", timeout_s=limit_s + 15.0)
        guest.messages["settled"] = arrival.message

    async def _probe_lost_time(self) -> None:
        """Spin once on each machine: guests that are one machine (one boot id) would only measure each other."""
        spin_ms = int(self.plan.inventory.lost_time_probe_s * 1000)
        if spin_ms <= 0:
            return
        machines: dict[object, list[GuestRound]] = {}
        for guest in self._guests.values():
            machines.setdefault(guest.session.facts.get("boot_id") or id(guest), []).append(guest)

        async def spin(first: GuestRound) -> None:
            pairs = (("spin_ms", spin_ms),)
            arrival = await first.session.ask("lost", pairs, answer="lost", timeout_s=spin_ms / 1000 + 15.0)
            first.lost_time = lost_time(arrival.message)

        chosen = {id(guests[0]) for guests in machines.values()}

        async def probe(guest: GuestRound) -> None:
            if id(guest) in chosen:
                await spin(guest)

        await self._each(probe)
        for guests in machines.values():
            for guest in guests[1:]:
                guest.lost_time = guests[0].lost_time

    # --- the round itself ---

    def beat(self, guest: str, message: Mapping[str, Any]) -> None:
        """A guest tells how far it is: stop the round when that shows harm."""
        if reason := self._watch.beat(guest, message):
            self._events.put_nowait(co.Harmed(time.monotonic_ns(), reason))

    async def _coordinate(self) -> co.RoundProgress:
        rules = self._rules()
        now_ns = self._loaded_at_ns = time.monotonic_ns()
        lost = {name: guest.lost_time for name, guest in self._guests.items()}
        harmed = harm.before(self.plan.inventory.impact.abort_if, lost)
        progress, actions = co.open_round(self._guests, rules, at_ns=now_ns, harmed=harmed)
        opened = co.Opened(now_ns, tuple(self._guests), harmed)
        self.journal(opened, {"rules": dataclasses.asdict(rules), "actions": co.told(actions)})
        ticker = asyncio.create_task(self._tick())
        try:
            while True:
                for action in actions:
                    await self._act(action)
                if progress.phase is co.Phase.DONE:
                    return progress
                event = await self._events.get()
                before = progress
                progress, actions = co.step(progress, event)
                if not isinstance(event, co.Tick) or progress != before:  # time that passes is no news
                    self.journal(event, {"actions": co.told(actions)} if actions else {})
                self._show(progress, event)
        finally:
            ticker.cancel()

    def _rules(self) -> co.Rules:
        last = max(self._turns.values(), default=0)
        longest_ns = engines.deadline_ns(self.round, self._stagger_ns(last + 1 if last else 0))
        report_ns = longest_ns + RESTED_NS + int(REPORT_GRACE_S * 1e9)
        return co.Rules(
            self.plan.inventory.policy, int(engines.READY_WITHIN_S * 1e9), report_ns, int(STOP_WITHIN_S * 1e9),
            fleet=self.fleet, elsewhere=self.elsewhere,
        )  # fmt: skip

    async def _tick(self) -> None:
        told = False
        while True:
            try:
                async with asyncio.timeout(TICK_S):
                    await (asyncio.Event() if told else self.interrupted).wait()
                told = True
                self._events.put_nowait(co.Interrupted(time.monotonic_ns()))
            except TimeoutError:
                self._events.put_nowait(co.Tick(time.monotonic_ns()))

    def _show(self, progress: co.RoundProgress, event: co.Event) -> None:
        if isinstance(event, co.Ready | co.Armed | co.Started | co.Reported | co.Failed | co.Lost):
            guest = progress.state_of(event.guest)
            self.status(guest.name, guest.state, guest.reason)

    async def _act(self, action: co.Action) -> None:
        match action:
            case co.Load(guest=name):
                self._followers[name] = asyncio.create_task(self._load(self._guests[name]), name=f"round {name}")
            case co.Arm(guests=names):
                await self._arm(names)
            case co.Stop(guest=name):
                await self._send(name, "stop")
            case co.Abandon(guest=name, reason=reason):
                self.status(name, co.GuestState.LOST, reason)
            case co.Finish():
                pass

    async def _load(self, guest: GuestRound) -> None:
        """Tell the guest its job and follow what it answers until it has reported."""
        name = guest.session.guest.name
        try:
            if "trouble" in guest.messages:
                raise CalyxError(str(guest.messages["trouble"]["why"]))
            command = self._command(guest)
            await guest.session.send(command.verb, command.pairs)
            while not await self._follow(guest, name):
                pass
        except Exception as error:  # also what no rule foresaw: it is this guest's failure alone
            gone = not await guest.session.rest(REST_WITHIN_S)
            now_ns, why = time.monotonic_ns(), _told(error)
            self._events.put_nowait(co.Lost(now_ns, name, why) if gone else co.Failed(now_ns, name, why))

    async def _follow(self, guest: GuestRound, name: str) -> bool:
        """Take one message into account; True when nothing more is to come. Raises AgentError when the guest refuses."""
        arrival = await guest.session.next(timeout_s=24 * 3600.0)
        kind = str(arrival.message.get("type"))
        if kind == "refused":
            raise AgentError(str(arrival.message.get("why", "refused without a reason")))
        event = _event(kind, arrival, name)
        if kind in KEPT:
            guest.messages[kind] = arrival.message
        if event is not None:
            self._events.put_nowait(event)
        return isinstance(event, co.Reported)

    def _command(self, guest: GuestRound) -> engines.Command:
        session = guest.session
        key = (self.round.workload.name, self.round.target)
        return engines.command(
            with_pin(self.round, session),
            paths=session.files[self.round.target][: self.round.workload.numjobs],
            data_seed=data_seed(
                self.plan.seed, session.guest.name, session.data_use(self.round.target, self.round.index)
            ),
            taken=session.taken.get(key, {}),
            facts=session.facts,
            hello=session.agent.hello,
            fio_path=session.fio.get("path"),
            ramp_extra_ns=self._stagger_ns(max(self._turns.values()) - self._turns[session.guest.name]),
        )

    def _stagger_ns(self, steps: int) -> int:
        return int(steps * self.plan.inventory.stagger_s * 1e9)

    async def _arm(self, names: tuple[str, ...]) -> None:
        """One start line for all, far enough ahead for the slowest to hear of it."""
        slowest_ns = max(guest.clock.before.bound_ns for guest in self._guests.values())
        line_ns = time.monotonic_ns() + LEAD_NS + 4 * slowest_ns + len(names) * ARM_EACH_NS
        line_ns = max(line_ns, self._loaded_at_ns + RESTED_NS)
        for name in names:
            guest = self._guests[name]
            guest.start_ns = line_ns + self._stagger_ns(self._turns[name])
            guest.held_start_ns = clock.to_guest(guest.start_ns, guest.clock.before)
            await self._send(name, "arm", (("start_ns", guest.held_start_ns),))

    async def _send(self, name: str, verb: str, pairs: Sequence[tuple[str, str | int]] = ()) -> None:
        try:
            await self._guests[name].session.send(verb, pairs)
        except CalyxError as error:
            self._events.put_nowait(co.Lost(time.monotonic_ns(), name, str(error)))

    # --- after ---

    async def _answers(self, progress: co.RoundProgress) -> dict[str, Answers]:
        """The clocks once more, and everything each guest said."""
        reported = [self._guests[name] for name in progress.named(co.GuestState.REPORTED)]
        answers: dict[str, Answers] = {}
        gate = clocks.gate_of(self.sessions)

        async def finish(guest: GuestRound) -> None:
            documents = dict(guest.session.documents)
            bound = await guest.clock.at(guest.start_ns, gate)
            answers[guest.session.guest.name] = Answers(
                messages=dict(guest.messages),
                documents=documents,
                clock=bound,
                held_start_ns=guest.held_start_ns,
                start_line_ns=guest.start_ns,
                lost_time=guest.lost_time,
                facts=guest.session.facts,
            )

        await asyncio.gather(*(finish(guest) for guest in reported))
        return answers


def _told(error: Exception) -> str:
    """An error as one guest's reason, short enough for a table."""
    return engines.clipped(str(error) if isinstance(error, CalyxError) else f"{type(error).__name__}: {error}")


def _event(kind: str, arrival: Arrival, name: str) -> co.Event | None:
    at_ns = arrival.at_ns
    match kind:
        case "ready":
            return co.Ready(at_ns, name)
        case "armed":
            return co.Armed(at_ns, name)
        case "started":
            return co.Started(at_ns, name)
        case "result" | "exited":
            return co.Reported(at_ns, name)
        case _:
            return None


def with_pin(round_: Round, session: Session) -> Round:
    """The round with the set-up that was chosen for this guest, where its workload says `auto`."""
    pin = session.pins.get((round_.workload.name, round_.target))
    if pin is None or round_.workload.setup != "auto":
        return round_
    return replace(round_, workload=replace(round_.workload, setup=pin.setup, refill=pin.refill))


def lost_time(message: Mapping[str, Any]) -> LostTime | None:
    """A guest's answer to `lost`, or None when it makes no sense."""
    values = [message.get(key) for key in ("spin_ns", "lost_ns", "gaps", "gap_max_ns")]
    if not all(isinstance(value, int) for value in values):
        return None
    return LostTime(*values)  # type: ignore[arg-type]  # all are int, as just seen


def data_seed(seed: int, guest: str, use: int | str) -> int:
    """A seed for written data that differs by run, guest and use (a round or a layout): no layer below finds two equal blocks. 63 bits."""
    digest = hashlib.sha256(f"{seed}/{guest}/{use}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def measurements(
    plan: Plan, round_: Round, progress: co.RoundProgress, answers: Mapping[str, Answers]
) -> tuple[Measurement, ...]:
    """A measurement for every guest of the round: from its answers, or a failed one that says why."""
    by_name = {guest.name: guest for guest in plan.inventory.guests}
    found = []
    for state in progress.guests:
        guest = by_name[state.name]
        if state.name in answers:
            found.append(engines.measure(round_, guest, answers[state.name]))
        else:
            found.append(engines.unmeasured(round_, guest, state.reason or progress.stopped_because))
    return tuple(found)
