"""What an inventory may say: the pydantic models of every key, from which docs/inventory.schema.json is generated.

What a value must be is said in values.py. `None` as a default means "not said";
whether a key was said is asked of `model_fields_set`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema, model_validator

from calyx_orch import units
from calyx_orch.inventory import words
from calyx_orch.inventory.values import (
    BY_ID,
    AgentDir,
    BlockSize,
    Boolean,
    Cpus,
    DayWindow,
    Device,
    Directory,
    Distribution,
    Duration,
    Find,
    Labels,
    Latency,
    Many,
    Pattern,
    Program,
    Rate,
    Share,
    Size,
    Split,
    Text,
    Thinktime,
    Whole,
    WorkloadName,
    parsed,
)

WORKLOAD_REFUSALS = {
    "zero_buffers": "zeros are compressed or deduplicated by layers below, so the figures would be those of a cache; "
    "buffer_compress_percentage and dedupe_percentage say how far data may shrink",
    "time_based": "workloads are always time based; leave it out",
    "norandommap": "random workloads never keep a map; leave it out",
    "ioengine": "baselines choose fio's engine (baselines: [fio-io_uring, fio-libaio])",
    "filename": "files are made in a directory given under targets:",
    "directory": "files are made in a directory given under targets:",
    "readwrite": "the pattern is called rw",
    "blocksize": "the size of an I/O is called bs",
    "hipri": "polled completions are called iopoll",
    "rate_process": "arrivals are chosen by arrival: constant or poisson",
    "bsrange": "ranges of sizes are written out by bssplit",
    "rwmixwrite": "the mix is said by rwmixread alone",
    "loops": "workloads are always time based; leave it out",
    "device": "a raw device is given under targets: {device: /dev/disk/by-id/..., destructive: true}",
}


class Strict(BaseModel):
    """A mapping without keys that nobody knows."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TargetSettings(Strict):
    """A directory in which the files of the I/O are made: a path, or a mapping with a path. Or a raw device, which is overwritten."""

    model_config = ConfigDict(json_schema_extra=lambda schema: _or_text(schema, "an absolute path of a directory"))

    path: Directory | None = None
    allow_ram: Boolean = Field(default=False, description="a file system (tmpfs) or a raw device in memory is meant")
    reserve: Size | None = Field(
        default=None, description="what stays free on the file system; default: 5 % of it, 64 MiB to 4 GiB"
    )
    device: Device | None = Field(default=None, description="a raw device by its stable name: /dev/disk/by-id/...")
    serial: Text | None = Field(default=None, description="the serial number of the raw device")
    destructive: Boolean = Field(default=False, description="true: the content of the raw device is destroyed")

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_place(self) -> TargetSettings:
        raw = self.device is not None or self.serial is not None
        if raw == (self.path is not None):
            raise ValueError("a target is either a path, or a raw device by device: or serial:")
        if not raw and self.destructive:
            raise ValueError("'destructive' has no meaning for a directory: files of its own are made there")
        if raw and self.reserve is not None:
            raise ValueError("'reserve' has no meaning for a raw device")
        if raw and not self.destructive:
            raise ValueError("the content of a raw device is destroyed: write destructive: true when that is meant")
        if raw and self.serial is None and not (self.device or "").startswith(BY_ID):
            raise ValueError(
                f"{self.device} may be another disk after the next boot: give its stable name ({BY_ID}...), or its serial: as well"
            )
        return self


def _or_text(schema: dict[str, Any], description: str) -> None:
    mapping = dict(schema)
    schema.clear()
    schema["anyOf"] = [{"type": "string", "description": description}, mapping]


class LimitSettings(Strict):
    """What the way to a guest's storage can carry at most: figures beyond it are not the storage's."""

    max_read: Rate | None = None
    max_write: Rate | None = None


