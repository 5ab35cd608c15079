"""`find: iops_at '..'` from the inventory to the report, by real agents behind real servers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from calyx_orch.commands.loopback import inventory_yaml
from calyx_orch.plan.search import RESOLUTION
from fleet.disks import blkio_throttle, loop_disk
from fleet.whole_runs import guests_up, nothing_left, run, say, strict_json

pytestmark = pytest.mark.fleet

MB = 1_000_000
THROTTLE = 40 * MB
BLOCK = 32768


async def test_a_rate_is_searched_for_by_all_guests_together(tmp_path: Path) -> None:
    """Two guests hold what `impact` allows at most: one round, and the sentence says that it may be more."""
    body = """\
workloads:
  - {name: lookup, rw: randread, bs: 4k, iodepth: 8, size: 8m, runtime: 1s, ramp_time: 0.2s, find: "iops_at p99<900ms"}
impact: {max_rate: 4000KiB/s}
baselines: none
settle: 0
lost_time_probe: 0
"""
    async with guests_up(2, tmp_path) as fleet:
        ended = await run(inventory_yaml(fleet, body=body), tmp_path, "--json")
        await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    assert "round 1 of a search: block 1, lookup@1000" in ended.err
    (found,) = ended.record.found
    assert (found.guests, found.rate_iops, found.broke_iops) == (("guest1", "guest2"), 1000, None)
    assert "held up to the highest rate allowed, 1000 IOPS" in found.why
    ((rate, figure_ns, held),) = found.probes
    assert (rate, held) == (1000, True)
    assert 0 < (figure_ns or 0) < 900_000_000
    document = strict_json(ended.out)
    assert "1000" in str(document["found"])
    for measurement in ended.record.measurements:
        assert measurement.workload == "lookup@1000"
        assert measurement.read is not None
        assert measurement.read.latency_intended is not None, "latency counts from when each I/O was due"
        assert measurement.total_ios == pytest.approx(1000, rel=0.05)


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_the_rate_that_a_throttled_disk_bears_is_found(tmp_path: Path) -> None:
    """Known truth: 40 MB/s in blocks of 32 KiB are 1220 IOPS. Above it the queue grows without end, below it hardly anything waits."""
    body = f"""\
workloads:
  - {{name: lookup, rw: randread, bs: {BLOCK}, iodepth: 64, size: 64m, runtime: 2s, ramp_time: 0.5s, find: "iops_at p99<60ms"}}
baselines: none
settle: 0
lost_time_probe: 0
"""
    async with guests_up(1, tmp_path) as fleet:
        (guest,) = fleet.guests
        with ExitStack() as stack:
            place = tmp_path / "throttled"
            place.mkdir()
            disk = stack.enter_context(loop_disk(place, tmp_path, kind="ext4", size=256 << 20))
            group = stack.enter_context(blkio_throttle(disk.device, read_bytes_per_s=THROTTLE))
            assert guest.process is not None
            (group / "cgroup.procs").write_text(str(guest.process.pid))
            text = inventory_yaml(fleet, body=body).replace(f'"{guest.data}"', f'"{place}"')
            ended = await run(text, tmp_path, within_s=200)
            await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    (found,) = ended.record.found
    say(f"held {found.rate_iops}, broke {found.broke_iops}; {[(rate, held) for rate, _, held in found.probes]}")
    truth = THROTTLE / BLOCK
    assert found.rate_iops is not None
    assert found.broke_iops is not None
    assert found.broke_iops <= found.rate_iops * RESOLUTION
    assert 0.93 * truth < found.rate_iops <= 1.02 * truth
    assert found.broke_iops > 0.96 * truth
    assert f"{found.rate_iops:,}" in ended.out.replace("\u202f", ",") or str(found.rate_iops) in ended.out
