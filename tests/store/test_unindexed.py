"""Runs that lie beside the store: killed in the middle, still going on, or kept out of it; what each verb says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calyx_orch import cli
from calyx_orch.commands import naming
from calyx_orch.errors import UsageError
from calyx_orch.store import archive, database, indexing
from report_records import run_record

RECORD = replace(
    run_record(2, per_host=1, blocks=1, runtime_s=2.0), run_id="an-old-run", started_at="2020-01-01T03:15:00+01:00"
)


def called(*words: str | Path) -> str:
    """What a command prints that ends well."""
    done = CliRunner().invoke(cli.app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def begun(folder: Path) -> archive.RunFolder:
    """A run folder as its controller has it in the middle of a run."""
    run = archive.RunFolder.create(folder.parent, RECORD.plan, path=folder)
    run.keep_facts(RECORD.facts)
    run.keep_measurements(RECORD.measurements[:3])
    return run


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run whose controller was killed, where runs are made when nobody says; the store holds another run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("CALYX_ORCH_STORE", f"sqlite:///{tmp_path / 'store.sqlite'}")
    run = begun(tmp_path / "calyx-runs" / "fleet one")
    run.close()  # as the kernel does for a controller that dies
    store = database.open_store()
    indexing.put(store, RECORD)
    store.close()
    return run.path


def id_of(folder: Path) -> str:
    return archive.read(folder).run_id


def test_a_killed_run_is_listed_with_what_goes_on_with_it(killed: Path) -> None:
    """Beside those in the store, by time; in the JSON as well."""
    listed = called("list")
    (line,) = [one for one in listed.splitlines() if one.startswith(f"{id_of(killed)} ")]
    assert "interrupted (short), not in the store" in line
    assert f"{id_of(killed)}: it was interrupted; `calyx-orch run --resume '{killed}'` goes on with it" in listed
    rows = json.loads(called("list", "--json"))
    assert [(row["run_id"], row["is_indexed"]) for row in rows] == [(id_of(killed), False), (RECORD.run_id, True)]
    assert [row["run_id"] for row in json.loads(called("list", "--json", "--limit", "1"))] == [id_of(killed)]


def test_a_run_that_goes_on_is_listed_as_running_and_not_indexed(killed: Path) -> None:
    """Nobody is told to resume it."""
    run = begun(killed.parent / "now")
    try:
        listed = called("list")
        (line,) = [one for one in listed.splitlines() if one.startswith(f"{run.run_id} ")]
        assert "running (short), not in the store" in line
        assert f"--resume {run.path}" not in listed
        told = called("index", killed.parent)
        assert f"left out {killed.parent / 'now'}: its run is still going on" in told
        assert f"indexed {killed}" in told
    finally:
        run.close()
    assert "running" not in called("list")


def test_a_run_that_is_indexed_is_beside_the_store_no_more(killed: Path) -> None:
    called("index", killed)
    assert "not in the store" not in called("list")
    assert "interrupted" in called("show", id_of(killed))


def test_a_verb_of_the_store_says_what_to_do_with_a_killed_run(killed: Path) -> None:
    """By its id as by its folder."""
    for name in (id_of(killed), str(killed)):
        with pytest.raises(UsageError, match="is not in the store: it was interrupted; `calyx-orch run --resume '"):
            called("baseline", "set", name)
    with pytest.raises(UsageError, match="'nothing' names no run"):
        called("baseline", "set", "nothing")


def test_a_run_that_is_not_in_the_store_is_shown_as_it_would_be_there(killed: Path) -> None:
    """By its id as by its folder; nothing is put there by looking."""
    for name in (id_of(killed), str(killed)):
        assert json.loads(called("show", name, "--json"))["run_id"] == id_of(killed)
    assert [row["is_indexed"] for row in json.loads(called("list", "--json"))] == [False, True]
    with pytest.raises(UsageError, match="'nothing' names no run"):
        called("show", "nothing")
    run = begun(killed.parent / "now")
    try:
        with pytest.raises(UsageError, match="its controller is at work"):
            called("show", run.run_id)
    finally:
        run.close()


def test_verbs_of_folders_find_a_killed_run_by_its_id(killed: Path) -> None:
    """As `list` shows it, or its beginning."""
    shown = json.loads(called("report", id_of(killed)[:-1], "--json"))
    assert (shown["run"]["id"], shown["run"]["status"]) == (id_of(killed), "interrupted")
    assert naming.folders([id_of(killed)], None) == (killed,)


def test_a_killed_first_run_is_listed_though_there_is_no_store(killed: Path, tmp_path: Path) -> None:
    """That there is none is said as well, and fails as ever."""
    (tmp_path / "store.sqlite").unlink()
    done = CliRunner().invoke(cli.app, ["list"])
    assert id_of(killed) in done.stdout
    assert isinstance(done.exception, UsageError)
    assert "there is no store at" in str(done.exception)
    with pytest.raises(UsageError, match="'nothing' is no directory here, and there is no store at"):
        called("report", "nothing")
    assert naming.folders([id_of(killed)], None) == (killed,)
    with pytest.raises(UsageError, match="is not in the store: it was interrupted; `calyx-orch run --resume '"):
        called("baseline", "set", id_of(killed))
    assert "interrupted" in called("show", id_of(killed))


def test_a_store_that_was_never_begun_is_no_failure_of_a_list(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a demo, which keeps its run out of the store; with nothing to list it is told."""
    monkeypatch.delenv("CALYX_ORCH_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nobody"))
    assert id_of(killed) in called("list")
    monkeypatch.chdir(tmp_path / "calyx-runs" / "fleet one")
    with pytest.raises(UsageError, match="there is no store at"):
        called("list")


def test_a_folder_that_cannot_be_read_hides_no_other(killed: Path) -> None:
    (killed.parent / "broken").mkdir()
    (killed.parent / "broken" / "run.json").write_text("{")
    assert id_of(killed) in called("list")
