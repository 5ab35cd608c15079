#!/usr/bin/env python3
"""Is the store fast and small enough? A run of 600 000 intervals, and trends over two years of nights of 1000 guests.

    benchmarks/history.py               both databases: about ten minutes and 3 GB below --directory
    benchmarks/history.py --quick       a tenth of the guests, under a minute; trends of that size are only told
    benchmarks/history.py --check       exit 1 where a goal is missed; the last line is the figure furthest from its goal

Figures are made up, functions and tables are those of `calyx-orch index` and `calyx-orch history`. SQLite is a file, PostgreSQL a server of
one's own on a Unix socket, as it comes but for a place of its own; where its programs are missing its rows say so. A time is the
median of several, with the least and the most.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from side_by_side import present
from side_by_side.ending import ends_as_interrupted
from side_by_side.goals import Figure, at_most
from side_by_side.pairs import Estimate, exact

import postgres_server
from calyx_orch.analysis import history
from calyx_orch.analysis.nights import nights_by_inventory
from calyx_orch.analysis.scopes import scope_rows
from calyx_orch.model import LoadMode, RunRecord, Series
from calyx_orch.store import database, nights, packing, tables
from report_records import run_record

GUESTS, PER_HOST, INTERVALS = 1000, 40, 600
NIGHTS, ENGINES = 730, ("calyx", "fio-io_uring")
NIGHT_S = 86_400.0
FIRST_S = 1_700_000_000.0
STORE_S, STORE_MB, TREND_S = 1.0, 20.0, 0.5
REPEATS = 5
DECISIVE = 40  # so that judged figures are never open: a median of few is as decided as it gets


def main() -> int:
    """Fill, measure, print and judge. Returns the exit status."""
    options = argparse.ArgumentParser(description="Is the store fast and small enough?")
    options.add_argument("--quick", action="store_true", help="a tenth of the guests, under a minute")
    options.add_argument("--json", metavar="FILE", type=Path, help="write all figures")
    options.add_argument("--check", action="store_true", help="exit 1 where a goal is missed")
    options.add_argument(
        "--directory", type=Path, default=Path("/var/tmp"), help="where the databases are made (a disk)"
    )
    options.add_argument("--seed", type=int, default=1, help="seed of all figures")
    given = options.parse_args()
    guests = GUESTS // 10 if given.quick else GUESTS
    figures: list[Figure] = []
    for name, opened in (("SQLite", sqlite), ("PostgreSQL", postgresql)):
        with opened(given.directory) as url:
            if url is None:
                figures.append(Figure(name, "all", None, at_most(1.0), reason="PostgreSQL or psycopg is not installed"))
                continue
            figures += measured(name, url, guests, given)
    present.print_figures(figures)
    return present.finish(
        figures, given, present.document(figures, {"seed": given.seed, "quick": given.quick, "guests": guests})
    )


@contextlib.contextmanager
def sqlite(directory: Path) -> Iterator[str | None]:
    """An empty file."""
    with tempfile.TemporaryDirectory(prefix="calyx-history-", dir=directory) as made:
        yield f"sqlite:///{made}/store.sqlite"


@contextlib.contextmanager
def postgresql(directory: Path) -> Iterator[str | None]:
    """A server of one's own, None where there is none."""
    found = postgres_server.tools() if importlib.util.find_spec("psycopg") else None
    if found is None:
        yield None
        return
    with postgres_server.running(found, str(directory)) as url:
        yield url


def measured(name: str, url: str, guests: int, given: argparse.Namespace) -> list[Figure]:
    """All figures of one database."""
    print(
        f"{name}: a run of {GUESTS * INTERVALS:,} intervals, then {NIGHTS} nights of {guests} guests", file=sys.stderr
    )
    store = database.open_store(url)
    try:
        figures = stored(name, store, given.seed)
        fill(store, guests, given.seed)
        return figures + trends(name, store, guests)
    finally:
        store.close()


# --- one large run ------------------------------------------------------------------------------------------------


