"""Failure cases of other tools' reports: figures that are no numbers, pages that grow, browsers that hang, files of another version."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from measured import guest, measurement, record, round_
from test_compare_command import kept
from test_report_page import Elements, strict

from calyx_orch.analysis.summary import summarise
from calyx_orch.model import LoadMode, Measurement, RunRecord
from calyx_orch.report import figures, run_page, terminal
from report_records import run_record

GOLDEN = Path(__file__).parent.parent / "golden" / "report"


def without_values() -> RunRecord:
    """A-096: three guests, of which the second did no I/O in any round and the third gave no value at all."""
    told = json.loads((GOLDEN / "A-096" / "results_nan.json").read_text(encoding="utf-8"))["hosts"]
    guests = [guest(one["name"], "hv1") for one in told]
    rounds = [round_(at, [one.name for one in guests], block=at) for at in range(3)]
    found: list[Measurement] = [
        measurement(of, rounds[at], iops)
        for of, one in zip(guests, told, strict=True)
        for at, iops in enumerate(one["iops"])
    ]
    return record(guests, rounds, found)


def test_what_is_no_number_is_null_in_json_na_in_tables_and_a_gap_in_figures(tmp_path: Path) -> None:
    """A-096."""
    run = without_values()
    summary = summarise(run)
    text = json.dumps(terminal.to_json(run, summary), allow_nan=False)
    rows = {row["guest"]: row for row in strict(text)["guests"]}
    for name, expected in json.loads((GOLDEN / "A-096" / "expected.json").read_text(encoding="utf-8")).items():
        cv = rows[name]["cv_between_repetitions"]
        assert cv == (None if expected["cv"] is None else pytest.approx(expected["cv"])), name
    html = run_page.write(run, summary, out=tmp_path / "report.html").read_text(encoding="utf-8")
    elements = Elements()
    elements.feed(html)
    plots = strict(elements.scripts[0])
    assert "n/a" in html
    assert not re.search(r">\s*(nan|NaN|inf|None)\b", html.split("<script")[0])
    drawn = {
        point for plot in plots for trace in plot["data"] for point in trace.get("text") or () if "CV" in str(point)
    }
    assert any("vm1" in str(point) for point in drawn)


def test_a_page_of_many_figures_holds_the_library_once(tmp_path: Path) -> None:
    """A-099: twelve figures are one copy of plotly.js and not twelve."""
    run = run_record(2, per_host=1, blocks=1, runtime_s=2.0, loads=(LoadMode.TOGETHER,))
    board = tmp_path / "twelve.yaml"
    board.write_text("figures:\n" + "  - figure: p99_by_guest\n" * 12, encoding="utf-8")
    path = run_page.write(run, summarise(run), out=tmp_path / "report.html", dashboard=board)
    text = path.read_text(encoding="utf-8")
    assert len(re.findall(r"plotly\.js v\d", text)) == 1
    assert text.count("data-plot=") == 12
    assert len(text) < len(figures.javascript()) + 400_000


def test_no_browser_is_started_to_draw_a_page(tmp_path: Path) -> None:
    """A-100: one that hangs is the only program in PATH; the page is there and it was never asked."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("google-chrome", "chromium", "chrome"):
        shutil.copy(GOLDEN / "A-100" / "google-chrome", programs / name)
    folder = kept(run_record(2, per_host=1, blocks=1, runtime_s=2.0, loads=(LoadMode.TOGETHER,)), tmp_path / "run")
    ended = subprocess.run(
        [sys.executable, "-m", "calyx_orch.cli", "report", folder],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=os.environ | {"PATH": str(programs)},
    )
    assert ended.returncode == 0, ended.stderr
    assert (folder / "report.html").stat().st_size > 1_000_000
    assert sorted(path.name for path in programs.iterdir()) == ["chrome", "chromium", "google-chrome"]


def exported(folder: Path, out: Path, home: Path) -> list[dict[str, Any]]:
    ended = subprocess.run(
        [sys.executable, "-m", "calyx_orch.cli", "export", folder, "--out", out],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=os.environ | {"CALYX_ORCH_STORE": f"sqlite:///{home / 'store.sqlite'}"},
    )
    assert ended.returncode == 0, ended.stderr
    return list(csv.DictReader(io.StringIO(out.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
def test_a_file_of_another_version_is_replaced_and_never_grows_shifted_columns(tmp_path: Path, ending: str) -> None:
    """A-102: an older file with fewer columns, CRLF, or no newline at its end; what is written is one header and its columns."""
    before = (GOLDEN / "A-102" / "history_v1.csv").read_text(encoding="utf-8").rstrip("\n")
    out = tmp_path / "history.csv"
    out.write_bytes((before.replace("\n", ending or "\n") + ending).encode())
    folder = kept(run_record(2, per_host=1, blocks=1, runtime_s=2.0, loads=(LoadMode.TOGETHER,)), tmp_path / "run")
    first = exported(folder, out, tmp_path)
    assert exported(folder, out, tmp_path) == first
    assert out.read_text(encoding="utf-8").count("run_id") == 1
    assert len({row["run_id"] for row in first}) == 1
    for row in first:
        assert None not in row
        assert None not in row.values()
        assert row["scope"] in ("fleet", "vm_host", "storage", "guest")
        assert float(row["p99_ns"]) > 0
