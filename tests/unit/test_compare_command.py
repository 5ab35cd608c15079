"""`calyx-orch compare`: from run folders to tables, JSON and one sentence, or a refusal that says what to do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from calyx_orch.errors import UsageError
from calyx_orch.model import LoadMode, RunRecord
from calyx_orch.store import archive
from calyx_orch.store.archive import RunFolder
from report_records import run_record


def kept(record: RunRecord, path: Path) -> Path:
    """The record as a run folder."""
    folder = RunFolder.create(path.parent, record.plan, path=path)
    folder.keep_facts(record.facts)
    folder.keep_measurements(record.measurements)
    folder.finish(status="finished", outcomes=record.outcomes, notes=record.notes)
    folder.close()
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    parent = tmp_path_factory.mktemp("runs")
    made = [
        run_record(2, per_host=1, blocks=3, runtime_s=4.0, loads=(LoadMode.TOGETHER,), seed=seed) for seed in (1, 2)
    ]
    return kept(made[0], parent / "monday"), kept(made[1], parent / "tuesday")


def compare(*words: str | Path) -> subprocess.CompletedProcess[str]:
    argv: Sequence[str] = [sys.executable, "-m", "calyx_orch.cli", "compare", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env={"COLUMNS": "160"})


def test_engines_of_a_run_end_with_who_is_worse_at_what(runs: tuple[Path, Path]) -> None:
    ended = compare(runs[0], "--by", "engine")
    assert ended.returncode == 0, ended.stderr
    assert "fio-io_uring / calyx" in ended.stdout
    last = ended.stdout.rstrip().splitlines()[-1]
    assert last.startswith("Against engine calyx: fio-io_uring is 29.8 % worse in CPU per I/O of ")


def test_the_reference_can_be_named(runs: tuple[Path, Path]) -> None:
    ended = compare(runs[0], "--by", "engine", "--reference", "fio-io_uring")
    assert "Against engine fio-io_uring: calyx is 23 % better in CPU per I/O" in ended.stdout
    assert compare(runs[0], "--by", "engine", "--reference", "dd").stderr == (
        "no side is called 'dd': there are calyx, fio-io_uring\n"
    )


def test_json_is_strict_and_whole(runs: tuple[Path, Path]) -> None:
    ended = compare(*runs, "--json")
    found = json.loads(ended.stdout, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert found["format"] == "calyx-orch-comparison/1"
    assert [side["name"] for side in found["sides"]] == ["monday", "tuesday"]
    one = next(row for row in found["rows"] if row["metric"] == "throughput")
    assert one["verdict"] in ("better", "worse", "no difference found")
    assert one["effect"]["low"] < one["effect"]["ratio"] < one["effect"]["high"]
    assert one["effect"]["units"] == 6


def test_runs_of_other_io_under_the_same_name_are_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    other = run_record(2, per_host=1, blocks=3, runtime_s=4.0, loads=(LoadMode.TOGETHER,))
    rounds = tuple(replace(r, workload=replace(r.workload, bs_bytes=8192)) for r in other.plan.rounds)
    folder = kept(replace(other, plan=replace(other.plan, rounds=rounds)), tmp_path / "other")
    ended = compare(runs[0], folder)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "workload randread-4k, bs_bytes: monday 4096, other 8192" in ended.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name two runs, or one run and --by vm_host"),
        (("--by", "storage"), "no guest says what its storage is"),
        (("--by", "kernel"), "all guests are on kernel '6.1.0-31-amd64'"),
    ],
)
def test_what_cannot_be_compared_is_said(runs: tuple[Path, Path], words: Sequence[str], says: str) -> None:
    ended = compare(runs[0], *words)
    assert ended.returncode == 2
    assert says in ended.stderr


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    ended = compare(tmp_path, "--by", "engine")
    assert (ended.returncode, ended.stderr) == (2, f"{tmp_path} is not a run folder: it holds no run.json\n")


def stored(home: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    env = {"COLUMNS": "160", "CALYX_ORCH_STORE": f"sqlite:///{home / 'store.sqlite'}"}
    argv = [sys.executable, "-m", "calyx_orch.cli", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=env, cwd=home)


def test_runs_of_the_store_are_named_by_their_ids_beside_folders(runs: tuple[Path, Path], tmp_path: Path) -> None:
    assert stored(tmp_path, "index", *runs).returncode == 0
    listed = json.loads(stored(tmp_path, "list", "--json").stdout)
    ids = {Path(row["folder"]).name: row["run_id"] for row in listed}
    ended = stored(tmp_path, "compare", ids["monday"], runs[1], "--json")
    assert [Path(side["folder"]).name for side in json.loads(ended.stdout)["sides"]] == ["monday", "tuesday"]
    ended = stored(tmp_path, "compare", "latest", "--by", "engine")
    assert ended.returncode == 0, ended.stderr
    assert stored(tmp_path, "compare", "mondy", "latest").stderr.startswith("'mondy' names no run")


def test_the_page_is_written_beside_the_table_and_a_dashboard_needs_a_page(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    ended = compare(*runs, "--html", tmp_path / "page.html")
    assert ended.stdout.rstrip().endswith(f"page: {tmp_path}/page.html")
    assert "<h1>Comparison</h1>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "name the page with --html FILE" in compare(*runs, "--dashboard", "x.yaml").stderr
    assert "page.html: there is no directory " in compare(*runs, "--html", tmp_path / "no" / "page.html").stderr


def test_a_run_whose_folder_is_gone_is_told_where_it_was(runs: tuple[Path, Path], tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(runs[0], moved)
    assert stored(tmp_path, "index", moved).returncode == 0
    moved.rename(tmp_path / "elsewhere")
    ended = stored(tmp_path, "compare", "latest", "--by", "engine")
    assert ended.returncode == 2
    assert f"is gone: {moved}; where it was moved, `calyx-orch index DIR` finds it again" in ended.stderr


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("run.json", '{"run_id": "x"}', "run.json is damaged, so the run cannot be read: started_at: Field required"),
        ("run.json", "[]", "run.json is damaged"),
        ("run.json", "\x00" * 40, "run.json is damaged"),
        ("run.json", None, "is not a run folder: it holds no run.json"),
        ("plan.json", '{"format": "calyx-orch-plan/1", "plan": {}}', "plan.json is damaged"),
        ("plan.json", "", "plan.json is damaged"),
        ("plan.json", None, "plan.json: No such file or directory"),
        ("facts.json", '{"hv1-vm01": 5}', "facts.json is damaged, so the run cannot be read: hv1-vm01: "),
        ("facts.json", "[1]", "facts.json is damaged"),
        ("found.json", "{", "found.json is damaged"),
        ("measurements.jsonl", "{}\n{}\n", "measurements.jsonl:1 is damaged, no measurement: "),
        ("measurements.jsonl", "\xff\x00\n\n", "measurements.jsonl:1 is damaged"),
    ],
)
def test_a_damaged_folder_is_one_sentence_that_names_the_file(
    runs: tuple[Path, Path], tmp_path: Path, file: str, text: str | None, says: str
) -> None:
    shutil.copytree(runs[0], tmp_path / "run")
    path = tmp_path / "run" / file
    path.unlink(missing_ok=True) if text is None else path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError) as told:
        archive.read(tmp_path / "run")
    assert says in str(told.value)
    assert "\n" not in str(told.value)
    if file == "plan.json":
        assert compare(tmp_path / "run", "--by", "engine").stderr.count("\n") == 1


def test_a_run_without_measurements_compares_nothing_and_says_so(runs: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(runs[1], tmp_path / "run")
    (tmp_path / "run" / "measurements.jsonl").unlink()
    ended = compare(runs[0], tmp_path / "run", "--html", tmp_path / "page.html")
    assert ended.returncode == 0, ended.stderr
    assert "Nothing could be compared with monday: no workload was measured on both sides." in ended.stdout
