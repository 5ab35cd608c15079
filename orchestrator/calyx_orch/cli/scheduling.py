"""The verbs that run inventories by themselves: those below `schedule`, and `calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from calyx_orch.cli.app import EXIT_CODES, Verbs
from calyx_orch.cli.app import app as root
from calyx_orch.cli.words import AllowGrowthWord, JsonWord, RunsOfWord, ScopeWord, StoreWord
from calyx_orch.errors import UsageError

app = typer.Typer(
    name="schedule",
    cls=Verbs,
    help="Run inventories by themselves, night by night, and say when something changed.",
    no_args_is_help=True,
)

root.add_typer(app)

NameWord = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.")]
WHEN = "When it runs"
AFTER = "What comes after each run"


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is to be called.")],
    inventory: Annotated[
        str, typer.Argument(metavar="INVENTORY", help="A YAML file, or a program that prints one; read anew each time.")
    ],
    cron: Annotated[
        str,
        typer.Option(
            metavar="CRON", rich_help_panel=WHEN, help="Minute, hour, day, month, weekday, such as '30 2 * * *'."
        ),
    ],
    timezone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE", rich_help_panel=WHEN, help="Such as Europe/Berlin. Default: that of this machine."
        ),
    ] = None,
    max_duration: Annotated[
        str | None,
        typer.Option(metavar="TIME", rich_help_panel=WHEN, help="A run that takes longer is stopped, such as 2h."),
    ] = None,
    retry: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, max=10, rich_help_panel=WHEN, help="How often a run that failed is tried again."
        ),
    ] = 0,
    overlap: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            rich_help_panel=WHEN,
            help="While another run burdens the same places: skip, or queue for an hour (or --max-duration).",
        ),
    ] = "skip",
    catch_up: Annotated[
        str,
        typer.Option(
            "--catch-up",
            metavar="HOW",
            rich_help_panel=WHEN,
            help="Times that were missed: none, or once for the newest.",
        ),
    ] = "none",
    interrupted: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            rich_help_panel=WHEN,
            help="A run whose daemon died: mark it, resume it where its folder is, or retry it.",
        ),
    ] = "mark",
    runs: Annotated[Path, typer.Option(metavar="DIR", help="Where run folders are made.")] = Path("calyx-runs"),
    allow_growth: AllowGrowthWord = False,
    keep: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            rich_help_panel=AFTER,
            help="How long nights are kept, such as '90d raw, 2y summaries'. Default: for good.",
        ),
    ] = "",
    notify: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            rich_help_panel=AFTER,
            help="Where the address for messages is, in apprise's form: env:NAME or file:PATH.",
        ),
    ] = "",
    quiet: Annotated[
        bool, typer.Option("--quiet", rich_help_panel=AFTER, help="No message of a night on which nothing changed.")
    ] = False,
    ping: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            rich_help_panel=AFTER,
            help="Where the address is that is asked for once after each run that finished: env:NAME or file:PATH.",
        ),
    ] = "",
    link: Annotated[
        str,
        typer.Option(
            metavar="URL",
            rich_help_panel=AFTER,
            help="Where the directory of run folders is served, for the link in messages.",
        ),
    ] = "",
    store: StoreWord = None,
) -> None:
    """Add a schedule, and show what it will write in a year."""
    from calyx_orch import units
    from calyx_orch.commands import schedule as command
    from calyx_orch.schedule import times
    from calyx_orch.schedule.deciding import Settings

    for option, value, known in (
        ("--overlap", overlap, ("skip", "queue")),
        ("--catch-up", catch_up, ("none", "once")),
        ("--interrupted", interrupted, ("mark", "resume", "retry")),
    ):
        if value not in known:
            raise UsageError(f"{option} {value}: choose {' or '.join(known)}")
    try:
        most_s = None if max_duration is None else units.parse_duration(max_duration)
    except ValueError as error:
        raise UsageError(f"--max-duration {max_duration}: {error}") from error
    if most_s == 0:
        raise UsageError(f"--max-duration {max_duration}: no run ends before it has begun; leave it out for no limit")
    words: dict[str, Any] = {"overlap": overlap, "catch_up": catch_up, "interrupted": interrupted}
    settings = Settings(
        inventory, cron, timezone or times.zone_of_machine(), str(runs), max_duration_s=most_s, retry=retry, keep=keep,
        notify=notify, quiet=quiet, ping=ping, link=link, allow_growth=allow_growth, **words,
    )  # fmt: skip
    raise typer.Exit(command.add(name, settings, store=store))


@app.command("list")
def list_(
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit code 1 when the last firing of one was not finished, or one is overdue."),
    ] = False,
    store: StoreWord = None,
    json_: JsonWord = False,
) -> None:
    """List the schedules: when each is due, how the last firing ended, what is open."""
    from calyx_orch.commands import schedule as command

    raise typer.Exit(command.list_all(store=store, as_json=json_, check=check))


@app.command("next")
def next_(
    name: NameWord,
    count: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="How many.")] = 5,
    store: StoreWord = None,
) -> None:
    """Show when a schedule is due next."""
    from calyx_orch.commands import schedule as command

    raise typer.Exit(command.show_next(name, count=count, store=store))


@app.command()
def history(
    name: NameWord,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="How many, the newest first.")] = 30,
    store: StoreWord = None,
    json_: JsonWord = False,
) -> None:
    """Show what became of each due time, who was told, and the incidents."""
    from calyx_orch.commands import schedule as command

    raise typer.Exit(command.history(name, limit=limit, store=store, as_json=json_))


@app.command()
def report(
    name: NameWord,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page to write (default: NAME.html where its runs are).")
    ] = None,
    dashboard: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A dashboard YAML instead of the packaged one.")
    ] = None,
    store: StoreWord = None,
) -> None:
    """Draw the page of a schedule: coverage of nights, trends with incidents, last night's table. Each night draws it, too."""
    from calyx_orch.commands import schedule as command

    raise typer.Exit(command.report(name, out=out, dashboard=dashboard, store=store))


