"""The page in a real Chromium, without network: every figure draws, no error is logged, no script slips in."""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from calyx_orch.analysis import compare, sides
from calyx_orch.analysis.history import Night, history
from calyx_orch.analysis.summary import summarise
from calyx_orch.model import LoadMode, RunRecord
from calyx_orch.report import comparison_page, figures, history_page, run_page, schedule_page
from calyx_orch.report.history_frame import Due
from report_records import renamed, run_record

pytestmark = pytest.mark.browser

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--enable-logging=stderr",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=30000",
)  # fmt: skip
SLIPPED = """
<script>window.addEventListener("load", function () { document.documentElement.setAttribute("data-slipped", "in"); });</script>
"""


def opened(path: Path, profile: Path, width: int = 1400) -> tuple[str, list[str]]:
    """The document after drawing, and the lines that the page logged."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    command = [
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={profile}",
        f"--window-size={width},2000",
        "--dump-dom",
        path.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout, done.stderr[-2000:]
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def report(record: RunRecord, folder: Path) -> Path:
    return run_page.write(record, summarise(record), out=folder / "report.html")


def plots(dom: str) -> list[str]:
    """The drawn document of each figure."""
    return re.split(r"<figure ", dom)[1:]


@pytest.mark.parametrize(("guests", "width"), [(1, 1400), (8, 700), (64, 1400)])
def test_every_figure_draws_its_traces_without_an_error(guests: int, width: int, tmp_path: Path) -> None:
    record = run_record(guests, per_host=min(16, max(1, guests // 2)), blocks=1, runtime_s=5.0)
    dom, logged = opened(report(record, tmp_path), tmp_path / "profile", width)
    assert logged == []
    assert f'data-drawn="{len(figures.names()) - 1}"' in dom  # no density was run
    assert len(plots(dom)) == len(figures.names())
    for drawn in plots(dom):
        if 'class="nothing"' in drawn:
            assert "VM host carries" in drawn
            continue
        assert drawn.count('class="main-svg"') >= 2
        marks = re.findall(r'<path class="(?:js-line|point|js-fill)"[^>]*\bd="M[^"]+"', drawn)
        marks += re.findall(r'<g class="point"><path d="M[^"]+"', drawn)
        assert len(marks) >= 1, drawn[:300]


@pytest.mark.parametrize("width", [1400, 700])
def test_a_comparison_draws_its_figures_without_an_error(width: int, tmp_path: Path) -> None:
    record = run_record(4, per_host=2, blocks=3, runtime_s=2.0, loads=(LoadMode.TOGETHER,))
    found = compare.compare(sides.by_fact(record, "vm_host"), fact="vm_host")
    path = comparison_page.write(found, "vm_host", out=tmp_path / "comparison.html")
    dom, logged = opened(path, tmp_path / "profile", width)
    assert logged == []
    assert f'data-drawn="{len(figures.names(figures.COMPARISON))}"' in dom
    for drawn in plots(dom):
        assert re.search(r'<path class="(?:js-line|point)"[^>]*\bd="M[^"]+"', drawn), drawn[:300]


@pytest.mark.parametrize("width", [1400, 700])
def test_a_history_draws_its_nights_and_a_band_for_an_incident(width: int, tmp_path: Path) -> None:
    values = [100e6 + 1e6 * (at % 7) for at in range(40)] + [70e6 + 1e6 * (at % 7) for at in range(10)]
    night = datetime.datetime(2026, 9, 1, 2, 30)
    nights = [
        Night(
            f"n{at}",
            (night + datetime.timedelta(days=at)).isoformat(),
            "hv1",
            "randread-4k data together calyx",
            "k",
            one,
        )
        for at, one in enumerate(values)
    ]
    found = history("throughput_bytes_per_s", nights)
    assert len(found.incidents) == 1
    path = history_page.write(found, "throughput", "vm_host", out=tmp_path / "history.html")
    dom, logged = opened(path, tmp_path / "profile", width)
    assert logged == []
    assert 'data-drawn="1"' in dom
    (drawn,) = plots(dom)
    assert len(re.findall(r'<path class="point"', drawn)) >= len(values)
    (box,) = re.findall(r'<path data-index="0"[^>]*\bd="M([-\d.]+),[-\d.]+H([-\d.]+)', drawn)
    assert float(box[1]) - float(box[0]) > 30


@pytest.mark.parametrize("width", [1400, 700])
def test_the_page_of_a_schedule_draws_coverage_and_both_trends(width: int, tmp_path: Path) -> None:
    night = datetime.datetime(2026, 9, 1, 2, 30)
    days = [(night + datetime.timedelta(days=at)).isoformat() for at in range(40)]
    levels = {"throughput": ("throughput_bytes_per_s", 100e6), "p99": ("p99_ns", 4e5)}
    histories = {
        name: (
            "vm_host",
            history(
                metric,
                [
                    Night(
                        f"n{at}",
                        day,
                        f"hv{host}",
                        "randread-4k data together calyx",
                        "k",
                        level * (1 + 0.01 * (at % 7)),
                    )
                    for at, day in enumerate(days)
                    for host in (1, 2)
                ],
            ),
        )
        for name, (metric, level) in levels.items()
    }
    due = tuple(Due(day.replace("T", " ")[:16], "missed" if at % 9 == 8 else "finished") for at, day in enumerate(days))
    path = schedule_page.write("nightly", histories, due, None, out=tmp_path / "nightly.html")
    dom, logged = opened(path, tmp_path / "profile", width)
    assert logged == []
    assert 'data-drawn="3"' in dom
    counts = [len(re.findall(r'<path class="point"', drawn)) for drawn in plots(dom)]
    assert counts[0] >= 40
    assert min(counts[1:]) >= 80


def test_a_script_that_slipped_into_the_page_does_not_run_and_is_logged(tmp_path: Path) -> None:
    path = report(run_record(1, per_host=1, blocks=1, runtime_s=2.0), tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace("<main>", SLIPPED + "<main>", 1), encoding="utf-8")
    dom, logged = opened(path, tmp_path / "profile")
    assert "data-slipped" not in dom.split("<body>")[0]
    assert any("Content Security Policy" in line for line in logged)
    assert "data-drawn=" in dom


def test_a_guest_named_like_html_is_drawn_as_text(tmp_path: Path) -> None:
    record = run_record(2, per_host=2, blocks=1, runtime_s=2.0)
    record = renamed(record, "hv1-vm01", "<b onclick=x>vm</b><img src=x>")
    dom, logged = opened(report(record, tmp_path), tmp_path / "profile")
    assert logged == []
    assert "<img" not in dom.split("<script")[0]
    assert "<b onclick" not in dom
    legend = plots(dom)[1]
    assert "&lt;b onclick=x&gt;vm&lt;/b&gt;&lt;img src=x&gt;" in legend
