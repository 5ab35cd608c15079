"""What is measured: a workload in fio's vocabulary, and the words of fio that have another meaning here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from calyx_orch.inventory.settings.strict import Strict, or_text
from calyx_orch.inventory.values import (
    BlockSize,
    Boolean,
    Cpus,
    Distribution,
    Duration,
    Find,
    Many,
    Pattern,
    RateOrShare,
    Size,
    Split,
    Text,
    Thinktime,
    Whole,
    WorkloadName,
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


class WorkloadSettings(Strict):
    """A workload in fio's vocabulary, or `preset:` with what differs. A parameter that is a list is expanded."""

    model_config = ConfigDict(json_schema_extra=lambda schema: or_text(schema, "the name of a preset"))

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
    rate: Many[RateOrShare] | None = Field(
        default=None, description="per job, reads and writes together; or a share of the slowest guest's capacity: 50%"
    )
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


class PresetDocument(Strict):
    """A file of workloads/."""

    about: Text | None = None
    workloads: Many[WorkloadSettings]
