"""The index on SQLite and on PostgreSQL: the same statements, the same answers."""

from __future__ import annotations

import math
import multiprocessing
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from calyx_orch.analysis.scopes import scope_rows
from calyx_orch.errors import UsageError
from calyx_orch.model import GuestOutcome, LoadMode, RunRecord, Series
from calyx_orch.store import addresses, database, indexing, migrations, nights, opening, packing, tables
from calyx_orch.store.schedules import Schedules
from report_records import run_record


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return run_record(4, per_host=2, blocks=2, runtime_s=2.0, loads=(LoadMode.TOGETHER,))


def night(record: RunRecord, day: int) -> RunRecord:
    return replace(record, run_id=f"night-{day:03d}", started_at=f"2026-11-{day:02d}T02:30:00+01:00")


def test_a_run_is_found_again_with_all_its_figures(store: database.Store, record: RunRecord) -> None:
    indexing.put(store, record)
    (row,) = store.runs()
    assert (row.run_id, row.guests, row.guests_measured, row.is_short) == (record.run_id, 4, 3, True)
    rows = scope_rows(record)
    told = {(one["scope"], one["name"], one["workload"], one["engine"]): one for one in store.figures(record.run_id)}
    assert len(told) == len(rows)
    for one in rows:
        kept = told[one.scope, one.name, one.workload, one.engine]
        assert kept["throughput_bytes_per_s"] == pytest.approx((one.throughput_bytes_per_s or 0) * one.guests)
        assert (kept["guest_throughput_bytes_per_s"], kept["p99_ns"], kept["units"]) == (
            one.throughput_bytes_per_s,
            one.p99_ns,
            one.units,
        )
        assert store.latency(record.run_id, one.scope, one.name, one.workload, one.engine) == (one.latency,)
    guest = record.measurements[0].guest
    mine = {m.round_index: m.series for m in record.measurements if m.guest == guest and m.series is not None}
    assert store.series(record.run_id, guest) == mine


def test_indexing_again_changes_nothing(store: database.Store, record: RunRecord) -> None:
    for _ in range(3):
        indexing.put(store, record)
    assert len(store.runs()) == 1
    assert len(store.figures(record.run_id)) == len(scope_rows(record))


def test_a_run_that_is_forgotten_leaves_no_row(store: database.Store, record: RunRecord, url: str) -> None:
    indexing.put(store, record)
    assert store.forget(record.run_id)
    assert not store.forget(record.run_id)
    with store._engine.connect() as connection:
        assert [
            connection.execute(sa.select(sa.func.count()).select_from(t)).scalar()
            for t in tables.metadata.sorted_tables
        ] == [0] * len(tables.metadata.sorted_tables)


def lanes(store: database.Store) -> int:
    with store._engine.connect() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(tables.lane)).scalar_one())


def test_what_all_nights_share_is_kept_once_and_as_long_as_there_is_one(
    store: database.Store, record: RunRecord
) -> None:
    indexing.put(store, night(record, 1))
    one_night = lanes(store)
    assert one_night == len(scope_rows(record))
    newer = {name: {**told, "kernel": "6.12.0"} for name, told in record.facts.items()}
    for other in (night(record, 2), night(replace(record, facts=newer), 3)):
        indexing.put(store, other)
    assert lanes(store) == 2 * one_night
    assert store.forget("night-003")
    assert store.forget("night-001")
    assert lanes(store) == one_night
    assert len(store.figures("night-002")) == one_night
    indexing.put(
        store, night(replace(record, facts=newer), 2)
    )  # indexed again with other facts: its old lanes are gone
    assert lanes(store) == one_night


def test_the_figures_of_a_run_are_in_the_order_in_which_they_were_put_in(
    store: database.Store, record: RunRecord
) -> None:
    for day in (1, 2):
        indexing.put(store, night(record, day))
    order = [(one.scope, one.name, one.workload, one.engine) for one in scope_rows(record)]
    found = [(one["scope"], one["name"], one["workload"], one["engine"]) for one in store.figures("night-002")]
    assert found == order
    assert set(store.figures("night-002", "vm_host")[0]) == set(store.figures("night-002")[0])


def test_intervals_of_a_minute_times_beyond_2038_and_what_guests_say_are_kept(
    store: database.Store, record: RunRecord
) -> None:
    """PostgreSQL's plain numbers end at 2^31, its texts hold no zeros and its JSON no NaN; SQLite takes all of it."""
    minute = Series(60_000_000_000, (1.0,), (4096.0,), (0.0,), (0.0,))
    first, *others = record.measurements
    reason = "no answer: \0\udcff"
    told = replace(
        record,
        measurements=(replace(first, series=minute), *others),
        outcomes=(GuestOutcome(first.guest, "lost", "run", reason),),
        facts={**record.facts, first.guest: {"odd": [math.nan, {"\0": math.inf}]}},
    )
    indexing.put(store, told)
    assert store.series(record.run_id, first.guest)[first.round_index] == minute
    due_s = 1 << 32
    schedules = Schedules(store)
    with schedules.deciding() as deciding:
        deciding.put("nightly", due_s, state="queued")
    assert schedules.firing("nightly", due_s)["state"] == "queued"


