"""`setup: auto` by evidence: which set-ups are tried, on which guest of a group, and which of them is chosen. Pure.

The rule: the least CPU per I/O among those with at least 0.98 of the best IOPS and at most 1.05 of the best P99. Whether the trials are
enough to hold it against is a matter of `plan.trials`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calyx_orch.model import Impact, Round, Workload

IOPS_MIN = 0.98
P99_MAX = 1.05
ROUNDING = 1 + 1e-9  # figures at their bounds keep them
SETUPS = ("defer", "coop", "plain", "sqpoll")  # in the order in which equals are preferred
REFILLS = ("each", "batch")
POLLER_CPUS_MIN = 2
LADDER = "the first of defer, coop and plain that the kernel takes"
# Fields that say for how long and where, not which I/O: workloads that differ in these only are one class.
_NOT_OF_THE_CLASS = frozenset(
    {"name", "runtime_s", "ramp_s", "interval_ms", "seed", "targets", "end_fsync", "load_share"}
)
_GROUP_FACTS = ("kernel", "arch", "cpus", "hypervisor", "clocksource")
_GROUP_PATH_FACTS = ("fs_type", "model", "rotational", "scheduler", "queue_depth", "write_cache")


@dataclass(frozen=True, order=True)
class Candidate:
    """One set-up with one refill policy."""

    setup: str
    refill: str

    def __str__(self) -> str:
        return f"{self.setup}, refill {self.refill}"


@dataclass(frozen=True)
class Trial:
    """What one second of a candidate gave. None: unknown, or too few samples."""

    candidate: Candidate
    iops: float
    p99_ns: int | None
    cpu_ns_per_io: float | None


@dataclass(frozen=True)
class Choice:
    """What was chosen and the sentence that says why."""

    candidate: Candidate
    why: str


def not_calibrated(workload: Workload, impact: Impact, *, rate_limited: bool) -> str | None:
    """Why this workload's set-up is not tried out; None when it is."""
    if workload.setup != "auto":
        return f"setup {workload.setup} is named"
    if workload.is_short:
        return "a short workload is not worth a calibration"
    if workload.is_open_loop or workload.find is not None:
        return "an open loop does not show what a set-up costs"
    if workload.rw.writes and impact.max_bytes_written is not None:
        return "impact.max_bytes_written leaves no room for trials"
    if rate_limited:
        return "impact holds the rate down"
    return None


def candidates(workload: Workload, *, offered: Sequence[str], cpus: int | None) -> tuple[Candidate, ...]:
    """What is tried: what the kernel offers, sqpoll only with two CPUs or more; a refill that is named is kept."""
    setups = [one for one in SETUPS if one in offered and (one != "sqpoll" or (cpus or 0) >= POLLER_CPUS_MIN)]
    if workload.iopoll:
        setups = [one for one in setups if one != "coop"] or setups
    refills = REFILLS if workload.refill == "auto" else (workload.refill,)
    return tuple(Candidate(setup, refill) for setup in setups for refill in refills)


def within_bounds(figures: Sequence[Figures]) -> list[Figures]:
    """Those that keep both bounds of the rule: IOPS near the best, P99 near the best."""
    return [one for one in quick(figures) if one.p99_ns <= P99_MAX * ROUNDING * min(each.p99_ns for each in figures)]


def quick(figures: Sequence[Figures]) -> list[Figures]:
    """Those that keep the bound of IOPS: never none."""
    best_iops = max(one.iops for one in figures)
    return [one for one in figures if one.iops * ROUNDING >= IOPS_MIN * best_iops]


def cheapest(figures: Sequence[Figures]) -> Figures:
    """The least CPU per I/O."""
    return min(figures, key=lambda one: (one.cpu_ns_per_io, rank(one.candidate)))


def calmest(figures: Sequence[Figures]) -> Figures:
    """The lowest P99: where who is quickest has a longer tail than another, the tail decides among the quick ones."""
    return min(figures, key=lambda one: (one.p99_ns, one.cpu_ns_per_io, rank(one.candidate)))


@dataclass(frozen=True)
class Figures:
    """What is held against the rule. What is unknown is infinite: as bad as can be."""

    candidate: Candidate
    iops: float
    p99_ns: float
    cpu_ns_per_io: float


def rank(candidate: Candidate) -> tuple[int, int]:
    """The order in which equals are preferred."""
    return SETUPS.index(candidate.setup) if candidate.setup in SETUPS else len(SETUPS), REFILLS.index(candidate.refill)


def group_of(facts: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """What makes guests alike for one target: kernel, CPUs, disk and file system."""
    entries = facts.get("paths")
    found = (
        [one for one in entries if isinstance(one, dict) and one.get("path") == path]
        if isinstance(entries, list)
        else []
    )
    entry = found[0] if found else {}
    return {name: facts.get(name) for name in _GROUP_FACTS} | {name: entry.get(name) for name in _GROUP_PATH_FACTS}


def class_of(workload: Workload) -> Mapping[str, Any]:
    """What makes workloads alike: every field that says which I/O is made."""
    values = dataclasses.asdict(workload)
    return {name: str(value) for name, value in values.items() if name not in _NOT_OF_THE_CLASS}


def key_of(group: Mapping[str, Any], workload: Workload, *, version: str) -> str:
    """The name under which a choice is kept: the same for like guests, like workloads and one version of the agent."""
    whole = {"group": group, "class": class_of(workload), "version": version}
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()


def pinned(round_: Round, setup: str, refill: str) -> Round:
    """The round with the set-up in its workload."""
    return dataclasses.replace(round_, workload=dataclasses.replace(round_.workload, setup=setup, refill=refill))
