"""An agent that is stopped in its window: its figures are doubted, with how long it stood still."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from agent_process import AgentProcess

from calyx_agent import protocol
from calyx_orch.analysis.below import stalled
from calyx_orch.analysis.doubt import Context
from calyx_orch.engines import calyx
from calyx_orch.model import Answers, ClockBound, Connection, Guest, LoadMode, Round, Rw, Target, Workload

SIZE = 16 << 20
MS = 1_000_000
JOB: dict[str, protocol.Value] = {"rw": "randread", "bs": 4096, "iodepth": 4, "size": SIZE, "ramp_ns": 200 * MS}
WORKLOAD = Workload("w", Rw.RANDREAD, 4096, 4, size_bytes=SIZE, runtime_s=2.0, ramp_s=0.2)
ROUND = Round(0, 0, WORKLOAD, "data", "calyx", LoadMode.TOGETHER, ("vm",), seed=1)
GUEST = Guest("vm", Connection("vm"), (Target("data", "/data"),))


@pytest.mark.parametrize(
    ("from_ms", "for_ms", "least_s", "most_s"), [(400, 1000, 0.8, 1.6), (1000, 1900, 0.9, 1.5), (0, 0, 0, 0)]
)
def test_a_frozen_engine_is_doubted(
    agent: AgentProcess, target: Path, from_ms: int, for_ms: int, least_s: float, most_s: float
) -> None:
    """Frozen in its midst, and beyond its end, where only what lies in the window counts; and not at all."""
    prepared = agent.ask("prepare", "prepared", path=target, size=SIZE, files=1)
    agent.send(
        "run",
        ("path", prepared["files"][0]["path"]),
        **JOB,
        runtime_ns=2000 * MS,
        seed=1,
        data_seed=2,
        interval_ns=100 * MS,
    )
    agent.until("ready")
    start_ns = agent.arm()
    agent.until("started")
    if for_ms:
        time.sleep(max(start_ns + (200 + from_ms) * MS - time.monotonic_ns(), 0) / 1e9)
        _guard, engine = agent.pids()
        os.kill(engine, signal.SIGSTOP)
        try:
            time.sleep(for_ms / 1000)
        finally:
            os.kill(engine, signal.SIGCONT)
    result = agent.until("result")
    assert result["status"] == "ok"
    answers = Answers({"result": result}, agent.documents, ClockBound(0, 1), start_ns)
    doubt = stalled(Context(calyx.measure(ROUND, GUEST, answers), ROUND))
    assert (doubt is not None) == (for_ms > 0)
    assert doubt is None or least_s <= doubt.weight / 1e9 <= most_s
