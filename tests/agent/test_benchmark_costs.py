"""What a benchmark counts of the agent is of both its processes: the guard, which it starts, and the one that serves."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from side_by_side import costs

from calyx_orch.model import Rw, Workload

MIB = 1 << 20


def test_an_agent_is_two_processes(built_agent: Path) -> None:
    with costs.direct_agent(built_agent) as agent:
        names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in agent.pids]
    assert names == ["calyx-guard", "calyx-agent"]


def test_resident_is_what_they_hold_besides_the_buffers(built_agent: Path, target: Path) -> None:
    path = target / "file"
    path.write_bytes(bytes(range(256)) * (MIB // 256))
    workload = Workload("w", rw=Rw.RANDREAD, bs_bytes=4096, iodepth=32, size_bytes=MIB, direct=False)
    found = costs.resident_bytes(costs.Bench(str(path), workload, built_agent, "fio", {}, {}))
    assert 0 < found <= 4 * MIB
