"""The command line: a table of verbs, each of which calls one function in `commands`."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from calyx_orch import __version__
from calyx_orch.cli_words import (
    GuestWord,
    HostKeyPolicyWord,
    InventoryWord,
    JobsWord,
    JsonWord,
    JumpWord,
    KeyWord,
    KnownHostsWord,
    LimitWord,
    QuietWord,
    SshConfigWord,
    TargetWord,
    WorkloadWord,
)
from calyx_orch.errors import EXIT_CANNOT_START, EXIT_FAULT, EXIT_FINE, EXIT_INTERRUPTED, CalyxError, UsageError
from calyx_orch.model import Inventory
from calyx_orch.report.wording import printable

app = typer.Typer(
    name="calyx-orch",
    help="Benchmark the disks of many Linux guests at once, beside fio, and compare guests and VM hosts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

EXIT_CODES = "Exit codes: 0 fine, 1 a budget or baseline was missed, 2 cannot start, 3 a guest failed, 4 our fault, 130 interrupted."


STORE = typer.Option(
    metavar="URL",
    help="The store: sqlite:///FILE or postgresql://USER@HOST/DATABASE. Default: $CALYX_ORCH_STORE, else a file of yours.",
)
LIMITS = "What the run is held to"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"calyx-orch {__version__}")
        raise typer.Exit


@app.callback(epilog=EXIT_CODES)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def _named(
    inventory: str | None, guests: list[str] | None, target: str | None, wanted: list[str] | None, **reached: Any
) -> Inventory:
    """The inventory that is named, or the guests by hand. Raises UsageError when neither or both are."""
    from calyx_orch.commands import run as command

    if inventory is not None and guests:
        raise UsageError("give either an inventory or --guest, not both")
    if guests:
        if target is None:
            raise UsageError("--guest needs --target: the directory to measure on each guest")
        return command.of_guests(tuple(guests), target, tuple(wanted or ()), command.Reached(**reached))
    if target is not None:
        raise UsageError("--target goes with --guest; in an inventory the targets stand under `targets:`")
    for name, value in reached.items():
        if value:
            raise UsageError(
                f"--{name.replace('_', '-')} goes with --guest; in an inventory write `{name}:` under defaults:"
            )
    if inventory is None:
        raise UsageError(
            "name an inventory, or guests with --guest and --target; `calyx-orch init` writes a first inventory"
        )
    return command.read_file(inventory)


@app.command(epilog=EXIT_CODES)
def run(
    inventory: InventoryWord = None,
    guest: GuestWord = None,
    target: TargetWord = None,
    key: KeyWord = None,
    known_hosts: KnownHostsWord = None,
    host_key_policy: HostKeyPolicyWord = None,
    ssh_config: SshConfigWord = None,
    jump: JumpWord = None,
    limit: LimitWord = None,
    workload: WorkloadWord = None,
    jobs: JobsWord = None,
    repetitions: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=1000, help="Blocks of rounds, instead of the inventory's.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Pin the seed of order, offsets and data.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan: workloads, rounds, time, bytes; touch nothing.")
    ] = False,
    allow_growth: Annotated[
        bool, typer.Option("--allow-growth", help="Allow more new bytes than is declared free.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder to make (default: a new one below calyx-runs/).")
    ] = None,
    json_: JsonWord = False,
    recalibrate: Annotated[
        bool,
        typer.Option("--recalibrate", help="Try the set-ups of `setup: auto` again instead of taking what is kept."),
    ] = False,
    quiet: QuietWord = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Go on with the run in this folder, whose controller ended; INVENTORY then only says how guests are reached.",
        ),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIMIT",
            rich_help_panel=LIMITS,
            help="What every guest must keep, such as 'randread-4k.p99<2ms'; exit 1 when broken; repeat.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            rich_help_panel=LIMITS,
            help="A run folder, a run's id, or `baseline`: exit 1 when surely worse than that by more than allowed.",
        ),
    ] = None,
    max_regression: Annotated[
        str, typer.Option(metavar="PERCENT", rich_help_panel=LIMITS, help="With --against: how much worse is allowed.")
    ] = "5%",
    junit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=LIMITS, help="Write guests and limits as a JUnit file."),
    ] = None,
    store: Annotated[str | None, STORE] = None,
) -> None:
    """Run an inventory: deploy, start all guests together, measure with calyx and fio, compare, report."""
    from calyx_orch.commands import run as command

    options = command.RunOptions(
        limit=tuple(limit or ()), workloads=tuple(workload or ()), repetitions=repetitions, dry_run=dry_run, out=out,
        as_json=json_, allow_growth=allow_growth, seed=seed, quiet=quiet, jobs=jobs, recalibrate=recalibrate,
        limits=_limits(budget, against, max_regression, junit, store),
    )  # fmt: skip
    if resume is not None:
        fixed = (guest, target, limit, workload, jobs, repetitions, seed, out, recalibrate, dry_run)
        _resume(resume, inventory, options, is_narrowed=any(value not in (None, [], False) for value in fixed))
    named = _named(
        inventory, guest, target, workload, key=tuple(key or ()), known_hosts=known_hosts,
        host_key_policy=host_key_policy, ssh_config=ssh_config, jump=jump,
    )  # fmt: skip
    raise typer.Exit(command.run_named(named, options))


def _limits(
    budget: list[str] | None, against: str | None, max_regression: str, junit: Path | None, store: str | None
) -> Any:
    """What the run is held to. Raises UsageError for a percentage that is none."""
    from calyx_orch import units
    from calyx_orch.commands import judging

    try:
        allowed = units.parse_percent(max_regression)
    except ValueError as error:
        raise UsageError(f"--max-regression {max_regression}: {error}") from error
    return judging.Limits(tuple(budget or ()), against, allowed, junit, store, index=True)


def _resume(folder: Path, inventory: str | None, options: Any, *, is_narrowed: bool) -> None:
    """Go on with a run; raises Exit. Its plan is fixed, so nothing that would make another one goes with it."""
    from calyx_orch.commands import resume as command

    if is_narrowed:
        raise UsageError(
            "--resume goes on with the plan of the run: of the other options only --json, --quiet and --allow-growth go with it"
        )
    raise typer.Exit(command.resume(folder, inventory, options))


@app.command(epilog=EXIT_CODES)
def check(
    inventory: InventoryWord = None,
    guest: GuestWord = None,
    target: TargetWord = None,
    key: KeyWord = None,
    known_hosts: KnownHostsWord = None,
    host_key_policy: HostKeyPolicyWord = None,
    ssh_config: SshConfigWord = None,
    jump: JumpWord = None,
    limit: LimitWord = None,
    workload: WorkloadWord = None,
    jobs: JobsWord = None,
    json_: JsonWord = False,
    quiet: QuietWord = False,
) -> None:
    """Test on all guests what a run needs, from reach to other load, and change nothing there."""
    from calyx_orch.commands import check as command
    from calyx_orch.commands.run import RunOptions

    named = _named(
        inventory, guest, target, workload, key=tuple(key or ()), known_hosts=known_hosts,
        host_key_policy=host_key_policy, ssh_config=ssh_config, jump=jump,
    )  # fmt: skip
    options = RunOptions(
        limit=tuple(limit or ()), workloads=tuple(workload or ()), jobs=jobs, as_json=json_, quiet=quiet
    )
    raise typer.Exit(command.show(named, options))


@app.command(epilog=EXIT_CODES)
def clean(
    inventory: InventoryWord = None,
    guest: GuestWord = None,
    target: TargetWord = None,
    key: KeyWord = None,
    known_hosts: KnownHostsWord = None,
    host_key_policy: HostKeyPolicyWord = None,
    ssh_config: SshConfigWord = None,
    jump: JumpWord = None,
    limit: LimitWord = None,
    agents: Annotated[
        bool, typer.Option("--agents", help="Remove agents of other versions of calyx-orch from the guests, too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed; touch nothing.")] = False,
    json_: JsonWord = False,
) -> None:
    """Remove what runs have left on guests whose controller or agent died; what is in use stays."""
    from calyx_orch.commands import clean as command

    named = _named(
        inventory, guest, target, None, key=tuple(key or ()), known_hosts=known_hosts,
        host_key_policy=host_key_policy, ssh_config=ssh_config, jump=jump,
    )  # fmt: skip
    options = command.CleanOptions(limit=tuple(limit or ()), dry_run=dry_run, agents=agents, as_json=json_)
    raise typer.Exit(command.show(named, options))


@app.command(epilog=EXIT_CODES)
def bench(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A directory on the disk to measure.")],
    rw: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RW", help="read, write, randread, randwrite, rw or randrw; repeat. Default: the four corners."
        ),
    ] = None,
    bs: Annotated[list[str] | None, typer.Option(metavar="SIZE", help="Block size, such as 4k; repeat.")] = None,
    iodepth: Annotated[list[str] | None, typer.Option(metavar="N", help="I/Os in flight of each job; repeat.")] = None,
    numjobs: Annotated[
        list[str] | None, typer.Option(metavar="N", help="Jobs, each with a thread, a ring and a file; repeat.")
    ] = None,
    size: Annotated[str | None, typer.Option(metavar="SIZE", help="Size of each job's file. Default: 1GiB.")] = None,
    runtime: Annotated[
        str | None, typer.Option(metavar="TIME", help="Measured time. Default: 5s, which is short.")
    ] = None,
    ramp_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time before that is measured. Default: 1s.")
    ] = None,
    rwmixread: Annotated[
        list[str] | None, typer.Option(metavar="N", help="Percent of reads of rw and randrw; repeat.")
    ] = None,
    rate_iops: Annotated[
        list[str] | None, typer.Option(metavar="N", help="I/Os per second of each job; repeat.")
    ] = None,
    direct: Annotated[str | None, typer.Option(metavar="BOOL", help="false: through the page cache.")] = None,
    setup: Annotated[
        list[str] | None,
        typer.Option(metavar="SETUP", help="auto, sqpoll, defer, coop, plain or psync; repeat to compare."),
    ] = None,
    refill: Annotated[
        list[str] | None, typer.Option(metavar="POLICY", help="each or batch; repeat to compare.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Any other word of a workload, such as fsync=1; repeat."),
    ] = None,
    repetitions: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="How often each is measured.")] = 1,
    allow_ram: Annotated[bool, typer.Option("--allow-ram", help="A file system in memory is meant.")] = False,
    seed: Annotated[int | None, typer.Option(metavar="N", min=0, help="Pin the seed of offsets and data.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the results as JSON on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Measure a disk of this machine with the engine alone; no inventory, no SSH, no fio."""
    from calyx_orch.commands import bench as command

    words: dict[str, tuple[str, ...]] = {
        "rw": tuple(rw or ()), "bs": tuple(bs or ()), "iodepth": tuple(iodepth or ()), "numjobs": tuple(numjobs or ()),
        "rwmixread": tuple(rwmixread or ()), "rate_iops": tuple(rate_iops or ()), "setup": tuple(setup or ()),
        "refill": tuple(refill or ()),
    }  # fmt: skip
    words |= {
        key: (value,)
        for key, value in (("size", size), ("runtime", runtime), ("ramp_time", ramp_time), ("direct", direct))
        if value
    }
    for one in option or ():
        key, equals, value = one.partition("=")
        if not equals:
            raise UsageError(f"--option {one}: write KEY=VALUE, such as --option fsync=1")
        words[key.strip()] = (*words.get(key.strip(), ()), value.strip())
    options = command.BenchOptions(
        words=words, repetitions=repetitions, allow_ram=allow_ram, seed=seed, as_json=json_, quiet=quiet
    )
    raise typer.Exit(command.show(target, options))


