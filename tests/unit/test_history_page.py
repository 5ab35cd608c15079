"""The page of a history: a panel a series, a band an incident, a ring a suspect, and a line where a new series began."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calyx_orch.analysis.history import History, Night, history
from calyx_orch.report import figures, history_page
from calyx_orch.report.history import METRICS
from calyx_orch.report.history_frame import frame_of

FIRST = datetime.datetime(2026, 9, 1, 2, 30)
COUNT = 90


def nights(name: str, values: np.ndarray, keys: list[str] | None = None) -> list[Night]:
    return [
        Night(
            f"night-{at:02d}",
            f"{(FIRST + datetime.timedelta(days=at)).isoformat()}+01:00",
            name,
            "randread-4k data together calyx",
            keys[at] if keys else "k",
            float(value),
        )
        for at, value in enumerate(values)
    ]


def steady(seed: int) -> np.ndarray:
    return 250e6 * np.exp(np.random.default_rng(seed).normal(0, 0.02, COUNT))


@pytest.fixture(scope="module")
def found() -> History:
    """Of five vm_hosts hv2 is slower from night 60, hv3 was from 30 to 50, hv4 on the last night alone; hv5 became another at 35."""
    worse, back, bad, other = steady(2), steady(3), steady(4), steady(5)
    worse[60:] *= 0.85
    back[30:50] *= 0.8
    bad[-1] *= 0.8
    keys = ["old"] * 35 + ["new"] * (COUNT - 35)
    of = [nights("hv1", steady(1)), nights("hv2", worse), nights("hv3", back), nights("hv4", bad)]
    return history(METRICS["throughput"], [*(night for one in of for night in one), *nights("hv5", other, keys)])


def drawn(found: History, **options: Any) -> Any:
    return figures.load("nights", figures.HISTORY)(frame_of(found, "throughput", "vm_host"), **options)


def bands(drawing: Any) -> dict[str, tuple[str, str]]:
    """The band of each panel by its y axis: from and to."""
    shapes = [shape for shape in drawing.layout.shapes if shape.type == "rect"]
    return {shape.yref.split(" ")[0]: (str(shape.x0)[:10], str(shape.x1)[:10]) for shape in shapes}


def titles(drawing: Any) -> list[str]:
    return [one.text.split(" ")[0] for one in drawing.layout.annotations if " data " in one.text]


def test_series_with_open_incidents_and_suspects_come_first(found: History) -> None:
    assert titles(drawn(found)) == ["hv2", "hv4", "hv3", "hv1", "hv5"]
    assert titles(drawn(found, series_max=2)) == ["hv2", "hv4"]


def test_a_band_reaches_from_the_first_night_to_recovery_or_to_the_last(found: History) -> None:
    found_bands = bands(drawn(found))
    assert set(found_bands) == {"y", "y3"}  # hv2, hv3
    since, until = found_bands["y"]
    assert "2026-10-27" <= since <= "2026-11-01"
    assert until >= "2026-11-29"
    since, until = found_bands["y3"]
    assert "2026-09-29" <= since <= "2026-10-02"
    assert "2026-10-21" <= until <= "2026-10-28"


def test_a_suspect_is_ringed_on_its_night(found: History) -> None:
    (ring,) = [trace for trace in drawn(found).data if trace.marker.symbol == "circle-open"]
    assert ring.x == ("2026-11-29 02:30",)
    assert ring.name.startswith("suspect")


def test_nights_of_another_make_are_grey_before_the_line(found: History) -> None:
    drawing = drawn(found)
    (grey,) = [trace for trace in drawing.data if trace.name == "another make, not judged"]
    assert len(grey.x) == 35
    (line,) = [shape for shape in drawing.layout.shapes if shape.type == "line"]
    assert str(line.x0) == "2026-10-05 14:30"
    (mine,) = [trace for trace in drawing.data if trace.name == "a night" and trace.yaxis == grey.yaxis]
    assert len(mine.x) == COUNT - 35


def test_the_page_lists_incidents_open_and_worse_first(found: History, tmp_path: Path) -> None:
    text = history_page.write(found, "throughput", "vm_host", out=tmp_path / "h.html").read_text(encoding="utf-8")
    assert "<h1>Night by night: throughput by vm_host</h1>" in text
    assert "1 open: hv2 " in text
    assert "suspect after one night, measure again: hv4 " in text
    assert (
        "hv5 randread-4k data together calyx: a new series since 2026-10-06; 35 nights of another make left out" in text
    )
    rows = text.split('id="incidents"')[1].split("</table>")[0].split("<tbody>")[1]
    assert rows.index("hv2") < rows.index("hv3")
    assert "1 open, 1 incident recovered." in text


def test_one_night_of_a_series_gives_a_page(tmp_path: Path) -> None:
    found = history(METRICS["cv"], nights("hv1", np.array([0.02])))
    text = history_page.write(found, "cv", "vm_host", out=tmp_path / "h.html").read_text(encoding="utf-8")
    assert "1 series have fewer than 12 nights" in text
    plots = json.loads(text.split('id="plots">')[1].split("</script>")[0])
    assert len(plots) == 1


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_has_an_axis_that_holds_all_its_nights(metric: str) -> None:
    values = steady(7) if metric in ("throughput", "iops") else steady(7) / 2.5e8 * (0.03 if metric == "cv" else 2e6)
    drawing = figures.load("nights", figures.HISTORY)(
        frame_of(history(METRICS[metric], nights("hv1", values)), metric, "vm_host")
    )
    low, high = drawing.layout.yaxis.range
    drawn_values = np.asarray(drawing.data[0].y)
    if drawing.layout.yaxis.type == "log":
        drawn_values = np.log10(drawn_values)
    assert low < drawn_values.min()
    assert drawn_values.max() < high
