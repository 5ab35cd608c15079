"""Loopback guests: real OpenSSH servers on this machine, one per guest, each on its own 127.0.0.x and free port.

    BASE/calyx-orch-guests-XXXXXX/         made by the fleet, removed by it
      known_hosts                          the host keys of all guests
      guest1/  host_key  user_key  authorized_keys  sshd_config  sshd.log
        home/                              HOME of its sessions
        data/                              the target

A guest's sshd runs as the current user and needs no root. As root it wants the empty directory /run/sshd, which is made
when missing and left, as OpenSSH's own package does. Every sshd asks the kernel to be ended when this process dies
(PR_SET_PDEATHSIG); its sessions end with their connections. Where there is no usable sshd, a server inside this process
speaks the same protocol (transport/ssh/server.py), and `server_kind` says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import pwd
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from calyx_orch.commands.processes import end_tree
from calyx_orch.errors import CalyxError, Fault, UsageError
from calyx_orch.model import Connection
from calyx_orch.transport import Pool, connect
from calyx_orch.transport.ssh.server import LoopbackServer, write_key

START_TIMEOUT_S = 10.0
GUESTS_MAX = 200
RAM_FILE_SYSTEMS = ("tmpfs", "ramfs")
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class LoopbackGuest:
    """One guest: where it listens and where its files are. `extra` are further lines of its sshd_config."""

    name: str
    directory: Path
    address: str
    extra: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = 0
    process: asyncio.subprocess.Process | None = None
    server: LoopbackServer | None = None

    @property
    def home(self) -> Path:
        """HOME of its sessions."""
        return self.directory / "home"

    @property
    def data(self) -> Path:
        """The directory for its I/O."""
        return self.directory / "data"

    @property
    def user_key(self) -> Path:
        """The private key that it lets in."""
        return self.directory / "user_key"

    @property
    def log(self) -> Path:
        """The log of its sshd."""
        return self.directory / "sshd.log"


class LoopbackFleet:
    """`count` guests, up within the `async with` and gone with all their processes and files after it.

    `base` is where their directory is made (default: see `base_directory`). `sshd` names the program; None looks for it,
    and an empty text asks for the server inside this process.
    """

    def __init__(self, count: int, *, base: Path | None = None, sshd: str | None = None) -> None:
        if not 1 <= count <= GUESTS_MAX:
            raise UsageError(f"{count} loopback guests: ask for 1 to {GUESTS_MAX}")
        self._count = count
        self._base = base
        self._sshd = find_sshd() if sshd is None else sshd
        self.directory = Path()
        self.guests: list[LoopbackGuest] = []
        self.note = ""

    @property
    def server_kind(self) -> str:
        """What the guests are behind, in words."""
        return "OpenSSH sshd" if self._sshd else "SSH server of this process (no usable sshd is installed)"

    @property
    def known_hosts(self) -> Path:
        """The file with the host keys of all guests."""
        return self.directory / "known_hosts"

    async def __aenter__(self) -> LoopbackFleet:
        base = self._base or base_directory()
        self.directory = Path(tempfile.mkdtemp(prefix="calyx-orch-guests-", dir=base))
        try:
            self.known_hosts.touch(0o600)
            for number in range(1, self._count + 1):
                await self.add(f"guest{number}")
            if self._sshd:
                await self._prove_login(self.guests[0])
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def add(
        self, name: str, *, extra: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> LoopbackGuest:
        """Start one more guest. `extra` goes in front of its sshd_config, `environment` over its SetEnv."""
        number = len(self.guests) + 1
        address = f"127.0.{number // 250}.{number % 250 + 1}"
        guest = LoopbackGuest(name, self.directory / name, address, tuple(extra), environment or {})
        for directory in (guest.directory, guest.home, guest.data):
            directory.mkdir(mode=0o700)
        host_key = write_key(guest.directory / "host_key", f"host key of {name}")
        (guest.directory / "authorized_keys").write_text(write_key(guest.user_key, f"user key of {name}") + "\n")
        self.guests.append(guest)
        await self._start(guest)
        with self.known_hosts.open("a") as file:
            file.write(f"[{guest.address}]:{guest.port} {host_key}\n")
        return guest

    def connection(self, guest: LoopbackGuest) -> Connection:
        """How to reach a guest."""
        return Connection(
            address=guest.address,
            port=guest.port,
            user=pwd.getpwuid(os.geteuid()).pw_name,
            key_files=(str(guest.user_key),),
            known_hosts=str(self.known_hosts),
        )

    async def stop(self, guest: LoopbackGuest) -> None:
        """End one guest's server and all that runs under it; its files stay."""
        if guest.server is not None:
            await guest.server.close()
            guest.server = None
        if guest.process is not None:
            await end_tree(guest.process)
            guest.process = None

    async def restart(self, guest: LoopbackGuest) -> None:
        """Start a stopped guest again on its port, with the keys and settings that its directory now holds."""
        await self._start(guest)

    async def _start(self, guest: LoopbackGuest) -> None:
        environment = {"HOME": str(guest.home), "PATH": _PATH, **guest.environment}
        if not self._sshd:
            guest.server = LoopbackServer(environment, guest.home)
            keys = guest.directory / "host_key", guest.directory / "authorized_keys"
            guest.port = await guest.server.start(guest.address, *keys)
            return
        guest.port = guest.port or _free_port(guest.address)
        config = guest.directory / "sshd_config"
        config.write_text(_sshd_config(guest, environment))
        _make_separation_directory()
        guest.process = await asyncio.create_subprocess_exec(
            self._sshd, "-D", "-f", str(config), "-E", str(guest.log),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True, preexec_fn=_end_with_parent,
        )  # fmt: skip
        await _wait_until_listening(guest)

    async def _prove_login(self, guest: LoopbackGuest) -> None:
        """Fall back to the server of this process when this sshd lets nobody in (a locked account, a nologin shell)."""
        try:
            async with Pool() as pool:
                transport = await connect(self.connection(guest), pool=pool)
                try:
                    done = await transport.run(("/bin/sh", "-c", "exit 7"), timeout_s=START_TIMEOUT_S)
                finally:
                    await transport.close()
            if done.status == 7:
                return
            self.note = f"sshd runs no command (status {done.status})"
        except CalyxError as error:
            self.note = str(error)
        self._sshd = ""
        self.known_hosts.write_text("")
        for each in self.guests:
            await self.stop(each)
            await self._start(each)
            public = (each.directory / "host_key.pub").read_text()
            with self.known_hosts.open("a") as file:
                file.write(f"[{each.address}]:{each.port} {public}")

    async def _end(self) -> None:
        # Shielded: a second Ctrl-C must not leave servers behind.
        await asyncio.shield(asyncio.gather(*(self.stop(guest) for guest in self.guests), return_exceptions=True))
        self.guests = []
        shutil.rmtree(self.directory, ignore_errors=True)


