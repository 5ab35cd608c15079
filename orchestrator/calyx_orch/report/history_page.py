"""A history as a page: `page` written from what `calyx-orch history` found."""

from __future__ import annotations

from pathlib import Path

from calyx_orch.analysis.history import History, Track
from calyx_orch.analysis.regression import Incident
from calyx_orch.report import dashboard as dashboards
from calyx_orch.report import facts, figures, history, page, tables
from calyx_orch.report.fields import Field
from calyx_orch.report.wording import count_of, printable


def write(found: History, metric: str, scope: str, *, out: Path, dashboard: Path | None = None) -> Path:
    """Write the page to `out` and give that path. Raises UsageError for a faulty dashboard, else as `page.write` does."""
    from calyx_orch.report import history_frame

    board = dashboards.read(dashboard, figures.HISTORY)
    frame = history_frame.frame_of(found, metric, scope)
    drawings, plots = page.draw(frame, board, list(dict.fromkeys(line.workload for line in frame.lines)))
    return page.write(
        page.Page(
            title=printable(f"{board.title}: {metric} by {scope}"),
            about=printable(f"{metric} by {scope}"),
            verdict=printable(history.sentence(found)),
            header=_header(found, metric, scope),
            notes=tuple(map(printable, history.notes(found))),
            notes_title="What is left out",
            tables=tables_of(found, metric, scope),
            drawings=drawings,
            plots=plots,
            source="The store is an index of run folders, which hold every raw answer.",
        ),
        out,
    )


def _header(found: History, metric: str, scope: str) -> tuple[tuple[str, str], ...]:
    nights = sorted({(point.started_at, point.run_id) for track in found.tracks for point in track.points})
    pairs = (
        ("Metric", metric),
        ("By", scope),
        ("Series", str(len(found.tracks))),
        ("Nights", str(len(nights))),
        ("First", f"{nights[0][0]} ({nights[0][1]})"),
        ("Last", f"{nights[-1][0]} ({nights[-1][1]})"),
    )
    return tuple((name, printable(value)) for name, value in pairs)


def tables_of(found: History, metric: str, scope: str) -> tuple[facts.Table, ...]:
    """The incidents, and a row a series."""
    tracks = {track.key: track for track in found.tracks}
    pairs = [(one, tracks[one.series]) for one in sorted(found.incidents, key=_weight)]
    made = (
        tables.table("incidents", "Incidents", _INCIDENTS, pairs, first=True, text=_text(found)),
        tables.table("series", "All series", history.fields(found, metric, scope), found.tracks),
    )
    return tuple(one for one in made if one is not None)


def _weight(one: Incident) -> tuple[bool, bool, float]:
    return one.recovered is not None, not one.worse, -abs(one.change)


def _text(found: History) -> str:
    closed = sum(one.recovered is not None for one in found.incidents)
    return f"{len(found.incidents) - closed} open, {count_of(closed, 'incident')} recovered."


_INCIDENTS: tuple[Field[tuple[Incident, Track]], ...] = (
    Field("series", lambda pair: pair[0].series, is_number=False),
    Field("verdict", lambda pair: "worse" if pair[0].worse else "better", is_number=False),
    Field(
        "change",
        lambda pair: f"{100 * pair[0].change:+.3g} %",
        explanation="of all its nights, against the window before",
    ),
    Field("since", lambda pair: pair[1].points[pair[0].since].started_at[:10], is_number=False),
    Field("told on", lambda pair: pair[1].points[pair[0].opened].started_at[:10], is_number=False),
    Field(
        "recovered",
        lambda pair: "open" if pair[0].recovered is None else pair[1].points[pair[0].recovered].started_at[:10],
        is_number=False,
    ),
    Field("p", lambda pair: f"{pair[0].p:.2g}", explanation="of the step on the night it was told, by permutation"),
)
