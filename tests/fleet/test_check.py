"""`calyx-orch check` on real guests: each reason by itself, in agreement with what a run says, and nothing is changed."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from calyx_agent import executables as shipped
from calyx_orch import deploy
from calyx_orch.commands.loopback import LoopbackFleet, inventory_yaml
from calyx_orch.model import Guest, Target
from calyx_orch.transport import Pool, connect
from calyx_orch.transport.ssh.server import write_key
from fleet.disks import loop_disk, need_root, read_only
from fleet.test_run_bad_guests import DENY_IO_URING, WITHOUT_FIO
from fleet.whole_runs import TINY, Ended, guests_up, left_processes, nothing_left, run, start, strict_json

pytestmark = [pytest.mark.fleet]

SHELL = '/bin/sh -c "$SSH_ORIGINAL_COMMAND"'
LITTLE_MEMORY = f"prlimit --memlock=65536:65536 setpriv --bounding-set=-ipc_lock {SHELL}"
WIDE = TINY.replace("bs: 4k", "bs: 64k").replace("rate_iops: 400", "rate_iops: 50")


async def check(inventory: str, base: Path, *options: str) -> Ended:
    """Run `calyx-orch check` on this text to its end."""
    path = base / "inventory.yaml"
    path.write_text(inventory)
    return await (await start("check", path, *options, folder=base, cwd=base)).ended()


def by_guest(ended: Ended) -> dict[str, Any]:
    return {guest["guest"]: guest for guest in strict_json(ended.out)["guests"]}


def bad(guest: dict[str, Any]) -> dict[str, str]:
    return {one["check"]: one["why"] for one in guest["findings"] if one["verdict"] == "bad"}


def tree(fleet: LoopbackFleet) -> dict[str, tuple[int, int]]:
    """Everything in the homes and targets; when each file was last written, and each target itself."""
    found = {}
    for guest in fleet.guests:
        found[str(guest.data)] = (0, guest.data.stat().st_mtime_ns)
        for directory in (guest.home, guest.data):
            for path in directory.rglob("*"):
                status = path.lstat()
                found[str(path)] = (status.st_ino, 0 if path.is_dir() else status.st_mtime_ns)
    return found


async def test_each_reason_stands_by_its_check_and_a_run_says_the_same(tmp_path: Path) -> None:
    """Closed port, changed host key, wrong key, no io_uring, read-only, full: the sentence of check is that of the run."""
    need_root("mkfs.ext4", "losetup", "mount")
    async with guests_up(1, tmp_path) as fleet:
        await fleet.add("noring", extra=[f"ForceCommand {DENY_IO_URING}"])
        for name in ("wrongkey", "closed", "full", "readonly", "otherkey"):
            await fleet.add(name)
        guests = {guest.name: guest for guest in fleet.guests}
        guests["wrongkey"].user_key.unlink()
        write_key(guests["wrongkey"].user_key, "a key that no guest knows")
        await fleet.stop(guests["closed"])
        changed, first = (f"[{guests[name].address}]" for name in ("otherkey", "guest1"))
        lines = {line.split()[0].partition(":")[0]: line.split() for line in fleet.known_hosts.read_text().splitlines()}
        lines[changed][1:3] = lines[first][1:3]
        fleet.known_hosts.write_text("".join(" ".join(words) + "\n" for words in lines.values()))
        with ExitStack() as stack:
            stack.enter_context(loop_disk(guests["full"].data, tmp_path, kind="ext4", size=16 << 20))
            stack.enter_context(read_only(guests["readonly"].data))
            before = tree(fleet)
            ended = await check(inventory_yaml(fleet, body=TINY), tmp_path, "--json")
            assert not left_processes(fleet)
            assert tree(fleet) == before
            ran = await run(inventory_yaml(fleet, body=TINY), tmp_path)
            await nothing_left(fleet)
    assert ended.status == ran.status == 3, ended.out + ended.err
    expected = {
        "guest1": {},
        "closed": {"reach": "is sshd running"},
        "otherkey": {"host key": "ssh-keygen -R"},
        "wrongkey": {"login": "authorized_keys"},
        "noring": {"io_uring": "EPERM"},
        "readonly": {"target": "ead-only file system"},
        "full": {"space": "no space left on"},
    }
    found = by_guest(ended)
    assert {name: set(bad(guest)) for name, guest in found.items()} == {n: set(e) for n, e in expected.items()}
    for name, reasons in expected.items():
        for which, words in reasons.items():
            assert words in bad(found[name])[which]
            assert bad(found[name])[which] == ran.outcomes[name].reason, "one truth"
    assert {n for n, guest in found.items() if guest["ready"]} == {
        n for n, outcome in ran.outcomes.items() if outcome.state == "measured"
    }
    checks = found["otherkey"]["checks"]
    assert (checks["reach"], checks["host key"], checks["login"]) == ("good", "bad", "not asked")
    assert "1 of 7 guests can be measured" in ended.err


async def test_fio_that_is_missing_or_too_old_keeps_out_only_where_a_baseline_is_named(tmp_path: Path) -> None:
    need_root("unshare", "fio")
    old = tmp_path / "old"
    old.mkdir()
    (old / "fio").write_text("#!/bin/sh\necho fio-2.1.10\n")
    (old / "fio").chmod(0o755)
    async with guests_up(1, tmp_path) as fleet:
        await fleet.add("nofio", extra=[f"ForceCommand {WITHOUT_FIO}"])
        await fleet.add("oldfio", environment={"PATH": f"{old}:/usr/bin:/bin"})
        named = await check(inventory_yaml(fleet, body=TINY.replace("none", "[fio-io_uring]")), tmp_path, "--json")
        asked = await check(inventory_yaml(fleet, body=TINY.replace("none", "auto")), tmp_path, "--json")
        unasked = await check(inventory_yaml(fleet, body=TINY), tmp_path, "--json")
    words = {"nofio": "fio is not installed", "oldfio": "its fio 2.1.10 is older than 3.0"}
    assert (named.status, asked.status, unasked.status) == (3, 0, 0), named.err + asked.err + unasked.err
    for name, why in words.items():
        assert why in bad(by_guest(named)[name])["fio"]
        (doubt,) = (one for one in by_guest(asked)[name]["findings"] if one["check"] == "fio")
        assert (doubt["verdict"], why in doubt["why"]) == ("doubtful", True)
    assert {guest["checks"]["fio"] for guest in by_guest(unasked).values()} == {"not asked"}
    assert by_guest(named)["guest1"]["checks"]["fio"] == "good"


async def test_a_small_memory_lock_limit_is_found_by_locking(tmp_path: Path) -> None:
    """`buffers: registered` keeps the guest out; `auto` is a doubt; a workload that needs less than the limit is neither."""
    need_root("prlimit", "setpriv")
    async with guests_up(1, tmp_path) as fleet:
        await fleet.add("little", extra=[f"ForceCommand {LITTLE_MEMORY}"])
        required = WIDE.replace("iodepth: 4", "iodepth: 4, buffers: registered")
        ends = [await check(inventory_yaml(fleet, body=body), tmp_path, "--json") for body in (required, WIDE, TINY)]
        await nothing_left(fleet)
    verdicts = [{name: guest["checks"]["memory lock"] for name, guest in by_guest(ended).items()} for ended in ends]
    assert [ended.status for ended in ends] == [3, 0, 0], ends[0].err
    assert [one["little"] for one in verdicts] == ["bad", "doubtful", "good"]
    assert {one["guest1"] for one in verdicts} == {"good"}
    why = bad(by_guest(ends[0])["little"])["memory lock"]
    assert "cannot register 256 KiB of buffers: its memory-lock limit is 64 KiB" in why
    assert "ulimit -l" in why


async def test_a_good_fleet_is_told_so_and_is_left_as_it_was(tmp_path: Path) -> None:
    """No agent, no directory, no process: also where none had ever been deployed."""
    async with guests_up(2, tmp_path) as fleet:
        before = tree(fleet)
        ended = await check(inventory_yaml(fleet, body=TINY), tmp_path)
        assert not left_processes(fleet)
        assert tree(fleet) == before
    assert ended.status == 0, ended.out + ended.err
    assert "2 of 2 guests can be measured" in ended.out
    rows = [line for line in ended.out.splitlines() if re.match(r"guest[12] ", line)]
    assert len(rows) == 2
    assert all(row.count("✓") >= 11 for row in rows), ended.out


async def test_a_job_of_several_threads_is_tried_as_a_run_opens_it(tmp_path: Path) -> None:
    async with guests_up(1, tmp_path) as fleet:
        body = TINY.replace("iodepth: 4", "iodepth: 4, numjobs: 2")
        ended = await check(inventory_yaml(fleet, body=body), tmp_path, "--json")
        await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    assert by_guest(ended)["guest1"]["checks"]["set-up"] == "good"


async def test_an_agent_that_is_there_is_used_and_stays(tmp_path: Path) -> None:
    async with guests_up(1, tmp_path) as fleet:
        (guest,) = fleet.guests
        text = inventory_yaml(fleet, body=TINY)
        assert (await run(text, tmp_path)).status == 0
        (agent,) = (guest.home / ".cache" / "calyx-orch").iterdir()
        before = tree(fleet)
        ended = await check(text, tmp_path, "--json")
        assert by_guest(ended)["guest1"]["facts"]["agent"] == str(agent)
        assert tree(fleet) == before


@pytest.mark.slow
async def test_one_that_is_there_but_damaged_is_not_replaced(tmp_path: Path) -> None:
    """Right name and size, wrong content: a run would put it anew, and check tries the right one beside it."""
    (executable,) = (one for arch, one in shipped.available().items() if arch == os.uname().machine)
    async with guests_up(1, tmp_path) as fleet:
        (guest,) = fleet.guests
        place = guest.home / ".cache" / "calyx-orch"
        place.mkdir(parents=True, mode=0o700)
        damaged = place / deploy.agent_name(executable)
        damaged.write_bytes(b"\0" * executable.size_bytes)
        damaged.chmod(0o700)
        before = tree(fleet)
        ended = await check(inventory_yaml(fleet, body=TINY), tmp_path)
        assert ended.status == 0, ended.out
        assert tree(fleet) == before


async def test_a_borrowed_agent_is_gone_from_the_disk_while_it_runs(tmp_path: Path) -> None:
    """So that nothing is left even when controller and guest die at that moment but for a directory that a run makes anyway."""
    async with guests_up(1, tmp_path) as fleet, Pool() as pool:
        (guest,) = fleet.guests
        way = await connect(fleet.connection(guest), pool=pool)
        agent = await deploy.deploy(
            way, Guest("guest1", fleet.connection(guest), (Target("data", str(guest.data)),)), borrowed=True
        )
        files = [path for path in guest.home.rglob("*") if path.is_file()]
        assert [path for path in files if "calyx-agent" in path.name] == []
        await agent.send("clock", (("n", 1),))
        answer = await agent.receive(5)
        assert answer is not None
        assert answer["type"] == "clock"
        await agent.close()
        await deploy.give_back(way, agent)
        assert list(guest.home.iterdir()) == []
        await way.close()


async def test_a_server_that_allows_one_session_is_checked_as_quickly_and_left_as_clean(tmp_path: Path) -> None:
    """MaxSessions 1: nothing waits for a second session while the agent has the only one."""
    async with guests_up(1, tmp_path) as fleet:
        await fleet.add("narrow", extra=["MaxSessions 1"])
        before = tree(fleet)
        began = asyncio.get_running_loop().time()
        ended = await check(inventory_yaml(fleet, body=TINY), tmp_path)
        took_s = asyncio.get_running_loop().time() - began
        assert tree(fleet) == before
    assert ended.status == 0, ended.out + ended.err
    assert took_s < deploy.PROBE_TIMEOUT_S / 2


async def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    async with guests_up(3, tmp_path) as fleet:
        before = tree(fleet)
        path = tmp_path / "inventory.yaml"
        path.write_text(inventory_yaml(fleet, body=TINY.replace("lost_time_probe: 0", "lost_time_probe: 9s")))
        started = await start("check", path, folder=tmp_path, cwd=tmp_path)
        await started.until("looking at clocks")
        await asyncio.sleep(0.3)
        started.signal(signal.SIGINT)
        ended = await started.ended(within_s=20)
        assert ended.status == 130, ended.out + ended.err
        assert "Traceback" not in ended.err
        await nothing_left(fleet)
        assert tree(fleet) == before


@pytest.mark.slow
async def test_guests_without_an_inventory_can_be_checked(tmp_path: Path) -> None:
    """The same words as of run; what cannot be written at all is told beside the table, with the exit code of a refusal."""
    async with guests_up(1, tmp_path) as fleet:
        (guest,) = fleet.guests
        words = shlex.split(
            f"--guest {guest.address}:{guest.port} --target {guest.data} --key {guest.user_key} "
            f"--known-hosts {fleet.known_hosts}"
        )
        ended = await (await start("check", *words, folder=tmp_path, cwd=tmp_path)).ended()
        nobody = await (await start("check", folder=tmp_path, cwd=tmp_path)).ended()
    assert ended.status in (0, 3), ended.out + ended.err
    assert "of 1 guest can be measured" in ended.out
    assert nobody.status == 2
    assert "name an inventory" in nobody.err


async def test_a_plan_that_a_run_would_refuse_is_exit_code_2_whatever_its_guests_are(tmp_path: Path) -> None:
    """Here without SSH: more new bytes than is declared free; the table stands, and nothing stays in HOME."""
    if not shipped.available():
        pytest.skip("no agent executable is built: run `make build`")
    data = tmp_path / "data"
    data.mkdir()
    head = "vm_hosts:\n  hv1: {free: %s}\nguests:\n  - name: here\n    transport: local\n    vm_host: hv1\n"
    head += f"    targets: {{data: {{path: {data}, allow_ram: true}}}}\n"
    refused = await check(head % "1m" + TINY, tmp_path, "--json")
    fine = await check(head % "1g" + TINY, tmp_path)
    assert (refused.status, fine.status) == (2, 0), refused.err + fine.out + fine.err
    assert by_guest(refused)["here"]["ready"] is True
    assert any("this run would write more new bytes than it may" in note for note in strict_json(refused.out)["notes"])
    home = os.environ["HOME"]
    assert os.listdir(home) == os.listdir(data) == []  # noqa: PTH208 - of two directories of this test
