"""`calyx-orch schedule` as a person uses it, for tests: started on a store of its own, and waited for."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from web_server import WebServer

WITHIN_S = 100.0

Calyx = Callable[..., subprocess.Popen[str]]


@contextmanager
def schedule_verbs(base: Path, web: WebServer) -> Iterator[Calyx]:
    """Starts verbs of `calyx-orch schedule` in `base`; $HOOK and $PING are addresses of `web`. What still runs is ended."""
    environment = os.environ | {
        "CALYX_ORCH_STORE": f"sqlite:///{base / 'store.sqlite'}",
        "XDG_CACHE_HOME": str(base / "cache"),
        "HOOK": f"json://{web.place}/hook",
        "PING": f"http://{web.place}/ping",
        "COLUMNS": "220",
    }
    made: list[subprocess.Popen[str]] = []

    def start(*words: str | Path, **more: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "calyx_orch.cli", "schedule", *map(str, words)]
        made.append(
            subprocess.Popen(
                argv,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment | more,
                cwd=base,
            )
        )
        return made[-1]

    try:
        yield start
    finally:
        for process in made:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def said(process: subprocess.Popen[str], status: int = 0) -> str:
    """What a verb said until it ended with this exit code."""
    out, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == status, out
    return out


def each_second(base: Path, name: str) -> None:
    """Let a schedule be due each second, as no person may write it: a test would wait for a minute."""
    with sqlite3.connect(base / "store.sqlite") as store:
        change = "UPDATE schedule SET settings = json_set(settings, '$.cron', '* * * * * *') WHERE name = ?"
        assert store.execute(change, (name,)).rowcount == 1
    store.close()


def wait(until: Callable[[], Any]) -> Any:
    """Wait until there is something, and give it."""
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        if found := until():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")
