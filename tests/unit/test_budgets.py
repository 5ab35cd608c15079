"""Budgets: what they say, whom they are held against, and what a CI system is shown."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from calyx_orch.analysis import budgets, compare, sides
from calyx_orch.analysis.summary import summarise
from calyx_orch.errors import UsageError
from calyx_orch.model import LoadMode
from calyx_orch.report import junit
from report_records import run_record

RECORD = run_record(3, per_host=3, blocks=3, runtime_s=2.0, loads=(LoadMode.TOGETHER,))


@pytest.mark.parametrize(
    ("text", "engine", "workload", "metric", "is_ceiling", "limit"),
    [
        ("randread-4k.p99<2ms", "calyx", "randread-4k", "p99", True, 2e6),
        ("fio-io_uring:seq*.p99.9 < 1.5s", "fio-io_uring", "seq*", "p99.9", True, 1.5e9),
        ("seqread-1m.throughput>1GB/s", "calyx", "seqread-1m", "throughput", False, 1e9),
        ("randread-4k.p50<250us", "calyx", "randread-4k", "p50", True, 250e3),
        ("a.b.iops>50_000", "calyx", "a.b", "iops", False, 50_000),
        ("x.cv<3%", "calyx", "x", "cv", True, 0.03),
        ("x.cv<500%", "calyx", "x", "cv", True, 5.0),  # bursts vary by several times their mean
    ],
)
def test_a_budget_is_read(text: str, engine: str, workload: str, metric: str, is_ceiling: bool, limit: float) -> None:
    assert budgets.parse(text) == budgets.Budget(text, engine, workload, metric, is_ceiling, pytest.approx(limit))


@pytest.mark.parametrize(
    "text", ["", "randread-4k.p99", "randread-4k.p98<2ms", "p99<2ms", "x.p99<fast", "x.p99<2m", "x.p99<2", "x.p99=2ms"]
)
def test_what_is_no_budget_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="budget"):
        budgets.parse(text)


def test_every_guest_is_held_to_a_budget() -> None:
    """The second guest does just below 40 thousand IOPS, the first above; the third was lost half-way and is still held."""
    summary = summarise(RECORD)
    rates = {
        row.guest: row.iops or 0 for row in summary.guests if (row.workload, row.engine) == ("randread-4k", "calyx")
    }
    middle = sorted(rates.values())[1]
    found = budgets.findings([budgets.parse(f"randread-4k.iops>{middle + 1:.0f}")], summary)
    assert {one.about.split()[0]: one.state for one in found} == {
        guest: "kept" if rate > middle + 1 else "broken" for guest, rate in rates.items()
    }
    assert sorted(one.state for one in found) == ["broken", "broken", "kept"]


def test_a_budget_about_nothing_is_unknown_and_never_kept() -> None:
    (found,) = budgets.findings([budgets.parse("randraed-4k.p99<2ms")], summarise(RECORD))
    assert (found.state, found.said) == ("unknown", "no workload randraed-4k by calyx is in this run")


def test_a_regression_is_broken_only_when_it_is_certain_and_larger_than_allowed() -> None:
    by_engine = compare.compare(sides.by_fact(RECORD, "engine"), fact="engine")
    told = {one.about: one.state for one in budgets.regressions(by_engine, 0.10)}
    assert told["randread-4k data together : CPU per I/O"] == "broken"  # 29.8 % more
    assert {state for about, state in told.items() if about.endswith("throughput")} == {"kept"}
    assert {one.state for one in budgets.regressions(by_engine, 0.40)} <= {"kept", "unknown"}


def test_junit_shows_lost_guests_and_broken_budgets_as_failures() -> None:
    asked = [budgets.parse(text) for text in ("randread-4k.iops>1", "x.iops>1", "seqwrite-1m.iops>999999999")]
    found = budgets.findings(asked, summarise(RECORD))
    suite = ET.fromstring(junit.text_of("a <fleet>\x1b[1m", found, RECORD.outcomes)).find("testsuite")
    assert suite is not None
    assert suite.get("name") == "a <fleet>\\x1b[1m"
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("10", "4", "1")
    assert next(one.get("type") for one in suite.iter("failure")) == "lost"
