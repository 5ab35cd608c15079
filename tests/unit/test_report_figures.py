"""The figures: what they draw from a record, for one guest and for many, and that no spike and no percentile is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calyx_orch.analysis.histogram import percentile
from calyx_orch.analysis.summary import summarise
from calyx_orch.model import Direction, LoadMode, RunRecord
from calyx_orch.report import figures, wording
from calyx_orch.report.figures import NothingToDraw, palette, panels
from calyx_orch.report.frames import Frame, frame_of, percentile_curve, stretch_of, stretched
from report_records import histogram_of, run_record


def framed(record: RunRecord) -> Frame:
    return frame_of(record, summarise(record))


@pytest.fixture(scope="module")
def eight() -> Frame:
    return framed(run_record(8, per_host=4, blocks=1, runtime_s=10.0))


def drawn(frame: Frame, name: str, **options: Any) -> Any:
    return figures.load(name)(frame, **options)


def legend_of(figure: Any) -> list[str]:
    return [trace.name for trace in figure.data if trace.showlegend]


def test_there_are_the_nine_figures_and_each_has_options_with_defaults() -> None:
    assert figures.names() == (
        "calyx_vs_fio",
        "cpu_split",
        "cv_by_guest",
        "density",
        "interference",
        "latency_distribution",
        "p99_by_guest",
        "steady",
        "throughput_over_time",
    )
    for name in figures.names():
        assert "workloads" in figures.options_of(name)


@pytest.mark.parametrize(("guests", "entries"), [(1, 1), (8, 8), (64, 4)])
def test_the_legend_of_guests_never_swallows_the_figure(guests: int, entries: int) -> None:
    frame = framed(run_record(guests, per_host=min(16, guests), blocks=1, runtime_s=2.0, loads=(LoadMode.TOGETHER,)))
    for name in ("latency_distribution", "throughput_over_time"):
        assert len(legend_of(drawn(frame, name))) == entries
    for name in ("p99_by_guest", "cv_by_guest"):
        assert len(legend_of(drawn(frame, name))) <= 4


def test_an_engine_has_one_colour_in_every_figure(eight: Frame) -> None:
    for name in ("p99_by_guest", "cv_by_guest", "calyx_vs_fio", "interference"):
        for trace in drawn(eight, name).data:
            engine = trace.name.split(",")[0]
            assert trace.marker.color == palette.ENGINES[engine], name


def test_guests_of_a_vm_host_are_shades_of_one_hue_and_none_repeats(eight: Frame) -> None:
    colours = panels.guest_colours(eight)
    assert len(set(colours.values())) == 8
    assert not set(colours.values()) & set(palette.ENGINES.values())


def test_guests_are_grouped_by_vm_host_with_a_gap_between(eight: Frame) -> None:
    axis = panels.guest_axis(eight, eight.guests)
    assert [name for name, _, _ in axis.groups] == ["hv1", "hv2"]
    places = list(axis.at.values())
    assert places[4] - places[3] > places[1] - places[0]


def test_the_curve_passes_through_the_percentiles_of_the_table(eight: Frame) -> None:
    figure = drawn(eight, "latency_distribution")
    trace = next(t for t in figure.data if t.meta[0] == "hv1-vm01" and t.meta[2] == "calyx")
    row = eight.guest_rows.query("guest == 'hv1-vm01' and engine == 'calyx' and load == 'together'").iloc[0]
    at = {round(100 * (1 - share), 4): x for share, x in zip(trace.y, trace.x, strict=True)}
    assert at[50.0] == row["p50_ns"]
    assert at[99.0] == row["p99_ns"]
    assert any(f"P99  {wording.latency(row['p99_ns'])}" == text for text in trace.text)


def test_percentiles_come_from_merged_buckets_never_from_an_average_of_percentiles() -> None:
    """100 000 I/Os at 100 us and 1000 at 20 000 us: P99 is 100 us, P99.9 is 20 000 us; a mean would say 10 050 us."""
    record = run_record(1, per_host=1, blocks=1, runtime_s=2.0, loads=(LoadMode.TOGETHER,))
    slow = iter([False, True] * 100)

    def filled(direction: Direction | None) -> Direction | None:
        if direction is None:
            return None
        is_slow = next(slow)
        samples = np.full(1000 if is_slow else 100_000, 20_000_000 if is_slow else 100_000)
        return replace(direction, latency=histogram_of(samples))

    record = replace(
        record, measurements=tuple(replace(m, read=filled(m.read), write=None) for m in record.measurements)
    )
    frame = framed(record)
    latency = frame.histograms.query("engine == 'calyx' and workload == 'randread-4k'").iloc[0]["histogram"]
    curve = percentile_curve(latency, np.array([0.01, 0.001]))
    assert curve[0] == pytest.approx(100_000, rel=0.016)
    assert curve[1] == pytest.approx(20_000_000, rel=0.016)
    assert percentile(latency, 99.0) == curve[0]


def test_a_curve_ends_where_fewer_than_ten_samples_lie_beyond() -> None:
    curve = percentile_curve(histogram_of(np.arange(1000, 2000)), np.array([0.5, 0.01, 0.009]))
    assert np.isfinite(curve).tolist() == [True, True, False]


def test_a_single_spike_and_a_single_dip_survive_any_thinning() -> None:
    time = np.arange(360_000) * 0.1 + 0.05
    values = np.full(360_000, 100.0)
    values[123_456], values[300_001], values[77] = 900.0, 3.0, np.nan
    stretch = stretch_of(36_000, 0.1, 120)
    assert stretch == 300.0
    middle, mean, low, high = stretched(time, values, stretch)
    assert len(middle) == 120
    assert high.max() == 900.0
    assert low.min() == 3.0
    assert abs(middle[high.argmax()] - 12_345.65) <= stretch / 2
    assert np.isfinite(mean).all()


def test_a_stretch_without_numbers_is_a_gap() -> None:
    _, mean, low, high = stretched(np.array([0.05, 0.15, 0.25, 0.35]), np.array([1.0, 2.0, np.nan, np.nan]), 0.2)
    for values in (mean, low, high):
        assert np.isfinite(values).tolist() == [True, False]


def test_the_time_axis_begins_at_the_start_line(eight: Frame) -> None:
    trace = next(trace for trace in drawn(eight, "throughput_over_time").data if trace.customdata is not None)
    assert trace.x[0] == pytest.approx(1.05, abs=0.1)  # a ramp of 1 s, then the middle of the first stretch
    assert trace.x[-1] == pytest.approx(10.95, abs=0.1)


def test_a_repetition_can_be_asked_for_and_the_roughest_is_drawn_otherwise() -> None:
    record = run_record(2, per_host=2, blocks=2, runtime_s=2.0, loads=(LoadMode.TOGETHER,))
    third = sorted({m.round_index for m in record.measurements if m.engine == "calyx" and m.workload == "randread-4k"})[
        2
    ]

    def dipped(m: Any) -> Any:
        if m.round_index != third or m.guest != "hv1-vm02":
            return m
        return replace(m, series=replace(m.series, read_bytes=(0.0, *m.series.read_bytes[1:])))

    frame = framed(replace(record, measurements=tuple(map(dipped, record.measurements))))
    titles = [note.text for note in drawn(frame, "throughput_over_time").layout.annotations]
    assert any("randread-4k" in title and "calyx, repetition 3 of 4" in title for title in titles)
    titles = [note.text for note in drawn(frame, "throughput_over_time", repetition=1).layout.annotations]
    assert all("repetition 1 of 4" in title for title in titles)


def test_pairs_have_a_line_at_one_and_an_interval(eight: Frame) -> None:
    record = run_record(4, per_host=2, blocks=3, runtime_s=2.0, loads=(LoadMode.TOGETHER,))
    figure = drawn(framed(record), "calyx_vs_fio")
    assert sum(1 for shape in figure.layout.shapes if shape.type == "line" and shape.y0 == shape.y1 == 1.0) == 6
    assert any(np.isfinite(value) for trace in figure.data for value in trace.error_y.array)
    assert "range" in figure.data[0].text[0]


def test_the_cpu_split_says_what_is_sampled_and_what_is_exact(eight: Frame) -> None:
    names = legend_of(drawn(eight, "cpu_split"))
    assert names == [
        "user (sampled)",
        "system (sampled)",
        "softirq (sampled)",
        "iowait (sampled)",
        "busy (total)",
        "engine alone",
    ]


def test_a_run_of_another_load_is_drawn_and_named() -> None:
    frame = framed(run_record(2, per_host=2, blocks=1, runtime_s=2.0, loads=(LoadMode.ALONE,)))
    titles = [note.text for note in drawn(frame, "p99_by_guest").layout.annotations]
    assert titles == ["randread-4k (alone)", "seqwrite-1m (alone)"]
    with pytest.raises(NothingToDraw, match="together"):
        drawn(frame, "p99_by_guest", load="together")


@pytest.mark.parametrize(
    ("low", "high"), [(1e3, 1e9), (9e5, 1.1e6), (5e4, 6e4), (1.0, 1.0), (3e5, 4e7), (0.8, 1.25), (0.02, 40.0)]
)
def test_log_axes_have_a_few_round_ticks_inside(low: float, high: float) -> None:
    ticks = panels.log_ticks(low, high)
    assert 1 <= len(ticks) <= 9
    assert ticks == sorted(ticks)
    assert all(low / 10 <= tick <= high * 10 for tick in ticks)
    assert all(float(f"{tick:.3g}") == pytest.approx(tick) for tick in ticks)


def test_a_panel_names_its_load_where_the_run_has_several(eight: Frame) -> None:
    titles = [note.text for note in drawn(eight, "p99_by_guest").layout.annotations]
    assert "randread-4k (together)" in titles
    one = framed(run_record(2, per_host=2, blocks=1, runtime_s=2.0, loads=(LoadMode.TOGETHER,)))
    assert "randread-4k" in [note.text for note in drawn(one, "p99_by_guest").layout.annotations]


def test_a_missing_percentile_is_said_where_its_point_would_be(eight: Frame) -> None:
    rows = eight.guest_rows.copy()
    rows.loc[(rows["guest"] == "hv1-vm02") & (rows["engine"] == "calyx"), "p99_ns"] = np.nan
    figure = drawn(replace(eight, guest_rows=rows), "p99_by_guest")
    gaps = [note for note in figure.layout.annotations if note.text == "n/a"]
    assert len(gaps) == 2  # one a workload
    assert all("hv1-vm02" in gap.hovertext for gap in gaps)
    assert not [note for note in drawn(eight, "p99_by_guest").layout.annotations if note.text == "n/a"]


@pytest.mark.parametrize(("low", "high"), [(1.2e6, 1.9e6), (21e6, 66e6), (3.4e6, 3.9e6), (90e3, 8e9), (5e6, 5e6)])
def test_no_latency_lies_below_the_lowest_tick(low: float, high: float) -> None:
    axis = panels.latency_axis(low, high)
    assert axis["tickvals"][0] <= low
    assert 10 ** axis["range"][0] <= axis["tickvals"][0]
    assert axis["tickvals"] == sorted(set(axis["tickvals"]))
    assert len(axis["tickvals"]) >= 2


def test_a_tick_that_is_put_in_below_leaves_room_for_the_next_one() -> None:
    """Names that touch are turned by the browser; 200 and 300 µs of an axis to 30 ms did."""
    ticks = panels.latency_axis(270e3, 30e6)["tickvals"]
    assert ticks[:2] == [200e3, 1e6]
    assert panels.latency_axis(5e6, 66e6)["tickvals"][0] <= 5e6


def test_the_title_says_why_a_repetition_was_picked() -> None:
    frame = framed(run_record(2, per_host=2, blocks=2, runtime_s=2.0, loads=(LoadMode.TOGETHER,)))
    for picked, told in (("roughest", " of 4 (its roughest)"), (2, "repetition 2 of 4")):
        titles = [note.text for note in drawn(frame, "throughput_over_time", repetition=picked).layout.annotations]
        assert any(told in (title or "") for title in titles)
        assert any("roughest" in (title or "") for title in titles) == (picked == "roughest")
    assert "(log)" in drawn(frame, "p99_by_guest").layout.yaxis.title.text


def test_the_window_of_a_steady_state_is_drawn_over_the_rounds_of_the_fleet() -> None:
    """Eight rounds of calyx: the last five are shaded, with the allowed range around their mean and the line through them."""
    record = run_record(4, per_host=2, blocks=4, runtime_s=60.0)
    summary = summarise(record)
    row = next(one for one in summary.steady if not one.guest and one.engine == "calyx")
    assert (row.rounds, row.verdict, row.window_first, row.window_last) == (8, "steady", 3, 7)
    drawn = figures.load("steady")(frame_of(record, summary))
    points = next(trace for trace in drawn.data if trace.mode == "lines+markers")
    assert list(points.y) == pytest.approx([value / 1e6 for value in row.values])
    dashed = [trace for trace in drawn.data if trace.line.dash == "dash"]
    assert row.mean is not None
    assert [trace.y[0] for trace in dashed[:2]] == pytest.approx([0.9 * row.mean / 1e6, 1.1 * row.mean / 1e6])
    assert (drawn.layout.shapes[0].x0, drawn.layout.shapes[0].x1) == (3.5, 8.5)
    assert any("steady" in note.text for note in drawn.layout.annotations)
