"""`calyx-orch clean` on real guests: what the dead left goes by its record, what lives or is not ours stays, and all is told."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import hashlib
import os
import platform
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from calyx_orch.commands.loopback import LoopbackFleet, LoopbackGuest, inventory_yaml
from calyx_orch.store import archive
from fleet.disks import loop_disk, need_root, unmounted
from fleet.whole_runs import (
    TINY,
    Ended,
    Started,
    guests_up,
    left_files,
    left_processes,
    nothing_left,
    start,
    start_run,
    strict_json,
)

pytestmark = [pytest.mark.fleet]

LONG = TINY.replace("runtime: 0.6s", "runtime: 60s")  # ended by the test
AWHILE = TINY.replace("runtime: 0.6s", "runtime: 5s")
ME = f"{getpass.getuser()}@{platform.node()}"


async def clean(fleet: LoopbackFleet, base: Path, *options: str) -> Ended:
    """Run `calyx-orch clean` on the fleet to its end."""
    path = base / "clean.yaml"
    path.write_text(inventory_yaml(fleet, body=TINY))
    return await (await start("clean", path, *options, folder=base, cwd=base)).ended()


def by_guest(ended: Ended) -> dict[str, Any]:
    return {guest["guest"]: guest for guest in strict_json(ended.out)["guests"]}


async def killed_in_a_round(fleet: LoopbackFleet, base: Path) -> str:
    """A run whose controller, agents and guards die at the same instant, as in a loss of power. Returns its id."""
    started = await start_run(inventory_yaml(fleet, body=LONG), base)
    await started.until_matches("round 1 of")
    await asyncio.sleep(0.5)
    await kill_all(fleet, started)
    return archive.read(started.folder).run_id


async def kill_all(fleet: LoopbackFleet, started: Started) -> None:
    """Kill a controller and all that runs on its guests."""
    everyone = [started.process.pid, *(pid for pid in left_processes(fleet) if pid != started.process.pid)]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: whoever dies last would clean
        for pid in everyone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    await started.ended()
    while left_processes(fleet):  # noqa: ASYNC110 - not our children: nothing to await
        await asyncio.sleep(0.05)


def left_in(guest: LoopbackGuest) -> list[Path]:
    return sorted(guest.data.glob(".calyx-orch-*"))


async def test_what_a_killed_run_left_is_listed_then_removed_and_then_nothing_is_left(tmp_path: Path) -> None:
    """Controller, agent and guard by SIGKILL in a round: run, user, files and bytes are told; a dry run touches nothing."""
    async with guests_up(2, tmp_path) as fleet:
        run_id = await killed_in_a_round(fleet, tmp_path)
        left = {guest.name: left_in(guest) for guest in fleet.guests}
        assert all(len(places) == 1 for places in left.values()), left
        before = {guest.name: left_files(guest) for guest in fleet.guests}
        listed = await clean(fleet, tmp_path, "--dry-run", "--json")
        assert {guest.name: left_files(guest) for guest in fleet.guests} == before
        ended = await clean(fleet, tmp_path, "--json")
        again = await clean(fleet, tmp_path)
        await nothing_left(fleet)
    assert (listed.status, ended.status, again.status) == (0, 0, 0), listed.err + ended.err + again.err
    for told in (by_guest(listed), by_guest(ended)):
        for name, places in left.items():
            (files,) = (one for one in told[name]["removed"] if one["kind"] == "files")
            assert (files["path"], files["run"], files["by"]) == (str(places[0]), run_id, ME)
            assert files["files"] == 1
            assert files["bytes"] >= 8 << 20
    for name in left:
        assert sum(freed["bytes"] for freed in by_guest(ended)[name]["freed"]) >= 8 << 20
        assert by_guest(listed)[name]["freed"] == []
    assert "Would remove" in listed.err
    assert "vm_host's thin disk" in ended.err or "given back" in ended.err
    assert "Nothing is left by the dead on 2 guests." in again.out


async def test_after_a_reboot_in_the_middle_the_records_still_tell_and_the_host_gets_its_bytes_by_a_trim(
    tmp_path: Path,
) -> None:
    """The disk is taken away from under a killed run and mounted anew. Its image, a thin disk, shrinks when it is trimmed as told."""
    need_root("mkfs.ext4", "losetup", "mount", "fstrim")
    async with guests_up(1, tmp_path) as fleet:
        (guest,) = fleet.guests
        with loop_disk(guest.data, tmp_path, kind="ext4", size=160 << 20) as disk:
            image = next(tmp_path.glob("ext4-*.img"))  # noqa: ASYNC240 - a directory of this test
            subprocess.run(["fstrim", guest.data], check=True, timeout=60)  # thin from now on
            await killed_in_a_round(fleet, tmp_path)
            unmounted(guest.data)  # what was killed may hold a file for some ms
            subprocess.run(["mount", disk.device, guest.data], check=True, timeout=60)
            (left,) = left_in(guest)
            ended = await clean(fleet, tmp_path, "--json")
            assert left_in(guest) == []
            subprocess.run(["sync", "-f", guest.data], check=True, timeout=60)
            held = image.stat().st_blocks * 512
            subprocess.run(["fstrim", guest.data], check=True, timeout=60)
            given_back = held - image.stat().st_blocks * 512
        await nothing_left(fleet)
    assert ended.status == 0, ended.err
    told = by_guest(ended)["guest1"]
    assert [one["path"] for one in told["removed"] if one["kind"] == "files"] == [str(left)]
    (freed,) = told["freed"]
    assert (freed["mount"], freed["discard"]) == (str(guest.data), "fstrim")
    assert f"run `sudo fstrim {guest.data}` on the guest" in ended.err.replace("\n", "")
    assert given_back >= freed["bytes"] >= 8 << 20, "nothing of it had been given back before the trim"


async def test_names_alone_are_no_reason_to_remove_anything(tmp_path: Path) -> None:
    """A directory of the right name without a record, and a user's file within one of ours, stay and are told."""
    async with guests_up(1, tmp_path) as fleet:
        (guest,) = fleet.guests
        await killed_in_a_round(fleet, tmp_path)
        (ours,) = left_in(guest)
        (ours / "thesis.tex").write_text("of great value")
        bait = guest.data / ".calyx-orch-aaaaaa"
        bait.mkdir()
        (bait / "job.0").write_text("not ours")
        ended = await clean(fleet, tmp_path, "--json")
        told = by_guest(ended)["guest1"]
        assert (ours / "thesis.tex").read_text() == "of great value"
        assert (bait / "job.0").read_text() == "not ours"
        assert not list(ours.glob("job.*")), "our own files there are gone"
    assert ended.status == 3, ended.err
    assert [one["path"] for one in told["kept"]] == [str(bait)]
    assert [one["path"] for one in told["failed"]] == [str(ours)]
    assert told["failed"][0]["why"] == "files lie in it that no agent made"


