"""`rate: [25%, 50%]` from the inventory to the figures, by real agents behind real servers: one rate for both, the right share."""

from __future__ import annotations

from pathlib import Path

import pytest

from calyx_orch.commands.loopback import inventory_yaml
from fleet.whole_runs import guests_up, nothing_left, run, say, strict_json

pytestmark = pytest.mark.fleet

# `impact` makes the capacity of a guest known: 16 MB/s in blocks of 4 KiB are 3906 IOPS, by two jobs.
BODY = """\
workloads:
  - {name: lookup, rw: randread, bs: 4k, iodepth: 8, numjobs: 2, size: 8m, runtime: 1.5s, ramp_time: 0.2s, rate: [25%, 50%]}
impact: {max_rate: 16MB/s}
baselines: none
repetitions: 1
settle: 0
lost_time_probe: 0
"""
CAPACITY_IOPS = 16e6 / 4096


async def test_two_guests_are_offered_the_same_share_of_what_the_slower_one_does(tmp_path: Path) -> None:
    """The capacity is that of the slower guest, its share is the rate of both, and both do it."""
    async with guests_up(2, tmp_path) as fleet:
        ended = await run(inventory_yaml(fleet, body=BODY), tmp_path, "--json")
        await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    record = ended.record
    (loop,) = record.plan.capacity
    assert loop.workload.arrival == "closed"
    did = {m.guest: m.total_ios * 1e9 / m.window_ns for m in record.measurements if m.round_index == loop.index}
    quarter, half = record.plan.load_points
    say(f"capacity {did}, rates a job {quarter.rate_iops} and {half.rate_iops}")
    assert set(did) == {"guest1", "guest2"}
    assert min(did.values()) == pytest.approx(CAPACITY_IOPS, rel=0.1)
    for point, share in ((quarter, 0.25), (half, 0.5)):
        assert (point.workload, point.share) == (f"lookup-load{100 * share:g}", share)
        assert point.capacity_iops == min(did.values())
        assert point.guest == min(did, key=lambda name: did[name])
        assert point.rate_iops == int(share * min(did.values()) / 2)
        mine = {m.guest: m for m in record.measurements if m.workload == point.workload and m.round_index != loop.index}
        assert set(mine) == {"guest1", "guest2"}
        for m in mine.values():
            assert m.status == "ok", m.why
            assert m.read is not None
            assert m.read.latency_intended is not None, "latency counts from when each I/O was due"
            assert m.total_ios * 1e9 / m.window_ns == pytest.approx(2 * point.rate_iops, rel=0.03)
    document = strict_json(ended.out)
    assert [one["rate_iops"] for one in document["load_points"]] == [quarter.rate_iops, half.rate_iops]
    assert f"{quarter.rate_iops:,} IOPS a job are 25 % of" in ended.err
