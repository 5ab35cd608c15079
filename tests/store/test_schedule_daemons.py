"""Daemons on one store: each due time fires once, whoever fires it and whoever dies."""

from __future__ import annotations

import asyncio
import datetime
import signal
import subprocess
import sys
import threading
import time
import zoneinfo
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calyx_orch.errors import UsageError
from calyx_orch.inventory import from_guests
from calyx_orch.schedule import daemon as daemons
from calyx_orch.schedule import firings, rows
from calyx_orch.schedule.copying import Copied
from calyx_orch.schedule.deciding import Firing, Schedule, Settings
from calyx_orch.store import database
from calyx_orch.store.schedules import Row, Schedules
from calyx_orch.workloads import read_presets

PROGRAM = Path(__file__).with_name("firing_daemon.py")
FIRINGS = 100
DAY_S = 86400.0
NOON_S = 1_780_056_000.0  # 2026-05-29 12:00 UTC


def settings(cron: str = "30 2 * * *", zone: str = "Europe/Berlin", **more: Any) -> dict[str, Any]:
    return rows.settings_row(Settings(f"/{len(more)}.yaml", cron, zone, "/runs", **more))


def copied(path: str) -> Copied:
    inventory = from_guests(("vm1",), target="/d", presets=read_presets(), workloads=("quick",))
    return Copied(f"of {path}", ("vm_host:hv1",), inventory)


class World:
    """A clock that goes on when somebody waits, and a fleet whose runs take no time, or end as told."""

    def __init__(self, store: database.Store, now_s: float) -> None:
        self.now_s = now_s
        self.passed_s = 0.0
        self.fired: list[Firing] = []
        self.told: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        self.why = ""
        self.takes = asyncio.Event()
        self.takes.set()
        clock = firings.Clock(lambda: self.now_s, lambda: self.passed_s, self.sleep)
        self.daemon = daemons.Daemon(
            Schedules(store), self.fire, self.tell, lambda _: None, clock=clock, copy=copied, tick_s=DAY_S
        )

    async def sleep(self, seconds: float) -> None:
        if self.takes.is_set() and asyncio.current_task() not in self.daemon._running.values():
            await self.daemon.idle()
        self.now_s += seconds
        self.passed_s += seconds

    async def fire(self, _: Schedule, firing: Firing) -> int:
        self.fired.append(firing)
        await self.takes.wait()
        return self.statuses.pop(0) if self.statuses else 0

    async def tell(self, firing: Firing) -> tuple[str, dict[str, Any]]:
        self.told.append(firing.message)
        return self.why, firing.message

    def another(self) -> daemons.Daemon:
        """Another daemon on the same store and clock."""
        return daemons.Daemon(
            self.daemon.store, self.fire, self.tell, lambda _: None, clock=self.daemon.clock, copy=copied, tick_s=DAY_S
        )

    async def watch(self, for_s: float) -> None:
        """Tick as often as a daemon does, for so long."""
        end_s = self.passed_s + for_s
        while self.passed_s < end_s:
            await self.daemon.tick()
            step_s = min(daemons.TICK_S, end_s - self.passed_s)
            self.now_s += step_s
            self.passed_s += step_s
        await self.daemon.tick()

    async def soon(self, is_so: Callable[[], bool]) -> None:
        """Tick until it is so, without any time that passes."""
        for _ in range(400):
            await self.daemon.tick()
            await self.daemon.idle()
            if is_so():
                return
        raise AssertionError("it did not become so")

    async def until(self, end_s: float) -> None:
        """Go on to a time."""
        while self.now_s < end_s:
            await self.sleep(min(await self.daemon.tick(), end_s - self.now_s))
        await self.daemon.tick()
        if self.takes.is_set():
            await self.daemon.idle()


@pytest.fixture
def sqlite(tmp_path: Path) -> database.Store:
    return database.open_store(f"sqlite:///{tmp_path / 'store.sqlite'}")


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"])
async def test_a_year_of_nights_is_fired_once_each(sqlite: database.Store, zone: str) -> None:
    begin = datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo(zone))
    world = World(sqlite, begin.timestamp())
    world.daemon.store.add("nightly", settings(zone=zone), world.now_s)
    await world.until(begin.replace(year=2027).timestamp())
    days = [datetime.datetime.fromtimestamp(one.due_s, begin.tzinfo).date() for one in world.fired]
    assert len(days) == len(set(days)) == 365
    assert {row["state"] for row in world.daemon.store.firings("nightly")} == {"finished"}


