"""What a plan costs: time, new bytes, bytes written at most, per guest, vm_host and storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from calyx_orch import units
from calyx_orch.model import LAYOUT_BYTES_PER_S, Growth, Guest, Inventory, LoadMode, Place, Plan, Round, Workload
from calyx_orch.plan.order import turns

UNDECLARED_FREE_BYTES = 64 * units.GIB
SETTLE_GUESS_S = 5.0
SEARCH_ROUNDS_GUESS = 10
REST_S = (
    1.0  # part of settling, from loading to the start line at least: fio takes most of it to start, and a disk that has
)
# rested longer (burst credit, a drained write cache) is a faster one: both engines shall find it equally rested
ROUND_OVERHEAD_S = 0.5  # clocks before and after, arming, collecting: what orchestration adds to a round


@dataclass(frozen=True)
class PlanRow:
    """One row of --dry-run. `kind` is guest, vm_host, storage or total.

    `limit_bytes` is what may be new there (0: nothing limits
    it: a guest, or a vm_host whose guests lie on a storage that limits them).

    `written_max_bytes` is None when some writing round has no rate: `written` then says for how long it writes.
    `kept_bytes` of the new ones are of files that are kept: 0 of them are new where these can be reused, which is known on the guest only.
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
    kept_bytes: int = 0


def rated_bytes_per_s(workload: Workload) -> int | None:
    """What `rate_iops` or `rate` lets one guest do; None without either."""
    if workload.rate_bytes_per_s is not None:
        return workload.rate_bytes_per_s * workload.numjobs
    return None if workload.rate_iops is None else workload.rate_iops * workload.numjobs * workload.bs_bytes


def in_flight_bytes(workload: Workload) -> int:
    """Bytes that may still be written when a round ends."""
    return workload.bs_bytes * workload.iodepth * workload.numjobs


def priced(plan: Plan) -> Plan:
    """The plan with its growth and its estimated time."""
    return replace(plan, growth=tuple(_growth(plan)), estimated_s=_estimated_s(plan))


@dataclass
class _Sum:
    """What falls on one place, added up over rounds."""

    rounds: int = 0
    seconds: float = 0.0
    written_bytes: int = 0
    unlimited_s: float = 0.0


def describe(plan: Plan) -> tuple[PlanRow, ...]:
    """Rows of the plan: the total, then each storage, vm_host and guest. Guests without a round are left out."""
    growth = {(one.kind, one.name): one for one in plan.growth}
    laid: Counter[tuple[str, str]] = Counter()
    kept: Counter[tuple[str, str]] = Counter()
    places = {guest.name: _places_of(guest) for guest in plan.inventory.guests}
    for guest, new_bytes in _laid_bytes(plan).items():
        laid.update(dict.fromkeys(places[guest], new_bytes))
    for layout in plan.layouts:
        if layout.keep:
            kept.update(dict.fromkeys(places[layout.guest], layout.total_bytes))
    sums: dict[tuple[str, str], _Sum] = {}
    for one in (*plan.all_rounds, *_probes(plan)):
        counts = Counter(place for guest in one.guests for place in places[guest])
        _add_round(plan, one, counts, sums)
    order = ("total", "storage", "vm_host", "guest")
    known = dict.fromkeys(place for guest in plan.inventory.guests for place in places[guest.name] if place in sums)
    chosen = sorted(known, key=lambda place: order.index(place[0]))
    rows = (_row(plan, place, sums[place], laid[place], growth.get(place)) for place in chosen)
    return tuple(replace(row, kept_bytes=kept[place]) for row, place in zip(rows, chosen, strict=True))


def _probes(plan: Plan) -> Iterable[Round]:
    """The rounds that each search is likely to need."""
    for search in plan.searches:
        probe = Round(0, 0, search.workload, search.target, "calyx", search.load, search.guests, 0)
        yield from (probe,) * SEARCH_ROUNDS_GUESS


def _places_of(guest: Guest) -> tuple[tuple[str, str], ...]:
    named = (("total", ""), ("storage", guest.storage), ("vm_host", guest.vm_host), ("guest", guest.name))
    return tuple((kind, name) for kind, name in named if name is not None)


def _add_round(
    plan: Plan, one: Round, counts: Mapping[tuple[str, str], int], sums: dict[tuple[str, str], _Sum]
) -> None:
    rate, seconds = rated_bytes_per_s(one.workload), _round_s(plan, one)
    active_s = one.workload.ramp_s + one.workload.runtime_s
    writes = one.workload.rw.writes
    each = int((rate or 0) * active_s) + in_flight_bytes(one.workload) if writes and rate is not None else 0
    for place, count in counts.items():
        here = sums.setdefault(place, _Sum())
        here.rounds += 1
        here.seconds += seconds
        here.written_bytes += count * each
        here.unlimited_s += active_s if writes and rate is None else 0.0


def _row(plan: Plan, place: tuple[str, str], here: _Sum, new_bytes: int, growth: Growth | None) -> PlanRow:
    most = new_bytes + here.written_bytes
    written = units.format_bytes(most)
    if here.unlimited_s:
        written += f", and as fast as the devices take for {units.format_duration(here.unlimited_s)}"
    return PlanRow(
        kind=place[0], name=place[1], rounds=here.rounds,
        seconds=plan.estimated_s if place[0] == "total" else here.seconds,
        new_bytes=new_bytes, written_max_bytes=None if here.unlimited_s else most, written=written,
        limit_bytes=growth.limit_bytes if growth is not None and growth.kind != "guest" and growth.new_bytes else 0,
        exceeds=growth.exceeds if growth else False,
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


def around(inventory: Inventory) -> tuple[tuple[str, float], ...]:
    """What every round takes besides ramp and runtime: words and seconds. How long devices take to become idle is a guess."""
    idle = (
        f"settling until the devices are idle (a guess; {units.format_duration(inventory.settle_s)} at most)",
        min(inventory.settle_s, SETTLE_GUESS_S),
    )
    return (
        *((idle,) if inventory.settle_s > 0 else ()),
        ("settling at rest before the start line", REST_S),
        *((("the lost-time probe", inventory.lost_time_probe_s),) if inventory.lost_time_probe_s > 0 else ()),
        ("clocks, arming and answers", ROUND_OVERHEAD_S),
    )


def _estimated_s(plan: Plan) -> float:
    laid = _laid_bytes(plan)
    domains: dict[str, int] = {}
    for guest in plan.inventory.guests:
        domains[guest.domain] = domains.get(guest.domain, 0) + laid.get(guest.name, 0)
    alone_s = max(laid.values(), default=0) / plan.inventory.impact.layout_bytes_per_s
    layout_s = max(max(domains.values(), default=0) / LAYOUT_BYTES_PER_S, alone_s)
    return layout_s + sum(_round_s(plan, one) for one in (*plan.all_rounds, *_probes(plan)))


def _round_s(plan: Plan, one: Round) -> float:
    inventory = plan.inventory
    stagger_s = 0.0
    if one.load is LoadMode.STAGGERED:
        names = frozenset(one.guests)
        guests = [guest for guest in inventory.guests if guest.name in names]
        turn = turns(guests, one.load, by_domain=inventory.impact.stagger_by_domain)
        stagger_s = inventory.stagger_s * max(turn.values())
    around_s = sum(seconds for _, seconds in around(inventory))
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