async def test_a_run_of_another_controller_is_left_alone_and_its_holder_named(tmp_path: Path) -> None:
    async with guests_up(1, tmp_path) as fleet:
        (guest,) = fleet.guests
        running = await start_run(inventory_yaml(fleet, body=LONG), tmp_path)
        await running.until_matches("round 1 of")
        (held,) = left_in(guest)
        ended = await clean(fleet, tmp_path, "--json")
        looked = await (await start("check", tmp_path / "clean.yaml", "--json", folder=tmp_path, cwd=tmp_path)).ended()
        assert left_in(guest) == [held]
        running.signal(signal.SIGINT)
        done = await running.ended()
        await nothing_left(fleet)
    assert ended.status == 0, ended.err
    told = by_guest(ended)["guest1"]
    assert told["removed"] == []
    (kept,) = told["kept"]
    assert kept["path"] == str(held)
    for words in (done.record.run_id, ME):
        assert words in kept["why"]
        assert words in by_guest(looked)["guest1"]["findings"][0]["why"], "a run would be refused, and check says so"
    assert looked.status == 3
    assert done.status == 130, done.out + done.err
    assert "lost" not in done.out, "it ran on until then"


@pytest.mark.slow
async def test_old_agents_go_when_asked_for_and_this_version_s_stays(tmp_path: Path) -> None:
    async with guests_up(1, tmp_path) as fleet:
        (guest,) = fleet.guests
        ran = await (await start_run(inventory_yaml(fleet, body=TINY), tmp_path)).ended()
        assert ran.status == 0, ran.err
        place = guest.home / ".cache" / "calyx-orch"
        (mine,) = place.iterdir()
        content = b"an agent of long ago"
        old = place / f"calyx-agent-{hashlib.sha256(content).hexdigest()[:16]}"
        old.write_bytes(content)
        unasked = await clean(fleet, tmp_path)
        assert old.exists()
        ended = await clean(fleet, tmp_path, "--agents")
        assert sorted(place.iterdir()) == [mine]
    assert "Nothing is left" in unasked.out
    assert ended.status == 0, ended.out + ended.err
    assert f"removed {old}" in ended.out.replace("\n", "")
    assert "1 old agent" in ended.out


