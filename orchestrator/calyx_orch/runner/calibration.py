"""Which set-up each guest runs where a workload says `auto`: tried out once per group of like guests, pinned in the plan, kept on disk.

Groups that share a domain wait for one another, so that a trial has the storage to itself as far as the run is concerned.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calyx_orch import clock, engines
from calyx_orch.analysis.histogram import merge, percentile_or_none
from calyx_orch.errors import AgentError, CalyxError, FolderError
from calyx_orch.model import Answers, Measurement, Pin, Plan, Round, Workload
from calyx_orch.plan import choice, trials
from calyx_orch.runner.fleet import raise_first
from calyx_orch.runner.rounds import data_seed
from calyx_orch.runner.session import Session
from calyx_orch.store import durable

TRIAL_S = 1.0
TRIAL_RAMP_S = 0.25
LEAD_NS = 50_000_000
READY_WITHIN_S = 30.0
REST_WITHIN_S = 12.0
CACHE_FORMAT = 1
CACHE_ENTRIES_MAX = 10_000


def cache_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Where choices are kept: `$XDG_STATE_HOME/calyx-orch/calibration.json`."""
    state = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME", "/")) / ".local" / "state")
    return Path(state) / "calyx-orch" / "calibration.json"


@dataclass
class Cache:
    """Choices of earlier runs by their key. `path` None: nothing is kept. A file that cannot be read is as if there were none."""

    path: Path | None
    fresh: bool = False  # what is kept is not believed (`--recalibrate`), only written anew
    _entries: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._entries = self._read()

    def _read(self) -> dict[str, dict[str, Any]]:
        if self.path is None:
            return {}
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
            entries = document["entries"] if document.get("format") == CACHE_FORMAT else {}
            return {str(key): dict(entry) for key, entry in entries.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def get(self, key: str) -> choice.Choice | None:
        """The choice of that key, None when there is none or it is not to be believed."""
        entry = None if self.fresh else self._entries.get(key)
        try:
            return (
                None
                if entry is None
                else choice.Choice(choice.Candidate(entry["setup"], entry["refill"]), entry["why"])
            )
        except KeyError:
            return None

    def put(self, key: str, chosen: choice.Choice, group: Mapping[str, Any]) -> str | None:
        """Keep a choice beside those that other runs have kept meanwhile. Returns a sentence when it could not be kept."""
        candidate = chosen.candidate
        entry = {"setup": candidate.setup, "refill": candidate.refill, "why": chosen.why, "group": dict(group)}
        self._entries[key] = entry
        if self.path is None:
            return None
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _alone_in(self.path.parent):
                others = {known: one for known, one in self._read().items() if known != key}
                kept = dict(list({**others, key: entry}.items())[-CACHE_ENTRIES_MAX:])
                durable.write(self.path, json.dumps({"format": CACHE_FORMAT, "entries": kept}, indent=1))
        except (OSError, FolderError) as error:
            return f"the calibration could not be kept in {self.path}: {error}"
        return None


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Be the only one who writes there, as long as all ask for it."""
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


@dataclass(frozen=True)
class Group:
    """Like guests with one workload class on one target: what is tried once for all. `rounds` are one of each workload."""

    key: str
    facts: Mapping[str, Any]
    target: str
    sessions: tuple[Session, ...]
    rounds: tuple[Round, ...]

    @property
    def leader(self) -> Session:
        """The guest on which it is tried."""
        return self.sessions[0]


@dataclass
class Calibration:
    """Decides the set-up of every guest and workload that says `auto`. `tell` hears sentences, `phase` what is going on."""

    plan: Plan
    sessions: Mapping[str, Session]
    cache: Cache
    tell: Callable[[str], None]
    phase: Callable[[str], None]
    note: Callable[..., None]

    async def run(self) -> tuple[Pin, ...]:
        """One pin for each guest, workload and target that says `auto`."""
        pins, tried = self._without_trials()
        groups = self._groups(tried)
        by_domain: dict[str, list[Group]] = {}
        for group in groups:
            by_domain.setdefault(group.leader.guest.domain, []).append(group)
        open_ = sum(1 for group in groups if self.cache.get(group.key) is None)
        if open_:
            self.phase(f"calibrating {open_} group{'s' * (open_ != 1)} of like guests and workloads")
        working = [self._one_by_one(mine) for mine in by_domain.values()]
        ended = await asyncio.gather(*working, return_exceptions=True)
        raise_first(ended)
        found = (some for some in ended if not isinstance(some, BaseException))
        return (*pins, *(pin for some in found for one in some for pin in one))

    def _without_trials(self) -> tuple[list[Pin], list[tuple[Session, Round]]]:
        pins: list[Pin] = []
        tried: list[tuple[Session, Round]] = []
        seen: set[tuple[str, str, str]] = set()
        for round_ in self.plan.rounds:
            for name in round_.guests:
                session, key = self.sessions.get(name), (name, round_.workload.name, round_.target)
                if session is None or key in seen or round_.workload.setup != "auto":
                    continue
                seen.add(key)
                why = choice.not_calibrated(
                    round_.workload, self.plan.inventory.impact, rate_limited=round_.rate_limited
                )
                if why is None:
                    tried.append((session, round_))
                else:
                    pins.append(_ladder(session, round_, f"{choice.LADDER}: {why}"))
        return pins, tried

    def _groups(self, tried: Sequence[tuple[Session, Round]]) -> list[Group]:
        gathered: dict[tuple[str, str], list[tuple[Session, Round, Mapping[str, Any]]]] = {}
        for session, round_ in tried:
            path = next(target.path for target in session.guest.targets if target.name == round_.target)
            facts = choice.group_of(session.facts, path)
            version = str(session.agent.hello.get("version", ""))
            key = choice.key_of(facts, round_.workload, version=version)
            gathered.setdefault((key, round_.target), []).append((session, round_, facts))
        return [
            Group(
                key,
                members[0][2],
                target,
                tuple({one.guest.name: one for one, _, _ in members}.values()),
                _one_each(members),
            )
            for (key, target), members in gathered.items()
        ]

    async def _one_by_one(self, groups: Sequence[Group]) -> list[tuple[Pin, ...]]:
        return [await self._settle(group) for group in groups]

    async def _settle(self, group: Group) -> tuple[Pin, ...]:
        """The pins of one group: from the cache, else by trials, else the ladder with the reason."""
        how, chosen = "cached", self.cache.get(group.key)
        if chosen is None:
            how = "calibrated"
            try:
                chosen = await self._try_out(group)
            except FolderError:
                raise
            except Exception as error:  # also what no rule foresaw: without a choice there is the ladder
                why = f"{choice.LADDER}: calibration failed on {group.leader.guest.name} ({error})"
                self.tell(why)
                return tuple(_ladder(session, round_, why) for session in group.sessions for round_ in group.rounds)
            complaint = self.cache.put(group.key, chosen, group.facts)
            if complaint:
                self.tell(complaint)
        leader = group.leader.guest.name if how == "calibrated" else ""
        return tuple(
            Pin(
                session.guest.name, round_.workload.name, round_.target, chosen.candidate.setup, chosen.candidate.refill, how,
                chosen.why, leader,
            )
            for session in group.sessions
            for round_ in group.rounds
        )  # fmt: skip

    async def _try_out(self, group: Group) -> choice.Choice:
        session, round_ = group.leader, group.rounds[0]
        ring = session.facts.get("io_uring")
        offered = ring.get("setups") if isinstance(ring, dict) else None
        cpus = session.facts.get("cpus")
        tried = choice.candidates(
            round_.workload,
            offered=offered if isinstance(offered, list) else (),
            cpus=cpus if isinstance(cpus, int) else None,
        )
        if not tried:
            raise ValueError("the kernel offers no set-up")
        if len(tried) == 1:
            return choice.Choice(tried[0], f"{tried[0]}: it is the only one that this kernel takes")
        turns: list[dict[choice.Candidate, choice.Trial]] = []
        began_s = time.monotonic()
        while not isinstance(after := trials.step(tried, turns, spent_s=time.monotonic() - began_s), choice.Choice):
            turn, refused = await self._turn(session, round_, after)
            tried = tuple(one for one in tried if one not in refused)
            if not tried:
                raise ValueError(f"every set-up was refused: {'; '.join(refused.values())}")
            turns.append(turn)
        return after

    async def _turn(
        self, session: Session, round_: Round, order: Sequence[choice.Candidate]
    ) -> tuple[dict[choice.Candidate, choice.Trial], dict[choice.Candidate, str]]:
        """One trial of each, and those that the agent refused, with its reason."""
        turn: dict[choice.Candidate, choice.Trial] = {}
        refused: dict[choice.Candidate, str] = {}
        for candidate in order:
            try:
                trial = turn[candidate] = await self._trial(session, round_, candidate)
            except AgentError as error:
                if error.step != "run":
                    raise
                refused[candidate] = str(error)
                continue
            self.note(
                "trial", time.monotonic_ns(), guest=session.guest.name, workload=round_.workload.name, trial=trial
            )
        return turn, refused

    async def _trial(self, session: Session, round_: Round, candidate: choice.Candidate) -> choice.Trial:
        """One second of one candidate. Raises AgentError, with step `run` when the agent refuses the set-up."""
        workload = replace(
            round_.workload, setup=candidate.setup, refill=candidate.refill, ramp_s=TRIAL_RAMP_S, runtime_s=TRIAL_S, interval_ms=100,
            end_fsync=False,
        )  # fmt: skip
        measured = await measure_alone(session, replace(round_, engine="calyx", workload=workload))
        if measured.status != "ok":
            raise AgentError(f"the trial of {candidate} failed: {measured.why}", step="trial")
        return choice.Trial(candidate, *figures_of(measured))


async def measure_alone(session: Session, round_: Round) -> Measurement:
    """Run one round of calyx on one guest by itself. Raises AgentError; the guest holds and runs nothing then."""
    try:
        return await _alone(session, round_)
    except CalyxError:
        await session.rest(REST_WITHIN_S)
        raise


async def _alone(session: Session, round_: Round) -> Measurement:
    workload: Workload = round_.workload
    command = engines.command(
        round_,
        paths=session.files[round_.target][: workload.numjobs],
        data_seed=data_seed(round_.seed, session.guest.name, "trial"),
        taken={},
        facts=session.facts,
        hello=session.agent.hello,
        fio_path=None,
    )
    await session.ask(command.verb, command.pairs, answer="ready", timeout_s=READY_WITHIN_S)
    bound = clock.estimate(await session.probe_clock(5))
    start_ns = time.monotonic_ns() + LEAD_NS + 4 * bound.bound_ns
    held_ns = clock.to_guest(start_ns, bound)
    await session.send("arm", (("start_ns", held_ns),))
    messages: dict[str, Mapping[str, Any]] = {}
    deadline_s = workload.ramp_s + workload.runtime_s + READY_WITHIN_S
    while "result" not in messages:
        arrival = await session.next(deadline_s)
        messages[str(arrival.message.get("type"))] = arrival.message
        if "refused" in messages:
            raise AgentError(str(messages["refused"].get("why", "refused without a reason")), step="arm")
    answers = Answers(messages, dict(session.documents), bound, held_ns, facts=session.facts, start_line_ns=start_ns)
    return engines.measure(round_, session.guest, answers)


def figures_of(measured: Measurement) -> tuple[float, int | None, float | None]:
    """(IOPS, P99 in ns, CPU ns per I/O) of one measurement by itself."""
    seconds = measured.window_ns / 1e9
    parts = [part for part in (measured.read, measured.write) if part is not None]
    cpu = measured.cpu
    ios = measured.total_ios
    per_io = (
        None
        if cpu is None or cpu.engine_ns is None or not ios
        else cpu.engine_ns / cpu.window_ns * measured.window_ns / ios
    )
    p99_ns = percentile_or_none(merge(part.latency for part in parts), 99.0)
    return (ios / seconds if seconds > 0 else 0.0), p99_ns, per_io


def _one_each(members: Sequence[tuple[Session, Round, Mapping[str, Any]]]) -> tuple[Round, ...]:
    return tuple({round_.workload.name: round_ for _, round_, _ in reversed(members)}.values())[::-1]


def _ladder(session: Session, round_: Round, why: str) -> Pin:
    refill = "each" if round_.workload.refill == "auto" else round_.workload.refill
    return Pin(session.guest.name, round_.workload.name, round_.target, "auto", refill, "ladder", why)
