"""Two guests that are processes of this machine, without SSH: the least that a whole run needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from calyx_agent import executables as shipped

_TEXT = """\
workloads:
  - {name: randread, rw: randread, bs: 4k, iodepth: 4, size: 1m, runtime: 0.5s, ramp_time: 0.1s}
baselines: none
repetitions: REPETITIONS
settle: 0
lost_time_probe: 0
defaults: {transport: local, same_machine: true, agent_dir: BASE/agent, targets: {data: {path: BASE/data, allow_ram: true}}}
guests: {good1: {}, good2: {}}
"""


def two_guests(base: Path, *, repetitions: int = 1) -> Path:
    """Write their inventory to `base`/fleet.yaml, and make their target. Skips aloud where no agent is built."""
    if not shipped.available():
        pytest.skip("no agent executable is built: run `make build`")
    (base / "data").mkdir()
    path = base / "fleet.yaml"
    path.write_text(_TEXT.replace("BASE", str(base)).replace("REPETITIONS", str(repetitions)), encoding="utf-8")
    return path
