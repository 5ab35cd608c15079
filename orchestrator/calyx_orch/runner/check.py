"""Whether every guest is ready for a run, by the code of a run, and nothing on a guest is changed.

    connect > agent > facts > fio > trial > clock > other load

The agent is borrowed (deploy/). The trial opens every job of the plan as a rehearsal does, but on one small file in the agent's
own work directory instead of the target; both are gone with the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from calyx_orch import clock, deploy, transport, units
from calyx_orch.analysis.validity import LOST_MAX, SKEW_MAX_NS
from calyx_orch.engines import clipped
from calyx_orch.errors import AgentError, CalyxError, ReachError
from calyx_orch.model import Check, Finding, Guest, Plan, Readiness, Round, Verdict, Workload
from calyx_orch.runner import border, buffers, clocks, preflight, preparing, rounds, search
from calyx_orch.runner.session import Session

LEASE_MS = 30_000
ALIVE_EVERY_S = 2.0
ALIVE_WITHIN_S = 0.05
IDLE_WITHIN_S = 2.0  # how long a target's device may stay busy before that is told
CLOCK_COST_MAX_NS = 500  # reading a clock that is no system call away takes tens of nanoseconds
CLOSE_TO_IT = (Check.REACH, Check.HOST_KEY, Check.LOGIN)
BY_FACTS = (Check.IO_URING, Check.TARGET, Check.SPACE, Check.ALIGNMENT, Check.CPUS)
HELD = "its agent lives"  # docs/protocol.md
RAISE_LIMIT = "raise the limit (ulimit -l, LimitMEMLOCK=), or lower iodepth, bs or numjobs"


@dataclass
class Looked:
    """What is known of one guest so far."""

    guest: Guest
    session: Session | None = None
    way: transport.Transport | None = None
    verdicts: dict[Check, Verdict] = field(default_factory=lambda: dict.fromkeys(Check, Verdict.NOT_ASKED))
    findings: list[Finding] = field(default_factory=list)
    facts: dict[Check, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def asked(self, *checks: Check) -> None:
        """These checks were made: good, but for what was or will be found."""
        for check in checks:
            if self.verdicts[check] is Verdict.NOT_ASKED:
                self.verdicts[check] = Verdict.GOOD

    def found(self, finding: Finding) -> None:
        """Something is wrong."""
        finding = replace(finding, why=clipped(finding.why))
        if finding not in self.findings:
            self.findings.append(finding)
        if self.verdicts[finding.check] is not Verdict.BAD:
            self.verdicts[finding.check] = finding.verdict

    def doubt(self, check: Check, why: str) -> None:
        """Something will cost figures, but no guest."""
        self.found(Finding(check, why, Verdict.DOUBTFUL))

    def is_good(self, check: Check) -> bool:
        """Whether a check was made and found nothing that keeps the guest from a run."""
        return self.verdicts[check] in (Verdict.GOOD, Verdict.DOUBTFUL)

    def readiness(self) -> Readiness:
        """What is told of it."""
        address = self.guest.connection.address
        return Readiness(self.guest.name, self.verdicts, tuple(self.findings), self.facts, tuple(self.notes), address)


async def check(
    plan: Plan, *, pool: transport.Pool, phase: Callable[[str], None]
) -> tuple[tuple[Readiness, ...], tuple[str, ...]]:
    """Look at every guest of the plan. Returns what was found, in their order, and notes on the fleet."""
    looked = [Looked(guest) for guest in plan.inventory.guests if guest.name in plan.parts]
    async with _leases(looked):
        try:
            phase(f"connecting to {len(looked)} guests" if len(looked) != 1 else "connecting to 1 guest")
            await _each(looked, lambda one: _open(one, pool), Check.AGENT)
            phase("looking at what they are and can")
            await _each(looked, lambda one: _inspect(one, plan), Check.AGENT)
            await _each(looked, lambda one: _try(one, plan), Check.SETUP)
            phase("looking at clocks and other load")
            await _each(looked, _probe_clock, Check.CLOCK, at_once=clocks.AT_ONCE_FIRST)
            await _each(looked, _see_idle, Check.LOAD)
            await _probe_lost_time(looked, plan)
        finally:
            await asyncio.gather(*(_close(one) for one in looked), return_exceptions=True)
    sessions = [one.session for one in looked if one.session is not None and one.is_good(Check.AGENT)]
    return tuple(one.readiness() for one in looked), preflight.twins(sessions)


@contextlib.asynccontextmanager
async def _leases(looked: Sequence[Looked]) -> AsyncIterator[None]:
    """Tell every agent that its controller lives."""

    async def keep() -> None:
        while True:
            await asyncio.sleep(ALIVE_EVERY_S)
            for one in looked:
                if one.session is not None:
                    await one.session.say_alive(ALIVE_WITHIN_S)

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _each(
    looked: Sequence[Looked], act: Callable[[Looked], Awaitable[None]], at_fault: Check, *, at_once: int = 1000
) -> None:
    """Do one step on all guests that can be asked; what no rule of the step foresaw is found at `at_fault`."""
    gate = asyncio.Semaphore(at_once)

    async def guarded(one: Looked) -> None:
        async with gate:
            try:
                await act(one)
            except CalyxError as error:
                one.found(Finding(at_fault, str(error)))
            except Exception as error:  # the last net: one guest's nonsense is that guest's failure only
                one.found(Finding(at_fault, f"unexpected: {type(error).__name__}: {error}"))

    reached = [one for one in looked if one.session is not None or at_fault is Check.AGENT]
    await asyncio.gather(*(guarded(one) for one in reached))


async def _close(one: Looked) -> None:
    if one.session is not None:
        await one.session.close()
    if one.way is not None:
        if one.session is not None:
            await deploy.give_back(one.way, one.session.agent)
        await one.way.close()


# --- the steps of one guest --------------------------------------------------------------------------------------


async def _open(one: Looked, pool: transport.Pool) -> None:
    try:
        one.way = await transport.connect(one.guest.connection, pool=pool)
    except ReachError as error:
        at = Check(error.at)
        one.asked(*CLOSE_TO_IT[: CLOSE_TO_IT.index(at)])
        one.found(Finding(at, str(error)))
        return
    one.asked(*CLOSE_TO_IT, Check.AGENT)
    agent = await deploy.deploy(one.way, one.guest, borrowed=True)
    one.session = Session(one.guest, agent)
    one.session.start()
    one.notes += agent.notes
    one.facts[Check.AGENT] = agent.path if not agent.uploaded else f"borrowed, would be put at {agent.path}"
    await one.session.send("lease", (("ms", LEASE_MS),))


async def _inspect(one: Looked, plan: Plan) -> None:
    session = one.session
    if session is None:
        return
    await preflight.ask_facts(session)
    one.notes += preflight.left_by_the_dead(session.facts)
    for finding in preflight.guest_findings(one.guest, plan, session.facts):
        one.found(finding)
    await _see_holders(one)
    one.asked(Check.IO_URING, Check.TARGET, Check.CPUS)
    if one.is_good(Check.TARGET):
        one.asked(Check.SPACE, Check.ALIGNMENT)
    one.facts[Check.CPUS] = str(session.facts.get("cpus"))
    await preflight.ask_fio(session, plan)
    if session.fio:
        one.asked(Check.FIO)
        one.facts[Check.FIO] = f"{session.fio.get('path')} {session.fio.get('version')}"
    baselines = plan.inventory.baselines
    needed = not (baselines.auto or baselines.skip_when_missing)
    for engine, why in preflight.missing_baselines(plan, [session]).get(one.guest.name, {}).items():
        sentence = f"no {engine} baseline: {why}: install one there that has it"
        one.found(Finding(Check.FIO, sentence, Verdict.BAD if needed else Verdict.DOUBTFUL))


async def _see_holders(one: Looked) -> None:
    """Whether the run of another controller holds a target: a run would be refused there."""
    assert one.session is not None
    pairs: list[tuple[str, str | int]] = [("path", target.path) for target in one.guest.targets if not target.device]
    if not pairs:
        return
    arrival = await one.session.ask(
        "clean", (*pairs, ("list", 1)), answer="cleaned", timeout_s=preflight.FACTS_WITHIN_S
    )
    for kept in border.checked(arrival.message, "preflight").get("kept") or ():
        why = str(kept.get("why"))
        if why.startswith(HELD) and "run unknown" not in why:
            one.found(
                Finding(Check.TARGET, f"{kept.get('path')}: {why}: two runs at once would measure each other: wait")
            )


async def _try(one: Looked, plan: Plan) -> None:
    """Open every job as a rehearsal does: which set-ups the kernel takes, and how much memory may be locked."""
    session = one.session
    parts = plan.parts.get(one.guest.name, ())
    rounds_ = [part if isinstance(part, Round) else search.first_probe(part) for part in parts]
    mine = list({round_.workload.name: round_ for round_ in rounds_}.values())
    mine = [round_ for round_ in mine if not round_.workload.rw.trims]  # a file cannot be trimmed
    if not mine:
        return
    psync_only = all(round_.workload.setup == "psync" for round_ in mine)
    if session is None or not (one.is_good(Check.IO_URING) or psync_only) or not one.is_good(Check.CPUS):
        return
    try:
        await _lay_out_scratch(session, plan, mine)
    except AgentError as error:
        one.doubt(Check.AGENT, f"no job could be tried beside the agent: {error}")
        return
    one.asked(Check.SETUP)
    for round_ in mine:
        name = round_.workload.name
        trial = replace(round_, workload=_on_scratch(round_.workload))
        try:
            taken = await preparing.rehearse(session, trial, lambda _, note: one.doubt(Check.SETUP, note))
        except AgentError as error:
            one.found(Finding(Check.SETUP, f"workload {name!r}: {error}"))
            continue
        session.taken[name, round_.target] = taken
    one.asked(Check.MEMORY_LOCK)
    taken_by = {one.guest.name: session.taken}
    required = {round_.workload.name for round_ in mine if round_.workload.buffers == "registered"}
    for gap in buffers.gaps(plan, taken_by, {one.guest.name: session.facts}):
        verdict = Verdict.BAD if gap.workload in required else Verdict.DOUBTFUL
        more = "" if gap.workload in required else ", else no guest and no engine registers any for this workload"
        one.found(
            Finding(Check.MEMORY_LOCK, f"workload {gap.workload!r}: {gap.sentence}: {RAISE_LIMIT}{more}", verdict)
        )


async def _lay_out_scratch(session: Session, plan: Plan, mine: Sequence[Round]) -> None:
    """Files of one block in the agent's work directory stand for those of the jobs: each thread of a job wants its own."""
    size = max(round_.workload.bs_bytes for round_ in mine)
    jobs = max(round_.workload.numjobs for round_ in mine)
    work = str(session.agent.hello["work"])
    pairs: tuple[tuple[str, str | int], ...] = (("path", work), ("size", size), ("files", jobs), ("seed", plan.seed))
    arrival = await session.ask("prepare", pairs, answer="prepared", timeout_s=preparing.REHEARSE_WITHIN_S)
    files = border.checked(arrival.message, "prepare")["files"]
    if len(files) != jobs:
        raise AgentError(f"{len(files)} files were laid out for {jobs} asked for", step="prepare")
    session.files = {round_.target: tuple(str(entry["path"]) for entry in files) for round_ in mine}


