"""The application itself: what all verbs share, and the options of the program as a whole."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from calyx_orch import __version__


class Verbs(TyperGroup):
    """A group of verbs whose `--help` shows flags without a type: there is nothing to write behind `--quiet`."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb of that name."""
        verb = super().get_command(ctx, cmd_name)
        if verb is not None:
            _untyped(verb.get_params(ctx))
        return verb

    def get_params(self, ctx: Any) -> Any:
        """Its own options."""
        return _untyped(super().get_params(ctx))


def _untyped(parameters: list[Any]) -> list[Any]:
    for one in parameters:
        if getattr(one, "is_flag", False):
            one.metavar = ""
    return parameters


app = typer.Typer(
    name="calyx-orch",
    cls=Verbs,
    help="Benchmark the disks of many Linux guests at once, beside fio, and compare guests and VM hosts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

EXIT_CODES = "Exit codes: 0 fine, 1 a budget or baseline was missed, 2 cannot start, 3 a guest failed, 4 our fault, 130 interrupted."


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
