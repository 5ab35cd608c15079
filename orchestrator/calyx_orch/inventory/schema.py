"""What an inventory may say: the whole of what settings/ holds, from which docs/inventory.schema.json is generated.

What a value must be is said in values.py. `None` as a default means "not said";
whether a key was said is asked of `model_fields_set`.
"""

from __future__ import annotations

from pydantic import Field

from calyx_orch.inventory.settings.conduct import (
    BaselineChoice,
    ImpactSettings,
    LoadChoice,
    PolicyChoice,
    PreconditionSettings,
    Repetitions,
)
from calyx_orch.inventory.settings.guests import (
    GroupSettings,
    Guests,
    GuestSettings,
    JumpHostSettings,
    StorageSettings,
    VmHostSettings,
)
from calyx_orch.inventory.settings.strict import Strict
from calyx_orch.inventory.settings.workloads import WorkloadSettings
from calyx_orch.inventory.values import Boolean, Duration, Many, Text, Whole


class InventoryDocument(Strict):
    """A fleet and what is measured on it."""

    name: Text | None = None
    defaults: GuestSettings | None = None
    vm_hosts: dict[str, VmHostSettings | None] | None = None
    storage: dict[str, StorageSettings | None] | None = None
    jump_hosts: dict[str, JumpHostSettings | None] | None = None
    groups: dict[str, GroupSettings | None] | None = None
    guests: Guests | None = None
    workloads: Many[WorkloadSettings] | None = Field(
        default=None, description="presets by name, or workloads; default: four-corners"
    )
    baselines: BaselineChoice = "auto"
    repetitions: Repetitions = Field(
        default=3,
        description="blocks, in each of which every engine has its balanced turns; or until an interval is narrow",
    )
    load: Many[LoadChoice] = Field(default=["together"])
    precondition: PreconditionSettings | None = None
    impact: ImpactSettings | None = None
    policy: PolicyChoice = "continue"
    settle: Duration = Field(
        default=60.0, le=3600, description="the longest wait for idle devices between rounds; 0: none"
    )
    stagger: Duration = Field(default=1.0, gt=0, le=3600, description="time from guest to guest for load: staggered")
    lost_time_probe: Duration = Field(default=1.0, le=60, description="length of the spin before each round; 0: none")
    seed: Whole | None = Field(default=None, ge=0, le=2**63 - 1)
    allow_psync: Boolean = Field(default=False, description="a workload may have setup: psync, without io_uring")
