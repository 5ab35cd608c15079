"""What tells how far a guest's figures can be trusted: noise floor, truth probes, hanging I/O, the agent's own footprint."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess, Message, files_below

SIZE = 8 << 20
SECOND_NS = 1_000_000_000
AGENT_RSS_MAX_BYTES = 4 << 20
MUSL_AGENT_MAX_BYTES = 150 << 10


def lay_out(agent: AgentProcess, directory: Path, size: int = SIZE) -> str:
    prepared = agent.ask("prepare", "prepared", path=directory, size=size, files=1, seed=5)
    return str(prepared["files"][0]["path"])


def job(path: str, **changes: Any) -> dict[str, Any]:
    return {
        "path": path,
        "rw": "randread",
        "bs": 4096,
        "size": SIZE,
        "iodepth": 4,
        "runtime_ns": 200_000_000,
        **changes,
    }


def run(agent: AgentProcess, path: str, **changes: Any) -> dict[str, Any]:
    agent.ask("run", "ready", **job(path, **changes))
    agent.arm()
    assert agent.until("result")["status"] == "ok"
    document: dict[str, Any] = json.loads(agent.documents["result"])
    return document


def refusal(agent: AgentProcess, verb: str, **values: Any) -> Message:
    agent.send(verb, **values)
    message = agent.next()
    assert message["type"] == "refused"
    return message


def test_the_floor_is_the_engines_own_share(agent: AgentProcess) -> None:
    """NOPs through the same loop: many of them, each far below a millisecond, with the set-up that took effect."""
    floor = agent.ask("floor", "floor")
    assert floor["ios"] > 1000
    assert 0 < floor["p50_ns"] <= floor["p99_ns"] < 1_000_000
    # CPU time: no more than passed, and one at a time half of them took the median or longer.
    assert floor["p50_ns"] // 2 <= floor["ns_per_io"] <= 200_000_000 // floor["ios"]
    assert floor["setup"]["took"] in ("defer", "coop", "plain")
    assert floor["clock"]["cost_ns"] > 0
    assert agent.ask("floor", "floor", iodepth=16, setup="plain", runtime_ms=50)["iodepth"] == 16


def test_a_floor_that_cannot_be_had_is_refused(agent: AgentProcess) -> None:
    assert "unknown" in refusal(agent, "floor", setup="fast")["why"]
    assert "iodepth" in refusal(agent, "floor", iodepth=0)["why"]


def test_a_guest_without_io_uring_has_no_floor_but_says_why(start: Callable[..., AgentProcess]) -> None:
    """Case 028: the error is named, and never "Success"."""
    agent = start(deny="425")
    why = refusal(agent, "floor")["why"]
    assert "EPERM" in why
    assert "Success" not in why
    assert agent.ask("floor", "floor", setup="psync")["setup"]["psync"] is True


def test_the_truth_probe_reads_twice_writes_and_restores(agent: AgentProcess, target: Path) -> None:
    path = lay_out(agent, target)
    before = Path(path).read_bytes()
    truth = agent.ask("truth", "truth", path=path)
    assert truth["reads"] >= 8
    assert truth["writes"] >= 16
    for kind in ("cold", "hot"):
        assert 0 < truth[f"{kind}_min_ns"] <= truth[f"{kind}_read_ns"] <= truth[f"{kind}_max_ns"]
    assert truth["write_ns"] > 0
    assert 0 < truth["flush_min_ns"] <= truth["flush_write_ns"] <= truth["flush_max_ns"]
    assert Path(path).read_bytes() == before
    assert "lay one out" in refusal(agent, "truth", path=target)["why"] or "EISDIR" in agent.messages[-1]["why"]
    assert "needs path=" in refusal(agent, "truth")["why"]


def test_psync_runs_where_io_uring_is_forbidden(start: Callable[..., AgentProcess], target: Path) -> None:
    """Case 027: refused with the reason, unless the plan names psync, which is then told in the result."""
    agent = start(deny="425,426,427")
    assert agent.ask("facts", "facts")["io_uring"]["ok"] is False
    path = lay_out(agent, target)
    assert "EPERM" in refusal(agent, "run", **job(path))["why"]
    assert "iodepth=1" in refusal(agent, "run", **job(path, setup="psync"))["why"]
    document = run(agent, path, setup="psync", iodepth=1, rw="randrw")
    assert document["setup"]["psync"] is True
    assert document["setup"]["took"] == "psync"
    assert document["read"]["ios"] + document["write"]["ios"] > 0


def test_every_result_tells_clock_and_places(agent: AgentProcess, target: Path) -> None:
    path = lay_out(agent, target)
    document = run(agent, path, huge=1)
    assert document["clock"]["source"] in ("tsc", "monotonic")
    assert document["clock"]["cost_ns"] > 0
    assert document["clock"]["resolution_ns"] > 0
    setup = document["setup"]
    assert setup["iopoll"] is False
    assert setup["numa"] is None
    assert isinstance(setup["ring_fd"], bool)
    assert setup["huge"] or "huge pages" in setup["why"]
    facts = agent.ask("facts", "facts")
    assert facts["clock"]["source"] == document["clock"]["source"]
    assert facts["huge_page_bytes"] >= 0
    assert facts["huge_pages_free"] >= 0


def test_polling_is_refused_by_the_devices_name(agent: AgentProcess) -> None:
    """Case 032: one probe before, no partial run, no silent fall-back."""
    if agent.ask("facts", "facts", path="/dev/shm")["paths"][0]["is_ram"] is not True:
        pytest.skip("no RAM file system at /dev/shm")
    path = lay_out(agent, Path("/dev/shm"))
    why = refusal(agent, "run", **job(path, iopoll=1))["why"]
    assert "polling not supported by" in why
    assert run(agent, path)["read"]["ios"] > 0
    agent.ask("clean", "cleaned")


def test_polling_runs_where_the_device_polls(agent: AgentProcess, target: Path) -> None:
    entry = agent.ask("facts", "facts", path=target)["paths"][0]
    path = lay_out(agent, target)
    if entry["io_poll"]:
        assert run(agent, path, iopoll=1)["setup"]["iopoll"] is True
    else:
        assert "polling not supported by" in refusal(agent, "run", **job(path, iopoll=1))["why"]


def rss_bytes(pid: int) -> int:
    """What a process holds in memory of its own; pages of its executable included."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


