"""`calyx-orch check`: whether every guest is ready for a run, as one table and an exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from calyx_orch import transport
from calyx_orch.commands import run as running
from calyx_orch.errors import EXIT_CANNOT_START, EXIT_FINE, EXIT_GUEST_FAILED
from calyx_orch.model import Inventory, Plan, Readiness
from calyx_orch.report import readiness, screen
from calyx_orch.report.aside import Aside
from calyx_orch.report.live import PlainLive, Silent
from calyx_orch.runner import check


def show(inventory: Inventory, options: running.RunOptions) -> int:
    """Look at the guests of an inventory and tell what was found. Returns the exit code.

    0 when a run would measure every guest, 3 when some guest keeps out, 2 when the plan itself would be refused.
    """
    plan = running.plan_of(inventory, options)
    passphrases = transport.unlock(guest.connection for guest in plan.inventory.guests)
    console = screen.console(stderr=options.as_json)
    live = Aside(Silent() if options.quiet else PlainLive(console))
    try:
        found, notes = asyncio.run(_look(plan, passphrases, live.phase))
    finally:
        live.close(within_s=None)
    refusal = running.growth_refusal(plan)
    told = (*plan.notes, *notes)
    readiness.show(found, told, console, refusal=refusal)
    if options.as_json:
        screen.deliver_json(readiness.to_json(found, (*told, *((refusal,) if refusal else ()))))
    if not all(one.is_ready for one in found):
        return EXIT_GUEST_FAILED
    return EXIT_CANNOT_START if refusal else EXIT_FINE


async def _look(
    plan: Plan, passphrases: Mapping[str, str], phase: Callable[[str], None]
) -> tuple[tuple[Readiness, ...], tuple[str, ...]]:
    async with transport.Pool(passphrases=passphrases) as pool:
        return await check.check(plan, pool=pool, phase=phase)
