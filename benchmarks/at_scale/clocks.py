"""Guests whose clock is known: agents in time namespaces, whose monotonic clock is ours plus a known number of seconds.

So the truth is known to a nanosecond, and an estimate can be judged. A drift is simulated: what such a guest answers is stretched
from an instant on, before the estimate sees it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from at_scale.servers import PORT, Servers
from calyx_orch import clock, deploy, transport
from calyx_orch.model import ClockBound, Connection, Guest, Target
from calyx_orch.runner.clocks import PROBES
from calyx_orch.runner.session import Session

FORWARDER = Path(__file__).with_name("forwarder.py")
FORWARDER_PORT = 20_300
SLACK_NS = 4  # whole nanoseconds lost in halves and middles


class NoNamespaceError(Exception):
    """Why there is no guest with a known clock, as a sentence."""


@dataclass(frozen=True)
class Truth:
    """A guest's clock: `ahead_ns` of ours, and from `since_ns` (of ours) on faster by `drift_ppm`."""

    ahead_ns: int
    since_ns: int = 0
    drift_ppm: int = 0

    def guest_ns(self, at_ns: int) -> int:
        """What the guest's clock shows at an instant of ours."""
        return at_ns + self.ahead_ns + (at_ns - self.since_ns) * self.drift_ppm // 1_000_000

    def offset_ns(self, at_ns: int) -> int:
        """How far it is ahead at an instant of ours."""
        return self.guest_ns(at_ns) - at_ns

    def shown(self, probe: clock.Probe) -> clock.Probe:
        """A probe of the guest without drift, as the guest with drift would have answered it."""
        return replace(probe, guest_ns=self.guest_ns(probe.guest_ns - self.ahead_ns))


@dataclass(frozen=True)
class Judged:
    """One estimate beside the truth: its error and bound, and the widest that its bound may be."""

    error_ns: int
    bound_ns: int
    widest_ns: int

    @property
    def is_outside(self) -> bool:
        """Whether the truth is not within the bound."""
        return self.error_ns > self.bound_ns

    @property
    def is_too_wide(self) -> bool:
        """Whether the bound is wider than half the round trip and the drift."""
        return self.bound_ns > self.widest_ns


def judge(probes: Sequence[clock.Probe], truth: Truth) -> Judged:
    """An estimate of one set of probes, at the instant of the probe that it keeps."""
    shown = [truth.shown(probe) for probe in probes]
    found = clock.estimate(shown)
    half_ns = min(probe.round_trip_ns for probe in probes) // 2
    return Judged(abs(found.offset_ns - truth.offset_ns(clock.taken_at(shown))), found.bound_ns, half_ns + SLACK_NS)


def judge_between(before: Sequence[clock.Probe], after: Sequence[clock.Probe], at_ns: int, truth: Truth) -> Judged:
    """An estimate at an instant between two sets of probes, as it is made of a round's start line."""
    ends: list[tuple[ClockBound, int]] = []
    for probes in (before, after):
        shown = [truth.shown(probe) for probe in probes]
        ends.append((clock.estimate(shown), clock.taken_at(shown)))
    (first, first_ns), (last, last_ns) = ends
    found = clock.combine(first, first_ns, last, last_ns, at_ns)
    rate_ppm = clock.DRIFT_PPM + abs(last.offset_ns - first.offset_ns) * 1e6 / (last_ns - first_ns)
    half_ns = max(min(probe.round_trip_ns for probe in probes) // 2 for probes in (before, after))
    distance_ns = min(at_ns - first_ns, last_ns - at_ns)
    widest_ns = half_ns + int(distance_ns * rate_ppm / 1e6) + SLACK_NS
    return Judged(abs(found.offset_ns - truth.offset_ns(at_ns)), found.bound_ns, widest_ns)


@contextlib.asynccontextmanager
async def known_guests(
    servers: Servers, count: int, *, ahead_s: int, delay_ms: float = 0.0
) -> AsyncIterator[list[Session]]:
    """So many open agents in time namespaces `ahead_s`, `ahead_s` + 1 ... seconds ahead; `delay_ms`: what they say comes late.

    Raises NoNamespaceError.
    """
    unshare = _unshare()
    async with contextlib.AsyncExitStack() as undo:
        pool = await undo.enter_async_context(transport.Pool())
        sessions = []
        for number in range(count):
            address, port = servers.addresses[number], PORT
            if delay_ms:
                port = FORWARDER_PORT + number
                await undo.enter_async_context(_forwarded(port, address, delay_ms))
                address = "127.0.0.1"
            known = servers.directory / f"known_hosts-{port}"
            key = (servers.directory / "host_key.pub").read_text()
            known.write_text(f"[{address}]:{port} {key}")
            connection = Connection(
                address=address, port=port, user=servers.user, key_files=(str(servers.key),), known_hosts=str(known)
            )
            data = servers.directory / servers.addresses[number] / "data"
            become = (unshare, "--time", "--monotonic", str(ahead_s + number), "--fork", "--kill-child")
            guest = Guest(f"guest{number}", connection, (Target("data", str(data)),), become=become)
            way = await transport.connect(connection, pool=pool)
            undo.push_async_callback(way.close)
            session = Session(guest, await deploy.deploy(way, guest))
            session.start()
            undo.push_async_callback(session.close)
            await session.send("lease", (("ms", 600_000),))
            sessions.append(session)
        yield sessions


def _unshare() -> str:
    found = shutil.which("unshare")
    if os.geteuid() != 0 or found is None or not Path("/proc/self/ns/time").exists():
        raise NoNamespaceError("time namespaces need root, unshare and a kernel that has them")
    return found


@contextlib.asynccontextmanager
async def _forwarded(port: int, address: str, delay_ms: float) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(FORWARDER), str(port), address, str(PORT), str(delay_ms),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if await process.stdout.readline() != b"ready\n":
            raise NoNamespaceError(f"the forwarder did not start: is port {port} taken?")
        yield
    finally:
        process.stdin.close()
        await process.wait()


async def gather(sessions: Sequence[Session], count: int) -> list[list[list[clock.Probe]]]:
    """`count` sets of probes in all, by guest; guests side by side where an answer takes long, else one after another."""
    each = -(-count // len(sessions))
    sets: list[list[list[clock.Probe]]] = [[] for _ in sessions]
    first = time.monotonic()
    await sessions[0].probe_clock(3)
    is_near = time.monotonic() - first < 0.03
    gate = asyncio.Semaphore(1 if is_near else len(sessions))

    async def one(number: int) -> None:
        for _ in range(each):
            async with gate:
                sets[number].append(list(await sessions[number].probe_clock(PROBES)))

    await asyncio.gather(*(one(number) for number in range(len(sessions))))
    return sets
