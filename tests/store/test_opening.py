"""How a database is opened: what belongs to others is left alone, and who only reads changes nothing and waits for nobody."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from calyx_orch import cli
from calyx_orch.errors import UsageError
from calyx_orch.model import LoadMode
from calyx_orch.store import addresses, database, indexing, migrations, opening
from report_records import run_record

RECORD = run_record(2, per_host=1, blocks=1, runtime_s=2.0, loads=(LoadMode.TOGETHER,))


def sql(file: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for one in statements:
            connection.execute(one)


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    file = tmp_path / "foreign.sqlite"
    sql(file, "CREATE TABLE bookmarks (id)", "CREATE TABLE tags (id)")
    return file


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """The file of a store that holds a run."""
    file = tmp_path / "kept" / "store.sqlite"
    with contextlib.closing(database.open_store(f"sqlite:///{file}")) as store:
        indexing.put(store, RECORD)
    return file


def runs(file: Path) -> list[str]:
    with contextlib.closing(database.open_store(f"sqlite:///{file}", create=False)) as store:
        return [row.run_id for row in store.runs()]


@pytest.mark.parametrize(
    "words", [("list",), ("schedule", "list"), ("show", "x"), ("baseline", "show"), ("index", "/proc")]
)
def test_the_database_of_another_program_is_refused_and_stays_as_it_was(foreign: Path, words: tuple[str, ...]) -> None:
    before = foreign.read_bytes()
    for create in (True, False):
        with pytest.raises(
            UsageError, match=r"is no store of calyx-orch: it holds tables bookmarks, tags; .* name another"
        ):
            database.open_store(f"sqlite:///{foreign}", create=create)
    done = CliRunner().invoke(cli.app, [*words, "--store", f"sqlite:///{foreign}"])
    assert isinstance(done.exception, UsageError)
    assert (foreign.read_bytes(), list(foreign.parent.iterdir())) == (before, [foreign])


@pytest.mark.parametrize("revision", ["ab12cd34ef56", "0001", "9999"])
def test_another_program_that_uses_alembic_is_another_program(foreign: Path, revision: str) -> None:
    sql(foreign, "CREATE TABLE alembic_version (version_num)", f"INSERT INTO alembic_version VALUES ('{revision}')")
    before = foreign.read_bytes()
    with pytest.raises(UsageError, match=f"revision {revision} of another program"):
        database.open_store(f"sqlite:///{foreign}")
    assert foreign.read_bytes() == before


def test_a_database_on_postgresql_may_be_shared_but_not_the_names_of_tables(
    request: pytest.FixtureRequest, url: str
) -> None:
    if url.startswith("sqlite"):
        pytest.skip("a file is no shared database")
    engine = opening.engine_of(addresses.parse(url), create=True)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE bookmarks (id int)"))
        connection.execute(sa.text("CREATE TABLE run (id int)"))
    with pytest.raises(UsageError, match="is no store of calyx-orch: it holds table run; nothing was changed"):
        database.open_store(url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE run"))
    database.open_store(url).close()
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'ab12cd34ef56'"))
    engine.dispose()
    with pytest.raises(UsageError, match="revision ab12cd34ef56 of another program"):
        database.open_store(url)


def test_who_only_reads_makes_no_table_and_who_writes_makes_a_store_of_an_empty_database(url: str) -> None:
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///")).touch()
    with pytest.raises(UsageError, match=r"there is no store at .* yet: `calyx-orch run` makes it"):
        database.open_store(url, create=False)
    engine = opening.engine_of(addresses.parse(url), create=True)
    assert sa.inspect(engine).get_table_names() == []
    engine.dispose()
    database.open_store(url).close()
    assert database.open_store(url, create=False).runs() == ()


def test_an_empty_database_that_is_no_empty_file_becomes_a_store_of_who_writes(tmp_path: Path) -> None:
    file = tmp_path / "emptied.sqlite"
    sql(file, "CREATE TABLE a (id)", "DROP TABLE a")
    with pytest.raises(UsageError, match="there is no store at"):
        runs(file)
    database.open_store(f"sqlite:///{file}").close()
    assert runs(file) == []


def test_who_opens_a_store_waits_for_no_writer(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "BUSY_TIMEOUT_S", 0.0)
    with contextlib.closing(sqlite3.connect(filled, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM run")
        assert runs(filled) == [RECORD.run_id]
        with contextlib.closing(database.open_store(f"sqlite:///{filled}")) as store:
            assert len(store.runs()) == 1
        writer.execute("ROLLBACK")


def test_an_older_store_is_brought_up_to_date_by_who_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "older.sqlite"
    older(file)
    assert runs(file) == []


def older(file: Path) -> None:
    engine = opening.engine_of(addresses.parse(f"sqlite:///{file}"), create=True)
    with engine.begin() as connection:
        migrations.upgrade(connection, "0002")
    engine.dispose()


def test_a_copy_that_was_made_by_other_tools_lets_readers_in_again(filled: Path) -> None:
    """`VACUUM INTO` and `.backup` forget the write-ahead log."""
    copy = filled.with_name("copy.sqlite")
    sql(filled, f"VACUUM INTO '{copy}'")
    database.open_store(f"sqlite:///{copy}").close()
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """The folder again, where nothing may be written, whoever asks."""
    there = folder.with_name("read-only")
    there.mkdir()
    mounted = subprocess.run(["mount", "--bind", folder, there], capture_output=True, check=False).returncode == 0
    if not mounted:
        pytest.skip("a read-only mount needs root and CAP_SYS_ADMIN")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", there], check=True)
        yield there
    finally:
        subprocess.run(["umount", there], check=True)


def test_a_store_on_a_read_only_medium_can_be_read_and_not_written(filled: Path) -> None:
    with read_only(filled.parent) as there:
        address = f"sqlite:///{there / filled.name}"
        for words in (("list", "--json"), ("show", RECORD.run_id)):
            done = CliRunner().invoke(cli.app, [*words, "--store", address], catch_exceptions=False)
            assert RECORD.run_id in done.stdout
        with pytest.raises(UsageError, match=r"cannot be opened: .*Read-only file system"):
            database.open_store(address)
        with (
            contextlib.closing(database.open_store(address, create=False)) as store,
            pytest.raises(UsageError, match="failed: attempt to write a readonly database"),
        ):
            store.clear_baseline("x")


def test_readers_of_a_read_only_medium_see_what_a_writer_elsewhere_puts_in(filled: Path) -> None:
    with read_only(filled.parent) as there, contextlib.closing(database.open_store(f"sqlite:///{filled}")) as writer:
        writer.forget(RECORD.run_id)
        assert runs(there / filled.name) == []


def test_a_log_that_cannot_be_read_is_told_instead_of_old_figures(filled: Path) -> None:
    log = filled.with_name(f"{filled.name}-wal")
    with contextlib.closing(database.open_store(f"sqlite:///{filled}")) as writer:
        writer.forget(RECORD.run_id)
        kept = log.read_bytes()
    log.write_bytes(kept)
    with (
        read_only(filled.parent) as there,
        pytest.raises(UsageError, match=r"what was put in last lies in .*-wal; copy both into one directory"),
    ):
        runs(there / filled.name)


def test_an_older_store_on_a_read_only_medium_says_that_it_is_too_old(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    older(tmp_path / "kept" / "store.sqlite")
    with (
        read_only(tmp_path / "kept") as there,
        pytest.raises(
            UsageError, match=r"made by an older calyx-orch \(revision 0002\) and cannot be brought up to date"
        ),
    ):
        runs(there / "store.sqlite")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_of_somebody_else_can_be_read_and_nothing_is_made_beside_it(filled: Path) -> None:
    filled.chmod(0o400)
    assert runs(filled) == [RECORD.run_id]
    assert list(filled.parent.iterdir()) == [filled]
