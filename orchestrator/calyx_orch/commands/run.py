"""`calyx-orch run`: an inventory becomes a plan, a run folder, a table, a report and one closing sentence."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from calyx_orch import documents, runner, sources, transport, units, workloads
from calyx_orch import inventory as inventories
from calyx_orch import plan as planning
from calyx_orch.commands import judging, naming, outputs
from calyx_orch.coordination import is_quorum_met
from calyx_orch.errors import (
    EXIT_CANNOT_START,
    EXIT_FINE,
    EXIT_GUEST_FAILED,
    EXIT_INTERRUPTED,
    CalyxError,
    FolderError,
    RefusedError,
    UsageError,
)
from calyx_orch.inventory import jobs
from calyx_orch.model import HostKeyPolicy, Inventory, Plan, RunRecord
from calyx_orch.names import is_workload
from calyx_orch.report import screen
from calyx_orch.report.aside import Aside
from calyx_orch.report.live import Live, live_for
from calyx_orch.store import archive

if TYPE_CHECKING:
    from calyx_orch.analysis.summary import Summary

PLACES_NAMED = 6
QUICK = "quick"  # the preset for guests that come without an inventory


@dataclass(frozen=True)
class RunOptions:
    """What the command line says besides the inventory. `parent` is where run folders are made when `out` names none."""

    limit: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    repetitions: int | None = None
    dry_run: bool = False
    out: Path | None = None
    parent: Path = naming.RUNS
    as_json: bool = False
    allow_growth: bool = False
    seed: int | None = None
    quiet: bool = False
    jobs: Path | None = None
    recalibrate: bool = False
    limits: judging.Limits = field(default_factory=judging.Limits)


@dataclass(frozen=True)
class Reached:
    """How guests of the command line are reached: what an inventory says under `defaults`. None or empty: as by default."""

    key: tuple[str, ...] = ()
    known_hosts: str | None = None
    host_key_policy: HostKeyPolicy | None = None
    ssh_config: str | None = None
    jump: str | None = None

    def settings(self) -> dict[str, Any]:
        """The keys of `defaults`, with whole paths, so that the run folder's copy means the same everywhere."""
        said: dict[str, Any] = {
            "key": [_whole_path(path) for path in self.key],
            "known_hosts": _whole_path(self.known_hosts) if self.known_hosts else None,
            "host_key_policy": str(self.host_key_policy) if self.host_key_policy else None,
            "ssh_config": _whole_path(self.ssh_config) if self.ssh_config else None,
            "jump": _endpoint(self.jump) if self.jump else None,
        }
        return {key: value for key, value in said.items() if value}


def _whole_path(path: str) -> str:
    return path if path.startswith("~") else str(Path(path).absolute())


def _endpoint(jump: str) -> str:
    """A bare name would be sought under jump_hosts, which the command line has not."""
    return jump if "@" in jump or ":" in jump else f"{jump}:22"


def read_file(path: str) -> Inventory:
    """The inventory in a file, by a program or `-`."""
    text, source, base_dir = sources.read(path)
    return inventories.parse(text, source=source, base_dir=base_dir, presets=workloads.read_presets())


def of_guests(guests: tuple[str, ...], target: str, wanted: tuple[str, ...], reached: Reached) -> Inventory:
    """Guests named on the command line, with the quick preset, or the presets `wanted` when all of these are presets."""
    presets = workloads.read_presets()
    named = wanted if all(name in presets for name in wanted) else ()
    return inventories.from_guests(
        guests, target=target, presets=presets, workloads=named or (QUICK,), settings=reached.settings()
    )


def run_named(inventory: Inventory, options: RunOptions) -> int:
    """Run an inventory. Returns the exit code."""
    plan, options = _planned(inventory, options)
    if options.dry_run:
        return _show_plan(plan, options)
    # Asked for before anything is drawn on the terminal.
    passphrases = transport.unlock(guest.connection for guest in plan.inventory.guests)
    return asyncio.run(_run_plan(plan, options, passphrases))


async def run_inventory(inventory: Inventory, options: RunOptions) -> int:
    """Run an inventory within a loop, by keys that need no passphrase. Returns the exit code."""
    plan, options = _planned(inventory, options)
    return await _run_plan(plan, options, {})


def _planned(inventory: Inventory, options: RunOptions) -> tuple[Plan, RunOptions]:
    """The plan, and the options with their limits settled. Raises UsageError for what would be refused after it, too."""
    plan = plan_of(inventory, options)
    if options.limits.junit is not None:
        outputs.checked(options.limits.junit, "--junit", "JUnit file")
    options = replace(options, limits=judging.settled(options.limits, plan))
    if not options.dry_run:
        guard_growth(plan, allowed=options.allow_growth)
    return plan, options


