"""`calyx-orch demo`: loopback guests behind real sshd, run by the very same code as any inventory."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rich.console import Console

from calyx_orch import inventory as inventories
from calyx_orch import workloads
from calyx_orch.commands.loopback import LoopbackFleet, demo_inventory
from calyx_orch.commands.run import RunOptions, run_inventory


def show(*, guests: int, out: Path | None, quiet: bool) -> int:
    """Start the guests, run, end them. Nothing is left but the run folder. Returns the exit code."""
    return asyncio.run(_show(guests, RunOptions(out=out, quiet=quiet)))


async def _show(guests: int, options: RunOptions) -> int:
    console = Console(highlight=False)
    async with LoopbackFleet(guests) as fleet:
        console.print(
            f"{guests} loopback guests are up, each behind its own {fleet.server_kind}", soft_wrap=True, markup=False
        )
        text = demo_inventory(fleet)
        inventory = inventories.parse(
            text, source="demo.yaml", base_dir=str(Path.cwd()), presets=workloads.read_presets()
        )
        return await run_inventory(inventory, options)
