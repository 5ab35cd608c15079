"""The fake fleet: scripted guests that speak docs/protocol.md, good ones and bad ones. It ships, and needs no network.

    good    does all as it should
    late    as good, but its first I/O comes 80 ms after the start line
    dying   its connection breaks after it has begun to run
    lying   sends a result that makes no sense
    silent  says hello and answers nothing once it is armed

Nothing is waited for: a run of 60 s answers at once, with times as if it had taken that long. Everything is drawn from the
simulation's seed and the guest's address, so a run can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from calyx_orch.errors import AgentError, ReachError
from calyx_orch.model import Connection
from calyx_orch.transport import Channel, Completed, Transport
from calyx_orch.transport.simulated_agent import MARKER, SimulatedChannel
from calyx_orch.transport.simulated_scripts import SCRIPTS, Script, Simulation

__all__ = ["MARKER", "SCRIPTS", "Script", "SimulatedCarrier", "SimulatedTransport", "Simulation"]


class SimulatedCarrier:
    """Reaches scripted guests. What was put on one stays there as long as the carrier lives."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._files: dict[str, dict[str, bytes]] = {}

    async def connect(self, connection: Connection) -> Transport:
        """Reach one; its script may be not to be reachable."""
        script = self._simulation.script(connection.address)
        if not script.reachable:
            raise ReachError(f"{connection.address}:{connection.port} refused the connection: it is scripted to")
        files = self._files.setdefault(connection.address, {})
        rng = random.Random(f"{self._simulation.seed}/{connection.address}")
        return SimulatedTransport(connection.address, script, files, rng)

    async def close(self) -> None:
        """Nothing is shared but files."""


class SimulatedTransport:
    """One scripted guest."""

    def __init__(self, address: str, script: Script, files: dict[str, bytes], rng: random.Random) -> None:
        self._address, self._script, self._files, self._rng = address, script, files, rng

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        """Answers what `deploy` asks; any other program is not there."""
        if len(argv) > 3 and argv[3] == "calyx-probe":
            return Completed(0, self._probe(argv[4], argv[5], argv[6]), b"")
        if len(argv) > 4 and argv[3] == "calyx-give-back":
            self._files.pop(argv[4], None)
            return Completed(0, b"", b"")
        return Completed(127, b"", b"sh: not found\n")

    def _probe(self, marker: str, agents: str, suffix: str) -> bytes:
        lines = [f"{marker} arch {self._script.arch}", f"{marker} home /root"]
        for agent in agents.split():
            arch, name, _ = agent.split(":")
            if arch == self._script.arch:
                path = f"/root/.cache/calyx-orch/{name}"
                lines.append(f"{marker} have {path}" if path in self._files else f"{marker} room {path}{suffix}")
        return "\n".join([*lines, f"{marker} end", ""]).encode()

    async def put(self, data: bytes, path: str, *, mode: int, timeout_s: float) -> None:
        """Keep the bytes."""
        self._files[path] = data

    async def open(self, argv: Sequence[str]) -> Channel:
        """Start the scripted agent."""
        if argv[0] not in self._files:
            raise AgentError(f"{argv[0]}: not found")
        return SimulatedChannel(argv[0], self._files[argv[0]], self._address, self._script, self._rng)

    async def close(self) -> None:
        """Nothing is held."""
