"""In a run that is continued: waiting until the agents of the controller that died are gone.

Such an agent ends with its channel, at the latest when its lease has run out. Until then it holds the directory, and its files the
space; two agents at once on one target would measure each other.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable

from calyx_orch.errors import AgentError, GuestError

DEAD_GRACE_S = 20.0  # from the end of its lease until an agent has ended its fio and removed its files
ASKED_EVERY_S = 0.5


async def past_the_dead(
    guest: str,
    act: Callable[[], Awaitable[None]],
    *,
    run_id: str,
    until_s: float,
    note: Callable[[str], None],
    state: Callable[[str, str], None],
) -> None:
    """Do `act`, again and again while it fails for what a former agent holds, until `until_s` of the monotonic clock at the latest.

    Raises GuestError as `act` does: for what another run holds at once.
    """
    told = False
    while True:
        try:
            return await act()
        except GuestError as error:
            what = _held(error, run_id)
            left_s = until_s - time.monotonic()
            if not what or left_s <= 0:
                raise
            if not told:
                told = True
                note(
                    f"{guest}: waiting for the agent of the controller that died, which {what} (it ends by itself, within "
                    f"{left_s:.0f} s)"
                )
            state(guest, "waiting for its former agent")
        await asyncio.sleep(ASKED_EVERY_S)


def _held(error: GuestError, run_id: str) -> str:
    """What a former agent of this run holds, as far as a failure tells; empty: nothing."""
    if isinstance(error, AgentError) and error.errno == errno.EBUSY and run_id in str(error):
        return "still uses the directory"
    if "no space left" in str(error) or "no inodes left" in str(error):
        return "may still hold the space"
    return ""
