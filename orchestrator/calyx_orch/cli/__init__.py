"""The command line: a table of verbs, each of which calls one function in `commands`; and how every end becomes an exit code."""

from __future__ import annotations

import os
import sys
import traceback

import typer

from calyx_orch.cli import measuring, reading, scheduling
from calyx_orch.cli.app import app
from calyx_orch.errors import EXIT_CANNOT_START, EXIT_FAULT, EXIT_FINE, EXIT_INTERRUPTED, CalyxError, UsageError
from calyx_orch.report.wording import printable

__all__ = ["app", "main", "measuring", "reading", "scheduling"]


def main() -> None:
    """Run the command line; every error becomes one message and its exit code."""
    _forget_odd_sizes()
    sys.exit(_guarded())


def _forget_odd_sizes() -> None:
    """What draws on the terminal takes any digits for a number, also a superscript two."""
    for name in ("COLUMNS", "LINES"):
        told = os.environ.get(name, "")
        if told.isdigit() and not told.isascii():
            del os.environ[name]


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
    """Write to stderr; half of an error may be a guest's words, so none of it reaches the terminal raw.

    A log that takes nothing, as on a full disk, changes no exit code.
    """
    from calyx_orch.report.screen import Screen

    out = Screen(sys.stderr)
    out.write("\n".join(map(printable, text.split("\n"))) + "\n")
    out.flush()