@app.command()
def pause(name: NameWord, store: StoreWord = None) -> None:
    """Hold a schedule: times that pass are neither run nor missed."""
    from calyx_orch.commands import schedule as command

    raise typer.Exit(command.pause(name, paused=True, store=store))


@app.command()
def resume(name: NameWord, store: StoreWord = None) -> None:
    """Let a schedule go on."""
    from calyx_orch.commands import schedule as command

    raise typer.Exit(command.pause(name, paused=False, store=store))


@app.command()
def remove(name: NameWord, store: StoreWord = None) -> None:
    """Take a schedule away, with its record of firings; its runs stay."""
    from calyx_orch.commands import schedule as command

    raise typer.Exit(command.remove(name, store=store))


@app.command("run-now")
def run_now(name: NameWord, store: StoreWord = None) -> None:
    """Fire a schedule here and now, as the daemon would, and wait for its end."""
    from calyx_orch.commands import schedule as command

    raise typer.Exit(command.run_now(name, store=store))


@app.command()
def daemon(
    once: Annotated[bool, typer.Option("--once", help="Do what is due now, wait for its end, and leave.")] = False,
    store: StoreWord = None,
) -> None:
    """Fire schedules when they are due; any number of daemons may share a store."""
    from calyx_orch.commands import schedule as command

    raise typer.Exit(command.daemon(store=store, once=once))


@app.command()
def install(
    systemd: Annotated[
        bool,
        typer.Option("--systemd", help="As units of systemd: a hardened service, and a timer that starts it again."),
    ] = False,
    system: Annotated[
        bool, typer.Option("--system", help="In the system's manager instead of your own; needs root.")
    ] = False,
    print_: Annotated[bool, typer.Option("--print", help="Print the units and change nothing.")] = False,
    environment_file: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="A file of yours with CALYX_ORCH_STORE and the secrets that --notify and --ping name."
        ),
    ] = "",
    store: StoreWord = None,
) -> None:
    """Let systemd run the daemon."""
    from calyx_orch.commands import installing

    if not systemd:
        raise UsageError("say how: --systemd")
    raise typer.Exit(
        installing.install(system=system, print_only=print_, store=store, environment_file=environment_file)
    )


@app.command(hidden=True)
def fire(
    name: NameWord,
    due_s: Annotated[int, typer.Argument(metavar="DUE", help="The due time of a firing that is claimed.")],
    store: StoreWord = None,
) -> None:
    """Run a firing that a daemon has claimed."""
    from calyx_orch.commands import schedule as command

    raise typer.Exit(command.fire(name, due_s, store=store))


@root.command(epilog=EXIT_CODES)
def calibrate(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN...", help="Runs of the store that are nights. Default: all of an inventory."),
    ] = None,
    inventory: RunsOfWord = None,
    scope: ScopeWord = "vm_host",
    engine: Annotated[str, typer.Option(metavar="NAME", help="Of this engine.")] = "calyx",
    store: StoreWord = None,
    json_: JsonWord = False,
) -> None:
    """Estimate from stored nights how often incidents are false on this fleet, and which change would be seen."""
    from calyx_orch.commands import calibrate as command

    raise typer.Exit(
        command.show(tuple(runs or ()), inventory=inventory, scope=scope, engine=engine, store=store, as_json=json_)
    )
