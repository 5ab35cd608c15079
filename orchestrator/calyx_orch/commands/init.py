"""`calyx-orch init`: write a first inventory with comments; `calyx-orch schema`: print the schema of inventories."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

from calyx_orch import inventory as inventories
from calyx_orch.errors import EXIT_FINE, UsageError
from calyx_orch.report import screen


def write_first(path: Path) -> int:
    """Write the first inventory to `path`, which must not exist. Returns the exit code."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UsageError(f"{path} exists and is left as it is: name another file") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(inventories.first_inventory())
    console = screen.console()
    then = f"calyx-orch run {shlex.quote(str(path))} --dry-run"
    screen.line(f"wrote {path}: name your guests in it, then: {then}", to=console)
    return EXIT_FINE


def print_schema() -> int:
    """Print the JSON Schema of an inventory. Returns the exit code."""
    screen.deliver(json.dumps(inventories.schema(), indent=2) + "\n", "the schema")
    return EXIT_FINE
