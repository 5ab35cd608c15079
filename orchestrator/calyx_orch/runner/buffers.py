"""When buffers cannot be registered on one guest, nobody registers them: neither the other guests nor fio. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calyx_orch import units
from calyx_orch.errors import RefusedError
from calyx_orch.model import Plan, Round, Workload
from calyx_orch.plan import capacity


@dataclass(frozen=True)
class Gap:
    """A guest that cannot register the buffers of a workload: how many bytes, its limit (None: none known), the agent's reason."""

    guest: str
    workload: str
    needs_bytes: int
    limit_bytes: int | None
    why: str

    def __str__(self) -> str:
        return f"guest {self.guest} {self.sentence}"

    @property
    def sentence(self) -> str:
        """What it cannot, without its name."""
        limit = (
            f"its memory-lock limit is {units.format_bytes(self.limit_bytes)}"
            if self.limit_bytes is not None
            else self.why
        )
        return f"cannot register {units.format_bytes(self.needs_bytes)} of buffers: {limit or 'refused'}"


def rehearsed(workload: Workload) -> Workload:
    """The workload as it is rehearsed: `registered` is asked for as `auto`, so that all guests that cannot are known at once.

    A load point is rehearsed in a closed loop, as its rate is not known yet.
    """
    if workload.load_share is not None:
        workload = capacity.closed(workload)
    return replace(workload, buffers="auto") if workload.buffers == "registered" else workload


def gaps(
    plan: Plan, taken: Mapping[str, Mapping[tuple[str, str], Mapping[str, Any]]], facts: Mapping[str, Mapping[str, Any]]
) -> tuple[Gap, ...]:
    """Where buffers were to be registered and are not. `taken` is by guest what set-up (workload, target) took."""
    workloads = {one.workload.name: one.workload for one in plan.measured}
    found: dict[tuple[str, str], Gap] = {}
    for guest, mine in taken.items():
        for (name, _), setup in mine.items():
            workload = workloads.get(name)
            if (
                workload is None
                or workload.buffers == "plain"
                or workload.setup == "psync"
                or setup.get("fixed_buffers") is not False
            ):
                continue
            limit = facts.get(guest, {}).get("memlock_bytes")
            locked = setup.get("buffer_bytes")  # those of writes hold more than what is in flight
            in_flight = workload.bs_bytes * workload.iodepth * workload.numjobs
            needs = locked if type(locked) is int and locked > 0 else in_flight
            told = limit if isinstance(limit, int) else None
            found.setdefault((guest, name), Gap(guest, name, needs, told, str(setup.get("why") or "")))
    return tuple(found.values())


def refuse_where_required(plan: Plan, found: Sequence[Gap]) -> None:
    """Raise RefusedError when a workload that says `buffers: registered` cannot have them on some guest."""
    required = {one.workload.name for one in plan.measured if one.workload.buffers == "registered"}
    lines = [f"workload '{gap.workload}': {gap}" for gap in found if gap.workload in required]
    if lines:
        way_out = "raise the limit (ulimit -l, LimitMEMLOCK=), lower iodepth, bs or numjobs, or use buffers: auto"
        raise RefusedError(
            "buffers: registered cannot be had; nothing was measured:\n  " + "\n  ".join(lines) + f"\n{way_out}"
        )


def without(plan: Plan, found: Sequence[Gap]) -> tuple[Plan, tuple[str, ...]]:
    """The plan with plain buffers for every workload that some guest cannot register, and a sentence for each."""
    names = {gap.workload for gap in found}
    if not names:
        return plan, ()

    def plain(workload: Workload) -> Workload:
        return replace(workload, buffers="plain") if workload.name in names else workload

    def changed(rounds: Iterable[Round]) -> tuple[Round, ...]:
        return tuple(replace(one, workload=plain(one.workload)) for one in rounds)

    searches = tuple(replace(one, workload=plain(one.workload)) for one in plan.searches)
    plan = replace(
        plan, conditioning=changed(plan.conditioning), capacity=changed(plan.capacity), rounds=changed(plan.rounds),
        searches=searches,
    )  # fmt: skip
    return plan, tuple(_sentence(name, found) for name in sorted(names))


def _sentence(name: str, found: Sequence[Gap]) -> str:
    mine = [gap for gap in found if gap.workload == name]
    more = f" (and {len(mine) - 1} guests more)" if len(mine) > 1 else ""
    return f"workload '{name}': all guests and all engines go without registered buffers, because {mine[0]}{more}"