async def test_a_run_that_fails_is_tried_again_and_told(sqlite: database.Store) -> None:
    world = World(sqlite, 1_780_000_000.0)
    world.daemon.store.add("nightly", settings(retry=1, notify="env:X", quiet=True), world.now_s)
    world.statuses = [4, 0, 2, -9]
    await world.until(world.now_s + 2 * DAY_S)
    second, first = world.daemon.store.firings("nightly")
    assert (first["state"], first["attempt"], first["details"]["tried"]) == (
        "finished",
        2,
        ["exit code 4; its log says more"],
    )
    assert (second["state"], second["attempt"]) == ("failed", 2)
    assert second["reason"] == "ended by signal 9; its log says more"
    assert [one["title"] for one in world.told] == ["calyx-orch nightly: the run failed"]


async def test_what_cannot_be_told_is_tried_again_and_then_given_up(sqlite: database.Store) -> None:
    world = World(sqlite, 1_780_000_000.0)
    world.daemon.tick_s = 600.0
    world.daemon.store.add("nightly", settings(notify="env:X"), world.now_s)
    world.why = "the service is down"
    await world.until(world.now_s + DAY_S)
    (row,) = world.daemon.store.firings("nightly")
    assert (row["notice"], row["notice_why"]) == ("waiting", "the service is down")
    assert 8 <= row["notice_tries"] <= 24
    world.why = ""
    await world.until(world.now_s + 7200.0)
    assert world.daemon.store.firing("nightly", row["due_s"])["notice"] == "sent"


async def test_two_schedules_of_one_host_never_run_at_once(sqlite: database.Store) -> None:
    """A-105: the later is skipped, or waits, and names the run in the way; one by hand is refused."""
    world = World(sqlite, NOON_S - 600.0)
    store = world.daemon.store
    world.takes.clear()
    store.add("first", settings("0 12 * * *", "UTC"), world.now_s)
    store.add("second", settings("1 12 * * *", "UTC"), world.now_s)
    store.add("third", settings("2 12 * * *", "UTC", overlap="queue"), world.now_s)
    world.daemon.tick_s = 60.0
    await world.until(NOON_S + 2 * 3600.0)
    states = {row["schedule"]: row for row in store.firings()}
    assert {name: row["state"] for name, row in states.items()} == {
        "first": "running",
        "second": "skipped",
        "third": "skipped",
    }
    assert "in the way: the run of schedule first due" in states["second"]["reason"]
    assert "at work on vm_host hv1" in states["second"]["reason"]
    assert "waited too long for the run of schedule first" in states["third"]["reason"]
    with pytest.raises(UsageError, match="in the way: the run of schedule first"):
        world.daemon.claim_by_hand(rows.schedule_of(store.one("second")))
    assert [one.schedule for one in world.fired] == ["first"]
    world.takes.set()
    await world.daemon.idle()


async def test_what_waits_starts_when_the_way_is_free(sqlite: database.Store) -> None:
    world = World(sqlite, NOON_S - 600.0)
    store = world.daemon.store
    store.add("first", settings("0 12 * * *", "UTC"), world.now_s)
    store.add("second", settings("1 12 * * *", "UTC", overlap="queue"), world.now_s)
    world.daemon.tick_s = 60.0
    world.takes.clear()
    await world.until(NOON_S + 120.0)
    assert [row["state"] for row in store.firings("second")] == ["queued"]
    world.takes.set()
    await world.daemon.idle()
    await world.until(NOON_S + 240.0)
    assert [row["state"] for row in store.firings("second")] == ["finished"]
    assert [one.schedule for one in world.fired] == ["first", "second"]


async def test_an_inventory_that_cannot_be_read_is_a_failed_night(sqlite: database.Store) -> None:
    """A-107: nothing ran, and it has a record and a message all the same."""
    world = World(sqlite, 1_780_000_000.0)

    def broken(_: str) -> Copied:
        raise UsageError("there is no file /x.yaml")

    world.daemon.copy = broken
    world.daemon.store.add("nightly", settings(notify="env:X"), world.now_s)
    await world.until(world.now_s + DAY_S)
    (row,) = world.daemon.store.firings("nightly")
    assert (row["state"], row["reason"]) == ("failed", "its inventory: there is no file /x.yaml")
    assert not world.fired
    assert "there is no file /x.yaml" in world.told[0]["body"]


