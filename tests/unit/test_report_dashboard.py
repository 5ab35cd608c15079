"""Dashboards: the packaged fleet page is the one in dashboards/, and every slip is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from calyx_orch.errors import UsageError
from calyx_orch.report import dashboard, figures

ROOT = Path(__file__).parents[2]


def faults(text: str) -> list[str]:
    with pytest.raises(UsageError) as caught:
        dashboard.parse(text, "d.yaml")
    return str(caught.value).splitlines()


KINDS = tuple(dashboard.PACKAGED)


@pytest.mark.parametrize("path", dashboard.PACKAGED.values(), ids=KINDS)
def test_the_dashboards_in_the_repository_are_the_packaged_ones(path: Path) -> None:
    assert (ROOT / "dashboards" / path.name).read_text() == path.read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_a_packaged_page_lists_every_figure_of_its_kind_and_none_twice(kind: str) -> None:
    """The same figure with other options is another one: trends of throughput, and of P99."""
    board = dashboard.read(None, kind)
    assert sorted({entry.figure for entry in board.entries}) == list(figures.names(kind))
    listed = [(entry.figure, tuple(sorted(entry.options.items()))) for entry in board.entries]
    assert len(set(listed)) == len(listed)
    assert all(entry.title for entry in board.entries)


def test_options_get_the_type_of_the_figure() -> None:
    board = dashboard.parse(
        "figures:\n- figure: throughput_over_time\n  options: {repetition: '2', points: 60, workloads: [a, b]}\n", "d"
    )
    assert board.entries[0].options == {"repetition": 2, "points": 60, "workloads": ["a", "b"]}
    assert board.entries[0].title == "Throughput over time of all guests on one axis"


def test_every_slip_is_told_with_its_line_and_a_way_out() -> None:
    told = faults(
        "figures:\n"
        "  - figure: p99_by_gust\n"
        "  - figure: cv_by_guest\n"
        "    options:\n"
        "      lod: alone\n"
        "      kind: sideways\n"
        "  - figure: latency_distribution\n"
        "    options: {points: many}\n"
    )
    assert len(told) == 4
    assert told[0].startswith("d.yaml:2:13: unknown figure 'p99_by_gust' (did you mean 'p99_by_guest'?); there are ")
    assert told[1].startswith("d.yaml:5:7: unknown option 'lod' of cv_by_guest (did you mean 'load'?); it has ")
    assert told[2].startswith(
        "d.yaml:6:13: option 'kind' of cv_by_guest: input should be 'within', 'between' or 'both'"
    )
    assert told[3].startswith("d.yaml:8:23: option 'points' of latency_distribution: ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "d.yaml"),
        ("figures: []\n", "d.yaml: no figure is listed under `figures:`"),
        ("figure: x\n", "unknown key 'figure' (did you mean 'figures'?)"),
        ("figures:\n- figure: [\n", "not readable as YAML"),
        ("figures:\n- title: only\n", "missing key 'figure'"),
        ("figures:\n- figure: panels\n", "unknown figure 'panels'"),
        ("figures:\n- figure: ../../x\n", "unknown figure"),
    ],
)
def test_a_file_that_lists_nothing_to_draw_is_refused(text: str, told: str) -> None:
    assert any(told in line for line in faults(text))


def test_a_dashboard_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        dashboard.read(tmp_path / "none.yaml")


def test_the_docs_name_every_figure_and_every_option() -> None:
    text = (ROOT / "docs" / "report.md").read_text()
    for kind in KINDS:
        for name in figures.names(kind):
            row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
            for option in figures.options_of(name, kind):
                assert f"`{option}`" in (text if option in ("workloads", "load") else row), (name, option)


def test_a_value_that_is_offered_is_spelt_as_it_must_be_written() -> None:
    (told,) = faults("figures:\n- figure: throughput_over_time\n  options: {unit: iops}\n")
    assert told.endswith("option 'unit' of throughput_over_time: input should be 'MB/s' or 'IOPS'")


def test_a_figure_without_a_title_gets_words_and_not_the_name_of_its_module() -> None:
    titles = {name: figures.title_of(name, kind) for kind in KINDS for name in figures.names(kind)}
    assert titles["calyx_vs_fio"] == "calyx against fio"
    assert titles["p99_by_guest"] == "A latency percentile by guest"
    assert all("_" not in title and 5 < len(title) < 60 and title[-1] not in ".,:" for title in titles.values()), titles


def test_a_figure_of_another_kind_of_page_is_unknown() -> None:
    with pytest.raises(UsageError, match="unknown figure 'nights'"):
        dashboard.parse("figures:\n- figure: nights\n", "d.yaml")
    assert dashboard.parse("figures:\n- figure: nights\n", "d.yaml", figures.HISTORY).kind == figures.HISTORY
