"""A doubt, and what it is found from. The rules are in `validity`, those about storage in `below`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from calyx_orch.analysis import steady
from calyx_orch.model import NANOSECONDS, Limits, Measurement, Round


@dataclass(frozen=True)
class Doubt:
    """Why a figure may not be what it seems. `name` is the rule; `label` may hold a number; `weight` ranks within a rule."""

    name: str
    label: str
    sentence: str
    remedy: str
    weight: float = 0.0


SETUP_KEYS = ("took", "sqpoll", "fixed_files", "fixed_buffers", "refill", "direct", "transparent_huge", "fio_version")


@dataclass(frozen=True)
class Peers:
    """All measurements of a round as one guest's rules see them: how many were `measured`, and in which parts of the set-up they differ.

    It is found once a round: rules that walked the fleet for each of its guests would cost its square.
    """

    measured: int = 0
    differing: tuple[str, ...] = ()


def peers_of(measurements: Iterable[Measurement]) -> Peers:
    """What the measurements of one round that are ok have in common."""
    setups = [one.setup for one in measurements if one.status == "ok"]
    differing = (key for key in SETUP_KEYS if len({str(setup.get(key)) for setup in setups}) > 1)
    return Peers(len(setups), tuple(differing))


@dataclass(frozen=True)
class Context:
    """What the rules look at: a measurement, its round, what is to be known of the others in it, the guest's facts.

    `overlap` is the common window / the longest own window. `prepared` is the agent's answer to `prepare` where known.
    """

    measurement: Measurement
    round: Round
    peers: Peers = Peers()
    overlap: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    prepared: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""
    limits: Limits = field(default_factory=Limits)

    @cached_property
    def inside(self) -> steady.Within | None:
        """Whether the measurement is steady in itself, by the whole intervals of its own window; None without enough of them."""
        series, window_ns = self.measurement.series, self.measurement.window_ns
        if series is None or window_ns <= 0:
            return None
        return steady.within(series.total_bytes[: window_ns // series.interval_ns], series.interval_ns / NANOSECONDS)


LABELS = {  # of rules whose label is not their name; the figures that some labels end with are one measurement's
    "fio-start": "fio start", "lost-time": "lost time", "buffers": "buffers not registered", "direct": "not direct",
    "rate": "rate limited", "errors": "I/O errors", "unfinished": "unfinished I/O", "set-ups": "set-ups differ",
    "missing": "guests missing", "sqpoll": "SQPOLL starved", "cpu": "CPU saturated", "samples": "few samples",
    "latency-kind": "completion latency", "runtime": "ran shorter or longer", "plateau": "fell within the round", "unsteady": "not steady",
    "start": "start unknown", "clock": "clock error", "unwritten": "unwritten extents", "small": "small files",
    "other-io": "device not idle", "vm-host": "other vm_host", "page-cache": "page cache", "cache": "cache below",
    "flush": "flush at once", "ram": "target in RAM",
}  # fmt: skip


def label_of(name: str) -> str:
    """How a rule is called in tables that tell of several measurements: its label without a figure."""
    return LABELS.get(name, name)


def union(given: Iterable[Doubt]) -> tuple[Doubt, ...]:
    """One doubt a rule, the heaviest, in the order of RULES' names."""
    heaviest: dict[str, Doubt] = {}
    for doubt in given:
        if doubt.name not in heaviest or doubt.weight > heaviest[doubt.name].weight:
            heaviest[doubt.name] = doubt
    return tuple(heaviest.values())