@pytest.mark.parametrize(
    ("policy", "state", "attempts"), [("mark", "interrupted", 0), ("retry", "finished", 1), ("resume", "finished", 1)]
)
async def test_a_firing_whose_daemon_died_is_marked_or_begun_again(
    sqlite: database.Store, policy: str, state: str, attempts: int
) -> None:
    world = World(sqlite, 1_780_000_000.0)
    store = world.daemon.store
    store.add("nightly", settings(interrupted=policy, notify="env:X"), world.now_s)
    dead = world.another()
    firing = dead.claim_by_hand(rows.schedule_of(store.one("nightly")))
    store.update("nightly", firing.due_s, folder="/runs/nightly-1")
    await world.watch(daemons.LEASE_S - 1)
    assert store.firing("nightly", firing.due_s)["state"] == "running"
    await world.watch(daemons.TICK_S)
    await world.daemon.idle()
    row = store.firing("nightly", firing.due_s)
    assert row["state"] == state
    assert len(world.fired) == attempts
    assert f"its daemon {dead.name} ended in the middle" in row["reason"]
    if policy == "resume":
        assert world.fired[0].details["resume"] == "/runs/nightly-1"
        assert world.fired[0].attempt == 2


async def test_a_clock_that_is_stepped_takes_no_firing_from_a_daemon_that_lives(sqlite: database.Store) -> None:
    """Nor does one that goes wrong by hours from machine to machine: a lease is watched, its time is not compared."""
    world = World(sqlite, 1_780_000_000.0)
    store = world.daemon.store
    store.add("nightly", settings(interrupted="retry"), world.now_s)
    other = world.another()
    firing = other.claim_by_hand(rows.schedule_of(store.one("nightly")))
    await world.daemon.tick()
    world.now_s += 2 * 3600.0
    for _ in range(10):
        await world.watch(firings.RENEW_S)
        assert store.renew("nightly", firing.due_s, other.name, world.now_s - 2 * 3600.0 + other.lease_s)
    row = store.firing("nightly", firing.due_s)
    assert (row["state"], row["daemon"], row["attempt"]) == ("running", other.name, 1)
    assert not world.fired


async def test_a_night_that_was_judged_before_its_daemon_died_is_finished_and_told(sqlite: database.Store) -> None:
    """Whatever the policy: nothing of it is missing but its end."""
    world = World(sqlite, 1_780_000_000.0)
    store = world.daemon.store
    store.add("nightly", settings(interrupted="retry", notify="env:X"), world.now_s)
    dead = world.another()
    firing = dead.claim_by_hand(rows.schedule_of(store.one("nightly")))
    store.update("nightly", firing.due_s, verdict="Nothing changed.")
    await world.watch(daemons.LEASE_S + daemons.TICK_S)
    row = store.firing("nightly", firing.due_s)
    assert (row["state"], row["reason"], row["notice"]) == ("finished", "", "sent")
    assert "Nothing changed." in world.told[0]["body"]
    assert not world.fired


async def test_what_a_daemon_lost_is_no_longer_its_to_change(sqlite: database.Store) -> None:
    """A daemon that was frozen while another took its firing over ends its run and writes nothing."""
    world = World(sqlite, 1_780_000_000.0)
    store = world.daemon.store
    store.add("nightly", settings("1 12 * * *", "UTC", interrupted="retry"), NOON_S)
    world.now_s = NOON_S + 60.0
    world.takes.clear()
    await world.daemon.tick()
    (row,) = store.firings("nightly")
    store.update("nightly", row["due_s"], daemon="another/1/a", attempt=2)
    assert not store.update("nightly", row["due_s"], owner=world.daemon.name, state="finished")
    world.takes.set()
    await world.daemon.idle()
    (row,) = store.firings("nightly")
    assert (row["state"], row["daemon"], row["attempt"]) == ("running", "another/1/a", 2)


async def test_a_slow_service_for_messages_holds_up_no_other_schedule(sqlite: database.Store) -> None:
    world = World(sqlite, NOON_S - 60.0)
    store = world.daemon.store
    store.add("first", settings("0 12 * * *", "UTC", notify="env:X"), world.now_s)
    store.add("second", settings("1 12 * * *", "UTC"), world.now_s)
    told = asyncio.Event()

    async def slow(firing: Firing) -> tuple[str, dict[str, Any]]:
        await told.wait()
        return "", firing.message

    world.daemon.tell, world.daemon.tick_s = slow, 0.05
    world.now_s = NOON_S
    await world.soon(lambda: [one.schedule for one in world.fired] == ["first"])
    world.now_s = NOON_S + 60.0
    await world.soon(lambda: [one.schedule for one in world.fired] == ["first", "second"])
    assert [row["notice"] for row in store.firings("first")] == ["waiting"]
    told.set()
    await world.daemon.once()
    assert [row["notice"] for row in store.firings("first")] == ["sent"]


