"""Who is measured and how it is reached: connection, target, guest, place."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

NANOSECONDS = 1_000_000_000
KEEP_BYTES_MAX = 120  # of the name of kept files, which an agent writes into its record


class HostKeyPolicy(StrEnum):
    """How an unknown host key is met: refused, or recorded at the first sight."""

    STRICT = "strict"
    ACCEPT_NEW = "accept-new"


class TransportKind(StrEnum):
    """What carries the agent's lines."""

    SSH = "ssh"
    LOCAL = "local"
    SIMULATED = "simulated"


@dataclass(frozen=True)
class Connection:
    """How a guest (or a jump host) is reached. `user` None: the SSH default; `key_files` empty: agent and default keys."""

    address: str
    port: int = 22
    user: str | None = None
    key_files: tuple[str, ...] = ()
    jump: Connection | None = None
    ssh_config: str | None = None
    known_hosts: str | None = None
    host_key_policy: HostKeyPolicy = HostKeyPolicy.STRICT
    connect_timeout_s: float = 15.0
    transport: TransportKind = TransportKind.SSH


@dataclass(frozen=True)
class Target:
    """A named place on a guest where I/O goes: a directory in which files are made, or a raw device.

    `allow_ram`: memory is meant. `reserve_bytes` stay free on the directory's file system (None: `reserve_of`). A raw `device`
    is overwritten; its path is a device node, or `serial:TEXT`; `serial` is what its serial number must be (None: not said).
    `keep_files`: files of a directory stay for the next run.
    """

    name: str
    path: str
    allow_ram: bool = False
    device: bool = False
    serial: str | None = None
    reserve_bytes: int | None = None
    keep_files: bool = False


@dataclass(frozen=True)
class Limits:
    """What the way to a guest's storage can carry at most, in bytes per second; None: not said."""

    max_read_bytes_per_s: int | None = None
    max_write_bytes_per_s: int | None = None


@dataclass(frozen=True)
class Guest:
    """One virtual machine that is measured. `line` is where the inventory names it (0: nowhere).

    `become` are the words in front of the agent's start that give it another user's rights; empty: none are asked for.
    """

    name: str
    connection: Connection
    targets: tuple[Target, ...]
    vm_host: str | None = None
    storage: str | None = None
    groups: tuple[str, ...] = ()
    fio_path: str | None = None
    agent_dir: str | None = None
    become: tuple[str, ...] = ()
    same_machine: bool = False
    dead_man_s: float = 10.0
    labels: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()
    line: int = 0

    def kept_as(self, target: Target) -> str:
        """Whose kept files those of a target are: no other target has that name. Empty: they are removed at the end of the run."""
        if not target.keep_files or target.device:
            return ""
        name = f"{self.name}/{target.name}".encode()
        if len(name) <= KEEP_BYTES_MAX:
            return name.decode()
        digest = hashlib.sha256(name).hexdigest()[:16]
        return f"{name[: KEEP_BYTES_MAX - len(digest) - 1].decode(errors='ignore')}-{digest}"

    @property
    def domain(self) -> str:
        """The contention domain: `storage:NAME`, else `vm_host:NAME`, else the guest itself."""
        if self.storage is not None:
            return f"storage:{self.storage}"
        return f"vm_host:{self.vm_host}" if self.vm_host is not None else f"guest:{self.name}"


@dataclass(frozen=True)
class Place:
    """A vm_host or a storage pool: its name and the free space the inventory declares (None: undeclared)."""

    name: str
    free_bytes: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
