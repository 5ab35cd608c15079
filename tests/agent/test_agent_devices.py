"""A raw device is written only when nobody could miss what it bears: real loop devices, each guard on its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess, files_below, is_gone
from loop_devices import BYTES, MIB, Loops, assert_refused, call, facts, make_still_ext4, prepare

from calyx_agent import protocol

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("losetup") is None, reason="loop devices need root"),
]

MS = 1_000_000
Start = Callable[..., AgentProcess]


def test_an_empty_device_is_written_from_its_start_and_no_further(agent: AgentProcess, loops: Loops) -> None:
    device = loops.make()
    assert facts(agent, device)["refused"] == ""
    prepared = prepare(agent, device, files=3, seed=7)
    assert prepared["device"] == str(device)
    assert [file["path"] for file in prepared["files"]] == [str(device)] * 3
    assert prepared["written_bytes"] == 8 * MIB
    content = loops.image(device).read_bytes()
    blocks = {content[at : at + 4096] for at in range(0, 8 * MIB, 4096)}
    assert len(blocks) == 2048
    assert bytes(4096) not in blocks
    assert content[8 * MIB :].count(0) == BYTES - 8 * MIB


def test_what_an_earlier_run_wrote_is_no_signature(agent: AgentProcess, loops: Loops) -> None:
    device = loops.make()
    for seed in range(1, 9):
        assert prepare(agent, device, seed=seed)["type"] == "prepared"
        agent.ask("clean", "cleaned")


def test_only_with_destructive(agent: AgentProcess, loops: Loops) -> None:
    device = loops.make()
    assert "destructive=1" in prepare(agent, device, destructive=0)["why"]
    assert loops.image(device).read_bytes().count(0) == BYTES


@pytest.mark.parametrize("name", ["calyx-mistyped", "shm/calyx-mistyped"])
def test_a_mistyped_path_makes_no_file(agent: AgentProcess, name: str) -> None:
    path = Path("/dev") / name
    assert "No such file or directory" in prepare(agent, path)["why"]
    assert not path.exists()
    agent.send("run", path=path, devices=1, rw="write", bs=4096, size=MIB, runtime_ns=MS)
    assert "No such file or directory" in agent.until("refused")["why"]
    assert not path.exists()


def test_a_regular_file_is_no_device(agent: AgentProcess, tmp_path: Path) -> None:
    file = tmp_path / "disk"
    file.write_text("precious")
    assert "no block device" in prepare(agent, file)["why"]
    assert file.read_text() == "precious"


def test_mounted(agent: AgentProcess, loops: Loops, tmp_path: Path) -> None:
    device, point = loops.make(), tmp_path / "mnt"
    point.mkdir()
    make_still_ext4(device)
    call("mount", device, point)
    try:
        (point / "thesis.tex").write_text("years of work")
        assert_refused(agent, loops, device, f"is mounted on {point}")
    finally:
        call("umount", point)
    assert_refused(agent, loops, device, "bears ext2, ext3 or ext4", "wipefs")


def test_mounted_where_this_agent_does_not_see_it(start: Start, loops: Loops, tmp_path: Path) -> None:
    """In another mount namespace; its signature is taken away, so that only the kernel's own claim is left."""
    device, point = loops.make(), tmp_path / "mnt"
    point.mkdir()
    make_still_ext4(device)
    agent = start()
    hidden = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", f"mount {device} {point} && echo mounted && exec sleep 60"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert hidden.stdout is not None
        if hidden.stdout.readline() != "mounted\n":
            pytest.skip("no mount namespaces here")
        assert_refused(agent, loops, device, "is in use")
    finally:
        hidden.kill()
        hidden.wait()
        assert hidden.stdout is not None
        hidden.stdout.close()


def test_swap(agent: AgentProcess, loops: Loops) -> None:
    device = loops.make()
    call("mkswap", device)
    assert_refused(agent, loops, device, "bears swap space")
    if subprocess.run(["swapon", device], check=False, capture_output=True).returncode:
        pytest.skip("no swap on this machine")
    try:
        assert_refused(agent, loops, device, "in use as swap space")
    finally:
        call("swapoff", device)


def mbr(*partitions: tuple[int, int]) -> bytes:
    """A partition table of (first sector, sectors)."""
    entries = b"".join(struct.pack("<B3sB3sII", 0, b"", 0x83, b"", *one) for one in partitions)
    return bytes(446) + entries.ljust(64, b"\0") + b"\x55\xaa"