def stored(name: str, store: database.Store, seed: int) -> list[Figure]:
    """How long a run of 600 000 intervals takes to be stored, and how much room its intervals and all of it take."""
    record = large_run(seed)
    began = time.perf_counter()
    rows = scope_rows(record)
    analysed_s = time.perf_counter() - began
    cell = f"{name}: {GUESTS} guests, {GUESTS * INTERVALS:,} intervals"
    empty = size_bytes(store)
    times, cpu_s = [], []
    for _ in range(REPEATS):
        store.forget(record.run_id)
        before_s = time.process_time()
        times.append(taken(lambda: store.index(record, rows, sentence="")))
        cpu_s.append(time.process_time() - before_s)
        gc.collect()
    compact(store)
    whole_mb = (size_bytes(store) - empty) / 1e6
    store.forget(record.run_id)
    return [
        Figure(cell, "stored in", spread(times), at_most(STORE_S), unit=" s"),
        Figure(cell, "CPU of storing it", spread(cpu_s), unit=" s"),
        Figure(cell, "room, histograms and all", exact(whole_mb), at_most(STORE_MB), unit=" MB"),
        Figure(cell, "analysed before that in", exact(analysed_s), unit=" s"),
    ]


def large_run(seed: int) -> RunRecord:
    """One round of 1000 guests with a minute of intervals of 100 ms each."""
    few = run_record(2, per_host=2, blocks=1, runtime_s=1.0, loads=(LoadMode.TOGETHER,), seed=seed)
    draw = np.random.default_rng(seed)
    pattern = few.measurements[0]
    round_ = few.plan.rounds[0]
    members = tuple(
        replace(few.plan.inventory.guests[0], name=f"vm{at:04d}", vm_host=f"hv{at // PER_HOST:02d}")
        for at in range(GUESTS)
    )
    zeros = (0.0,) * INTERVALS

    def measurement(name: str, vm_host: str | None) -> Any:
        ios = draw.normal(6000, 180, INTERVALS).round()
        series = Series(100_000_000, tuple(ios.tolist()), tuple((4096 * ios).tolist()), zeros, zeros)
        return replace(
            pattern,
            guest=name,
            vm_host=vm_host,
            series=series,
            window_end_ns=pattern.window_start_ns + INTERVALS * 100_000_000,
        )

    plan = replace(
        few.plan,
        inventory=replace(few.plan.inventory, guests=members),
        rounds=(replace(round_, guests=tuple(one.name for one in members)),),
    )
    found = tuple(measurement(one.name, one.vm_host) for one in members)
    return replace(few, plan=plan, measurements=found, outcomes=(), facts={one.name: {} for one in members})


# --- two years ------------------------------------------------------------------------------------------------------


