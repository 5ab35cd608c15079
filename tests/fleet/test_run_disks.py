"""Whole runs on disks made for the purpose: throttled storage that guests share, ext4 beside XFS, odd paths."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from calyx_orch.commands.loopback import LoopbackGuest, inventory_yaml
from fleet.disks import blkio_throttle, loop_disk, need_root
from fleet.whole_runs import Ended, Started, guests_up, nothing_left, processes_of, run, say, start_run

pytestmark = [pytest.mark.fleet, pytest.mark.root]

MB = 1_000_000


async def test_two_guests_that_share_a_throttled_storage_get_half_each(tmp_path: Path) -> None:
    """Known truth: 40 MB/s for whoever reads, so each gets all of it alone and half of it together, within 5 %."""
    body = """\
workloads:
  - {name: seqread, rw: read, bs: 32k, iodepth: 8, size: 32m, runtime: 2.5s, ramp_time: 0.5s}
baselines: none
repetitions: 1
load: [together, alone]
settle: 0
lost_time_probe: 0
"""
    async with guests_up(2, tmp_path) as fleet:
        with ExitStack() as stack:
            shared = tmp_path / "shared"
            shared.mkdir()
            disk = stack.enter_context(loop_disk(shared, tmp_path, kind="ext4", size=256 << 20))
            group = stack.enter_context(blkio_throttle(disk.device, read_bytes_per_s=40 * MB))
            text = inventory_yaml(fleet, storage={"pool": [guest.name for guest in fleet.guests]}, body=body)
            for guest in fleet.guests:
                place = shared / guest.name
                place.mkdir()
                text = text.replace(f'"{guest.data}"', f'"{place}"')
                assert guest.process is not None
                (group / "cgroup.procs").write_text(str(guest.process.pid))
            ended = await run(text, tmp_path)
            await nothing_left(fleet)
            assert [list(path.iterdir()) for path in shared.glob("guest*")] == [[], []]
    assert ended.status == 0, ended.out + ended.err
    throughput = [row for row in ended.summary.interference if row.metric == "throughput"]
    ratios = {row.guest: row.ratio for row in throughput if row.scope == "guest"}
    say(f"together / alone: {ratios}; alone, MB/s: {[row.alone and row.alone / MB for row in throughput]}")
    assert ratios == {guest: pytest.approx(0.5, rel=0.05) for guest in ("guest1", "guest2")}
    for row in throughput:
        assert row.alone == pytest.approx(40 * MB, rel=0.05), "alone a guest gets all there is"
        assert row.together == pytest.approx(20 * MB, rel=0.05)
    p99 = {row.guest: row.ratio for row in ended.summary.interference if row.metric.startswith("P99")}
    say(f"P99 together / alone: {p99}")
    assert all(ratio is not None for ratio in p99.values())


PAPER = """\
workloads:
  - {preset: paper, size: 64m, runtime: 0.6s, ramp_time: 0.2s%s}
baselines: [fio-io_uring]
repetitions: 1
settle: 0
lost_time_probe: 0
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_the_paper_preset_runs_on_ext4_and_xfs(tmp_path: Path) -> None:
    """Sequential read and write at QD 8 to 64 on both file systems: calyx beside fio in every row."""
    ended = await _run_on_ext4_and_xfs(PAPER % "", tmp_path, within_s=350)
    _check_paper(ended, ways=("read", "write"), depths=(8, 16, 32, 64))


async def test_one_depth_of_the_paper_runs_on_ext4_and_xfs(tmp_path: Path) -> None:
    """The everyday part of the paper's plan: sequential reads at QD 32 on both file systems."""
    ended = await _run_on_ext4_and_xfs(PAPER % ", iodepth: 32", tmp_path, "--workload", "seqread-1m*")
    _check_paper(ended, ways=("read",), depths=(32,))


async def _run_on_ext4_and_xfs(body: str, base: Path, *options: str, within_s: float = 100.0) -> Ended:
    need_root("mkfs.ext4", "mkfs.xfs", "losetup", "fio")
    async with guests_up(1, base) as fleet:
        (guest,) = fleet.guests
        with ExitStack() as stack:
            lines = ["    targets:"]
            for kind in ("ext4", "xfs"):
                place = guest.directory / f"on-{kind}"
                place.mkdir()
                disk = stack.enter_context(loop_disk(place, base, kind=kind, size=320 << 20))
                say(f"{kind} on {disk.device}, direct I/O of the loop device: {disk.direct}")
                lines.append(f"      {kind}: {place}")
            text = inventory_yaml(fleet)
            text = text[: text.index("    targets:")] + "\n".join(lines) + "\n"
            ended = await run(text + body, base, *options, within_s=within_s)
            await nothing_left(fleet)
            for kind in ("ext4", "xfs"):
                left = {path.name for path in (guest.directory / f"on-{kind}").iterdir()} - {"lost+found"}
                assert not left
    assert ended.status == 0, ended.out + ended.err
    return ended


ENGINES = ("calyx", "fio-io_uring")


