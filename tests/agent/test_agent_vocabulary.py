"""fio's words on the `run` line: what each promises, through the agent and through the cffi module alike."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess
from test_agent_runs import JOB, MS, SIZE

from calyx_agent import protocol

BLOCK = 4096
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(agent: AgentProcess) -> Run:
    """Runs one job in the agent; its result document."""

    def by_agent(paths: list[str], **job: protocol.Value) -> dict[str, Any]:
        agent.send("run", *[("path", path) for path in paths], **(JOB | {"ramp_ns": 0} | job))
        agent.until("ready")
        agent.arm(20 * MS)
        result = agent.until("result", timeout_s=60)
        assert result["status"] == "ok", result
        document: dict[str, Any] = json.loads(agent.documents["result"])
        return document

    return by_agent


@pytest.fixture(params=["agent", "module"])
def either(request: pytest.FixtureRequest, run: Run) -> Run:
    """The same through each of the two doors in turn."""

    def by_module(paths: list[str], **job: protocol.Value) -> dict[str, Any]:
        engine = pytest.importorskip("calyx_agent.engine", reason="the cffi module is not built", exc_type=ImportError)
        document: dict[str, Any] = engine.run(JOB | {"ramp_ns": 0, "path": paths} | job)
        return document

    return run if request.param == "agent" else by_module


def lay_out(agent: AgentProcess, target: Path, *, files: int = 1, **more: protocol.Value) -> list[str]:
    prepared = agent.ask("prepare", "prepared", path=target, size=SIZE, files=files, **more)
    return [file["path"] for file in prepared["files"]]


def samples(latency: dict[str, Any]) -> int:
    return sum(count for _, count in latency["buckets"])


def write_over(run: Run, agent: AgentProcess, target: Path, **job: protocol.Value) -> bytes:
    """Writes the file until each of its blocks is new, at least twice over; its bytes."""
    paths = lay_out(agent, target)
    for attempt in range(5):  # a busy disk may take longer
        document = run(paths, rw="write", runtime_ns=(300 << 2 * attempt) * MS, **job)
        if document["write"]["bytes"] > 2 * SIZE:
            return Path(paths[0]).read_bytes()
    pytest.skip("this disk writes less than 32 MiB in a minute")


@pytest.mark.parametrize("percent", [25, 75])
def test_a_compressor_leaves_the_share_that_was_asked_for(
    run: Run, agent: AgentProcess, target: Path, percent: int
) -> None:
    """buffer_compress_percentage: zlib and windows of any block size find N percent, within 2."""
    data = write_over(run, agent, target, bs=16384, iodepth=8, buffer_compress_percentage=percent)
    assert 100 * len(zlib.compress(data, 6)) / len(data) == pytest.approx(100 - percent, abs=2)


@pytest.mark.parametrize("percent", [30, 80])
def test_so_many_blocks_are_copies_as_were_asked_for(run: Run, agent: AgentProcess, target: Path, percent: int) -> None:
    """dedupe_percentage: blocks that are equal to another one, within 2 percent; the rest does not compress."""
    data = write_over(run, agent, target, bs=BLOCK, iodepth=8, dedupe_percentage=percent)
    blocks = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    distinct = {hashlib.sha256(block).digest(): block for block in blocks}
    assert 100 * (1 - len(distinct) / len(blocks)) == pytest.approx(percent, abs=2)
    kept = b"".join(distinct.values())
    assert len(zlib.compress(kept, 1)) > 0.98 * len(kept)


def test_without_those_words_nothing_compresses_and_nothing_is_equal(
    run: Run, agent: AgentProcess, target: Path
) -> None:
    data = write_over(run, agent, target, bs=16384, iodepth=8)
    assert len(zlib.compress(data, 6)) > 0.99 * len(data)
    assert len({data[at : at + BLOCK] for at in range(0, len(data), BLOCK)}) == SIZE // BLOCK


def test_mixed_jobs_keep_the_share_although_they_read(run: Run, agent: AgentProcess, target: Path) -> None:
    """What is read does not become what is written: reads of incompressible data leave writes compressible."""
    paths = lay_out(agent, target)
    before = Path(paths[0]).read_bytes()
    run(paths, rw="randrw", iodepth=8, runtime_ns=500 * MS, buffer_compress_percentage=75)
    after = Path(paths[0]).read_bytes()
    written = b"".join(
        after[at : at + BLOCK] for at in range(0, SIZE, BLOCK) if after[at : at + BLOCK] != before[at : at + BLOCK]
    )
    assert len(written) > 8 * BLOCK
    assert 100 * len(zlib.compress(written, 6)) / len(written) == pytest.approx(25, abs=2)


def flip_byte(path: str, offset: int) -> None:
    with Path(path).open("r+b", buffering=0) as file:
        byte = os.pread(file.fileno(), 1, offset)[0]
        os.pwrite(file.fileno(), bytes([byte ^ 0x01]), offset)
        os.fsync(file.fileno())


def test_a_flipped_byte_is_found_and_named_by_its_offset(either: Run, agent: AgentProcess, target: Path) -> None:
    """verify=crc32c over a layout that can be checked: one bad block, in one file of two, and nothing else."""
    paths = lay_out(agent, target, files=2, verify="crc32c")
    document = either(paths, rw="read", bs=65536, verify="crc32c", runtime_ns=300 * MS)
    assert document["verify"] == {"checked": document["verify"]["checked"], "bad": 0, "left": 0, "first_bad": []}
    assert document["verify"]["checked"] * BLOCK >= document["read"]["bytes"] > 0

    flip_byte(paths[1], 1000 * BLOCK + 777)
    document = either(paths, rw="read", bs=65536, verify="crc32c", runtime_ns=2000 * MS)
    named = {(bad["path"], bad["offset"], bad["why"]) for bad in document["verify"]["first_bad"]}
    assert named == {(paths[1], 1000 * BLOCK, "crc")}
    assert (
        document["verify"]["bad"] == sum(error["count"] for error in document["errors"]) == document["read"]["errors"]
    )
    assert samples(document["read"]["latency"]) == document["read"]["ios"]


def test_what_a_job_writes_can_be_checked_by_the_next(run: Run, agent: AgentProcess, target: Path) -> None:
    paths = lay_out(agent, target, verify="crc32c")
    for job in ({"rw": "randwrite"}, {"rw": "randrw", "bssplit": "4096/50:16384/50", "bs": 16384}, {"rw": "read"}):
        document = run(paths, verify="crc32c", runtime_ns=300 * MS, **job)
        assert document["verify"]["bad"] == 0
    assert document["verify"]["checked"] > 0


def test_blocks_that_cannot_be_checked_are_refused_and_not_told_as_bad(agent: AgentProcess, target: Path) -> None:
    paths = lay_out(agent, target)
    agent.send("run", ("path", paths[0]), **(JOB | {"verify": "crc32c", "runtime_ns": MS}))
    assert "no block has a header" in agent.until("refused")["why"]


@pytest.mark.parametrize("arrival", ["constant", "poisson"])
def test_an_open_loop_has_two_latencies(either: Run, agent: AgentProcess, target: Path, arrival: str) -> None:
    """Each I/O is in both; from its intended start it can only be longer."""
    paths = lay_out(agent, target)
    document = either(paths, rw="randrw", arrival=arrival, rate_iops=200, iodepth=2, runtime_ns=2000 * MS)
    for direction in ("read", "write"):
        values = document[direction]
        assert samples(values["latency_intended"]) == samples(values["latency"]) == values["ios"] > 0
        assert values["latency_intended"]["sum_ns"] >= values["latency"]["sum_ns"]
        assert 0 <= values["late"] <= values["ios"]
    assert "latency_intended" not in document["sync"]
    closed = either(paths, rate_iops=200, runtime_ns=100 * MS)
    assert "latency_intended" not in closed["read"]
    assert "verify" not in closed


def test_an_offset_keeps_what_lies_before_and_behind(run: Run, agent: AgentProcess, target: Path) -> None:
    paths = lay_out(agent, target)
    before = Path(paths[0]).read_bytes()
    offset, size = 4 << 20, 2 << 20
    run(paths, rw="randwrite", offset=offset, size=size, runtime_ns=300 * MS)
    after = Path(paths[0]).read_bytes()
    assert after[:offset] == before[:offset]
    assert after[offset + size :] == before[offset + size :]
    assert after[offset : offset + size] != before[offset : offset + size]


def test_sizes_hot_blocks_and_syncs_show_in_the_counts(either: Run, agent: AgentProcess, target: Path) -> None:
    paths = lay_out(agent, target)
    document = either(
        paths,
        rw="randrw",
        bs=16384,
        bssplit="4096/50:16384/50",
        bssplit_write="8192/100",
        random_distribution="zipf:1.2",
        fdatasync=5,
        end_fsync=1,
        runtime_ns=1000 * MS,
    )
    read, write, sync = document["read"], document["write"], document["sync"]
    assert write["bytes"] == 8192 * write["ios"] > 0
    assert 4096 * read["ios"] <= read["bytes"] <= 16384 * read["ios"]
    assert samples(sync["latency"]) == sync["ios"] >= 1
    assert write["ios"] // 5 - 2 <= sync["ios"] <= write["ios"] // 5 + 3


def test_threads_are_pinned_and_the_set_up_says_where(either: Run, agent: AgentProcess, target: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    document = either(lay_out(agent, target, files=2), cpus_allowed=f"{cpus[0]},{cpus[-1]}", runtime_ns=50 * MS)
    assert document["setup"]["cpus"] == [cpus[0], cpus[-1]]


def test_buffered_io_is_labelled(either: Run, agent: AgentProcess, target: Path) -> None:
    document = either(lay_out(agent, target), direct=0, runtime_ns=50 * MS)
    assert document["setup"]["direct"] is False
    assert document["setup"]["cpus"] == []


def test_a_thinktime_slows_a_job_down(run: Run, agent: AgentProcess, target: Path) -> None:
    document = run(lay_out(agent, target), thinktime_us=20_000, thinktime_blocks=2, runtime_ns=1000 * MS)
    assert 0 < document["read"]["ios"] <= 2 * 51


def test_a_rate_of_bytes_is_held(run: Run, agent: AgentProcess, target: Path) -> None:
    document = run(lay_out(agent, target), bs=16384, rate=1 << 20, runtime_ns=1000 * MS)
    assert 0 < document["read"]["bytes"] <= (1 << 20) + 2 * 16384


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"bssplit": "4096/50:512/40"}, "add up to 90"),
        ({"bssplit": "4k/100"}, "bytes/percent"),
        ({"bssplit": "8192/100"}, "bs must be the largest"),
        ({"random_distribution": "zipf:1"}, "theta is 1"),
        ({"random_distribution": "cauchy:1"}, "not one of random zipf"),
        ({"random_distribution": "zoned:50/50:40/50"}, "90 % of the accesses"),
        ({"rw": "read", "random_distribution": "zipf:1.2"}, "needs randread"),
        ({"arrival": "poisson"}, "needs rate_iops"),
        ({"arrival": "uniform"}, "arrival=uniform is unknown"),
        ({"rate": 1, "rate_iops": 1}, "choose one"),
        ({"verify": "md5"}, "verify=md5 is unknown"),
        ({"end_fsync": 1}, "writes nothing"),
        ({"rw": "write", "fsync": 1, "fdatasync": 1}, "choose one"),
        ({"rw": "write", "buffer_compress_percentage": 100}, "zeros"),
        ({"rw": "write", "dedupe_percentage": 10, "verify": "crc32c"}, "no two are equal"),
        ({"thinktime_blocks": 2}, "without a thinktime"),
        ({"cpus_allowed": "0-"}, "not a list"),
        ({"cpus_allowed": "4095"}, "CPU 4095"),
        ({"offset": SIZE}, "the job uses"),
        ({"zero_buffers": 1}, "unknown key 'zero_buffers'"),
    ],
)
def test_nonsense_is_refused_with_its_reason(
    agent: AgentProcess, target: Path, job: dict[str, protocol.Value], why: str
) -> None:
    """The same sentence through both doors."""
    paths = lay_out(agent, target)
    agent.send("run", ("path", paths[0]), **(JOB | {"runtime_ns": MS} | job))
    refused = agent.until("refused")["why"]
    assert why in refused
    engine = pytest.importorskip("calyx_agent.engine", reason="the cffi module is not built", exc_type=ImportError)
    with pytest.raises(engine.EngineError) as raised:
        engine.run(JOB | {"runtime_ns": MS, "path": paths} | job)
    assert str(raised.value) == refused