@app.command(epilog=EXIT_CODES)
def demo(
    guests: Annotated[int, typer.Option(metavar="N", min=1, max=32, help="How many loopback guests.")] = 4,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder to make (default: a new one below calyx-runs/).")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No live progress.")] = False,
) -> None:
    """Show it all on this machine: loopback guests behind real sshd, measured by the very same code."""
    from calyx_orch.commands import demo as command

    raise typer.Exit(command.show(guests=guests, out=out, quiet=quiet))


@app.command(epilog=EXIT_CODES)
def report(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    dashboard: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A dashboard YAML instead of the fleet's.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The page to write (default: report.html in the run folder; with --dashboard NAME.yaml: report-NAME.html).",
        ),
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, as `run --json` does, and draw no page.")
    ] = False,
) -> None:
    """Draw the report page of a run again, or print its result as JSON."""
    from calyx_orch.commands import report as command

    if json_ and (dashboard is not None or out is not None):
        raise UsageError("--json draws no page: leave out --dashboard and --out, or --json")
    raise typer.Exit(
        command.print_json(run_folder) if json_ else command.draw(run_folder, dashboard=dashboard, out=out)
    )


@app.command(epilog=EXIT_CODES)
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; one, with --by.")],
    by: Annotated[
        str | None,
        typer.Option(
            metavar="FACT",
            help="Compare the parts of one run: vm_host, storage, group, guest, engine, a label, or a fact such as kernel.",
        ),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(metavar="NAME", help="The side that all others are held against. Default: the first.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON on standard output.")] = False,
) -> None:
    """Compare runs, or the parts of one run: ratios with intervals, tests and verdicts."""
    from calyx_orch.commands import compare as command

    raise typer.Exit(command.show(runs, by=by, reference=reference, as_json=json_))


