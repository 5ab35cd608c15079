"""Whole runs by the real command line: start `calyx-orch`, watch its phases, read its run folder, look for what is left."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from calyx_agent import executables as shipped
from calyx_orch.analysis.summary import Summary, summarise
from calyx_orch.commands.loopback import LoopbackFleet, LoopbackGuest, find_sshd
from calyx_orch.commands.processes import descendants
from calyx_orch.model import GuestOutcome, RunRecord
from calyx_orch.store import archive

WITHIN_S = 100.0

TINY = """\
workloads:
  - {name: randread, rw: randread, bs: 4k, iodepth: 4, size: 8m, runtime: 0.6s, ramp_time: 0.1s, rate_iops: 400}
baselines: none
repetitions: 1
settle: 0
lost_time_probe: 0
"""


@asynccontextmanager
async def guests_up(count: int, base: Path) -> AsyncIterator[LoopbackFleet]:
    """`count` guests, each behind a real sshd; skips aloud where there is none or no agent is built."""
    if not find_sshd():
        pytest.skip("no sshd is installed: install openssh-server")
    if not shipped.available():
        pytest.skip("no agent executable is built: run `make build`")
    async with LoopbackFleet(count, base=base) as fleet:
        assert fleet.server_kind == "OpenSSH sshd", fleet.note
        yield fleet


@dataclass(frozen=True)
class Ended:
    """How a command line ended: its exit code and all it printed."""

    status: int
    out: str
    err: str
    folder: Path

    @property
    def record(self) -> RunRecord:
        """The run as it is read back from its folder."""
        return archive.read(self.folder)

    @property
    def summary(self) -> Summary:
        """The rows of the run."""
        return summarise(self.record)

    @property
    def outcomes(self) -> dict[str, GuestOutcome]:
        """How each guest ended."""
        return {outcome.guest: outcome for outcome in self.record.outcomes}

    def failure_lines(self, guest: str) -> list[str]:
        """The lines of the table of failed guests that begin with this guest's name."""
        table = self.out.partition("guests that failed")[2].partition("\n\n")[0]
        return [line.strip() for line in table.splitlines() if line.split()[:1] == [guest]]


@dataclass
class Started:
    """A running command line. `said` is what it has printed so far, both streams in their order of arrival."""

    process: asyncio.subprocess.Process
    folder: Path
    _out: list[str] = field(default_factory=list)
    _err: list[str] = field(default_factory=list)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)
    _readers: list[asyncio.Task[None]] = field(default_factory=list)

    async def until(self, word: str, *, within_s: float = 60.0) -> None:
        """Wait until a line holds `word`."""
        await self.until_matches(re.escape(word), within_s=within_s)

    async def until_matches(self, pattern: str, *, within_s: float = 60.0) -> None:
        """Wait until a line has a match for `pattern`."""
        async with asyncio.timeout(within_s), self._news:
            await self._news.wait_for(lambda: self._has(pattern) or self._is_over())
        assert self._has(pattern), self._out + self._err

    def _has(self, pattern: str) -> bool:
        return any(re.search(pattern, line) for line in (*self._out, *self._err))

    def signal(self, number: int) -> None:
        """Send a signal to the controller alone."""
        self.process.send_signal(number)

    async def ended(self, *, within_s: float = WITHIN_S) -> Ended:
        """Wait for the end."""
        async with asyncio.timeout(within_s):
            status = await self.process.wait()
            await asyncio.gather(*self._readers)
        return Ended(status, "".join(self._out), "".join(self._err), self.folder)

    def _is_over(self) -> bool:
        return bool(self._readers) and all(reader.done() for reader in self._readers)

    async def read(self, stream: asyncio.StreamReader, into: list[str]) -> None:
        while line := await stream.readline():
            async with self._news:
                into.append(line.decode())
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()


async def start(*arguments: str | Path, folder: Path, cwd: Path, within: Sequence[str] = ()) -> Started:
    """Start `calyx-orch` with these words in a process group of its own, as a shell would.

    `within` are words in front that become it, such as `nsenter --net=...`.
    """
    process = await asyncio.create_subprocess_exec(
        *within, sys.executable, "-m", "calyx_orch.cli", *map(str, arguments), cwd=cwd, limit=16 << 20, start_new_session=True,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"}, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    started = Started(process, folder)
    assert process.stdout is not None
    assert process.stderr is not None
    for stream, into in ((process.stdout, started._out), (process.stderr, started._err)):
        started._readers.append(asyncio.create_task(started.read(stream, into)))
    return started


async def start_run(inventory: str, base: Path, *options: str, within: Sequence[str] = ()) -> Started:
    """Start `calyx-orch run` on this text."""
    path, folder = base / "inventory.yaml", base / "run"
    path.write_text(inventory)
    return await start("run", path, "--out", folder, *options, folder=folder, cwd=base, within=within)


async def run(inventory: str, base: Path, *options: str, within_s: float = WITHIN_S) -> Ended:
    """Run `calyx-orch run` on this text to its end."""
    return await (await start_run(inventory, base, *options)).ended(within_s=within_s)


# --- what is left ------------------------------------------------------------------------------------------------


def processes_of(fleet_directory: Path) -> dict[int, str]:
    """Processes with the fleet's directory in their command line, program, working directory, environment or open files."""
    needle = str(fleet_directory).encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and _concerns(entry, needle):
            found[int(entry.name)] = _command(entry)
    return found


def _concerns(entry: Path, needle: bytes) -> bool:
    try:
        if needle in (entry / "cmdline").read_bytes() or needle in (entry / "environ").read_bytes():
            return True
        links = [entry / "exe", entry / "cwd", *(entry / "fd").iterdir()]
    except OSError:
        return False
    for link in links:
        try:
            if needle in os.fsencode(link.readlink()):
                return True
        except OSError:
            continue
    return False


def _command(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip() or entry.name
    except OSError:
        return entry.name


def processes_below(pid: int) -> list[str]:
    """The command lines of all processes that descend from this one."""
    return [_command(Path(f"/proc/{child}")) for child in descendants(pid)]


def left_processes(fleet: LoopbackFleet) -> dict[int, str]:
    """Processes of the guests besides their servers: agents, fio, shells."""
    servers = {guest.process.pid for guest in fleet.guests if guest.process is not None}
    return {pid: words for pid, words in processes_of(fleet.directory).items() if pid not in servers}


def left_files(guest: LoopbackGuest) -> list[str]:
    """Files in a guest's directories besides what a test put there and the agent's executable, which stays for the next run."""
    found = []
    for directory in (guest.home, guest.data):
        for path in directory.rglob("*"):
            name = str(path.relative_to(guest.directory))
            is_kept = re.fullmatch(r"home/\.cache(/calyx-orch(/calyx-agent-[0-9a-f]{16})?)?", name)
            if not is_kept and path.name not in ("lost+found", ".bashrc"):
                found.append(name)
    return found


async def nothing_left(fleet: LoopbackFleet, *, within_s: float = 8.0) -> float:
    """Assert that no guest holds a process or file of a run, waiting a bounded time for it. Returns how long it took, s."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        left: Sequence[Any] = [
            *left_processes(fleet).items(),
            *(f for guest in fleet.guests for f in left_files(guest)),
        ]
        if not left:
            return loop.time() - began
        assert loop.time() - began < within_s, left
        await asyncio.sleep(0.05)


def strict_json(text: str) -> Any:
    """Parse JSON that knows no NaN and no Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def say(text: str) -> None:
    """Tell a figure; `pytest -s` and a failure show it."""
    sys.stdout.write(text + "\n")
