"""A run by place: which nights belong to one series, and what a figure of a vm_host is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calyx_orch.analysis.histogram import merge
from calyx_orch.analysis.scopes import scope_rows, series_key
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
