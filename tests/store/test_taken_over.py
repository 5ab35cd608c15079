"""A folder that was removed and given to another run: whoever asks for the first is never given the other."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from calyx_orch import cli
from calyx_orch.analysis import budgets
from calyx_orch.commands import judging
from calyx_orch.errors import EXIT_MISSED, UsageError
from calyx_orch.model import LoadMode, RunRecord
from calyx_orch.schedule import retention
from calyx_orch.store import archive, database, indexing
from report_records import run_record

RECORD = run_record(2, per_host=1, blocks=1, runtime_s=2.0, loads=(LoadMode.TOGETHER,))


def run_into(folder: Path, *, is_indexed: bool = True) -> RunRecord:
    """What is in a new folder after a run with `--out`."""
    run = archive.RunFolder.create(folder.parent, RECORD.plan, path=folder)
    run.keep_facts(RECORD.facts)
    run.keep_measurements(RECORD.measurements)
    run.finish(status="finished", outcomes=RECORD.outcomes, notes=())
    run.close()
    record = archive.read(folder)
    if is_indexed:
        with closing(database.open_store()) as store:
            indexing.put(store, record)
    return record


def called(*words: str | Path) -> str:
    """What a command prints that ends well."""
    done = CliRunner().invoke(cli.app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, Path]:
    """The ids of two runs, both in the store and both with the folder that the second has; the first is the baseline."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("CALYX_ORCH_STORE", f"sqlite:///{tmp_path / 'store.sqlite'}")
    folder = tmp_path / "results"
    first = run_into(folder).run_id
    called("baseline", "set", first)
    shutil.rmtree(folder)
    return first, run_into(folder).run_id, folder


@pytest.mark.parametrize(
    "words",
    [
        ("report", "FIRST"),
        ("report", "FIRST", "--json"),
        ("export", "FIRST"),
        ("run", "--resume", "FIRST"),
        ("compare", "FIRST", "SECOND"),
        ("compare", "SECOND", "FIRST"),
    ],
)
def test_a_verb_of_folders_refuses_a_run_whose_folder_another_one_has(
    runs: tuple[str, str, Path], words: tuple[str, ...]
) -> None:
    """It names both, and what is left of the first."""
    first, second, folder = runs
    named = [{"FIRST": first, "SECOND": second}.get(word, word) for word in words]
    with pytest.raises(UsageError) as told:
        called(*named)
    assert str(told.value).startswith(f"the folder of run {first} now holds run {second}: {folder}; ")
    assert f"`calyx-orch show {first}`" in str(told.value)
    assert not (folder / "report.html").exists()


def test_a_run_is_not_held_against_another_one_than_its_baseline(runs: tuple[str, str, Path]) -> None:
    first, second, folder = runs
    for against in ("baseline", first):
        with pytest.raises(UsageError, match=f"the folder of run {first} now holds run {second}"):
            judging.settled(judging.Limits(against=against), RECORD.plan)
    called("baseline", "set", second)
    limits = judging.settled(judging.Limits(against="baseline"), RECORD.plan)
    assert (limits.against, limits.against_id) == (str(folder), second)


def test_a_folder_that_is_taken_over_while_a_run_goes_on_judges_nothing(runs: tuple[str, str, Path]) -> None:
    """Hours lie between the beginning, when the other run was found, and the end."""
    _, second, folder = runs
    limits = judging.settled(judging.Limits(against=second), RECORD.plan)
    shutil.rmtree(folder)
    third = run_into(folder).run_id
    (found,) = judging._regressions(RECORD, limits)
    assert (found.budget, found.state) == (f"against {second}", budgets.UNKNOWN)
    assert f"holds run {third} now" in found.said
    assert judging.judge(RECORD, limits, Console(quiet=True)).code == EXIT_MISSED


def test_a_list_and_a_show_say_whose_the_folder_is_by_now(runs: tuple[str, str, Path], tmp_path: Path) -> None:
    """The figures are shown as ever: they are in the store."""
    first, second, folder = runs
    (line,) = [one for one in called("list").splitlines() if one.startswith(first)]
    assert f"finished (short), folder taken over by run {second}" in line
    held = {row["run_id"]: row["folder_holds"] for row in json.loads(called("list", "--json"))}
    assert held == {first: second, second: second}
    assert f"{folder}, folder taken over by run {second}" in called("show", first)
    assert f"{folder}, folder taken over by run {second}" in called("baseline", "show")
    assert "taken over" not in called("show", second)
    folder.rename(tmp_path / "moved")
    assert "taken over" not in called("list")


def test_a_run_whose_folder_is_found_again_is_whole_again(runs: tuple[str, str, Path], tmp_path: Path) -> None:
    """As one that was moved away before the other began."""
    first, _, folder = runs
    shutil.copytree(folder, tmp_path / "moved")
    head = json.loads((folder / "run.json").read_text())
    (tmp_path / "moved" / "run.json").write_text(json.dumps({**head, "run_id": first}))
    called("index", tmp_path / "moved")
    assert json.loads(called("report", first, "--json"))["run"]["id"] == first


def test_the_beginning_of_an_id_leads_to_no_other_run_that_begins_so(
    runs: tuple[str, str, Path], tmp_path: Path
) -> None:
    """One beside the store is meant only by a name that fits none in it."""
    run_into(tmp_path / "calyx-runs" / "beside", is_indexed=False)
    for words in (("report", "20"), ("show", "20"), ("baseline", "set", "20")):
        with pytest.raises(UsageError, match="'20' is the beginning of 2 runs"):
            called(*words)


def test_what_is_kept_no_longer_takes_no_other_run_with_it(runs: tuple[str, str, Path]) -> None:
    first, second, folder = runs
    night = retention.Night(first, folder, 0.0)
    assert not retention.remove_raw(night)
    assert not retention.remove_whole(night)
    assert archive.run_id_in(folder) == second
    assert retention.remove_whole(replace(night, run_id=second))


@pytest.mark.parametrize("text", ["{", "[]", '{"run_id"', "\udcff", "1"])
def test_a_damaged_folder_is_called_damaged_and_not_taken_over(runs: tuple[str, str, Path], text: str) -> None:
    _, second, folder = runs
    (folder / "run.json").write_bytes(text.encode(errors="surrogateescape"))
    assert archive.run_id_in(folder) is None
    assert "taken over" not in called("list")
    with pytest.raises(UsageError, match=r"run\.json is damaged"):
        called("report", second)


def test_to_ask_for_a_baseline_makes_no_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    with pytest.raises(UsageError, match="--against baseline: there is no store at"):
        judging.settled(judging.Limits(against="baseline", store=url), RECORD.plan)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_took_a_folder_over_and_is_not_in_the_store_is_listed(runs: tuple[str, str, Path]) -> None:
    """As one that was killed."""
    first, second, folder = runs
    shutil.rmtree(folder)
    third = run_into(folder, is_indexed=False).run_id
    rows = {row["run_id"]: row["is_indexed"] for row in json.loads(called("list", "--json"))}
    assert rows == {first: True, second: True, third: False}
    assert json.loads(called("show", third, "--json"))["run_id"] == third
