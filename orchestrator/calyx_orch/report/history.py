"""A history as a table on a terminal, as strict JSON, and in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rich.console import Console

from calyx_orch import units
from calyx_orch.analysis.history import History, Track
from calyx_orch.analysis.regression import NIGHTS_MIN, Incident
from calyx_orch.report import screen, terminal, wording
from calyx_orch.report.fields import Field

JSON_FORMAT = "calyx-orch-history/1"
METRICS = {  # as people name them: as the store does
    "throughput": "throughput_bytes_per_s",
    "iops": "iops",
    "p50": "p50_ns",
    "p99": "p99_ns",
    "p99.9": "p999_ns",
    "cv": "cv_within_run",
    "cpu_per_io": "cpu_ns_per_io",
}
BARS = "▁▂▃▄▅▆▇█"
NIGHTS_DRAWN = 40
NAMED_MAX = 3


def shown(metric: str, value: float) -> str:
    """A figure of a metric in its unit."""
    if metric == "throughput":
        return units.format_rate(value)
    if metric == "iops":
        return units.format_count(value)
    return units.format_percent(100 * value) if metric == "cv" else units.format_latency(value)


def fields(found: History, metric: str, scope: str) -> tuple[Field[Track], ...]:
    """The columns of a row a series."""
    return (
        Field(scope, lambda track: track.name, is_number=False),
        Field("what", lambda track: track.what, is_number=False),
        Field("nights", lambda track: str(len(track.points)), 2),
        Field("first", lambda track: track.points[0].started_at[:10], 3, is_number=False),
        Field("last", lambda track: shown(metric, track.values[-1])),
        Field("course", lambda track: bars(track.values), 1, explanation=f"the last {NIGHTS_DRAWN} nights"),
        Field("changes", lambda track: _changes(found, track), is_number=False),
    )


def show(found: History, metric: str, scope: str, console: Console) -> None:
    """Print the table, what it leaves out, and the sentence."""
    terminal.show_rows(console, f"{metric} by {scope}", fields(found, metric, scope), found.tracks)
    for note in notes(found):
        screen.prose(console, f"note: {note}", "dim")
    terminal.conclude(sentence(found), console)


def notes(found: History) -> Iterable[str]:
    """What the series leave out, and of which nothing can be said yet."""
    for track in found.tracks:
        if track.others:
            since, count = track.broke_at[:10], wording.count_of(len(track.others), "night")
            yield f"{track.key}: a new series since {since}; {count} of another make left out"
    few = sum(len(track.points) < NIGHTS_MIN for track in found.tracks)
    if few:
        yield f"{few} series have fewer than {NIGHTS_MIN} nights: nothing is said of them yet"


def sentence(found: History) -> str:
    """Say how it stands: open incidents, the worst first; suspects; or that nothing changed."""
    open_ = sorted(
        (one for one in found.incidents if one.recovered is None and one.worse), key=lambda one: -abs(one.change)
    )
    told = [f"{one.series} {100 * abs(one.change):.3g} % {'less' if one.change < 0 else 'more'}" for one in open_]
    more = f" and {len(open_) - NAMED_MAX} more" if len(open_) > NAMED_MAX else ""
    parts = [f"{len(open_)} open: {'; '.join(told[:NAMED_MAX])}{more}"] if open_ else ["no incident is open"]
    if found.suspects:
        parts.append(f"suspect after one night, measure again: {', '.join(list(found.suspects)[:NAMED_MAX])}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def told(one: Incident, track: Track) -> str:
    """`12 % worse since 2026-11-19, open`."""
    kind = "worse" if one.worse else "better"
    since = track.points[one.since].started_at[:10]
    until = f" to {track.points[one.recovered].started_at[:10]}" if one.recovered is not None else ", open"
    return f"{100 * abs(one.change):.3g} % {kind} since {since}{until}"


def bars(values: tuple[float, ...]) -> str:
    """The last nights as a line of bars from the lowest to the highest."""
    drawn = values[-NIGHTS_DRAWN:]
    low, high = min(drawn), max(drawn)
    if high == low:
        return BARS[3] * len(drawn)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in drawn)


def to_json(found: History, metric: str) -> dict[str, Any]:
    """Give the history as data for strict JSON."""
    return {
        "format": JSON_FORMAT,
        "metric": METRICS[metric],
        "sentence": sentence(found),
        "series": [asdict(track) for track in found.tracks],
        "incidents": [asdict(one) for one in found.incidents],
        "suspects": {name: asdict(one) for name, one in found.suspects.items()},
    }


def _changes(found: History, track: Track) -> str:
    parts = [told(one, track) for one in found.incidents if one.series == track.key]
    if track.key in found.suspects:
        parts.append(f"suspect: last night {100 * found.suspects[track.key].change:+.3g} %")
    return "; ".join(parts)