def fill(store: database.Store, guests: int, seed: int) -> None:
    """Two years of nights: a row for the fleet, each vm_host, each guest and engine, with a histogram each."""
    draw = np.random.default_rng(seed)
    places = [("fleet", "fleet")] + [("vm_host", f"hv{at:02d}") for at in range(-(-guests // PER_HOST))]
    places += [("guest", f"vm{at:04d}") for at in range(guests)]
    few = run_record(2, per_host=2, blocks=1, runtime_s=5.0, loads=(LoadMode.TOGETHER,), seed=seed)
    blobs = [packing.pack_histogram(row.latency) for row in scope_rows(few)]
    lanes = [_lane(place, engine) for place in places for engine in ENGINES]
    with store._engine.begin() as connection:
        connection.execute(sa.insert(tables.lane), lanes)
    for night in range(NIGHTS):
        started_s = FIRST_S + night * NIGHT_S
        run = _run(night, started_s, guests)
        levels = draw.normal(1.0, 0.02, len(lanes)).tolist()
        whose = [{"run_id": run["run_id"], "lane": lane["id"]} for lane in lanes]
        rows = [one | _figure(place, started_s, levels[place]) for place, one in enumerate(whose)]
        packed = [one | {"packed": blobs[place % len(blobs)]} for place, one in enumerate(whose)]
        with store._engine.begin() as connection:
            connection.execute(sa.insert(tables.run), [run])
            connection.execute(sa.insert(tables.figure), rows)
            connection.execute(sa.insert(tables.latency), packed)
    compact(store)


def trends(name: str, store: database.Store, guests: int) -> list[Figure]:
    """How long a trend takes: of one guest, and of all vm_hosts; and all that `calyx-orch history` makes of the latter."""
    cell = f"{name}: {NIGHTS} nights of {guests} guests"
    goal = at_most(TREND_S) if guests == GUESTS else None
    one = {"name": f"vm{guests // 2:04d}", "engine": "calyx"}

    def by_vm_host() -> tuple[database.NightRow, ...]:
        return store.trend("p99_ns", scope="vm_host", where={"workload": "randread-4k", "engine": "calyx"})

    assert len(store.trend("p99_ns", scope="guest", where=one)) == NIGHTS
    assert len(by_vm_host()) == NIGHTS * -(-guests // PER_HOST)
    asked: Sequence[tuple[str, Callable[[], Any], bool]] = (
        ("trend of one guest", lambda: store.trend("p99_ns", scope="guest", where=one), True),
        ("trend of all vm_hosts, one engine", by_vm_host, True),
        ("trend of all vm_hosts, all engines", lambda: store.trend("iops", scope="vm_host"), True),
        ("latest run by `list`", lambda: store.runs(limit=30), False),
        ("incidents of all vm_hosts", lambda: history.history("p99_ns", nights_by_inventory(by_vm_host())), False),
    )
    return [
        Figure(cell, what, spread([taken(ask) for _ in range(REPEATS)]), goal if is_judged else None, unit=" s")
        for what, ask, is_judged in asked
    ]


def _run(night: int, started_s: float, guests: int) -> dict[str, Any]:
    return {
        "run_id": f"night-{night:04d}",
        "folder": f"/runs/night-{night:04d}",
        "started_s": started_s,
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(started_s)),
        "status": "finished",
        "inventory": "fleet.yaml",
        "inventory_sha256": "0" * 64,
        "seed": "1",
        "is_short": 0,
        "guests": guests,
        "guests_measured": guests,
        "sentence": "All guests were measured.",
        "notes": [],
    }


def _lane(place: tuple[str, str], engine: str) -> dict[str, Any]:
    what = (*place, "data", "randread-4k", engine, "together", "0123456789abcdef")
    return {"id": nights.lane_number(*what), **dict(zip(nights.LANE, what, strict=True))}


def _figure(place: int, started_s: float, level: float) -> dict[str, Any]:
    return {
        "place": place,
        "started_s": started_s,
        "guests": 1,
        "units": 6,
        "throughput_bytes_per_s": 250e6 * level,
        "iops": 61e3 * level,
        "p50_ns": 500e3 / level,
        "p99_ns": 900e3 / level,
        "p999_ns": 1.5e6 / level,
        "cv_within_run": 0.02,
        "cpu_ns_per_io": 4700.0 * level,
        "doubts": [],
    }


# --- how ------------------------------------------------------------------------------------------------------------


def size_bytes(store: database.Store) -> int:
    """What the database takes on the disk."""
    sqlite_words = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    words = sqlite_words if store.url.startswith("sqlite") else "SELECT pg_database_size(current_database())"
    with store._engine.connect() as connection:
        return int(connection.execute(sa.text(words)).scalar_one())


def compact(store: database.Store) -> None:
    """Take out what deleted rows left, and let the planner know what there is, as both databases do by themselves in time."""
    is_sqlite = store.url.startswith("sqlite")
    with contextlib.closing(store._engine.raw_connection()) as connection:
        if not is_sqlite:
            connection.driver_connection.autocommit = True
        for words in (
            ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)") if is_sqlite else ("VACUUM FULL ANALYZE", "CHECKPOINT")
        ):
            connection.cursor().execute(words)


def taken(call: Callable[[], Any]) -> float:
    """How long a call takes, in seconds."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def spread(times: Sequence[float]) -> Estimate:
    """The median with the least and the most."""
    return Estimate(statistics.median(times), min(times), max(times), DECISIVE)


if __name__ == "__main__":
    ends_as_interrupted()
    sys.exit(main())
