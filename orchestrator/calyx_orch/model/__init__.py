"""The words of calyx-orch as frozen data: guest, target, workload, round, plan, measurement.

Nothing here does I/O, reads a clock or knows a file. Times are integer nanoseconds, sizes integer bytes; `_s` fields are
seconds as the inventory states them. Guest names are unique within an inventory and are the key of everything.
"""

from calyx_orch.model.cleaning import Cleaned, Freed, Leftover, Untouched
from calyx_orch.model.fleet import NANOSECONDS, Connection, Guest, HostKeyPolicy, Place, Target, TransportKind
from calyx_orch.model.measurement import (
    Answers,
    ClockBound,
    CpuUse,
    Direction,
    GuestOutcome,
    Histogram,
    LostTime,
    Measurement,
    Resumed,
    RunRecord,
    Series,
)
from calyx_orch.model.plan import (
    LAYOUT_BYTES_PER_S,
    Baselines,
    Found,
    Growth,
    Impact,
    Inventory,
    Layout,
    LoadMode,
    Pin,
    Plan,
    Policy,
    Round,
    SearchPlan,
    Settled,
    Until,
)
from calyx_orch.model.readiness import Check, Finding, Readiness, Verdict
from calyx_orch.model.workload import Rw, Workload

__all__ = [
    "LAYOUT_BYTES_PER_S",
    "NANOSECONDS",
    "Answers",
    "Baselines",
    "Check",
    "Cleaned",
    "ClockBound",
    "Connection",
    "CpuUse",
    "Direction",
    "Finding",
    "Found",
    "Freed",
    "Growth",
    "Guest",
    "GuestOutcome",
    "Histogram",
    "HostKeyPolicy",
    "Impact",
    "Inventory",
    "Layout",
    "Leftover",
    "LoadMode",
    "LostTime",
    "Measurement",
    "Pin",
    "Place",
    "Plan",
    "Policy",
    "Readiness",
    "Resumed",
    "Round",
    "RunRecord",
    "Rw",
    "SearchPlan",
    "Series",
    "Settled",
    "Target",
    "TransportKind",
    "Until",
    "Untouched",
    "Verdict",
    "Workload",
]
