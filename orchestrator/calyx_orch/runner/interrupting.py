"""Work that the user may end: it is waited for, or ended when the bell rings."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

LEAVE_WITHIN_S = 2.0  # until what is ended has ended, when whoever waits for it is cancelled

_T = TypeVar("_T")


class RunInterrupted(Exception):
    """The user wants to end; whatever was measured is kept."""


async def unless(bell: asyncio.Event, work: Coroutine[Any, Any, _T]) -> _T:
    """What `work` gives. Raises RunInterrupted when the bell rings before or meanwhile; then, or when this is cancelled, it is ended.

    What the work raises comes first.
    """
    task, ringing = asyncio.create_task(work), asyncio.create_task(bell.wait())
    try:
        await asyncio.wait({task, ringing}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise RunInterrupted
        done = task.result()
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task}, timeout=LEAVE_WITHIN_S)
        if task.done() and not task.cancelled():
            task.exception()  # heard
        raise
    finally:
        ringing.cancel()
    if bell.is_set():
        raise RunInterrupted
    return done
