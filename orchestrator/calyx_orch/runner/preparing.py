"""What one guest does before the rounds: its files are laid out, and every job is opened once without being started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from calyx_orch import engines
from calyx_orch.analysis import keeping
from calyx_orch.errors import GuestError
from calyx_orch.model import Layout, Plan, Round
from calyx_orch.runner import border, buffers, preflight
from calyx_orch.runner.rounds import data_seed, with_pin
from calyx_orch.runner.session import Session

REHEARSE_WITHIN_S = 30.0
LAYOUT_GRACE_S = 60.0  # besides the time that the bytes take
LAYOUT_BYTES_PER_S_MIN = 4 << 20  # a target slower than this is given up

NoteGuest = Callable[[str, str], None]


async def lay_out(session: Session, layout: Layout, plan: Plan, note: NoteGuest) -> None:
    """Make the files of one target. Raises GuestError when they are not whole, AgentError when the guest cannot."""
    rate = plan.inventory.impact.layout_bytes_per_s
    seed = data_seed(plan.seed, layout.guest, f"layout/{layout.target}")
    pairs: tuple[tuple[str, str | int], ...] = (
        *_place(layout, session), ("size", layout.size_bytes), ("files", layout.files), ("seed", seed), ("max_bytes_per_s", rate),
        *((("verify", layout.verify),) if layout.verify else ()),
        *((("keep", layout.keep),) if layout.keep else ()),
        *session.owner,
    )  # fmt: skip
    limit_s = LAYOUT_GRACE_S + layout.total_bytes / min(rate, LAYOUT_BYTES_PER_S_MIN)
    arrival = await session.ask("prepare", pairs, answer="prepared", timeout_s=limit_s)
    prepared = border.checked(arrival.message, "prepare")
    files = prepared["files"]
    if len(files) != layout.files:
        raise GuestError(f"target {layout.target}: {len(files)} of {layout.files} files were laid out")
    session.files[layout.target] = tuple(entry["path"] for entry in files)
    session.laid_out[layout.target] = arrival.message
    told = keeping.files(plan.layouts_of[layout.guest], session.laid_out)
    session.facts = {**session.facts, "prepared": dict(session.laid_out), "files": told}
    if layout.keep:
        session.kept.add(str(prepared.get("directory", "")))
    if prepared.get("anew"):
        note(layout.guest, f"target {layout.target}: kept files were laid out anew: {prepared['anew']}")
    for kind in ("unwritten", "holes"):
        odd = sum(entry.get(kind) or 0 for entry in files)
        if odd:
            raise GuestError(
                f"target {layout.target}: {odd} bytes are {kind} after the layout, reads would not reach the disk"
            )
    if not layout.device and any(entry.get("unwritten") is None for entry in files):
        note(layout.guest, f"target {layout.target}: the file system cannot say whether its extents are written")


def _place(layout: Layout, session: Session) -> tuple[tuple[str, str | int], ...]:
    if layout.device:
        serial = (("serial", layout.serial),) if layout.serial else ()
        return (("device", layout.path), ("destructive", 1), *serial)
    found = (entry for entry in session.facts.get("paths") or () if entry.get("path") == layout.path)
    return ("path", layout.path), ("reserve", preflight.reserve_of(layout, next(found, {})))


async def rehearse(session: Session, round_: Round, note: NoteGuest) -> dict[str, Any]:
    """Open one calyx job and let it go: the set-up that took effect, which is what fio is given, too."""
    trial = replace(with_pin(round_, session), engine="calyx")
    trial = replace(trial, workload=buffers.rehearsed(trial.workload))
    command = engines.command(
        trial, paths=session.files[round_.target][: round_.workload.numjobs], data_seed=1, taken={},
        facts=session.facts, hello=session.agent.hello, fio_path=None,
    )  # fmt: skip
    arrival = await session.ask(command.verb, command.pairs, answer="ready", timeout_s=REHEARSE_WITHIN_S)
    taken = arrival.message.get("setup")
    await session.ask("stop", answer="result", timeout_s=REHEARSE_WITHIN_S)
    if not isinstance(taken, dict):
        raise GuestError(f"workload {round_.workload.name}: the agent does not say what set-up took effect")
    if taken.get("why") and taken.get("fixed_buffers") is not False:
        note(session.guest.name, f"workload {round_.workload.name}: {engines.clipped(str(taken['why']))}")
    return taken
