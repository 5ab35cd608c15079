"""The rounds of a run as the analysis wants them: each measurement with its figures in the common window and its doubts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from calyx_orch.analysis import steady, validity, variation, window
from calyx_orch.analysis.histogram import merge, percentile_or_none
from calyx_orch.model import Histogram, Limits, Measurement, Round, RunRecord


@dataclass(frozen=True)
class Figures:
    """What one guest did in one round: rates in the common window, the CV over its intervals, CPU, and the doubts.

    `intervals` are the bytes of each whole interval in the common window, empty without a series; `steadiness` is of the guest's own
    window, None without enough intervals.
    """

    measurement: Measurement
    iops: float
    throughput_bytes_per_s: float
    cv_within_run: variation.Variation
    doubts: tuple[validity.Doubt, ...]
    intervals: tuple[float, ...] = ()
    steadiness: steady.Within | None = None

    @property
    def latency(self) -> Histogram:
        """Reads and writes merged."""
        return merge(part.latency for part in (self.measurement.read, self.measurement.write) if part is not None)

    @cached_property
    def p99_ns(self) -> int | None:
        """The P99 of this round; None with fewer than ten samples beyond it."""
        return percentile_or_none(self.latency, 99.0)

    @property
    def engine_ns_per_io(self) -> float | None:
        """CPU time of the engine for each I/O: its share of a second / its I/Os in a second."""
        return _per_io(self.measurement, self.measurement.cpu.engine_ns if self.measurement.cpu else None)


@dataclass(frozen=True)
class Played:
    """A round that was played: its common window, overlap, and the figures of each guest that was measured."""

    round: Round
    figures: tuple[Figures, ...]
    failed: tuple[Measurement, ...]
    overlap: float | None
    clock_errors: int

    @cached_property
    def of(self) -> Mapping[str, Figures]:
        """The figures by guest."""
        return {found.measurement.guest: found for found in self.figures}

    @property
    def largest_skew_ns(self) -> int | None:
        """The largest distance of a guest's first I/O from the start line; None when no guest's first I/O was seen."""
        known = [abs(m.skew_ns) for m in self._started if m.skew_ns is not None]
        return max(known, default=None)

    @property
    def largest_bound_ns(self) -> int | None:
        """How wrong the skew of a guest may be at most."""
        known = [m.skew_bound_ns for m in self._started if m.skew_bound_ns is not None]
        return max(known, default=None)

    @property
    def _started(self) -> list[Measurement]:
        """Those whose first I/O was seen: a gate that opened in time says nothing of when I/O began."""
        return [f.measurement for f in self.figures if f.measurement.skew_how != validity.GATE_ONLY]


def played(record: RunRecord) -> tuple[Played, ...]:
    """Every round of the run with at least one answer, in the plan's order."""
    by_round: dict[int, list[Measurement]] = {}
    for measurement in record.measurements:
        by_round.setdefault(measurement.round_index, []).append(measurement)
    paths = {(layout.guest, layout.target): layout.path for layout in record.plan.layouts}
    limits = {guest.name: guest.limits for guest in record.plan.inventory.guests}
    return tuple(
        _played(round_, by_round[round_.index], record, paths, limits)
        for round_ in record.plan.rounds
        if round_.index in by_round
    )


def _played(
    round_: Round,
    measurements: list[Measurement],
    record: RunRecord,
    paths: dict[tuple[str, str], str],
    limits: dict[str, Limits],
) -> Played:
    good = [measurement for measurement in measurements if measurement.status == "ok"]
    common = window.common_window(good)
    peers = validity.peers_of(measurements)
    figures = []
    for measurement in good:
        facts = record.facts.get(measurement.guest, {})
        prepared = facts.get("prepared")
        context = validity.Context(
            measurement=measurement,
            round=round_,
            peers=peers,
            overlap=common.overlap if len(good) > 1 else None,
            facts=facts,
            prepared=prepared.get(round_.target, {}) if isinstance(prepared, dict) else {},
            path=paths.get((measurement.guest, round_.target), ""),
            limits=limits.get(measurement.guest, Limits()),
        )
        found = _figures(measurement, common.window, validity.doubts(context))
        figures.append(replace(found, steadiness=context.inside))
    failed = tuple(measurement for measurement in measurements if measurement.status != "ok")
    return Played(round_, tuple(figures), failed, common.overlap, common.clock_errors)


def _figures(measurement: Measurement, common: window.Window | None, found: tuple[validity.Doubt, ...]) -> Figures:
    """Guests that share no time at all are shown in their own windows, beside the doubt that says so."""
    own = window.own_window(measurement)
    span = common if common is not None and not window.has_clock_error(measurement) else own
    iops, throughput = window.rates_in(measurement, span)
    told = tuple(
        validity.Doubt(f"told-{label}", label, label, "see the run folder")
        for label in measurement.doubts
        if label.split(" ")[0] not in {doubt.label.split(" ")[0] for doubt in found}
    )
    series = window.clip_series(measurement.series, own, span) if measurement.series is not None else None
    within = variation.within_run(series) if series else variation.Variation(None, 0, reason="no interval series")
    return Figures(measurement, iops, throughput, within, found + told, series.total_bytes if series else ())


def _per_io(measurement: Measurement, cpu_ns: int | None) -> float | None:
    """CPU time per I/O. The CPU's window and the engine's may differ by milliseconds, so both are taken as rates."""
    cpu = measurement.cpu
    if cpu is None or cpu_ns is None or measurement.total_ios == 0 or measurement.window_ns <= 0 or cpu.window_ns <= 0:
        return None
    return (cpu_ns / cpu.window_ns) / (measurement.total_ios / measurement.window_ns)


def busy_ns_per_io(measurement: Measurement) -> float | None:
    """CPU time of the whole guest for each I/O, block layer and interrupts included."""
    return _per_io(measurement, measurement.cpu.busy_ns if measurement.cpu else None)


def latencies(figures: Iterable[Figures], direction: str | None = None) -> Histogram:
    """The merged latencies of several rounds or guests: of both directions, or of `read` or `write`."""
    names = ("read", "write") if direction is None else (direction,)
    parts = [getattr(found.measurement, name) for found in figures for name in names]
    return merge(part.latency for part in parts if part is not None)


def intended_latencies(figures: Iterable[Figures]) -> Histogram:
    """The merged latencies from when each I/O was due, of reads and writes of open loops; empty for closed ones."""
    parts = [
        part for found in figures for part in (found.measurement.read, found.measurement.write) if part is not None
    ]
    return merge(part.latency_intended for part in parts if part.latency_intended is not None)


def know_when_due(figures: Iterable[Figures]) -> bool:
    """Whether every latency of these is also known from when its I/O was due, as calyx tells it of open loops and fio does not."""
    parts = [
        part for found in figures for part in (found.measurement.read, found.measurement.write) if part is not None
    ]
    return bool(parts) and all(part.latency_intended is not None for part in parts)


def doubt_labels(figures: Iterable[Figures]) -> tuple[str, ...]:
    """The labels of the rules that struck, the heaviest of each."""
    return tuple(doubt.label for doubt in validity.union(doubt for found in figures for doubt in found.doubts))


def doubt_names(figures: Iterable[Figures]) -> tuple[str, ...]:
    """The names of the rules that struck."""
    return tuple(doubt.name for doubt in validity.union(doubt for found in figures for doubt in found.doubts))


def agreed(words: Iterable[str]) -> str:
    """The word all share; several joined by a slash."""
    return "/".join(dict.fromkeys(word for word in words if word))