@pytest.fixture
def partitioned(loops: Loops) -> Path:
    """A disk with one partition of 32 MiB that the kernel knows."""
    device = loops.make()
    with device.open("r+b") as file:
        file.write(mbr((2048, 65536)))
    call("sync")
    part = Path(f"{device}p1")
    subprocess.run(["partx", "--add", device], check=False, capture_output=True)
    number = Path(f"/sys/block/{device.name}/{part.name}/dev")
    if not number.exists():
        pytest.skip("no partitions of loop devices here")
    if not part.exists():
        os.mknod(part, 0o600 | 0o060000, os.makedev(*map(int, number.read_text().split(":"))))
    return device


@pytest.fixture(autouse=True)
def no_node_stays() -> Iterator[None]:
    yield
    for node in Path("/dev").glob("loop*p1"):
        if not Path(f"/sys/class/block/{node.name}").exists():
            node.unlink()


def forget_partitions(device: Path) -> None:
    call("partx", "--delete", device)
    Path(f"{device}p1").unlink(missing_ok=True)


def test_a_partition_and_the_disk_with_it(agent: AgentProcess, loops: Loops, partitioned: Path) -> None:
    part = Path(f"{partitioned}p1")
    try:
        assert_refused(agent, loops, partitioned, f"has partitions ({part.name})")
        assert_refused(agent, loops, part, f"is a partition of {partitioned.name}", "whole disk")
        with partitioned.open("r+b") as file:
            file.write(bytes(512))
        assert_refused(agent, loops, partitioned, f"has partitions ({part.name})")
    finally:
        forget_partitions(partitioned)
    assert facts(agent, partitioned)["refused"] == ""


def test_a_partition_table_that_the_kernel_has_not_read(agent: AgentProcess, loops: Loops) -> None:
    device = loops.make()
    with device.open("r+b") as file:
        file.write(mbr((2048, 65536)))
    assert_refused(agent, loops, device, "bears a partition table")


def test_a_disk_whose_partition_is_mounted(
    agent: AgentProcess, loops: Loops, partitioned: Path, tmp_path: Path
) -> None:
    part, point = Path(f"{partitioned}p1"), tmp_path / "mnt"
    point.mkdir()
    try:
        make_still_ext4(part)
        call("mount", part, point)
        try:
            assert_refused(agent, loops, partitioned, f"{part.name} is mounted on {point}, a partition of")
        finally:
            call("umount", point)
    finally:
        forget_partitions(partitioned)


