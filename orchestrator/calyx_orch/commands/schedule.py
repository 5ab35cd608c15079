"""`calyx-orch schedule`: what runs by itself, when, and what became of it; the daemon that does it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from calyx_orch import notify, units
from calyx_orch.commands import outputs
from calyx_orch.errors import EXIT_FINE, EXIT_GUEST_FAILED, EXIT_INTERRUPTED, EXIT_MISSED, UsageError
from calyx_orch.report import screen
from calyx_orch.report.fields import Field
from calyx_orch.report.wording import printable
from calyx_orch.schedule import copying, delivering, retention, rows, times
from calyx_orch.schedule import daemon as daemons
from calyx_orch.schedule.deciding import Firing, Schedule, Settings
from calyx_orch.store import database
from calyx_orch.store.schedules import Schedules

OVERDUE_S = 600.0  # a daemon that lives has decided by then
TOLD_LOOKED = 7  # firings of which a message that did not arrive is trouble
NAME_MAX = 60


@contextmanager
def schedules_of(store: str | None, *, create: bool = False) -> Iterator[Schedules]:
    """The schedules in the store, for as long as they are needed. Who only reads does not `create` it: it may be mistyped."""
    with closing(database.open_store(store, create=create)) as opened:
        yield Schedules(opened)


def add(name: str, settings: Settings, *, store: str | None) -> int:
    """Add a schedule, and say what it will do. Raises UsageError for whatever could not work."""
    from calyx_orch.commands import firing

    if (
        not name
        or len(name) > NAME_MAX
        or not all(one.isalnum() or one in "-_." for one in name)
        or name.startswith(".")
    ):
        raise UsageError(f"{name!r} is no name of a schedule: letters, digits, - _ and . make one, {NAME_MAX} at most")
    when = times.checked(settings.cron, settings.timezone)
    retention.parse(settings.keep)
    if settings.notify:
        notify.check(settings.notify)
    if settings.ping:
        notify.check_ping(settings.ping)
    if settings.link and not settings.link.startswith(("https://", "http://")):
        raise UsageError(
            f"--link {settings.link}: write where the run folders are served, such as https://bench.example/runs"
        )
    if settings.inventory == "-":
        raise UsageError("a schedule reads its inventory anew each time: name a file or a program")
    settings = replace(
        settings, inventory=str(Path(settings.inventory).absolute()), runs=str(Path(settings.runs).absolute()),
        notify=_from_anywhere(settings.notify), ping=_from_anywhere(settings.ping),
    )  # fmt: skip
    copied = copying.copy(settings.inventory)
    _make(Path(settings.runs))
    now_s = time.time()
    lines = firing.yearly(copied.inventory, when.in_a_year(now_s), allow_growth=settings.allow_growth)
    with schedules_of(store, create=True) as schedules:
        schedules.keep_inventory(copied.text)
        schedules.add(name, rows.settings_row(settings), now_s)
    next_s = when.next(now_s) or 0
    screen.line(f"added {name}: next {when.local(next_s)}; runs go to {settings.runs}")
    for line in lines:
        screen.line(line)
    screen.line("a daemon must be at work: `calyx-orch schedule daemon`, or `calyx-orch schedule install --systemd`")
    return EXIT_FINE


def _make(runs: Path) -> None:
    """Make the directory of run folders now: a night that cannot is lost."""
    try:
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--runs {runs}: it cannot be made: {error.strerror}; name another directory") from error


def _from_anywhere(reference: str) -> str:
    """`file:PATH` with its whole path: the daemon is started elsewhere."""
    kind, _, name = reference.partition(":")
    return f"file:{Path(name).expanduser().absolute()}" if kind == "file" and name else reference


def list_all(*, store: str | None, as_json: bool, check: bool) -> int:
    """Show all schedules; with `check` 1 when the last firing of one failed, or one is overdue."""
    with schedules_of(store) as schedules:
        known = [rows.schedule_of(row) for row in schedules.all()]
        recent = {one.name: _firings(schedules, one.name, TOLD_LOOKED) for one in known}
        last = {name: next(iter(firings), None) for name, firings in recent.items()}
        open_ = {
            one.name: len([row for row in schedules.incidents(one.name, is_open=True) if row["worse"]]) for one in known
        }
    now_s = time.time()
    troubles = {one.name: _trouble(one, recent[one.name], now_s) for one in known}
    if as_json:
        documents = [
            {
                **asdict(one), "next_s": None if one.paused else one.settings.times.next(now_s), "trouble": troubles[one.name],
                "open_incidents": open_[one.name], "last": None if (at := last[one.name]) is None else asdict(at),
            }
            for one in known
        ]  # fmt: skip
        screen.deliver_json(documents)
    else:
        _show_list(known, last, open_, troubles, now_s)
    return EXIT_MISSED if check and any(troubles.values()) else EXIT_FINE


def show_next(name: str, *, count: int, store: str | None) -> int:
    """Show when a schedule is due next."""
    with schedules_of(store) as schedules:
        schedule = rows.schedule_of(schedules.one(name))
    if schedule.paused:
        screen.line(f"{name} is paused: `calyx-orch schedule resume {name}`")
    at_s: float | None = time.time()
    for _ in range(count):
        at_s = schedule.settings.times.next(at_s or 0)
        if at_s is None:
            break
        screen.line(schedule.settings.times.local(at_s))
    return EXIT_FINE


def history(name: str, *, limit: int, store: str | None, as_json: bool) -> int:
    """Show what became of a schedule's due times, the newest first."""
    from calyx_orch.report import terminal

    with schedules_of(store) as schedules:
        schedule = rows.schedule_of(schedules.one(name))
        firings = _firings(schedules, name, limit)
        incidents = [dict(row) for row in schedules.incidents(name)]
    if as_json:
        screen.deliver_json(
            {"schedule": asdict(schedule), "firings": [asdict(one) for one in firings], "incidents": incidents}
        )
        return EXIT_FINE
    when = schedule.settings.times
    fields: tuple[Field[Firing], ...] = (
        Field("due", lambda one: when.local(one.due_s), is_number=False),
        Field("kind", lambda one: one.kind, 2, is_number=False),
        Field("state", lambda one: one.state, is_number=False),
        Field("try", lambda one: str(one.attempt), 3),
        Field(
            "took",
            lambda one: units.format_duration(
                None if one.ended_s is None or one.started_s is None else one.ended_s - one.started_s
            ),
            1,
        ),
        Field("told", _told, 1, is_number=False),
        Field("", _said, is_number=False),
    )
    if not firings:
        screen.line(f"{name} has not been fired yet: `calyx-orch schedule next {name}` shows when it is due")
    terminal.show_rows(screen.console(), f"{name}, the newest first", fields, firings)
    for row in incidents:
        state = "open" if row["recovered_run"] is None else "recovered"
        screen.line(
            f"incident, {state}: {row['series']}: {row['metric']} {100 * row['change']:+.3g} % since {row['since_at'][:10]}"
        )
    return EXIT_FINE


