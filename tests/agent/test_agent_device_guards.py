"""A raw device that looks free and is not: loop devices above and below it, formats that no list knows, disks that are memory."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent_process import AgentProcess
from loop_devices import BYTES, MIB, Loops, assert_refused, call, facts, make_still_ext4, prepare

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("losetup") is None, reason="loop devices need root"),
]

Start = Callable[..., AgentProcess]


@contextmanager
def loop_over(backing: Path, *options: str) -> Iterator[Path]:
    """One more loop device, over a device or over a file that another one has."""
    device = call("losetup", "--find", "--show", *options, backing)
    try:
        yield Path(device)
    finally:
        call("losetup", "--detach", device)


def test_a_loop_device_over_a_mounted_disk(agent: AgentProcess, loops: Loops, tmp_path: Path) -> None:
    """It begins where the file system has its data: no signature, no holder, and the kernel lets it be opened."""
    disk, point = loops.make(), tmp_path / "mnt"
    point.mkdir()
    make_still_ext4(disk)
    call("mount", disk, point)
    try:
        with loop_over(disk, "-o", str(32 * MIB)) as over:
            assert_refused(agent, loops, over, f"{over} lies on {disk}", "no raw device")
    finally:
        call("umount", point)


def test_a_disk_below_a_loop_device(agent: AgentProcess, loops: Loops) -> None:
    disk = loops.make()
    with loop_over(disk, "-o", str(32 * MIB)) as over:
        assert_refused(agent, loops, disk, f"is held by {over.name}")
    assert facts(agent, disk)["refused"] == ""


def test_a_disk_whose_partition_is_below_a_loop_device(agent: AgentProcess, loops: Loops) -> None:
    disk = loops.make()
    added = subprocess.run(
        ["addpart", disk, "1", "2048", "65536"], check=False, capture_output=True
    )  # known to the kernel alone
    number = Path(f"/sys/block/{disk.name}/{disk.name}p1/dev")
    if added.returncode or not number.exists():
        pytest.skip("no partitions of loop devices here")
    part = loops.directory / "part"
    os.mknod(part, 0o600 | 0o060000, os.makedev(*map(int, number.read_text().split(":"))))
    try:
        with loop_over(part) as over:
            assert_refused(agent, loops, over, f"lies on {part}")
            assert "has partitions" in facts(agent, disk)["refused"]
    finally:
        agent.leave()  # or it holds what it should have refused, and the partition would stay with the loop device
        call("delpart", disk, "1")
        Path(f"{disk}p1").unlink(missing_ok=True)


@pytest.mark.parametrize("removed", [False, True], ids=["named", "removed"])
def test_two_loop_devices_over_one_file(agent: AgentProcess, loops: Loops, removed: bool) -> None:
    disk = loops.make()
    linked = loops.directory / "another-name"
    linked.hardlink_to(loops.image(disk))
    with loop_over(linked, "-o", str(32 * MIB)) as other:
        if removed:
            linked.unlink()
            loops.image(disk).unlink()
        assert_refused(agent, loops, disk, f"{other.name} lies on the same file")
        assert_refused(agent, loops, other, f"{disk.name} lies on the same file")
    assert facts(agent, disk)["refused"] == ""


UNLISTED = {
    "minix": (1024 + 16, b"\x8f\x13"),
    "isw_raid": (BYTES - 1024, b"Intel Raid ISM Cfg Sig. "),
    "LVM1": (0, b"HM\x01\x00"),
    "cramfs": (0, b"\x45\x3d\xcd\x28"),
    "DDF": (BYTES - 512, b"\xde\x11\xde\x11"),
    "DRBD": (BYTES - 4096 + 60, b"\x83\x74\x02\x6b"),
    "UFS2": (65536 + 1372, b"\x19\x01\x54\x19"),
    "HFS": (1024, b"BD"),
    "VxFS": (1024, b"\xf5\xfc\x01\xa5"),
    "romfs": (0, b"-rom1fs-"),
    "Sun label": (508, b"\xda\xbe"),
    "BSD label": (512, b"\x57\x45\x56\x82"),
    "SGI label": (0, b"\x0b\xe5\xa9\x41"),
    "Mac label": (0, b"ER"),
    "an uberblock of ZFS": (128 * 1024 + 5 * 1024, b"\x0c\xb1\xba\0\0\0\0\0"),
    "ZFS at the end": (BYTES - 256 * 1024 + 128 * 1024, b"\x0c\xb1\xba\0\0\0\0\0"),
    "a byte": (MIB - 1, b"x"),
    "the last byte": (BYTES - 1, b"x"),
    "the first of the last MiB": (BYTES - MIB, b"x"),
}


@pytest.mark.parametrize("name", UNLISTED)
def test_a_format_that_no_list_knows(agent: AgentProcess, loops: Loops, name: str) -> None:
    device = loops.make()
    at, data = UNLISTED[name]
    with device.open("r+b") as file:
        file.seek(at)
        file.write(data)
    assert_refused(agent, loops, device, f"bears data of no known format (from byte {at // 4096 * 4096} on)")


def test_what_the_refusal_says_frees_the_device(agent: AgentProcess, loops: Loops) -> None:
    device = loops.make()
    for noise in (b"\xa5" * BYTES, b"XFSB"):
        device.write_bytes(noise)
        call("sync")
        commands = re.findall(r"\((wipefs.*)\)", facts(agent, device)["refused"])[0]
        call("sh", "-ec", commands)
        assert facts(agent, device)["refused"] == ""
    assert prepare(agent, device)["type"] == "prepared"


@pytest.mark.parametrize("end", ["clean", "bye", "lease", "kill"])
@pytest.mark.parametrize("size", [512, 8 * MIB, BYTES - 512, BYTES])
def test_a_run_leaves_the_ends_blank_however_it_ends(start: Start, loops: Loops, end: str, size: int) -> None:
    device, one = loops.make(), start()
    assert prepare(one, device, size=size)["type"] == "prepared"
    if end == "clean":
        one.ask("clean", "cleaned")
    elif end == "bye":
        one.send("bye")
        one.end()
    elif end == "lease":
        one.send("lease", ms=100)
        one.end()
    else:
        os.kill(one.hello["pid"], signal.SIGKILL)
        one.end()
    content = loops.image(device).read_bytes()
    assert content[:MIB].count(0) == MIB
    assert content[-MIB:].count(0) == MIB
    if size > 4 * MIB:
        assert content[MIB : MIB + 4096] != bytes(4096)
    assert prepare(start(), device)["type"] == "prepared"


@pytest.mark.parametrize("removed", [False, True], ids=["named", "removed"])
def test_a_disk_in_memory_is_told(agent: AgentProcess, loops: Loops, removed: bool) -> None:
    """A loop device over a file of a file system in memory; the controller refuses it as it does such a directory."""
    memory = loops.directory / ("memory-" + "x" * 200) / ("y" * 100)
    memory.mkdir(parents=True)
    call("mount", "-t", "tmpfs", "none", memory)
    try:
        image = memory / "disk"
        with image.open("wb") as file:
            file.truncate(8 * MIB)
        with loop_over(image) as disk:
            if removed:
                image.unlink()
            assert agent.ask("facts", "facts", path=disk)["paths"][0]["is_ram"] is True
    finally:
        call("umount", memory)
    assert agent.ask("facts", "facts", path=loops.make())["paths"][0]["is_ram"] is False
