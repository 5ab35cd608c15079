"""A disk fills up under a run, on a loop device: what the user sees, and what remains. docs/failures.md is the table."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from calyx_orch.commands.loopback import inventory_yaml
from calyx_orch.store import archive
from faults.test_processes import CALYX, LAYOUT, _check_other
from fleet.disks import loop_disk
from fleet.whole_runs import guests_up, nothing_left, start, start_run

pytestmark = [pytest.mark.fleet, pytest.mark.root]


def fill(directory: Path) -> Path:
    """A file that takes all the room there is. Returns its path."""
    path = directory / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017 - it ends by this error
    return path


async def test_a_target_that_fills_up_while_files_are_laid_out(tmp_path: Path) -> None:
    """Somebody else takes the room: lost with the path and the reason, its files are gone, the filler is untouched."""
    async with guests_up(2, tmp_path) as fleet:
        guest = fleet.guests[1]
        with loop_disk(guest.data, tmp_path, kind="ext4", size=128 << 20):
            started = await start_run(inventory_yaml(fleet, body=LAYOUT), tmp_path)
            await started.until("laying out files on 2 guests")
            await asyncio.sleep(0.5)
            filler = fill(guest.data)
            ended = await started.ended()
            assert filler.exists()
            filler.unlink()
            await nothing_left(fleet)
    said = ended.out + ended.err
    assert ended.status == 3, said
    assert ended.outcomes["guest2"].state == "lost"
    assert "o space left" in ended.outcomes["guest2"].reason, said
    assert str(guest.data) in ended.outcomes["guest2"].reason
    assert len(ended.failure_lines("guest2")) == 1
    _check_other(ended)


@pytest.mark.slow
async def test_a_home_that_is_full_during_a_round(tmp_path: Path) -> None:
    """What a run needs there was made before its first round: measured, and clean."""
    async with guests_up(2, tmp_path) as fleet:
        guest = fleet.guests[1]
        with loop_disk(guest.home, tmp_path, kind="ext4", size=16 << 20):
            started = await start_run(inventory_yaml(fleet, body=CALYX), tmp_path)
            await started.until("round 1 of")
            fill(guest.home)
            ended = await started.ended()
            (guest.home / "filler").unlink()
            await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    assert {outcome.state for outcome in ended.outcomes.values()} == {"measured"}


async def test_a_run_folder_that_fills_up_in_a_round(tmp_path: Path) -> None:
    """Exit code 4 with one sentence; the guests are clean; the rounds before are whole and can be reported."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with loop_disk(disk, tmp_path, kind="ext4", size=16 << 20):
        async with guests_up(2, tmp_path) as fleet:
            inventory = tmp_path / "inventory.yaml"
            inventory.write_text(inventory_yaml(fleet, body=CALYX))
            folder = disk / "run"
            started = await start("run", inventory, "--out", folder, folder=folder, cwd=tmp_path)
            await started.until("round 2 of 2")
            filler = fill(disk)
            ended = await started.ended()
            await nothing_left(fleet)
        filler.unlink()
        said = ended.out + ended.err
        assert ended.status == 4, said
        assert "Traceback" not in said
        assert os.strerror(errno.ENOSPC) in ended.err
        assert "what was measured until then is kept" in ended.err
        assert [path.name for path in folder.rglob("*") if ".tmp" in path.name] == []
        record = archive.read(folder)
        first = [m.status for m in record.measurements if m.round_index == record.plan.rounds[0].index]
        assert first == ["ok", "ok"]
