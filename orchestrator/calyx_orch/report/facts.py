"""Tables that need no analysis: what the run was, how guests failed, which set-ups took effect, what the guests are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calyx_orch.analysis import vm_hosts
from calyx_orch.model import Guest, GuestOutcome, Inventory, Pin, Resumed, RunRecord
from calyx_orch.report import wording

NAMES_MAX = 6
SEEDS = frozenset({"seed", "data_seed"})  # of a set-up: they differ by guest and round, and change nothing
LONG = frozenset(
    {
        "reason",
        "set-up",
        "chosen",
        "engine's own",
        "truth",
        "guests",
        "targets",
        "doubts",
        "interval",
        "io_uring",
        "written at most",
        "what",
        "changes",
        "series",
    }
)


@dataclass(frozen=True)
class Column:
    """A column: its title, whether it holds numbers, and what it means when that needs a sentence."""

    title: str
    is_number: bool = False
    explanation: str = ""

    @property
    def is_long(self) -> bool:
        """Whether its text may be long and is broken into lines."""
        return self.title in LONG


@dataclass(frozen=True)
class Table:
    """Rows of finished, printable text. `first`: shown above the figures; `is_measured`: holds what was measured, not what is."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    text: str = ""
    first: bool = False
    is_measured: bool = False


def is_short(record: RunRecord) -> bool:
    """Whether any workload of the run is too short for true figures."""
    return any(round_.workload.is_short for round_ in record.plan.rounds)


def header(record: RunRecord) -> tuple[tuple[str, str], ...]:
    """Say of the run: which, when, on what, with what seed, and how it ended; printable name and value pairs."""
    inventory = record.plan.inventory
    pairs = [
        ("Run", record.run_id),
        ("Started", record.started_at),
        ("Status", record.status),
        *(("Resumed", _resumed(one, record)) for one in record.resumed),
        ("Inventory", inventory.source or inventory.name),
        ("Fleet", _fleet(record)),
        ("Rounds", f"{len(record.plan.rounds)} in {_blocks(inventory)}"),
        ("Load", ", ".join(dict.fromkeys(round_.load_name for round_ in record.plan.rounds))),
        ("Workloads", ", ".join(dict.fromkeys(_workload(round_.workload) for round_ in record.plan.rounds))),
        ("Seed", str(record.plan.seed)),
    ]
    return tuple((name, wording.printable(value)) for name, value in pairs)


def _blocks(inventory: Inventory) -> str:
    until = inventory.until
    if until is None:
        return wording.count_of(inventory.repetitions, "block")
    return (
        f"{until.blocks_min} to {inventory.repetitions} blocks, until the throughput is ± {wording.cv(until.interval)}"
    )


def _resumed(one: Resumed, record: RunRecord) -> str:
    were = "was" if one.again == 1 else "were"
    again = (
        f"; {one.again} that {were} measured before {were} measured again, to keep blocks whole" if one.again else ""
    )
    gap = wording.duration(one.gap_s)
    text = f"{one.at}, {gap} after the last of {one.kept} rounds (of {len(record.plan.rounds)}) that stand{again}"
    return text + (f"; started anew in between: {names(one.rebooted)}" if one.rebooted else "")


def _fleet(record: RunRecord) -> str:
    guests = record.plan.inventory.guests
    vm_hosts = {guest.vm_host for guest in guests} - {None}
    pools = {guest.storage for guest in guests} - {None}
    parts = [wording.count_of(len(guests), "guest")]
    if vm_hosts:
        parts.append(f"on {wording.count_of(len(vm_hosts), 'vm_host')}")
    if pools:
        parts.append(f"and {wording.count_of(len(pools), 'storage pool')}")
    return " ".join(parts)


def _workload(workload: Any) -> str:
    return (
        f"{workload.name} (QD {workload.iodepth} x {workload.numjobs}, {workload.ramp_s:g} + {workload.runtime_s:g} s)"
    )


def failures(record: RunRecord) -> Table | None:
    """List the guests that did not measure all, with step and reason; None when there are none."""
    bad = [outcome for outcome in record.outcomes if outcome.state != "measured"]
    if not bad:
        return None
    columns = (Column("guest"), Column("state"), Column("step"), Column("reason"))
    return Table("failures", "Guests that failed", columns, tuple(_outcome(one) for one in bad), first=True)


def _outcome(one: GuestOutcome) -> tuple[str, ...]:
    return tuple(wording.printable(text) for text in (one.guest, one.state, one.step, one.reason))


