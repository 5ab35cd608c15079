"""`calyx-orch index list show export history baseline` as a person calls them, on a store of nights whose truth is known."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from calyx_orch import cli
from calyx_orch.model import LoadMode, Measurement, RunRecord
from calyx_orch.store import database, indexing
from calyx_orch.store.archive import RunFolder
from report_records import run_record

NIGHTS, CHANGED = 26, 18


def slower(record: RunRecord, vm_host: str, factor: float) -> RunRecord:
    def of(m: Measurement) -> Measurement:
        ways = {
            name: replace(way, ios=int(way.ios * factor), bytes=int(way.bytes * factor))
            for name in ("read", "write")
            if (way := getattr(m, name)) is not None and m.vm_host == vm_host
        }
        return replace(m, **ways)

    return replace(record, measurements=tuple(of(m) for m in record.measurements))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 26 nights of two vm_hosts, the second 30 % slower from the 19th; and the last night's run folder."""
    home = tmp_path_factory.mktemp("nights")
    store = database.open_store(f"sqlite:///{home / 'store.sqlite'}")
    for at in range(NIGHTS):
        record = run_record(2, per_host=1, blocks=1, runtime_s=2.0, loads=(LoadMode.TOGETHER,), seed=at)
        record = slower(record, "hv2", 0.7 if at >= CHANGED else 1.0)
        record = replace(record, run_id=f"night-{at + 1:02d}", started_at=f"2026-11-{at + 1:02d}T02:30:00+01:00")
        indexing.put(store, record)
    store.close()
    folder = RunFolder.create(home, record.plan, path=home / "last")
    folder.keep_facts(record.facts)
    folder.keep_measurements(record.measurements)
    folder.finish(status="finished", outcomes=record.outcomes, notes=())
    folder.close()
    return home


