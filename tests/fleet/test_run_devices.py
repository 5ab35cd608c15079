"""Raw devices by the real command line: loop devices under stable names, both engines on them, and what refuses them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from calyx_orch.commands.loopback import LoopbackFleet, inventory_yaml
from fleet.disks import need_root
from fleet.whole_runs import Ended, guests_up, nothing_left, run

pytestmark = [pytest.mark.fleet, pytest.mark.root]

MIB = 1 << 20
BY_ID = Path("/dev/disk/by-id")


@contextmanager
def stable_disk(base: Path, name: str) -> Iterator[tuple[Path, Path]]:
    """A loop device of 64 MiB under a stable name with a colon, as udev would give it: (that name, the image behind it)."""
    need_root("losetup")
    image = base / f"{name}.img"
    with image.open("wb") as file:
        file.truncate(64 * MIB)
    device = subprocess.run(
        ["losetup", "--find", "--show", image], check=True, capture_output=True, text=True
    ).stdout.strip()
    made = [path for path in (BY_ID, BY_ID.parent) if not path.exists()]
    BY_ID.mkdir(parents=True, exist_ok=True)
    link = BY_ID / f"calyx-{base.name[-20:]}-{name}:0"
    link.symlink_to(device)
    try:
        yield link, image
    finally:
        link.unlink()
        subprocess.run(["losetup", "--detach", device], check=True)
        for path in made:
            path.rmdir()


def with_devices(fleet: LoopbackFleet, body: str, **devices: Path) -> str:
    """The fleet's inventory, with raw devices as the only targets."""
    text = inventory_yaml(fleet, body=body)
    said = "destructive: true, allow_ram: true"  # where tests lie on a tmpfs
    lines = [f"      {name}: {{device: '{path}', {said}}}" for name, path in devices.items()]
    head, _, rest = text.partition("    targets:\n")
    assert rest, text
    return head + "    targets:\n" + "\n".join(lines) + "\n" + rest.partition("\n")[2]


def names_below(directory: Path) -> list[str]:
    """What bears our name there."""
    return sorted(path.name for path in directory.glob("calyx-*"))


WORKLOADS = """\
workloads:
  - {name: mix, rw: randrw, bs: 4k, iodepth: 4, numjobs: 2, size: 8m, runtime: 1s, ramp_time: 0.2s, targets: [data]}
  - {name: discard, rw: randtrim, bs: 64k, size: 8m, runtime: 1s, ramp_time: 0.2s, rate_iops: 200, targets: [spare]}
baselines: auto
repetitions: 1
settle: 1s
lost_time_probe: 0
"""


async def test_both_engines_read_write_and_trim_raw_devices_and_stay_in_their_part(tmp_path: Path) -> None:
    need_root("losetup", "fio")
    with ExitStack() as stack:
        data, data_image = stack.enter_context(stable_disk(tmp_path, "data"))
        spare, spare_image = stack.enter_context(stable_disk(tmp_path, "spare"))
        async with guests_up(1, tmp_path) as fleet:
            ended = await run(with_devices(fleet, WORKLOADS, data=data, spare=spare), tmp_path)
            await nothing_left(fleet)
        assert ended.status == 0, ended.out + ended.err
        rows = {(row.target, row.engine): row for row in ended.summary.guests}
        assert set(rows) == {("data", "calyx"), ("data", "fio-io_uring"), ("spare", "calyx"), ("spare", "fio-psync")}
        for row in rows.values():
            assert row.status == "ok", row
            assert row.iops is not None
            assert row.iops > 0
        for engine in ("calyx", "fio-psync"):
            assert rows["spare", engine].iops == pytest.approx(200, rel=0.2)
        assert "trim" in ended.out
        for image in (data_image, spare_image):
            assert image.read_bytes()[8 * MIB :].count(0) == 56 * MIB
        assert data_image.read_bytes()[:MIB].count(0) == MIB, "blank for the next run"
        assert data_image.read_bytes()[MIB : 8 * MIB].count(0) < MIB
        assert names_below(Path("/dev")) == []
        assert names_below(BY_ID) == sorted([data.name, spare.name])


ONE = """\
workloads:
  - {name: mix, rw: randrw, bs: 4k, size: 8m, runtime: 1s, ramp_time: 0.2s}
baselines: none
repetitions: 1
settle: 0
lost_time_probe: 0
"""


async def refused(tmp_path: Path, device: Path) -> Ended:
    async with guests_up(1, tmp_path) as fleet:
        ended = await run(with_devices(fleet, ONE, data=device), tmp_path)
        await nothing_left(fleet)
    assert ended.status == 3, ended.out + ended.err
    return ended


async def test_a_mounted_device_and_one_with_a_file_system_are_refused_before_a_byte(tmp_path: Path) -> None:
    """A-026: a disk that is in use, or whose file system is not mounted at the moment, is nobody's to overwrite."""
    need_root("losetup", "mkfs.ext4", "mount")
    point = tmp_path / "mounted"
    point.mkdir()
    with stable_disk(tmp_path, "data") as (link, _):
        subprocess.run(["mkfs.ext4", "-q", link], check=True)
        subprocess.run(["mount", link, point], check=True)
        try:
            (point / "thesis.tex").write_text("years of work")
            ended = await refused(tmp_path, link)
            assert f"is mounted on {point}" in " ".join(ended.failure_lines("guest1"))
            assert (point / "thesis.tex").read_text() == "years of work"
        finally:
            subprocess.run(["umount", point], check=True)
        again = tmp_path / "again"
        again.mkdir()
        ended = await refused(again, link)
        assert "bears ext2, ext3 or ext4" in ended.out
        subprocess.run(["fsck.ext4", "-fn", link], check=True, capture_output=True)


async def test_a_mistyped_device_makes_no_file(tmp_path: Path) -> None:
    need_root("losetup")
    ended = await refused(tmp_path, BY_ID / "calyx-mistyped")
    assert "does not exist, and is not made" in ended.out
    assert not (BY_ID / "calyx-mistyped").exists()
