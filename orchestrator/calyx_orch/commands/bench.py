"""`calyx-orch bench TARGET`: the engine alone on this machine, without an inventory: a table, or JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import signal
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from calyx_orch import inventory as inventories
from calyx_orch import plan as planning
from calyx_orch import workloads
from calyx_orch.errors import EXIT_FINE, EXIT_GUEST_FAILED, CalyxError, InventoryErrors, UsageError
from calyx_orch.model import Plan, RunRecord
from calyx_orch.report import screen
from calyx_orch.runner import bench as runner

FORMAT = "calyx-orch-bench/1"
GUEST, TARGET = "here", "target"
SHORT = {"ramp_time": "1s", "runtime": "5s"}  # when nothing is said: a first look, labelled short
SIZE = "1GiB"
OPTIONS = frozenset(  # the words of a workload that have an option of their own
    (
        "rw",
        "bs",
        "iodepth",
        "numjobs",
        "size",
        "runtime",
        "ramp_time",
        "rwmixread",
        "rate_iops",
        "direct",
        "setup",
        "refill",
    )
)
CORNERS: tuple[Mapping[str, str], ...] = (
    {"name": "randread-4k", "rw": "randread", "bs": "4k", "iodepth": "32"},
    {"name": "randwrite-4k", "rw": "randwrite", "bs": "4k", "iodepth": "32"},
    {"name": "seqread-1m", "rw": "read", "bs": "1m", "iodepth": "16"},
    {"name": "seqwrite-1m", "rw": "write", "bs": "1m", "iodepth": "16"},
)


@dataclass(frozen=True)
class BenchOptions:
    """What the command line says. `words` are keys of a workload as in an inventory, each with its values."""

    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    repetitions: int = 1
    allow_ram: bool = False
    seed: int | None = None
    as_json: bool = False
    quiet: bool = False


def show(target: Path, options: BenchOptions) -> int:
    """Measure a directory of this machine and tell. Returns the exit code."""
    plan = plan_of(target, options)
    return asyncio.run(_show(plan, target, options))


def plan_of(target: Path, options: BenchOptions) -> Plan:
    """The rounds of these options; a problem is told in the words of the command line. Raises UsageError."""
    said = {key: list(values) for key, values in options.words.items() if values}
    entries = [said] if "rw" in said else [{**corner, **said} for corner in CORNERS]
    defaults = {"size": SIZE, **SHORT}
    path = _directory(target)
    content = {
        "name": "bench",
        "defaults": {"targets": {TARGET: {"path": "/", "allow_ram": str(options.allow_ram).lower()}}},
        "guests": {GUEST: {"transport": "local"}},
        "workloads": [{**defaults, **entry} for entry in entries],
        "baselines": "none",
        "repetitions": str(options.repetitions),
        "allow_psync": "true",
    }
    try:
        inventory = inventories.parse(
            json.dumps(content), source="bench", base_dir="", presets=workloads.read_presets()
        )
    except InventoryErrors as errors:
        told = dict.fromkeys(_as_option(problem.message) for problem in errors.problems)
        raise UsageError("\n".join(f"calyx-orch bench: {message}" for message in told)) from None
    if any(one.find is not None for one in inventory.workloads):
        raise UsageError("calyx-orch bench: a rate is searched for by `calyx-orch run` with `find` in an inventory")
    if any(one.load_share is not None for one in inventory.workloads):
        raise UsageError(
            "calyx-orch bench: --option rate: a share of a capacity is measured by `calyx-orch run`; write a rate, such as 100MB/s"
        )
    (guest,) = inventory.guests
    there = replace(guest, targets=tuple(replace(one, path=path) for one in guest.targets))
    inventory = replace(inventory, guests=(there,))
    return planning.make(inventory, seed=secrets.randbits(32) if options.seed is None else options.seed)


def _directory(target: Path) -> str:
    """The whole path of the target, wherever it lies. Raises UsageError when it is no directory of this machine."""
    path = target.resolve()
    if path.is_block_device():
        raise UsageError(
            f"calyx-orch bench: {target} is a raw device, and bench makes files in a directory: name a directory on it; a raw "
            "device is measured by `calyx-orch run`, with transport: local and {device: ..., destructive: true} in an inventory"
        )
    if not path.is_dir():
        why = "is no directory" if path.exists() else "does not exist"
        raise UsageError(f"calyx-orch bench: {target} {why}: name a directory on the disk that is to be measured")
    return str(path)


def _as_option(message: str) -> str:
    """A problem of an inventory's key, as one of the option that said it: `'rw[0]' must be` is `--rw must be`."""
    found = re.match(r"'(\w+)(\[\d+\])?'", message)
    if found is None:
        return message
    option = f"--{found[1].replace('_', '-')}" if found[1] in OPTIONS else f"--option {found[1]}"
    return option + message[found.end() :]