async def _run_plan(plan: Plan, options: RunOptions, passphrases: Mapping[str, str]) -> int:
    folder = archive.RunFolder.create(options.parent, plan, path=options.out)
    return await measure(plan, folder, options, screen.console(stderr=options.as_json), passphrases=passphrases)


async def measure(
    plan: Plan,
    folder: archive.RunFolder,
    options: RunOptions,
    console: Console,
    *,
    passphrases: Mapping[str, str] | None = None,
    earlier: runner.Earlier | None = None,
) -> int:
    """Run a plan into its folder, write the report, tell how it went. Returns the exit code."""
    full: FolderError | None = None
    signal_number = 0
    live = Aside(live_for(console, quiet=options.quiet))
    try:
        cache = runner.Cache(runner.cache_path(), fresh=options.recalibrate)
        async with transport.Pool(passphrases=passphrases) as pool:
            signal_number = await _run(plan, folder, live, cache, pool, earlier)
    except FolderError as error:
        full = error
    except RefusedError as error:
        said = "what the guests said of themselves; nothing was measured"
        kept = f"holds {said if earlier is None else 'what was measured before'}"
        raise RefusedError(f"{error}\nrun folder: {folder.path} {kept}") from error
    finally:
        folder.close()
        live.close(within_s=None)  # everything is kept; now the terminal may take its time
    judged = judging.Judged()
    try:
        record = archive.read(folder.path)
        judged = judging.judge(record, options.limits, console)
        tell(record, console, as_json=options.as_json, limits=judged.clause)
    except CalyxError:
        if full is None:
            raise
    if full is not None:
        raise FolderError(f"{full}; what was measured until then is kept: make room, and measure anew") from full
    if judged.failed is not None:
        raise judged.failed
    return 128 + signal_number if signal_number else exit_code(record) or judged.code


def plan_of(inventory: Inventory, options: RunOptions) -> Plan:
    """The plan of these options; a seed is drawn when neither the inventory nor the options pin one."""
    pinned = options.seed if options.seed is not None else inventory.seed
    seed = secrets.randbits(32) if pinned is None else pinned
    notes: tuple[str, ...] = ()
    if options.jobs is not None:
        inventory, notes = _with_jobs(inventory, options.jobs)
    presets = workloads.read_presets()
    _check_workloads(inventory, options.workloads, presets)
    chosen = inventories.choose_workloads(inventory, options.workloads, presets=presets)
    wanted = options.workloads if chosen is inventory else ()  # else it holds just what was asked for
    plan = planning.make(chosen, limit=options.limit, workloads=wanted, repetitions=options.repetitions, seed=seed)
    return replace(plan, notes=notes + plan.notes)


def _check_workloads(inventory: Inventory, written: tuple[str, ...], presets: Mapping[str, str]) -> None:
    """Raise UsageError for a name that neither a workload nor a preset has; it names what there is."""
    own = [workload.name for workload in inventory.workloads]
    for name in written:
        if name not in presets and not any(is_workload(one, name) for one in own):
            hint = documents.suggestion(name, [*own, *presets])
            there_are = f"workloads: {', '.join(own)}; presets: {', '.join(sorted(presets))}"
            raise UsageError(f"--workload {name}: no workload or preset is called that{hint} ({there_are})")


