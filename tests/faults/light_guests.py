"""Light guests: each has a network, mounts, processes and a host name of its own, and shares only the kernel.

    controller (in the switch's network namespace)
        |
      bridge cx0  10.77.0.1          a namespace, held by a process that sleeps
        |- cx1 =veth= eth0           guest 1: network, mount, process and host name namespaces; a shell is its process 1 and starts sshd
        `- cx2 =veth= eth0           guest 2

A link is taken down, traffic is dropped and power is cut at one guest without touching the other, nor this machine's own network.
Namespaces live no longer than the processes in them, so nothing outlives a test, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

import pytest

from calyx_agent import executables as shipped
from calyx_orch.commands.loopback import LoopbackGuest, find_sshd
from calyx_orch.transport.ssh.server import write_key
from fleet.disks import need_root
from fleet.whole_runs import left_files, processes_of

START_WITHIN_S = 20.0
BRIDGE = "10.77.0.1"

_INIT = """\
#!/bin/sh
# Process 1 of a guest: starts its sshd, and takes care of orphans.
set -e
hostname {name}
until ip link show eth0 >/dev/null 2>&1; do sleep 0.01; done
ip link set lo up
ip address add {address}/24 dev eth0
ip link set eth0 up
{sshd} -D -e -f {directory}/sshd_config &
while :; do wait; sleep 1; done
"""

_CONFIG = """\
Port 22
ListenAddress {address}
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/authorized_keys
SetEnv "HOME={directory}/home" "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
AuthenticationMethods publickey
PermitRootLogin prohibit-password
PermitUserRC no
PrintMotd no
PrintLastLog no
UseDNS no
UsePAM no
StrictModes no
PidFile none
"""


class LightFleet:
    """`guests` behind a switch of their own. Has what `inventory_yaml` and the checks of whole runs ask of a fleet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.guests: list[LoopbackGuest] = []
        self._switch: asyncio.subprocess.Process | None = None

    @property
    def known_hosts(self) -> Path:
        """The host keys of all guests."""
        return self.directory / "known_hosts"

    @property
    def within(self) -> tuple[str, ...]:
        """Words that start a program where the guests can be reached."""
        assert self._switch is not None
        return ("nsenter", f"--net=/proc/{self._switch.pid}/ns/net")

    async def open(self, count: int) -> None:
        """Make the switch and start the guests."""
        self._switch = await _start(["unshare", "--net", "sleep", "infinity"], asyncio.subprocess.DEVNULL)
        await _until(lambda: _net(self._switch.pid) != _net(os.getpid()) if self._switch else False)
        self._at_switch("ip link set lo up")
        self._at_switch("ip link add cx0 type bridge")
        self._at_switch(f"ip address add {BRIDGE}/24 dev cx0")
        self._at_switch("ip link set cx0 up")
        for number in range(1, count + 1):
            guest = LoopbackGuest(f"guest{number}", self.directory / f"guest{number}", f"10.77.0.{number + 1}", port=22)
            for directory in (guest.directory, guest.home, guest.data):
                directory.mkdir(mode=0o700)
            public = write_key(guest.directory / "host_key", guest.name)
            (guest.directory / "authorized_keys").write_text(write_key(guest.user_key, guest.name) + "\n")
            with self.known_hosts.open("a") as file:
                file.write(f"{guest.address} {public}\n")
            self.guests.append(guest)
            await self.power_on(guest)

    async def power_on(self, guest: LoopbackGuest) -> None:
        """Start a guest, with the files that its directory holds."""
        facts = {
            "name": guest.name, "address": guest.address, "directory": guest.directory, "sshd": find_sshd(),
        }  # fmt: skip
        (guest.directory / "sshd_config").write_text(_CONFIG.format(**facts))
        init = guest.directory / "init"
        init.write_text(_INIT.format(**facts))
        init.chmod(0o700)
        with guest.log.open("ab") as log:
            unshare = ["unshare", "--net", "--mount-proc", "--uts", "--pid", "--fork", "--kill-child", str(init)]
            guest.process = process = await _start(unshare, log)
        await _until(lambda: _net(process.pid) != _net(os.getpid()))
        self._at_switch(f"ip link add {_port(guest)} type veth peer name eth0 netns {process.pid}")
        self._at_switch(f"ip link set {_port(guest)} master cx0 up")
        deadline = time.monotonic() + START_WITHIN_S
        probe = ["bash", "-c", f"read -r -t 1 word </dev/tcp/{guest.address}/22 && [[ $word == SSH-* ]]"]
        while subprocess.run([*self.within, *probe], capture_output=True, check=False).returncode:
            assert time.monotonic() < deadline, guest.log.read_text()
            await asyncio.sleep(0.02)

    async def power_off(self, guest: LoopbackGuest) -> None:
        """Cut its power: no process of it gets a last word, and no packet leaves."""
        assert guest.process is not None
        self.link(guest, up=False)
        await _end(guest.process)
        guest.process = None
        gone = [*self.within, "ip", "link", "delete", _port(guest)]
        subprocess.run(gone, capture_output=True, check=False)  # it may have gone with the guest's end of it

    def link(self, guest: LoopbackGuest, *, up: bool) -> None:
        """Pull or plug in its cable."""
        self._at_switch(f"ip link set {_port(guest)} {'up' if up else 'down'}")

    def drop(self, guest: LoopbackGuest, rule: str = "drop", *, ways: Sequence[str] = ("input", "output")) -> None:
        """Let all its traffic vanish both ways while its link stays up; `rule` is another end, in nftables' words."""
        self._at_guest(guest, "nft", "add table inet fault")
        for way in ways:
            chain = f"add chain inet fault {way} {{ type filter hook {way} priority 0; }}"
            self._at_guest(guest, "nft", chain)
            self._at_guest(guest, "nft", f"add rule inet fault {way} {rule}")

    def undrop(self, guest: LoopbackGuest) -> None:
        """Let its traffic pass again."""
        self._at_guest(guest, "nft", "delete table inet fault")

    def processes(self, guest: LoopbackGuest) -> dict[int, str]:
        """The processes of a run on a guest, by pid: all but its sshd and what waits for a login."""
        below = set(descendants(guest.process.pid)) if guest.process is not None else set()
        found = processes_of(guest.directory)
        return {pid: words for pid, words in found.items() if pid in below and not _is_of_system(words)}

    async def nothing_left(self, guests: Sequence[LoopbackGuest] = (), *, within_s: float) -> float:
        """Assert that these guests (none named: all) soon hold no process and no file of a run. Returns how long it took, s."""
        began = time.monotonic()
        while True:
            chosen = guests or self.guests
            left: list[object] = [words for guest in chosen for words in self.processes(guest).items()]
            left += [name for guest in chosen for name in left_files(guest)]
            if not left:
                return time.monotonic() - began
            assert time.monotonic() - began < within_s, left
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        """End all guests, waking what was stopped, and the switch."""
        for guest in self.guests:
            if guest.process is not None:
                await _end(guest.process)
        if self._switch is not None:
            await _end(self._switch)

    def _at_switch(self, words: str) -> None:
        _call([*self.within, *words.split()])

    def _at_guest(self, guest: LoopbackGuest, *words: str) -> None:
        assert guest.process is not None
        _call(["nsenter", f"--net=/proc/{guest.process.pid}/ns/net", *words])


