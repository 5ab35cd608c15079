"""`calyx-orch clean`: remove what dead runs have left on guests, and say what it was."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calyx_orch import plan as planning
from calyx_orch import transport
from calyx_orch.errors import EXIT_FINE, EXIT_GUEST_FAILED
from calyx_orch.model import Cleaned, Guest, Inventory
from calyx_orch.report import cleaning, screen
from calyx_orch.runner import clean


@dataclass(frozen=True)
class CleanOptions:
    """What the command line says besides the guests."""

    limit: tuple[str, ...] = ()
    dry_run: bool = False
    agents: bool = False
    kept: bool = False
    as_json: bool = False


def show(inventory: Inventory, options: CleanOptions) -> int:
    """Clean the guests of an inventory and tell what was removed. Returns the exit code: 3 when some guest is not clean."""
    guests = planning.chosen_guests(inventory, options.limit)
    passphrases = transport.unlock(guest.connection for guest in guests)
    cleaned = asyncio.run(_clean(guests, options, passphrases))
    cleaning.show(cleaned, screen.console(stderr=options.as_json))
    if options.as_json:
        screen.deliver_json(cleaning.to_json(cleaned))
    return EXIT_FINE if all(one.is_clean for one in cleaned) else EXIT_GUEST_FAILED


async def _clean(guests: Sequence[Guest], options: CleanOptions, passphrases: Mapping[str, str]) -> tuple[Cleaned, ...]:
    async with transport.Pool(passphrases=passphrases) as pool:
        return await clean.clean(guests, pool=pool, dry_run=options.dry_run, agents=options.agents, kept=options.kept)
