"""Before anything is written: ask every guest what it is and decide, guest by guest, whether it can do its part.

What is asked is I/O; every decision is a pure function from facts to sentences. A guest that cannot do its part is left out with
one clear line; a baseline that was named and is missing refuses the whole run before any guest has started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from calyx_orch import engines, units
from calyx_orch.analysis import keeping
from calyx_orch.errors import AgentError, CalyxError, GuestError, RefusedError
from calyx_orch.model import Check, Finding, Guest, Layout, Plan, Workload
from calyx_orch.runner import border
from calyx_orch.runner.session import Session

FACTS_WITHIN_S = 20.0
RESERVE_BYTES = 64 << 20  # what is left free on a target besides the files: at least
RESERVE_BYTES_MAX = 4 << 30
RESERVE_PART = 20  # 5 %
INODES_RESERVE = 16
TWINS_NAMED_MAX = 16


async def inspect(session: Session, plan: Plan) -> None:
    """Fill in the session's facts and what its fio is. Raises GuestError when the guest cannot do its part of the plan."""
    await ask_facts(session)
    problems = guest_findings(session.guest, plan, session.facts)
    if problems:
        raise GuestError("; ".join(problem.why for problem in problems), step="preflight")
    await ask_fio(session, plan)


async def ask_facts(session: Session) -> None:
    """Fill in the session's facts. Raises AgentError when they make no sense."""
    paths = [target.path for target in session.guest.targets]
    pairs: list[tuple[str, str | int]] = [("path", path) for path in paths]
    pairs.append(("program", "fio"))
    arrival = await session.ask("facts", pairs, answer="facts", timeout_s=FACTS_WITHIN_S)
    session.facts = border.checked(arrival.message, "preflight")


async def look_again(session: Session, earlier: Mapping[str, Any]) -> None:
    """After the last round: on which vm_host the guest is by now. An agent that is gone tells nothing.

    `earlier` are its facts in the first part of a run that was resumed: where it was then is where its rounds began.
    """
    try:
        arrival = await session.ask("facts", (), answer="facts", timeout_s=FACTS_WITHIN_S)
        at_end = border.checked(arrival.message, "preflight").get("vm_host")
    except CalyxError:
        return
    first = earlier.get("vm_host", session.facts.get("vm_host"))
    session.facts = {**session.facts, "vm_host": first, "vm_host_at_end": at_end}


async def ask_fio(session: Session, plan: Plan) -> None:
    """Fill in what the guest's fio is, when a baseline of the plan needs one."""
    if baseline_engines(plan):
        session.fio = await _ask_fio(session)
        session.facts = {**session.facts, "fio": session.fio}


def baseline_engines(plan: Plan) -> tuple[str, ...]:
    """The fio engines that some round of the plan uses."""
    return tuple(sorted({r.engine for r in plan.rounds if engines.fio_engine(r.engine) is not None}))


async def _ask_fio(session: Session) -> Mapping[str, Any]:
    path = session.guest.fio_path or _program(session.facts, "fio")
    if path is None:
        return {
            "path": None,
            "why": f"fio is not installed (looked in PATH {session.facts.get('path_env')} and the usual places)",
        }
    try:
        version = await _capture(session, path, "--version")
        helped = await _capture(session, path, "--enghelp")
    except AgentError as error:
        return {"path": None, "why": f"{path} does not run: {error}"}
    return {**engines.fio_facts(version, helped), "path": path}


async def _capture(session: Session, *argv: str) -> str:
    """Run a program on the guest and take its standard output. Raises AgentError when it does not end well."""
    pairs: list[tuple[str, str | int]] = [("arg", argument) for argument in argv]
    arrival = await session.ask("exec", [*pairs, ("timeout_ms", 10_000)], answer="exited", timeout_s=FACTS_WITHIN_S)
    message = arrival.message
    if message.get("status") != 0:
        said = session.documents.get("stderr", "").strip() or session.documents.get("stdout", "").strip()
        ended = (
            f"signal {str(message['signal'])[:20]}"
            if message.get("signal")
            else f"status {str(message.get('status'))[:20]}"
        )
        raise AgentError(f"{' '.join(argv)} ended with {ended}: {said[:200]}", step="exec")
    return session.documents.get("stdout", "")


