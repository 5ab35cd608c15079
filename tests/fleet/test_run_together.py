"""Many guests at once: they start together, all are measured, and the fleet is the sum of its guests."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import socket
import subprocess
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from calyx_orch.commands.loopback import inventory_yaml
from calyx_orch.model import RunRecord
from fleet.disks import need_root
from fleet.whole_runs import TINY, guests_up, nothing_left, run, say

pytestmark = [pytest.mark.fleet]


def largest_skews_us(record: RunRecord, engine: str = "calyx") -> list[float]:
    """For each round of this engine the largest distance of a guest's first I/O from the start line, in microseconds."""
    rounds: dict[int, list[int]] = {}
    for measured in record.measurements:
        if measured.engine == engine and measured.skew_ns is not None:
            rounds.setdefault(measured.round_index, []).append(abs(measured.skew_ns))
    return [max(skews) / 1000 for skews in rounds.values()]


async def test_eight_guests_start_within_a_millisecond_and_add_up(tmp_path: Path) -> None:
    """Median over rounds of the largest skew of any guest below 1 ms; every guest measured; the fleet row is their sum."""
    body = TINY.replace("repetitions: 1", "repetitions: 5")
    async with guests_up(8, tmp_path) as fleet:
        ended = await run(inventory_yaml(fleet, body=body), tmp_path)
        await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    record, summary = ended.record, ended.summary
    skews = largest_skews_us(record)
    say(f"largest skew of each round, us: {[round(skew) for skew in skews]}, median {median(skews):.0f}")
    assert len(skews) == 5
    assert median(skews) < 1000
    assert all(m.skew_how == "published" and m.skew_bound_ns is not None for m in record.measurements)
    assert [outcome.state for outcome in record.outcomes] == ["measured"] * 8
    assert len(record.measurements) == 5 * 8
    assert [row.rounds for row in summary.guests] == [5] * 8
    (whole,) = summary.fleet
    assert whole.guests == whole.guests_planned == 8
    for field in ("throughput_bytes_per_s", "iops"):
        total = math.fsum(getattr(row, field) for row in summary.guests)
        assert getattr(whole, field) == pytest.approx(total, rel=1e-9)
    assert whole.samples == sum(row.samples for row in summary.guests)
    assert whole.iops == pytest.approx(8 * 400, rel=0.1), "each guest holds its rate"
    assert whole.skew_median_ns == pytest.approx(median(skews) * 1000)


@pytest.mark.slow
async def test_forty_guests_behind_a_limit_of_connections_still_start_together(tmp_path: Path) -> None:
    """A-052: limits hold back connecting and uploading, never the start."""
    body = TINY.replace("repetitions: 1", "repetitions: 3").replace("rate_iops: 400", "rate_iops: 50")
    body = body.replace("size: 8m", "size: 1m")
    async with guests_up(40, tmp_path) as fleet:
        ended = await run(inventory_yaml(fleet, body=body), tmp_path)
        await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    skews = largest_skews_us(ended.record)
    say(f"largest skew of each round, us: {[round(skew) for skew in skews]}, median {median(skews):.0f}")
    assert len(ended.record.measurements) == 3 * 40
    assert median(skews) < 20_000, "far below the length of the round"
    (whole,) = ended.summary.fleet
    assert whole.guests == 40
    assert whole.overlap is not None
    assert whole.overlap > 0.99


async def test_rounds_never_overlap_and_guests_of_one_host_name_are_kept_apart(tmp_path: Path) -> None:
    """A-051: no guest begins a round before every guest has ended the last one.

    A-056: guests are told apart by their names in the inventory; loopback guests all have this machine's host name.
    """
    body = TINY.replace("rw: randread", "rw: [randread, randwrite]").replace("repetitions: 1", "repetitions: 2")
    async with guests_up(3, tmp_path) as fleet:
        text = inventory_yaml(fleet, body=body).replace("same_machine: true", "same_machine: false")
        ended = await run(text, tmp_path)
        await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    spans: dict[int, tuple[int, int]] = {}
    for m in ended.record.measurements:
        assert m.started_ns is not None
        first, last = spans.get(m.round_index, (m.started_ns, m.window_end_ns))
        spans[m.round_index] = min(first, m.started_ns), max(last, m.window_end_ns)
    ordered = [spans[index] for index in sorted(spans)]
    assert len(ordered) == 4
    assert all(before[1] < after[0] for before, after in pairwise(ordered))
    assert {facts["hostname"] for facts in ended.record.facts.values()} == {socket.gethostname()}
    assert {m.guest for m in ended.record.measurements} == {"guest1", "guest2", "guest3"}
    assert len(list((ended.folder / "raw").glob("*/*"))) == 4 * 3
    assert "guests guest1, guest2 and guest3 are the same machine" in ended.out
    assert "guest1 and guest2 are" not in ended.out


