"""A daemon whose runs are a line of shell: `firing_daemon.py STORE FOLDER`.

Each writes who it is to FOLDER/lines, and waits while FOLDER/block is there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from calyx_orch.inventory import from_guests
from calyx_orch.schedule.copying import Copied
from calyx_orch.schedule.daemon import Daemon
from calyx_orch.schedule.deciding import Firing, Schedule
from calyx_orch.schedule.watching import watched
from calyx_orch.store import database
from calyx_orch.store.schedules import Schedules
from calyx_orch.workloads import read_presets

LEASE_S = 3.0
LINE = 'echo "$1 $2 $3 $$" >>"$4/lines"; while [ -e "$4/block" ]; do sleep 0.05; done'


async def main(url: str, folder: Path) -> None:
    """Work until SIGTERM."""
    inventory = from_guests(("vm1",), target="/d", presets=read_presets(), workloads=("quick",))

    async def fire(schedule: Schedule, firing: Firing) -> int:
        words = ("/bin/sh", "-c", LINE, "sh", schedule.name, str(firing.due_s), str(firing.attempt), str(folder))
        return await watched(words, folder / "log", environment=os.environ, most_s=None)

    async def tell(_: Firing) -> tuple[str, dict[str, Any]]:
        return "", {}

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    store = database.open_store(url)
    await Daemon(
        Schedules(store), fire, tell, lambda line: sys.stderr.write(f"{line}\n"),
        copy=lambda path: Copied("text", (f"guest:{path}",), inventory), tick_s=0.25, lease_s=LEASE_S,
    ).run(stop)  # fmt: skip
    store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
