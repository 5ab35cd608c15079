"""The clocks of the guests of a round, asked before and after it: side by side as far as that lengthens no round trip.

An answer is stamped when this process takes it, so one guest's answers wait for another's. What each probe says, and how wrong that can
be, is decided in `calyx_orch.clock`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from calyx_orch import clock
from calyx_orch.errors import CalyxError
from calyx_orch.model import ClockBound
from calyx_orch.runner.session import Session

PROBES = 20
PROBES_FIRST = 3  # to learn how far a guest is
AT_ONCE_FIRST = 4  # while that is not known
AT_ONCE_MAX = 64  # of guests far away, which leave the loop idle in between
NEAR_NS = 1_000_000  # a round trip that others would lengthen: guests as near as that are probed one after another
SHARE_NS = 250_000  # of a round trip for each guest that is probed meanwhile

Gate = Callable[[Session], asyncio.Semaphore]


@dataclass
class GuestClock:
    """One guest's clock over one round: the `before` and, by `at`, an instant between that and now."""

    session: Session
    before: ClockBound = field(default_factory=lambda: ClockBound(0, 0))
    before_at_ns: int = 0

    async def learn_distance(self) -> None:
        """Ask a guest that was not asked yet how far it is. Raises AgentError."""
        if not self.session.clock_bound_ns:
            self.session.clock_bound_ns = clock.estimate(await self.session.probe_clock(PROBES_FIRST)).bound_ns

    async def probe(self, gate: Gate) -> None:
        """Take the clock before the round. Raises AgentError."""
        async with gate(self.session):
            probes = await self.session.probe_clock(PROBES)
        self.before, self.before_at_ns = clock.estimate(probes), clock.taken_at(probes)
        self.session.clock_bound_ns = self.before.bound_ns

    async def at(self, instant_ns: int, gate: Gate) -> ClockBound:
        """The clock at an instant of the round, which is over: between before and now.

        Of a guest that ended after its report the bound of before the round stands.
        """
        try:
            async with gate(self.session):
                probes = await self.session.probe_clock(PROBES)
            after, after_at_ns = clock.estimate(probes), clock.taken_at(probes)
        except CalyxError:
            return self.before
        return clock.combine(self.before, self.before_at_ns, after, after_at_ns, instant_ns)


def gate_of(sessions: Iterable[Session]) -> Gate:
    """Whose clocks are asked side by side: near ones alone, far ones the more, the longer the quickest of them takes."""
    trips_ns = {session.guest.name: 2 * session.clock_bound_ns for session in sessions}
    far_ns = min((trip for trip in trips_ns.values() if trip > NEAR_NS), default=0)
    near, far = asyncio.Semaphore(1), asyncio.Semaphore(max(1, min(AT_ONCE_MAX, far_ns // SHARE_NS)))
    return lambda session: far if trips_ns[session.guest.name] > NEAR_NS else near