def _program(facts: Mapping[str, Any], name: str) -> str | None:
    found = facts.get("programs")
    for program in found if isinstance(found, list) else []:
        if isinstance(program, dict) and program.get("name") == name and program.get("path"):
            return str(program["path"])
    return None


# --- decisions, pure ---------------------------------------------------------------------------------------------


def guest_findings(guest: Guest, plan: Plan, facts: Mapping[str, Any]) -> tuple[Finding, ...]:
    """What keeps this guest from its part of the plan; empty when nothing does."""
    workloads = plan.inventory.workloads
    problems = list(_io_uring_problems(facts, workloads))
    problems += [
        Finding(Check.CPUS, why) for why in (*_cpu_problems(facts, workloads), *numa_problems(facts, workloads))
    ]
    found = {entry.get("path"): entry for entry in facts.get("paths") or [] if isinstance(entry, dict)}
    for layout in plan.layouts_of.get(guest.name, ()):
        entry = found.get(layout.path)
        if entry is None:
            problems.append(Finding(Check.TARGET, "the agent says nothing about " + layout.path))
        else:
            problems += _path_problems(layout, entry)
            problems += [Finding(Check.ALIGNMENT, why) for why in _device_problems(layout, entry, plan)]
    return tuple(dict.fromkeys(problems))


def _io_uring_problems(facts: Mapping[str, Any], workloads: Iterable[Workload]) -> list[Finding]:
    workloads = [w for w in workloads if w.setup != "psync"]
    if not workloads:
        return []
    ring = facts.get("io_uring")
    if not isinstance(ring, dict) or not ring.get("ok"):
        why = ring.get("why") if isinstance(ring, dict) else "the agent does not say"
        return [Finding(Check.IO_URING, f"io_uring cannot be used: {why}: {_allow_io_uring(facts)}")]
    offered = ring.get("setups") or []
    return [
        Finding(
            Check.SETUP,
            f"workload {w.name!r} wants setup {w.setup}, which this kernel ({facts.get('kernel')}) does not accept"
            f" (it has {', '.join(offered)}): name one of these, or `setup: auto`",
        )
        for w in workloads
        if w.setup != "auto" and w.setup not in offered
    ]


def _allow_io_uring(facts: Mapping[str, Any]) -> str:
    if facts.get("io_uring_disabled"):
        for_some = facts.get("io_uring_disabled") == 1
        by_group = ", or put its user into the group that kernel.io_uring_group names" if for_some else ""
        return f"set kernel.io_uring_disabled to 0 there (sysctl){by_group}"
    return "allow it in the seccomp profile of the container or service, or take a kernel that has it (5.4 or later)"


def _cpu_problems(facts: Mapping[str, Any], workloads: Iterable[Workload]) -> list[str]:
    """A poller that shares the submitter's CPU would stand in its way: with one CPU sqpoll is refused."""
    cpus = facts.get("cpus")
    if not isinstance(cpus, int) or cpus >= 2:
        return []
    return [
        f"workload {w.name!r} wants setup sqpoll, whose thread needs a CPU of its own, and this guest has {cpus}"
        for w in workloads
        if w.setup == "sqpoll"
    ]