def _with_jobs(inventory: Inventory, path: Path) -> tuple[Inventory, tuple[str, ...]]:
    """The inventory with the workloads of a fio job file in place of its own; what is different about them, in words.

    The file's engines are the baselines, unless the inventory names its own.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the job file {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read the job file {path}: it is not UTF-8 text") from error
    found = jobs.parse_jobs(text, source=str(path))
    baselines = (
        replace(inventory.baselines, engines=found.baselines) if inventory.baselines.auto else inventory.baselines
    )
    return replace(inventory, workloads=found.workloads, baselines=baselines, allow_psync=True), found.notes


def guard_growth(plan: Plan, *, allowed: bool) -> None:
    """Raise UsageError when a vm_host or storage would grow by more than it has free, or than is safe to assume."""
    refusal = growth_refusal(plan)
    if refusal and not allowed:
        raise UsageError(refusal)


def growth_refusal(plan: Plan) -> str:
    """Why a run would refuse the plan whatever its guests are, as a clause; empty when it would not."""
    beyond = [growth for growth in plan.growth if growth.exceeds]
    if not beyond:
        return ""
    told = [
        f"{units.format_bytes(growth.new_bytes)} on {growth.kind} {growth.name}, which declares "
        + ("{} free" if growth.declared else "no free space ({} are assumed)").format(
            units.format_bytes(growth.limit_bytes)
        )
        for growth in beyond[:PLACES_NAMED]
    ]
    if len(beyond) > PLACES_NAMED:
        told.append(f"and {len(beyond) - PLACES_NAMED} places more")
    kept = "; kept files count, since only the guests know whether theirs can be reused"
    return (
        f"this run would write more new bytes than it may: {'; '.join(told)}: use smaller files or fewer guests, declare `free:` there, "
        f"or pass --allow-growth{kept if any(layout.keep for layout in plan.layouts) else ''}"
    )


async def _run(
    plan: Plan,
    folder: archive.RunFolder,
    live: Live,
    cache: runner.Cache,
    pool: transport.Pool,
    earlier: runner.Earlier | None,
) -> int:
    """Run with signals caught: the first stops the guests in good order, the second leaves at once. Returns the signal."""
    interrupted = asyncio.Event()
    caught: list[int] = []
    loop = asyncio.get_running_loop()
    running = runner.run(
        plan, folder=folder, live=live, interrupted=interrupted, pool=pool, cache=cache, earlier=earlier
    )
    task = asyncio.ensure_future(running)

    def on_signal(number: int) -> None:
        caught.append(number)
        if len(caught) == 1:
            live.note("interrupted: stopping and cleaning the guests; once more to leave at once")
            interrupted.set()
        elif len(caught) == 2:
            task.cancel()

    heard = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        heard.append(signal.SIGHUP)
    for number in heard:
        loop.add_signal_handler(number, on_signal, number)
    try:
        await task
    except asyncio.CancelledError:
        live.note("left at once: agents remove their files when they notice that the controller is gone")
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
        live.close()
    return caught[0] if caught else 0


def exit_code(record: RunRecord) -> int:
    """0, 3 when a guest failed (unless the policy's quorum was met), 130 when interrupted."""
    if record.status == "interrupted":
        return EXIT_INTERRUPTED
    failed = [outcome for outcome in record.outcomes if outcome.state in ("lost", "partial")]
    if not failed and record.status == "finished":
        return EXIT_FINE
    return EXIT_FINE if quorum_met(record) else EXIT_GUEST_FAILED


def quorum_met(record: RunRecord) -> str:
    """What a warning says when guests failed and the policy's quorum was met all the same; empty: it was not, or none is set."""
    policy, planned = record.plan.inventory.policy, len(record.outcomes)
    whole = sum(outcome.state == "measured" for outcome in record.outcomes)
    if record.status != "finished" or policy.quorum is None or whole == planned:
        return ""
    if not is_quorum_met(policy, alive=whole, planned=planned):
        return ""
    share = f"{100 * policy.quorum:g} %"
    return f"warning: {planned - whole} of {planned} guests were not measured whole; the quorum of {share} is met, so the exit code is 0"


def tell(record: RunRecord, console: Console, *, as_json: bool, limits: str = "") -> None:
    """Show the tables, write the report beside the run, and end with one sentence, which says how the run stands to its `limits`.

    Raises FolderError when the report, or Fault when the JSON could not be written; all that could be told was told before.
    """
    from calyx_orch.analysis import summary as analysis
    from calyx_orch.analysis import verdict
    from calyx_orch.report import run_page, terminal

    summary = analysis.summarise(record)
    terminal.show_tables(record, summary, console)
    warning = quorum_met(record)
    if warning:
        console.print()
        screen.line(warning, "yellow", to=console)
    console.print()
    screen.line(f"run folder: {record.folder}", to=console)
    is_drawn = False
    try:
        out = run_page.write(record, summary, out=Path(record.folder) / "report.html")
        is_drawn = True
        screen.line(f"report: {out}", to=console)
    finally:
        sentence = verdict.sentence(record, summary, is_drawn=is_drawn)
        terminal.conclude(f"{limits[:1].upper()}{limits[1:]}. {sentence}" if limits else sentence, console)
        if as_json:
            print_json(record, summary)


def print_json(record: RunRecord, summary: Summary) -> None:
    """Write the result as strict JSON on standard output. Raises Fault when it does not take it, unless it was closed."""
    from calyx_orch.report import terminal

    again = f"`calyx-orch report {record.folder} --json` writes it again"
    screen.deliver_json(terminal.to_json(record, summary), again=again)


def _show_plan(plan: Plan, options: RunOptions) -> int:
    from calyx_orch.report import terminal

    refusal = "" if options.allow_growth else growth_refusal(plan)
    if options.as_json:
        screen.deliver(planning.to_json(plan) + "\n")
    else:
        terminal.dry_run(plan, planning.describe(plan), screen.console(), refusal=refusal)
    return EXIT_CANNOT_START if refusal else EXIT_FINE
