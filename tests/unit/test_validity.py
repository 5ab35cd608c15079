"""Each rule strikes where it should and nowhere else, and says what to do."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from typing import Any

import pytest
from measured import WORKLOAD, guest, measurement, round_

from calyx_orch.analysis import below, doubt, timing, validity
from calyx_orch.analysis.validity import RULES, Context, Doubt, doubts, peers_of, union
from calyx_orch.model import CpuUse, Direction, Histogram, Limits, LostTime, Rw, Series
from calyx_orch.report import sharing

VM = guest("vm1")
ROUND = round_(0, ["vm1"])
GOOD = measurement(VM, ROUND, 1000.0)
SECOND = 1_000_000_000


def context(**changes: Any) -> Context:
    return replace(Context(GOOD, ROUND, peers=peers_of([GOOD]), overlap=1.0, path="/data"), **changes)


def of(**changes: Any) -> Context:
    found = replace(GOOD, **changes)
    return context(measurement=found, peers=peers_of([found]))


def test_a_good_measurement_has_no_doubt() -> None:
    assert doubts(context()) == ()


BUSY = CpuUse(60 * SECOND, 2, busy_ns=118 * SECOND, engine_ns=1)
STOLEN = CpuUse(60 * SECOND, 2, busy_ns=1, engine_ns=1, steal_ns=6 * SECOND)
POLLING = CpuUse(60 * SECOND, 4, busy_ns=60 * SECOND, engine_ns=1, poller_ns=47 * SECOND, pollers=1)
SQPOLL = {**GOOD.setup, "sqpoll": True}
OTHER = replace(GOOD, guest="vm2", setup={**GOOD.setup, "took": "plain"})


DURABLE = replace(ROUND, workload=replace(WORKLOAD, rw=Rw.RANDWRITE, fdatasync=1))


def truth(**figures: int) -> dict[str, object]:
    """A guest's facts with what the probe after its layout found."""
    return {"truth": {"data": figures}}


