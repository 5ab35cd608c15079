"""`calyx-orch demo`: loopback guests behind real sshd, run by the very same code as any inventory."""

from __future__ import annotations

import asyncio
from pathlib import Path

from calyx_orch import inventory as inventories
from calyx_orch import workloads
from calyx_orch.commands.loopback import LoopbackFleet, demo_inventory
from calyx_orch.commands.run import RunOptions, run_inventory
from calyx_orch.model import Inventory
from calyx_orch.report import screen, wording


def show(*, guests: int, out: Path | None, quiet: bool) -> int:
    """Start the guests, run, end them. Nothing is left but the run folder. Returns the exit code."""
    return asyncio.run(_show(guests, RunOptions(out=out, quiet=quiet)))


def _introduction(inventory: Inventory, server_kind: str) -> str:
    """Who is there, and what the load modes of the tables will mean for them."""
    guests, places = len(inventory.guests), len(inventory.vm_hosts)
    up = "1 loopback guest is up, behind" if guests == 1 else f"{guests} loopback guests are up, each behind"
    text = f"{up} its own {server_kind}"
    if guests == places:
        return text
    at_once = "one guest" if places == 1 else f"one guest of each vm_host, {places} at once"
    return f"{text}, on {wording.count_of(places, 'vm_host')}; `together` is all of them, `alone` {at_once}"


async def _show(guests: int, options: RunOptions) -> int:
    console = screen.console()
    async with LoopbackFleet(guests) as fleet:
        text = demo_inventory(fleet)
        inventory = inventories.parse(
            text, source="demo.yaml", base_dir=str(Path.cwd()), presets=workloads.read_presets()
        )
        console.print(_introduction(inventory, fleet.server_kind), soft_wrap=True, markup=False)
        return await run_inventory(inventory, options)
