"""Who is measured and how it is reached: targets, guests, groups, vm_hosts, storage, jump hosts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from calyx_orch.inventory.settings.strict import Strict, or_text
from calyx_orch.inventory.values import (
    BY_ID,
    AgentDir,
    Boolean,
    Device,
    Directory,
    Duration,
    Labels,
    Many,
    Program,
    Rate,
    Size,
    Text,
    Whole,
)


class TargetSettings(Strict):
    """A directory in which the files of the I/O are made: a path, or a mapping with a path. Or a raw device, which is overwritten."""

    model_config = ConfigDict(json_schema_extra=lambda schema: or_text(schema, "an absolute path of a directory"))

    path: Directory | None = None
    allow_ram: Boolean = Field(default=False, description="a file system (tmpfs) or a raw device in memory is meant")
    reserve: Size | None = Field(
        default=None, description="what stays free on the file system; default: 5 % of it, 64 MiB to 4 GiB"
    )
    device: Device | None = Field(default=None, description="a raw device by its stable name: /dev/disk/by-id/...")
    serial: Text | None = Field(default=None, description="the serial number of the raw device")
    destructive: Boolean = Field(default=False, description="true: the content of the raw device is destroyed")
    keep_files: Boolean | None = Field(
        default=None, description="whether the files stay for the next run; default: as the guest says"
    )

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
        if raw and self.keep_files:
            raise ValueError(
                "'keep_files' has no meaning for a raw device: it has no place for a record of what was left on it"
            )
        if raw and not self.destructive:
            raise ValueError("the content of a raw device is destroyed: write destructive: true when that is meant")
        if raw and self.serial is None and not (self.device or "").startswith(BY_ID):
            raise ValueError(
                f"{self.device} may be another disk after the next boot: give its stable name ({BY_ID}...), or its serial: as well"
            )
        return self


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
    keep_files: Boolean | None = Field(
        default=None, description="the files of directories stay for the next run, which reuses them; default: false"
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
        json_schema_extra=lambda schema: or_text(schema, "the name, which is the address as well")
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


def _shape(value: Any) -> str | None:
    return "(mapping)" if isinstance(value, dict) else "(list)" if isinstance(value, list) else None


Guests = Annotated[
    Annotated[dict[str, GuestSettings | None], Tag("(mapping)")] | Annotated[list[NamedGuest], Tag("(list)")],
    Discriminator(_shape),
]
