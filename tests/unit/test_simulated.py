"""The fake fleet behaves as its scripts say, and tells figures that agree with one another."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from calyx_orch.engines.fio_documents import parse_log, read_output
from calyx_orch.errors import ReachError
from calyx_orch.model import Connection, TransportKind
from calyx_orch.transport import Channel, Pool, connect
from calyx_orch.transport.simulated import MARKER, Simulation
from calyx_orch.transport.simulated_figures import Job, calyx_result, draw, fio_log, fio_output, lower_ns

JOB = Job(True, True, 4096, 8, 2, 2_050_000_000, 100_000_000, read_percent=70)
RUN = (
    b"run path=/d/job.0 rw=randread bs=4096 iodepth=8 size=67108864 ramp_ns=10000000000 runtime_ns=60000000000 seed=1\n"
)


async def agent(pool: Pool, address: str) -> Channel:
    transport = await connect(Connection(address, transport=TransportKind.SIMULATED), pool=pool)
    await transport.put(b"program", "/agent", mode=0o700, timeout_s=1)
    return await transport.open(("/agent",))


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with Pool(simulation=Simulation(seed=7)) as made:
        yield made


async def message(channel: Channel) -> dict[str, Any]:
    line = await asyncio.wait_for(channel.receive(), 1)
    assert line is not None
    return dict(json.loads(line.decode().removeprefix(MARKER)))


async def until(channel: Channel, kind: str) -> list[dict[str, Any]]:
    seen = [await message(channel)]
    while seen[-1]["type"] != kind:
        seen.append(await message(channel))
    return seen


async def test_a_run_of_a_minute_answers_at_once_with_times_as_if(pool: Pool) -> None:
    channel = await agent(pool, "good1")
    hello = await message(channel)
    assert (hello["type"], hello["sha256"]) == ("hello", hashlib.sha256(b"program").hexdigest())
    began = time.monotonic()
    await channel.send(b"clock n=3\n" + RUN)
    now_ns = (await until(channel, "clock"))[-1]["now_ns"]
    assert (await until(channel, "ready"))[-1]["setup"]["took"] == "defer"
    start_ns = now_ns + 2_000_000_000
    await channel.send(b"arm start_ns=%d\n" % start_ns)
    said = await until(channel, "result")
    kinds = [each["type"] for each in said]
    assert kinds[:2] == ["armed", "started"]
    assert said[-1]["status"] == "ok"
    text = "".join(each["text"] for each in said if each["type"] == "output")
    assert hashlib.sha256(text.encode()).hexdigest() == next(e["sha256"] for e in said if e["type"] == "output")
    result = json.loads(text)
    assert result["window_start_ns"] == start_ns + 10_000_000_000
    assert result["window_end_ns"] - result["window_start_ns"] == 60_000_000_000
    assert 0 <= result["started_ns"] - start_ns < 1_000_000
    assert time.monotonic() - began < 5


async def test_a_late_guest_says_so(pool: Pool) -> None:
    channel = await agent(pool, "late1")
    await channel.send(b"clock n=1\n" + RUN)
    start_ns = (await until(channel, "clock"))[-1]["now_ns"] + 10**9
    await channel.send(b"arm start_ns=%d\n" % start_ns)
    assert (await until(channel, "started"))[-1]["now_ns"] - start_ns >= 80_000_000


async def test_a_dying_guest_loses_its_connection_while_it_runs(pool: Pool) -> None:
    channel = await agent(pool, "dying1")
    await channel.send(RUN + b"arm start_ns=%d\n" % 10**19)
    await until(channel, "beat")
    assert await channel.receive() is None
    assert channel.exit_status is None


async def test_a_silent_guest_answers_nothing_once_armed(pool: Pool) -> None:
    channel = await agent(pool, "silent1")
    await channel.send(RUN)
    await until(channel, "ready")
    await channel.send(b"arm start_ns=%d\nclock n=1\n" % 10**19)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(channel.receive(), 0.05)


async def test_a_lying_guest_sends_what_is_no_json(pool: Pool) -> None:
    channel = await agent(pool, "lying1")
    await channel.send(RUN + b"arm start_ns=%d\n" % 10**19)
    text = "".join(each["text"] for each in await until(channel, "result") if each["type"] == "output")
    with pytest.raises(ValueError, match=r"Expecting|Extra data|delimiter"):
        json.loads(text)


async def test_an_instant_that_has_passed_is_refused(pool: Pool) -> None:
    channel = await agent(pool, "good1")
    await channel.send(RUN + b"arm start_ns=5\n")
    assert (await until(channel, "refused"))[-1]["why"] == "the start line has passed"


async def test_an_unreachable_guest_is_one(pool: Pool) -> None:
    with pytest.raises(ReachError, match="refused the connection"):
        await connect(Connection("unreachable1", transport=TransportKind.SIMULATED), pool=pool)


def test_counts_histogram_and_series_of_a_draw_agree() -> None:
    drawn = draw(JOB, random.Random(3))
    result = calyx_result(JOB, drawn, {}, 0, 0)
    assert len(drawn.read_ios) == 21, "20 whole intervals and one of 50 ms"
    for side in ("read", "write"):
        ios = result[side]["ios"]
        assert (
            ios == sum(result["series"][f"{side}_ios"]) == sum(count for _, count in result[side]["latency"]["buckets"])
        )
        assert sum(result["series"][f"{side}_bytes"]) == result[side]["bytes"] == ios * 4096
    assert 0.68 < result["read"]["ios"] / (result["read"]["ios"] + result["write"]["ios"]) < 0.72


def test_fio_tells_the_same_draw_as_calyx() -> None:
    """The output is read as fio's own, and its logs add up to its counts."""
    drawn = draw(JOB, random.Random(3))
    output = read_output(fio_output(JOB, drawn, "fio-3.33"), "", 0)
    assert (output.status, output.why) == ("ok", "")
    read, write = output.jobs[0].read, output.jobs[0].write
    assert read is not None and write is not None  # noqa: PT018
    assert (read.ios, write.ios) == (sum(drawn.read_ios), sum(drawn.write_ios))
    assert read.latency.count == read.ios
    told = {index // 2 for index, _ in read.latency.buckets}
    assert told == {index // 2 for index, _ in drawn.read_buckets}, "the same buckets of fio's grid"
    lines = parse_log(fio_log(JOB, drawn, "calyx_iops.1.log"), "calyx_iops.1.log")
    logged = sum(line.value * (0.05 if line.end_ms == 2050 else 0.1) for line in lines if line.direction == 0)
    assert logged == pytest.approx(read.ios, rel=0.001)


def test_a_simulation_repeats_itself() -> None:
    assert draw(JOB, random.Random("1/vm1")) == draw(JOB, random.Random("1/vm1"))
    assert draw(JOB, random.Random("1/vm1")) != draw(JOB, random.Random("2/vm1"))


def test_a_cap_on_iops_is_kept() -> None:
    capped = draw(Job(True, False, 4096, 32, 2, 10**9, 10**8, rate_iops=100), random.Random(1))
    assert 150 < sum(capped.read_ios) < 250


def test_bucket_bounds_are_those_of_the_histogram() -> None:
    assert [lower_ns(index) for index in (0, 255, 256, 257, 384, 511, 512)] == [0, 255, 256, 258, 512, 1020, 1024]
