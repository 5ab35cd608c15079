"""A program that a daemon starts, that has a time limit, and that never outlives the daemon."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from calyx_orch.errors import FolderError
from calyx_orch.schedule import child

STOP_WITHIN_S = 120.0  # a run that is interrupted stops and cleans its guests
TOO_LONG = 128 + signal.SIGINT


async def watched(words: Sequence[str], log: Path, *, environment: Mapping[str, str], most_s: float | None) -> int:
    """Run a program, its words in `log`; its exit code (negative: the signal that ended it), TOO_LONG after `most_s`.

    It gets SIGINT after `most_s` seconds, when this is cancelled, and from the kernel when this process dies; and SIGKILL when it has not
    ended STOP_WITHIN_S later. Raises FolderError when the log cannot be written; nothing was started then.
    """
    argv = (sys.executable, "-I", "-S", str(Path(child.__file__)), str(os.getpid()), *words)
    try:
        descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FolderError(f"cannot write the log {log}: {error.strerror or error}") from error
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env=environment,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    try:
        async with asyncio.timeout(most_s):
            return await process.wait()
    except TimeoutError:
        await _end(process)
        return TOO_LONG
    except asyncio.CancelledError:
        await _end(process)
        raise


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        async with asyncio.timeout(STOP_WITHIN_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