class Settings(Strict):
    """What can be said of a guest wherever it is said: under defaults, a vm_host, a group or the guest itself."""

    address: Text | None = Field(
        default=None, description="host name, IPv4 or IPv6 address; default: the guest's name. Ranges as in names"
    )
    port: Whole | None = Field(default=None, ge=1, le=65535)
    user: Text | None = None
    key: Many[Text] | None = Field(
        default=None, description="private key file, or a list of them; relative to the inventory"
    )
    jump: Text | None = Field(default=None, description="an entry of jump_hosts, or user@host:port")
    ssh_config: Text | None = None
    known_hosts: Text | None = None
    host_key_policy: Literal["strict", "accept-new"] | None = None
    connect_timeout: Duration | None = Field(default=None, gt=0, le=3600)
    transport: Literal["ssh", "local"] | None = Field(
        default=None, description="local: this machine itself, without SSH"
    )
    fio: Program | None = Field(default=None, description="path of fio on the guest")
    agent_dir: AgentDir | None = Field(default=None, description="where the agent is put on the guest")
    become: Literal["sudo -n"] | None = Field(
        default=None, description="start the agent as root by this; without it no right is asked for"
    )
    dead_man: Duration | None = Field(
        default=None, ge=3, le=3600, description="a guest that hears nothing for so long ends and cleans; default: 10s"
    )
    same_machine: Boolean | None = Field(
        default=None, description="this guest shares its machine with another one on purpose"
    )
    labels: Labels | None = None
    limits: LimitSettings | None = Field(
        default=None, description="what the way to the storage can carry; figures beyond are marked implausible"
    )
    storage: Text | None = Field(default=None, description="the pool that the guest's disks lie on")
    targets: dict[str, TargetSettings | None] | None = Field(
        default=None, description="name: directory or raw device; null takes one away"
    )


class VmHostSettings(Settings):
    """A hypervisor host; its settings hold for its guests."""

    free: Size | None = Field(default=None, description="free space for new bytes")


class GroupSettings(Settings):
    """Settings of all members of a group."""

    vm_host: Text | None = None


class GuestSettings(GroupSettings):
    """One guest, or a range of guests."""

    groups: Many[Text] | None = None


class NamedGuest(GuestSettings):
    """A guest of a list: its name alone, or a mapping with a name."""

    model_config = ConfigDict(
        json_schema_extra=lambda schema: _or_text(schema, "the name, which is the address as well")
    )

    name: Text

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class StorageSettings(Strict):
    """A pool that several guests' disks lie on."""

    free: Size | None = Field(default=None, description="free space for new bytes")
    labels: Labels | None = None


class JumpHostSettings(Strict):
    """A host through which guests are reached. What is not said comes from defaults, but for user and port."""

    address: Text | None = None
    port: Whole | None = Field(default=None, ge=1, le=65535)
    user: Text | None = None
    key: Many[Text] | None = None
    jump: Text | None = None
    ssh_config: Text | None = None
    known_hosts: Text | None = None
    host_key_policy: Literal["strict", "accept-new"] | None = None
    connect_timeout: Duration | None = Field(default=None, gt=0, le=3600)


