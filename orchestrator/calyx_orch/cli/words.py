"""The words of the command line that several verbs share, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _each(written: list[str] | None) -> list[str] | None:
    """The names of an option that is repeated, or has several with commas between them."""
    return written and [name for one in written for name in one.split(",")]


LimitWord = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        callback=_each,
        help="Only these guests, groups, vm_hosts or storage (globs, ranges, a,b); repeat.",
    ),
]
WorkloadWord = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        callback=_each,
        help="Only these workloads (globs, a,b), or else the presets of these names; repeat.",
    ),
]
JobsWord = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Take the workloads and baselines from a fio job file instead of the inventory."),
]
AllowGrowthWord = Annotated[bool, typer.Option("--allow-growth", help="Allow more new bytes than is declared free.")]
OutWord = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The run folder to make (default: a new one below calyx-runs/).")
]
JsonWord = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON on standard output, all else on standard error.")
]
QuietWord = Annotated[bool, typer.Option("--quiet", help="No live progress.")]
RunWord = Annotated[
    str, typer.Argument(metavar="RUN", help="A run folder, a run's id or the beginning of it, or `latest`.")
]
ScopeWord = Annotated[str, typer.Option(metavar="SCOPE", help="fleet, vm_host, storage or guest.")]
RunsOfWord = Annotated[str | None, typer.Option(metavar="FILE", help="Only runs of this inventory.")]
StoreWord = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The store: sqlite:///FILE or postgresql://USER@HOST/DATABASE. Default: $CALYX_ORCH_STORE, else a file of yours.",
    ),
]
HtmlWord = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Draw a page with figures as well, and write it there.")
]
DashboardWord = Annotated[
    Path | None, typer.Option(metavar="FILE", help="With --html: a dashboard YAML instead of the packaged one.")
]