SIGNATURES = {
    "LVM2": (512, b"LABELONE" + bytes(16) + b"LVM2 001"),
    "LUKS": (0, b"LUKS\xba\xbe\x00\x02"),
    "btrfs": (0x10040, b"_BHRfS_M"),
    "XFS": (0, b"XFSB\0\0\x10\0"),
    "a GPT partition table": (512, b"EFI PART"),
    "GPT partition table": (BYTES - 512, b"EFI PART"),
    "MD": (4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
    " MD": (BYTES - 8192, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
    "bears MD": (BYTES - 65536, b"\xfc\x4e\x2b\xa9\0\0\0\0"),
    "NTFS": (0, b"\xebR\x90NTFS    "),
    "ZFS": (16 * 1024, bytes.fromhex("01010000 00000000 00000001 00000024 00000020 00000007") + b"version\0"),
    "bcache": (4096 + 24, bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")),
    "a hibernated system": (4086, b"S1SUSPEND"),
    "Ceph BlueStore": (0, b"bluestore block device\n"),
    "partition table or boot sector": (0, b"\xeb\x3c\x90".ljust(510, b"\xff") + b"\x55\xaa"),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(agent: AgentProcess, loops: Loops, name: str) -> None:
    device = loops.make()
    at, data = SIGNATURES[name]
    with device.open("r+b") as file:
        file.seek(at)
        file.write(data)
    assert_refused(agent, loops, device, name.strip(), "bears")


@pytest.mark.parametrize(
    ("tool", "options", "name"),
    [
        ("mkfs.ext2", ["-q", "-b", "1024"], "ext2, ext3 or ext4"), ("mkfs.xfs", ["-q", "-f"], "XFS"), ("mkfs.btrfs", ["-q"], "btrfs"),
        ("mkfs.vfat", ["-F", "32"], "FAT"), ("mkfs.ntfs", ["-q", "-F"], "NTFS"), ("mkfs.f2fs", ["-q"], "F2FS"),
        ("mkfs.exfat", [], "exFAT"), ("mkfs.nilfs2", ["-q"], "NILFS2"), ("pvcreate", ["-q"], "LVM2"),
        ("sgdisk", ["-n", "1:0:0"], "partition"), ("cryptsetup", ["luksFormat", "-q", "--key-file", "/proc/version"], "LUKS"),
    ],
)  # fmt: skip
def test_what_the_formats_own_tools_wrote(
    agent: AgentProcess, loops: Loops, tool: str, options: list[str], name: str
) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} on this machine")
    device = loops.make(size=512 * MIB)
    call(tool, *options, device)
    assert_refused(agent, loops, device, name)


def test_a_read_only_device(agent: AgentProcess, loops: Loops) -> None:
    assert_refused(agent, loops, loops.make("--read-only"), "is read-only")


def test_more_than_it_holds(agent: AgentProcess, loops: Loops) -> None:
    device = loops.make()
    assert f"{device} has {BYTES} bytes, {BYTES + 1} are needed" in prepare(agent, device, size=BYTES + 1)["why"]


def test_two_runs_never_share_a_device_and_the_message_names_the_other(start: Start, loops: Loops) -> None:
    device, one, other = loops.make(), start(), start()
    assert prepare(one, device, run="20261201-aa", by="ann@desk")["type"] == "prepared"
    refused = prepare(other, device, run="20261201-bb", by="bob@desk")
    assert refused["errno"] == 16
    assert "in use by run 20261201-aa of ann@desk" in refused["why"]
    one.ask("clean", "cleaned")
    assert prepare(other, device, run="20261201-bb")["type"] == "prepared"


def test_nobody_mounts_it_meanwhile(agent: AgentProcess, loops: Loops, tmp_path: Path) -> None:
    device = loops.make()
    prepare(agent, device)
    tried = subprocess.run(["mkfs.ext4", "-q", "-F", device], check=False, capture_output=True, text=True)
    assert tried.returncode != 0
    assert "in use" in tried.stderr
    agent.ask("clean", "cleaned")


@pytest.mark.parametrize("end", ["bye", "kill"])
def test_it_is_let_go_of_at_the_end(start: Start, agent_path: Path, loops: Loops, end: str) -> None:
    device, one = loops.make(), start()
    prepare(one, device, run="one")
    if end == "bye":
        one.send("bye")
    else:
        os.kill(one.hello["pid"], signal.SIGKILL)
    one.end()
    assert files_below(agent_path.parent) == [agent_path.name]
    assert prepare(start(), device, run="other")["type"] == "prepared"


def test_what_two_dead_left_of_a_device_is_a_note_that_a_clean_removes(
    start: Start, agent_path: Path, loops: Loops
) -> None:
    device, one = loops.make(), start()
    prepare(one, device, run="one")
    pids = [one.process.pid, one.hello["pid"]]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)
    one.end()
    while not all(map(is_gone, pids)):
        time.sleep(0.005)
    other = start()
    other.send_bytes(protocol.clean_left_over([device], list_only=False))
    cleaned = other.until("cleaned")
    assert sorted(entry["kind"] for entry in cleaned["found"]) == ["files", "work"]
    assert cleaned["failed"] == []
    assert sorted(path.name for path in agent_path.parent.iterdir()) == sorted(
        [agent_path.name, Path(other.hello["work"]).name]
    )


def test_no_io_goes_to_a_device_that_was_not_prepared(start: Start, loops: Loops) -> None:
    one, other, device = start(), start(), loops.make()
    prepare(one, device)
    for agent, path in ((other, device), (one, loops.make())):
        for more in ({}, {"devices": 1}):
            agent.send("run", path=path, rw="write", bs=4096, size=MIB, runtime_ns=MS, **more)
            why = agent.until("refused")["why"]
            assert "not a block device that this agent prepared" in why or "is not a regular file" in why
        agent.send("truth", path=path)
        assert "not a block device that this agent prepared" in agent.until("refused")["why"]
        agent.send("exec", hold=1, arg="true", device=path, runtime_ns=MS)
        assert "not a block device that this agent prepared" in agent.until("refused")["why"]


def test_a_run_stays_in_what_was_prepared(agent: AgentProcess, loops: Loops) -> None:
    device = loops.make()
    prepare(agent, device)
    agent.send("run", path=device, devices=1, rw="write", bs=4096, size=8 * MIB, offset=4096, runtime_ns=MS)
    assert "was prepared for 8388608 bytes; the job uses 8392704" in agent.until("refused")["why"]


def test_another_disk_in_its_place_is_refused(agent: AgentProcess, loops: Loops) -> None:
    """Names swap: the link of a stable name leads to another disk by now."""
    device, other, link = loops.make(), loops.make(), loops.directory / "by-id-disk"
    link.symlink_to(device)
    assert prepare(agent, link)["device"] == str(device)
    link.unlink()
    link.symlink_to(other)
    agent.send("run", path=link, devices=1, rw="write", bs=4096, size=MIB, runtime_ns=MS)
    assert "not a block device that this agent prepared" in agent.until("refused")["why"]
    assert loops.image(other).read_bytes().count(0) == BYTES


def run(agent: AgentProcess, device: Path, jobs: int = 1, **job: protocol.Value) -> dict[str, Any]:
    values = {"devices": 1, "bs": 4096, "iodepth": 1, "size": 8 * MIB, "seed": 7, "data_seed": 8} | job
    agent.send("run", *[("path", device)] * jobs, runtime_ns=400 * MS, **values)
    agent.until("ready")
    agent.arm(50 * MS)
    assert agent.until("result")["status"] == "ok"
    document: dict[str, Any] = json.loads(agent.documents["result"])
    return document


def test_jobs_share_the_device_and_stay_in_their_part(agent: AgentProcess, loops: Loops) -> None:
    device = loops.make()
    prepare(agent, device, files=2)
    document = run(agent, device, jobs=2, rw="randrw", iodepth=4)
    assert document["jobs"] == 2
    assert document["read"]["ios"] > 0
    assert document["write"]["ios"] > 0
    assert agent.ask("truth", "truth", path=device, seed=3)["reads"] > 0
    assert loops.image(device).read_bytes()[8 * MIB :].count(0) == BYTES - 8 * MIB


def test_verified_blocks_read_back(agent: AgentProcess, loops: Loops) -> None:
    device = loops.make()
    prepare(agent, device, verify="crc32c", seed=8)
    document = run(agent, device, rw="randread", verify="crc32c")
    assert document["verify"]["checked"] > 0
    assert document["verify"]["bad"] == 0


@pytest.mark.parametrize("rw", ["trim", "randtrim"])
def test_trim_gives_the_blocks_back(agent: AgentProcess, loops: Loops, rw: str) -> None:
    """The figures of trims are those of `write`; a loop device punches holes in its file."""
    device = loops.make()
    prepare(agent, device)
    call("sync")
    before = loops.image(device).stat().st_blocks
    document = run(agent, device, rw=rw, setup="psync", bs=65536)
    assert document["write"]["ios"] > 0
    assert document["write"]["bytes"] == 65536 * document["write"]["ios"]
    assert document["read"]["ios"] == 0
    call("sync")
    assert loops.image(device).stat().st_blocks < before


def test_a_file_is_never_trimmed(agent: AgentProcess, target: Path) -> None:
    path = agent.ask("prepare", "prepared", path=target, size=MIB, files=1)["files"][0]["path"]
    agent.send("run", path=path, devices=1, rw="trim", setup="psync", bs=4096, size=MIB, runtime_ns=MS)
    assert "only a block device can be trimmed" in agent.until("refused")["why"]


def test_a_disk_is_found_by_its_serial_number(start: Start, loops: Loops, tmp_path: Path) -> None:
    """A loop device has none, so a file system in memory is laid over its place in /sys, seen by the agent alone."""
    device = loops.make()
    over = f"/sys/devices/virtual/block/{device.name}"
    script = (
        f"cp -a {over}/dev {over}/size {over}/ro {tmp_path} && mount -t tmpfs none {over} && "
        f"cp {tmp_path}/dev {tmp_path}/size {tmp_path}/ro {over} && echo S3RIAL-7 > {over}/serial && exec $0"
    )
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    agent = AgentProcess(["unshare", "-m", "sh", "-c", script, start().hello["path"]])
    try:
        assert facts(agent, "serial:S3RIAL-7")["node"] == str(device)
        assert facts(agent, device)["serial"] == "S3RIAL-7"
        assert prepare(agent, "serial:S3RIAL-7")["device"] == str(device)
        assert "0 disks have the serial number S3RIAL" in prepare(agent, "serial:S3RIAL")["why"]
    finally:
        agent.leave()


def test_settling_and_facts_of_a_device(agent: AgentProcess, loops: Loops) -> None:
    device = loops.make()
    told = facts(agent, device)
    assert (told["node"], told["size_bytes"]) == (str(device), BYTES)
    settled = agent.ask("settle", "settled", path=device, timeout_ms=5000)
    assert settled["waited_ns"] >= 200_000_000, "so long nothing was written"
    assert settled["idle"] or settled["waited_ns"] >= 5_000_000_000, "others may write all the time"


def test_the_layout_can_be_stopped_and_is_slowed(agent: AgentProcess, loops: Loops) -> None:
    device = loops.make()
    began = time.monotonic()
    agent.send("prepare", device=device, size=32 * MIB, files=1, destructive=1, max_bytes_per_s=4 * MIB)
    assert agent.until("beat")["total_bytes"] == 32 * MIB
    agent.send("stop")
    assert "stopped" in agent.until("refused")["why"]
    assert time.monotonic() - began < 4
    assert loops.image(device).read_bytes()[16 * MIB :].count(0) == BYTES - 16 * MIB
