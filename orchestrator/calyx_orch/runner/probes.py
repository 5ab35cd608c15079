"""What a guest's figures are worth, asked once after its layout: the engine's own overhead, caches below, and flushes.

An agent that does not know these questions is not asked again, and nothing is said of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from calyx_orch.errors import AgentError
from calyx_orch.runner import border
from calyx_orch.runner.session import Session

FLOOR_WITHIN_S = 15.0
TRUTH_WITHIN_S = 60.0


async def ask_all(sessions: Sequence[Session]) -> tuple[str, ...]:
    """Ask every guest; those of one domain, or one machine, one after another. Returns sentences about what went wrong."""
    queues: dict[object, list[Session]] = {}
    for session in sessions:
        queues.setdefault(session.facts.get("boot_id") or session.guest.domain, []).append(session)
    merged = _by_domain(list(queues.values()))
    told = await asyncio.gather(*(_one_by_one(queue) for queue in merged))
    return tuple(sentence for some in told for sentence in some)


def _by_domain(queues: list[list[Session]]) -> list[list[Session]]:
    """Machines whose guests lie on one domain share a queue, too."""
    merged: dict[str, list[Session]] = {}
    for queue in queues:
        merged.setdefault(queue[0].guest.domain, []).extend(queue)
    return list(merged.values())


async def _one_by_one(sessions: Sequence[Session]) -> list[str]:
    told = []
    for session in sessions:
        told += await _ask(session)
    return told


async def _ask(session: Session) -> list[str]:
    """Put `floor` and `truth` among the facts of a guest."""
    told = []
    facts: dict[str, Any] = {}
    try:
        arrival = await session.ask("floor", answer="floor", timeout_s=FLOOR_WITHIN_S)
        facts["floor"] = border.checked(arrival.message, arrival.message["type"])
        facts["truth"] = {}
        for target, files in session.files.items():
            arrival = await session.ask("truth", (("path", files[0]),), answer="truth", timeout_s=TRUTH_WITHIN_S)
            facts["truth"][target] = border.checked(arrival.message, arrival.message["type"])
    except AgentError as error:
        if session.is_open and "unknown" not in str(error):  # a guest that is gone is found out by the next step
            told.append(f"{session.guest.name}: the probe of {error.step or 'the engine'} gave nothing: {error}")
    session.facts = {**session.facts, **facts}
    return told