async def test_a_guest_whose_clock_is_far_off_starts_with_the_others(tmp_path: Path) -> None:
    """A-054: monotonic clocks hours apart (time namespaces): same start line, one time axis, the offset is measured."""
    need_root("unshare")
    shifted = ["unshare", "--time", "--fork", "--monotonic", "4000", "--boottime", "4000", "--kill-child"]
    probe = subprocess.run([*shifted, "true"], capture_output=True, text=True, timeout=20)
    if probe.returncode != 0:
        pytest.skip(f"no time namespaces here: {probe.stderr.strip()}")
    force = f'{shlex.join(shifted)} /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
    async with guests_up(2, tmp_path) as fleet:
        await fleet.add("later", extra=[f"ForceCommand {force}"])
        ended = await run(inventory_yaml(fleet, body=TINY.replace("repetitions: 1", "repetitions: 3")), tmp_path)
        await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    offsets = _offsets_s(ended.folder)
    say(f"clock offsets, s: {offsets}, skews, us: {largest_skews_us(ended.record)}")
    assert offsets["later"] == pytest.approx(4000, abs=1)
    assert offsets["guest1"] == pytest.approx(0, abs=1)
    assert median(largest_skews_us(ended.record)) < 1000
    (whole,) = ended.summary.fleet
    assert whole.guests == 3
    assert whole.overlap is not None
    assert whole.overlap > 0.99


def _offsets_s(folder: Path) -> dict[str, float]:
    heads = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("raw/*/*/messages.json")}
    return {guest: head["clock"]["offset_ns"] / 1e9 for guest, head in heads.items()}


async def test_what_an_earlier_run_left_is_neither_used_nor_taken_for_an_answer(tmp_path: Path) -> None:
    """A-053: files of a run that was killed lie about (targets and work directories, time stamps in the future)."""
    async with guests_up(1, tmp_path) as fleet:
        (guest,) = fleet.guests
        old_target = guest.data / ".calyx-orch-aaaaaa"
        old_work = guest.home / ".cache" / "calyx-orch" / "work-old"
        for directory in (old_target, old_work):
            directory.mkdir(parents=True)
            for name in ("job.0", "result", "gate", "done"):
                (directory / name).write_text('{"type":"result","status":"ok"}')
                subprocess.run(["touch", "-d", "2099-01-01", directory / name], check=True)
        ended = await run(inventory_yaml(fleet, body=TINY), tmp_path)
        used = {path for paths in _prepared(ended.folder) for path in paths}
        assert ended.status == 0, ended.out + ended.err
        assert used
        assert not any(path.startswith(f"{old_target}/") for path in used)
        for path in (old_target / "job.0", old_work / "result"):
            assert path.read_text() == '{"type":"result","status":"ok"}', "what is not of this run is left alone"
            assert not path.stat().st_mtime < 4e9
        shutil.rmtree(old_target)
        shutil.rmtree(old_work)
        await nothing_left(fleet)


def _prepared(folder: Path) -> list[list[str]]:
    events = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    return [[file["path"] for file in e["answer"]["files"]] for e in events if e["event"] == "prepared"]


async def test_a_guest_that_lays_out_slowly_is_waited_for(tmp_path: Path) -> None:
    """A-050: nobody starts before the slowest guest is ready, here one with far more to lay out at a bounded rate."""
    body = """\
workloads:
  - {name: little, rw: read, bs: 64k, iodepth: 1, size: 1m, runtime: 0.5s, ramp_time: 0.1s, targets: data}
  - {name: big, rw: read, bs: 64k, iodepth: 1, size: 32m, runtime: 0.5s, ramp_time: 0.1s, targets: extra}
impact: {max_rate: 16MB/s}
baselines: none
repetitions: 1
settle: 0
lost_time_probe: 0
"""
    async with guests_up(2, tmp_path) as fleet:
        slow, quick = fleet.guests
        extra = slow.data / "extra"
        extra.mkdir()
        line = next(line for line in inventory_yaml(fleet).splitlines() if str(slow.data) in line)
        text = inventory_yaml(fleet, body=body).replace(line, f"{line}\n      extra: {extra}")
        ended = await run(text, tmp_path)
        extra.rmdir()
        await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    events = [json.loads(line) for line in (ended.folder / "journal.jsonl").read_text().splitlines()]
    prepared = {event["guest"]: event["at_ns"] for event in events if event["event"] == "prepared"}
    first_round = next(event["at_ns"] for event in events if event["event"] == "round")
    say(f"laid out {(prepared[slow.name] - prepared[quick.name]) / 1e9:.1f} s apart")
    assert prepared[slow.name] - prepared[quick.name] > 1e9
    assert first_round > prepared[slow.name]
    assert {outcome.state for outcome in ended.outcomes.values()} == {"measured"}
