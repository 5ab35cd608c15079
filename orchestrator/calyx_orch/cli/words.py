"""The words of the command line that several verbs share, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calyx_orch.model import HostKeyPolicy

BY_HAND = "Guests without an inventory"

InventoryWord = Annotated[
    str | None, typer.Argument(metavar="INVENTORY", help="A YAML file, a program that prints one, or - .")
]
GuestWord = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ADDRESS",
        rich_help_panel=BY_HAND,
        help="Instead of an inventory: address, user@address or user@address:port; repeat.",
    ),
]
TargetWord = Annotated[
    str | None,
    typer.Option(metavar="DIR", rich_help_panel=BY_HAND, help="With --guest: the directory to measure on each."),
]
KeyWord = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", rich_help_panel=BY_HAND, help="With --guest: a private key file; repeat."),
]
KnownHostsWord = Annotated[
    str | None,
    typer.Option(metavar="FILE", rich_help_panel=BY_HAND, help="With --guest: host keys, instead of your own file."),
]
HostKeyPolicyWord = Annotated[
    HostKeyPolicy | None,
    typer.Option(
        metavar="POLICY",
        rich_help_panel=BY_HAND,
        help="With --guest: strict (the default), or accept-new: record an unknown host key at first sight.",
    ),
]
SshConfigWord = Annotated[
    str | None,
    typer.Option(metavar="FILE", rich_help_panel=BY_HAND, help="With --guest: an OpenSSH client configuration."),
]
JumpWord = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", rich_help_panel=BY_HAND, help="With --guest: reach all through this machine."),
]
LimitWord = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Only these guests, groups, vm_hosts or storage (globs, ranges); repeat."),
]
WorkloadWord = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Only these workloads (globs), or else the preset of that name; repeat."),
]
JobsWord = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Take the workloads and baselines from a fio job file instead of the inventory."),
]
JsonWord = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON on standard output, all else on standard error.")
]
QuietWord = Annotated[bool, typer.Option("--quiet", help="No live progress.")]
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
