"""From an inventory to rounds: who is chosen, in which order engines take turns, and how `impact` bounds their rate."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from calyx_orch import documents, names, units
from calyx_orch.errors import UsageError
from calyx_orch.model import Guest, Inventory, Layout, LoadMode, Plan, Round, SearchPlan, Target, Until, Workload
from calyx_orch.plan import capacity, cost, equals, keeping, precondition
from calyx_orch.plan.order import density_sets, engine_orders, guest_sets

CALYX = "calyx"
ROUNDS_MAX = 1_000_000
DENSITIES = (1, 2, 4, 8, 16, 32, 64, 128, 0)  # of `find: guests_at` where the inventory says none; 0: all
NAMES_SHOWN = 6  # of each kind, where a name is not known
_SEED_BITS = 48  # exact in every JSON reader, and in fio's randseed


@dataclass(frozen=True)
class _Cell:
    """What the engines are compared on: one workload on one target by one set of guests under one load mode."""

    workload: Workload
    target: str
    load: LoadMode
    part: int
    guests: tuple[Guest, ...]
    rate_limited: bool = False
    density: int = 0


def make(
    inventory: Inventory,
    *,
    limit: Sequence[str] = (),
    workloads: Sequence[str] = (),
    repetitions: int | None = None,
    seed: int,
) -> Plan:
    """All rounds of a run.

    `limit` names guests, groups, vm_hosts or storage (or globs, or ranges); `workloads` names workloads of the inventory (or
    globs, or what stands in front of a generated suffix). Empty: all. `repetitions` overrides the inventory's blocks. The same
    arguments give the same plan in every process. Raises UsageError for a name that nothing has, an empty plan, or an `impact`
    that leaves no room for a round.
    """
    guests = chosen_guests(inventory, limit)
    chosen = _chosen_workloads(inventory, workloads)
    blocks = inventory.repetitions if repetitions is None else repetitions
    if blocks < 1:
        raise UsageError(f"repetitions: {blocks} is less than 1")
    until = inventory.until if repetitions is None else None
    narrowed = replace(inventory, guests=guests, workloads=chosen, repetitions=blocks, until=until)
    cells = tuple(_cells(narrowed))
    if not cells:
        raise UsageError("nothing to run: none of the chosen guests has a target of the chosen workloads")
    compared, notes = equals.engines_of(chosen, inventory.baselines)
    engines = (CALYX, *inventory.baselines.engines)
    turns = blocks * (2 if len(engines) == 2 else 1) * len(engines)
    if turns * len(cells) > ROUNDS_MAX:
        raise UsageError(
            f"this plan has {turns * len(cells)} rounds, more than {ROUNDS_MAX}: choose less by --limit or --workload"
        )
    precondition.check(narrowed)
    layouts = _layouts(guests, chosen)
    notes += keeping.notes(layouts, guests)
    before = max(precondition.rounds_at_most(narrowed, one) for one in chosen)
    before += any(one.load_share is not None for one in chosen) * len(engines)  # closed loops that measure capacity
    cells = _within_impact(narrowed, cells, layouts, rounds_each=turns + before)
    measured = [cell for cell in cells if cell.workload.find is None]
    rounds = tuple(_rounds(measured, compared, blocks, seed))
    searches = tuple(_searches([cell for cell in cells if cell.workload.find is not None]))
    if until is not None and rounds:
        notes += (_adaptive(until, blocks),)
    plan = Plan(narrowed, seed, layouts, rounds, (), 0.0, notes=notes, searches=searches)
    return cost.priced(precondition.conditioned(capacity.with_capacity(plan), _firsts(rounds)))


def _firsts(rounds: Sequence[Round]) -> list[Round]:
    """The first round of each workload, target, load and set of guests."""
    firsts: dict[tuple[object, ...], Round] = {}
    for one in rounds:
        firsts.setdefault((one.workload.name, one.target, one.load, one.guests), one)
    return list(firsts.values())


def _adaptive(until: Until, blocks: int) -> str:
    return (
        f"a workload ends after {until.blocks_min} to {blocks} blocks, once the interval of its throughput is "
        f"± {100 * until.interval:g} %: rounds and time are those of {blocks}"
    )


def without(plan: Plan, missing: Mapping[str, frozenset[str]]) -> Plan:
    """The plan without the guests that lack an engine in that engine's rounds (`missing`: engines by guest).

    Rounds that no guest is left in are gone; the others keep their index, name and seed.
    """

    def kept(rounds: Sequence[Round]) -> Iterator[Round]:
        for one in rounds:
            guests = tuple(guest for guest in one.guests if one.engine not in missing.get(guest, ()))
            if guests:
                yield one if len(guests) == len(one.guests) else replace(one, guests=guests)

    return cost.priced(replace(plan, rounds=tuple(kept(plan.rounds)), capacity=tuple(kept(plan.capacity))))


def chosen_guests(inventory: Inventory, limit: Sequence[str]) -> tuple[Guest, ...]:
    """The guests that `limit` names, as `make` takes it; all without one. Raises UsageError for a name that nothing has."""
    if not limit:
        return inventory.guests
    chosen: set[str] = set()
    problems = []
    for item in dict.fromkeys(limit):
        try:
            chosen |= _matching(inventory, item)
        except ValueError as error:
            problems.append(f"--limit {item}: {error}")
    if problems:
        raise UsageError("\n".join([*problems, f"there are {_all_names(inventory)}"]))
    return tuple(guest for guest in inventory.guests if guest.name in chosen)


def _matching(inventory: Inventory, item: str) -> set[str]:
    """The guests that a name, a glob or a range means, by their own name or a place of theirs. ValueError: none, with the reason."""
    if names.has_range(item):
        expanded = set(names.expand(item))
        known = {name for guest in inventory.guests for name in _called(guest)}
        if expanded - known:
            raise ValueError(f"no guest, group, vm_host or storage is called {min(expanded - known)}")
        return {guest.name for guest in inventory.guests if expanded & set(_called(guest))}
    found = {
        guest.name
        for guest in inventory.guests
        if any(item == name or fnmatchcase(name, item) for name in _called(guest))
    }
    if not found:
        known = {name for guest in inventory.guests for name in _called(guest)}
        raise ValueError(f"no guest, group, vm_host or storage is called that{documents.suggestion(item, known)}")
    return found


def _called(guest: Guest) -> tuple[str, ...]:
    """The names that a guest is chosen by: its own, its groups', its vm_host's, its storage's."""
    return tuple(name for name in (guest.name, *guest.groups, guest.vm_host, guest.storage) if name is not None)


