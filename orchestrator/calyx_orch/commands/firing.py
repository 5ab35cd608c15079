"""One firing of a schedule, in a process of its own: the run of its copied inventory, what comes after it, and its record."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from calyx_orch import plan as planning
from calyx_orch import units
from calyx_orch.commands import judging, resume
from calyx_orch.commands import run as running
from calyx_orch.errors import EXIT_FINE, EXIT_GUEST_FAILED, EXIT_MISSED, CalyxError, UsageError
from calyx_orch.model import Inventory, Plan, RunRecord
from calyx_orch.schedule import copying, daemon, nightly, watching
from calyx_orch.schedule.deciding import Firing, Schedule
from calyx_orch.store import archive, database
from calyx_orch.store.schedules import Schedules

AGAIN = "again"  # the second measurement of a night lies in the run folder, where no index takes it for a night
AGAIN_SPARE_S = 60.0  # left of --max-duration after it

MEASURED = (EXIT_FINE, EXIT_MISSED, EXIT_GUEST_FAILED)


def fire(name: str, due_s: int, *, store: str | None) -> int:
    """Run a firing that a daemon has claimed and write down what it came to. Returns the exit code of the run."""
    opened = database.open_store(store)
    try:
        schedules = Schedules(opened)
        schedule = daemon.schedule_of(schedules.one(name))
        firing = daemon.firing_of(schedules.firing(name, due_s))
        text = schedules.inventory(firing.inventory_sha256)
        path = schedule.settings.inventory
        inventory = copying.of_text(text, path, str(Path(path).parent)).inventory
        folder = _folder(schedule, firing)
        schedules.update(name, due_s, folder=str(folder))
        status = _run(inventory, schedule, firing, folder, store)
        return _after(opened, schedules, schedule, replace(firing, folder=str(folder)), inventory, folder, status)
    finally:
        opened.close()


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


def _run(inventory: Inventory, schedule: Schedule, firing: Firing, folder: Path, store: str | None) -> int:
    limits = judging.Limits(store=store, index=True)
    options = running.RunOptions(out=folder, quiet=True, allow_growth=schedule.settings.allow_growth, limits=limits)
    if (there := _resumed(firing)) is not None:
        return resume.resume(there, None, options)
    return running.run_named(inventory, options)


def _after(
    opened: database.Store, schedules: Schedules, schedule: Schedule, firing: Firing, inventory: Inventory, folder: Path,
    status: int,
) -> int:  # fmt: skip
    """Judge the night where anything was measured; its record is whole when this returns."""
    record = archive.read(folder)
    if status not in MEASURED or record.status != "finished":
        return status if status not in MEASURED else EXIT_GUEST_FAILED
    schedules.update(firing.schedule, firing.due_s, run_id=record.run_id)

    def again(workloads: tuple[str, ...]) -> RunRecord | str:
        return _again(inventory, schedule, firing, folder, workloads)

    night = nightly.after(
        opened,
        schedule,
        firing,
        record,
        measure_again=again,
        now_s=time.time(),
        changed=_changed(schedules, firing, inventory),
    )
    details = {**firing.details, **{key: value for key, value in asdict(night).items() if key != "verdict"}}
    schedules.update(
        firing.schedule,
        firing.due_s,
        state="finished",
        reason="",
        verdict=night.verdict,
        run_id=record.run_id,
        details=details,
    )
    try:
        nightly.draw(opened, schedule, out=Path(schedule.settings.runs) / f"{schedule.name}.html")
    except CalyxError as error:  # the night stands without its page
        sys.stdout.write(f"the page of the schedule was not drawn: {error}\n")
    sys.stdout.write(f"{night.verdict}\n" + "".join(f"{line}\n" for line in (*night.news, *night.notes)))
    return EXIT_FINE


def _again(
    inventory: Inventory, schedule: Schedule, firing: Firing, folder: Path, workloads: tuple[str, ...]
) -> RunRecord | str:
    """Measure these workloads once more on the same guests; the run, or why there is none."""
    options = running.RunOptions(
        workloads=workloads, out=folder / AGAIN, quiet=True, allow_growth=schedule.settings.allow_growth
    )
    try:
        takes_s = running.plan_of(inventory, options).estimated_s
        most_s, begun_s = schedule.settings.max_duration_s, firing.started_s or time.time()
        if most_s is not None and time.time() + takes_s + AGAIN_SPARE_S > begun_s + most_s:
            return f"it would take {units.format_duration(takes_s)}, more than --max-duration leaves"
        status = running.run_named(inventory, options)
        record = archive.read(folder / AGAIN)
    except CalyxError as error:
        return str(error)
    return record if status in MEASURED and record.status == "finished" else f"the second run was {record.status}"


def _changed(schedules: Schedules, firing: Firing, now: Inventory) -> tuple[str, ...]:
    """What is different about the inventory since the firing before."""
    rows = schedules.firings(firing.schedule, limit=20)
    before = next(
        (row for row in rows if row["due_s"] != firing.due_s and row["run_id"] and row["inventory_sha256"]), None
    )
    if before is None or before["inventory_sha256"] == firing.inventory_sha256:
        return ()
    try:
        text = schedules.inventory(before["inventory_sha256"])
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
    log = _log_of(schedule, firing)
    words = (sys.executable, "-m", "calyx_orch.cli", "schedule", "fire", schedule.name, str(firing.due_s))
    return await watching.watched(words, log, environment=environment, most_s=schedule.settings.max_duration_s)


def _log_of(schedule: Schedule, firing: Firing) -> Path:
    runs = Path(schedule.settings.runs)
    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    return runs / f"{_folder(schedule, replace(firing, details={})).name}.log"
