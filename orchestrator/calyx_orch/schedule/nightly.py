"""What comes after the run of a firing, in order: history, the suspects measured again, incidents, guests, retention, verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from calyx_orch.analysis import false_alarms, history, keeping, nights
from calyx_orch.analysis.history import BETTER, History
from calyx_orch.analysis.nights import Told, Tonight
from calyx_orch.analysis.regression import NIGHTS_MIN
from calyx_orch.analysis.scopes import ScopeRow, scope_rows
from calyx_orch.model import RunRecord
from calyx_orch.report.wording import count_of
from calyx_orch.schedule import retention
from calyx_orch.schedule.deciding import Firing, Schedule
from calyx_orch.store.database import NightRow, Store
from calyx_orch.store.schedules import Schedules

METRICS = {"throughput": "throughput_bytes_per_s", "p99": "p99_ns"}  # as people name them: as the store does
ENGINE = "calyx"
ENDED = ("finished", "failed", "interrupted")
LOOKED_BACK = 6  # firings among which the two nights before are sought
LOST = frozenset({"lost", "skipped", "partial", "unknown"})

Again = Callable[[tuple[str, ...]], RunRecord | str]


@dataclass(frozen=True)
class Night:
    """What a night came to: the verdict, what is news, findings as sentences, and notes (cleared suspects, calibration, retention)."""

    verdict: str
    news: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    again: dict[str, Any] = field(default_factory=dict)


def after(
    store: Store, schedule: Schedule, firing: Firing, record: RunRecord, *, measure_again: Again, now_s: float,
    changed: tuple[str, ...] = (), troubles: tuple[str, ...] = (), trials: int = false_alarms.TRIALS,
) -> Night:  # fmt: skip
    """Judge a night whose run is in the store, and write down its incidents.

    `measure_again` measures the workloads it is given once more and gives the run, or says why not; `changed` is what is
    different about the inventory, `troubles` what went wrong though all was measured, `trials` how many made-up fleets the
    calibration draws.
    """
    schedules = Schedules(store)
    runs = _runs(schedules, schedule.name, record.run_id)
    scoped = {metric: _scoped(store, metric, runs) for metric in METRICS.values()}
    histories = {metric: found for metric, (_, found) in scoped.items()}
    told = [_told(row) for row in schedules.incidents(schedule.name)]
    first = _tonight(histories, told, {}, record.run_id)
    again, measured = _again(first, scoped, measure_again)
    found = _tonight(histories, told, again, record.run_id) if again else first
    _keep(schedules, schedule.name, found)
    lost, still_lost = _lost(store, schedule, record)
    anew = keeping.anew(record.plan, record.facts)
    news = (*_news(found), *lost, *(f"the inventory has changed: {line}" for line in changed), *anew, *troubles)
    findings = sorted(
        (one for one in _each(found, "findings")), key=lambda one: (one.kind == "suspect", -abs(one.change))
    )
    notes = [calibration(histories[METRICS["throughput"]], trials).sentence, *measured, *still_lost]
    notes += [f"measured again and cleared: {name}" for night in found.values() for name in night.cleared]
    notes += expire(store, schedule, record.plan.inventory.key, now_s, tonight=record.run_id)
    return Night(
        _verdict(found, histories.values(), record), news, tuple(one.sentence for one in findings), tuple(notes),
        {name: value for values in again.values() for name, value in values.items()},
    )  # fmt: skip


def calibration(found: History, trials: int) -> false_alarms.Calibration:
    """What the thresholds are worth on the nights of a history."""
    series = {track.key: track.values for track in found.tracks}
    return false_alarms.calibrate(series, BETTER[found.metric], trials=trials)


def draw(store: Store, schedule: Schedule, *, out: Path, dashboard: Path | None = None) -> Path:
    """Write the page of a schedule. Raises UsageError for a faulty dashboard, FolderError where it cannot be written."""
    from calyx_orch.report import schedule_page
    from calyx_orch.report.history_frame import Due
    from calyx_orch.report.schedule_page import LastNight

    rows = sorted(Schedules(store).firings(schedule.name), key=lambda row: int(row["due_s"]))
    due = [Due(schedule.settings.times.local(row["due_s"])[:16], _state(row), row["reason"]) for row in rows]
    measured = [at for at, row in enumerate(rows) if row["run_id"] and due[at].state in ("finished", "running")]
    runs = frozenset(rows[at]["run_id"] for at in measured)
    scoped = {name: _scoped(store, metric, runs) for name, metric in METRICS.items()}
    last = None
    if measured:
        row, at = rows[measured[-1]], due[measured[-1]].at
        details = dict(row["details"])
        notes = [*details.get("news", []), *details.get("findings", []), *details.get("notes", [])]
        figures = store.figures(row["run_id"], scoped["throughput"][0])
        last = LastNight(at, row["verdict"], tuple(map(str, notes)), figures)
    return schedule_page.write(schedule.name, scoped, tuple(due), last, out=out, dashboard=dashboard)


def expire(store: Store, schedule: Schedule, inventory_key: str, now_s: float, *, tonight: str = "") -> list[str]:
    """Remove what is beyond the time that `--keep` says; what was removed or could not be, in words.

    The run `tonight`, the baseline of the inventory and the nights of open incidents stay.
    """
    if not schedule.settings.keep:
        return []
    schedules = Schedules(store)
    open_ = schedules.incidents(schedule.name, is_open=True)
    spared = frozenset(
        {tonight, store.baseline(inventory_key) or ""}
        | {row[key] for row in open_ for key in ("since_run", "opened_run")}
    )
    runs = {row["run_id"] for row in schedules.firings(schedule.name, states=ENDED)}
    mine = [retention.Night(row.run_id, Path(row.folder), row.started_s) for row in store.runs() if row.run_id in runs]
    raw, whole = retention.expired(mine, retention.parse(schedule.settings.keep), now_s, spared)
    notes, gone = [], [0, 0]
    for at, (expired, act) in enumerate(((raw, retention.remove_raw), (whole, retention.remove_whole))):
        for night in expired:
            try:
                gone[at] += act(night)
                if at == 1:
                    store.forget(night.run_id)
            except OSError as error:
                notes.append(
                    f"kept beyond its time, as it cannot be removed: {night.folder}: {error.strerror or error}"
                )
    if any(gone):
        raw_said, whole_said = (count_of(count, "night") for count in gone)
        notes.append(f"removed by --keep {schedule.settings.keep!r}: raw answers of {raw_said}, {whole_said} whole")
    return notes


def workloads_of(names: Iterable[str], found: History) -> tuple[str, ...]:
    """The workloads of series, by the names of these."""
    by_name = {track.key: track.what.split(" ")[0] for track in found.tracks}
    return tuple(dict.fromkeys(by_name[name] for name in names if name in by_name))


# --- how ------------------------------------------------------------------------------------------------------------


def _runs(schedules: Schedules, name: str, tonight: str) -> frozenset[str]:
    """The runs of a schedule that ended well, and tonight's."""
    rows = schedules.firings(name)
    return frozenset({row["run_id"] for row in rows if row["run_id"] and row["state"] == "finished"} | {tonight})