def buffered(*, files: int, memory: int, direct: bool = False) -> Context:
    """A round of buffered I/O by two jobs on a guest with some memory."""
    one = replace(ROUND, workload=replace(WORKLOAD, direct=direct, numjobs=2, size_bytes=files // 2))
    return context(round=one, facts={"memory_bytes": memory})


def idle(intervals: int, *, ios: float = 100.0, before: int = 100) -> Series:
    """60 s of which a stretch of 100 ms intervals has no I/O."""
    column = (ios,) * before + (0.0,) * intervals + (ios,) * (600 - before - intervals)
    zeros = (0.0,) * 600
    return Series(100_000_000, column, tuple(4096 * value for value in column), zeros, zeros)


def levels(first: float, then: float) -> Series:
    """60 s of 100 ms intervals, the first 15 s at another level."""
    column = (first,) * 150 + (then,) * 450
    return Series(100_000_000, column, tuple(4096 * value for value in column), (0.0,) * 600, (0.0,) * 600)


def written(fs_type: str, options: str, engine: str = "fio-libaio", **changes: Any) -> Context:
    """A round that writes onto a file system."""
    one = replace(ROUND, engine=engine, workload=replace(WORKLOAD, rw=Rw.RANDWRITE, **changes))
    found = replace(GOOD, engine=engine)
    facts = {"paths": [{"path": "/data", "fs_type": fs_type, "mount_options": options}]}
    return context(round=one, measurement=found, peers=peers_of([found]), facts=facts)


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
        ("implausible", "implausible", context(limits=Limits(max_read_bytes_per_s=4_000_000))),
        ("buffers", "buffers not registered", of(setup={"fixed_buffers": False})),
        ("direct", "not direct", of(setup={"direct": False})),
        ("rate", "rate limited", context(round=replace(ROUND, rate_limited=True))),
        ("errors", "I/O errors", of(sync=Direction(0, 0, Histogram(), errors=2))),
        ("unfinished", "unfinished I/O", of(counts={"unfinished": 3})),
        ("set-ups", "set-ups differ", context(peers=peers_of([GOOD, OTHER]))),
        ("missing", "1 guest missing", context(round=replace(ROUND, guests=("vm1", "vm2")))),
        ("rebooted", "rebooted", of(doubts=("rebooted",))),
        ("cpu", "CPU saturated", of(cpu=BUSY)),
        ("samples", "few samples", of(read=Direction(999, 0, Histogram(((5, 999),))))),
        ("latency-kind", "completion latency", of(latency_kind="completion")),
        ("clock", "clock error", of(window_end_ns=GOOD.window_start_ns - 1)),
        ("clock", "clock ± 4200 ms", of(skew_bound_ns=4_200_000_000)),
        ("runtime", "ran 50.0 s", of(window_end_ns=GOOD.window_start_ns + 50 * SECOND)),
        ("page-cache", "page cache", buffered(files=2 << 30, memory=(1 << 30) + 1)),
        ("cache", "cache below", context(facts=truth(cold_read_ns=90_000, hot_read_ns=30_000))),
        ("stalled", "stalled 3.0 s", of(series=idle(30))),
        ("compressible", "compressible", written("btrfs", "rw,relatime,ssd,compress=zstd:3,subvol=/")),
        ("sqpoll", "SQPOLL starved", of(cpu=POLLING, setup=SQPOLL)),
        ("clocksource", "clocksource acpi_pm", context(facts={"clocksource": "acpi_pm"})),
        ("small", "small files", context(round=replace(ROUND, workload=replace(WORKLOAD, size_bytes=(1 << 30) - 1)))),
        ("other-io", "device not idle", of(doubts=("device not idle",))),
        (
            "vm-host",
            "other vm_host",
            replace(of(vm_host="hv1"), facts={"vm_host": {"kvp": "hv2.corp", "smbios": None}}),
        ),
        ("moved", "moved", context(facts={"vm_host": {"kvp": "hv1"}, "vm_host_at_end": {"kvp": "hv2"}})),
        ("plateau", "fell at 25 s", of(series=levels(1000.0, 600.0))),
        ("unsteady", "not steady", of(series=levels(700.0, 1000.0))),
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
        of(skew_bound_ns=100_000_000),
        of(lost_time=LostTime(SECOND, 20_000_000, 9, 5_000_000)),
        of(lost_time=LostTime(0, 0, 0, 0)),
        context(facts={"paths": [{"path": "/other", "is_ram": True}]}),
        context(prepared={"files": [{"unwritten": 0, "holes": 0}]}),
        context(prepared={"files": None}),
        of(cpu=None),
        of(setup={}),
        of(read=Direction(1000, 0, Histogram(((5, 1000),)))),
        context(peers=peers_of([GOOD, replace(OTHER, status="failed")]), round=ROUND),
        context(facts=truth(cold_read_ns=89_999, hot_read_ns=30_000)),
        context(facts=truth(cold_read_ns=90_000, hot_read_ns=0)),
        context(facts={"truth": "nonsense"}),
        context(round=DURABLE, facts=truth(flush_write_ns=150_000)),
        context(facts=truth(flush_write_ns=20_000)),
        buffered(files=2 << 30, memory=1 << 30),
        buffered(files=1 << 30, memory=1 << 31, direct=True),
        replace(buffered(files=1 << 20, memory=1), facts={}),
        of(series=idle(4)),
        of(series=levels(1100.0, 1000.0)),
        of(cpu=replace(POLLING, poller_ns=48 * SECOND), setup=SQPOLL),
        of(cpu=POLLING, setup=SQPOLL, counts={"wakeups": 61}),  # it slept, as it had nothing to do
        of(cpu=replace(POLLING, poller_ns=None, pollers=0), setup=SQPOLL),
        of(cpu=POLLING),
        replace(of(vm_host="hv1"), facts={"vm_host": {"kvp": "HV1.corp.example"}}),
        context(facts={"vm_host": {"kvp": "hv2"}}),  # none is declared
        context(facts={"vm_host": {"kvp": "hv1"}, "vm_host_at_end": {"smbios": "hv2"}}),  # told by another
        context(facts={"vm_host": "nonsense", "vm_host_at_end": {"kvp": 7}}),
        context(facts={"clocksource": "kvm-clock"}),
        context(round=replace(ROUND, workload=replace(WORKLOAD, size_bytes=1 << 28, numjobs=4))),
        of(series=None),
        written("btrfs", "rw,compress=no"),
        written("btrfs", "rw,ssd"),
        written("ext4", "rw,compress=zstd"),
        written("zfs", "rw", engine="calyx"),
        written("zfs", "rw", bs_bytes=128 << 10),
        written("zfs", "rw", dedupe_percentage=50),
        replace(written("zfs", "rw"), round=ROUND),
        replace(written("zfs", "rw"), facts={"paths": "nonsense"}),
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


def names(found: Context) -> list[str]:
    return [doubt.name for doubt in doubts(found)]


@pytest.mark.parametrize(("before", "label"), [(0, "stalled 5.0 s"), (550, "stalled 5.0 s"), (100, "stalled 5.0 s")])
def test_a_stall_is_found_at_the_beginning_in_the_midst_and_at_the_end(before: int, label: str) -> None:
    assert [doubt.label for doubt in doubts(of(series=idle(50, before=before)))] == [label]


def test_a_workload_that_is_slow_by_itself_is_not_stalled() -> None:
    """An I/O each two seconds: a gap of two seconds is what it does."""
    slow = tuple(1.0 if number % 20 == 0 else 0.0 for number in range(600))
    zeros = (0.0,) * 600
    read = Direction(30, 30 * 4096, Histogram(((5, 30),)))
    assert "stalled" not in names(of(read=read, series=Series(100_000_000, slow, slow, zeros, zeros)))


def test_what_a_workload_thinks_is_no_stall() -> None:
    thinking = round_(0, ["vm1"], workload=replace(WORKLOAD, thinktime_us=3_000_000, thinktime_blocks=1000))
    assert "stalled" not in names(replace(of(series=idle(30)), round=thinking))
    assert "stalled" in names(replace(of(series=idle(36)), round=thinking))


def test_a_window_without_a_single_io_is_stalled() -> None:
    nothing = of(read=None, series=idle(600, before=0))
    assert [doubt.label for doubt in doubts(nothing) if doubt.name == "stalled"] == ["stalled 60.0 s"]


@pytest.mark.parametrize(
    ("fs_type", "options"),
    [
        ("zfs", "rw,xattr,noacl"),
        ("btrfs", "rw,compress-force=lzo"),
        ("btrfs", "rw,compress"),
        ("bcachefs", "rw,background_compression=zstd"),
        ("f2fs", "rw,compress_algorithm=lz4,compress_log_size=2"),
    ],
)
def test_fio_writing_onto_what_compresses_is_doubtful(fs_type: str, options: str) -> None:
    (doubt,) = doubts(written(fs_type, options))
    assert (doubt.name, fs_type in doubt.sentence) == ("compressible", True)


def test_every_rule_is_called_the_same_in_every_table() -> None:
    """The label of a rule without its figure; of two labels of one rule, either."""
    labels: dict[str, set[str]] = {}
    for module in (validity, below, timing):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "Doubt"
                and isinstance(node.args[0], ast.Constant)
            ):
                label = node.args[1]
                told = label.value if isinstance(label, ast.Constant) else None
                labels.setdefault(str(node.args[0].value), set()).add(str(told) if told else "")
    plain = {name: told - {""} for name, told in labels.items()}
    assert len(plain) > 30
    assert {name for name, told in plain.items() if told and doubt.label_of(name) not in told} == set()
    assert set(doubt.LABELS) <= set(plain)
    assert sharing.named_doubts(["short", "lost-time", "cpu"]) == "lost time, CPU saturated"