def calyx(home: Path, *words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command line as `calyx-orch` takes it, in this process: to start Python costs more than all that is looked at here.

    It runs in `home`: where tests are started there may be run folders, which `list` shows.
    """
    argv = ["calyx-orch", *map(str, words)]
    out, err, status = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err), chdir(cwd or home):
        patch.setenv("CALYX_ORCH_STORE", f"sqlite:///{home / 'store.sqlite'}")
        patch.setenv("COLUMNS", "200")
        patch.setattr(sys, "argv", argv)
        try:
            cli.main()
        except SystemExit as ended:
            status = int(ended.code or 0)
    return subprocess.CompletedProcess(argv, status, out.getvalue(), err.getvalue())


def test_history_names_the_vm_host_that_got_worse(home: Path) -> None:
    ended = calyx(home, "history", "--workload", "randread-4k", "--engine", "calyx")
    assert ended.returncode == 0, ended.stderr
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith("hv2 ")]
    assert "30 % worse since 2026-11-19, open" in line.replace("30.1", "30").replace("29.9", "30")
    assert "worse" not in next(line for line in ended.stdout.splitlines() if line.startswith("hv1 "))
    assert ended.stdout.rstrip().splitlines()[-1].startswith("1 open: hv2 randread-4k data together calyx ")


def test_history_of_another_metric_says_that_nothing_changed(home: Path) -> None:
    ended = calyx(home, "history", "--metric", "p99", "--scope", "fleet", "--json")
    found = json.loads(ended.stdout)
    assert found["sentence"] == "No incident is open."
    assert {len(series["points"]) for series in found["series"]} == {NIGHTS}


def test_list_and_show_find_what_was_indexed(home: Path) -> None:
    assert "night-26" in calyx(home, "list", "--limit", "1").stdout
    assert [row["run_id"] for row in json.loads(calyx(home, "list", "--json", "--limit", "2").stdout)] == [
        "night-26",
        "night-25",
    ]
    shown = calyx(home, "show", "night-01")
    assert "hv1" in shown.stdout
    assert "randread-4k" in shown.stdout
    assert calyx(home, "show", "night-1").stderr.startswith("'night-1' is the beginning of 10 runs: write more of it")


def test_show_says_by_what_a_run_has_figures(home: Path) -> None:
    """Where it has none by what was asked for."""
    shown = calyx(home, "show", "night-01", "--scope", "storage")
    assert "no guest of it is on a storage: choose --scope fleet or vm_host or guest" in shown.stdout


def test_a_file_names_the_inventory_whose_runs_are_meant(home: Path, tmp_path: Path) -> None:
    """By its whole path, for history and calibrate alike: two files of one name are two inventories."""
    assert calyx(home, "history", "--inventory", "inventories/fleet.yaml", "--json", cwd=tmp_path).returncode == 0
    (tmp_path / "inventories").mkdir()
    (tmp_path / "inventories" / "fleet.yaml").touch()
    for words in (("history",), ("calibrate",)):
        ended = calyx(home, *words, "--inventory", "inventories/fleet.yaml", cwd=tmp_path)
        assert (ended.returncode, "that fit" in ended.stderr) == (2, True)


def test_a_folder_is_indexed_and_one_that_is_broken_does_not_keep_out_the_others(home: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run.json").write_text("{")
    (tmp_path / "b").symlink_to(home / "last")
    ended = calyx(tmp_path, "index", tmp_path)
    assert ended.returncode == 2
    assert f"left out {tmp_path}/a:" in ended.stdout
    assert f"indexed {tmp_path}/b" in ended.stdout
    assert "1 run folder could not be indexed" in ended.stderr


def test_exports_can_be_read_by_their_own_tools(home: Path, tmp_path: Path) -> None:
    folder = home / "last"
    rows = list(csv.DictReader(io.StringIO(calyx(tmp_path, "export", folder).stdout)))
    one = next(row for row in rows if (row["scope"], row["name"], row["engine"]) == ("vm_host", "hv1", "calyx"))
    assert calyx(tmp_path, "export", folder, "--format", "parquet", "--out", tmp_path / "x.parquet").returncode == 0
    table = pd.read_parquet(tmp_path / "x.parquet")
    assert len(table) == len(rows)
    families = {
        family.name: family.samples
        for family in text_string_to_metric_families(
            calyx(tmp_path, "export", folder, "--format", "openmetrics").stdout
        )
    }
    (sample,) = [
        sample
        for sample in families["calyx_throughput"]
        if all(sample.labels[name] == one[name] for name in ("scope", "name", "workload", "engine", "load"))
    ]
    assert sample.value == pytest.approx(float(one["throughput_bytes_per_s"]))
    suite = ET.fromstring(calyx(tmp_path, "export", folder, "--format", "junit").stdout)
    assert [case.get("name") for case in suite.iter("testcase")] == ["hv1-vm01", "hv2-vm01"]
    assert json.loads(calyx(tmp_path, "export", folder, "--format", "json").stdout)["format"] == "calyx-orch-result/1"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("export", "last", "--format", "xml"), "there is no format 'xml': choose csv, parquet"),
        (("export", "nothing"), "'nothing' names no run"),
        (("history", "--metric", "speed"), "there is no metric 'speed': choose throughput"),
        (
            ("history", "--scope", "vmhost"),
            "there is no scope 'vmhost' (did you mean 'vm_host'?): choose fleet, vm_host",
        ),
        (("calibrate", "--scope", "vmhost"), "there is no scope 'vmhost' (did you mean 'vm_host'?)"),
        (("calibrate", "nothing"), "'nothing' names no run"),
        (
            ("report", "nothing", "--store", "sqlite:////proc/none"),
            "'nothing' is no directory here, and there is no store",
        ),
        (("show", "night-01", "--scope", "host"), "there is no scope 'host'"),
        (("history", "--name", "hv9"), "the store has no throughput by vm_host that fits"),
        (("index", "/proc/self"), "/proc/self is no run folder, and there is none right below it"),
    ],
)
def test_what_cannot_be_done_is_said(home: Path, words: tuple[str, ...], says: str) -> None:
    ended = calyx(home, *words)
    assert ended.returncode == 2
    assert says in ended.stderr


def test_a_place_is_named_by_an_option_of_its_own_or_by_scope_and_name(home: Path) -> None:
    words = ("history", "--metric", "p99", "--engine", "calyx", "--json")
    for short, long in (
        (("--vm-host", "hv2"), ("--scope", "vm_host", "--name", "hv2")), (("--vm_host", "hv1"), ("--name", "hv1")),
        (("--guest", "hv1-vm01"), ("--scope", "guest", "--name", "hv1-vm01")),
    ):  # fmt: skip
        told = json.loads(calyx(home, *words, *short).stdout)
        assert told == json.loads(calyx(home, *words, *long).stdout)
        assert {one["name"] for one in told["series"]} == {short[1]}
    for several in (("--guest", "hv1-vm01", "--vm-host", "hv1"), ("--guest", "hv1-vm01", "--name", "hv2-vm01")):
        assert calyx(home, *words, *several).stderr.startswith("name one place: --guest NAME, --vm-host NAME")


def test_a_run_without_figures_is_no_baseline(tmp_path: Path, home: Path) -> None:
    store = database.open_store(f"sqlite:///{tmp_path / 'store.sqlite'}")
    indexing.put(store, replace(run_record(2, per_host=1, blocks=1), run_id="nobody", measurements=()))
    store.close()
    done = calyx(tmp_path, "baseline", "set", "nobody")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nobody cannot be a baseline: it has no figures. No guest was measured")


def test_nights_of_two_inventories_are_two_series_though_their_places_have_one_name(tmp_path: Path) -> None:
    """As two fleets whose vm_host was never given another name; with --inventory there is one, by its own name."""
    store = database.open_store(f"sqlite:///{tmp_path / 'store.sqlite'}")
    for at, source in enumerate(("one.yaml", "two.yaml", "one.yaml")):
        record = run_record(2, per_host=1, blocks=1, runtime_s=2.0, loads=(LoadMode.TOGETHER,), seed=at)
        plan = replace(record.plan, inventory=replace(record.plan.inventory, source=source, origin=""))
        started = f"2026-11-{at + 1:02d}T02:30:00+01:00"
        indexing.put(store, replace(record, plan=plan, run_id=f"night-{at}", started_at=started))
    store.close()
    words = ("history", "--engine", "calyx", "--workload", "randread-4k", "--json")
    names = [(one["name"], len(one["points"])) for one in json.loads(calyx(tmp_path, *words).stdout)["series"]]
    assert sorted(names) == [
        ("hv1 of one.yaml", 2), ("hv1 of two.yaml", 1), ("hv2 of one.yaml", 2), ("hv2 of two.yaml", 1)
    ]  # fmt: skip
    narrowed = json.loads(calyx(tmp_path, *words, "--inventory", "one.yaml").stdout)["series"]
    assert sorted((one["name"], len(one["points"])) for one in narrowed) == [("hv1", 2), ("hv2", 2)]


def test_a_baseline_is_kept_for_its_inventory_until_it_is_cleared(home: Path) -> None:
    inventory = "inventories/fleet.yaml"
    none = f"{inventory} has no baseline: `calyx-orch baseline set RUN` makes a run of it one\n"
    assert "no inventory has a baseline" in calyx(home, "baseline", "show").stdout
    assert calyx(home, "baseline", "set", "night-03").stdout == f"night-03 is the baseline of {inventory}\n"
    assert calyx(home, "baseline", "show", inventory).stdout.startswith(f"{inventory}: night-03, 2026-11-03T02:30:00")
    (one,) = json.loads(calyx(home, "baseline", "show", "--json").stdout)
    assert (one["inventory"], one["run_id"]) == (inventory, "night-03")
    assert calyx(home, "baseline", "clear", inventory).stdout == f"{inventory} has no baseline any more\n"
    assert calyx(home, "baseline", "show", inventory).stderr == none
    assert "baseline show` names those that have one" in calyx(home, "baseline", "clear", inventory).stderr