@asynccontextmanager
async def light_guests(count: int, base: Path) -> AsyncIterator[LightFleet]:
    """`count` light guests, gone with all they hold after it; skips aloud where they cannot be had."""
    need_root("setpriv", "unshare", "nsenter", "ip", "nft")
    if not find_sshd():
        pytest.skip("no sshd is installed: install openssh-server")
    if not shipped.available():
        pytest.skip("no agent executable is built: run `make build`")
    _make_separation_directory()
    fleet = LightFleet(Path(tempfile.mkdtemp(prefix="calyx-orch-guests-", dir=base)))
    try:
        await fleet.open(count)
        yield fleet
    finally:
        await fleet.close()
        shutil.rmtree(fleet.directory)


def _make_separation_directory() -> None:
    """Sshd of root refuses to start without it."""
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def children(pid: int) -> list[int]:
    """The processes that a process started, by whichever of its threads, and has not lost."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, thread.read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    return [one for child in children(pid) for one in (child, *descendants(child))]


def _port(guest: LoopbackGuest) -> str:
    return f"cx{guest.name.removeprefix('guest')}"


def _net(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return _net(os.getpid())


def _is_of_system(words: str) -> bool:
    return words.startswith(("sshd:", "unshare ", "setpriv ", "/bin/sh /", "sleep ")) or " -D -e -f " in words


def _call(words: Sequence[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, (words, done.stderr)


async def _start(words: Sequence[str], log: int | IO[bytes]) -> asyncio.subprocess.Process:
    """Start it so that it is ended when this process dies, and all below it with it."""
    return await asyncio.create_subprocess_exec(
        "setpriv", "--pdeathsig", "TERM", *words, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
        start_new_session=True,
    )  # fmt: skip


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill it; the process 1 below it goes along, and with that all of its namespace."""
    below = [Path(f"/proc/{pid}") for pid in descendants(process.pid)]
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
    await _until(lambda: not any(map(_lives, below)))


def _lives(process: Path) -> bool:
    try:
        return (process / "stat").read_text(errors="replace").rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


async def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_WITHIN_S
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
