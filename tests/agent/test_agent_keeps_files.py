"""Files that are kept from run to run: reused while they are what they were, else laid out anew with the reason, and never left over."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess, Message, files_below, is_gone

from calyx_agent import protocol

Start = Callable[..., AgentProcess]
SIZE = 1 << 20
KEEP = "vm1/data"
MS = 1_000_000
FS_IOC_FIEMAP = 0xC020660B
EXTENTS = 64


def prepare(agent: AgentProcess, target: Path, *, run: str = "night", **said: protocol.Value) -> Message:
    asked: dict[str, protocol.Value] = {
        "path": target, "size": SIZE, "files": 2, "seed": 7, "run": run, "by": "ann@desk", "keep": KEEP
    }  # fmt: skip
    return agent.ask("prepare", "prepared", **(asked | said))


def leave(agent: AgentProcess) -> None:
    agent.send("bye")
    assert agent.end() == 0


def night(start: Start, target: Path, **said: protocol.Value) -> Message:
    """A run that only lays out."""
    agent = start()
    prepared = prepare(agent, target, **said)
    leave(agent)
    return prepared


def power_cut(agent: AgentProcess) -> None:
    """Guard and agent are killed at one instant: nobody is left who closes or cleans."""
    pids = [agent.process.pid, agent.hello["pid"]]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)
    agent.end()
    while not all(map(is_gone, pids)):
        time.sleep(0.005)


def clean(agent: AgentProcess, target: Path, *, list_only: bool = False, kept: bool = False) -> Message:
    agent.send_bytes(protocol.clean_left_over([target], list_only=list_only, kept=kept))
    return agent.until("cleaned")


def files_of(prepared: Message) -> list[Path]:
    return [Path(one["path"]) for one in prepared["files"]]


def extents(path: Path) -> list[tuple[int, int, int]] | None:
    """Where a file lies: (logical, physical, length) of each extent; None where the file system cannot say."""
    request = bytearray(struct.pack("=QQIIII", 0, 1 << 62, 1, 0, EXTENTS, 0) + bytes(56 * EXTENTS))
    with path.open("rb") as file:
        try:
            fcntl.ioctl(file, FS_IOC_FIEMAP, request)
        except OSError:
            return None
    mapped = struct.unpack_from("=I", request, 20)[0]
    return [struct.unpack_from("=QQQ", request, 32 + 56 * number) for number in range(mapped)]


def identity(path: Path) -> tuple[object, ...]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_blocks, status.st_mtime_ns, extents(path)


def written_by(pid: int) -> int:
    """Bytes that a process has caused to be written to a disk."""
    return int(re.findall(r"^write_bytes: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)[0])


def sets_in(target: Path) -> list[str]:
    return sorted(str(path) for path in target.glob(".calyx-orch-*"))


# --- reused ----------------------------------------------------------------------------------------------------------


def test_kept_files_are_the_same_files_in_the_next_run_and_nothing_is_written(start: Start, target: Path) -> None:
    first = night(start, target)
    assert (first["layout"], first["anew"], first["uses"], first["written_bytes"]) == ("new", None, 0, 2 * SIZE)
    assert abs(first["laid_s"] - time.time()) < 60
    assert files_below(Path(first["directory"])) == ["job.0", "job.1", "kept", "owner"]
    before = [identity(path) for path in files_of(first)]
    for uses in (1, 2):
        agent = start()
        at_first = written_by(agent.hello["pid"])
        again = prepare(agent, target, run=f"night-{uses}", seed=8)
        assert written_by(agent.hello["pid"]) - at_first < SIZE // 4, "notes and records, and no file"
        assert (again["layout"], again["anew"], again["uses"], again["written_bytes"]) == ("reused", None, uses, 0)
        assert {key: again[key] for key in ("directory", "laid_s")} == {
            key: first[key] for key in ("directory", "laid_s")
        }
        assert [(one["size"], one["holes"], one["unwritten"]) for one in again["files"]] == [
            (one["size"], one["holes"], one["unwritten"]) for one in first["files"]
        ]
        assert files_below(Path(first["directory"])) == ["job.0", "job.1", "owner"], "in use, it is not closed"
        leave(agent)
        assert [identity(path) for path in files_of(again)] == before
    assert sets_in(target) == [first["directory"]]


def test_what_a_run_wrote_is_what_the_next_run_finds(start: Start, target: Path) -> None:
    """A write round changes the files; the record is of what they hold at the end."""
    agent = start()
    prepared = prepare(agent, target, files=1)
    (path,) = files_of(prepared)
    laid_out = path.read_bytes()
    job = {"rw": "randwrite", "bs": 4096, "iodepth": 4, "size": SIZE, "seed": 7, "data_seed": 8}
    agent.send("run", path=path, **job, ramp_ns=0, runtime_ns=200 * MS)
    agent.until("ready")
    agent.arm()
    assert agent.until("result")["status"] == "ok"
    leave(agent)
    written, before = path.read_bytes(), identity(path)
    assert written != laid_out
    again = night(start, target, files=1)
    assert (again["layout"], again["anew"]) == ("reused", None)
    assert (path.read_bytes(), identity(path)) == (written, before)


def test_larger_and_more_files_than_a_run_needs_are_reused(start: Start, target: Path) -> None:
    """A workload that is measured again by itself needs less, and destroys nothing."""
    first = night(start, target)
    less = night(start, target, files=1, size=SIZE // 2)
    assert less["layout"] == "reused"
    assert [one["path"] for one in less["files"]] == [first["files"][0]["path"]]
    assert [one["size"] for one in less["files"]] == [SIZE]
    again = night(start, target)
    assert (again["layout"], again["directory"]) == ("reused", first["directory"])


def test_each_name_has_files_of_its_own(start: Start, target: Path) -> None:
    """Two guests on one directory; their data differ."""
    one, two = start(), start()
    made = [prepare(one, target, seed=1), prepare(two, target, keep="vm2/data", seed=2)]
    assert files_of(made[0])[0].read_bytes() != files_of(made[1])[0].read_bytes()
    leave(one)
    leave(two)
    again = night(start, target, keep="vm2/data")
    assert (again["layout"], again["directory"]) == ("reused", made[1]["directory"])
    assert sets_in(target) == sorted(one["directory"] for one in made)


# --- laid out anew ---------------------------------------------------------------------------------------------------


def corrupt(path: Path) -> None:
    """One bit of the first block, behind the back of whoever looks at times."""
    status = path.stat()
    with path.open("r+b") as file:
        byte = file.read(1)
        file.seek(0)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def corrupt_the_end(path: Path) -> None:
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def write_somewhere(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(SIZE // 2 + 4097)
        file.write(b"somebody was here")


def truncate(path: Path) -> None:
    os.truncate(path, SIZE // 2)


def punch(path: Path) -> None:
    if extents(path) is None:
        pytest.skip("the file system cannot say where files lie")
    status = path.stat()
    words = ["fallocate", "--punch-hole", "--offset", str(SIZE // 2), "--length", "4096", path]
    if shutil.which("fallocate") is None or subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("no hole can be punched here")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_by_a_copy(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    copy.rename(path)


def link_elsewhere(path: Path) -> None:
    os.link(path, path.parents[2] / "backup")


def remove(path: Path) -> None:
    path.unlink()


def by_a_link(path: Path) -> None:
    elsewhere = path.parents[2] / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (corrupt, r"job\.0: samples=\w{16}, was samples=\w{16}"),
        (corrupt_the_end, r"job\.0: samples=\w{16}, was samples=\w{16}"),
        (write_somewhere, r"job\.0: modified=\d+, was modified=\d+"),
        (truncate, r"job\.0 has 524288 bytes, 0 of them unwritten; 1048576 are wanted"),
        (punch, r"job\.0 has 1048576 bytes, 4096 of them unwritten; 1048576 are wanted"),
        (replace_by_a_copy, r"job\.0: inode=\d+, was inode=\d+"),
        (link_elsewhere, r"job\.0: links=2, was links=1"),
        (remove, r"job\.0: No such file or directory"),
        (by_a_link, r"job\.0: (Too many levels of symbolic links|Symbolic link loop)"),
    ],
)
def test_a_file_that_is_no_longer_what_it_was_is_laid_out_anew(
    start: Start, target: Path, harm: Callable[[Path], None], reason: str
) -> None:
    first = night(start, target)
    harm(files_of(first)[0])
    agent = start()
    again = prepare(agent, target)
    assert again["layout"] == "new"
    assert re.fullmatch(reason, again["anew"])
    assert (again["uses"], again["written_bytes"]) == (0, 2 * SIZE)
    assert [path.stat().st_size for path in files_of(again)] == [SIZE, SIZE]
    assert sets_in(target) == [again["directory"]] != [first["directory"]]
    leave(agent)
    assert night(start, target)["layout"] == "reused"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"size": 2 * SIZE}, "job.0 has 1048576 bytes, 0 of them unwritten; 2097152 are wanted"),
        ({"files": 3}, "2 files were kept, 3 are wanted"),
        ({"verify": "crc32c"}, "2 files were kept, 2 are wanted whose blocks verify can check"),
    ],
)
def test_a_run_that_needs_more_lays_out_anew(start: Start, target: Path, said: dict[str, Any], reason: str) -> None:
    night(start, target)
    again = night(start, target, **said)
    assert (again["layout"], again["anew"]) == ("new", reason)
    assert night(start, target, **said)["layout"] == "reused"


def test_blocks_that_can_be_checked_stay_so_only_while_all_runs_check_them(start: Start, target: Path) -> None:
    """A run without verify may have written blocks that say nothing of themselves."""
    night(start, target, verify="crc32c")
    assert night(start, target, verify="crc32c")["layout"] == "reused"
    assert night(start, target)["layout"] == "reused"
    assert night(start, target, verify="crc32c")["layout"] == "new"


@pytest.mark.parametrize("damage", ["", "uses=1\n", "laid=99999999999999999999\nuses=1\nverify=0\ndisk fs=\n", "\0\n"])
def test_a_damaged_record_is_none(start: Start, target: Path, damage: str) -> None:
    record = Path(night(start, target)["directory"]) / "kept"
    record.write_text(damage)
    again = night(start, target)
    assert (again["layout"], again["anew"]) == ("new", "the run that used the kept files last did not close them")


@pytest.mark.parametrize("what", ["a pipe", "/dev/zero"])
def test_what_is_no_file_in_the_place_of_the_record_is_none_and_holds_nobody_up(
    start: Start, target: Path, what: str
) -> None:
    record = Path(night(start, target)["directory"]) / "kept"
    record.unlink()
    if what == "a pipe":
        os.mkfifo(record)
    else:
        record.symlink_to(what)
    again = night(start, target)
    assert (again["layout"], again["anew"]) == ("new", "the run that used the kept files last did not close them")
    assert [path for path in target.iterdir() if path != Path(again["directory"])] == []


def test_a_record_of_another_file_system_is_none_of_these_files(start: Start, target: Path) -> None:
    """The directory was copied with all that tells of it."""
    record = Path(night(start, target)["directory"]) / "kept"
    record.write_text(re.sub("fs=.*", "fs=feedbeef", record.read_text()))
    again = night(start, target)
    assert re.fullmatch(r"disk: fs=\w*, was fs=feedbeef", again["anew"])


def test_a_copy_of_a_set_is_not_taken_for_it(start: Start, target: Path) -> None:
    """Whichever of the two is looked at first: the copy is removed, or not looked at."""
    first = night(start, target)
    shutil.copytree(first["directory"], target / ".calyx-orch-copied", symlinks=True)
    again = night(start, target)
    assert (again["layout"], again["directory"]) == ("reused", first["directory"])


def test_foreign_files_among_kept_ones_stay_and_keep_the_run_away(start: Start, target: Path) -> None:
    made = Path(night(start, target)["directory"])
    (made / "thesis.tex").write_text("years of work")
    assert night(start, target)["layout"] == "reused", "they are in nobody's way"
    truncate(made / "job.0")
    agent = start()
    agent.send("prepare", path=target, size=SIZE, files=2, run="night", by="ann@desk", keep=KEEP)
    refused = agent.until("refused")
    assert "files lie in it that no agent made" in refused["why"]
    assert "job.0 has 524288 bytes" in refused["why"]
    assert (made / "thesis.tex").read_text() == "years of work"


# --- how runs end ----------------------------------------------------------------------------------------------------


@pytest.fixture
def slow(start: Start, target: Path) -> AgentProcess:
    """An agent in the middle of a layout."""
    agent = start()
    agent.send("prepare", path=target, size=64 << 20, files=1, max_bytes_per_s=8 << 20, run="night", keep=KEEP)
    agent.until("making")
    return agent


def gone(target: Path, *, within_s: float = 8.0) -> bool:
    deadline = time.monotonic() + within_s
    while files_below(target) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not files_below(target)


def test_an_agent_that_is_killed_while_it_lays_out_leaves_nothing(slow: AgentProcess, target: Path) -> None:
    os.kill(slow.hello["pid"], signal.SIGKILL)
    slow.end()
    assert gone(target)


def test_a_layout_that_is_stopped_leaves_nothing(slow: AgentProcess, target: Path) -> None:
    slow.send("stop")
    assert "stopped" in slow.until("refused")["why"]
    assert files_below(target) == []


def test_a_channel_that_ends_in_a_layout_leaves_nothing(slow: AgentProcess, target: Path) -> None:
    slow.close_stdin()
    slow.end()
    assert files_below(target) == []


def test_an_agent_that_is_killed_leaves_whole_files_to_the_next_run(start: Start, target: Path) -> None:
    """Its guard closes them."""
    victim = start()
    prepared = prepare(victim, target)
    os.kill(victim.hello["pid"], signal.SIGKILL)
    victim.end()
    assert victim.process.stderr is not None
    assert b"its fio is gone, its kept files stay" in victim.process.stderr.read()
    assert files_below(Path(prepared["directory"])) == ["job.0", "job.1", "kept", "owner"]
    assert night(start, target)["layout"] == "reused"


def test_a_guest_that_hears_nothing_leaves_whole_files_to_the_next_run(start: Start, target: Path) -> None:
    silent = start()
    prepared = prepare(silent, target)
    silent.send("lease", ms=300)
    silent.end()
    assert files_below(Path(prepared["directory"])) == ["job.0", "job.1", "kept", "owner"]
    assert night(start, target)["layout"] == "reused"


@pytest.mark.parametrize("nights", [0, 1])
def test_files_that_lost_their_power_are_laid_out_anew_in_their_own_place(
    start: Start, target: Path, nights: int
) -> None:
    """Nobody knows what the last writes left: no two sets of one name ever lie there. In the first night as in later ones."""
    for _ in range(nights):
        night(start, target)
    victim = start()
    prepared = prepare(victim, target)
    power_cut(victim)
    assert files_below(Path(prepared["directory"])) == ["job.0", "job.1", "owner"]
    agent = start()
    again = prepare(agent, target)
    assert (again["layout"], again["anew"]) == ("new", "the run that used the kept files last did not close them")
    assert sets_in(target) == [again["directory"]]


def test_files_that_cannot_be_closed_are_removed(start: Start, target: Path) -> None:
    """A file was taken away while they were used."""
    agent = start()
    prepared = prepare(agent, target)
    files_of(prepared)[1].unlink()
    assert agent.ask("clean", "cleaned")["removed"] == [prepared["directory"]]
    assert files_below(target) == []


def test_the_end_of_a_run_leaves_what_is_kept_and_removes_what_is_not(start: Start, target: Path) -> None:
    agent = start()
    kept = prepare(agent, target)
    other = agent.ask("prepare", "prepared", path=target, size=SIZE, files=1, run="night", by="ann@desk")
    assert (other["layout"], other["anew"]) == ("new", None)
    cleaned = agent.ask("clean", "cleaned")
    assert (cleaned["removed"], cleaned["failed"]) == ([other["directory"]], [])
    assert sets_in(target) == [kept["directory"]]
    leave(agent)
    assert sets_in(target) == [kept["directory"]]


# --- who has them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["other", "night"])
def test_kept_files_in_use_are_refused_to_every_other_agent(start: Start, target: Path, run: str) -> None:
    """Of another run, and of the same: one guest and target has one agent."""
    holder, late = start(), start()
    night(start, target)
    prepared = prepare(holder, target)
    late.send("prepare", path=target, size=SIZE, files=2, run=run, by="bob@desk", keep=KEEP)
    refused = late.until("refused")
    assert refused["errno"] == 16
    assert "in use by run night of ann@desk" in refused["why"]
    assert sets_in(target) == [prepared["directory"]]
    leave(holder)
    assert prepare(late, target, run=run)["layout"] == "reused"


def test_files_of_another_machine_are_neither_taken_nor_doubled(start: Start, target: Path) -> None:
    """Whether its agent lives is not known there; a second set beside it would grow the disk night after night."""
    note = Path(night(start, target)["directory"]) / "owner"
    note.write_text(re.sub("machine=.*", "machine=elsewhere 0123", note.read_text()))
    agent = start()
    agent.send("prepare", path=target, size=SIZE, files=2, run="night", by="ann@desk", keep=KEEP)
    assert "is kept for vm1/data: an agent of another machine made it" in agent.until("refused")["why"]
    assert len(sets_in(target)) == 1


def test_half_a_note_of_a_taking_that_was_cut_short_hinders_nothing(start: Start, target: Path) -> None:
    made = Path(night(start, target)["directory"])
    (made / "owner.new").write_text("kind=fil")
    assert night(start, target)["layout"] == "reused"


# --- clean -----------------------------------------------------------------------------------------------------------


def test_a_clean_tells_of_kept_files_and_removes_them_only_when_told_so(start: Start, target: Path) -> None:
    made = night(start, target, run="night-1")["directory"]
    agent = start()
    for list_only, kept in ((True, False), (True, True), (False, False)):
        answer = clean(agent, target, list_only=list_only, kept=kept)
        (found,) = (one for one in answer["found"] if one["kind"] == "files")
        assert (found["path"], found["keep"], found["files"], found["run"]) == (made, KEEP, 2, "night-1")
        assert found["bytes"] >= 2 * SIZE
        assert (answer["removed"], answer["failed"], answer["kept"]) == ([], [], [])
    answer = clean(agent, target, kept=True)
    assert answer["removed"] == [made]
    assert answer["freed"][0]["bytes"] >= 2 * SIZE
    assert files_below(target) == []


def test_a_clean_leaves_kept_files_in_use_whatever_it_is_told(start: Start, target: Path) -> None:
    holder = start()
    made = prepare(holder, target)["directory"]
    answer = clean(start(), target, kept=True)
    assert (answer["removed"], [one["path"] for one in answer["kept"]]) == ([], [made])


def test_a_clean_removes_files_that_were_not_closed(start: Start, target: Path) -> None:
    victim = start()
    made = prepare(victim, target)["directory"]
    power_cut(victim)
    answer = clean(start(), target)
    assert [one["keep"] for one in answer["found"] if one["kind"] == "files"] == [None]
    assert made in answer["removed"]
    assert files_below(target) == []


def test_the_facts_of_a_path_tell_kept_files_from_left_over_ones(start: Start, target: Path) -> None:
    kept = Path(night(start, target)["directory"])
    victim = start()
    left = Path(victim.ask("prepare", "prepared", path=target, size=SIZE, files=1)["directory"])
    power_cut(victim)
    (facts,) = start().ask("facts", "facts", path=target)["paths"]
    assert (facts["stale"], facts["kept"]) == ([left.name], [f"{kept.name} {KEEP}"])
