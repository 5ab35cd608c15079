r"""How far a guest's monotonic clock is from the controller's, and how wrong that can be. Pure.

    controller  --sent--------------------received-->
                    \                    /
    guest             -----guest_ns-----        offset = guest_ns - (sent + received) / 2, wrong by at most half the trip

The probe with the shortest round trip is kept (Cristian 1989, "Probabilistic clock synchronization"), since nothing is
known about how a trip splits into its two ways. Between a measurement before a round and one after it the offset lies on
the line between both, and may have strayed from it by no more than the rates of the clocks may wander.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from calyx_orch.errors import AgentError
from calyx_orch.model import ClockBound

RESOLUTION_NS = 1  # both clocks count nanoseconds: half of each is lost in the integer middle
DRIFT_PPM = 20.0  # how far a rate may wander around its mean within a round: crystals and virtual clocks do less


@dataclass(frozen=True)
class Probe:
    """One question for the guest's clock: sent and received on the controller's clock, `guest_ns` on the guest's."""

    sent_ns: int
    guest_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        """How long the answer took."""
        return self.received_ns - self.sent_ns

    @property
    def middle_ns(self) -> int:
        """The middle of the round trip, on the controller's clock."""
        return self.sent_ns + self.round_trip_ns // 2


def estimate(probes: Sequence[Probe]) -> ClockBound:
    """The offset by the probe with the shortest round trip, wrong by at most half of it plus the clocks' resolution.

    Probes that end before they begin are no evidence and are left out. Raises AgentError when none is left.
    """
    best = _quickest(probes)
    return ClockBound(best.guest_ns - best.middle_ns, (best.round_trip_ns + 1) // 2 + RESOLUTION_NS)


def taken_at(probes: Sequence[Probe]) -> int:
    """The instant of the controller's clock that an estimate of these probes holds at: clocks drift while others are asked.

    Raises AgentError as `estimate` does.
    """
    return _quickest(probes).middle_ns


def _quickest(probes: Sequence[Probe]) -> Probe:
    usable = [probe for probe in probes if probe.round_trip_ns >= 0]
    if not usable:
        raise AgentError("no usable clock probe", step="clock")
    return min(usable, key=lambda probe: probe.round_trip_ns)


def combine(
    before: ClockBound,
    before_at_ns: int,
    after: ClockBound,
    after_at_ns: int,
    at_ns: int,
    drift_ppm: float = DRIFT_PPM,
) -> ClockBound:
    """The offset at `at_ns` on the line through `before` and `after`, all instants on the controller's clock.

    The bound is that of the ends, interpolated, plus the wander times the distance to the nearer end. The wander is
    `drift_ppm` plus the mean rate that was seen, so that a clock under NTP slewing gets a wider bound. The truth is
    within the bound as long as the guest's rate never differs from its mean over the round by more than the wander.
    """
    span_ns = after_at_ns - before_at_ns
    if span_ns <= 0:
        best = min(before, after, key=lambda clock: clock.bound_ns)
        return ClockBound(best.offset_ns, best.bound_ns + _stray(abs(at_ns - before_at_ns), drift_ppm))
    change_ns = after.offset_ns - before.offset_ns
    elapsed_ns = at_ns - before_at_ns
    inside_ns = min(max(elapsed_ns, 0), span_ns)
    offset_ns = before.offset_ns + change_ns * elapsed_ns // span_ns
    ends_ns = before.bound_ns + (after.bound_ns - before.bound_ns) * inside_ns // span_ns + 1
    wander_ppm = drift_ppm + abs(change_ns) * 1_000_000 / span_ns
    distance_ns = min(abs(elapsed_ns), abs(span_ns - elapsed_ns))
    return ClockBound(offset_ns, ends_ns + _stray(distance_ns, wander_ppm))


def _stray(distance_ns: int, ppm: float) -> int:
    return math.ceil(distance_ns * ppm / 1_000_000)


def to_guest(controller_ns: int, clock: ClockBound) -> int:
    """An instant of the controller's clock on the guest's."""
    return controller_ns + clock.offset_ns


def to_controller(guest_ns: int, clock: ClockBound) -> int:
    """An instant of the guest's clock on the controller's."""
    return guest_ns - clock.offset_ns
