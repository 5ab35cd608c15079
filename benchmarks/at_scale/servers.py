"""Many guests behind few real sshds: sixteen addresses of 127.0.0.0/8 each, every address a guest with a home and a target of its own.

An sshd a guest, as loopback fleets have it, would cost more than what is measured: here 1000 guests are 63 listening processes. What
a controller sees is the same: a connection, a session and an agent for each guest, host keys by address.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import pwd
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from calyx_orch.commands.loopback import find_sshd
from calyx_orch.commands.processes import end_tree
from calyx_orch.transport.ssh.server import write_key

ADDRESSES_EACH = 16  # as many sockets as one sshd listens on
PORT = 20_222
START_WITHIN_S = 30.0
LEFT_TRIES = 50
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class NoServersError(Exception):
    """Why there are no guests, as a sentence."""


@dataclass(frozen=True)
class Servers:
    """The guests that are up: `addresses` in order, all on `PORT`, with one user key."""

    directory: Path
    addresses: tuple[str, ...]

    @property
    def user(self) -> str:
        """Who logs in."""
        return pwd.getpwuid(os.geteuid()).pw_name

    @property
    def key(self) -> Path:
        """The private key that all of them let in."""
        return self.directory / "user_key"

    @property
    def known_hosts(self) -> Path:
        """A line for each guest."""
        return self.directory / "known_hosts"

    def inventory(self, count: int, body: str) -> str:
        """An inventory of the first `count` guests; `body` is the rest (workloads ...)."""
        lines = ["name: at-scale", "defaults:", f"  user: {json.dumps(self.user)}", f"  port: {PORT}"]
        lines += [f"  key: {json.dumps(str(self.key))}", f"  known_hosts: {json.dumps(str(self.known_hosts))}"]
        lines += ["  same_machine: true", "guests:"]
        for number, address in enumerate(self.addresses[:count]):
            data = json.dumps(str(self.directory / address / "data"))
            lines += [f"  guest{number:04}:", f"    address: {address}", "    targets:"]
            lines += [f"      data: {{path: {data}, allow_ram: true}}"]
        return "\n".join(lines) + "\n" + body

    def write_inventory(self, directory: Path, count: int, body: str) -> Path:
        """The same as a file in `directory`."""
        path = directory / "inventory.yaml"
        path.write_text(self.inventory(count, body))
        return path


def addresses(count: int) -> tuple[str, ...]:
    """So many addresses of the loopback network."""
    return tuple(f"127.77.{number // 250}.{number % 250 + 1}" for number in range(count))


@contextlib.asynccontextmanager
async def serving(count: int) -> AsyncIterator[Servers]:
    """So many guests; their processes and files are gone afterwards. Raises NoServersError."""
    sshd = find_sshd()
    if not sshd:
        raise NoServersError("no sshd is installed")
    with tempfile.TemporaryDirectory(prefix="calyx-scale-", dir="/dev/shm") as base:  # not the disk is measured
        servers = _prepared(Path(base), count)
        started: list[asyncio.subprocess.Process] = []
        try:
            for first in range(0, count, ADDRESSES_EACH):
                started.append(await _start(sshd, servers, servers.addresses[first : first + ADDRESSES_EACH]))
            for first in range(0, count, ADDRESSES_EACH):
                await _wait_until_listening(servers.addresses[first], started[first // ADDRESSES_EACH])
            yield servers
        finally:
            await asyncio.gather(*(end_tree(process) for process in started))
            await _left_alone(servers.directory)


def _prepared(directory: Path, count: int) -> Servers:
    """Keys, known hosts, homes and targets of so many guests."""
    servers = Servers(directory, addresses(count))
    host_key = write_key(servers.directory / "host_key", "host key")
    (servers.directory / "authorized_keys").write_text(write_key(servers.key, "user key") + "\n")
    lines = [f"[{address}]:{PORT} {host_key}\n" for address in servers.addresses]
    servers.known_hosts.write_text("".join(lines))
    for address in servers.addresses:
        for name in ("home", "data"):
            (servers.directory / address / name).mkdir(parents=True, mode=0o700)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    return servers


async def _start(sshd: str, servers: Servers, mine: tuple[str, ...]) -> asyncio.subprocess.Process:
    config = servers.directory / f"sshd_config-{mine[0]}"
    lines = [f"Port {PORT}", *(f"ListenAddress {address}" for address in mine)]
    lines += [f"HostKey {servers.directory}/host_key", f"AuthorizedKeysFile {servers.directory}/authorized_keys"]
    lines += ["AuthenticationMethods publickey", "PermitRootLogin prohibit-password", "PasswordAuthentication no"]
    lines += ["KbdInteractiveAuthentication no", "PermitUserRC no", "PrintMotd no", "PrintLastLog no", "UseDNS no"]
    lines += ["UsePAM no", "StrictModes no", "MaxStartups 1000", "PidFile none", "LogLevel ERROR"]
    for address in mine:
        home = servers.directory / address / "home"
        lines += [f"Match LocalAddress {address}", f'    SetEnv "HOME={home}" "PATH={_PATH}"']
    config.write_text("\n".join(lines) + "\n")
    return await asyncio.create_subprocess_exec(
        sshd, "-D", "-f", str(config), "-E", str(config.with_suffix(".log")),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True, preexec_fn=_end_with_parent,
    )  # fmt: skip


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _wait_until_listening(address: str, process: asyncio.subprocess.Process) -> None:
    deadline = time.monotonic() + START_WITHIN_S
    while time.monotonic() < deadline and process.returncode is None:
        try:
            _, writer = await asyncio.open_connection(address, PORT)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        return
    raise NoServersError(f"the sshd of {address}:{PORT} did not start: is the port taken?")


async def _left_alone(directory: Path) -> None:
    """Wait a moment until agents, which end with their channels, have removed their directories."""
    for _ in range(LEFT_TRIES):
        if not await asyncio.to_thread(_left, directory):
            return
        await asyncio.sleep(0.1)


def _left(directory: Path) -> list[Path]:
    return list(directory.glob("*/data/.calyx-orch-*"))