def report(name: str, *, out: Path | None, dashboard: Path | None, store: str | None) -> int:
    """Draw the page of a schedule."""
    from calyx_orch.schedule import nightly

    with closing(database.open_store(store, create=False)) as opened:
        schedule = rows.schedule_of(Schedules(opened).one(name))
        path = outputs.checked(out, "--out", "page") if out else Path(schedule.settings.runs) / f"{name}.html"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        nightly.draw(opened, schedule, out=path, dashboard=dashboard)
    screen.line(f"report: {path}")
    return EXIT_FINE


def pause(name: str, *, paused: bool, store: str | None) -> int:
    """Hold a schedule, or let it go on."""
    with schedules_of(store) as schedules:
        schedules.pause(name, paused=paused, now_s=time.time())
    screen.line(f"{name} is paused" if paused else f"{name} goes on")
    return EXIT_FINE


def remove(name: str, *, store: str | None) -> int:
    """Take a schedule away; its runs stay."""
    with schedules_of(store) as schedules:
        schedules.remove(name)
    screen.line(f"{name} is removed; its runs and their figures stay")
    return EXIT_FINE


def run_now(name: str, *, store: str | None) -> int:
    """Fire a schedule here and now. Returns 0, 3 when it failed, 130 when it was interrupted."""
    with schedules_of(store) as schedules:
        schedule = rows.schedule_of(schedules.one(name))
        daemon = _daemon(schedules, store)
        firing = daemon.claim_by_hand(schedule)
        status = asyncio.run(_by_hand(daemon, schedule, firing))
        if status:
            return status
        ended = rows.firing_of(schedules.firing(name, firing.due_s))
    screen.line(f"{name}: {ended.state}. {_said(ended)}".rstrip())
    for line in (*ended.details.get("news", ()), *ended.details.get("notes", ())):
        screen.line(str(line), "dim")
    return (
        EXIT_FINE
        if ended.state == "finished"
        else EXIT_INTERRUPTED
        if ended.state == "interrupted"
        else EXIT_GUEST_FAILED
    )


def daemon(*, store: str | None, once: bool) -> int:
    """Be the daemon, until SIGTERM or SIGINT; with `once`: do what is due now, and end."""
    with schedules_of(store, create=True) as schedules:
        return asyncio.run(_daemon_of(_daemon(schedules, store), once=once))


