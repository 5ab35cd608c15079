"""The page of a schedule: which night its figures are of, what came after it, and throughput beside P99."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

import pytest
from test_report_page import Elements, strict

from calyx_orch.analysis.history import History, Night, history
from calyx_orch.errors import UsageError
from calyx_orch.report import schedule_page
from calyx_orch.report.history_frame import Due
from calyx_orch.report.schedule_page import LastNight

WHAT = "randread-4k data together calyx"
FIGURE = {
    "name": "hv1", "workload": "randread-4k", "target": "data", "load": "together", "engine": "calyx", "guests": 4,
    "throughput_bytes_per_s": 800e6, "guest_throughput_bytes_per_s": 200e6, "iops": 195_000.0, "guest_iops": 48_800.0,
    "p50_ns": 100_000, "p99_ns": 400_000, "cpu_ns_per_io": 5_000.0, "doubts": [],
}  # fmt: skip
DUE = tuple(Due(f"2026-11-{day:02d} 02:30", "finished") for day in range(1, 21))
LAST = LastNight(DUE[-1].at, "1 regression open.", ("measured again and cleared: hv2",), (FIGURE,))


def found(metric: str, level: float, *, drop: float = 1.0) -> tuple[str, History]:
    """The history of one vm_host, which changes by `drop` on the 15th night."""
    begin = datetime.datetime(2026, 11, 1, 2, 30)
    values = [level * (1 + 0.01 * (at % 5)) * (drop if at >= 14 else 1.0) for at in range(20)]
    nights = [
        Night(f"n{at}", (begin + datetime.timedelta(days=at)).isoformat(), "hv1", WHAT, "k", value)
        for at, value in enumerate(values)
    ]
    return "vm_host", history(metric, nights)


HISTORIES = {
    "throughput": found("throughput_bytes_per_s", 200e6, drop=0.7),
    "p99": found("p99_ns", 400_000.0, drop=1.6),
}


def written(folder: Path, *, due: tuple[Due, ...] = DUE, last: LastNight | None = LAST, **more: Any) -> str:
    path = schedule_page.write("nightly", HISTORIES, due, last, out=folder / "nightly.html", **more)
    return path.read_text(encoding="utf-8")


def plots(text: str) -> list[dict[str, Any]]:
    elements = Elements()
    elements.feed(text)
    drawn: list[dict[str, Any]] = strict(elements.scripts[0])
    return drawn


def test_the_last_night_tells_the_sum_of_a_place_and_its_mean_guest_apart(tmp_path: Path) -> None:
    text = written(tmp_path)
    table = text.split('<section id="last"')[1].split("</section>")[0]
    assert "Last night that was measured, 2026-11-20 02:30" in table
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", table)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", table)
    row = dict(zip(heads, cells, strict=True))
    assert (row["MB/s"], row["MB/s a guest"]) == ("800", "200")


def test_throughput_and_p99_have_trends_and_tables_of_their_own(tmp_path: Path) -> None:
    text = written(tmp_path)
    coverage, throughput, p99 = plots(text)
    assert [trace["name"] for trace in coverage["data"]] == ["finished: 20"]
    assert max(throughput["data"][0]["y"]) == pytest.approx(208.0)
    assert max(p99["data"][0]["y"]) == pytest.approx(1.04 * 1.6 * 400_000)
    assert p99["layout"]["yaxis"]["type"] == "log"
    assert "Incidents: throughput by vm_host" in text
    assert "Incidents: p99 by vm_host" in text
    keys = re.findall(r'<section id="([^"]+)"', text)
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("due", "begins"),
    [
        (DUE, "1 regression open."),
        ((*DUE, Due("2026-11-21 02:30", "running")), "1 regression open."),
        (
            (*DUE, Due("2026-11-21 02:30", "failed", "no route to host")),
            "The night of 2026-11-21 02:30 was failed (no route to host). The night before that was measured, "
            "2026-11-20 02:30: 1 regression open.",
        ),
    ],
)
def test_a_night_that_failed_since_stands_before_the_verdict_of_the_one_that_was_measured(
    due: tuple[Due, ...], begins: str, tmp_path: Path
) -> None:
    text = written(tmp_path, due=due)
    assert begins in text.split('class="verdict">')[1].split("</p>")[0]


def test_a_schedule_that_was_never_due_has_a_page(tmp_path: Path) -> None:
    path = schedule_page.write(
        "nightly", {"throughput": ("vm_host", history("throughput_bytes_per_s", []))}, (), None, out=tmp_path / "n.html"
    )
    text = path.read_text(encoding="utf-8")
    assert "none yet" in text
    assert "No night was measured yet." in text.split("<main>")[0]
    assert "No incident is open" not in text
    assert "the schedule was not due yet" in text
    assert "no night has a p99 yet" in text


def test_a_reason_is_text_in_the_figure_too(tmp_path: Path) -> None:
    evil = "<b>its</b> <a href='x'>inventory</a> %{x}"
    text = written(tmp_path, due=(*DUE, Due("2026-11-21 02:30", "failed", evil)))
    (said,) = [one for trace in plots(text)[0]["data"] for one in trace["text"] if "inventory" in one]
    assert "<" not in said
    assert "%{" not in said
    assert "<b>its" not in text.split("<script")[0]


def test_a_dashboard_chooses_the_metric_of_a_trend(tmp_path: Path) -> None:
    board = tmp_path / "mine.yaml"
    board.write_text("figures:\n  - figure: trends\n    options: {metric: p99}\n")
    (drawn,) = plots(written(tmp_path, dashboard=board))
    assert drawn["layout"]["yaxis"]["type"] == "log"
    board.write_text("figures:\n  - figure: trends\n    options: {metric: p98}\n")
    with pytest.raises(UsageError, match="option 'metric' of trends"):
        written(tmp_path, dashboard=board)
