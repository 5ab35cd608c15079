"""Remove what runs have left on guests whose controller or agent died: the agent does it, by the records in what was made.

What a living agent holds stays, whoever's it is. The agent is borrowed, so a clean leaves nothing of its own.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calyx_agent import executables as shipped
from calyx_orch import deploy, transport
from calyx_orch.engines import clipped
from calyx_orch.errors import AgentError, CalyxError
from calyx_orch.model import Cleaned, Freed, Guest, Leftover, Untouched
from calyx_orch.runner import border, old_agents
from calyx_orch.runner.session import Session

CLEAN_WITHIN_S = 120.0  # much may be left, and a file system takes its time to free it
LEASE_MS = 300_000  # a guest on which removing takes long hears nothing meanwhile
ASKED_MAX = 100  # as often as not all of it fits into one answer
COUNTS = frozenset({"since_s", "pid", "files", "bytes"})


async def clean(
    guests: Sequence[Guest], *, pool: transport.Pool, dry_run: bool = False, agents: bool = False, kept: bool = False
) -> tuple[Cleaned, ...]:
    """Clean guests, all at once. A guest that cannot be cleaned is one with `trouble`; `agents`: old agents, `kept`: kept files, too."""

    async def guarded(guest: Guest) -> Cleaned:
        try:
            return await _clean(guest, pool, dry_run=dry_run, agents=agents, kept=kept)
        except CalyxError as error:
            return Cleaned(guest.name, dry_run, trouble=clipped(str(error)))
        except Exception as error:  # the last net: one guest's nonsense is that guest's failure only
            return Cleaned(guest.name, dry_run, trouble=clipped(f"unexpected: {type(error).__name__}: {error}"))

    return tuple(await asyncio.gather(*map(guarded, guests)))


async def _clean(guest: Guest, pool: transport.Pool, *, dry_run: bool, agents: bool, kept: bool) -> Cleaned:
    """What was cleaned before something went wrong is told with the trouble."""
    answers: list[Mapping[str, Any]] = []
    try:
        way = await transport.connect(guest.connection, pool=pool)
        try:
            await _by_agent(guest, way, answers, dry_run=dry_run, kept=kept)
            cleaned = of_answers(guest.name, answers, dry_run=dry_run, with_kept=kept)
            if not agents:
                return cleaned
            old, stay, failed = await old_agents.remove(way, guest, shipped.available(), dry_run=dry_run)
            return replace(cleaned, kept=cleaned.kept + stay, failed=cleaned.failed + failed, agents=old)
        finally:
            await way.close()
    except CalyxError as error:
        cleaned = of_answers(guest.name, answers, dry_run=dry_run, with_kept=kept)
        return replace(cleaned, trouble=clipped(str(error)))


async def _by_agent(
    guest: Guest, way: transport.Transport, answers: list[Mapping[str, Any]], *, dry_run: bool, kept: bool
) -> None:
    agent = await deploy.deploy(way, guest, borrowed=True)
    session = Session(guest, agent)
    session.start()
    try:
        await session.send("lease", (("ms", LEASE_MS),))
        await _ask(session, answers, dry_run=dry_run, kept=kept)
    finally:
        await session.close()
        await deploy.give_back(way, agent)


async def _ask(session: Session, answers: list[Mapping[str, Any]], *, dry_run: bool, kept: bool) -> None:
    """Add all answers, until the agent has told all: each question skips what stayed by the answers before."""
    directories = [target.path for target in session.guest.targets if not target.device]
    if not directories:  # work directories are looked for with any
        directories = [posixpath.dirname(str(session.agent.hello["path"]))]
    pairs: list[tuple[str, str | int]] = [("path", path) for path in directories]
    pairs += [("list", int(dry_run)), ("kept", int(kept))]
    skip, more = 0, True
    while more and len(answers) < ASKED_MAX:
        arrival = await session.ask("clean", [*pairs, ("skip", skip)], answer="cleaned", timeout_s=CLEAN_WITHIN_S)
        answer = _checked(arrival.message, answers)
        if "found" not in answer:
            raise AgentError("the agent on this guest is too old to clean", step="clean")
        answers.append(answer)
        stay = int(answer.get("stay") or 0)
        more = bool(answer.get("more")) and (stay > skip or bool(answer.get("removed")))
        skip = stay


def _checked(message: Mapping[str, Any], answers: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The answer; of one that makes no sense what was removed by it is kept, since that was done."""
    message = {key: _counted(value) if key in ("found", "freed") else value for key, value in message.items()}
    try:
        return border.checked(message, "clean")
    except AgentError:
        removed = message.get("removed")
        gone = [one for one in removed[: border.LIST_MAX] if not border.text(one)] if isinstance(removed, list) else []
        answers.append({"removed": gone})
        raise


def _counted(entries: Any) -> Any:
    """The entries of a list without what should be a count and is none: a record may hold anything. Pure."""
    if not isinstance(entries, list):
        return entries
    return [
        {key: None if key in COUNTS and border.number(value) else value for key, value in entry.items()}
        if isinstance(entry, dict)
        else entry
        for entry in entries
    ]


def of_answers(guest: str, answers: Sequence[Mapping[str, Any]], *, dry_run: bool, with_kept: bool = False) -> Cleaned:
    """The agent's answers as one; `with_kept`: it was asked to remove kept files as well. Pure."""
    gone = {path for answer in answers for path in answer.get("removed") or ()}
    found = [_leftover(entry) for answer in answers for entry in answer.get("found") or ()]
    listed = tuple(dict.fromkeys(found))
    removed = tuple(one for one in listed if one.path in gone or (dry_run and (with_kept or not one.keep)))
    untold = gone - {one.path for one in found}
    removed += tuple(_leftover({"path": path}) for path in sorted(untold))
    kept = dict.fromkeys(_untouched(entry) for answer in answers for entry in answer.get("kept") or ())
    failed = dict.fromkeys(_untouched(entry) for answer in answers for entry in answer.get("failed") or ())
    freed: dict[tuple[str, str, str | None], int] = {}
    for answer in answers:
        for entry in answer.get("freed") or ():
            key = (str(entry["path"]), str(entry.get("mount") or ""), entry.get("discard"))
            freed[key] = freed.get(key, 0) + int(entry.get("bytes") or 0)
    return Cleaned(
        guest, dry_run, removed=removed, kept=tuple(kept), failed=tuple(failed),
        kept_files=tuple(one for one in listed if one.keep and not with_kept),
        freed=tuple(Freed(path, mount, count, discard) for (path, mount, discard), count in freed.items() if count),
        more=bool(answers and answers[-1].get("more")),
    )  # fmt: skip


def _leftover(entry: Mapping[str, Any]) -> Leftover:
    return Leftover(
        path=str(entry["path"]), kind=str(entry.get("kind") or "files"), run=str(entry.get("run") or ""),
        by=str(entry.get("by") or ""), since_s=int(entry.get("since_s") or 0), files=int(entry.get("files") or 0),
        bytes=int(entry.get("bytes") or 0), keep=str(entry.get("keep") or ""),
    )  # fmt: skip


def _untouched(entry: Mapping[str, Any]) -> Untouched:
    return Untouched(str(entry.get("path") or ""), str(entry.get("why") or "no reason given"))