def _path_problems(layout: Layout, entry: Mapping[str, Any]) -> list[Finding]:
    path = layout.path
    if layout.device:
        return [Finding(Check.TARGET, f"target {layout.target}: {why}") for why in raw_device_problems(layout, entry)]
    if not entry.get("exists"):
        why = f"{path} does not exist: make the directory or change the target's path"
        return [Finding(Check.TARGET, f"target {layout.target}: {why}")]
    if not entry.get("is_dir"):
        why = f"{path} is no directory: a raw device is given as {{device: /dev/disk/by-id/..., destructive: true}}"
        return [Finding(Check.TARGET, f"target {layout.target}: {why}")]
    if not entry.get("writable"):
        why = f"cannot write in {path}: {entry.get('why') or 'permission denied'}: give the user a directory it may write in"
        return [Finding(Check.TARGET, f"target {layout.target}: {why}")]
    if entry.get("is_ram") and not layout.allow_ram:
        why = f"{path} is RAM ({entry.get('fs_type')}), not a disk: choose another path, or set allow_ram: true on it"
        return [Finding(Check.TARGET, f"target {layout.target}: {why}")]
    if keeping.is_there(entry, layout):
        return []  # they are reused, or make room for new ones: only the agent can tell
    problems = []
    free = entry.get("free_bytes")
    reserve = reserve_of(layout, entry)
    if isinstance(free, int) and free < layout.total_bytes + reserve:
        needs = units.format_bytes(layout.total_bytes + reserve)
        kept = f", of which {units.format_bytes(reserve)} stay free" if reserve else ""
        why = f"no space left on {path} (needs {needs}{kept}, has {units.format_bytes(free)}): free some, or lower size or numjobs"
        problems.append(Finding(Check.SPACE, f"target {layout.target}: {why}"))
    inodes = entry.get("free_inodes")
    if isinstance(inodes, int) and entry.get("total_inodes") and inodes < layout.files + INODES_RESERVE:
        why = f"no inodes left on {path} (needs {layout.files + INODES_RESERVE}, has {inodes}): remove files there"
        problems.append(Finding(Check.SPACE, f"target {layout.target}: {why}"))
    return problems


def reserve_of(layout: Layout, entry: Mapping[str, Any]) -> int:
    """What stays free on the file system of a target: as the inventory says, else 5 % of it within bounds. By the facts of its path."""
    if layout.reserve_bytes is not None:
        return layout.reserve_bytes
    total = entry.get("total_bytes")
    share = total // RESERVE_PART if isinstance(total, int) else 0
    return min(max(share, RESERVE_BYTES), RESERVE_BYTES_MAX)


def raw_device_problems(layout: Layout, entry: Mapping[str, Any]) -> list[str]:
    """Why a raw device is not overwritten; the agent, which looks once more before it writes, says it in the same words."""
    block = entry.get("block")
    if not isinstance(block, dict):
        why = "is no block device, and none is made of it" if entry.get("exists") else "does not exist, and is not made"
        return [f"{layout.path} {why}: give the stable name of a disk (/dev/disk/by-id/...)"]
    if block.get("refused"):
        return [str(block["refused"])]
    if layout.serial is not None and block.get("serial") != layout.serial:
        has = block.get("serial") or "no serial number"
        return [
            f"{layout.path} is {block.get('node')} with {has}, not {layout.serial}: it is another disk than the inventory means"
        ]
    if entry.get("is_ram") and not layout.allow_ram:
        return [f"{block.get('node')} is RAM, not a disk: give another device, or set allow_ram: true on the target"]
    size = block.get("size_bytes")
    if isinstance(size, int) and size < layout.size_bytes:
        needs, has = units.format_bytes(layout.size_bytes), units.format_bytes(size)
        return [f"no space left on {block.get('node')} (needs {needs}, has {has}): lower size"]
    return []


def _device_problems(layout: Layout, entry: Mapping[str, Any], plan: Plan) -> list[str]:
    mine = [one.workload for one in plan.parts.get(layout.guest, ()) if one.target == layout.target]
    return target_problems(layout, entry, mine)


