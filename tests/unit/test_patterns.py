"""The plan shows what each workload is: its pattern in fio's words, its time and what bounds it."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from calyx_orch import plan as planning
from calyx_orch.model import Connection, Guest, Impact, Inventory, Plan, Rw, Target, Workload
from calyx_orch.report import patterns, terminal

READ = Workload("reads", Rw.RANDREAD, bs_bytes=4096, iodepth=32, numjobs=2, size_bytes=4 << 30)


def plan_for(*workloads: Workload, impact: Impact | None = None) -> Plan:
    guest = Guest("vm1", Connection("vm1"), (Target("data", "/data"),))
    return planning.make(Inventory("test", (guest,), workloads, repetitions=1, impact=impact or Impact()), seed=1)


def row(plan: Plan) -> dict[str, str]:
    """The only workload of a plan, by column."""
    (one,) = patterns.patterns(plan)
    return {field.title: field.text(one) for field in patterns.FIELDS}


def test_a_row_says_the_pattern_in_fios_words() -> None:
    """What the inventory says, with its units, and the defaults of what it does not say."""
    assert row(plan_for(READ)) == {
        "workload": "reads", "rw": "randread", "bs": "4k", "iodepth": "32", "numjobs": "2", "size": "4 GiB", "ramp": "10 s",
        "runtime": "1 min", "rate": "", "kind": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "column", "told"),
    [
        ({"rw": Rw.RANDRW, "rwmixread": 70}, "rw", "randrw 70/30"),
        ({"bssplit": ((4096, 60), (65536, 40)), "bs_bytes": 65536}, "bs", "4k/60:64k/40"),
        ({"rate_iops": 500}, "rate", "500 IOPS a job"),
        ({"rate_bytes_per_s": 20_000_000}, "rate", "20 MB/s a job"),
        ({"find": "iops_at p99<2ms", "arrival": "constant"}, "rate", "iops_at p99<2ms"),
        ({"runtime_s": 1.5}, "runtime", "1.5 s"),
        ({"runtime_s": 1.5, "direct": False}, "kind", "buffered, short"),
    ],
)
def test_what_is_out_of_the_ordinary_is_told(changes: dict[str, object], column: str, told: str) -> None:
    """Mixes, splits, rates, searches, and the labels that its tables will have."""
    assert row(plan_for(replace(READ, **changes)))[column] == told  # type: ignore[arg-type]


def test_a_rate_that_impact_sets_is_marked() -> None:
    """The inventory's own words do not say it, so the table says whose it is."""
    bounded = row(plan_for(READ, impact=Impact(max_rate_bytes_per_s=8 << 20)))["rate"]
    assert bounded.endswith("(impact)")
    assert bounded[0].isdigit()


@pytest.mark.parametrize("width", [80, 160])
def test_a_dry_run_shows_each_workload_once(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside its rounds; nothing of a workload is left out at 80 columns but its kind."""
    monkeypatch.setenv("COLUMNS", str(width))
    plan = plan_for(
        READ, replace(READ, name="mixed-8k", rw=Rw.RANDRW, bs_bytes=8192, rate_iops=100, size_bytes=1 << 30)
    )
    out = io.StringIO()
    terminal.dry_run(plan, planning.describe(plan), Console(file=out, highlight=False))
    (head,) = [line.split() for line in out.getvalue().splitlines() if line.startswith("workload ") and " rw " in line]
    assert head[:9] == ["workload", "rw", "bs", "iodepth", "numjobs", "size", "ramp", "runtime", "rate"]
    (mixed,) = [
        line.split() for line in out.getvalue().splitlines() if line.startswith("mixed-8k ") and "50/50" in line
    ]
    assert mixed[:4] == ["mixed-8k", "randrw", "50/50", "8k"]