@app.command(epilog=EXIT_CODES)
def index(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run folders, or directories that hold some.")],
    store: Annotated[str | None, STORE] = None,
) -> None:
    """Put run folders into the store, in place of what it had of them."""
    from calyx_orch.commands import stored as command

    raise typer.Exit(command.index(tuple(paths), store=store))


@app.command("list", epilog=EXIT_CODES)
def list_(
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="How many, the newest first.")] = 30,
    store: Annotated[str | None, STORE] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print them as JSON on standard output.")] = False,
) -> None:
    """List the runs in the store."""
    from calyx_orch.commands import stored as command

    raise typer.Exit(command.list_runs(store=store, limit=limit, as_json=json_))


@app.command(epilog=EXIT_CODES)
def show(
    run_: Annotated[str, typer.Argument(metavar="RUN", help="A run's id or the beginning of it, or `latest`.")],
    scope: Annotated[str, typer.Option(metavar="SCOPE", help="fleet, vm_host, storage, guest or all.")] = "vm_host",
    store: Annotated[str | None, STORE] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print it as JSON on standard output.")] = False,
) -> None:
    """Show the figures that the store keeps of a run."""
    from calyx_orch.commands import stored as command

    raise typer.Exit(command.show(run_, store=store, scope=scope, as_json=json_))