def test_the_agent_takes_little_memory_besides_buffers(agent: AgentProcess, target: Path) -> None:
    """While a job is ready, serving process and guard together hold at most 4 MB besides the job's buffers."""
    path = lay_out(agent, target)
    ready = agent.ask("run", "ready", **job(path))
    held = sum(rss_bytes(pid) for pid in agent.pids())
    agent.send("stop")
    agent.until("result")
    assert held - ready["setup"]["buffer_bytes"] <= AGENT_RSS_MAX_BYTES, f"{held} bytes"


def test_a_reader_that_sleeps_does_not_slow_the_io(agent: AgentProcess, target: Path) -> None:
    """Nobody reads the agent's stdout while a job runs: it runs to its end, and its answers wait."""
    path = lay_out(agent, target)
    agent.ask("run", "ready", **job(path, runtime_ns=2 * SECOND_NS, deadline_ns=4 * SECOND_NS))
    start_ns = agent.arm()
    while agent_clock() < start_ns + 2_600_000_000:
        time.sleep(0.05)
        for _ in range(2000):
            agent.send("clock", n=1)  # each is answered, and no one reads the answers
    result = agent.until("result")
    document = json.loads(agent.documents["result"])
    assert result["status"] == "ok"
    assert document["ended_ns"] < start_ns + 4 * SECOND_NS
    assert document["read"]["ios"] > 0
    assert document["counts"]["unfinished"] == 0


def agent_clock() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


@contextlib.contextmanager
def ext4_on_loop(directory: Path) -> Iterator[tuple[Path, Callable[[], None], Callable[[], None]]]:
    """A small ext4 of its own that can be frozen: (mount point, freeze, thaw)."""
    for tool in ("losetup", "mkfs.ext4", "fsfreeze", "mount"):
        if shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            pytest.skip(f"no {tool}")
    image, mount = directory / "disk.img", directory / "mnt"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, mount], check=False, capture_output=True).returncode:
        pytest.skip("no loop mounts here")
    frozen: list[bool] = []

    def freeze() -> None:
        subprocess.run(["fsfreeze", "-f", mount], check=True)
        frozen.append(True)

    def thaw() -> None:
        if frozen:
            subprocess.run(["fsfreeze", "-u", mount], check=True)
            frozen.clear()

    try:
        yield mount, freeze, thaw
    finally:
        thaw()
        for _ in range(50):
            if not subprocess.run(["umount", mount], check=False, capture_output=True).returncode:
                break
            time.sleep(0.1)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a file system of its own that can be frozen")
def test_writes_that_cannot_be_cancelled_are_told_while_they_hang(agent: AgentProcess, tmp_path: Path) -> None:
    """Case 033: a frozen file system holds its writers where no cancelling reaches them.

    Beats name offset, age and direction while they hang, the job ends at its deadline, and the agent stays usable.
    """
    with ext4_on_loop(tmp_path) as (mount, freeze, thaw):
        path = lay_out(agent, mount)
        agent.ask(
            "run", "ready", **job(path, rw="randwrite", runtime_ns=3 * SECOND_NS, deadline_ns=int(3.5 * SECOND_NS))
        )
        start_ns = agent.arm()
        while agent_clock() < start_ns + 300_000_000:
            time.sleep(0.01)
        freeze()
        beats: list[Message] = []
        while (message := agent.next(timeout_s=15))["type"] != "result":
            if message["type"] == "beat":
                beats.append(message)
        ended_ns = agent_clock()
        thaw()
        hung = [beat for beat in beats if "hung" in beat]
        assert hung, beats
        named = hung[-1]["hung"]
        assert 1 <= len(named) <= 4
        assert hung[-1]["hung_count"] >= len(named)
        for io in named:
            assert io["op"] == "write"
            assert io["job"] == 0
            assert io["age_ns"] > SECOND_NS
            assert 0 <= io["offset"] < SIZE
            assert io["offset"] % 4096 == 0
        assert message["status"] == "failed"
        assert message["why"]
        assert ended_ns < start_ns + 8 * SECOND_NS
        assert agent.ask("clock", "clock", n=3)["n"] == 3
        assert run(agent, path)["read"]["ios"] > 0
        agent.ask("clean", "cleaned")
        assert files_below(mount) == ["lost+found"]


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_a_musl_agent_is_small(arch: str) -> None:
    """At most 150 KB, when `make agents` has made one."""
    path = Path(__file__).resolve().parents[2] / "build" / f"agent-{arch}" / f"calyx-agent-{arch}"
    if not path.exists():
        pytest.skip("`make agents` has not been run here")
    assert path.stat().st_size <= MUSL_AGENT_MAX_BYTES
    if arch == platform.machine():
        told = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
        assert told.startswith("calyx-agent ")
