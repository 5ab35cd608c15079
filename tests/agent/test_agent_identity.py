"""Facts say which disk and which file system a path lies on, so that another one under the same name is known for another."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess

MIB = 1 << 20


def call(*argv: str | Path) -> str:
    return subprocess.run([str(one) for one in argv], check=True, capture_output=True, text=True).stdout.strip()


def place(agent: AgentProcess, path: Path | str) -> dict[str, Any]:
    found: dict[str, Any] = agent.ask("facts", "facts", path=path)["paths"][0]
    return found


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("losetup") is None, reason="loop devices need root")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_directory_tells_the_uuid_of_its_file_system_and_the_disk_below(
    kind: str, agent: AgentProcess, tmp_path: Path
) -> None:
    """As mkfs was told, and as losetup made it."""
    if shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"no mkfs.{kind} here")
    image, point, number = tmp_path / "disk.img", tmp_path / "mounted", uuid.uuid4()
    with image.open("wb") as file:
        file.truncate(320 * MIB)
    option = ("-m", f"uuid={number}") if kind == "xfs" else ("-U", str(number))
    call(f"mkfs.{kind}", "-q", *option, image)
    point.mkdir()
    device = call("losetup", "--find", "--show", image)
    try:
        call("mount", device, point)
        try:
            found = place(agent, point)
        finally:
            call("umount", point)
        raw = place(agent, device)
    finally:
        call("losetup", "--detach", device)
    status = Path(device).stat()
    expected = {
        "number": f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}", "size_bytes": 320 * MIB, "serial": None,
        "wwid": None, "uuid": None, "backing_file": str(image),
    }  # fmt: skip
    if kind == "xfs" or tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 9):
        assert found["fs_uuid"] == number.hex
    assert found["disk"] == raw["disk"] == expected
    assert raw["fs_uuid"] is None


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm here")
def test_what_lies_on_no_disk_has_neither(agent: AgentProcess) -> None:
    """The uuid of a tmpfs is drawn at every mount: it would tell nothing."""
    found = place(agent, "/dev/shm")
    assert (found["disk"], found["fs_uuid"]) == (None, None)
