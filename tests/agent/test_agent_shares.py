"""Two runs never measure each other on one target directory, and what a dead agent left is named."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_process import AgentProcess, files_below, is_gone

Start = Callable[..., AgentProcess]

SIZE = 65536
PATTERN = re.compile(r"\.calyx-orch-\w{6}")


def stale(agent: AgentProcess, target: Path) -> list[str]:
    return list(agent.ask("facts", "facts", path=target)["paths"][0]["stale"])


def test_the_directory_is_told_before_the_first_byte_is_written(agent: AgentProcess, target: Path) -> None:
    agent.send("prepare", path=target, size=8 << 20, files=1, max_bytes_per_s=2 << 20)
    making = agent.next()
    assert making["type"] == "making"
    assert PATTERN.fullmatch(Path(making["directory"]).name)
    assert Path(making["directory"]).parent == target
    agent.send("stop")
    agent.until("refused")
    assert files_below(target) == []


def test_another_run_on_the_same_directory_is_refused_by_name(start: Start, target: Path) -> None:
    one, other = start(), start()
    one.ask("prepare", "prepared", path=target, size=SIZE, files=1, run="20261201-aa", by="ann@desk")
    other.send("prepare", path=f"{target}/../{target.name}", size=SIZE, files=1, run="20261201-bb", by="bob@desk")
    refused = other.until("refused")
    assert refused["errno"] == 16
    for part in (str(target.name), "in use by run 20261201-aa of ann@desk", f"agent {one.hello['pid']}"):
        assert part in refused["why"].replace("has been in use", "in use")
    assert len(list(target.iterdir())) == 1
    assert other.ask("clean", "cleaned")["removed"] == []


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"run": "same"}, {"run": "same", "by": "somebody@else"}),
        ({"run": "mine"}, {}),
        ({}, {"run": "theirs"}),
        ({}, {}),
    ],
)
def test_the_same_run_and_runs_without_a_name_share_a_directory(
    start: Start, target: Path, mine: dict[str, str], theirs: dict[str, str]
) -> None:
    """Several guests of one run may be one machine."""
    one, other = start(), start()
    one.ask("prepare", "prepared", path=target, size=SIZE, files=1, **mine)
    other.ask("prepare", "prepared", path=target, size=SIZE, files=1, **theirs)
    assert len(list(target.glob("*/job.0"))) == 2
    assert stale(one, target) == stale(other, target) == []


def test_another_directory_of_the_same_disk_is_not_refused(start: Start, target: Path) -> None:
    one, other = start(), start()
    for agent, name in ((one, "a"), (other, "b")):
        (target / name).mkdir()
        agent.ask("prepare", "prepared", path=target / name, size=SIZE, files=1, run=name)


@pytest.mark.parametrize("end", ["clean", "bye", "kill"])
def test_a_directory_is_free_again_when_its_run_is_over(start: Start, target: Path, end: str) -> None:
    one, other = start(), start()
    one.ask("prepare", "prepared", path=target, size=SIZE, files=1, run="one")
    if end == "clean":
        one.ask("clean", "cleaned")
    elif end == "bye":
        one.send("bye")
        one.end()
    else:
        os.kill(one.hello["pid"], signal.SIGKILL)
        one.end()  # the guard cleans
    other.ask("prepare", "prepared", path=target, size=SIZE, files=1, run="other")
    assert len(list(target.iterdir())) == 1


def test_of_two_runs_at_the_same_instant_exactly_one_comes_in(start: Start, target: Path) -> None:
    agents = [start() for _ in range(4)]
    for number, agent in enumerate(agents):
        agent.send("prepare", path=target, size=SIZE, files=1, run=f"run-{number}")
    answers = [agent.until("prepared", "refused")["type"] for agent in agents]
    assert sorted(answers) == ["prepared", "refused", "refused", "refused"]


def test_what_an_agent_killed_together_with_its_guard_left_is_stale_and_no_hindrance(
    start: Start, target: Path
) -> None:
    victim, witness = start(), start()
    victim.send("prepare", path=target, size=64 << 20, files=1, max_bytes_per_s=4 << 20, run="killed")
    made = Path(victim.until("making")["directory"])
    assert stale(witness, target) == []
    pids = [victim.process.pid, victim.hello["pid"]]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    victim.end()
    while not all(map(is_gone, pids)):
        time.sleep(0.005)
    assert made.is_dir()
    until = time.monotonic() + 5
    while not stale(witness, target) and time.monotonic() < until:  # its last thread may still be on its way out
        time.sleep(0.005)
    assert stale(witness, target) == [made.name]
    witness.ask("prepare", "prepared", path=target, size=SIZE, files=1, run="next")
    assert stale(witness, target) == [made.name]


def machine() -> str:
    identity = Path("/etc/machine-id")
    return f"{os.uname().nodename} {identity.read_text().strip() if identity.exists() else ''}"


def test_only_directories_of_ours_without_a_living_agent_are_stale(agent: AgentProcess, target: Path) -> None:
    names = ["old111", "new222", "odd", "link33", "pipe44", "far555"]
    made = {name: target / f".calyx-orch-{name}" for name in names}
    for name in names:
        if name != "link33":
            made[name].mkdir()
    made["link33"].symlink_to(made["old111"])
    os.mkfifo(made["pipe44"] / "owner")  # must not be waited for
    (made["far555"] / "owner").write_text("kind=files\nrun=x\nmachine=elsewhere 0123\n")
    (target / "old111").mkdir()
    long_ago = time.time() - 3600
    (made["odd"] / "owner").write_text(f"kind=files\nfiles=1\nrun=x\nmachine={machine()}\n")  # not six characters
    (made["old111"] / "owner").write_text(f"kind=files\nfiles=1\nrun=x\nmachine={machine()}\n")
    for name in ("old111", "new222", "odd", "far555"):
        os.utime(made[name], (long_ago, long_ago))
    assert stale(agent, target) == [made["old111"].name]
    assert stale(agent, target / "missing") == []


@pytest.mark.parametrize("value", ["two\nlines", "x" * 128])
def test_a_name_that_no_note_can_hold_is_refused(agent: AgentProcess, target: Path, value: str) -> None:
    agent.send("prepare", path=target, size=SIZE, files=1, run=value)
    assert "without control characters" in agent.until("refused")["why"]
    assert files_below(target) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a file immutable")
def test_a_file_that_stays_is_told_with_its_own_reason(agent: AgentProcess, target: Path) -> None:
    prepared = agent.ask("prepare", "prepared", path=target, size=SIZE, files=2)
    kept = prepared["files"][0]["path"]
    if subprocess.run(["chattr", "+i", kept], check=False, capture_output=True).returncode:
        pytest.skip("this file system knows no immutable files")
    try:
        cleaned = agent.ask("clean", "cleaned")
        directory = str(Path(kept).parent)
        assert cleaned["failed"] == [{"path": directory, "why": "Operation not permitted"}]
        assert files_below(target) == [
            Path(directory).name,
            *(f"{Path(directory).name}/{name}" for name in ("job.0", "owner")),
        ]
    finally:
        subprocess.run(["chattr", "-i", kept], check=True)
    assert agent.ask("clean", "cleaned")["removed"] == [directory]
