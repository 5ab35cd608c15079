"""The verbs that go to guests or disks: run, check, clean, bench, demo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from calyx_orch.cli.app import EXIT_CODES, app
from calyx_orch.cli.guests import Guests, on_guests, spelling
from calyx_orch.cli.words import (
    AllowGrowthWord,
    JobsWord,
    JsonWord,
    LimitWord,
    OutWord,
    QuietWord,
    StoreWord,
    WorkloadWord,
)
from calyx_orch.errors import UsageError

LIMITS = "What the run is held to"


@app.command(epilog=EXIT_CODES)
@on_guests
def run(
    guests: Guests,
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
    allow_growth: AllowGrowthWord = False,
    out: OutWord = None,
    json_: JsonWord = False,
    recalibrate: Annotated[
        bool,
        typer.Option("--recalibrate", help="Try the set-ups of `setup: auto` again instead of taking what is kept."),
    ] = False,
    quiet: QuietWord = False,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Go on with this run (its folder, or its id), whose controller ended; INVENTORY then only says how guests are reached.",
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
            help="A run, by its folder or id, `latest`, or `baseline`: exit 1 when surely worse than that by more than allowed.",
        ),
    ] = None,
    max_regression: Annotated[
        str, typer.Option(metavar="PERCENT", rich_help_panel=LIMITS, help="With --against: how much worse is allowed.")
    ] = "5%",
    junit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=LIMITS, help="Write guests and limits as a JUnit file."),
    ] = None,
    store: StoreWord = None,
) -> None:
    """Run an inventory: deploy, start all guests together, measure with calyx and fio, compare, report."""
    from calyx_orch.commands import run as command

    options = command.RunOptions(
        limit=tuple(limit or ()), workloads=tuple(workload or ()), repetitions=repetitions, dry_run=dry_run, out=out,
        as_json=json_, allow_growth=allow_growth, seed=seed, quiet=quiet, jobs=jobs, recalibrate=recalibrate,
        limits=_limits(budget, against, max_regression, junit, store),
    )  # fmt: skip
    if resume is not None:
        others = {
            **guests.by_hand, "limit": limit, "workload": workload, "jobs": jobs, "repetitions": repetitions, "seed": seed,
            "out": out, "recalibrate": recalibrate, "dry_run": dry_run,
        }  # fmt: skip
        _refuse_another_plan(others)
        raise typer.Exit(_resume(resume, guests.inventory, options))
    raise typer.Exit(command.run_named(guests.read(workload or ()), options))


def _limits(
    budget: list[str] | None, against: str | None, max_regression: str, junit: Path | None, store: str | None
) -> Any:
    """What the run is held to. Raises UsageError for a percentage that is none."""
    from calyx_orch import units
    from calyx_orch.commands import judging

    try:
        allowed = units.parse_percent(max_regression, example="5%", most=None)  # a latency may more than double
    except ValueError as error:
        raise UsageError(f"--max-regression {max_regression}: {error}") from error
    return judging.Limits(tuple(budget or ()), against, allowed, junit, store, index=True)


def _refuse_another_plan(others: Mapping[str, Any]) -> None:
    """Raise UsageError for every option that was said of these: none of them goes with --resume."""
    said = [
        spelling(name) for name, value in others.items() if value is not None and value is not False and value != []
    ]
    if said:
        raise UsageError(
            f"leave out {', '.join(said)}: --resume goes on with the plan of the run, and its guests are reached as INVENTORY says, or "
            "its own copy; only --json, --quiet, --allow-growth and what comes after a run (--budget, --against, --max-regression, "
            "--junit, --store) go with it"
        )


def _resume(run: str, inventory: str | None, options: Any) -> int:
    from calyx_orch.commands import resume as command

    return command.resume_named(run, inventory, options)


@app.command(epilog=EXIT_CODES)
@on_guests
def check(
    guests: Guests,
    limit: LimitWord = None,
    workload: WorkloadWord = None,
    jobs: JobsWord = None,
    json_: JsonWord = False,
    quiet: QuietWord = False,
) -> None:
    """Test on all guests what a run needs, from reach to other load, and change nothing there."""
    from calyx_orch.commands import check as command
    from calyx_orch.commands.run import RunOptions

    options = RunOptions(
        limit=tuple(limit or ()), workloads=tuple(workload or ()), jobs=jobs, as_json=json_, quiet=quiet
    )
    raise typer.Exit(command.show(guests.read(workload or ()), options))


@app.command(epilog=EXIT_CODES)
@on_guests
def clean(
    guests: Guests,
    limit: LimitWord = None,
    agents: Annotated[
        bool, typer.Option("--agents", help="Remove agents of other versions of calyx-orch from the guests, too.")
    ] = False,
    kept: Annotated[
        bool, typer.Option("--kept", help="Remove files that are kept for later runs (keep_files), too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed; touch nothing.")] = False,
    json_: JsonWord = False,
) -> None:
    """Remove what runs have left on guests whose controller or agent died; what is in use or kept for later runs stays."""
    from calyx_orch.commands import clean as command

    options = command.CleanOptions(limit=tuple(limit or ()), dry_run=dry_run, agents=agents, kept=kept, as_json=json_)
    raise typer.Exit(command.show(guests.read(), options))


def _directory(word: str) -> Path:
    """A variable of a shell that is not set is no directory; an empty path would be the one that the shell is in."""
    if not word:
        raise UsageError("calyx-orch bench: TARGET is empty: name a directory on the disk that is to be measured")
    return Path(word)


@app.command(epilog=EXIT_CODES)
def bench(
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="A directory on the disk to measure.", parser=_directory)
    ],
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
    json_: JsonWord = False,
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
    out: OutWord = None,
    quiet: QuietWord = False,
) -> None:
    """Show it all on this machine: loopback guests behind real sshd, measured by the very same code."""
    from calyx_orch.commands import demo as command

    raise typer.Exit(command.show(guests=guests, out=out, quiet=quiet))