class WorkloadSettings(Strict):
    """A workload in fio's vocabulary, or `preset:` with what differs. A parameter that is a list is expanded."""

    model_config = ConfigDict(json_schema_extra=lambda schema: _or_text(schema, "the name of a preset"))

    name: WorkloadName | None = None
    preset: Text | None = None
    rw: Many[Pattern] | None = None
    bs: Many[BlockSize] | None = None
    iodepth: Many[Annotated[Whole, Field(ge=1, le=4096)]] | None = None
    numjobs: Many[Annotated[Whole, Field(ge=1, le=256)]] | None = None
    size: Many[Size] | None = Field(default=None, description="bytes of each job's file")
    runtime: Many[Annotated[Duration, Field(gt=0, le=7 * 86400)]] | None = None
    ramp_time: Many[Annotated[Duration, Field(ge=0, le=86400)]] | None = None
    rwmixread: Many[Annotated[Whole, Field(ge=0, le=100)]] | None = None
    rate_iops: Many[Annotated[Whole, Field(ge=1, le=100_000_000)]] | None = Field(default=None, description="per job")
    direct: Many[Boolean] | None = None
    fsync: Many[Annotated[Whole, Field(ge=0, le=1_000_000)]] | None = None
    randseed: Many[Annotated[Whole, Field(ge=0, le=2**63 - 1)]] | None = None
    fdatasync: Many[Annotated[Whole, Field(ge=0, le=1_000_000)]] | None = None
    sync: Many[Boolean] | None = Field(default=None, description="O_SYNC: each write is on the medium when it ends")
    end_fsync: Many[Boolean] | None = None
    bssplit: Many[Split] | None = Field(
        default=None, description="sizes and percents: 4k/50:64k/50, writes behind a comma"
    )
    offset: Many[Size] | None = Field(default=None, description="where in each file the I/O begins")
    rate: Many[Rate] | None = Field(default=None, description="per job, reads and writes together")
    arrival: Many[Literal["closed", "constant", "poisson"]] | None = Field(
        default=None, description="constant or poisson: an open loop with rate_iops"
    )
    random_distribution: Many[Distribution] | None = None
    buffer_compress_percentage: Many[Annotated[Whole, Field(ge=0, le=100)]] | None = None
    dedupe_percentage: Many[Annotated[Whole, Field(ge=0, le=100)]] | None = None
    verify: Many[Literal["crc32c"]] | None = None
    thinktime: Many[Thinktime] | None = Field(default=None, description="a bare number is microseconds, as in fio")
    thinktime_blocks: Many[Annotated[Whole, Field(ge=1, le=1_000_000)]] | None = None
    cpus_allowed: Many[Cpus] | None = Field(default=None, description="each job is pinned to the next of them in turn")
    iopoll: Many[Boolean] | None = None
    numa: Many[Annotated[Whole, Field(ge=0, le=1023)]] | None = Field(
        default=None, description="node of threads and buffers"
    )
    huge_pages: Many[Boolean] | None = None
    find: Many[Find] | None = Field(default=None, description="searched for instead of measured: iops_at 'p99<2ms'")
    setup: Many[Literal["auto", "sqpoll", "defer", "coop", "plain", "psync"]] | None = None
    refill: Many[Literal["auto", "each", "batch"]] | None = None
    buffers: Many[Literal["auto", "registered", "plain"]] | None = None
    interval_ms: Many[Annotated[Whole, Field(ge=10, le=60_000)]] | None = None
    targets: Many[Text] | None = Field(default=None, description="the targets it runs on; default: all of the guest")

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, value: Any) -> Any:
        return {"preset": value} if isinstance(value, str) else value


class BaselineSettings(Strict):
    """Which fio engines run besides calyx."""

    engines: Many[Literal["fio-io_uring", "fio-libaio", "fio-psync"]]
    when_missing: Literal["refuse", "skip"] = "refuse"


class QuorumSettings(Strict):
    """Go on while at least this share of the guests answers."""

    quorum: Annotated[
        float,
        parsed(units.parse_percent),
        WithJsonSchema({"type": "string", "pattern": units.PERCENT_PATTERN}),
        Field(gt=0),
    ]


class AbortSettings(Strict):
    """A round is stopped when a guest shows that it harms; what it measured until then enters no figure."""

    lost_time_above: Share | None = Field(
        default=None, description="share of time that is taken from a CPU, before a round: it is not begun"
    )
    steal_above: Share | None = Field(
        default=None, description="share of stolen time over a round: its workload is not run again in this run"
    )
    latency_above: Latency | None = Field(
        default=None,
        description="age of an I/O of calyx while a round runs: it is stopped, and its workload not run again",
    )


