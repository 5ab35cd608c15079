"""The page of a comparison: its parts are those of a run's page, and it draws what the table says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_compare import scaled
from test_report_page import EVIL, Elements

from calyx_orch.analysis import compare, sides
from calyx_orch.analysis.comparison import Comparison
from calyx_orch.model import LoadMode, RunRecord
from calyx_orch.report import comparison_page, figures
from calyx_orch.report.comparison_frame import frame_of
from report_records import renamed, run_record


@pytest.fixture(scope="module")
def record() -> RunRecord:
    """Four guests on two vm_hosts, the second a tenth slower."""
    return scaled(run_record(4, per_host=2, blocks=3, runtime_s=4.0, loads=(LoadMode.TOGETHER,)), 0.9, vm_host="hv2")


@pytest.fixture(scope="module")
def found(record: RunRecord) -> Comparison:
    return compare.compare(sides.by_fact(record, "vm_host"), fact="vm_host")


def drawn(found: Comparison, fact: str, name: str, **options: Any) -> Any:
    return figures.load(name, figures.COMPARISON)(frame_of(found, fact), **options)


def written(found: Comparison, fact: str, path: Path) -> tuple[str, Elements]:
    text = comparison_page.write(found, fact, out=path).read_text(encoding="utf-8")
    elements = Elements()
    elements.feed(text)
    return text, elements


def test_the_page_says_what_the_terminal_says_and_draws_all_its_figures(found: Comparison, tmp_path: Path) -> None:
    text, elements = written(found, "vm_host", tmp_path / "c.html")
    assert len(json.loads(elements.scripts[0])) == 3
    assert "Against vm_host hv1: hv2 is " in text
    assert "worse in throughput" in text
    assert "one run compares these placements" in text.split("<nav>")[1]
    assert text.split('id="rows"')[1].count("<tr>") - 1 == len(found.rows)
    assert "<code>rate_iops</code>" in text
    assert (tmp_path / "c.html").stat().st_mode & 0o777 == 0o600


def test_ratios_are_drawn_where_they_are_in_the_shape_of_their_verdict(found: Comparison) -> None:
    drawing = drawn(found, "vm_host", "ratios_with_verdicts")
    lines = [trace for trace in drawing.data if trace.y is not None]
    assert len(lines) == len([row for row in found.rows if row.effect.ratio is not None])
    (one,) = [t for t in lines if "hv2 / hv1, calyx: throughput" in t.text[0] and t.xaxis == "x"]
    row = next(r for r in found.rows if (r.workload, r.engine, r.metric) == ("randread-4k", "calyx", "throughput"))
    assert one.x[0] == row.effect.ratio
    assert one.x[0] + one.error_x.array[0] == pytest.approx(row.effect.high)
    assert (one.name, one.marker.symbol) == ("worse", "triangle-down")


def test_many_sides_draw_the_main_metrics_unless_others_are_named() -> None:
    record = run_record(24, per_host=2, blocks=1, runtime_s=2.0, loads=(LoadMode.TOGETHER,))
    found = compare.compare(sides.by_fact(record, "vm_host"), fact="vm_host")

    def metrics(drawing: Any) -> set[str]:
        return {label.split(", ")[0] for axis in drawing.select_yaxes() for label in axis.ticktext}

    assert metrics(drawn(found, "vm_host", "ratios_with_verdicts")) == {"throughput", "P99", "CPU per I/O"}
    assert metrics(drawn(found, "vm_host", "ratios_with_verdicts", metrics=["P50"])) == {"P50"}


def test_every_unit_of_every_side_is_a_dot_and_their_mean_a_bar(found: Comparison) -> None:
    drawing = drawn(found, "vm_host", "values_by_side", workloads=["randread-4k"], metrics=["throughput"])
    dots, bar = [trace for trace in drawing.data if trace.name == "calyx"]
    assert len(dots.x) == 12  # six rounds of two sides
    row = next(r for r in found.rows if (r.workload, r.engine, r.metric) == ("randread-4k", "calyx", "throughput"))
    assert list(bar.y) == [pytest.approx((row.reference_value or 0) / 1e6), pytest.approx((row.value or 0) / 1e6)]


def test_each_side_has_a_latency_curve_and_the_reference_is_dashed(record: RunRecord, found: Comparison) -> None:
    drawing = drawn(found, "vm_host", "distributions_by_side")
    assert len(drawing.data) == 2 * 2 * 2  # sides, workloads, engines
    assert {trace.name: trace.line.dash for trace in drawing.data} == {"hv1": "dash", "hv2": "solid"}
    assert [trace.name for trace in drawing.data if trace.showlegend] == ["hv1", "hv2"]
    engines = compare.compare(sides.by_fact(record, "engine"), fact="engine")
    drawing = drawn(engines, "engine", "distributions_by_side", workloads=["randread-4k"])
    assert [trace.name for trace in drawing.data] == ["calyx", "fio-io_uring"]


def test_sides_of_the_same_guests_are_drawn_without_a_guest_that_one_of_them_lost(record: RunRecord) -> None:
    """A guest that fails leaves the storage to the others: what is drawn is what was compared."""
    lost = replace(
        record, measurements=tuple(m for m in record.measurements if m.guest != "hv1-vm01" or m.engine == "calyx")
    )
    units = compare.units_by_side(sides.by_fact(lost, "engine"))
    assert {side.side for side in units} == {"calyx", "fio-io_uring"}
    guests = {found.measurement.guest for one in units for unit in one.units for found in unit.figures}
    assert "hv1-vm01" not in guests


def test_names_with_html_do_not_become_elements(record: RunRecord, tmp_path: Path) -> None:
    evil = renamed(record, "hv1-vm01", EVIL)
    found = compare.compare(sides.by_fact(evil, "guest"), fact="guest")
    text, elements = written(found, "guest", tmp_path / "c.html")
    assert not [tag for tag, _ in elements.tags if tag == "img"]
    assert len(elements.scripts) == 3
    assert "\x1b" not in text


def test_sides_that_share_no_workload_give_a_page_without_figures(record: RunRecord, tmp_path: Path) -> None:
    other = replace(
        record,
        run_id="other",
        measurements=tuple(m for m in record.measurements if m.workload == "seqwrite-1m"),
    )
    first = replace(record, measurements=tuple(m for m in record.measurements if m.workload == "randread-4k"))
    found = compare.compare([sides.of_run("a", first), sides.of_run("b", other)])
    text, elements = written(found, "", tmp_path / "c.html")
    assert elements.scripts == []
    assert "Nothing could be compared with a" in text
