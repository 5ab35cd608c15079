"""Whether guests are ready for a run: what is asked of each, and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Check(StrEnum):
    """What a run needs of a guest, in the order in which it is met."""

    REACH = "reach"
    HOST_KEY = "host key"
    LOGIN = "login"
    AGENT = "agent"
    IO_URING = "io_uring"
    SETUP = "set-up"
    MEMORY_LOCK = "memory lock"
    FIO = "fio"
    TARGET = "target"
    SPACE = "space"
    ALIGNMENT = "alignment"
    CLOCK = "clock"
    CPUS = "CPUs"
    LOAD = "other load"


class Verdict(StrEnum):
    """How a check ended: `doubtful` does not keep a guest from a run, but its figures or its baseline will suffer."""

    GOOD = "good"
    DOUBTFUL = "doubtful"
    BAD = "bad"
    NOT_ASKED = "not asked"  # not needed, or an earlier check failed


@dataclass(frozen=True)
class Finding:
    """What is wrong with one guest in one respect: a sentence with a way out."""

    check: Check
    why: str
    verdict: Verdict = Verdict.BAD


@dataclass(frozen=True)
class Readiness:
    """One guest: how each check ended, what was found, and what was seen of each (`facts`, such as the version of fio).

    `notes` are what a user should hear besides, such as text that its login shell prints.
    """

    guest: str
    verdicts: Mapping[Check, Verdict]
    findings: tuple[Finding, ...] = ()
    facts: Mapping[Check, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    address: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether a run would measure this guest."""
        return Verdict.BAD not in self.verdicts.values()
