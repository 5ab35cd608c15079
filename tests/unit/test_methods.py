"""docs/methods.md names every field that a reader can meet, and nothing that does not exist."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from test_validity import test_a_rule_strikes_alone_with_its_label_and_a_way_out as struck

from calyx_orch.analysis import budgets, compare, comparison, history, regression, rows, scopes, significance, validity
from calyx_orch.analysis.comparisons import INTERFERED, PAIRED, PLACE
from calyx_orch.report.history import METRICS as METRICS_OF_NIGHTS

METHODS = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
SECTIONS = {
    rows.GuestRow: "A guest's row",
    rows.FleetRow: "The fleet's row",
    rows.PairRow: "calyx against fio",
    rows.InterferenceRow: "Together against alone",
    rows.DoubtRow: "Doubts",
    rows.FairnessRow: "Fairness",
    rows.PartsRow: "Variance",
    rows.SteadyRow: "Steady state",
    rows.DensityRow: "Density",
    rows.CarriedRow: "Guests that a place carries",
}

TABLES = {
    comparison.ComparisonRow: "One side against another",
    significance.Effect: "An effect",
    budgets.Finding: "Budgets",
    scopes.ScopeRow: "A night in the store",
    regression.Incident: "An incident",
    regression.Suspect: "A suspect",
}


def section(title: str) -> str:
    return METHODS.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(title: str) -> set[str]:
    """The names in backquotes in the first cell of each row of a section's tables."""
    lines = [line for line in section(title).splitlines() if line.startswith("| `")]
    return {name for line in lines for name in re.findall(r"`([a-z_0-9-]+)`", line.split("|")[1])}


@pytest.mark.parametrize(("row", "title"), SECTIONS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_every_field_of_a_row_is_documented_and_every_documented_field_exists(row: type, title: str) -> None:
    names = {field.name for field in fields(row)}  # type: ignore[arg-type]
    if row is rows.PairRow:
        names |= {field.name for field in fields(rows.FleetPairRow)}
    documented = first_cells(title) - ({*rule_names(), PLACE} if row is rows.DoubtRow else set())
    assert documented == names


def part(title: str) -> str:
    """The text from a heading of any depth to the next one."""
    return re.split(rf"^#+ {re.escape(title)}$", METHODS, flags=re.MULTILINE)[1].split("\n#")[0]


def rows_of(title: str) -> dict[str, list[str]]:
    """The cells beside each name in backquotes of a table's first column."""
    lines = [line.split(" | ") for line in part(title).splitlines() if line.startswith("| `")]
    return {name: cells[1:] for cells in lines for name in re.findall(r"`([\w.%/ -]+)`", cells[0])}


@pytest.mark.parametrize(("row", "title"), TABLES.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_all_that_comparisons_budgets_store_and_history_show_is_documented(row: type, title: str) -> None:
    assert set(rows_of(title)) == {field.name for field in fields(row)}  # type: ignore[arg-type]


def test_every_metric_that_is_compared_has_a_formula_a_unit_and_the_direction_that_decides() -> None:
    told = rows_of("Metrics of a comparison")
    assert set(told) == {metric.name for metric in compare.METRICS}
    for metric in compare.METRICS:
        formula, unit, better = told[metric.name][:3]
        assert formula
        assert unit
        assert better == ("higher" if metric.more_is_better else "lower"), metric.name


def test_every_metric_of_budgets_and_histories_has_the_direction_that_decides() -> None:
    budget = rows_of("Metrics of a budget")
    assert set(budget) == set(budgets.MEASURES) == set(METRICS_OF_NIGHTS)
    night = rows_of("A night in the store")
    for name, field in METRICS_OF_NIGHTS.items():
        assert night[field][2] == history.BETTER[field] == budget[name][2], name


def rule_names() -> set[str]:
    (mark,) = [mark for mark in struck.pytestmark if mark.name == "parametrize"]
    return {name for name, _, _ in mark.args[1]}


def test_every_rule_is_documented_by_its_name() -> None:
    """The names come from the test in which each rule strikes."""
    assert {*rule_names(), PLACE} <= first_cells("Doubts")
    assert len(rule_names()) == len(validity.RULES)


def test_every_metric_is_documented() -> None:
    assert all(f"`{name}`" in section("calyx against fio") for name, _ in PAIRED)
    assert all(f"`{name}`" in section("Together against alone") for name, _ in INTERFERED)


def test_every_field_of_one_direction_is_documented() -> None:
    assert all(f"`{field.name}`" in section("A guest's row") for field in fields(rows.WayRow))
