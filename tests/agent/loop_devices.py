"""Loop devices for the tests of raw devices, and what an agent says of them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from agent_process import AgentProcess, Message

from calyx_agent import protocol

MIB = 1 << 20
BYTES = 64 * MIB


def call(*argv: str | Path) -> str:
    return subprocess.run([str(one) for one in argv], check=True, capture_output=True, text=True).stdout.strip()


def make_still_ext4(device: Path) -> None:
    """An ext4 that writes nothing by itself while it is mounted: neither tables that were left for later, nor a journal.

    What is compared byte by byte would else change below an agent that did nothing.
    """
    call("mkfs.ext4", "-q", "-O", "^has_journal", "-E", "lazy_itable_init=0", device)


class Loops:
    """Loop devices over files of this test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.made: list[str] = []

    def make(self, *options: str, size: int = BYTES) -> Path:
        image = self.directory / f"disk{len(self.made)}.img"
        with image.open("wb") as file:
            file.truncate(size)
        self.made.append(call("losetup", *options, "--find", "--show", image))
        return Path(self.made[-1])

    def image(self, device: Path) -> Path:
        return self.directory / f"disk{self.made.index(str(device))}.img"

    def detach(self, device: Path) -> None:
        call("losetup", "--detach", device)
        self.made[self.made.index(str(device))] = ""


def prepare(agent: AgentProcess, device: Path | str, **more: protocol.Value) -> Message:
    agent.send("prepare", **({"device": device, "size": 8 * MIB, "files": 1, "destructive": 1} | more))
    return agent.until("prepared", "refused")


def facts(agent: AgentProcess, device: Path | str) -> dict[str, Any]:
    found: dict[str, Any] = agent.ask("facts", "facts", path=device)["paths"][0]["block"]
    return found


def assert_refused(agent: AgentProcess, loops: Loops, device: Path, *words: str) -> None:
    """By the facts and by `prepare` alike, in the same words, and not a byte of it is changed."""
    call("sync")
    before = device.read_bytes()
    told = facts(agent, device)["refused"]
    answer = prepare(agent, device)
    assert answer["type"] == "refused"
    for word in words:
        assert word in told
        assert word in answer["why"]
    assert device.read_bytes() == before