def find_sshd() -> str:
    """The sshd of this machine, or an empty text."""
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/sbin") or ""


def base_directory() -> Path:
    """Where loopback guests get their disks: the first writable place that is no RAM disk, else the temporary directory."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    with contextlib.suppress(OSError):
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    for place in (Path(tempfile.gettempdir()), Path("/var/tmp"), cache, Path.cwd()):
        if os.access(place, os.W_OK | os.X_OK) and file_system_of(place) not in RAM_FILE_SYSTEMS:
            return place
    return Path(tempfile.gettempdir())


def file_system_of(path: Path) -> str:
    """The type of the file system that holds `path`, by /proc/self/mounts; `unknown` when it cannot be told."""
    best, kind = "", "unknown"
    resolved = str(path.resolve())
    try:
        mounts = Path("/proc/self/mounts").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return kind
    for line in mounts:
        mount, fs_type = line.split()[1:3]
        mount = mount.replace("\\040", " ")
        inside = resolved == mount or resolved.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, fs_type
    return kind


def _sshd_config(guest: LoopbackGuest, environment: Mapping[str, str]) -> str:
    # sshd takes the first value it meets, so what a caller adds goes first; only SetEnv must be one line.
    lines = [
        *guest.extra,
        f"Port {guest.port}",
        f"ListenAddress {guest.address}",
        f"HostKey {guest.directory}/host_key",
        f"AuthorizedKeysFile {guest.directory}/authorized_keys",
        "SetEnv " + " ".join(f'"{name}={value}"' for name, value in environment.items()),
        "AuthenticationMethods publickey",
        "PermitRootLogin prohibit-password",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitUserRC no",
        "PrintMotd no",
        "PrintLastLog no",
        "UseDNS no",
        "UsePAM no",
        "StrictModes no",
        "MaxStartups 100",
        "PidFile none",
        "LogLevel VERBOSE",
    ]
    return "\n".join(lines) + "\n"


def _make_separation_directory() -> None:
    """Sshd of root refuses to start without it; a system's own sshd is there already, or would make it in the same way."""
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _wait_until_listening(guest: LoopbackGuest) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        assert guest.process is not None
        if guest.process.returncode is not None:
            break
        try:
            _, writer = await asyncio.open_connection(guest.address, guest.port)
        except OSError:
            await asyncio.sleep(0.01)
            continue
        writer.close()
        return
    log = guest.log.read_text(errors="replace").strip() if guest.log.exists() else "it said nothing"
    raise Fault(f"the sshd of {guest.name} did not start on {guest.address}:{guest.port}: {log[-500:]}")


