"""Host keys: which are known, what to say about one that is not, and how `accept-new` records it.

Files are read as OpenSSH reads them, but a line that cannot be parsed is passed over instead of failing every guest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from calyx_orch.errors import ReachError
from calyx_orch.model import Connection, HostKeyPolicy

GLOBAL_FILE = Path("/etc/ssh/ssh_known_hosts")


@dataclass(frozen=True)
class KnownLine:
    """An entry of a known_hosts file that matches a host: where it stands, and the fingerprint of its key."""

    path: Path
    number: int
    fingerprint: str


@dataclass
class HostKeys:
    """The known_hosts of one setting. `record_in` is where `accept-new` appends (None: strict)."""

    files: tuple[Path, ...]
    record_in: Path | None = None
    known: asyncssh.SSHKnownHosts = field(default_factory=asyncssh.SSHKnownHosts)

    @classmethod
    def of(cls, connection: Connection, named: Sequence[str] = ()) -> HostKeys:
        """Load the files of a connection: its own, else those `named` by ssh_config, else the user's and the system's."""
        paths = (connection.known_hosts,) if connection.known_hosts is not None else tuple(named)
        files = tuple(Path(path).expanduser() for path in paths)
        if not files:
            files = (Path("~/.ssh/known_hosts").expanduser(), GLOBAL_FILE)
        accepts = connection.host_key_policy is HostKeyPolicy.ACCEPT_NEW
        keys = cls(files, files[0] if accepts else None)
        if connection.known_hosts is not None and not accepts and not files[0].exists():
            raise ReachError(
                f"the known_hosts file {files[0]} does not exist: correct `known_hosts`, or make it with ssh-keyscan and compare "
                "the fingerprints",
                at="host key",
            )
        for path in files:
            for line in _lines(path):
                _load(keys.known, line)
        return keys

    def lookup(self, host: str, address: str, port: int | None) -> tuple[Sequence[object], ...]:
        """What asyncssh asks `known` for, but a key that is revoked for `[host]:port` stays so.

        asyncssh forgets it when no line trusts a key on that port, and looks for lines without a port instead.
        """
        trusted, authorities, revoked, *rest = self.known.match(host, address, port)
        if port:
            names = (f"[{name}]:{port}" for name in (host, address) if name)
            revoked = [*revoked, *(key for name in names for key in self.known.match(name, "", None)[2])]
        return (trusted, authorities, revoked, *rest)

    def matches(self, host: str, address: str, port: int) -> tuple[KnownLine, ...]:
        """The entries that name this host, on this port."""
        found: list[KnownLine] = []
        for path in self.files:
            for number, line in enumerate(_lines(path), start=1):
                entry = asyncssh.SSHKnownHosts()
                _load(entry, line)
                keys = entry.match(host, address, port if port != 22 else None)[0]
                found += [KnownLine(path, number, key.get_fingerprint()) for key in keys]
        return tuple(found)

    def record(self, host: str, port: int, key: asyncssh.SSHKey) -> None:
        """Trust `key` from now on and append it to the file. Raises ReachError when the file cannot be written."""
        assert self.record_in is not None
        name = host if port == 22 else f"[{host}]:{port}"
        line = f"{name} {key.export_public_key('openssh').decode().strip()}"
        try:
            self.record_in.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.record_in, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "wb") as file:  # one write: many guests append at once
                file.write(_newline_if_missing(self.record_in) + line.encode() + b"\n")
        except OSError as error:
            raise ReachError(
                f"cannot record the host key in {self.record_in}: {error.strerror}", at="host key"
            ) from None
        _load(self.known, line)


def _newline_if_missing(path: Path) -> bytes:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return b""
        file.seek(-1, os.SEEK_END)
        return b"" if file.read(1) == b"\n" else b"\n"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_bytes().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _load(into: asyncssh.SSHKnownHosts, line: str) -> None:
    try:
        into.load(line)
    except ValueError:
        return
