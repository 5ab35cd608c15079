"""A session whose agent has died says how it died, also to whoever writes to it first."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from calyx_orch import deploy, transport
from calyx_orch.errors import AgentError
from calyx_orch.model import Connection, Guest, Target, TransportKind
from calyx_orch.runner.session import Session


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def write_on(session: Session) -> None:
    while True:
        await session.send("clock", (("n", 1),))
        await asyncio.sleep(0)


@pytest.mark.parametrize("dies", ["guard", "both"])
async def test_a_write_to_a_dead_agent_tells_how_it_ended(
    dies: str, built_agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not merely that the channel is closed: whether it is read or written first is chance."""
    monkeypatch.setenv("CALYX_AGENT_BIN", str(built_agent))
    monkeypatch.setenv("HOME", str(tmp_path))
    guest = Guest("here", Connection("here", transport=TransportKind.LOCAL), (Target("data", str(tmp_path)),))
    async with transport.Pool() as pool:
        session = Session(guest, await deploy.deploy(await transport.connect(guest.connection, pool=pool), guest))
        session.start()
        agent = int(session.agent.hello["pid"])
        for pid in (parent_of(agent), *([agent] if dies == "both" else ())):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(AgentError, match="ended by SIGKILL"):
            await asyncio.wait_for(write_on(session), timeout=10)
        await session.close()