@app.command(epilog=EXIT_CODES)
def export(
    run_: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, a run's id, or `latest`.")],
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="csv, parquet, json, openmetrics or junit.")
    ] = "csv",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to. Default: standard output.")] = None,
    store: Annotated[str | None, STORE] = None,
) -> None:
    """Write a run's figures in a form for other tools."""
    from calyx_orch.commands import export as command

    raise typer.Exit(command.write(run_, form=form, out=out, store=store))


@app.command(epilog=EXIT_CODES)
def history(
    metric: Annotated[
        str, typer.Option(metavar="METRIC", help="throughput, iops, p50, p99, p99.9, cv or cpu_per_io.")
    ] = "throughput",
    scope: Annotated[str, typer.Option(metavar="SCOPE", help="fleet, vm_host, storage or guest.")] = "vm_host",
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only this vm_host, storage or guest.")] = None,
    workload: Annotated[str | None, typer.Option(metavar="NAME", help="Only this workload.")] = None,
    engine: Annotated[str | None, typer.Option(metavar="NAME", help="Only this engine.")] = None,
    inventory: Annotated[str | None, typer.Option(metavar="FILE", help="Only runs of this inventory.")] = None,
    store: Annotated[str | None, STORE] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print it as JSON on standard output.")] = False,
) -> None:
    """Show a metric night by night, with incidents, suspects and recoveries."""
    from calyx_orch.commands import history as command

    given = {"name": name, "workload": workload, "engine": engine, "inventory": inventory}
    where = {key: value for key, value in given.items() if value is not None}
    raise typer.Exit(command.show(metric, scope=scope, where=where, store=store, as_json=json_))


@app.command(epilog=EXIT_CODES)
def baseline(
    run_: Annotated[str, typer.Argument(metavar="RUN", help="A run's id or the beginning of it, or `latest`.")],
    store: Annotated[str | None, STORE] = None,
) -> None:
    """Make a run what later runs of its inventory are held against (`run --against baseline`)."""
    from calyx_orch.commands import history as command

    raise typer.Exit(command.set_baseline(run_, store=store))


@app.command(epilog=EXIT_CODES)
def init(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("inventory.yaml"),
) -> None:
    """Write a first inventory with comments."""
    from calyx_orch.commands import init as command

    raise typer.Exit(command.write_first(path))


@app.command(epilog=EXIT_CODES)
def schema() -> None:
    """Print the JSON Schema of inventories."""
    from calyx_orch.commands import init as command

    raise typer.Exit(command.print_schema())


def main() -> None:
    """Run the command line; every error becomes one message and its exit code."""
    sys.exit(_guarded())


def _guarded() -> int:
    try:
        return app(standalone_mode=False) or 0
    except typer.Abort:
        return EXIT_INTERRUPTED
    except typer.TyperException as error:
        _say(error.format_message())
        return EXIT_CANNOT_START
    except CalyxError as error:
        _say(f"calyx-orch: {error}" if not isinstance(error, UsageError) else str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except SystemExit:  # typer's word for a reader of --help that left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FINE
    except Exception as error:
        if isinstance(error, OSError) and _is_of_help(error):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _say(f"calyx-orch: standard output did not take the text: {error}")
            return EXIT_FAULT
        _say(traceback.format_exc().rstrip("\n"))
        _say("calyx-orch: this is our fault; please report it with the lines above")
        return EXIT_FAULT


def _is_of_help(error: Exception) -> bool:
    """Whether it came up where --help and --version are printed: the only words that go to standard output unguarded."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return str(frames[-1].f_globals.get("__name__")).startswith(("typer.", "rich."))


def _say(text: str) -> None:
    """Write to stderr; half of an error may be a guest's words, so none of it reaches the terminal raw."""
    sys.stderr.write("\n".join(map(printable, text.split("\n"))) + "\n")


if __name__ == "__main__":
    main()