def _all_names(inventory: Inventory) -> str:
    """What `--limit` could name, the first of each kind."""
    guests = inventory.guests
    kinds = {
        "guests": [one.name for one in guests],
        "groups": [name for one in guests for name in one.groups],
        "vm_hosts": [one.vm_host for one in guests if one.vm_host is not None],
        "storage": [one.storage for one in guests if one.storage is not None],
    }
    told = []
    for kind, written in kinds.items():
        known = list(dict.fromkeys(written))
        more = f" and {len(known) - NAMES_SHOWN} more" if len(known) > NAMES_SHOWN else ""
        if known:
            told.append(f"{kind}: {', '.join(known[:NAMES_SHOWN])}{more}")
    return "; ".join(told)


def _chosen_workloads(inventory: Inventory, written: Sequence[str]) -> tuple[Workload, ...]:
    if not written:
        return inventory.workloads
    for name in written:
        if not any(names.is_workload(workload.name, name) for workload in inventory.workloads):
            known = [workload.name for workload in inventory.workloads]
            hint = documents.suggestion(name, known) or f" (there are: {', '.join(known)})"
            raise UsageError(f"--workload {name}: no workload is called that{hint}")
    return tuple(one for one in inventory.workloads if any(names.is_workload(one.name, name) for name in written))


def _cells(inventory: Inventory) -> Iterator[_Cell]:
    targets = tuple(dict.fromkeys(target.name for guest in inventory.guests for target in guest.targets))
    for workload in inventory.workloads:
        for target in workload.targets or targets:
            having = [guest for guest in inventory.guests if any(one.name == target for one in guest.targets)]
            limit = inventory.impact.max_guests_per_domain
            for load in (LoadMode.DENSITY,) if workload.guests_at is not None else inventory.load:
                if load is LoadMode.DENSITY:
                    if workload.find is None:  # a rate that is searched for is one of all guests
                        for density, guests in density_sets(having, inventory.density or DENSITIES, limit):
                            yield _Cell(workload, target, load, density, guests, density=density)
                    continue
                for part, guests in enumerate(guest_sets(having, load, limit)):
                    yield _Cell(workload, target, load, part, guests)