def _on_scratch(workload: Workload) -> Workload:
    """The workload as far as rings and buffers go; what the target's device must do for it is judged by facts."""
    return replace(
        workload, size_bytes=workload.bs_bytes, offset_bytes=0, direct=False, iopoll=False, verify=None,
        random_distribution="random",
    )  # fmt: skip


async def _probe_clock(one: Looked) -> None:
    if one.session is None:
        return
    bound = clock.estimate(await one.session.probe_clock(clocks.PROBES)).bound_ns
    one.asked(Check.CLOCK)
    one.facts[Check.CLOCK] = f"known to {units.format_latency(bound)}"
    if bound > SKEW_MAX_NS:
        why = f"its clock is known only to {units.format_latency(bound)}"
        one.doubt(Check.CLOCK, f"{why}: find what delays the network or the CPUs between here and there")
    cost = (one.session.facts.get("clock") or {}).get("cost_ns")
    if isinstance(cost, int) and cost > CLOCK_COST_MAX_NS:
        source = one.session.facts.get("clocksource")
        why = f"reading its clock ({source}) takes {cost} ns, which is part of every latency"
        one.doubt(Check.CLOCK, f"{why}: use the clock source that its hypervisor recommends")


# --- other load --------------------------------------------------------------------------------------------------


async def _see_idle(one: Looked) -> None:
    """Whether the devices of the targets are idle when nothing of ours runs."""
    if one.session is None or not one.is_good(Check.TARGET):
        return
    for target in one.guest.targets:
        pairs: tuple[tuple[str, str | int], ...] = (("path", target.path), ("timeout_ms", int(IDLE_WITHIN_S * 1000)))
        arrival = await one.session.ask("settle", pairs, answer="settled", timeout_s=IDLE_WITHIN_S + 15.0)
        one.asked(Check.LOAD)
        if arrival.message.get("idle") is False:
            why = f"target {target.name}: the disk of {target.path} was busy all of {IDLE_WITHIN_S:g} s with I/O of others"
            one.doubt(Check.LOAD, f"{why}: find what else uses it")


