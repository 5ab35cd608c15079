"""A guest that says nothing is not given up for it: it is shown as silent, and its result is taken when it comes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from calyx_orch.commands.loopback import LoopbackFleet, inventory_yaml
from fleet.whole_runs import guests_up, left_processes, nothing_left, start_run

pytestmark = [pytest.mark.fleet]

SIX_SECONDS = """\
workloads:
  - {name: randread, rw: randread, bs: 4k, iodepth: 4, size: 8m, runtime: 6s, ramp_time: 0.1s, rate_iops: 400}
baselines: none
repetitions: 1
settle: 0
lost_time_probe: 0
"""
SILENT = "silent; it is waited for until its job's deadline has passed"
STILL_S = 4.5  # less than dead_man, in which a guest that hears nothing ends by itself


@pytest.mark.slow
async def test_an_agent_that_stands_still_is_waited_for(tmp_path: Path) -> None:
    """SIGSTOP of agent and guard in the window, SIGCONT later: exit code 0, and both guests have their figures."""
    async with guests_up(2, tmp_path) as fleet:
        started = await start_run(inventory_yaml(fleet, body=SIX_SECONDS), tmp_path)
        await started.until("round 1 of 1")
        await asyncio.sleep(2.0)
        mine = str(fleet.guests[0].directory)
        left = left_processes(fleet)
        agents = [pid for pid, words in left.items() if "calyx-agent-" in words.split(" ")[0] and mine in words]
        assert len(agents) == 2, "the agent and its guard"
        for pid in agents:
            os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(STILL_S)
        finally:
            for pid in agents:
                os.kill(pid, signal.SIGCONT)
        ended = await started.ended()
        assert f"guest1: {SILENT}" in ended.out
        assert "guest2: silent" not in ended.out
        assert "lost" not in {one.state for one in ended.outcomes.values()}, ended.out
        assert ended.status == 0
        assert [m.status for m in ended.record.measurements] == ["ok", "ok"]
        await nothing_left(fleet)


async def test_a_link_that_stalls_is_waited_for(tmp_path: Path) -> None:
    """Nothing goes through in either direction for a while, and no connection is closed: not a byte is lost."""
    async with guests_up(2, tmp_path) as fleet, link(fleet) as stalling:
        text = inventory_yaml(fleet, body=SIX_SECONDS)
        assert f"port: {fleet.guests[0].port}" in text
        started = await start_run(text.replace(f"port: {fleet.guests[0].port}", f"port: {stalling.port}"), tmp_path)
        await started.until("round 1 of 1")
        await asyncio.sleep(2.0)
        stalling.open.clear()
        await asyncio.sleep(STILL_S)
        stalling.open.set()
        ended = await started.ended()
        assert f"guest1: {SILENT}" in ended.out
        assert "guest1: speaks again after" in ended.out
        assert ended.status == 0, ended.out
        assert [m.status for m in ended.record.measurements] == ["ok", "ok"]
        await nothing_left(fleet)


@dataclass
class Link:
    """A port in front of the first guest's server; bytes pass while `open` is set."""

    address: str
    target: int
    port: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)
    _pipes: set[asyncio.Task[None]] = field(default_factory=set)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection both ways."""
        there, back = await asyncio.open_connection(self.address, self.target)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._carry(source, sink))
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                await self.open.wait()
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.close()


@asynccontextmanager
async def link(fleet: LoopbackFleet) -> AsyncIterator[Link]:
    """A link to the first guest, known by the same host key."""
    made = Link(fleet.guests[0].address, fleet.guests[0].port)
    made.open.set()
    server = await asyncio.start_server(made.take, made.address, 0)
    made.port = server.sockets[0].getsockname()[1]
    known = fleet.known_hosts
    line = next(one for one in known.read_text().splitlines() if f"]:{made.target} " in one)
    known.write_text(known.read_text() + line.replace(f"]:{made.target} ", f"]:{made.port} ") + "\n")
    try:
        yield made
    finally:
        made.open.set()
        server.close()
        await asyncio.gather(*made._pipes, return_exceptions=True)