class ImpactSettings(Strict):
    """Bounds of what a run may do to its neighbours; they hold for every engine."""

    max_rate: Rate | None = Field(default=None, description="per guest")
    max_guests_per_domain: Whole | None = Field(default=None, ge=1)
    max_bytes_written: Size | None = Field(default=None, description="per guest and run, layout included")
    layout_rate: Rate | None = Field(
        default=None, description="per guest, while files are laid out; default: max_rate, else 500MB/s"
    )
    window: DayWindow | None = Field(
        default=None, description="time of day in which rounds may run, such as 01:00-05:00 Europe/Berlin"
    )
    abort_if: AbortSettings | None = None
    stagger_by: Literal["guest", "domain"] = Field(
        default="guest", description="domain: load: staggered starts one contention domain after the other"
    )


class PreconditionSettings(Strict):
    """Writing workloads are run before the first block, until steady."""

    until: Literal["steady"] = "steady"
    max: Annotated[Duration, Field(gt=0, le=7 * 86400)] = Field(
        default=1800.0, description="the longest of each workload; default: 30m"
    )
    max_bytes: Size | None = Field(default=None, description="written by each guest to precondition, in the whole run")
    workloads: Many[Text] | None = Field(default=None, description="names; default: those that write")


class DensitySettings(Strict):
    """How many guests of each vm_host run at once: level after level."""

    density: Many[Annotated[int, parsed(words.density), WithJsonSchema(words.DENSITY_SCHEMA)]]


class UntilSettings(Strict):
    """What makes further blocks needless."""

    cv_interval: Share = Field(
        gt=0, le=0.5, description="half of the 95 % interval of each engine's throughput / its mean: 0.02 or 2%"
    )


class RepetitionSettings(Strict):
    """Blocks until an interval is narrow enough."""

    min: Annotated[Whole, Field(ge=3, le=1000)] = 3
    max: Annotated[Whole, Field(ge=3, le=1000)] = 15
    until: UntilSettings

    @model_validator(mode="after")
    def _in_order(self) -> RepetitionSettings:
        if self.max < self.min:
            raise ValueError(f"'max' is {self.max}, less than 'min', which is {self.min}")
        return self


def _baselines(value: Any) -> Any:
    if isinstance(value, list):
        return {"engines": value}
    if isinstance(value, str) and value.startswith("fio"):
        return {"engines": [value]}
    return value


class _OrEngines:
    """In the schema, beside the words and the mapping: the engines alone."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
        engine = {"enum": ["fio-io_uring", "fio-libaio", "fio-psync"], "type": "string"}
        return {"anyOf": [handler(core), engine, {"type": "array", "items": engine, "minItems": 1}]}


def _shape(value: Any) -> str | None:
    return "(mapping)" if isinstance(value, dict) else "(list)" if isinstance(value, list) else None


def _word_or_mapping(value: Any) -> str:
    return "(mapping)" if isinstance(value, (dict, BaseModel)) else "(word)"


Guests = Annotated[
    Annotated[dict[str, GuestSettings | None], Tag("(mapping)")] | Annotated[list[NamedGuest], Tag("(list)")],
    Discriminator(_shape),
]
BaselineChoice = Annotated[
    Annotated[Literal["auto", "none"], Tag("(word)")] | Annotated[BaselineSettings, Tag("(mapping)")],
    Discriminator(_word_or_mapping),
    BeforeValidator(_baselines),
    _OrEngines,
]
PolicyChoice = Annotated[
    Annotated[Literal["continue", "stop"], Tag("(word)")] | Annotated[QuorumSettings, Tag("(mapping)")],
    Discriminator(_word_or_mapping),
]
Repetitions = Annotated[
    Annotated[Annotated[Whole, Field(ge=1, le=1000)], Tag("(word)")] | Annotated[RepetitionSettings, Tag("(mapping)")],
    Discriminator(_word_or_mapping),
]
Load = Literal["together", "per_domain", "alone", "staggered"]
LoadChoice = Annotated[
    Annotated[Load, Tag("(word)")] | Annotated[DensitySettings, Tag("(mapping)")], Discriminator(_word_or_mapping)
]


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


class PresetDocument(Strict):
    """A file of workloads/."""

    about: Text | None = None
    workloads: Many[WorkloadSettings]
