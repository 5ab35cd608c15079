"""The engine behind the agent: armed, started at the start line, measured over an absolute window."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess
from test_agent_holds_fio import script, waiter

from calyx_agent import protocol

SIZE = 16 << 20
MS = 1_000_000
JOB: dict[str, protocol.Value] = {"rw": "randread", "bs": 4096, "iodepth": 4, "size": SIZE, "seed": 7, "data_seed": 8}


def prepare(agent: AgentProcess, target: Path, files: int = 1) -> list[str]:
    prepared = agent.ask("prepare", "prepared", path=target, size=SIZE, files=files)
    return [file["path"] for file in prepared["files"]]


def ready(agent: AgentProcess, paths: list[str], **job: protocol.Value) -> dict[str, Any]:
    agent.send("run", *[("path", path) for path in paths], **(JOB | job))
    return agent.until("ready")


def test_a_run_starts_at_the_line_and_measures_its_window(agent: AgentProcess, target: Path) -> None:
    paths = prepare(agent, target, files=2)
    setup = ready(agent, paths, ramp_ns=200 * MS, runtime_ns=1200 * MS)["setup"]
    assert setup["took"] in ("defer", "coop", "plain")
    start_ns = agent.arm()
    started = agent.until("started")
    assert (started["how"], started["bound_ns"]) == ("published", 0)
    assert 0 <= started["now_ns"] - start_ns < 5 * MS
    beat = agent.until("beat")
    assert (beat["phase"], beat["ios"] > 0, beat["bytes"] >= 4096 * beat["ios"]) == ("run", True, True)
    result = agent.until("result")
    assert result == {"type": "result", "status": "ok", "why": ""}

    document = json.loads(agent.documents["result"])
    assert document["started_ns"] == started["now_ns"]
    assert document["window_start_ns"] == start_ns + 200 * MS
    assert document["window_end_ns"] == start_ns + 1400 * MS
    assert (document["jobs"], document["seed"], document["data_seed"]) == (2, 7, 8)
    read = document["read"]
    assert read["ios"] > 0
    assert sum(count for _, count in read["latency"]["buckets"]) == read["ios"] == sum(document["series"]["read_ios"])
    assert len(document["series"]["read_ios"]) == 12
    assert document["write"]["latency"]["min_ns"] is None


def test_usage_covers_the_window_and_charges_the_engine(agent: AgentProcess, target: Path) -> None:
    ready(agent, prepare(agent, target), ramp_ns=100 * MS, runtime_ns=500 * MS)
    start_ns = agent.arm()
    usage = agent.until("usage")
    assert 0 <= usage["window_start_ns"] - (start_ns + 100 * MS) < 20 * MS
    assert 0 <= usage["window_end_ns"] - (start_ns + 600 * MS) < 20 * MS
    assert usage["cpus"] == os.cpu_count()
    window_ns = usage["window_end_ns"] - usage["window_start_ns"]
    assert 0 < usage["engine_ns"] < window_ns * usage["cpus"]
    assert sum(thread["ns"] for thread in usage["threads"]) == pytest.approx(usage["engine_ns"], rel=0.5, abs=20 * MS)
    assert (usage["busy_ns"] is None) == (not Path("/proc/schedstat").exists())
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    assert set(usage["stat"]) == {f"{name}_ns" for name in names}


@pytest.mark.parametrize("engine", ["calyx", "program"])
def test_a_beat_tells_what_others_have_taken(
    start: Callable[..., AgentProcess], tmp_path: Path, target: Path, engine: str
) -> None:
    """A file of the test stands for /proc/stat: time is stolen there when the test says so."""
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 2 3 4 5 6 7 100 9 9\ncpu0 0 0 0 0 0 0 0 60 0 0\ncpu1 1 2 3 4 5 6 7 40 9 9\nintr 1\n")
    agent = start(wrapper=["unshare", "-m", "sh", "-c", f'mount --bind {stat} /proc/stat && exec "$0"'])
    if engine == "calyx":
        ready(agent, prepare(agent, target), runtime_ns=2600 * MS)
    else:
        agent.send("exec", ("hold", 1), *script(f'sh -c "{waiter(agent)}"; sleep 3'), runtime_ns=2600 * MS)
        agent.until("ready")
    agent.arm()
    first = agent.until("beat")
    tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
    assert (first["cpus"], first["steal_ns"]) == (2, 100 * tick_ns)
    stat.write_text("cpu  1 2 3 4 5 6 7 250 9 9\ncpu0 0 0 0 0 0 0 0 60 0 0\nintr 1\n")
    second = agent.until("beat")
    assert (second["cpus"], second["steal_ns"]) == (1, 250 * tick_ns)
    assert second["now_ns"] - first["now_ns"] == pytest.approx(10**9, abs=0.3e9)


def test_a_stop_ends_a_run_early_and_keeps_what_was_measured(agent: AgentProcess, target: Path) -> None:
    ready(agent, prepare(agent, target), ramp_ns=0, runtime_ns=60_000 * MS)
    agent.arm(20 * MS)
    agent.until("started")
    agent.send("stop")
    assert agent.until("result", timeout_s=3)["status"] == "stopped"
    assert json.loads(agent.documents["result"])["engine"] == "calyx"


def test_what_is_never_armed_is_given_up_with_a_reason(agent: AgentProcess, target: Path) -> None:
    paths = prepare(agent, target)
    ready(agent, paths, runtime_ns=60_000 * MS, arm_within_ms=150)
    why = "it was ready, but no start line came within 150 ms"
    assert agent.until("result", timeout_s=3) == {"type": "result", "status": "failed", "why": why}
    agent.send("arm", start_ns=agent.now_ns() + 100 * MS)
    assert "nothing is ready" in agent.until("refused")["why"]
    ready(agent, paths, runtime_ns=100 * MS, arm_within_ms=10_000)
    agent.arm(20 * MS)
    assert agent.until("result")["status"] == "ok"


def test_a_stop_before_the_arm_is_answered_as_stopped(agent: AgentProcess, target: Path) -> None:
    ready(agent, prepare(agent, target), runtime_ns=1000 * MS)
    agent.send("stop")
    assert agent.until("result")["status"] == "stopped"
    assert agent.now_ns() > 0


def test_a_passed_start_line_is_refused_and_another_may_follow(agent: AgentProcess, target: Path) -> None:
    ready(agent, prepare(agent, target), runtime_ns=50 * MS)
    agent.send("arm", start_ns=agent.now_ns() - 1)
    assert "passed" in agent.until("refused")["why"]
    start_ns = agent.arm(30 * MS)
    agent.send("arm", start_ns=start_ns + 1)
    assert "armed already" in agent.until("refused")["why"]
    assert agent.until("result")["status"] == "ok"


def test_rounds_follow_each_other_at_once(agent: AgentProcess, target: Path) -> None:
    """A command sent on the heels of an answer never finds the agent busy."""
    paths = prepare(agent, target)
    for _ in range(5):
        ready(agent, paths, runtime_ns=20 * MS)
        agent.arm(10 * MS)
        assert agent.until("result")["status"] == "ok"


def test_a_staggered_start_moves_the_window_by_the_extra_ramp(agent: AgentProcess, target: Path) -> None:
    ready(agent, prepare(agent, target), ramp_ns=50 * MS, ramp_extra_ns=70 * MS, runtime_ns=100 * MS)
    start_ns = agent.arm()
    agent.until("result")
    assert json.loads(agent.documents["result"])["window_start_ns"] == start_ns + 120 * MS


def test_a_denied_io_uring_refuses_the_run_by_the_name_eperm(start: Callable[..., AgentProcess], target: Path) -> None:
    agent = start(deny="425")
    paths = prepare(agent, target)
    agent.send("run", path=paths[0], runtime_ns=100 * MS, **JOB)
    refused = agent.until("refused")
    assert (refused["verb"], refused["errno"]) == ("run", 1)
    assert "EPERM" in refused["why"]
    assert "Success" not in refused["why"]
    assert agent.ask("clean", "cleaned")["failed"] == []


def test_a_job_that_makes_no_sense_is_refused(agent: AgentProcess, target: Path) -> None:
    paths = prepare(agent, target)
    agent.send("run", path=paths[0], runtime_ns=100 * MS, **(JOB | {"bs": 0}))
    assert agent.until("refused")["verb"] == "run"
    agent.send("run", path=target / "missing", runtime_ns=100 * MS, **JOB)
    assert "missing" in agent.until("refused")["why"]


def test_the_agent_answers_clocks_while_it_runs(agent: AgentProcess, target: Path) -> None:
    ready(agent, prepare(agent, target), runtime_ns=400 * MS)
    agent.arm(20 * MS)
    agent.until("started")
    for _ in range(20):
        before_ns = time.monotonic_ns()
        assert before_ns < agent.now_ns() < time.monotonic_ns()
    assert agent.until("result")["status"] == "ok"


def test_the_agent_is_small_in_memory(agent: AgentProcess, target: Path) -> None:
    """Below 4 MB besides the buffers of the job."""
    ready(agent, prepare(agent, target), runtime_ns=100 * MS)
    agent.arm(20 * MS)
    agent.until("result")
    status = Path(f"/proc/{agent.hello['pid']}/status").read_text()
    peak_kib = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))
    assert peak_kib < 4096
