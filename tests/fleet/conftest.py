"""A fleet of real sshd on loopback for the tests, isolated from the user's own SSH set-up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import replay
from calyx_orch.commands.loopback import LoopbackFleet, LoopbackGuest, find_sshd
from calyx_orch.model import Connection
from calyx_orch.transport import Pool
from fleet.schedule_verbs import Calyx, schedule_verbs
from web_server import WebServer, web_server

CASES = Path(__file__).parent.parent / "golden" / "guests"  # inputs of cases from public reports, by their number


def sshd_lines(case: str, name: str = "sshd_extra.conf") -> tuple[str, ...]:
    """The lines of a case's sshd_config, without comments."""
    lines = (CASES / case / name).read_text().splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


@pytest.fixture(autouse=True)
def _no_ssh_set_up_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HOME is empty and there is no ssh-agent: only what a test sets up can let it in."""
    home = tmp_path / "controller-home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture(autouse=True)
def _every_journal_replays(tmp_path: Path) -> Iterator[None]:
    """Whatever a test did to its run: the events of its journal lead to the same actions again."""
    yield
    replay.check_all(tmp_path)


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[LoopbackFleet]:
    """One guest behind a real sshd; tests add more with `fleet.add`."""
    if not find_sshd():
        pytest.skip("no sshd is installed: install openssh-server")
    async with LoopbackFleet(1, base=tmp_path) as made:
        assert made.server_kind == "OpenSSH sshd", made.note
        yield made


@pytest.fixture
def guest(fleet: LoopbackFleet) -> LoopbackGuest:
    """The first guest of the fleet."""
    return fleet.guests[0]


@pytest.fixture
def connection(fleet: LoopbackFleet, guest: LoopbackGuest) -> Connection:
    """How to reach the first guest."""
    return fleet.connection(guest)


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    """What connections share."""
    async with Pool() as made:
        yield made


@pytest.fixture
def web() -> Iterator[WebServer]:
    """A web server for messages and pings."""
    with web_server() as made:
        yield made


@pytest.fixture
def calyx(tmp_path: Path, web: WebServer) -> Iterator[Calyx]:
    """Starts the verbs of `calyx-orch schedule` on a store, caches and secrets of their own."""
    with schedule_verbs(tmp_path, web) as start:
        yield start


async def until_gone(marker: str, *, timeout_s: float = 5.0) -> bool:
    """Whether no process with `marker` in its command line is left, within a time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while running(marker):
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


def running(marker: str) -> list[int]:
    """Processes with `marker` in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in command:
                found.append(int(entry.name))
    return found