def _state(row: Mapping[str, Any]) -> str:
    """What became of a firing; one whose night is judged is finished, though its daemon has not said so yet."""
    return "finished" if row["state"] == "running" and row["verdict"] else str(row["state"])


def _scoped(store: Store, metric: str, runs: frozenset[str]) -> tuple[str, History]:
    """By vm_host, else by guest where no guest has one."""
    scope, rows = "vm_host", list[NightRow]()
    for scope in ("vm_host", "guest"):
        rows = [row for row in store.trend(metric, scope=scope, where={"engine": ENGINE}) if row.run_id in runs]
        if rows:
            break
    return scope, history.history(metric, nights.nights_of(rows))


def _told(row: Mapping[str, Any]) -> Told:
    return Told(
        row["metric"], row["series"], row["since_run"], row["opened_run"], row["since_at"], row["change"], bool(row["worse"]),
        row["recovered_run"],
    )  # fmt: skip


def _tonight(
    histories: Mapping[str, History], told: list[Told], again: Mapping[str, Mapping[str, float | None]], run_id: str
) -> dict[str, Tonight]:
    return {
        metric: nights.tonight(
            found, [one for one in told if one.metric == metric], again.get(metric, {}), run_id=run_id
        )
        for metric, found in histories.items()
    }


def _again(
    found: Mapping[str, Tonight], scoped: Mapping[str, tuple[str, History]], measure_again: Again
) -> tuple[dict[str, dict[str, float | None]], list[str]]:
    """Measure the workloads of all suspects once more; their second figures by metric and series, and what is to be noted."""
    wanted = tuple(
        dict.fromkeys(name for metric, night in found.items() for name in workloads_of(night.again, scoped[metric][1]))
    )
    if not wanted:
        return {}, []
    record = measure_again(wanted)
    if isinstance(record, str):
        return {}, [f"suspects were not measured again: {record}"]
    rows = scope_rows(record)
    values: dict[str, dict[str, float | None]] = {}
    for metric, night in found.items():
        mine = [row for row in rows if row.engine == ENGINE and row.scope == scoped[metric][0]]
        by_name = {f"{row.name} {_what(row)}": getattr(row, metric) for row in mine}
        values[metric] = {name: by_name.get(name) for name in night.again}
    return values, [f"measured again: {', '.join(wanted)} ({record.folder})"]


