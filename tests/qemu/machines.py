"""Guests with kernels of their own: QEMU without acceleration, an NVMe disk for each file system, sshd on a port of loopback.

Images come from tools/guest_image.py and are never written to. At the end of the `with` the machines' processes have ended and
what their disks held is gone.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "guest_image.py"
NO_PACKAGES = 75  # its exit status then
FILE_SYSTEMS = ("ext4", "xfs")
DISK_MIB = 512
MEMORY_MIB = 320
BUILD_S = 400.0
BOOT_S = 120.0
END_S = 10.0


def image_of(suite: str) -> Path:
    """The image of that suite, built where it is missing; skips aloud where this machine cannot."""
    needed = ("qemu-system-x86_64", "mmdebstrap", "mke2fs", "ssh", "ssh-keygen")
    missing = [program for program in needed if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: install qemu-system-x86, mmdebstrap, e2fsprogs and openssh-client")
    if os.uname().machine != "x86_64":
        pytest.skip(f"the guests are x86_64, this machine is {os.uname().machine}")
    made = subprocess.run([sys.executable, TOOL, suite], capture_output=True, text=True, timeout=BUILD_S, check=False)
    if made.returncode == NO_PACKAGES or (made.returncode != 0 and os.geteuid() != 0):
        pytest.skip(f"no image of {suite} can be built: {made.stderr.strip()[-400:]}")
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip())


@dataclass(frozen=True)
class Machine:
    """One guest. `port` of 127.0.0.1 leads to its sshd, which lets root in with `key`."""

    name: str
    port: int
    image: Path
    directory: Path
    process: subprocess.Popen[bytes]

    @property
    def key(self) -> Path:
        """The private key that root is let in with."""
        return self.image / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """A file with the host key of this guest."""
        path = self.directory / "known_hosts"
        path.write_text(f"[127.0.0.1]:{self.port} {(self.image / 'host_key.pub').read_text()}")
        return path

    def ssh(self, command: str) -> list[str]:
        """The words that run a command on the guest."""
        options = [f"UserKnownHostsFile={self.known_hosts}", "BatchMode=yes", "ConnectTimeout=60"]
        return [
            "ssh", "-q", "-F", "none", "-i", str(self.key), "-p", str(self.port), *(f"-o{option}" for option in options),
            "root@127.0.0.1", command,
        ]  # fmt: skip

    def shell(self, command: str) -> str:
        """What a command prints on the guest."""
        return subprocess.run(self.ssh(command), check=True, stdout=subprocess.PIPE, text=True, timeout=90).stdout

    def fall_silent(self) -> None:
        """The machine is gone as its power is: nothing runs on, nothing is sent, no connection is closed."""
        self.process.send_signal(signal.SIGSTOP)

    def end(self) -> None:
        """End the machine's process, whatever its state."""
        self.process.kill()
        self.process.wait(END_S)


@contextmanager
def machines(suites: Sequence[str], base: Path, *, cpus: int = 2) -> Iterator[list[Machine]]:
    """A guest of each suite, named by it, booted side by side; each answers on its SSH port."""
    with ExitStack() as stack:
        made = []
        for suite in suites:
            made.append(_start(suite, image_of(suite), base / suite, cpus))
            stack.callback(shutil.rmtree, made[-1].directory, ignore_errors=True)
            stack.callback(made[-1].end)
        for machine in made:
            _wait_until_up(machine)
        yield made


def _start(name: str, image: Path, directory: Path, cpus: int) -> Machine:
    directory.mkdir()
    for kind in FILE_SYSTEMS:
        with (directory / f"{kind}.img").open("wb") as disk:
            disk.truncate(DISK_MIB << 20)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with (directory / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            _command(name, image, directory, port, cpus),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | {"TMPDIR": str(directory)},  # where QEMU keeps what is written over an image
        )
    return Machine(name, port, image, directory, process)


def _command(name: str, image: Path, directory: Path, port: int, cpus: int) -> list[str]:
    """Room for two CPUs is told even for one: where there can be only one QEMU leaves out barriers, and NVMe requests get lost."""
    kernel = (
        f"tsc_early_khz={_tsc_khz()} "  # else it is measured at boot, and is off by any factor where the machine is busy
        f"root=PARTUUID=ca17c0de-01 rw rootwait init=/sbin/calyx-init guest={name} console=ttyS0 quiet panic=-1 net.ifnames=0 "
        "mitigations=off tsc=reliable no_timer_check random.trust_cpu=on nvme.poll_queues=1"
    )
    words = [
        "qemu-system-x86_64", "-name", name, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
        "-accel", "tcg,thread=multi,tb-size=128", "-machine", "q35,hpet=off,vmport=off", "-cpu", "max",
        "-smp", f"{cpus},maxcpus={max(2, cpus)}", "-m", str(MEMORY_MIB), "-serial", f"file:{directory / 'console'}",
        "-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22", "-device", "virtio-net-pci,netdev=net,romfile=",
        "-object", "rng-random,id=random,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=random",
        "-kernel", str(image / "vmlinuz"), "-append", kernel, *_disk("root", image / "root.img", "snapshot=on"),
    ]  # fmt: skip
    for kind in FILE_SYSTEMS:
        words += _disk(kind, directory / f"{kind}.img", "cache=unsafe,discard=unmap")
    return words


@cache
def _tsc_khz() -> int:
    """How fast the time stamp counter of this machine runs, which is the guests' as well, from 0.2 s of it."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("0f31 48c1e220 4809d0 c3"))  # rdtsc; shl $32, %rdx; or %rdx, %rax; ret
    counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    began_ticks, began_ns = counter(), time.monotonic_ns()
    time.sleep(0.2)
    ticks, passed_ns = counter() - began_ticks, time.monotonic_ns() - began_ns
    return round(ticks * 1_000_000 / passed_ns)


def _disk(serial: str, path: Path, options: str) -> list[str]:
    drive = f"if=none,id={serial},file={path},format=raw,{options}"
    return ["-drive", drive, "-device", f"nvme,drive={serial},serial={serial},max_ioqpairs=8,ioeventfd=off"]


def _wait_until_up(machine: Machine) -> None:
    """QEMU itself accepts on the port from the start, so only the server's greeting tells that the guest is up."""
    end = time.monotonic() + BOOT_S
    while not _greets(machine.port):
        if machine.process.poll() is not None:
            pytest.fail(f"QEMU ended: {(machine.directory / 'stderr').read_text(errors='replace')}")
        if time.monotonic() > end:
            console = machine.directory / "console"
            told = console.read_text(errors="replace")[-1500:] if console.exists() else "(none)"
            pytest.fail(f"{machine.name} was not up within {BOOT_S:.0f} s; its console: {told}")
        time.sleep(0.2)


def _greets(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as connection:
            connection.settimeout(2)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
