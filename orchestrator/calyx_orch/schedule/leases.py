"""Which leases have run out, as one daemon sees it.

Clocks of machines differ and are stepped, so no time of another daemon is compared with one's own. A lease has run out when nobody
renewed it for its length, by the watcher's own count of the time that passes; one of 0 was let go of. Of each look at most a part of
the length counts: a watcher that slept, or could not reach the store, saw nothing in between, and who renews may have slept as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from calyx_orch.store.schedules import Row

LOOKS_MIN = 4  # so often a lease is seen unchanged at least before it has run out

Key = tuple[str, int]  # a firing: its schedule and due time
Lease = tuple[str, float]  # who holds it, and until when by that daemon's clock; 0: nobody does


@dataclass(frozen=True)
class _Seen:
    lease: Lease
    unchanged_s: float


@dataclass
class Leases:
    """The leases of the firings that run. `length_s` is for how long a renewal lasts."""

    length_s: float
    _seen: dict[Key, _Seen] = field(default_factory=dict)
    _looked_s: float | None = None

    def run_out(self, running: Iterable[Row], passed_s: float) -> dict[Key, Lease]:
        """Look at all firings that run, `passed_s` by a clock that nobody steps; the leases that have run out."""
        since_s = 0.0 if self._looked_s is None else passed_s - self._looked_s
        self._looked_s = passed_s
        counted_s = min(since_s, self.length_s / LOOKS_MIN)
        self._seen = {key_of(row): self._look(row, counted_s) for row in running}
        return {
            key: seen.lease
            for key, seen in self._seen.items()
            if seen.lease[1] == 0 or seen.unchanged_s >= self.length_s
        }

    def _look(self, row: Row, counted_s: float) -> _Seen:
        lease, before = lease_of(row), self._seen.get(key_of(row))
        return _Seen(lease, before.unchanged_s + counted_s if before is not None and before.lease == lease else 0.0)


def key_of(row: Row) -> Key:
    """Which firing a row is of."""
    return row["schedule"], row["due_s"]


def lease_of(row: Row) -> Lease:
    """Who holds the lease of a firing, and until when."""
    return row["daemon"], row["lease_s"]