def _what(row: ScopeRow) -> str:
    """As `NightRow.what` says it."""
    return f"{row.workload} {row.target} {row.load} {row.engine}"


def _keep(schedules: Schedules, name: str, found: Mapping[str, Tonight]) -> None:
    def rows(kind: str) -> list[Mapping[str, Any]]:
        return [{**asdict(one), "worse": int(one.worse)} for one in _each(found, kind)]

    schedules.keep_incidents(name, rows("opened"), rows("recovered"), rows("still_open"))


def _each(found: Mapping[str, Tonight], kind: str) -> list[Any]:
    return [one for night in found.values() for one in getattr(night, kind)]


def _news(found: Mapping[str, Tonight]) -> Iterable[str]:
    said = {(one.metric, one.series): one.sentence for one in _each(found, "findings")}
    for one in _each(found, "opened"):
        kind = "regression opened" if one.worse else "got better"
        yield f"{kind}: {said.get((one.metric, one.series), one.sentence)}"
    for one in _each(found, "recovered"):
        yield f"recovered: {one.series}: {nights.WORDS.get(one.metric, one.metric)}, open since {one.since_at[:10]}"
    for metric, night in found.items():
        for name in night.confirmed:
            yield f"worse tonight, measured twice: {said[metric, name]}"


def _verdict(found: Mapping[str, Tonight], histories: Iterable[History], record: RunRecord) -> str:
    open_ = [one for one in (*_each(found, "opened"), *_each(found, "still_open")) if one.worse]
    counts = (
        (len(open_), "regression open", "regressions open"),
        (len(_each(found, "opened")), "opened tonight", "opened tonight"),
        (len(_each(found, "recovered")), "recovered", "recovered"),
        (len(_each(found, "confirmed")), "worse tonight and measured twice", "worse tonight and measured twice"),
        (len(_each(found, "cleared")), "suspect cleared by measuring again", "suspects cleared by measuring again"),
        (len(_each(found, "again")), "suspect not measured again", "suspects not measured again"),
    )
    parts = [f"{count} {one if count == 1 else many}" for count, one, many in counts if count]
    measured = sum(outcome.state == "measured" for outcome in record.outcomes)
    parts.append(f"{measured} of {len(record.outcomes)} guests measured")
    longest = max((len(track.points) for history in histories for track in history.tracks), default=0)
    quiet = "nothing changed" if longest >= NIGHTS_MIN else f"too few nights to judge yet ({longest} of {NIGHTS_MIN})"
    return "; ".join(parts if open_ or len(parts) > 1 else [quiet, *parts]).capitalize() + "."


def _lost(store: Store, schedule: Schedule, record: RunRecord) -> tuple[list[str], list[str]]:
    """Guests that were not measured whole tonight nor in the night before: news in the second night, a note in later ones."""
    now = {outcome.guest: outcome for outcome in record.outcomes if outcome.state in LOST}
    rows = Schedules(store).firings(schedule.name, states=("finished", "failed"), limit=LOOKED_BACK)
    runs = [row for row in rows if row["run_id"] and row["run_id"] != record.run_id][:2]
    before = [{name for name, state in store.guest_states(row["run_id"]).items() if state in LOST} for row in runs]
    twice = [outcome for name, outcome in now.items() if before and name in before[0]]
    told = before[1] if len(before) > 1 and runs[0]["state"] == "finished" else set()
    said = {one.guest: f"{one.step}: {one.reason}".rstrip(": ") for one in twice}
    return (
        [f"guest {name} was lost twice in a row: {why}" for name, why in said.items() if name not in told],
        [f"guest {name} is lost still: {why}" for name, why in said.items() if name in told],
    )