def _layouts(guests: Sequence[Guest], workloads: Sequence[Workload]) -> tuple[Layout, ...]:
    layouts = []
    for guest in guests:
        for target in guest.targets:
            users = [one for one in workloads if not one.targets or target.name in one.targets]
            if users:
                keeping.check(target, users)
                files, size = max(one.numjobs for one in users), max(one.file_bytes for one in users)
                verify = _verified(target.name, users)
                _check_device(target, users)
                layouts.append(
                    Layout(
                        guest.name, target.name, target.path, files, size, target.allow_ram, verify,
                        target.device, target.serial, target.reserve_bytes, guest.kept_as(target),
                    )
                )  # fmt: skip
    return tuple(layouts)


def _check_device(target: Target, users: Sequence[Workload]) -> None:
    """Refuse what cannot be done on a directory, or not on one raw device that all jobs share."""
    trimming = [one.name for one in users if one.rw.trims]
    if trimming and not target.device:
        raise UsageError(
            f"workload '{trimming[0]}' trims, and target '{target.name}' is a directory: name a raw device of the guest under the "
            "workload's targets:"
        )
    reading = [one.name for one in users if one.rw.reads]
    if trimming and reading:
        raise UsageError(
            f"workload '{trimming[0]}' trims target '{target.name}', from which '{reading[0]}' reads: reads of trimmed blocks do not "
            "reach the disk; give each a target of its own (targets:), or run one of them (--workload)"
        )
    shared = [one.name for one in users if one.verify and one.numjobs > 1]
    if target.device and shared:
        raise UsageError(
            f"workload '{shared[0]}' has several jobs, which share the raw device of target '{target.name}': what one writes another "
            "would check; verify with numjobs: 1 there"
        )


def _verified(target: str, users: Sequence[Workload]) -> str | None:
    """How the blocks of a target are checked; None: not at all. Who writes other blocks there would make the check fail."""
    checking = [one for one in users if one.verify]
    if not checking:
        return None
    others = [one.name for one in users if not one.verify and one.rw.writes]
    others += [one.name for one in checking if one.block_sizes != checking[0].block_sizes]
    if others:
        raise UsageError(
            f"workload '{checking[0].name}' checks what it reads on target '{target}', where '{others[0]}' writes blocks of another "
            "kind: give each a target of its own (targets:), run one of them (--workload), or verify both in one bs"
        )
    return checking[0].verify


def _searches(cells: Sequence[_Cell]) -> Iterator[SearchPlan]:
    for index, cell in enumerate(cells):
        yield SearchPlan(index, cell.workload, cell.target, cell.load, tuple(guest.name for guest in cell.guests))


def _rounds(cells: Sequence[_Cell], engines: Mapping[str, Sequence[str]], blocks: int, seed: int) -> Iterator[Round]:
    rng = random.Random(seed)
    orders = [engine_orders(engines[cell.workload.name], blocks, rng) for cell in cells]
    index = 0
    for block in range(blocks):
        for cell, order in zip(cells, orders, strict=True):
            turns: dict[str, int] = {}
            for engine in order[block]:
                turn = turns[engine] = turns.get(engine, -1) + 1
                yield Round(
                    index=index, block=block, workload=cell.workload, target=cell.target, engine=engine, load=cell.load,
                    guests=tuple(guest.name for guest in cell.guests), seed=_round_seed(seed, cell, block, turn),
                    rate_limited=cell.rate_limited, density=cell.density,
                )  # fmt: skip
                index += 1


def _round_seed(seed: int, cell: _Cell, block: int, turn: int) -> int:
    """The same for every engine's n-th turn in a block, so that they are asked for the same offsets; or as pinned."""
    if cell.workload.seed is not None:
        return cell.workload.seed
    words = (str(seed), str(block), str(turn), cell.workload.name, cell.target, cell.load.value, str(cell.part))
    digest = hashlib.sha256("\0".join(words).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _SEED_BITS)


