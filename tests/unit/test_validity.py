"""Each rule strikes where it should and nowhere else, and says what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from measured import WORKLOAD, guest, measurement, round_

from calyx_orch.analysis.validity import RULES, Context, Doubt, doubts, union
from calyx_orch.model import CpuUse, Direction, Histogram, LostTime, Rw

VM = guest("vm1")
ROUND = round_(0, ["vm1"])
GOOD = measurement(VM, ROUND, 1000.0)
SECOND = 1_000_000_000


def context(**changes: Any) -> Context:
    return replace(Context(GOOD, ROUND, peers=(GOOD,), overlap=1.0, path="/data"), **changes)


def of(**changes: Any) -> Context:
    found = replace(GOOD, **changes)
    return context(measurement=found, peers=(found,))


def test_a_good_measurement_has_no_doubt() -> None:
    assert doubts(context()) == ()


BUSY = CpuUse(60 * SECOND, 2, busy_ns=118 * SECOND, engine_ns=1)
STOLEN = CpuUse(60 * SECOND, 2, busy_ns=1, engine_ns=1, steal_ns=6 * SECOND)
OTHER = replace(GOOD, guest="vm2", setup={**GOOD.setup, "took": "plain"})


DURABLE = replace(ROUND, workload=replace(WORKLOAD, rw=Rw.RANDWRITE, fdatasync=1))


def truth(**figures: int) -> dict[str, object]:
    """A guest's facts with what the probe after its layout found."""
    return {"truth": {"data": figures}}


@pytest.mark.parametrize(
    ("name", "label", "found"),
    [
        ("short", "short", context(round=round_(0, ["vm1"], workload=replace(WORKLOAD, ramp_s=9.0)))),
        ("overlap", "overlap 93 %", context(overlap=0.934)),
        ("skew", "skew 7.2 ms", of(skew_ns=7_200_000)),
        ("skew", "skew -7.2 ms", of(skew_ns=-7_200_000)),
        ("fio-start", "fio start 7.2 ms", of(skew_ns=7_200_000, engine="fio-libaio", skew_how="first-io")),
        ("start", "start unknown", of(skew_ns=None)),
        ("lost-time", "lost time 3 %", of(lost_time=LostTime(SECOND, 30_000_000, 9, 5_000_000))),
        ("steal", "steal 5 %", of(cpu=STOLEN)),
        ("unwritten", "unwritten extents", context(prepared={"files": [{"unwritten": 4096, "holes": None}]})),
        ("ram", "target in RAM", context(facts={"paths": [{"path": "/data", "is_ram": True}]})),
        ("buffers", "buffers not registered", of(setup={"fixed_buffers": False})),
        ("direct", "not direct", of(setup={"direct": False})),
        ("rate", "rate limited", context(round=replace(ROUND, rate_limited=True))),
        ("errors", "I/O errors", of(sync=Direction(0, 0, Histogram(), errors=2))),
        ("unfinished", "unfinished I/O", of(counts={"unfinished": 3})),
        ("set-ups", "set-ups differ", context(peers=(GOOD, OTHER))),
        ("missing", "1 guest missing", context(round=replace(ROUND, guests=("vm1", "vm2")))),
        ("cpu", "CPU saturated", of(cpu=BUSY)),
        ("samples", "few samples", of(read=Direction(999, 0, Histogram(((5, 999),))))),
        ("latency-kind", "completion latency", of(latency_kind="completion")),
        ("clock", "clock error", of(window_end_ns=GOOD.window_start_ns - 1)),
        ("runtime", "ran 50.0 s", of(window_end_ns=GOOD.window_start_ns + 50 * SECOND)),
        ("cache", "cache below", context(facts=truth(cold_read_ns=90_000, hot_read_ns=30_000))),
        ("flush", "flush at once", context(round=DURABLE, facts=truth(flush_write_ns=149_999))),
    ],
)
def test_a_rule_strikes_alone_with_its_label_and_a_way_out(name: str, label: str, found: Context) -> None:
    (doubt,) = doubts(found)
    assert (doubt.name, doubt.label) == (name, label)
    assert doubt.sentence
    assert doubt.remedy


@pytest.mark.parametrize(
    "found",
    [
        context(overlap=0.99),
        context(overlap=None),
        of(skew_ns=5_000_000),
        of(lost_time=LostTime(SECOND, 20_000_000, 9, 5_000_000)),
        of(lost_time=LostTime(0, 0, 0, 0)),
        context(facts={"paths": [{"path": "/other", "is_ram": True}]}),
        context(prepared={"files": [{"unwritten": 0, "holes": 0}]}),
        context(prepared={"files": None}),
        of(cpu=None),
        of(setup={}),
        of(read=Direction(1000, 0, Histogram(((5, 1000),)))),
        context(peers=(GOOD, replace(OTHER, status="failed")), round=ROUND),
        context(facts=truth(cold_read_ns=89_999, hot_read_ns=30_000)),
        context(facts=truth(cold_read_ns=90_000, hot_read_ns=0)),
        context(facts={"truth": "nonsense"}),
        context(round=DURABLE, facts=truth(flush_write_ns=150_000)),
        context(facts=truth(flush_write_ns=20_000)),
        context(
            measurement=replace(GOOD, setup={"fixed_buffers": False}),
            round=round_(0, ["vm1"], workload=replace(WORKLOAD, buffers="plain")),
        ),
    ],
)
def test_no_rule_strikes_at_its_border_or_without_facts(found: Context) -> None:
    assert doubts(found) == ()


def test_of_one_rule_the_heaviest_doubt_is_kept() -> None:
    mild, bad = Doubt("overlap", "overlap 98 %", "", "", 0.02), Doubt("overlap", "overlap 50 %", "", "", 0.5)
    assert union([mild, bad, mild]) == (bad,)


def test_every_rule_has_a_docstring() -> None:
    assert all(rule.__doc__ for rule in RULES)


def test_a_gate_that_opened_in_time_is_no_first_io() -> None:
    """The gate may open on the line and fio's first I/O come any time later: neither a skew nor a late start is known."""
    for skew_ns in (20_000, 7_200_000):
        (doubt,) = doubts(of(skew_ns=skew_ns, engine="fio-libaio", skew_how="released"))
        assert (doubt.name, doubt.label) == ("start", "gate only")


def test_the_late_start_of_fio_is_told_as_its_own() -> None:
    (doubt,) = doubts(of(skew_ns=7_200_000, engine="fio-libaio", skew_how="first-io"))
    assert doubt.label == "fio start 7.2 ms"
    assert doubt.sentence == "fio's own start-up up to its first I/O, at which its window begins"
    assert "overloaded" not in doubt.remedy