def fire(name: str, due_s: int, *, store: str | None) -> int:
    """What a daemon starts for each firing."""
    from calyx_orch.commands import firing

    return firing.fire(name, due_s, store=store)


# --- how ------------------------------------------------------------------------------------------------------------


def _daemon(schedules: Schedules, store: str | None) -> daemons.Daemon:
    from calyx_orch.commands import firing

    environment = {
        **os.environ,
        database.ENVIRONMENT: store or database.default_url(),
    }  # never on a command line: it may hold a password

    async def start(schedule: Schedule, one: Firing) -> int:
        return await firing.start(schedule, one, environment=environment)

    async def tell(one: Firing) -> tuple[str, dict[str, Any]]:
        with_settings = await asyncio.to_thread(schedules.one, one.schedule)
        return await asyncio.to_thread(delivering.deliver, rows.schedule_of(with_settings).settings, one)

    return daemons.Daemon(schedules, start, tell, _log)


async def _daemon_of(daemon: daemons.Daemon, *, once: bool) -> int:
    stop = _stopping()
    if once:
        return await _once(daemon, stop)
    _log(f"daemon {daemon.name} is at work")
    await daemon.run(stop)
    _log("the daemon has ended")
    return EXIT_FINE


async def _once(daemon: daemons.Daemon, stop: asyncio.Event) -> int:
    work, stopping = asyncio.ensure_future(daemon.once()), asyncio.ensure_future(stop.wait())
    await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if work.done():
        await work
        return EXIT_FINE
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    await daemon.end()
    return EXIT_INTERRUPTED


async def _by_hand(daemon: daemons.Daemon, schedule: Schedule, firing: Firing) -> int:
    stop = asyncio.ensure_future(_stopping().wait())
    work = asyncio.ensure_future(daemon.fired(schedule, firing))
    await asyncio.wait({stop, work}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if not work.done():
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return EXIT_INTERRUPTED
    await work
    await daemon.deliver()
    return EXIT_FINE


def _stopping() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def _show_list(
    known: list[Schedule], last: dict[str, Firing | None], open_: dict[str, int], troubles: dict[str, str], now_s: float
) -> None:
    from calyx_orch.report import terminal

    def next_of(one: Schedule) -> str:
        due_s = one.settings.times.next(now_s)
        return "paused" if one.paused else "never" if due_s is None else one.settings.times.local(due_s)

    def last_of(one: Schedule) -> str:
        firing = last[one.name]
        return "" if firing is None else f"{firing.state}, due {one.settings.times.local(firing.due_s)}"

    fields: tuple[Field[Schedule], ...] = (
        Field("schedule", lambda one: one.name, is_number=False),
        Field("cron", lambda one: f"{one.settings.cron} {one.settings.timezone}", 1, is_number=False),
        Field("next", next_of, is_number=False),
        Field("last", last_of, is_number=False),
        Field("open", lambda one: str(open_[one.name]), explanation="regressions that are open"),
        Field("inventory", lambda one: one.settings.inventory, 2, is_number=False),
        Field("trouble", lambda one: troubles[one.name], is_number=False),
    )
    if not known:
        screen.line("there is no schedule: `calyx-orch schedule add NAME INVENTORY --cron '30 2 * * *'` adds one")
    terminal.show_rows(screen.console(), "schedules", fields, known)


def _trouble(schedule: Schedule, recent: list[Firing], now_s: float) -> str:
    """What a monitor is to hear of a schedule by its recent firings, the newest first; "": it is well."""
    due_s = schedule.settings.times.next(max(schedule.considered_s, schedule.added_s))
    if not schedule.paused and due_s is not None and now_s - due_s > OVERDUE_S:
        return f"overdue since {schedule.settings.times.local(due_s)}: no daemon is at work"
    if recent and recent[0].state in ("failed", "interrupted", "skipped", "missed"):
        return f"the last firing was {recent[0].state}: {recent[0].reason}"
    for one in recent:
        if one.notice in ("waiting", "given up") and one.notice_why:
            return f"nobody could be told of {schedule.settings.times.local(one.due_s)}: {one.notice_why}"
    return ""


def _said(one: Firing) -> str:
    return "; ".join(filter(None, (one.reason, one.verdict)))


def _told(one: Firing) -> str:
    tries = f" after {one.notice_tries} tries" if one.notice_tries > 1 else ""
    return f"{one.notice}{tries}{one.notice_why and f': {one.notice_why}'}"


def _firings(schedules: Schedules, name: str, limit: int) -> list[Firing]:
    return [rows.firing_of(row) for row in schedules.firings(name, limit=limit)]


def _log(text: str) -> None:
    """A line for the journal, at once."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {printable(text)}\n")
    sys.stderr.flush()
