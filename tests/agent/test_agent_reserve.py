"""No layout fills a file system: a reserve stays free, whoever writes there besides."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_process import AgentProcess, files_below

MIB = 1 << 20


def free(target: Path) -> int:
    return shutil.disk_usage(target).free


def test_what_would_touch_the_reserve_is_refused_before_a_byte(agent: AgentProcess, target: Path) -> None:
    agent.send("prepare", path=target, size=MIB, files=2, reserve=free(target))
    refused = agent.until("refused")
    assert refused["errno"] == 28
    assert "stay free (reserve), 2097152 are needed" in refused["why"]
    assert files_below(target) == []
    assert agent.ask("prepare", "prepared", path=target, size=MIB, files=2, reserve=MIB)["written_bytes"] == 2 * MIB


@pytest.fixture
def own_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 MiB that nobody else writes to."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("needs root and mkfs.ext4: a file system of its own")
    image, point = tmp_path / "disk.img", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(256 * MIB)
    point.mkdir()
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, point], check=False, capture_output=True).returncode:
        pytest.skip("no loop device can be had")
    yield point
    for _ in range(50):
        if not subprocess.run(["umount", point], check=False, capture_output=True).returncode:
            return
        time.sleep(0.1)
    raise AssertionError(f"{point} stays mounted")


@pytest.mark.root
def test_a_layout_ends_when_somebody_else_takes_what_was_free(agent: AgentProcess, own_disk: Path) -> None:
    """What it had written is removed, so that the other one has it."""
    agent.send("prepare", path=own_disk, size=96 * MIB, files=1, reserve=64 * MIB, max_bytes_per_s=32 * MIB)
    agent.until("making")
    with (own_disk / "other").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free(own_disk) - 48 * MIB)
    refused = agent.until("refused")
    assert refused["errno"] == 28
    assert "less than the reserve of 67108864 bytes is free" in refused["why"]
    assert files_below(own_disk) == ["lost+found", "other"]


def test_a_layout_is_as_slow_as_it_is_told(agent: AgentProcess, target: Path) -> None:
    began = time.monotonic()
    agent.ask("prepare", "prepared", path=target, size=4 * MIB, files=2, max_bytes_per_s=8 * MIB)
    assert time.monotonic() - began >= 0.99


@pytest.mark.parametrize("value", ["-1", "many", "1e9"])
def test_a_reserve_is_a_number_of_bytes(agent: AgentProcess, target: Path, value: str) -> None:
    agent.send("prepare", path=target, size=MIB, files=1, reserve=value)
    assert agent.until("refused")["errno"] == 22
