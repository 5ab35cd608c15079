"""One firing of a schedule, in a process of its own: the run of its copied inventory, what comes after it, and its record."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from calyx_orch import plan as planning
from calyx_orch import units
from calyx_orch.commands import judging, resume
from calyx_orch.commands import run as running
from calyx_orch.errors import EXIT_FINE, EXIT_GUEST_FAILED, EXIT_MISSED, CalyxError, FolderError, UsageError
from calyx_orch.model import Inventory, Plan, RunRecord
from calyx_orch.report import screen
from calyx_orch.schedule import copying, nightly, rows, watching
from calyx_orch.schedule.deciding import Firing, Schedule
from calyx_orch.schedule.firings import FAILURE
from calyx_orch.store import archive, database, indexing
from calyx_orch.store.schedules import Schedules

AGAIN = "again"  # the second measurement of a night lies in the run folder, where no index takes it for a night
AGAIN_SPARE_S = 60.0  # left of --max-duration after it
STORE_AGAIN_S = 2.0
STORE_PATIENCE_S = 120.0

_T = TypeVar("_T")

MEASURED = (EXIT_FINE, EXIT_MISSED, EXIT_GUEST_FAILED)


@dataclass(frozen=True)
class Fired:
    """A firing at work, and what it writes down of itself: as long as it is its daemon's."""

    store: database.Store
    schedule: Schedule
    firing: Firing
    inventory: Inventory
    folder: Path

    @property
    def schedules(self) -> Schedules:
        """The tables of schedules."""
        return Schedules(self.store)

    def note(self, **values: Any) -> None:
        """Write down what has become of it, once the store takes it. Raises UsageError when another daemon has taken it over."""
        one = self.firing
        update = functools.partial(self.schedules.update, one.schedule, one.due_s, owner=one.daemon, **values)
        if not _patiently(update):
            raise UsageError(f"{one.schedule}: another daemon took this firing over")


def fire(name: str, due_s: int, *, store: str | None) -> int:
    """Run a firing that a daemon has claimed and write down what it came to. Returns the exit code of the run."""
    opened = database.open_store(store)
    try:
        schedules = Schedules(opened)
        schedule, firing = rows.schedule_of(schedules.one(name)), rows.firing_of(schedules.firing(name, due_s))
        try:
            return _fire(opened, schedule, firing, store)
        except CalyxError as error:
            with contextlib.suppress(CalyxError):
                said = {**firing.details, FAILURE: " ".join(str(error).split())}
                schedules.update(name, due_s, owner=firing.daemon, details=said)
            raise
    finally:
        opened.close()


def _fire(opened: database.Store, schedule: Schedule, firing: Firing, store: str | None) -> int:
    path = schedule.settings.inventory
    text = Schedules(opened).inventory(firing.inventory_sha256)
    inventory = copying.of_text(text, path, str(Path(path).parent)).inventory
    one = Fired(opened, schedule, firing, inventory, _folder(schedule, firing))
    one.note(folder=str(one.folder))
    # Also before the run: a disk that is full of old nights would let none of them end well.
    for line in nightly.expire(opened, schedule, inventory.key, time.time()):
        screen.line(line)
    status, trouble = _run(one, store)
    return _after(one, status, trouble)


def _folder(schedule: Schedule, firing: Firing) -> Path:
    if resumed := _resumed(firing):
        return resumed
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(firing.due_s))
    again = f"-{firing.attempt}" if firing.attempt > 1 else ""
    return Path(schedule.settings.runs) / f"{schedule.name}-{at}{again}"


def _resumed(firing: Firing) -> Path | None:
    """The folder of a run that is to be gone on with, where it is here."""
    said = str(firing.details.get("resume") or "")
    return Path(said) if said and (Path(said) / "run.json").is_file() else None


def _run(one: Fired, store: str | None) -> tuple[int, str]:
    """Run it. Returns the exit code, and what went wrong though all was measured."""
    limits = judging.Limits(store=store, index=True)
    options = running.RunOptions(
        out=one.folder, quiet=True, allow_growth=one.schedule.settings.allow_growth, limits=limits
    )
    try:
        if (there := _resumed(one.firing)) is not None:
            return resume.resume(there, None, options), ""
        return running.run_named(one.inventory, options), ""
    except FolderError as error:  # a full disk: with luck only the report is missing
        with contextlib.suppress(CalyxError):
            record = archive.read(one.folder)
            if record.status == "finished":
                return running.exit_code(record), str(error)
        raise


def _after(one: Fired, status: int, trouble: str) -> int:
    """Judge the night where anything was measured; its record is whole when this returns."""
    record = archive.read(one.folder)
    one.note(run_id=record.run_id)
    if status not in MEASURED or record.status != "finished":
        if status in MEASURED:
            one.note(details={**one.firing.details, FAILURE: _failure(record)})
        return status if status not in MEASURED else EXIT_GUEST_FAILED
    if not one.store.guest_states(record.run_id):  # the store was away when the run ended
        _patiently(functools.partial(indexing.put, one.store, record))

    def again(workloads: tuple[str, ...]) -> RunRecord | str:
        return _again(one, workloads)

    night = nightly.after(
        one.store, one.schedule, one.firing, record, measure_again=again, now_s=time.time(),
        changed=_changed(one), troubles=(trouble,) if trouble else (),
    )  # fmt: skip
    details = {**one.firing.details, **{key: value for key, value in asdict(night).items() if key != "verdict"}}
    one.note(verdict=night.verdict, details=details)
    try:
        nightly.draw(one.store, one.schedule, out=Path(one.schedule.settings.runs) / f"{one.schedule.name}.html")
    except CalyxError as error:  # the night stands without its page
        screen.line(f"the page of the schedule was not drawn: {error}")
    for line in (night.verdict, *night.news, *night.notes):
        screen.line(line)
    return EXIT_FINE