async def test_an_inventory_that_takes_its_time_holds_up_no_other_schedule_and_is_not_missed(
    sqlite: database.Store,
) -> None:
    world = World(sqlite, NOON_S - 60.0)
    store = world.daemon.store
    store.add("slow", settings("0 12 * * *", "UTC"), world.now_s)
    store.add("swift", settings("0 12 * * *", "UTC", quiet=True), world.now_s)
    printed = threading.Event()

    def copy(path: str) -> Copied:
        if path == settings()["inventory"]:
            assert printed.wait(60)
        return Copied(path, (f"guest:{path}",), copied(path).inventory)

    world.daemon.copy, world.daemon.tick_s = copy, 0.05
    world.now_s = NOON_S
    await world.soon(lambda: [one.schedule for one in world.fired] == ["swift"])
    world.now_s += 600.0
    await world.daemon.tick()
    printed.set()
    await world.daemon.once()
    assert [one.schedule for one in world.fired] == ["swift", "slow"]
    (row,) = store.firings("slow")
    assert (row["due_s"], row["state"], row["kind"]) == (NOON_S, "finished", "planned")


@pytest.mark.parametrize(("fails", "state"), [(1, "finished"), (2, "failed")])
async def test_an_inventory_that_cannot_be_read_is_read_again_as_often_as_a_run_is_tried(
    sqlite: database.Store, fails: int, state: str
) -> None:
    world = World(sqlite, 1_780_000_000.0)
    left = [UsageError("the program that prints it ended with exit code 1")] * fails

    def copy(path: str) -> Copied:
        if left:
            raise left.pop()
        return copied(path)

    world.daemon.copy = copy
    world.daemon.store.add("nightly", settings(retry=1), world.now_s)
    await world.until(world.now_s + DAY_S)
    (row,) = world.daemon.store.firings("nightly")
    assert row["state"] == state
    assert len(world.fired) == (state == "finished")
    if state == "failed":
        assert row["reason"].endswith("(tried 2 times)")


async def test_a_run_of_150_s_that_is_due_each_minute_runs_one_after_the_other(sqlite: database.Store) -> None:
    """A-105: what is due meanwhile is skipped, and says what is in the way."""
    world = World(sqlite, NOON_S + 30.0)
    store = world.daemon.store
    store.add("often", settings("* * * * *", "UTC"), world.now_s)
    world.takes.clear()
    for minute in range(1, 10):
        world.now_s = NOON_S + 60.0 * minute
        await world.daemon.tick()
        assert len(store.firings("often", states=("running",))) == 1
        if world.now_s - world.fired[-1].due_s == 120.0:  # it ends before the next minute
            world.now_s += 30.0
            world.takes.set()
            await world.daemon.idle()
            world.takes.clear()
    states = [row["state"] for row in reversed(store.firings("often"))]
    assert states == ["finished", "skipped", "skipped"] * 3
    skipped = store.firings("often", states=("skipped",))
    assert all("in the way: the run of schedule often due" in row["reason"] for row in skipped)


async def test_a_machine_that_boots_in_1970_neither_spins_nor_fires_until_its_clock_is_set(
    sqlite: database.Store,
) -> None:
    """A-106: it looks every few seconds, and when the clock is right the nights while it was off are missed, and told once."""
    world = World(sqlite, 1_780_000_000.0)
    store = world.daemon.store
    store.add("nightly", settings(notify="env:X"), world.now_s)
    world.daemon.tick_s = 5.0
    world.now_s = 5.0
    waits = []
    for _ in range(20):
        waits.append(await world.daemon.tick())
        world.now_s += waits[-1]
        world.passed_s += waits[-1]
    assert set(waits) == {5.0}
    assert store.firings("nightly") == ()
    world.now_s = 1_780_000_000.0 + 9.5 * DAY_S
    await world.daemon.tick()
    await world.daemon.tick()
    assert [row["state"] for row in store.firings("nightly")] == ["missed"] * len(store.firings("nightly"))
    assert not world.fired
    (message,) = world.told
    assert "due times in a row were missed" in message["title"]


async def test_of_those_that_wait_the_first_that_was_due_starts_first_and_one_that_is_held_does_not(
    sqlite: database.Store,
) -> None:
    world = World(sqlite, NOON_S - 600.0)
    store = world.daemon.store
    world.daemon.tick_s = 60.0
    world.takes.clear()
    store.add("c", settings("0 12 * * *", "UTC"), world.now_s)
    await world.until(NOON_S + 240.0)
    for name, after_s in (("a", 120), ("b", 60), ("held", 180)):  # as they come where one of them is caught up
        store.add(name, settings("0 0 1 1 *", "UTC", overlap="queue"), world.now_s)
        with store.deciding() as deciding:
            deciding.put(name, int(NOON_S) + after_s, state="queued", places=["vm_host:hv1"], started_s=world.now_s)
    store.pause("held", paused=True, now_s=world.now_s)
    world.takes.set()
    for _ in range(4):
        await world.daemon.idle()
        await world.daemon.tick()
    assert [one.schedule for one in world.fired] == ["c", "b", "a"]
    (row,) = store.firings("held")
    assert (row["state"], row["reason"]) == ("skipped", "the schedule was paused while it waited")