def setups(record: RunRecord) -> Table | None:
    """List which set-up took effect, by workload and engine, and for which guests."""
    pins = {(pin.guest, pin.workload, pin.target): pin for pin in record.plan.pins}
    found: dict[tuple[str, str, str, str, str], dict[str, None]] = {}
    for m in record.measurements:
        if m.setup:
            pin = pins.get((m.guest, m.workload, m.target)) if m.engine == "calyx" else None
            setup = {name: value for name, value in m.setup.items() if name not in SEEDS}
            key = (m.workload, m.target, m.engine, setup_text(setup), _chosen(pin))
            found.setdefault(key, {})[m.guest] = None
    if not found:
        return None
    columns = tuple(Column(title) for title in ("workload", "target", "engine", "set-up", "chosen", "guests"))
    rows = tuple((*map(wording.printable, key), names(guests)) for key, guests in found.items())
    text = (
        "What really took effect on the guests; fio was given what took effect for calyx. The seeds, which differ by guest and "
        "round, are in measurements.jsonl of the run folder."
    )
    return Table("setups", "Set-ups that took effect", columns, rows, text)


def _chosen(pin: Pin | None) -> str:
    """How the set-up of a workload that says `auto` was decided."""
    if pin is None:
        return ""
    return f"{pin.how}{f' on {pin.leader}' if pin.leader else ''}: {pin.why}"


def setup_text(setup: Mapping[str, Any]) -> str:
    """What took effect, in one line."""
    return ", ".join(part for name, value in setup.items() if (part := _setup_part(name.replace("_", " "), value)))


def _setup_part(name: str, value: Any) -> str:
    if value is None or value == "" or value == []:
        return ""
    if isinstance(value, bool):
        return name if value else f"no {name}"
    if isinstance(value, Mapping):
        return f"{name} ({setup_text(value)})"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return f"{name} {' '.join(str(part) for part in value)}"
    return f"{name} {value}"


def names(guests: Iterable[str], most: int = NAMES_MAX) -> str:
    """Name guests, `most` of them at most, then how many more there are."""
    known = list(guests)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return wording.printable(", ".join(known[:most]) + more)


def searches(record: RunRecord) -> Table | None:
    """List what was searched for and found: the highest rate that held the budget, and the lowest that did not."""
    if not record.found:
        return None
    titles = ("workload", "target", "load", "guests", "budget", "held at", "broke at", "rounds", "reason")
    columns = tuple(Column(title, title in ("held at", "broke at", "rounds")) for title in titles)
    rows = tuple(
        tuple(
            wording.printable(text)
            for text in (
                one.workload, one.target, one.load, names(one.guests), one.budget.removeprefix("iops_at "), _rate(one.rate_iops),
                _rate(one.broke_iops), str(len(one.probes)), one.why,
            )
        )
        for one in record.found
    )  # fmt: skip
    text = "IOPS of each job of each guest in an open loop; latency counts from when an I/O was due."
    return Table("searches", "The highest rate that holds a budget", columns, rows, text, first=True)


def load_points(record: RunRecord) -> Table | None:
    """List the rates of load points: which share of what capacity, and on whom that was found."""
    if not record.plan.load_points:
        return None
    titles = ("workload", "target", "share", "rate", "capacity", "slowest")
    columns = tuple(Column(title, title in ("share", "rate", "capacity")) for title in titles)
    rows = tuple(
        tuple(
            wording.printable(text)
            for text in (
                one.workload, one.target, f"{100 * one.share:g} %", _rate(one.rate_iops), _rate(round(one.capacity_iops)),
                f"{one.guest}, {one.engine}, {one.load}",
            )
        )
        for one in record.plan.load_points
    )  # fmt: skip
    text = (
        "Open loops at a share of what the slowest guest did in a closed one, before the first block: the same IOPS of each job for "
        "every guest. The capacity is that of the whole guest."
    )
    return Table("load-points", "What load points are offered", columns, rows, text)


def conditioned(record: RunRecord) -> Table | None:
    """List how the preconditioning of each workload ended."""
    if not record.plan.conditioned:
        return None
    titles = ("workload", "target", "guests", "rounds", "range", "slope", "reason")
    columns = tuple(Column(title, title in ("rounds", "range", "slope")) for title in titles)
    rows = tuple(
        tuple(
            wording.printable(text)
            for text in (
                one.workload, one.target, names(one.guests), str(one.rounds), wording.cv(one.range_share),
                wording.cv(one.slope_share), one.why,
            )
        )
        for one in record.plan.conditioned
    )  # fmt: skip
    text = "Rounds before the first block, in no figure; range and slope of the last five as shares of their mean."
    return Table("conditioned", "Preconditioning", columns, rows, text)


