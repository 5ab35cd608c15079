"""The common window of a round: the time in which all its guests were active. All figures come from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from calyx_orch.model import NANOSECONDS, Measurement, Series


@dataclass(frozen=True)
class Window:
    """A span of the controller's clock. Empty when `end_ns` is not after `start_ns`."""

    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """Its length, 0 when it is empty."""
        return max(self.end_ns - self.start_ns, 0)


@dataclass(frozen=True)
class CommonWindow:
    """What the guests of a round share: `window` None when they share no time; `overlap` is its length / the longest own.

    `clock_errors` counts measurements whose window ends before it begins: they are left out, never taken as 0.
    """

    window: Window | None
    overlap: float | None
    clock_errors: int = 0


def own_window(measurement: Measurement) -> Window:
    """The guest's own measured window."""
    return Window(measurement.window_start_ns, measurement.window_end_ns)


def has_clock_error(measurement: Measurement) -> bool:
    """Whether the window ends before it begins, or before its start line: then a clock was wrong."""
    if measurement.window_end_ns <= measurement.window_start_ns:
        return True
    bound_ns = measurement.skew_bound_ns or 0
    return measurement.window_end_ns + bound_ns < measurement.start_line_ns


def common_window(measurements: Iterable[Measurement]) -> CommonWindow:
    """The time in which all of these were active, whatever their status; measurements with clock errors are counted only."""
    given = list(measurements)
    usable = [own_window(measurement) for measurement in given if not has_clock_error(measurement)]
    errors = len(given) - len(usable)
    if not usable:
        return CommonWindow(None, None, errors)
    shared = Window(max(w.start_ns for w in usable), min(w.end_ns for w in usable))
    longest = max(w.length_ns for w in usable)
    return CommonWindow(shared if shared.length_ns else None, shared.length_ns / longest, errors)


def elapsed(pairs: Iterable[tuple[float, float]]) -> tuple[tuple[float, ...], int]:
    """Differences (later - earlier) of pairs of instants, and how many were negative: those are dropped, not set to 0."""
    differences = [later - earlier for earlier, later in pairs]
    kept = tuple(difference for difference in differences if difference >= 0)
    return kept, len(differences) - len(kept)


def clipped(values: Sequence[float], interval_ns: int, own: Window, common: Window) -> float:
    """The amount of a series (values per interval from `own.start_ns`) that falls into a window, edges in proportion."""
    begin = min(max((common.start_ns - own.start_ns) // interval_ns, 0), len(values))
    end = min(max(-(-(common.end_ns - own.start_ns) // interval_ns), begin), len(values))

    def part(number: int) -> float:
        start = own.start_ns + number * interval_ns
        stop = min(start + interval_ns, own.end_ns) if number == len(values) - 1 else start + interval_ns
        inside = min(stop, common.end_ns) - max(start, common.start_ns)
        return values[number] * min(inside / max(stop - start, 1), 1.0) if inside > 0 else 0.0

    if begin == end:
        return 0.0
    return math.fsum(
        (*values[begin + 1 : end - 1], *map(part, {begin, end - 1}))
    )  # all between the edges lie inside as a whole


def clip_series(series: Series, own: Window, common: Window) -> Series:
    """The whole intervals of a series that lie inside a window, for plots and for CVs."""
    first = max(-(-(common.start_ns - own.start_ns) // series.interval_ns), 0)
    last = max((common.end_ns - own.start_ns) // series.interval_ns, first)
    columns = (series.read_ios, series.read_bytes, series.write_ios, series.write_bytes)
    return Series(series.interval_ns, *(column[first:last] for column in columns))


def amounts_in(measurement: Measurement, window: Window) -> tuple[float, float]:
    """(I/Os, bytes) of a measurement within a window.

    The totals are exact; their share within the window comes from the series, or, without one, from the time.
    """
    own = own_window(measurement)
    series = measurement.series
    if own.length_ns == 0:
        return 0.0, 0.0
    if window.start_ns <= own.start_ns and window.end_ns >= own.end_ns:
        return float(measurement.total_ios), float(measurement.total_bytes)
    inside = min(own.end_ns, window.end_ns) - max(own.start_ns, window.start_ns)
    by_time = max(inside, 0) / own.length_ns

    def share(values: Sequence[float]) -> float:
        whole = sum(values)
        return clipped(values, series.interval_ns, own, window) / whole if series and whole else by_time

    if series is None:
        return measurement.total_ios * by_time, measurement.total_bytes * by_time
    return measurement.total_ios * share(series.total_ios), measurement.total_bytes * share(series.total_bytes)


def rates_in(measurement: Measurement, window: Window) -> tuple[float, float]:
    """(IOPS, bytes/s) of a measurement within a window; (0, 0) for an empty one."""
    if window.length_ns == 0:
        return 0.0, 0.0
    ios, bytes_ = amounts_in(measurement, window)
    return ios * NANOSECONDS / window.length_ns, bytes_ * NANOSECONDS / window.length_ns