@pytest.mark.slow
async def test_a_guest_that_cannot_be_reached_is_told_and_the_others_are_cleaned(tmp_path: Path) -> None:
    async with guests_up(2, tmp_path) as fleet:
        await killed_in_a_round(fleet, tmp_path)
        gone, other = fleet.guests
        await fleet.stop(gone)
        ended = await clean(fleet, tmp_path)
        assert left_in(other) == []
        limited = await clean(fleet, tmp_path, "--limit", "guest2")
    assert ended.status == 3
    assert f"{gone.name}: not cleaned: " in ended.out
    assert "refused the connection" in ended.out
    assert limited.status == 0, limited.out


async def two_at_once(fleet: LoopbackFleet, base: Path, body: str) -> tuple[Started, Started]:
    text = inventory_yaml(fleet, body=body)
    places = base / "one", base / "two"
    for place in places:
        place.mkdir()
    one, two = await asyncio.gather(*(start_run(text, place) for place in places))
    return one, two


async def test_of_two_controllers_one_measures_and_the_other_names_it(tmp_path: Path) -> None:
    """Started at the same moment on one target: one whole run, one refusal with run id, user and host, and since when."""
    async with guests_up(1, tmp_path) as fleet:
        started = await two_at_once(fleet, tmp_path, AWHILE)
        ends = await asyncio.gather(*(one.ended() for one in started))
        await nothing_left(fleet)
    assert sorted(one.status for one in ends) == [0, 3], "".join(one.out + one.err for one in ends)
    winner, loser = sorted(ends, key=lambda one: one.status)
    outcome = loser.outcomes["guest1"]
    assert (outcome.state, outcome.step) == ("lost", "prepare")
    for words in (winner.record.run_id, ME, "in use", " for "):
        assert words in outcome.reason
    assert {m.status for m in winner.record.measurements} == {"ok"}
    assert loser.record.measurements == ()
    assert winner.record.run_id in loser.out.replace("\n", "") or winner.record.run_id in "".join(loser.out.split())


@pytest.mark.slow
async def test_the_lock_is_of_the_directory_whatever_it_is_called_and_ends_with_its_holder(tmp_path: Path) -> None:
    """By another path to it the second run is refused too; after a SIGKILL of controller, agent and guard the next one may."""
    async with guests_up(1, tmp_path) as fleet:
        (guest,) = fleet.guests
        other_name = guest.directory / "by-another-name"
        other_name.symlink_to(guest.data)
        first, second, third = (tmp_path / name for name in ("first", "second", "third"))
        for place in (first, second, third):
            place.mkdir()
        text = inventory_yaml(fleet, body=LONG)
        holder = await start_run(text, first)
        await holder.until_matches("round 1 of")
        refused = await (await start_run(text.replace(f'"{guest.data}"', f'"{other_name}"'), second)).ended()
        assert refused.status == 3, refused.out
        assert (
            f"has been in use by run {archive.read(first / 'run').run_id} of {ME}" in refused.outcomes["guest1"].reason
        )
        await kill_all(fleet, holder)
        after = await (await start_run(inventory_yaml(fleet, body=TINY), third)).ended()
        assert after.status == 0, after.out + after.err
        assert (await clean(fleet, tmp_path)).status == 0
        other_name.unlink()
        await nothing_left(fleet)
