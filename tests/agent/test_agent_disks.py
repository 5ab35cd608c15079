"""File systems on disks made for the purpose: thin ones, and ones with sectors of 4 KiB."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess

from calyx_agent import protocol

SIZE = 16 << 20
MS = 1_000_000
JOB: dict[str, protocol.Value] = {"rw": "randread", "bs": 4096, "iodepth": 4, "size": SIZE, "seed": 7, "data_seed": 8}

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mkfs.ext4") is None, reason="loop devices need root"),
]


def call(*words: object) -> str:
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, timeout=60).stdout


@contextmanager
def thin_disk(base: Path, *options: str) -> Iterator[tuple[Path, Path, str]]:
    """A file system on a loop device over a sparse image: (image, mount, device)."""
    image, mount = base / "image", base / "mounted"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(128 << 20)
    device = call("losetup", *options, "--find", "--show", image).strip()
    try:
        call("mkfs.ext4", "-q", "-E", "nodiscard", device)
        call("mount", device, mount)
        try:
            yield image, mount, device
        finally:
            for _ in range(50):  # what just ended may still hold a file there
                if subprocess.run(["umount", mount], capture_output=True, timeout=60).returncode == 0:
                    break
                time.sleep(0.1)
            else:
                call("umount", "--lazy", mount)
    finally:
        call("losetup", "--detach", device)


def prepare(agent: AgentProcess, place: Path, size: int = SIZE) -> dict[str, Any]:
    return agent.ask("prepare", "prepared", path=place, size=size, files=1)["files"][0]


def run(agent: AgentProcess, path: str, **job: protocol.Value) -> dict[str, Any]:
    agent.send("run", path=path, **(JOB | {"ramp_ns": 0, "runtime_ns": 1000 * MS} | job))
    agent.until("ready")
    agent.arm()
    assert agent.until("result")["status"] == "ok"
    return dict(json.loads(agent.documents["result"]))


def sectors_read(device: str) -> int:
    return int(Path(f"/sys/block/{Path(device).name}/stat").read_text().split()[2])


def test_a_thin_disk_is_filled_before_it_is_read(agent: AgentProcess, tmp_path: Path) -> None:
    """The storage below has allocated every byte of the layout, and what is measured are reads of it."""
    with thin_disk(tmp_path) as (image, mount, device):
        before = image.stat().st_blocks * 512
        laid_out = prepare(agent, mount)
        os.sync()
        assert image.stat().st_blocks * 512 - before >= SIZE
        assert not laid_out["holes"]
        assert not laid_out["unwritten"]
        read_before = sectors_read(device)
        document = run(agent, laid_out["path"])
        assert document["read"]["ios"] > 0
        assert (sectors_read(device) - read_before) * 512 >= document["read"]["bytes"]
        agent.ask("clean", "cleaned")


def test_a_block_below_the_sector_is_refused_each_time(agent: AgentProcess, tmp_path: Path) -> None:
    """On sectors of 4 KiB the verdict is of the written file, and the same before and after it was read and written."""
    with thin_disk(tmp_path, "--sector-size=4096") as (_, mount, _):
        laid_out = prepare(agent, mount)
        said = []
        for rw in ("randread", "randwrite", "randread"):
            agent.send("run", path=laid_out["path"], **(JOB | {"bs": 512, "rw": rw, "runtime_ns": 100 * MS}))
            said.append(agent.until("refused")["why"])
            document = run(agent, laid_out["path"], rw=rw)
            assert document[rw.removeprefix("rand")]["ios"] > 0, document
        assert len(set(said)) == 1, said
        assert "512" in said[0]
        assert "4096" in said[0]
        agent.ask("clean", "cleaned")


def test_the_end_of_a_file_that_is_no_whole_block_is_left_alone(agent: AgentProcess, tmp_path: Path) -> None:
    """10 MiB and 100 bytes in blocks of 4 KiB: only whole blocks are read, round and round, and none is short."""
    with thin_disk(tmp_path) as (_, mount, _):
        laid_out = prepare(agent, mount, size=(10 << 20) + 100)
        document = run(agent, laid_out["path"], rw="read", size=(10 << 20) + 100, iodepth=32, runtime_ns=1000 * MS)
        read = document["read"]
        assert read["ios"] > (10 << 20) // 4096, "it went round"
        assert (read["bytes"], read["short"], read["errors"]) == (4096 * read["ios"], 0, 0)
        agent.ask("clean", "cleaned")
