"""The second door: the engine in this process gives what the agent gives."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess
from test_agent_probes import ext4_on_loop
from test_agent_runs import JOB, MS, prepare, ready

engine = pytest.importorskip("calyx_agent.engine", reason="the cffi module is not built", exc_type=ImportError)


def shape(value: Any) -> Any:
    """The keys of a document, at every depth."""
    return {key: shape(inner) for key, inner in value.items()} if isinstance(value, dict) else type(value).__name__


def test_both_doors_give_the_same_document(agent: AgentProcess, target: Path) -> None:
    paths = prepare(agent, target)
    ready(agent, paths, runtime_ns=100 * MS, ramp_ns=0)
    agent.arm(20 * MS)
    agent.until("result")
    document = engine.run(JOB | {"path": paths, "runtime_ns": 100 * MS, "ramp_ns": 0})
    assert shape(document) == shape(json.loads(agent.documents["result"]))
    assert document["read"]["ios"] == sum(count for _, count in document["read"]["latency"]["buckets"]) > 0


def test_progress_is_told_and_may_stop_the_job(agent: AgentProcess, target: Path) -> None:
    told = []

    def progress(now: Any) -> bool:
        told.append(now)
        return True

    began = time.monotonic()
    document = engine.run(JOB | {"path": prepare(agent, target), "runtime_ns": 60_000 * MS}, progress)
    assert time.monotonic() - began < 5
    assert told[0].ios > 0
    assert document["engine"] == "calyx"


def test_an_exception_in_progress_ends_the_job(agent: AgentProcess, target: Path) -> None:
    def progress(now: Any) -> bool:
        raise KeyError(now.ios)

    with pytest.raises(KeyError):
        engine.run(JOB | {"path": prepare(agent, target), "runtime_ns": 60_000 * MS}, progress)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a file system of its own that can be frozen")
def test_what_hangs_is_told_while_it_hangs(agent: AgentProcess, tmp_path: Path) -> None:
    """Which I/O, where and for how long, as in the beats of an agent; once it comes back nothing is told any more."""
    told: list[Any] = []
    with ext4_on_loop(tmp_path) as (mount, freeze, thaw):
        (path,) = prepare(agent, mount)
        frozen = False

        def progress(now: Any) -> None:
            nonlocal frozen
            if not frozen and now.ios:
                freeze()
                frozen = True
            if now.hung:
                told.append(now)
                thaw()

        document = engine.run(JOB | {"path": path, "rw": "randwrite", "runtime_ns": 4000 * MS}, progress)
        assert document["write"]["errors"] == 0
        agent.ask("clean", "cleaned")
    assert told
    assert len(told) < 10, "it came back"
    oldest = told[0].hung[0]
    assert (oldest.op, oldest.job, oldest.offset % 4096) == ("write", 0, 0)
    assert 1_000 * MS < oldest.age_ns < 4_000 * MS
    assert len(told[0].hung) <= told[0].hung_count


def test_a_refused_job_is_an_error_with_its_reason(target: Path) -> None:
    with pytest.raises(engine.EngineError, match="nowhere"):
        engine.run(JOB | {"path": target / "nowhere", "runtime_ns": MS})
    with pytest.raises(engine.EngineError, match="unknown key 'colour'"):
        engine.run(JOB | {"path": target / "nowhere", "runtime_ns": MS, "colour": 1})


def test_buckets_hold_what_their_bounds_say() -> None:
    for value in [0, 1, 255, 256, 257, 511, 512, 4095, 10**6, 123_456_789, 2**40, 2**41 - 1]:
        index = engine.histogram_index(value)
        assert engine.histogram_lower(index) <= value < engine.histogram_upper(index)
    for index in range(1, engine.HISTOGRAM_BUCKETS):
        assert engine.histogram_upper(index - 1) == engine.histogram_lower(index)
    assert engine.histogram_index(2**63) == engine.HISTOGRAM_BUCKETS - 1
    with pytest.raises(IndexError):
        engine.histogram_lower(engine.HISTOGRAM_BUCKETS)
