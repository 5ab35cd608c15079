"""Runs on kept files, by the real command line: laid out once, reused, never left over in silence, removed when told so."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from calyx_agent import executables as shipped
from calyx_orch.commands.loopback import inventory_yaml
from fleet.whole_runs import Ended, Started, guests_up, left_processes, start, start_run, strict_json

pytestmark = [pytest.mark.fleet]

SIZE = 4 << 20
TEXT = """\
workloads:
  - {name: mixed, rw: randrw, bs: 4k, iodepth: 4, size: 4m, runtime: 0.5s, ramp_time: 0.1s}
baselines: none
repetitions: 1
settle: 0
lost_time_probe: 0
seed: 7
defaults:
  transport: local
  same_machine: true
  agent_dir: BASE/agent
  keep_files: true
  targets: {data: {path: BASE/data, allow_ram: true}}
guests: {good1: {}, good2: {}}
"""
BOTH = ("good1", "good2")
LONG = ("runtime: 0.5s", "runtime: 60s")  # ended by the test


@pytest.fixture
def text(tmp_path: Path) -> str:
    """An inventory of two guests that are processes of this machine and share a directory; each has files of its own there."""
    if not shipped.available():
        pytest.skip("no agent executable is built: run `make build`")
    (tmp_path / "data").mkdir()
    return TEXT.replace("BASE", str(tmp_path))


async def begin(text: str, base: Path, night: str, *options: str) -> Started:
    path = base / "fleet.yaml"
    path.write_text(text)
    return await start("run", path, "--out", base / night, *options, folder=base / night, cwd=base)


async def run(text: str, base: Path, night: str, *options: str) -> Ended:
    ended = await (await begin(text, base, night, *options)).ended()
    assert ended.status == 0, ended.out + ended.err
    return ended


async def clean(base: Path, *options: str) -> Ended:
    return await (await start("clean", base / "fleet.yaml", *options, folder=base, cwd=base)).ended()


def prepared(ended: Ended) -> dict[str, dict[str, Any]]:
    return {guest: facts["prepared"]["data"] for guest, facts in ended.record.facts.items()}


def layouts(ended: Ended) -> dict[str, tuple[str, int]]:
    return {guest: (one["layout"], one["written_bytes"]) for guest, one in prepared(ended).items()}


def files_in(base: Path) -> dict[str, tuple[int, int]]:
    """What lies in the target: inode and size by path."""
    return {str(path): (path.stat().st_ino, path.stat().st_size) for path in sorted((base / "data").glob("*/job.*"))}


def contents(paths: Iterable[str]) -> set[bytes]:
    return {Path(path).read_bytes() for path in paths}


def harm(path: Path) -> None:
    """Write behind the back of whoever looks at times."""
    status = path.stat()
    with path.open("r+b") as file:
        file.write(b"somebody")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


async def closed(base: Path, count: int) -> None:
    """Wait until so many sets of kept files are closed."""
    async with asyncio.timeout(20):
        while len(list((base / "data").glob("*/kept"))) < count:  # noqa: ASYNC110 - not our children: nothing to await
            await asyncio.sleep(0.05)


async def test_nights_on_kept_files_write_them_once_and_anew_when_they_were_changed(tmp_path: Path, text: str) -> None:
    planned = await (await begin(text, tmp_path, "none", "--dry-run")).ended()
    assert "0 B to 8 MiB" in planned.out
    first = await run(text, tmp_path, "night-1")
    assert layouts(first) == dict.fromkeys(BOTH, ("new", SIZE))
    assert "files to be kept were laid out on 2 guests: the next run can reuse them" in first.record.notes
    files = files_in(tmp_path)
    assert [size for _, size in files.values()] == [SIZE, SIZE]
    laid_out = contents(files)

    second = await run(text, tmp_path, "night-2", "--json")
    assert layouts(second) == dict.fromkeys(BOTH, ("reused", 0))
    assert files_in(tmp_path) == files
    assert "kept files were reused on 2 of 2 guests: 8 MiB were not written" in second.record.notes
    assert "kept files were reused on 2 of 2 guests: 8 MiB were not written" in strict_json(second.out)["run"]["notes"]
    assert {facts["files"] for facts in second.record.facts.values()} == {
        facts["files"] for facts in first.record.facts.values()
    }
    seeds = {
        (night, one.guest): one.setup["data_seed"] for night, ended in ((1, first), (2, second))
        for one in ended.record.measurements
    }  # fmt: skip
    assert len(set(seeds.values())) == 4, "by one seed, and yet no data is written twice"
    assert not laid_out.intersection(contents(files)), "what rounds wrote is what is kept"

    mine = {Path(one["path"]).parent.name: guest for guest, said in prepared(second).items() for one in said["files"]}
    harmed = Path(next(iter(files)))
    harm(harmed)
    third = await run(text, tmp_path, "night-3")
    guest = mine[harmed.parent.name]
    other = next(name for name in BOTH if name != guest)
    assert layouts(third) == {guest: ("new", SIZE), other: ("reused", 0)}
    (note,) = third.outcomes[guest].notes
    assert note.startswith("target data: kept files were laid out anew: job.0: samples=")
    assert third.outcomes[other].notes == ()
    assert len(files_in(tmp_path)) == 2, "no second set beside the first"


async def test_a_clean_tells_of_kept_files_and_removes_them_when_told_so(tmp_path: Path, text: str) -> None:
    await run(text, tmp_path, "night-1")
    files = files_in(tmp_path)
    unasked = await clean(tmp_path)
    assert unasked.status == 0
    assert "kept for good1/data" in unasked.out
    assert "stay for later runs" in " ".join(unasked.out.split())
    assert files_in(tmp_path) == files
    renamed = await run(text.replace("good2: {}", "good3: {}"), tmp_path, "night-2")
    assert layouts(renamed) == {"good1": ("reused", 0), "good3": ("new", SIZE)}
    told = {note for outcome in renamed.outcomes.values() for note in outcome.notes}
    assert any("this run has no use for some kept files" in note and "(of good2/data)" in note for note in told), told
    asked = await clean(tmp_path, "--kept")
    assert asked.status == 0, asked.out + asked.err
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
async def test_a_controller_that_ends_in_a_round_leaves_whole_kept_files(
    tmp_path: Path, text: str, number: signal.Signals
) -> None:
    """Interrupted, or killed: then its agents end with their channels."""
    started = await begin(text.replace(*LONG), tmp_path, "night-1")
    await started.until_matches("round 1 of")
    await asyncio.sleep(0.5)
    assert list((tmp_path / "data").glob("*/kept")) == []
    files = files_in(tmp_path)
    started.signal(number)
    await started.ended()
    await closed(tmp_path, 2)
    again = await run(text, tmp_path, "night-2")
    assert layouts(again) == dict.fromkeys(BOTH, ("reused", 0))
    assert files_in(tmp_path) == files


async def test_a_controller_removes_no_kept_files_of_a_guest_that_died(tmp_path: Path) -> None:
    """Agent and guard are killed at once in a round: what nobody closed is laid out anew in its place, or cleaned."""
    body = TEXT.partition("defaults:")[0].replace(*LONG)
    async with guests_up(1, tmp_path) as fleet:
        (guest,) = fleet.guests
        inventory = inventory_yaml(fleet, body=body).replace("defaults:", "defaults:\n  keep_files: true", 1)
        started = await start_run(inventory, tmp_path)
        await started.until_matches("round 1 of")
        await asyncio.sleep(0.5)
        for signal_number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: whoever dies last would close them
            for pid, words in left_processes(fleet).items():
                if pid != started.process.pid and "calyx-agent" in words:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal_number)
        ended = await started.ended()
        assert ended.status == 3
        (left,) = guest.data.glob(".calyx-orch-*")
        assert sorted(path.name for path in left.iterdir()) == ["job.0", "owner"]
        (tmp_path / "fleet.yaml").write_text(inventory)
        cleaned = await clean(tmp_path)
        assert list(guest.data.glob(".calyx-orch-*")) == []
    assert cleaned.status == 0, cleaned.out + cleaned.err
