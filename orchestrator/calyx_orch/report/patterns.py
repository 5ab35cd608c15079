"""What each workload of a plan is, as a table: its pattern in fio's words, how long it is measured and how it is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calyx_orch import units
from calyx_orch.model import Plan, Rw, Workload
from calyx_orch.report.fields import Field


@dataclass(frozen=True)
class Pattern:
    """One row: a workload as its rounds have it. `is_bounded`: `impact` set or lowered its rate."""

    workload: Workload
    is_bounded: bool = False


def patterns(plan: Plan) -> Sequence[Pattern]:
    """Every workload of the plan once, in the order of the inventory."""
    found: dict[str, Pattern] = {}
    for one in plan.measured:
        found.setdefault(one.workload.name, Pattern(one.workload, getattr(one, "rate_limited", False)))
    return [found[workload.name] for workload in plan.inventory.workloads if workload.name in found]


def _rw(one: Pattern) -> str:
    workload = one.workload
    return f"{workload.rw} {workload.rwmixread}/{100 - workload.rwmixread}" if _is_mixed(workload) else str(workload.rw)


def _is_mixed(workload: Workload) -> bool:
    return workload.rw in (Rw.RW, Rw.RANDRW)


def _blocks(one: Pattern) -> str:
    """A size, or the sizes with their percents; behind a comma those of the writes."""
    split, writes = one.workload.bssplit, one.workload.bssplit_write
    if not split:
        return units.format_size_short(one.workload.bs_bytes)
    sides = (split, writes) if writes else (split,)
    return ", ".join(":".join(f"{units.format_size_short(size)}/{percent}" for size, percent in side) for side in sides)


def _rate(one: Pattern) -> str:
    """What bounds each job, or what is searched for; empty when nothing does."""
    workload = one.workload
    if workload.find is not None:
        return workload.find
    said = [f"guests_at {workload.guests_at}"] if workload.guests_at is not None else []
    if workload.load_share is not None:
        said.append(f"{100 * workload.load_share:g} % of capacity")
    elif workload.rate_iops is not None:
        said.append(f"{workload.rate_iops} IOPS a job")
    if workload.rate_bytes_per_s is not None:
        said.append(f"{units.format_rate(workload.rate_bytes_per_s)} a job")
    return " ".join(said + ["(impact)"] * (one.is_bounded and bool(said)))


def _kind(one: Pattern) -> str:
    return ", ".join((*one.workload.labels, *(("short",) if one.workload.is_short else ())))


FIELDS: tuple[Field[Pattern], ...] = (
    Field("workload", lambda one: one.workload.name, is_number=False),
    Field("rw", _rw, is_number=False),
    Field("bs", _blocks, is_number=False),
    Field("iodepth", lambda one: str(one.workload.iodepth)),
    Field("numjobs", lambda one: str(one.workload.numjobs)),
    Field("size", lambda one: units.format_bytes(one.workload.size_bytes)),
    Field("ramp", lambda one: units.format_duration(one.workload.ramp_s)),
    Field("runtime", lambda one: units.format_duration(one.workload.runtime_s)),
    Field("rate", _rate, is_number=False),
    Field("kind", _kind, 1, is_number=False),
)
