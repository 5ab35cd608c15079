"""The verbs that read what was measured: report, compare, the store and its history; and the first inventory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calyx_orch.cli.app import EXIT_CODES, Verbs, app
from calyx_orch.cli.words import DashboardWord, HtmlWord, JsonWord, RunsOfWord, RunWord, ScopeWord, StoreWord
from calyx_orch.errors import UsageError


@app.command(epilog=EXIT_CODES)
def report(
    run_: RunWord,
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
    store: StoreWord = None,
) -> None:
    """Draw the report page of a run again, or print its result as JSON."""
    from calyx_orch.commands import report as command

    if json_ and (dashboard is not None or out is not None):
        raise UsageError("--json draws no page: leave out --dashboard and --out, or --json")
    raise typer.Exit(
        command.print_json(run_, store=store)
        if json_
        else command.draw(run_, dashboard=dashboard, out=out, store=store)
    )


@app.command(epilog=EXIT_CODES)
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Run folders, or runs of the store by id or `latest`; one, with --by."),
    ],
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
    html: HtmlWord = None,
    dashboard: DashboardWord = None,
    store: StoreWord = None,
    json_: JsonWord = False,
) -> None:
    """Compare runs, or the parts of one run: ratios with intervals, tests and verdicts."""
    from calyx_orch.commands import compare as command

    _with_page(html, dashboard)
    raise typer.Exit(
        command.show(runs, by=by, reference=reference, as_json=json_, html=html, dashboard=dashboard, store=store)
    )


def _with_page(html: Path | None, dashboard: Path | None) -> None:
    if dashboard is not None and html is None:
        raise UsageError("--dashboard lists the figures of a page: name the page with --html FILE")


def _place(scope: str, name: str | None, **named: str | None) -> tuple[str, str | None]:
    """Scope and name of the one place that was named, by an option of its own or by the two of them."""
    found = [(place, one) for place, one in named.items() if one is not None]
    if len(found) + (name is not None) > 1:
        raise UsageError("name one place: --guest NAME, --vm-host NAME, or --scope SCOPE --name NAME")
    return found[0] if found else (scope, name)


@app.command(epilog=EXIT_CODES)
def index(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run folders, or directories that hold some.")],
    store: StoreWord = None,
) -> None:
    """Put run folders into the store, in place of what it had of them."""
    from calyx_orch.commands import stored as command

    raise typer.Exit(command.index(tuple(paths), store=store))


@app.command("list", epilog=EXIT_CODES)
def list_(
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="How many, the newest first.")] = 30,
    store: StoreWord = None,
    json_: JsonWord = False,
) -> None:
    """List the runs in the store, and those beside them that are not in it."""
    from calyx_orch.commands import stored as command

    raise typer.Exit(command.list_runs(store=store, limit=limit, as_json=json_))


@app.command(epilog=EXIT_CODES)
def show(
    run_: RunWord,
    scope: Annotated[str, typer.Option(metavar="SCOPE", help="fleet, vm_host, storage, guest or all.")] = "vm_host",
    store: StoreWord = None,
    json_: JsonWord = False,
) -> None:
    """Show the figures that the store keeps of a run."""
    from calyx_orch.commands import stored as command

    raise typer.Exit(command.show(run_, store=store, scope=scope, as_json=json_))


@app.command(epilog=EXIT_CODES)
def export(
    run_: RunWord,
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="csv, parquet, json, openmetrics or junit.")
    ] = "csv",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to. Default: standard output.")] = None,
    store: StoreWord = None,
) -> None:
    """Write a run's figures in a form for other tools."""
    from calyx_orch.commands import export as command

    raise typer.Exit(command.write(run_, form=form, out=out, store=store))


@app.command(epilog=EXIT_CODES)
def history(
    metric: Annotated[
        str, typer.Option(metavar="METRIC", help="throughput, iops, p50, p99, p99.9, cv or cpu_per_io.")
    ] = "throughput",
    scope: ScopeWord = "vm_host",
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only this vm_host, storage or guest.")] = None,
    guest: Annotated[str | None, typer.Option(metavar="NAME", help="The same as --scope guest --name NAME.")] = None,
    vm_host: Annotated[
        str | None,
        typer.Option("--vm-host", "--vm_host", metavar="NAME", help="The same as --scope vm_host --name NAME."),
    ] = None,
    workload: Annotated[str | None, typer.Option(metavar="NAME", help="Only this workload.")] = None,
    engine: Annotated[str | None, typer.Option(metavar="NAME", help="Only this engine.")] = None,
    inventory: RunsOfWord = None,
    html: HtmlWord = None,
    dashboard: DashboardWord = None,
    store: StoreWord = None,
    json_: JsonWord = False,
) -> None:
    """Show a metric night by night, with incidents, suspects and recoveries."""
    from calyx_orch.commands import history as command

    scope, name = _place(scope, name, guest=guest, vm_host=vm_host)
    given = {"name": name, "workload": workload, "engine": engine}
    where = {key: value for key, value in given.items() if value is not None}
    _with_page(html, dashboard)
    raise typer.Exit(
        command.show(
            metric,
            scope=scope,
            where=where,
            inventory=inventory,
            store=store,
            as_json=json_,
            html=html,
            dashboard=dashboard,
        )
    )


baseline = typer.Typer(
    name="baseline",
    cls=Verbs,
    help="What later runs of an inventory are held against (`run --against baseline`).",
    no_args_is_help=True,
)
app.add_typer(baseline)


@baseline.command("set")
def baseline_set(run_: RunWord, store: StoreWord = None) -> None:
    """Make a run the baseline of its inventory, in place of another."""
    from calyx_orch.commands import baseline as command

    raise typer.Exit(command.put(run_, store=store))


@baseline.command("show")
def baseline_show(
    inventory: Annotated[
        str | None,
        typer.Argument(metavar="INVENTORY", help="Only that of this inventory: its file, or as `list` calls it."),
    ] = None,
    store: StoreWord = None,
    json_: JsonWord = False,
) -> None:
    """Show which run is the baseline of which inventory."""
    from calyx_orch.commands import baseline as command

    raise typer.Exit(command.show(inventory, store=store, as_json=json_))


@baseline.command("clear")
def baseline_clear(
    inventory: Annotated[str, typer.Argument(metavar="INVENTORY", help="Its file, or as `baseline show` calls it.")],
    store: StoreWord = None,
) -> None:
    """Let an inventory have no baseline; its runs stay."""
    from calyx_orch.commands import baseline as command

    raise typer.Exit(command.clear(inventory, store=store))


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