# --- two real daemons ------------------------------------------------------------------------------------------------


def start(url: str, folder: Path) -> subprocess.Popen[bytes]:
    log = (folder / "daemons").open("ab")
    return subprocess.Popen([sys.executable, str(PROGRAM), url, str(folder)], stderr=log)


def wait(until: Callable[[], Any], within_s: float = 150.0) -> Any:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if found := until():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


def lines(folder: Path) -> list[list[str]]:
    path = folder / "lines"
    return [line.split() for line in path.read_text().splitlines()] if path.is_file() else []


def of_daemon(found: tuple[Row, ...], pid: int) -> list[Row]:
    return [row for row in found if row["daemon"].split("/")[1] == str(pid)]


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.slow), "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store for several processes; that on SQLite is for the slow suite, as it takes as long again."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.sqlite'}"
    return str(request.getfixturevalue("postgres"))


@pytest.mark.timeout(400)  # a hundred real processes on a machine that may be busy
def test_two_daemons_fire_each_due_time_once_also_when_one_is_killed_in_a_firing(shared: str, tmp_path: Path) -> None:
    """A hundred firings of ten schedules; one daemon gets SIGKILL while it fires, and what it ran ends with it."""
    opened = database.open_store(shared)
    store = Schedules(opened)
    for number in range(10):
        made = rows.settings_row(Settings(f"/{number}.yaml", "*/2 * * * * *", "UTC", "/runs"))
        store.add(f"s{number}", made, time.time())
    daemons_at_work = [start(shared, tmp_path), start(shared, tmp_path)]
    try:
        wait(lambda: len(lines(tmp_path)) >= FIRINGS // 2)
        (tmp_path / "block").touch()
        busy = wait(lambda: store.firings(states=("running",)))[0]
        dies, lives = sorted(daemons_at_work, key=lambda one: str(one.pid) != busy["daemon"].split("/")[1])
        victims = of_daemon(store.firings(states=("running",)), dies.pid)
        ids = {(row["schedule"], str(row["due_s"])) for row in victims}
        wait(lambda: ids <= {(line[0], line[1]) for line in lines(tmp_path)})
        pids = [int(line[3]) for line in lines(tmp_path) if (line[0], line[1]) in ids]
        dies.kill()
        dies.wait(10)
        wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 60)
        (tmp_path / "block").unlink()
        wait(lambda: len(lines(tmp_path)) >= FIRINGS)
        wait(lambda: not of_daemon(store.firings(states=("running",)), dies.pid), 60)
        lives.send_signal(signal.SIGTERM)
        assert lives.wait(30) == 0
    finally:
        for process in daemons_at_work:
            if process.poll() is None:
                process.kill()
                process.wait()
    records = {(row["schedule"], str(row["due_s"])): row for row in store.firings()}
    fired = Counter((line[0], line[1]) for line in lines(tmp_path))
    assert set(fired.values()) == {1}
    assert len(fired) >= FIRINGS
    assert {records[one]["state"] for one in fired} <= {"finished", "interrupted"}
    assert {records[one]["state"] for one in ids} == {"interrupted"}
    assert all("ended in the middle" in records[one]["reason"] for one in ids)
    assert {row["state"] for one, row in records.items() if one not in fired} <= {"skipped", "missed", "interrupted"}
    assert (tmp_path / "daemons").stat().st_size > 0
    opened.close()


async def test_a_daemon_that_is_told_to_end_leaves_nothing_running(sqlite: database.Store) -> None:
    """Whether a firing had begun or was only claimed."""
    world = World(sqlite, NOON_S)
    world.takes.clear()
    world.daemon.store.add("nightly", settings("1 12 * * *", "UTC", notify="env:X"), world.now_s)
    world.now_s += 60.0
    await world.daemon.tick()
    stop = asyncio.Event()
    stop.set()
    await world.daemon.run(stop)
    (row,) = world.daemon.store.firings("nightly")
    assert (row["state"], row["reason"], row["notice"]) == ("interrupted", "the daemon was told to end", "waiting")
