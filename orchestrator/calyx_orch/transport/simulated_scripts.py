"""How simulated guests behave: a script each, found by the address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LATE_NS = 80_000_000


@dataclass(frozen=True)
class Script:
    """How a guest behaves. `dies_at` and `silent_at` name the verb from which on it is gone or says no more."""

    late_ns: int = 0
    dies_at: str | None = None
    silent_at: str | None = None
    lies: bool = False
    reachable: bool = True
    fio: bool = True
    arch: str = "x86_64"
    bend: Callable[[dict[str, Any]], list[bytes]] | None = (
        None  # a message as it should be -> the lines that come up instead
    )
    bend_document: Callable[[str, str], str] | None = None  # name and text of a document -> its text
    bend_hello: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    stays: tuple[str, ...] = ()  # what cleaning cannot remove
    lines_missed: int = 0  # how many start lines pass before it hears of them
    prepare_s: float = 0.0  # how long its layout really takes
    settle_s: float = 0.0  # how long its devices really take to become idle
    clean_s: float = 0.0  # how long its cleaning really takes; it ends meanwhile when its lease does


SCRIPTS: Mapping[str, Script] = {
    "good": Script(),
    "late": Script(late_ns=LATE_NS),
    "dying": Script(dies_at="arm"),
    "lying": Script(lies=True),
    "silent": Script(silent_at="arm"),
    "unreachable": Script(reachable=False),
    "fioless": Script(fio=False),
    "stalling": Script(lines_missed=1),
}


@dataclass(frozen=True)
class Simulation:
    """The scripts of a fleet by address; an address that is not named follows the word it begins with, else `good`."""

    seed: int = 1
    scripts: Mapping[str, Script] = field(default_factory=dict)

    def script(self, address: str) -> Script:
        """The script of one guest."""
        if address in self.scripts:
            return self.scripts[address]
        return next((script for word, script in SCRIPTS.items() if address.startswith(word)), Script())
