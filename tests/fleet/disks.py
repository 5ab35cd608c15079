"""Disks of the tests that need root: loop devices with file systems, read-only and hidden places, throttled devices.

Everything is undone at the end of its `with`; what the machine does not offer skips aloud, naming what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


def need_root(*programs: str) -> None:
    """Skip unless this is root and the programs are installed."""
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts and loop devices")
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


@dataclass(frozen=True)
class LoopDisk:
    """A loop device and where its file system is mounted. `direct`: whether it reaches its image past the page cache."""

    device: str
    mount: Path
    direct: bool


@contextmanager
def loop_disk(mount: Path, image_dir: Path, *, kind: str, size: int) -> Iterator[LoopDisk]:
    """A new file system of `size` bytes on a loop device, mounted at `mount`."""
    need_root("losetup", "mount", f"mkfs.{kind}")
    handle, image = tempfile.mkstemp(prefix=f"{kind}-", suffix=".img", dir=image_dir)
    os.posix_fallocate(handle, 0, size)
    os.close(handle)
    try:
        device, direct = _attach(image)
    except subprocess.CalledProcessError as error:
        Path(image).unlink()
        pytest.skip(f"no loop device can be had: {error.stderr.strip()}")
    try:
        quiet = ["-q"] if kind == "ext4" else ["-q", "-f"]
        _call(f"mkfs.{kind}", *quiet, device)
        _call("mount", device, str(mount))
        try:
            yield LoopDisk(device, mount, direct)
        finally:
            unmounted(mount)
    finally:
        _call("losetup", "--detach", device)
        Path(image).unlink()


def _attach(image: str) -> tuple[str, bool]:
    try:
        return _call("losetup", "--find", "--show", "--direct-io=on", image), True
    except subprocess.CalledProcessError:
        return _call("losetup", "--find", "--show", image), False


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """`place` cannot be written, by root neither."""
    need_root("mount")
    _call("mount", "--bind", str(place), str(place))
    try:
        _call("mount", "-o", "remount,bind,ro", str(place))
        yield
    finally:
        unmounted(place)


@contextmanager
def blkio_throttle(device: str, *, read_bytes_per_s: int) -> Iterator[Path]:
    """A control group whose reads of `device` are throttled (cgroup v1 blkio, else v2 io). Yields its directory.

    A process is put in by writing its pid into `cgroup.procs` there; what it starts is in as well.
    """
    need_root()
    stat = Path(device).stat()
    number = f"{os.major(stat.st_rdev)}:{os.minor(stat.st_rdev)}"
    v1, v2 = Path("/sys/fs/cgroup/blkio"), Path("/sys/fs/cgroup")
    if (v1 / "blkio.throttle.read_bps_device").exists():
        group, file, text = v1, "blkio.throttle.read_bps_device", f"{number} {read_bytes_per_s}"
    elif (v2 / "cgroup.controllers").exists() and "io" in (v2 / "cgroup.subtree_control").read_text().split():
        group, file, text = v2, "io.max", f"{number} rbps={read_bytes_per_s}"
    else:
        pytest.skip("no control group throttles I/O here: neither cgroup v1 blkio.throttle nor the v2 io controller")
    group = group / f"calyx-orch-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / file).write_text(text)
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"no control group throttles I/O here: {error}")
    try:
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            (group.parent / "cgroup.procs").write_text(pid)
        group.rmdir()


def _call(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def unmounted(place: Path) -> None:
    """Unmount a file system that something may still hold for a moment."""
    for _ in range(50):  # what just ended may still hold a file there
        done = subprocess.run(["umount", str(place)], capture_output=True, text=True, timeout=60)
        if done.returncode == 0:
            return
        time.sleep(0.1)
    subprocess.run(["umount", "--lazy", str(place)], check=True, timeout=60)
    raise AssertionError(f"{place} was still in use after 5 s: {done.stderr}")