def _unnamed(text: str) -> str:
    """A sentence about a target of an inventory: the one of the command line is told by its path alone, and allowed by an option."""
    return text.replace(f"target {TARGET}: ", "").replace("set allow_ram: true on it", "pass --allow-ram")


async def _show(plan: Plan, target: Path, options: BenchOptions) -> int:
    interrupted = asyncio.Event()
    caught: list[int] = []
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        caught.append(number)
        interrupted.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    console = screen.console(stderr=True)
    try:
        with _Bars.shown(console, plan, quiet=options.quiet or not console.is_terminal) as bars:
            found = await runner.bench(plan, interrupted=interrupted, phase=bars.phase, look=bars.look)
    except CalyxError as error:
        error.args = (_unnamed(str(error)),)
        raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    found.notes = [_unnamed(note) for note in found.notes]
    _tell(plan, found, target, as_json=options.as_json)
    if caught:
        return 128 + caught[0]
    return EXIT_FINE if all(one.measurement.status == "ok" for one in found.done) else EXIT_GUEST_FAILED


class _Bars:
    """A bar for each workload on standard error; nothing where that is no terminal."""

    def __init__(self, progress: Progress | None, plan: Plan) -> None:
        self._progress = progress
        self._bars: dict[int, TaskID] = {}
        if progress is not None:
            for round_ in plan.rounds:
                self._bars[round_.index] = progress.add_task(round_.workload.name, total=1.0, start=False, told="")

    @classmethod
    @contextlib.contextmanager
    def shown(cls, console: Console, plan: Plan, *, quiet: bool) -> Iterator[_Bars]:
        """The bars, while they are wanted."""
        if quiet:
            yield cls(None, plan)
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[told]}"),
        )
        with Progress(*columns, console=console, refresh_per_second=4) as progress:
            yield cls(progress, plan)

    def phase(self, text: str) -> None:
        """What is going on between workloads."""
        if self._progress is not None:
            self._progress.console.print(text, style="dim")

    def look(self, look: runner.Look) -> None:
        """A workload goes on; called from the thread that waits for it."""
        if self._progress is not None:
            told = look.hangs or f"{look.iops:,.0f} IOPS" + ("" if look.is_measured else " (ramp)")
            self._progress.start_task(self._bars[look.round.index])
            self._progress.update(self._bars[look.round.index], completed=look.share, told=told)


def record_of(plan: Plan, found: runner.Benched) -> RunRecord:
    """What was measured as the record of a run, for the same analysis and tables."""
    measurements = tuple(one.measurement for one in found.done)
    status = "interrupted" if found.interrupted else "finished"
    return RunRecord("bench", "", plan, measurements, (), {GUEST: found.facts}, "", status, tuple(found.notes))


def _tell(plan: Plan, found: runner.Benched, target: Path, *, as_json: bool) -> None:
    from calyx_orch.analysis import summary as analysis
    from calyx_orch.report import bench as report

    record = record_of(plan, found)
    summary = analysis.summarise(record)
    if not as_json:
        report.show(record, summary, screen.console(), target=str(target.resolve()))
        return
    rows = {row.workload: row for row in summary.guests}
    document: dict[str, Any] = {
        "format": FORMAT,
        "target": str(target.resolve()),
        "status": record.status,
        "seed": plan.seed,
        "notes": list(record.notes),
        "facts": dict(found.facts),
        "workloads": [
            {
                "name": one.round.workload.name, "is_short": one.round.workload.is_short, "workload": asdict(one.round.workload),
                "row": asdict(rows[one.round.workload.name]), "result": one.document,
            }
            for one in found.done
        ],
    }  # fmt: skip
    screen.deliver_json(document)
