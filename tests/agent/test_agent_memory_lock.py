"""The memory-lock limit is of a user, over all his processes: what one agent locks, the next one of his lacks."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess

from calyx_agent import protocol

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or not (shutil.which("prlimit") and shutil.which("setpriv")),
        reason="needs root, prlimit and setpriv: root itself knows no such limit",
    ),
]

USER = 64001  # of nobody, so that nobody else locks memory in his name
MS = 1_000_000
LIMIT_BYTES = 96 << 10  # for one job of 64 KiB of buffers and not for two
JOB: dict[str, protocol.Value] = {"rw": "randread", "bs": 4096, "iodepth": 16, "size": 1 << 20, "runtime_ns": 200 * MS}
NEEDS = f"{16 * 4096} bytes are needed"


@pytest.fixture
def agents(built_agent: Path) -> Iterator[Callable[[], AgentProcess]]:
    """Starts agents of one user under that limit; each has a directory of its own."""
    place = Path(tempfile.mkdtemp(prefix="calyx-test-", dir="/var/tmp"))
    place.chmod(0o755)
    started: list[AgentProcess] = []

    def start() -> AgentProcess:
        home = place / str(len(started))
        home.mkdir()
        path = Path(shutil.copy(built_agent, home / "calyx-agent"))
        path.chmod(0o755)
        os.chown(home, USER, USER)
        limit = f"--memlock={LIMIT_BYTES}:{LIMIT_BYTES}"
        user = ("--reuid", str(USER), "--regid", str(USER), "--clear-groups")
        started.append(AgentProcess(["prlimit", limit, "setpriv", *user, path]))
        return started[-1]

    yield start
    for agent in started:
        agent.leave()
    shutil.rmtree(place)


def lay_out(agent: AgentProcess) -> str:
    home = Path(agent.hello["path"]).parent
    return str(agent.ask("prepare", "prepared", path=home, size=1 << 20, files=1)["files"][0]["path"])


def setup_of(agent: AgentProcess, path: str, **job: protocol.Value) -> dict[str, Any]:
    setup: dict[str, Any] = agent.ask("run", "ready", path=path, **(JOB | job))["setup"]
    return setup


def measured(agent: AgentProcess) -> dict[str, Any]:
    agent.arm(20 * MS)
    assert agent.until("result")["status"] == "ok"
    document: dict[str, Any] = json.loads(agent.documents["result"])
    return document


def test_two_agents_of_one_user_share_his_limit(agents: Callable[[], AgentProcess]) -> None:
    """A-030: the second goes on without registered buffers and says so, or refuses, with the limit and the bytes."""
    one, two = agents(), agents()
    first, second = lay_out(one), lay_out(two)
    assert one.ask("facts", "facts")["memlock_bytes"] == LIMIT_BYTES
    if not setup_of(one, first)["fixed_buffers"]:
        pytest.skip("this kernel counts rings as well: not even one job fits")

    setup = setup_of(two, second)
    if setup["fixed_buffers"]:
        pytest.skip("the memory-lock limit has no effect here")
    for word in ("ENOMEM", NEEDS, "RLIMIT_MEMLOCK", str(LIMIT_BYTES)):
        assert word in setup["why"], setup["why"]
    document = measured(two)
    assert document["read"]["ios"] > 0
    assert document["setup"]["fixed_buffers"] is False
    assert document["setup"]["why"] == setup["why"]

    two.send("run", path=second, buffers="registered", **JOB)
    refused = two.until("refused")
    assert refused["errno"] == 12
    for word in ("ENOMEM", NEEDS, "RLIMIT_MEMLOCK", str(LIMIT_BYTES)):
        assert word in refused["why"], refused["why"]

    assert measured(one)["setup"]["fixed_buffers"] is True
    assert setup_of(two, second, buffers="registered")["fixed_buffers"] is True, "what the first gave back"
    assert measured(two)["read"]["ios"] > 0


def test_a_ring_that_was_just_closed_is_no_reason_to_go_without(agents: Callable[[], AgentProcess]) -> None:
    """A-030: its memory is given back a little later, which a short patience covers."""
    one = agents()
    path = lay_out(one)
    for _ in range(30):
        assert setup_of(one, path, buffers="registered")["fixed_buffers"] is True
        assert one.ask("stop", "result")["status"] == "stopped"
