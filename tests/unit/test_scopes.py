"""A run by place: which nights belong to one series, and what a figure of a vm_host is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calyx_orch.analysis import compare, sides
from calyx_orch.analysis.histogram import merge, percentile_or_none
from calyx_orch.analysis.scopes import scope_rows, series_key
from calyx_orch.analysis.summary import summarise
from calyx_orch.model import LoadMode, RunRecord
from report_records import run_record

CASE = Path(__file__).parent.parent / "golden" / "statistics" / "A-112"


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return run_record(2, per_host=2, blocks=2, runtime_s=2.0, loads=(LoadMode.TOGETHER,))


def key_with(record: RunRecord, **facts: Any) -> str:
    told = replace(record, facts={name: {**known, **facts} for name, known in record.facts.items()})
    return series_key(told, ("hv1-vm01",), "randread-4k", "calyx", ())


def test_a_guest_that_jitters_from_boot_to_boot_stays_one_series(record: RunRecord) -> None:
    """A-112: MHz and bogomips differ each time; model, cores and kernel do not."""
    boots = json.loads((CASE / "hosts_jitter.json").read_text())
    keys = {
        key_with(
            record,
            cpu_model=one["model"],
            cpus=one["cores"],
            kernel=one["kernel"],
            mhz=one["mhz"],
            bogomips=one["bogomips"],
        )
        for one in boots
    }
    assert len(keys) == json.loads((CASE / "expected.json").read_text())["keys"]


@pytest.mark.parametrize("changed", [{"kernel": "6.12.1"}, {"cpus": 8}, {"cpu_model": "EPYC 9654"}])
def test_an_other_make_of_guest_begins_a_new_series(record: RunRecord, changed: dict[str, Any]) -> None:
    assert key_with(record, **changed) != key_with(record)


def test_other_io_under_the_same_name_begins_a_new_series(record: RunRecord) -> None:
    rounds = tuple(replace(r, workload=replace(r.workload, iodepth=64)) for r in record.plan.rounds)
    other = replace(record, plan=replace(record.plan, rounds=rounds))
    assert series_key(other, (), "randread-4k", "calyx", ()) != series_key(record, (), "randread-4k", "calyx", ())


def test_fio_begins_a_new_series_by_its_version_for_itself_alone(record: RunRecord) -> None:
    newer = replace(record, facts={name: {**known, "fio": {"version": "3.39"}} for name, known in record.facts.items()})
    args = (("hv1-vm01",), "randread-4k")
    assert series_key(newer, *args, "fio-io_uring", ()) != series_key(record, *args, "fio-io_uring", ())
    assert series_key(newer, *args, "calyx", ()) == series_key(record, *args, "calyx", ())


def test_a_vm_host_has_the_merged_buckets_of_its_guests_and_the_mean_of_their_rates(record: RunRecord) -> None:
    rows = {(row.scope, row.name, row.workload, row.engine): row for row in scope_rows(record)}
    host = rows["vm_host", "hv1", "randread-4k", "calyx"]
    guests = [rows["guest", name, "randread-4k", "calyx"] for name in ("hv1-vm01", "hv1-vm02")]
    assert host.latency == merge(row.latency for row in guests)
    assert host.throughput_bytes_per_s == pytest.approx(sum(row.throughput_bytes_per_s or 0 for row in guests) / 2)
    assert (host.guests, host.units) == (2, 4)
    assert [row.units for row in guests] == [2, 2]


def at_share(record: RunRecord, rate_iops: int) -> RunRecord:
    """Its workloads as open loops at half of a capacity that led to this rate."""
    rounds = tuple(
        replace(r, workload=replace(r.workload, arrival="constant", load_share=0.5, rate_iops=rate_iops))
        for r in record.plan.rounds
    )
    return replace(record, plan=replace(record.plan, rounds=rounds))


def test_nights_at_one_share_of_the_capacity_are_one_series_whatever_rate_that_was(record: RunRecord) -> None:
    args = ((), "randread-4k", "calyx", ())
    assert series_key(at_share(record, 900), *args) == series_key(at_share(record, 950), *args)
    named = replace(record, plan=replace(record.plan, rounds=at_share(record, 900).plan.rounds))
    other = tuple(replace(r, workload=replace(r.workload, load_share=None)) for r in named.plan.rounds)
    assert series_key(replace(named, plan=replace(named.plan, rounds=other)), *args) != series_key(named, *args)


def opened(record: RunRecord) -> RunRecord:
    """Its workloads as open loops."""
    rounds = tuple(
        replace(r, workload=replace(r.workload, arrival="constant", rate_iops=900)) for r in record.plan.rounds
    )
    return replace(record, plan=replace(record.plan, rounds=rounds))


def test_the_latencies_of_an_open_loop_count_from_when_its_ios_were_due(record: RunRecord) -> None:
    """An I/O that waited for a place in the queue has waited."""
    waited = tuple(
        replace(m, read=replace(m.read, latency_intended=replace(m.read.latency, buckets=((2000, 5000),))))
        if m.engine == "calyx" and m.read is not None
        else m
        for m in record.measurements
    )
    rows = {
        (row.name, row.engine): row
        for row in scope_rows(replace(opened(record), measurements=waited))
        if row.workload == "randread-4k" and row.scope == "vm_host"
    }
    assert {index for index, _ in rows["hv1", "calyx"].latency.buckets} == {2000}
    assert rows["hv1", "calyx"].p99_ns == percentile_or_none(rows["hv1", "calyx"].latency, 99.0)
    assert len(rows["hv1", "fio-io_uring"].latency.buckets) > 10


class Work:
    """Counts how often a name of a guest, or an entry of its set-up, is looked at."""

    def __init__(self) -> None:
        self.looks = 0

    def name(self, text: str) -> str:
        work = self

        class Name(str):
            __slots__ = ()

            def __hash__(self) -> int:
                work.looks += 1
                return str.__hash__(self)

            def __eq__(self, other: object) -> bool:
                work.looks += 1
                return str.__eq__(self, other)

        return Name(text)

    def setup(self, of: Any) -> Any:
        work = self

        class Setup(dict[str, Any]):
            def get(self, key: str, default: Any = None) -> Any:
                work.looks += 1
                return dict.get(self, key, default)

        return Setup(of)

    def on(self, record: RunRecord) -> RunRecord:
        """The record with its guests' names and set-ups counted."""
        names = {guest.name: self.name(guest.name) for guest in record.plan.inventory.guests}
        inventory = replace(
            record.plan.inventory,
            guests=tuple(replace(guest, name=names[guest.name]) for guest in record.plan.inventory.guests),
        )
        rounds = tuple(replace(r, guests=tuple(names[name] for name in r.guests)) for r in record.plan.rounds)
        measured = tuple(
            replace(m, guest=names[m.guest], setup=self.setup(m.setup), status="ok")
            for m in record.measurements
            if m.status == "ok"
        )
        facts = {names[name]: told for name, told in record.facts.items()}
        plan = replace(record.plan, inventory=inventory, rounds=rounds)
        self.looks = 0
        return replace(record, plan=plan, measurements=measured, facts=facts)


@pytest.mark.parametrize(
    "look",
    [
        scope_rows,
        summarise,
        lambda record: compare.compare(sides.by_fact(record, "guest"), fact="guest"),
        lambda record: compare.compare(sides.by_fact(record, "vm_host"), fact="vm_host"),
    ],
    ids=["index", "summary", "compare by guest", "compare by vm_host"],
)
def test_the_work_grows_as_the_fleet_does_and_not_as_its_square(look: Any) -> None:
    """Four times the guests are four times the looks at them: with a fleet of thousands a square is minutes."""
    looks = []
    for guests in (16, 64):
        work = Work()
        counted = work.on(run_record(guests, per_host=4, blocks=1, runtime_s=0.5))
        look(counted)
        looks.append(work.looks)
    assert looks[0] > 100
    assert looks[1] < 4.6 * looks[0]
