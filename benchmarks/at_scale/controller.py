"""One controller in a process of its own, measured by itself: CPU after its imports, and the memory that it held.

    controller.py command INVENTORY            connect to each guest and run one command
    controller.py flow INVENTORY RUN_FOLDER    a whole run, by the very code of `calyx-orch run`

Prints one JSON object. It is a program since a process's CPU and memory are of all that it ever did.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calyx_orch import runner, transport
from calyx_orch.commands.run import RunOptions, plan_of, read_file
from calyx_orch.model import Guest, Inventory
from calyx_orch.report.live import Progress, Silent
from calyx_orch.runner import probes
from calyx_orch.runner.session import Session
from calyx_orch.store import archive
from calyx_orch.transport.ssh import SshCarrier

COMMAND_WITHIN_S = 60.0
IN_ROUND = ("ready", "armed", "running", "reported")
__all__ = ["SshCarrier"]  # imported before the CPU is read: the import is no guest's


def cpu_s() -> float:
    """User and system time of this process and of its children that have ended."""
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in each)


def peak_kib() -> int:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def rss_kib() -> int:
    """The memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


async def command(inventory: Inventory) -> Mapping[str, Any]:
    """Connect to all guests and run one command on each, as the transport does both."""
    pool = transport.Pool()

    async def one(guest: Guest) -> bool:
        way = await transport.connect(guest.connection, pool=pool)
        try:
            done = await way.run(("/bin/true",), timeout_s=COMMAND_WITHIN_S)
        finally:
            await way.close()
        return done.status == 0

    async with pool:
        ended = await asyncio.gather(*(one(guest) for guest in inventory.guests), return_exceptions=True)
    failures = Counter(str(each)[:200] for each in ended if each is not True)
    return {"lost": sum(failures.values()), "why": dict(failures)}


async def flow(inventory: Inventory, folder_path: Path) -> Mapping[str, Any]:
    """A whole run, into a run folder, with all its steps but one: what the engine adds and whether caches lie.

    Guests that are one machine are asked that one after another, here for minutes; it is two messages a guest.
    """
    probes.ask_all = _ask_nobody
    plan = plan_of(inventory, RunOptions(seed=1))
    folder = archive.RunFolder.create(folder_path.parent, plan, path=folder_path)
    watch = _Watch()
    try:
        ended = await runner.run(plan, folder=folder, live=watch, interrupted=asyncio.Event())
    finally:
        folder.close()
    lost = [outcome for outcome in ended.outcomes if outcome.state != "measured"]
    entries = archive.journal(folder_path)
    return {
        "status": ended.status,
        "lost": len(lost),
        "why": dict(Counter(f"{outcome.step}: {_alike(outcome.reason)}" for outcome in lost)),
        "uploads": sum(bool(entry["uploaded"]) for entry in entries if entry["event"] == "deployed"),
        "held_kib": watch.held_kib,
    }


class _Watch(Silent):
    """Shows nothing, and notes the most memory that is held while guests run."""

    held_kib = 0

    def update(self, progress: Progress) -> None:
        """A guest has come as far as its I/O, all are open: what is held now counts."""
        if any(guest.state in IN_ROUND for guest in progress.guests):
            self.held_kib = max(self.held_kib, rss_kib())


def _alike(reason: str) -> str:
    """A reason without its figures, so that a thousand guests with the same trouble are one line."""
    return re.sub(r"[0-9]+", "N", reason)[:200]


async def _ask_nobody(sessions: Sequence[Session]) -> tuple[str, ...]:
    return ()


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for, and print what it took."""
    what, path = arguments[0], Path(arguments[1])
    began_s, wall_s, base_kib = cpu_s(), time.monotonic(), rss_kib()
    inventory = read_file(str(path))
    work = command(inventory) if what == "command" else flow(inventory, Path(arguments[2]))
    found = asyncio.run(work)
    took = {"cpu_s": cpu_s() - began_s, "wall_s": time.monotonic() - wall_s}
    print(json.dumps({**found, **took, "guests": len(inventory.guests), "base_kib": base_kib, "peak_kib": peak_kib()}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
