"""`calyx-orch history`: a metric over nights, with incidents and suspects; `calyx-orch baseline`: what runs are held against."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from calyx_orch import units
from calyx_orch.errors import EXIT_FINE, UsageError
from calyx_orch.report import screen
from calyx_orch.report.wording import printable

if TYPE_CHECKING:
    from calyx_orch.analysis.history import History, Track

METRICS = {
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


def show(metric: str, *, scope: str, where: dict[str, str], store: str | None, as_json: bool) -> int:
    """Draw each series with its incidents. Raises UsageError for an unknown metric, and when there is nothing to show."""
    from calyx_orch.analysis import history
    from calyx_orch.store import database

    if metric not in METRICS:
        raise UsageError(f"there is no metric {metric!r}: choose {', '.join(METRICS)}")
    opened = database.open_store(store)
    try:
        rows = opened.trend(METRICS[metric], scope=scope, where=where)
    finally:
        opened.close()
    if not rows:
        raise UsageError(f"the store has no {metric} by {scope} that fits; `calyx-orch list` shows what it has")
    nights = [history.Night(row.run_id, row.started_at, row.name, row.what, row.series_key, row.value) for row in rows]
    found = history.history(METRICS[metric], nights)
    if as_json:
        screen.deliver_json(_document(found))
        return EXIT_FINE
    _print(found, metric, scope)
    return EXIT_FINE


def set_baseline(run: str, *, store: str | None) -> int:
    """Make a run what later runs of its inventory are held against."""
    from calyx_orch.store import database

    opened = database.open_store(store)
    try:
        row = opened.find(run)
        opened.set_baseline(row.inventory, row.run_id)
    finally:
        opened.close()
    screen.console().print(Text(printable(f"{row.run_id} is the baseline of {row.inventory}")), soft_wrap=True)
    return EXIT_FINE


def _print(found: History, metric: str, scope: str) -> None:
    from calyx_orch.analysis.regression import NIGHTS_MIN
    from calyx_orch.report import terminal
    from calyx_orch.report.tables import Field

    console = screen.console()
    fields: tuple[Field[Track], ...] = (
        Field(scope, lambda track: track.name, is_number=False),
        Field("what", lambda track: track.what, is_number=False),
        Field("nights", lambda track: str(len(track.points))),
        Field("first", lambda track: track.points[0].started_at[:10], 3, is_number=False),
        Field("last", lambda track: _value(metric, track.values[-1])),
        Field("course", lambda track: bars(track.values), 1, is_number=False),
        Field("", lambda track: _said(found, track), is_number=False),
    )
    terminal.show_rows(console, f"{metric} by {scope}", fields, found.tracks)
    for track in found.tracks:
        if track.others:
            text = f"note: {track.name} {track.what}: a new series since {track.broke_at}; {track.others} nights of another make left out"
            console.print(Text(printable(text), style="dim"), soft_wrap=not console.is_terminal)
    few = sum(len(track.points) < NIGHTS_MIN for track in found.tracks)
    if few:
        console.print(
            Text(f"note: {few} series have fewer than {NIGHTS_MIN} nights: nothing is said of them yet", style="dim")
        )
    terminal.conclude(sentence(found), console)


def sentence(found: History) -> str:
    """Say how it stands: open incidents, the worst first; suspects; or that nothing changed."""
    open_ = sorted(
        (one for one in found.incidents if one.recovered is None and one.worse), key=lambda one: -abs(one.change)
    )
    told = [f"{one.series} {100 * abs(one.change):.3g} % {'less' if one.change < 0 else 'more'}" for one in open_[:3]]
    more = f" and {len(open_) - 3} more" if len(open_) > 3 else ""
    parts = [f"{len(open_)} open: {'; '.join(told)}{more}"] if open_ else ["no incident is open"]
    if found.suspects:
        parts.append(f"suspect after one night, measure again: {', '.join(list(found.suspects)[:3])}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def bars(values: tuple[float, ...]) -> str:
    """The last nights as a line of bars from the lowest to the highest."""
    shown = values[-NIGHTS_DRAWN:]
    low, high = min(shown), max(shown)
    if high == low:
        return BARS[3] * len(shown)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in shown)


def _said(found: History, track: Track) -> str:
    name = f"{track.name} {track.what}"
    parts = []
    for one in found.incidents:
        if one.series == name:
            kind = "worse" if one.worse else "better"
            since = track.points[one.since].started_at[:10]
            until = f" to {track.points[one.recovered].started_at[:10]}" if one.recovered is not None else ", open"
            parts.append(f"{100 * abs(one.change):.3g} % {kind} since {since}{until}")
    if name in found.suspects:
        parts.append(f"suspect: {100 * found.suspects[name].change:+.3g} % last night")
    return "; ".join(parts)


def _value(metric: str, value: float) -> str:
    if metric == "throughput":
        return units.format_rate(value)
    if metric == "iops":
        return units.format_count(value)
    return units.format_percent(100 * value) if metric == "cv" else units.format_latency(value)


def _document(found: History) -> dict[str, Any]:
    return {
        "format": "calyx-orch-history/1",
        "metric": found.metric,
        "sentence": sentence(found),
        "series": [asdict(track) for track in found.tracks],
        "incidents": [asdict(one) for one in found.incidents],
        "suspects": {name: asdict(one) for name, one in found.suspects.items()},
    }