async def _probe_lost_time(looked: Sequence[Looked], plan: Plan) -> None:
    """Spin once on each machine, as before a round: guests that are one machine would only measure each other."""
    spin_ms = int(plan.inventory.lost_time_probe_s * 1000)
    machines: dict[object, list[Looked]] = {}
    for one in looked:
        if one.session is not None and spin_ms > 0:
            machines.setdefault(one.session.facts.get("boot_id") or id(one), []).append(one)

    async def spin(one: Looked) -> None:
        assert one.session is not None
        arrival = await one.session.ask("lost", (("spin_ms", spin_ms),), answer="lost", timeout_s=spin_ms / 1000 + 15.0)
        lost = rounds.lost_time(arrival.message)
        share = lost.lost_ns / lost.spin_ns if lost is not None and lost.spin_ns > 0 else 0.0
        for mate in machines[one.session.facts.get("boot_id") or id(one)]:
            mate.asked(Check.LOAD)
            mate.facts[Check.LOAD] = f"{100 * share:.1f} % of a CPU lost"
            if share > LOST_MAX:
                why = (
                    f"{100 * share:.1f} % of a CPU's time was taken away within {units.format_duration(spin_ms / 1000)}"
                )
                mate.doubt(Check.LOAD, f"{why}: find what else uses the CPUs of this guest or its vm_host")

    await _each([mates[0] for mates in machines.values()], spin, Check.LOAD)
