"""Loopback guests: whatever serves them, they come up, work, and leave nothing."""

# ruff: noqa: ASYNC110, ASYNC240 - processes that are not ours can only be looked for

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from calyx_agent import executables as shipped
from calyx_orch import inventory as inventories
from calyx_orch import workloads
from calyx_orch.commands.loopback import LoopbackFleet, demo_inventory, file_system_of, find_sshd, inventory_yaml
from calyx_orch.deploy import deploy
from calyx_orch.errors import UsageError
from calyx_orch.model import Guest, Target
from calyx_orch.transport import Pool, connect
from fleet.conftest import running, until_gone

pytestmark = pytest.mark.fleet


@pytest.mark.parametrize("sshd", [None, ""], ids=["sshd", "own server"])
async def test_the_real_agent_runs_behind_either_server(sshd: str | None, tmp_path: Path) -> None:
    """The server of this process stands in for sshd: same keys, same checks, same agent; both end with their agents."""
    if sshd is None and not find_sshd():
        pytest.skip("no sshd is installed: install openssh-server")
    if not shipped.available():
        pytest.skip("no agent executable is built: run `make build`")
    async with LoopbackFleet(2, base=tmp_path, sshd=sshd) as fleet, Pool() as pool:
        assert ("OpenSSH" in fleet.server_kind) is (sshd is None)
        for made in fleet.guests:
            guest = Guest(made.name, fleet.connection(made), (Target("data", str(made.data)),))
            agent = await deploy(await connect(guest.connection, pool=pool), guest)
            assert agent.path.startswith(f"{made.home}/")
            await agent.send("prepare", (("path", str(made.data)), ("size", 65536), ("files", 1), ("seed", 1)))
            while (message := await agent.receive(20)) is not None and message["type"] in ("beat", "making"):
                pass
            assert message is not None
            assert message["type"] == "prepared"
            assert len(list(made.data.rglob("job.*"))) == 1
            if made is fleet.guests[0]:
                await agent.close()
                assert list(made.data.iterdir()) == [], "the agent removes its files at its end"
        directory = str(fleet.directory)
        assert running(directory)
    assert await until_gone(directory)
    assert not Path(directory).exists()


@pytest.mark.skipif(not find_sshd(), reason="no sshd is installed: install openssh-server")
async def test_no_sshd_outlives_a_controller_that_was_killed(tmp_path: Path) -> None:
    """SIGKILL leaves no time to clean: the kernel ends the servers, and the ends of their connections what they ran."""
    program = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from calyx_orch.commands.loopback import LoopbackFleet\nfrom calyx_orch.transport import Pool, connect\n"
        "async def main():\n"
        "    async with LoopbackFleet(2, base=Path(sys.argv[1])) as fleet, Pool() as pool:\n"
        "        way = await connect(fleet.connection(fleet.guests[0]), pool=pool)\n"
        "        await way.open(('sh', '-c', 'cat > /dev/null; : ' + sys.argv[1]))\n"
        "        print('up', flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with started(program, tmp_path) as controller:
        await up(controller)
        async with asyncio.timeout(20):
            while len(running(str(tmp_path))) < 4:  # itself, two servers, the program behind one
                await asyncio.sleep(0.01)
    assert await until_gone(str(tmp_path))


@contextlib.contextmanager
def started(program: str, base: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A controller of these lines, which is killed at the end unless it has ended."""
    with subprocess.Popen(
        [sys.executable, "-c", program, base], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as controller:
        try:
            yield controller
        finally:
            controller.kill()


async def up(controller: subprocess.Popen[bytes]) -> None:
    """Wait until it says that its guests are up."""
    assert controller.stdout is not None
    assert await asyncio.to_thread(controller.stdout.readline) == b"up\n"


@pytest.mark.parametrize("moment", ["coming up", "up"])
async def test_an_interrupted_fleet_cleans_up(moment: str, tmp_path: Path) -> None:
    """Ctrl-C while guests come up or are up: no process, no directory."""
    program = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom calyx_orch.commands.loopback import LoopbackFleet\n"
        "async def main():\n"
        "    async with LoopbackFleet(3, base=Path(sys.argv[1])):\n"
        "        print('up', flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with started(program, tmp_path) as controller:
        if moment == "up":
            await up(controller)
        else:
            async with asyncio.timeout(20):
                while len(running(str(tmp_path))) < 2:  # itself, and the first that it started
                    await asyncio.sleep(0.002)
        controller.send_signal(signal.SIGINT)
        await asyncio.to_thread(controller.wait, 20)
    assert not running(str(tmp_path))
    assert list(tmp_path.glob("calyx-orch-guests-*")) == []


async def test_a_server_that_lets_nobody_in_is_replaced_by_our_own(tmp_path: Path) -> None:
    """An sshd that runs no command for this user (nologin, locked account): the demo still works, and says by what."""
    fake = tmp_path / "sshd"
    fake.write_text(
        '#!/bin/sh\nfor last; do :; done\nwhile [ $# -gt 0 ]; do [ "$1" = -f ] && config=$2; shift; done\n'
        f'sed -i "1i ForceCommand exit 3" "$config"\nexec {find_sshd()} -D -f "$config" -E "$config.log"\n'
    )
    fake.chmod(0o755)
    if not find_sshd():
        pytest.skip("no sshd is installed: install openssh-server")
    async with LoopbackFleet(2, base=tmp_path, sshd=str(fake)) as fleet, Pool() as pool:
        assert fleet.note == "sshd runs no command (status 3)"
        assert "SSH server of this process" in fleet.server_kind
        for guest in fleet.guests:
            transport = await connect(fleet.connection(guest), pool=pool)
            assert (await transport.run(("true",), timeout_s=10)).status == 0
            await transport.close()


async def test_the_inventory_of_a_fleet_is_one(tmp_path: Path) -> None:
    """It is read back as what was asked for: places, targets, keys, host keys."""
    async with LoopbackFleet(4, base=tmp_path, sshd="") as fleet:
        demo = inventories.parse(
            demo_inventory(fleet), source="demo.yaml", base_dir=str(tmp_path), presets=workloads.read_presets()
        )
        assert [guest.vm_host for guest in demo.guests] == ["hv1", "hv1", "hv2", "hv2"]
        assert [guest.connection for guest in demo.guests] == [fleet.connection(guest) for guest in fleet.guests]
        assert all(guest.same_machine for guest in demo.guests)
        text = inventory_yaml(fleet, storage={"pool": ["guest1", "guest3"]}, body="workloads: [quick]\n")
        pooled = inventories.parse(text, source="x", base_dir=str(tmp_path), presets=workloads.read_presets())
        assert [guest.storage for guest in pooled.guests] == ["pool", None, "pool", None]
        assert [guest.targets[0].path for guest in pooled.guests] == [str(guest.data) for guest in fleet.guests]


def test_a_fleet_of_none_is_refused() -> None:
    with pytest.raises(UsageError, match="0 loopback guests: ask for 1 to 200"):
        LoopbackFleet(0)


def test_a_ram_disk_is_known_as_one() -> None:
    assert file_system_of(Path("/proc")) == "proc"
    assert file_system_of(Path("/dev/shm")) == "tmpfs"
