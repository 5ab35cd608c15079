"""What a plan costs: time, new bytes, bytes written at most, per guest, vm_host and storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from calyx_orch import units
from calyx_orch.model import Growth, Guest, LoadMode, Place, Plan, Round, Workload

UNDECLARED_FREE_BYTES = 64 * units.GIB
LAYOUT_BYTES_PER_S = 500_000_000
SETTLE_GUESS_S = 5.0
ROUND_OVERHEAD_S = 1.5  # clocks before and after, arming, collecting


@dataclass(frozen=True)
class PlanRow:
    """One row of --dry-run. `kind` is guest, vm_host, storage or total; `limit_bytes` what may be new there (0: no limit of it).

    `written_max_bytes` is None when some writing round has no rate: `written` then says for how long it writes.
    """

    kind: str
    name: str
    rounds: int
    seconds: float
    new_bytes: int
    written_max_bytes: int | None
    written: str
    limit_bytes: int = 0
    exceeds: bool = False


def rated_bytes_per_s(workload: Workload) -> int | None:
    """What `rate_iops` lets one guest do; None without it."""
    return None if workload.rate_iops is None else workload.rate_iops * workload.numjobs * workload.bs_bytes


def in_flight_bytes(workload: Workload) -> int:
    """Bytes that may still be written when a round ends."""
    return workload.bs_bytes * workload.iodepth * workload.numjobs


def priced(plan: Plan) -> Plan:
    """The plan with its growth and its estimated time."""
    return replace(plan, growth=tuple(_growth(plan)), estimated_s=_estimated_s(plan))


def describe(plan: Plan) -> tuple[PlanRow, ...]:
    """Rows of the plan: the total, then each storage, vm_host and guest. Guests without a round are left out."""
    growth = {(one.kind, one.name): one for one in plan.growth}
    laid = _laid_bytes(plan)
    rows = [_row(plan, "total", "", {guest.name for guest in plan.inventory.guests}, laid, None)]
    for kind, names in (("storage", _names(plan, _storage)), ("vm_host", _names(plan, _vm_host))):
        for name, members in names.items():
            rows.append(_row(plan, kind, name, members, laid, growth.get((kind, name))))
    involved = {guest for one in plan.rounds for guest in one.guests}
    for guest in plan.inventory.guests:
        if guest.name in involved:
            rows.append(_row(plan, "guest", guest.name, {guest.name}, laid, growth.get(("guest", guest.name))))
    return tuple(rows)


def _row(plan: Plan, kind: str, name: str, members: set[str], laid: dict[str, int], growth: Growth | None) -> PlanRow:
    rounds = [(one, len(members.intersection(one.guests))) for one in plan.rounds]
    rounds = [(one, count) for one, count in rounds if count]
    new_bytes = sum(laid.get(member, 0) for member in members)
    most, unlimited_s = new_bytes, 0.0
    for one, count in rounds:
        if not one.workload.rw.writes:
            continue
        rate, duration_s = rated_bytes_per_s(one.workload), one.workload.ramp_s + one.workload.runtime_s
        if rate is None:
            unlimited_s += duration_s
        else:
            most += count * (int(rate * duration_s) + in_flight_bytes(one.workload))
    written = units.format_bytes(most)
    if unlimited_s:
        written += f", and as fast as the devices take for {units.format_duration(unlimited_s)}"
    seconds = sum(_round_s(plan, one) for one, _ in rounds)
    return PlanRow(
        kind, name, len(rounds), plan.estimated_s if kind == "total" else seconds, new_bytes, None if unlimited_s else most,
        written, growth.limit_bytes if growth else 0, growth.exceeds if growth else False,
    )  # fmt: skip


def _growth(plan: Plan) -> Iterable[Growth]:
    laid = _laid_bytes(plan)
    for guest, new_bytes in laid.items():
        yield Growth("guest", guest, new_bytes, UNDECLARED_FREE_BYTES, declared=False)
    pooled = {guest.name for guest in plan.inventory.guests if guest.storage is not None}
    for kind, places, names in (
        ("vm_host", plan.inventory.vm_hosts, _names(plan, _vm_host)),
        ("storage", plan.inventory.storage, _names(plan, _storage)),
    ):
        declared = {place.name: place for place in places}
        for name, members in names.items():
            free = declared.get(name, Place(name)).free_bytes
            # The bytes of a guest on a shared pool do not lie on its vm_host: they count there only against declared space.
            counted = members - pooled if kind == "vm_host" and free is None else members
            new_bytes = sum(laid.get(member, 0) for member in counted)
            yield Growth(kind, name, new_bytes, UNDECLARED_FREE_BYTES if free is None else free, free is not None)


def _estimated_s(plan: Plan) -> float:
    laid = _laid_bytes(plan)
    domains: dict[str, int] = {}
    for guest in plan.inventory.guests:
        domains[guest.domain] = domains.get(guest.domain, 0) + laid.get(guest.name, 0)
    layout_s = max(domains.values(), default=0) / LAYOUT_BYTES_PER_S
    return layout_s + sum(_round_s(plan, one) for one in plan.rounds)


def _round_s(plan: Plan, one: Round) -> float:
    inventory = plan.inventory
    stagger_s = inventory.stagger_s * (len(one.guests) - 1) if one.load is LoadMode.STAGGERED else 0.0
    around_s = min(inventory.settle_s, SETTLE_GUESS_S) + inventory.lost_time_probe_s + ROUND_OVERHEAD_S
    return one.workload.ramp_s + one.workload.runtime_s + stagger_s + around_s


def _laid_bytes(plan: Plan) -> dict[str, int]:
    laid: dict[str, int] = {}
    for layout in plan.layouts:
        laid[layout.guest] = laid.get(layout.guest, 0) + layout.total_bytes
    return laid


def _names(plan: Plan, place: Callable[[Guest], str | None]) -> dict[str, set[str]]:
    """The chosen guests by place, in the order of the inventory."""
    members: dict[str, set[str]] = {}
    for guest in plan.inventory.guests:
        name = place(guest)
        if name is not None:
            members.setdefault(name, set()).add(guest.name)
    return members


def _vm_host(guest: Guest) -> str | None:
    return guest.vm_host


def _storage(guest: Guest) -> str | None:
    return guest.storage