def _within_impact(
    inventory: Inventory, cells: tuple[_Cell, ...], layouts: tuple[Layout, ...], *, rounds_each: int
) -> tuple[_Cell, ...]:
    """Lower `rate_iops` where `impact` bounds the rate or the bytes written; the same for all engines and guests."""
    impact = inventory.impact
    if impact.max_rate_bytes_per_s is not None:
        cells = tuple(_limited(cell, impact.max_rate_bytes_per_s, "impact.max_rate") for cell in cells)
    if impact.max_bytes_written is not None:
        rate = _written_rate(inventory.guests, cells, layouts, impact.max_bytes_written, rounds_each)
        if rate is not None:
            cells = tuple(
                _limited(cell, rate, "impact.max_bytes_written") if cell.workload.rw.writes else cell for cell in cells
            )
    return cells


def _limited(cell: _Cell, bytes_per_s: float, why: str) -> _Cell:
    workload = cell.workload
    if workload.rate_bytes_per_s is not None:
        return _limited_bytes(cell, int(bytes_per_s // workload.numjobs))
    rate_iops = int(bytes_per_s // (workload.bs_bytes * workload.numjobs))
    if rate_iops < 1:
        raise UsageError(
            f"{why} leaves workload '{workload.name}' {units.format_rate(bytes_per_s)} per guest, less than one I/O of "
            f"{units.format_bytes(workload.bs_bytes)} per second for each of its {workload.numjobs} jobs: raise it, or lower bs, numjobs, "
            "runtime or repetitions"
        )
    if workload.rate_iops is not None and workload.rate_iops <= rate_iops:
        return cell
    return replace(cell, workload=replace(workload, rate_iops=rate_iops), rate_limited=True)


def _limited_bytes(cell: _Cell, bytes_per_s: int) -> _Cell:
    """As `_limited`, where the workload has a rate in bytes of its own."""
    workload = cell.workload
    if workload.rate_bytes_per_s is None or workload.rate_bytes_per_s <= bytes_per_s:
        return cell
    return replace(cell, workload=replace(workload, rate_bytes_per_s=max(bytes_per_s, 1)), rate_limited=True)


def _written_rate(
    guests: Sequence[Guest], cells: Sequence[_Cell], layouts: Sequence[Layout], most: int, rounds_each: int
) -> float | None:
    """Bytes per second of any writing round, such that no guest writes more than `most` in the run; None: no round writes.

    Mixed workloads are taken as if they only wrote, and what is in flight at a round's end counts, so that the bound holds.
    """
    rates = []
    for guest in guests:
        laid = sum(layout.total_bytes for layout in layouts if layout.guest == guest.name)
        if laid > most:
            raise UsageError(
                f"impact.max_bytes_written is {units.format_bytes(most)}, but the files of guest '{guest.name}' alone are "
                f"{units.format_bytes(laid)}: raise it, or lower size or numjobs"
            )
        writing = [cell.workload for cell in cells if guest in cell.guests and cell.workload.rw.writes]
        searching = [one.name for one in writing if one.find is not None]
        if searching:
            raise UsageError(
                f"impact.max_bytes_written cannot hold for workload '{searching[0]}', whose rate is searched for: leave out find there, "
                "or bound it by impact.max_rate"
            )
        if writing:
            rates.append(_fair_rate(guest.name, writing, most - laid, rounds_each))
    return min(rates) if rates else None


def _fair_rate(guest: str, writing: Sequence[Workload], budget: int, rounds_each: int) -> float:
    """One rate for all that are not already slower, found by taking out the slower ones until none is left to take out."""
    left: float = budget - rounds_each * sum(cost.in_flight_bytes(one) for one in writing)
    free = list(writing)
    while left > 0:
        rate = left / (rounds_each * sum(one.ramp_s + one.runtime_s for one in free))
        slower = [one for one in free if (cost.rated_bytes_per_s(one) or rate + 1) <= rate]
        if not slower or len(slower) == len(free):
            return rate
        for one in slower:
            left -= rounds_each * (cost.rated_bytes_per_s(one) or 0) * (one.ramp_s + one.runtime_s)
            free.remove(one)
    raise UsageError(
        f"impact.max_bytes_written leaves guest '{guest}' {units.format_bytes(max(0, budget))} for {rounds_each * len(writing)} writing "
        "rounds after its files are laid out, less than what they have in flight: raise it, or lower size, iodepth or repetitions"
    )