def _failure(record: RunRecord) -> str:
    """Who failed, the first by name and with the reason."""
    bad = [outcome for outcome in record.outcomes if outcome.state != "measured"]
    if not bad:
        return f"the run was {record.status}"
    first = f"{bad[0].guest}: {bad[0].step}: {bad[0].reason}".rstrip(": ")
    more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"{len(bad)} of {len(record.outcomes)} guests failed: {first}{more}"


def _again(one: Fired, workloads: tuple[str, ...]) -> RunRecord | str:
    """Measure these workloads once more on the same guests; the run, or why there is none."""
    settings = one.schedule.settings
    options = running.RunOptions(
        workloads=workloads, out=one.folder / AGAIN, quiet=True, allow_growth=settings.allow_growth
    )
    try:
        takes_s = running.plan_of(one.inventory, options).estimated_s
        most_s, begun_s = settings.max_duration_s, one.firing.started_s or time.time()
        if most_s is not None and time.time() + takes_s + AGAIN_SPARE_S > begun_s + most_s:
            return f"it would take {units.format_duration(takes_s)}, more than --max-duration leaves"
        status = running.run_named(one.inventory, options)
        record = archive.read(one.folder / AGAIN)
    except CalyxError as error:
        return str(error)
    return record if status in MEASURED and record.status == "finished" else f"the second run was {record.status}"


def _changed(one: Fired) -> tuple[str, ...]:
    """What is different about the inventory since the last night that finished: what was told of one that failed is told again."""
    now, firing = one.inventory, one.firing
    finished = one.schedules.firings(firing.schedule, states=("finished",), limit=20)
    before = next((row for row in finished if row["due_s"] != firing.due_s and row["inventory_sha256"]), None)
    if before is None or before["inventory_sha256"] == firing.inventory_sha256:
        return ()
    try:
        text = one.schedules.inventory(before["inventory_sha256"])
        return copying.changes(copying.of_text(text, now.source, str(Path(now.source).parent)).inventory, now)
    except UsageError:
        return ("the one before cannot be read any more",)


def yearly(inventory: Inventory, firings: int, *, allow_growth: bool) -> tuple[str, ...]:
    """What so many firings a year will write, and what one takes. Raises UsageError where the run would be refused for its growth."""
    plan = running.plan_of(inventory, running.RunOptions())
    running.guard_growth(plan, allowed=allow_growth)
    rows = planning.describe(plan)
    total = next(row for row in rows if row.kind == "total")
    worst = max((row for row in rows if row.kind == "guest"), key=lambda row: row.new_bytes, default=total)
    lines = [f"one run takes about {units.format_duration(plan.estimated_s)}; {firings:,} a year"]
    for row, who in ((total, "all guests together"), (worst, f"guest {worst.name}")):
        # What later runs need not lay out where they find the files of the first.
        again = max(firings - 1, 0) * row.kept_bytes
        if row.written_max_bytes is not None:
            most = row.written_max_bytes * firings
            lines.append(
                f"{who} will write at most {units.format_bytes(most - again)} a year{_where_reused(most, again)}"
            )
        else:
            hours = units.format_duration(_writing_s(plan, row.name if row.kind == "guest" else None) * firings)
            laid = row.new_bytes * firings
            lines.append(
                f"{who} will write {units.format_bytes(laid - again)} of layouts a year{_where_reused(laid, again)}, and as fast as the "
                f"devices take for {hours}; impact.max_bytes_written bounds it"
            )
    return tuple(lines)


def _where_reused(most: int, again: int) -> str:
    """What holds where the files of the first run are not found as they were left, night after night."""
    return f" while kept files are found as they were left ({units.format_bytes(most)} if never)" if again else ""


def _writing_s(plan: Plan, guest: str | None) -> float:
    return sum(
        one.workload.ramp_s + one.workload.runtime_s
        for one in plan.rounds
        if one.workload.rw.writes and (guest is None or guest in one.guests)
    )


async def start(schedule: Schedule, firing: Firing, *, environment: dict[str, str]) -> int:
    """Start `fire` as a process that ends with this one, its words in a log beside the run folder; its exit code.

    After --max-duration, and when this is cancelled, it is told to stop its guests in good order, and killed when it does not.
    """
    try:
        log = _log_of(schedule, firing)
    except OSError as error:
        raise FolderError(f"cannot write {schedule.settings.runs}: {error.strerror or error}") from error
    words = (sys.executable, "-m", "calyx_orch.cli", "schedule", "fire", schedule.name, str(firing.due_s))
    return await watching.watched(words, log, environment=environment, most_s=schedule.settings.max_duration_s)


def _log_of(schedule: Schedule, firing: Firing) -> Path:
    runs = Path(schedule.settings.runs)
    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    return runs / f"{_folder(schedule, replace(firing, details={})).name}.log"


def _patiently(act: Callable[[], _T]) -> _T:
    """What the store answers, asked again while it does not, for as long as the daemon leaves this firing its lease."""
    until_s = time.monotonic() + STORE_PATIENCE_S
    while True:
        try:
            return act()
        except CalyxError as error:
            if time.monotonic() > until_s:
                raise
            screen.line(f"{error}; tried again in {STORE_AGAIN_S:g} s")
        time.sleep(STORE_AGAIN_S)