def target_problems(layout: Layout, entry: Mapping[str, Any], workloads: Iterable[Workload]) -> list[str]:
    """What a target's device cannot do of these workloads, by the facts about its path: sector size and polling."""
    block, device = entry.get("logical_block_size"), entry.get("device")
    problems = []
    for w in workloads:
        if w.iopoll and entry.get("io_poll") in (0, False):
            problems.append(
                f"target {layout.target}: workload {w.name!r} wants iopoll: polling not supported by {device} (queue/io_poll "
                "is 0): leave it out, or load the driver with poll queues (nvme.poll_queues)"
            )
        if not isinstance(block, int) or block <= 0 or not w.direct:
            continue
        if any(size % block for size in (*w.block_sizes, w.offset_bytes)):
            problems.append(
                f"target {layout.target}: workload {w.name!r} has a bs or offset that is no multiple of the {block}-byte "
                f"sectors of {device} (the smallest is {block})"
            )
    return problems


def numa_problems(facts: Mapping[str, Any], workloads: Iterable[Workload]) -> list[str]:
    """Workloads that name a NUMA node which is not online; none when the guest does not say which are (`0-1,4`)."""
    online = facts.get("numa_nodes")
    if not isinstance(online, str) or not online:
        return []
    nodes = set()
    for part in online.split(","):
        first, _, last = part.partition("-")
        nodes |= set(range(int(first), int(last or first) + 1))
    return [
        f"workload {w.name!r} wants NUMA node {w.numa}, and this guest has {online}"
        for w in workloads
        if w.numa is not None and w.numa not in nodes
    ]


def left_by_the_dead(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Sentences about directories that an agent left which was killed with its guard; a run never removes them."""
    notes = []
    for entry in facts.get("paths") or ():
        names = [name for name in entry.get("stale") or () if name.startswith(".calyx-orch-") and "/" not in name]
        if names:
            lie = ", ".join(f"{str(entry['path']).rstrip('/')}/{name}" for name in names)
            notes.append(f"a run that was killed left files, which stay until `calyx-orch clean` removes them: {lie}")
    return tuple(notes)


def missing_baselines(plan: Plan, sessions: Sequence[Session]) -> dict[str, dict[str, str]]:
    """For each guest the baseline engines it lacks and why: `{guest: {engine: sentence}}`."""
    missing: dict[str, dict[str, str]] = {}
    for session in sessions:
        for engine in baseline_engines(plan):
            why = _lacks(session.fio, engine)
            if why:
                missing.setdefault(session.guest.name, {})[engine] = why
    return missing


def _lacks(found: Mapping[str, Any], engine: str) -> str:
    if found.get("path") is None:
        return str(found.get("why") or "fio is not installed")
    return engines.fio_lacks(found, engines.fio_engine(engine) or "") or ""


def refuse_missing(plan: Plan, missing: Mapping[str, Mapping[str, str]]) -> None:
    """Raise RefusedError when a baseline that was named is missing somewhere and may not be skipped."""
    baselines = plan.inventory.baselines
    if not missing or baselines.auto or baselines.skip_when_missing:
        return
    lines = [f"guest {guest}: {engine}: {why}" for guest, gaps in missing.items() for engine, why in gaps.items()]
    way_out = "install it there, set `when_missing: skip` under baselines, or use `baselines: auto`"
    raise RefusedError("a named baseline is missing; no guest was started:\n  " + "\n  ".join(lines) + f"\n{way_out}")


def twins(sessions: Sequence[Session]) -> tuple[str, ...]:
    """One sentence for each set of guests that are one machine by their boot id, unless that is declared."""
    machines: dict[str, list[str]] = {}
    for session in sessions:
        boot_id = session.facts.get("boot_id")
        if isinstance(boot_id, str) and not session.guest.same_machine:
            machines.setdefault(boot_id, []).append(session.guest.name)
    return tuple(
        f"guests {_named(names)} are the same machine (one boot id): set same_machine: true if that is meant"
        for names in machines.values()
        if len(names) > 1
    )


def _named(names: Sequence[str]) -> str:
    """`a, b and c`; of very many the first ones and how many there are."""
    if len(names) > TWINS_NAMED_MAX:
        return f"{', '.join(names[:TWINS_NAMED_MAX])} and {len(names) - TWINS_NAMED_MAX} more"
    return f"{', '.join(names[:-1])} and {names[-1]}"