def settled(record: RunRecord) -> Table | None:
    """List how the repetitions of each workload ended, where they ended by what was measured."""
    if not record.plan.settled:
        return None
    titles = ("workload", "target", "load", "guests", "blocks", "interval ±", "reason")
    columns = tuple(Column(title, title in ("blocks", "interval ±")) for title in titles)
    rows = tuple(
        tuple(
            wording.printable(text)
            for text in (
                one.workload, one.target, one.load, names(one.guests), str(one.blocks), wording.cv(one.half_width),
                "narrow enough" if one.is_narrow else "the blocks allowed are used up",
            )
        )
        for one in record.plan.settled
    )  # fmt: skip
    text = "Half of the 95 % interval of the throughput over blocks / its mean, of the engine where it is widest."
    return Table("settled", "Why the repetitions ended", columns, rows, text, first=True)


def _rate(iops: int | None) -> str:
    return wording.NOT_AVAILABLE if iops is None else wording.significant(iops)


def guests(record: RunRecord) -> Table | None:
    """List what the guests are: kernel, CPUs, hypervisor, file system and device of their targets, fio."""
    if not record.facts:
        return None
    titles = (
        "guest",
        "vm_host",
        "storage",
        "kernel",
        "arch",
        "CPUs",
        "CPU model",
        "machine",
        "memory",
        "hypervisor",
        "clock",
        "io_uring",
        "targets",
        "fio",
        "engine's own",
        "truth",
    )
    columns = tuple(Column(title, title in ("CPUs", "memory")) for title in titles)
    rows = []
    for guest in record.plan.inventory.guests:
        facts = record.facts.get(guest.name)
        if facts is None:
            continue
        values = (
            guest.name, _vm_host(guest, facts), guest.storage, facts.get("kernel"), facts.get("arch"), facts.get("cpus"),
            facts.get("cpu_model"), facts.get("product"), _size(facts.get("memory_bytes")),
            facts.get("hypervisor"), facts.get("clocksource"),
            _io_uring(facts.get("io_uring")), _paths(facts.get("paths")), _fio(facts),
            floor_text(facts.get("floor")), truth_text(facts.get("truth")),
        )  # fmt: skip
        rows.append(tuple("" if value is None else wording.printable(str(value)) for value in values))
    return Table("guests", "The guests", columns, tuple(rows))


def _vm_host(guest: Guest, facts: Mapping[str, Any]) -> str | None:
    """The vm_host, and what the guest was told where that is another one, or became another one."""
    found, moved = vm_hosts.told(facts), vm_hosts.moved(facts)
    parts = [guest.vm_host or ""]
    if found is not None and not vm_hosts.is_same(guest.vm_host or found[0], found[0]):
        parts.append(f"told: {found[0]}")
    if moved is not None:
        parts.append(f"then {moved[1]}")
    return ", ".join(filter(None, parts)) or None


def _io_uring(fact: Any) -> str:
    if not isinstance(fact, Mapping):
        return ""
    return " ".join(map(str, _list(fact.get("setups")))) if fact.get("ok") else f"no: {fact.get('why') or 'refused'}"


def _paths(paths: Any) -> str:
    found = []
    for path in _list(paths):
        if isinstance(path, Mapping):
            told = [path.get(name) for name in ("path", "fs_type", "device", "model", "scheduler")]
            found.append(" ".join(str(part) for part in told if part))
    return "; ".join(found)


def floor_text(floor: Any) -> str:
    """What the engine itself adds to each I/O, measured with requests that do nothing."""
    if not isinstance(floor, Mapping):
        return ""
    per_io, p99 = floor.get("ns_per_io"), floor.get("p99_ns")
    if not isinstance(per_io, int) or not isinstance(p99, int):
        return ""
    return f"{wording.latency(per_io)} per I/O, P99 {wording.latency(p99)}"


def truth_text(truth: Any) -> str:
    """For each target: a block read first and again, and 4 KiB written and flushed."""
    told = []
    for target, probe in truth.items() if isinstance(truth, Mapping) else ():
        if isinstance(probe, Mapping):
            named = (
                ("cold_read_ns", "first read"),
                ("hot_read_ns", "read again"),
                ("flush_write_ns", "write and flush"),
            )
            parts = [
                f"{text} {wording.latency(probe[key])}"
                for key, text in named
                if isinstance(probe.get(key), int | float)
            ]
            told.append(f"{target}: {', '.join(parts)}")
    return "; ".join(told)


def _fio(facts: Mapping[str, Any]) -> str:
    fio = facts.get("fio")
    if isinstance(fio, Mapping):
        return str(fio.get("version") or fio.get("why") or "none")
    programs = [program for program in _list(facts.get("programs")) if isinstance(program, Mapping)]
    paths = [str(program.get("path")) for program in programs if program.get("name") == "fio" and program.get("path")]
    return paths[0] if paths else "none"


def _size(value: Any) -> str:
    return wording.size(value) if isinstance(value, int | float) else wording.NOT_AVAILABLE


def _list(value: Any) -> Sequence[Any]:
    """Take what a guest calls a list only when it is one."""
    return value if isinstance(value, list | tuple) else ()
