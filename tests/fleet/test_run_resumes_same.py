"""A resumed run is of the same disks, the same plan and checked limits, or it is refused before anything is measured."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from calyx_orch.commands.loopback import inventory_yaml
from fleet.disks import need_root
from fleet.test_run_devices import BY_ID, stable_disk, with_devices
from fleet.test_run_resumes import ROUNDS, killed, resume, until_event
from fleet.whole_runs import guests_up, nothing_left, start_run

pytestmark = [pytest.mark.fleet]

MIB = 1 << 20
BLOCKS = ROUNDS.replace("[fio-io_uring]", "none").replace("repetitions: 1", "repetitions: 2")


@pytest.mark.root
async def test_a_link_that_leads_to_another_disk_by_now_refuses(tmp_path: Path) -> None:
    """`/dev/disk/by-id/X` is a name: 64 MiB were measured, 100 MiB lie behind it after the kill; put back, the run goes on."""
    need_root("losetup")
    image = tmp_path / "other.img"
    with image.open("wb") as file:
        file.truncate(100 * MIB)
    with stable_disk(tmp_path, "swp") as (link, own):
        device = link.readlink()
        other = subprocess.run(
            ["losetup", "--find", "--show", image], check=True, capture_output=True, text=True
        ).stdout.strip()
        try:
            async with guests_up(1, tmp_path) as fleet:
                started = await start_run(with_devices(fleet, BLOCKS, data=link), tmp_path)
                await until_event(started, "done", 2)
                await killed(started)
                await nothing_left(fleet)
                measured = (started.folder / "measurements.jsonl").read_bytes()
                link.unlink()
                link.symlink_to(other)
                refused = await resume(started.folder, tmp_path)
                link.unlink()
                link.symlink_to(device)
                assert refused.status == 2, refused.out + refused.err
                assert f"guest guest1: size of the disk of {link} was {64 * MIB}, is {100 * MIB}" in refused.err
                assert f"backing file of the disk of {link} was {own}, is {image}" in refused.err
                assert (started.folder / "measurements.jsonl").read_bytes() == measured
                assert image.read_bytes().count(0) == 100 * MIB
                ended = await resume(started.folder, tmp_path)
                assert ended.status == 0, ended.out + ended.err
                await nothing_left(fleet)
        finally:
            subprocess.run(["losetup", "--detach", other], check=True)
    assert not link.exists()
    assert not list(BY_ID.glob("*swp*"))


async def test_a_plan_that_was_edited_and_a_limit_that_means_nothing_refuse(tmp_path: Path) -> None:
    """Exit code 2 and not a round more; with the plan as it was and a limit that can be read the run is measured and judged."""
    async with guests_up(1, tmp_path) as fleet:
        started = await start_run(inventory_yaml(fleet, body=BLOCKS), tmp_path)
        await until_event(started, "done", 2)
        started.signal(signal.SIGKILL)
        await started.ended()
        plan = started.folder / "plan.json"
        text, measured = plan.read_text(), (started.folder / "measurements.jsonl").read_bytes()
        plan.write_text(text.replace("4096", "65536"))
        refused = await resume(started.folder, tmp_path)
        assert refused.status == 2, refused.out + refused.err
        assert "plan.json is not what it was" in refused.err
        plan.write_text(text)
        for options, says in (
            (("--budget", "nonsense"), "nonsense"),
            (("--key", "/none"), "--budget, --against, --max-regression, --junit, --store"),
        ):
            refused = await resume(started.folder, tmp_path, *options)
            assert refused.status == 2, refused.out + refused.err
            assert says in " ".join(refused.err.split())
        assert (started.folder / "measurements.jsonl").read_bytes() == measured
        junit, store = tmp_path / "limits.xml", tmp_path / "store.db"
        limits = ("--budget", "randread.p50<1ns", "--junit", str(junit), "--store", f"sqlite:///{store}")
        ended = await resume(started.folder, tmp_path, *limits)
        assert ended.status == 1, ended.out + ended.err
        assert "broken" in ended.out
        assert "randread" in junit.read_text()
        assert store.stat().st_size > 0
        await nothing_left(fleet)
