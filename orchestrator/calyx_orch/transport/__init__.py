"""How the controller reaches a guest: run a program, put a file, open a line channel. One narrow seam, three carriers.

    ssh/          asyncssh: logins bounded and retried, jump connections shared, host keys checked
    local.py      a real subprocess on this machine
    simulated.py  the fake fleet: scripted guests (good, late, dying, lying, silent) that speak docs/protocol.md

A failure to reach a guest is always a `ReachError` with one sentence: what happened, to whom, and what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from calyx_orch.model import Connection, TransportKind

if TYPE_CHECKING:
    from calyx_orch.transport.simulated import Simulation

LINE_BYTES_MAX = 65 * 1024  # the protocol's 64 KiB, and slack for the marker and noise in front of it
STDERR_TAIL_BYTES = 4096
OUTPUT_BYTES_MAX = 4 * 1024 * 1024  # what `run` keeps of one stream; a flood beyond it is dropped
CLOSE_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Completed:
    """A program that ended. `status` None: the connection was lost during the command, which is always a failure.

    A program ended by a signal has status 128 + its number, as a shell would say. The outputs are bytes as they came.
    """

    status: int | None
    stdout: bytes
    stderr: bytes


class Channel(Protocol):
    """A line channel to a program that runs on the guest."""

    async def send(self, data: bytes) -> None:
        """Write bytes to the program's stdin. Raises AgentError when the program or the connection has ended."""

    async def receive(self) -> bytes | None:
        """One line of stdout without its newline, None at the end. Raises AgentError on a line above LINE_BYTES_MAX."""

    async def close(self) -> None:
        """Close stdin, wait a bounded time for the program's end, then let go of the channel."""

    def stderr_tail(self) -> bytes:
        """The last STDERR_TAIL_BYTES of the program's stderr."""

    @property
    def exit_status(self) -> int | None:
        """The status the program ended with; None while it runs and after a lost connection."""


class Transport(Protocol):
    """An open way to one guest."""

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        """Run a program to its end. Raises AgentError when it is not over in `timeout_s`, ReachError without a session."""

    async def put(self, data: bytes, path: str, *, mode: int, timeout_s: float) -> None:
        """Write a whole file under a temporary name beside `path`, check its size, and rename it into place.

        Nothing is left behind on failure, and a running program of that name is not disturbed. Raises AgentError with
        the guest's reason and the path.
        """

    async def open(self, argv: Sequence[str]) -> Channel:
        """Start a program and keep a line channel to it."""

    async def close(self) -> None:
        """Let go of the guest."""


class Carrier(Protocol):
    """One kind of transport: what it shares between guests lives here."""

    async def connect(self, connection: Connection) -> Transport:
        """Reach one guest. Raises ReachError."""

    async def close(self) -> None:
        """Let go of everything shared, such as jump connections."""


class Pool:
    """What all connections of a run share: bounds on logins, jump connections, loaded keys, the simulated fleet.

    `logins` bounds logins under way at once; `logins_per_server` those to one address and port (sshd drops more than
    about ten at random: MaxStartups). `passphrases` are those of encrypted key files (see `unlock`). Use it as an async
    context manager, or close it.
    """

    def __init__(
        self,
        *,
        logins: int = 64,
        logins_per_server: int = 8,
        simulation: Simulation | None = None,
        passphrases: Mapping[str, str] | None = None,
    ) -> None:
        self._passphrases = dict(passphrases or {})
        self._logins = logins
        self._logins_per_server = logins_per_server
        self._simulation = simulation
        self._carriers: dict[TransportKind, Carrier] = {}

    def carrier(self, kind: TransportKind) -> Carrier:
        """The carrier of one kind, made at the first use: asyncssh is imported only when a guest is on SSH."""
        if kind not in self._carriers:
            self._carriers[kind] = self._make(kind)
        return self._carriers[kind]

    def _make(self, kind: TransportKind) -> Carrier:
        if kind is TransportKind.LOCAL:
            from calyx_orch.transport.local import LocalCarrier

            return LocalCarrier()
        if kind is TransportKind.SIMULATED:
            from calyx_orch.transport.simulated import SimulatedCarrier, Simulation

            return SimulatedCarrier(self._simulation or Simulation())
        from calyx_orch.transport.ssh import SshCarrier

        return SshCarrier(logins=self._logins, logins_per_server=self._logins_per_server, passphrases=self._passphrases)

    async def close(self) -> None:
        """Close all that is shared. Transports that are still open lose their jump hosts."""
        carriers, self._carriers = list(self._carriers.values()), {}
        await asyncio.gather(*(carrier.close() for carrier in carriers))

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def connect(connection: Connection, *, pool: Pool) -> Transport:
    """Reach a guest by the carrier its connection names.

    Raises ReachError with one sentence when it cannot be reached or does not let us in.
    """
    return await pool.carrier(connection.transport).connect(connection)


def unlock(connections: Iterable[Connection]) -> Mapping[str, str]:
    """Ask at the terminal, once each, for the passphrases of encrypted keys that these connections need; blocks.

    Returns them by path; nothing is asked without a terminal, nor for a key that an ssh-agent holds.
    """
    ways = [connection for connection in connections if connection.transport is TransportKind.SSH]
    if not ways:
        return {}
    from calyx_orch.transport.ssh import passphrases

    return passphrases.unlock(ways)