def _check_paper(ended: Ended, *, ways: tuple[str, ...], depths: tuple[int, ...]) -> None:
    say(ended.out)
    workloads = {round_.workload.name: round_.workload for round_ in ended.record.plan.rounds}
    assert sorted((w.rw, w.iodepth) for w in workloads.values()) == sorted((way, qd) for way in ways for qd in depths)
    facts = ended.record.facts["guest1"]["paths"]
    assert {Path(entry["path"]).name: entry["fs_type"] for entry in facts} == {"on-ext4": "ext4", "on-xfs": "xfs"}
    rows = {(row.target, row.workload, row.engine): row for row in ended.summary.guests}
    assert len(rows) == 2 * len(workloads) * 2
    for target in ("ext4", "xfs"):
        for workload in workloads:
            for engine in ("calyx", "fio-io_uring"):
                row = rows[target, workload, engine]
                assert (row.status, row.rounds) == ("ok", 2), row
                assert row.iops is not None
                assert row.iops > 0
            table = ended.out.partition("\nguest by guest")[2].partition("\n\ncalyx / fio")[0]
            rows_of = [line.split() for line in table.splitlines() if line.startswith("guest1")]
            engines = [
                word for words in rows_of if {workload, target} <= set(words) for word in words if word in ENGINES
            ]
            assert engines == list(ENGINES), "calyx stands beside fio"
    paired = {(row.target, row.workload) for row in ended.summary.pairs if row.ratio is not None}
    assert paired == {(target, workload) for target in ("ext4", "xfs") for workload in workloads}


async def test_both_engines_use_exactly_the_laid_out_files_whatever_the_path(tmp_path: Path) -> None:
    """A-024: a colon, a space and more in the target's path split no file name; fio makes no file of its own anywhere."""
    need_root("fio")
    body = """\
workloads:
  - {name: jobs, rw: randrw, bs: 4k, iodepth: 4, numjobs: 2, size: 4m, runtime: 1s, ramp_time: 0.2s}
baselines: [fio-io_uring, fio-libaio]
repetitions: 1
settle: 0
lost_time_probe: 0
"""
    async with guests_up(1, tmp_path) as fleet:
        (guest,) = fleet.guests
        place = guest.data / "a:b c,d=e %f $HOME;é"
        place.mkdir()
        text = inventory_yaml(fleet, body=body).replace(json.dumps(str(guest.data)), json.dumps(str(place)))
        watch = _Watch(guest)
        started = await start_run(text, tmp_path)
        await watch.during(started)
        ended = await started.ended()
        (layout,) = _events(ended, "prepared")
        place.rmdir()
        await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    wanted = {Path(file["path"]) for file in layout["answer"]["files"]}
    assert {path.parent.parent for path in wanted} == {place}
    assert {path.name for path in wanted} == {"job.0", "job.1"}
    assert watch.io_files == {"agent": wanted, "fio": wanted}
    in_target = {name for name in watch.made if name.startswith("data/")}
    owner = next(iter(wanted)).parent / "owner"  # the note that keeps a second run away
    assert in_target == {str(path.relative_to(guest.directory)) for path in (*wanted, owner)}, (
        "no file but these two and the agent's own note in the target"
    )
    say(f"files seen in the guest's home: {sorted(watch.made - in_target)}")
    assert all(_is_ours(name) for name in watch.made - in_target), watch.made
    assert {m.engine for m in ended.record.measurements} == {"calyx", "fio-io_uring", "fio-libaio"}
    for measured in ended.record.measurements:
        assert (measured.status, measured.why) == ("ok", "")
        assert measured.total_ios > 0
    _check_set_ups(ended)


def _is_ours(name: str) -> bool:
    """The agent and its upload, and what lies in its work directory: the gate of the held fio, fio's interval logs and waiters' output."""
    return (
        re.fullmatch(r"home/\.cache/calyx-orch/(calyx-agent-[^/]+|\.exec-test\.\d+|calyx-work-\w+/[^/]+)", name)
        is not None
    )


def _events(ended: Ended, kind: str) -> list[dict[str, Any]]:
    lines = (ended.folder / "journal.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def _check_set_ups(ended: Ended) -> None:
    """fio-io_uring was given what took effect for calyx: fixed buffers and registered files, and said to have used them."""
    (calyx,) = {json.dumps(m.setup, sort_keys=True) for m in ended.record.measurements if m.engine == "calyx"}
    took = json.loads(calyx)
    for output in ended.folder.glob("raw/*-fio-io_uring/guest1/stdout"):
        _, brace, document = output.read_text().partition("\n{")  # in front of it a word about each job's exec_prerun
        options = json.loads(brace + document)["global options"]
        say(f"calyx took fixed_buffers={took['fixed_buffers']} fixed_files={took['fixed_files']}; fio had {options}")
        assert options.get("fixedbufs", "0") == str(int(took["fixed_buffers"]))
        assert options.get("registerfiles", "0") == str(int(took["fixed_files"]))
        assert ("sqthread_poll" in options) is took["sqpoll"]


class _Watch:
    """What files the engines have open for I/O during a run, and what appears beside the laid-out files."""

    def __init__(self, guest: LoopbackGuest) -> None:
        self._guest = guest
        self.io_files: dict[str, set[Path]] = {}
        self.made: set[str] = set()

    async def during(self, started: Started) -> None:
        """Look twenty times a second until the run is over."""
        directory = str(self._guest.directory)
        while started.process.returncode is None:
            for pid, words in processes_of(self._guest.directory).items():
                program = Path(words.split(" ", 1)[0]).name
                name = "fio" if program == "fio" else "agent" if program.startswith("calyx-agent-") else ""
                for link in _open_files(pid) if name else ():
                    if link.startswith(directory) and Path(link).name.startswith("job."):
                        self.io_files.setdefault(name, set()).add(Path(link))
            for top in (self._guest.data, self._guest.home):
                self.made |= {str(path.relative_to(self._guest.directory)) for path in top.rglob("*") if path.is_file()}
            await asyncio.sleep(0.05)


def _open_files(pid: int) -> list[str]:
    found = []
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            found.append(str(link.readlink()))
    except OSError:
        pass
    return found