def test_a_trend_is_in_the_order_of_nights(store: database.Store, record: RunRecord) -> None:
    for day in (3, 1, 2):
        indexing.put(store, night(record, day))
    found = store.trend("p99_ns", scope="vm_host", where={"name": "hv1", "workload": "randread-4k", "engine": "calyx"})
    assert [row.run_id for row in found] == ["night-001", "night-002", "night-003"]
    assert len({row.series_key for row in found}) == 1
    assert not store.trend("p99_ns", scope="vm_host", where={"inventory": "other.yaml"})


def test_a_run_is_named_by_the_beginning_of_its_id(store: database.Store, record: RunRecord) -> None:
    for day in (1, 2, 12):
        indexing.put(store, night(record, day))
    assert store.find("night-012").run_id == "night-012"
    assert store.find("night-01").run_id == "night-012"
    assert store.find("latest").run_id == "night-012"
    with pytest.raises(UsageError, match="the beginning of 3 runs"):
        store.find("night")
    with pytest.raises(UsageError, match="'day' names no run"):
        store.find("day")


def test_each_inventory_has_one_baseline(store: database.Store) -> None:
    assert store.baseline("a.yaml") is None
    store.set_baseline("a.yaml", "one")
    store.set_baseline("a.yaml", "two")
    store.set_baseline("b.yaml", "one")
    assert store.baseline("a.yaml") == "two"
    assert store.baselines() == {"a.yaml": "two", "b.yaml": "one"}
    assert store.clear_baseline("a.yaml")
    assert not store.clear_baseline("a.yaml")
    assert store.baselines() == {"b.yaml": "one"}


def _index_some(url: str, record: RunRecord, days: list[int]) -> None:
    opened = database.open_store(url)
    for day in days:
        indexing.put(opened, night(record, day))
    opened.close()


def test_controllers_that_start_at_once_share_a_new_store(url: str, record: RunRecord) -> None:
    """Both make the tables and write, while a third reads; nobody fails and nothing is lost."""
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_index_some, args=(url, record, days)) for days in ([1, 2, 3, 4], [5, 6, 7, 8])]
    for writer in writers:
        writer.start()
    reader = database.open_store(url)
    seen = 0
    while any(writer.is_alive() for writer in writers):
        rows = reader.runs()
        assert len(rows) >= seen
        assert all(len(reader.figures(row.run_id)) == len(scope_rows(record)) for row in rows[:1])
        seen = len(rows)
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert len(reader.runs()) == 8
    reader.close()


def test_migrations_make_the_tables_that_the_program_uses(store: database.Store) -> None:
    with store._engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []


FIGURE_0002 = sa.table(
    "figure",
    *map(sa.column, ("run_id", "scope", "name", "target", "workload", "engine", "load", "series_key", "started_s")),
    *map(sa.column, ("guests", "units", *nights.METRICS, "latency")),
    sa.column("doubts", sa.JSON),
)


def test_the_nights_of_an_older_store_are_carried_over(url: str, record: RunRecord) -> None:
    """Figures, their order and their histograms, of two nights, are what they would be if they were indexed now."""
    rows = scope_rows(record)
    engine = opening.engine_of(addresses.parse(url), create=True)
    with engine.begin() as connection:
        migrations.upgrade(connection, "0002")
        for day in (1, 2):
            one = night(record, day)
            started = 86_400.0 * day
            run = replace(database.row_of(one, sentence=""), started_s=started)
            connection.execute(sa.insert(tables.run), [database._run_row(one, run)])
            figures = [
                {name: getattr(row, name, None) for name in FIGURE_0002.c.keys()}  # noqa: SIM118
                | {"run_id": one.run_id, "started_s": started, "doubts": list(row.doubts)}
                | {"latency": packing.pack_histogram(row.latency)}
                for row in rows
            ]
            connection.execute(sa.insert(FIGURE_0002), figures)
    engine.dispose()
    store = database.open_store(url)
    indexing.put(store, night(record, 3))
    assert [store.figures(f"night-{day:03d}") for day in (1, 2)] == [store.figures("night-003")] * 2
    assert lanes(store) == len(rows)
    where = ("vm_host", "hv1", "randread-4k", "calyx")
    assert len({store.latency(f"night-{day:03d}", *where) for day in (1, 2, 3)}) == 1
    assert [row.run_id for row in store.trend("p99_ns", scope="fleet")][:1] == ["night-001"]
    with store._engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []
    store.close()


def test_a_store_of_a_newer_program_is_left_alone(store: database.Store, url: str) -> None:
    with store._engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UsageError, match=r"made by a newer calyx-orch \(revision 9999\)"):
        database.open_store(url)


def test_the_file_of_a_store_is_its_owners_alone(tmp_path: Path) -> None:
    database.open_store(f"sqlite:///{tmp_path}/made/store.sqlite").close()
    assert stat.S_IMODE((tmp_path / "made" / "store.sqlite").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://u:secret@h/d", r"is no store: write sqlite:///FILE or postgresql"),
        ("nonsense", "is no store"),
        ("postgresql://u:secret@127.0.0.1:1/d", "cannot be opened"),
        ("sqlite:////proc/nowhere/store.sqlite", "cannot be opened"),
    ],
)
def test_a_store_that_cannot_be_opened_is_told_without_its_password(url: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as told:
        database.open_store(url)
    assert "secret" not in str(told.value)