def inventory_yaml(
    fleet: LoopbackFleet,
    *,
    vm_hosts: Mapping[str, Sequence[str]] | None = None,
    storage: Mapping[str, Sequence[str]] | None = None,
    body: str = "",
) -> str:
    """An inventory of the fleet's guests. `vm_hosts` and `storage` name their guests; `body` is the rest (workloads ...)."""
    lines = ["name: loopback", "defaults:"]
    lines += [f"  user: {json.dumps(pwd.getpwuid(os.geteuid()).pw_name)}"]
    lines += [f"  known_hosts: {json.dumps(str(fleet.known_hosts))}"]
    lines += ["  same_machine: true"]
    for key, places in (("vm_hosts", vm_hosts), ("storage", storage)):
        if places:
            lines += [f"{key}:"] + [f"  {json.dumps(name)}:" for name in places]
    lines += ["guests:"]
    on_ram = file_system_of(fleet.directory) in RAM_FILE_SYSTEMS
    for guest in fleet.guests:
        lines += [f"  {guest.name}:", f"    address: {guest.address}", f"    port: {guest.port}"]
        lines += [f"    key: {json.dumps(str(guest.user_key))}"]
        for key, places in (("vm_host", vm_hosts), ("storage", storage)):
            lines += [
                f"    {key}: {json.dumps(name)}" for name, members in (places or {}).items() if guest.name in members
            ]
        lines += [
            "    targets:",
            f"      data: {{path: {json.dumps(str(guest.data))}, allow_ram: {str(on_ram).lower()}}}",
        ]
    return "\n".join(lines) + "\n" + body


# 2 workloads x (together + 2 alone) x ABBA of two engines = 24 rounds of about 2.5 s.
_DEMO = """\
workloads:
  - {name: randread-4k, rw: randread, bs: 4k, iodepth: 8, size: 64m, runtime: 1.2s, ramp_time: 0.3s}
  - {name: write-1m, rw: write, bs: 1m, iodepth: 4, size: 64m, runtime: 1.2s, ramp_time: 0.3s}
baselines: auto
repetitions: 1
load: [together, alone]
settle: 0.5s
lost_time_probe: 0.1s
"""


def demo_inventory(fleet: LoopbackFleet) -> str:
    """The inventory of `calyx-orch demo`: two short workloads, and the guests on two vm_hosts."""
    names = [guest.name for guest in fleet.guests]
    half = (len(names) + 1) // 2
    vm_hosts = {name: members for name, members in (("hv1", names[:half]), ("hv2", names[half:])) if members}
    return inventory_yaml(fleet, vm_hosts=vm_hosts, body=_DEMO)
