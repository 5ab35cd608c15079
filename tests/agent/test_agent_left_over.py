"""A `clean` removes what dead agents left, by the records that lie in it, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess, Message, files_below, is_gone

from calyx_agent import protocol

Start = Callable[..., AgentProcess]
SIZE = 65536


def die(agent: AgentProcess) -> None:
    """Guard and agent are killed at one instant, as by a power cut: nobody is left who cleans."""
    pids = [agent.process.pid, agent.hello["pid"]]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)
    agent.end()
    while not all(map(is_gone, pids)):
        time.sleep(0.005)


def clean(agent: AgentProcess, *paths: Path, list_only: bool = False) -> Message:
    agent.send_bytes(protocol.clean_left_over(paths, list_only=list_only))
    return agent.until("cleaned")


def left_by_the_dead(start: Start, target: Path, files: int = 2) -> Path:
    victim = start()
    prepared = victim.ask("prepare", "prepared", path=target, size=SIZE, files=files, run="20261201-aa", by="ann@desk")
    die(victim)
    return Path(prepared["directory"])


def found(answer: Message, kind: str) -> list[dict[str, Any]]:
    return [one for one in answer["found"] if one["kind"] == kind]


def test_what_a_dead_agent_left_is_listed_then_removed_and_counted(
    start: Start, agent_path: Path, target: Path
) -> None:
    made = left_by_the_dead(start, target)
    agent = start()
    listed = clean(agent, target, list_only=True)
    (files,) = found(listed, "files")
    assert {key: files[key] for key in ("path", "run", "by", "files")} == {
        "path": str(made), "run": "20261201-aa", "by": "ann@desk", "files": 2,
    }  # fmt: skip
    assert files["bytes"] >= 2 * SIZE
    assert abs(files["since_s"] - time.time()) < 60
    (work,) = found(listed, "work")
    assert Path(work["path"]).parent == agent_path.parent
    assert (listed["list"], listed["removed"], listed["failed"], listed["more"]) == (True, [], [], False)
    assert files_below(made) == ["job.0", "job.1", "owner"]

    cleaned = clean(agent, target)
    assert sorted(cleaned["removed"]) == sorted([str(made), work["path"]])
    assert (cleaned["failed"], cleaned["kept"]) == ([], [])
    (freed,) = cleaned["freed"]
    assert (freed["path"], freed["bytes"]) == (str(target), files["bytes"])
    assert freed["discard"] in ("online", "fstrim", "none", None)
    assert files_below(target) == []
    assert sorted(path.name for path in agent_path.parent.iterdir()) == sorted(
        [agent_path.name, Path(agent.hello["work"]).name]
    )
    assert clean(agent, target)["removed"] == []


def test_what_a_living_agent_made_is_kept_and_so_are_its_figures(start: Start, target: Path) -> None:
    living, cleaner = start(), start()
    made = living.ask("prepare", "prepared", path=target, size=SIZE, files=1, run="one", by="ann@desk")["directory"]
    answer = clean(cleaner, target)
    (kept,) = answer["kept"]
    assert kept["path"] == made
    assert re.fullmatch(
        rf"its agent lives: in use by run one of ann@desk for \d s \(agent {living.hello['pid']}\)", kept["why"]
    )
    assert (answer["removed"], answer["found"]) == ([], [])
    assert files_below(Path(made)) == ["job.0", "owner"]
    assert Path(living.hello["work"]).is_dir()


def test_a_list_leaves_what_the_agent_itself_made(agent: AgentProcess, target: Path) -> None:
    made = agent.ask("prepare", "prepared", path=target, size=SIZE, files=1)["directory"]
    assert clean(agent, target, list_only=True)["removed"] == []
    assert files_below(Path(made)) == ["job.0", "owner"]
    assert clean(agent, target)["removed"] == [made]


@pytest.mark.parametrize("note", [None, "", "run=x\nby=y\n", "kind=work\nfiles=1\nmachine={machine}\n"])
def test_a_name_like_ours_without_a_record_is_never_removed(start: Start, target: Path, note: str | None) -> None:
    """Somebody's directory may be called so, by chance or on purpose."""
    theirs = left_by_the_dead(start, target)
    machine = re.findall(r"machine=(.*)", (theirs / "owner").read_text())[0]
    (theirs / "owner").unlink()
    if note is not None:
        (theirs / "owner").write_text(note.format(machine=machine))
    long_ago = time.time() - 3600
    os.utime(theirs, (long_ago, long_ago))
    before = files_below(theirs)
    agent = start()
    answer = clean(agent, target)
    assert answer["kept"] == [{"path": str(theirs), "why": "no record in it says that an agent made it"}]
    assert files_below(theirs) == before
    assert agent.ask("facts", "facts", path=target)["paths"][0]["stale"] == []


def test_a_record_of_another_machine_is_not_acted_on(start: Start, target: Path) -> None:
    """A shared file system may not carry locks from machine to machine: its agent may live there."""
    theirs = left_by_the_dead(start, target)
    note = theirs / "owner"
    note.write_text(re.sub("machine=.*", "machine=elsewhere 0123", note.read_text()))
    answer = clean(start(), target)
    assert answer["kept"] == [{"path": str(theirs), "why": "an agent of another machine made it"}]
    assert (theirs / "job.0").exists()


def test_foreign_files_in_a_directory_of_ours_stay_with_its_record(start: Start, target: Path) -> None:
    made = left_by_the_dead(start, target)
    (made / "thesis.tex").write_text("years of work")
    (made / "job.2").write_text("beyond what the record names")
    answer = clean(start(), target)
    assert answer["failed"] == [{"path": str(made), "why": "files lie in it that no agent made"}]
    assert files_below(made) == ["job.2", "owner", "thesis.tex"]
    (made / "thesis.tex").unlink()
    (made / "job.2").unlink()
    assert clean(start(), target)["removed"] == [str(made)]


def test_a_link_in_the_place_of_a_directory_or_file_is_not_followed(start: Start, target: Path, tmp_path: Path) -> None:
    made = left_by_the_dead(start, target)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "job.0").write_text("keep me")
    shutil.copy(made / "owner", precious / "owner")
    (target / ".calyx-orch-link22").symlink_to(precious)
    (made / "job.0").unlink()
    (made / "job.0").symlink_to(precious / "job.0")
    answer = clean(start(), target)
    assert answer["removed"][:1] == [str(made)]
    assert (precious / "job.0").read_text() == "keep me"
    assert (target / ".calyx-orch-link22").is_symlink()


def test_a_cleaning_that_was_cut_short_left_a_record_of_the_rest(start: Start, target: Path) -> None:
    """The note goes last, so there is no moment at which files lie there without a record."""
    made = left_by_the_dead(start, target, files=3)
    (made / "job.0").unlink()
    answer = clean(start(), target)
    assert [one["files"] for one in found(answer, "files")] == [2]
    assert answer["removed"][0] == str(made)


def test_a_target_that_cannot_be_read_is_told(agent: AgentProcess, target: Path) -> None:
    answer = clean(agent, target / "missing", target)
    assert answer["failed"] == [{"path": str(target / "missing"), "why": "No such file or directory"}]
    assert [one["bytes"] for one in answer["freed"]] == [0, 0]


def test_more_than_one_line_holds_is_asked_for_again(start: Start, target: Path) -> None:
    made = left_by_the_dead(start, target, files=1)
    for number in range(400):
        shutil.copytree(made, target / f".calyx-orch-{number:06}")
    agent, rounds = start(), 0
    while (answer := clean(agent, target))["more"]:
        rounds += 1
        assert answer["removed"]
    assert 0 < rounds < 20
    assert files_below(target) == []


def test_a_list_that_takes_more_than_one_line_is_told_page_by_page(start: Start, target: Path) -> None:
    """What stays is skipped at the next question, so a list ends; in a cleaning it stands in nobody's way."""
    made = left_by_the_dead(start, target, files=1)
    for number in range(300):
        shutil.copytree(made, target / f".calyx-orch-{number:06}")
    for number in range(300, 600):
        (target / f".calyx-orch-{number:06}").mkdir()  # no record: kept
    agent = start()
    for list_only in (True, False):
        told: list[str] = []
        kept: set[str] = set()
        stay, more = 0, True
        while more:
            agent.send_bytes(protocol.clean_left_over([target], list_only=list_only, skip=stay))
            answer = agent.until("cleaned")
            told += [one["path"] for one in found(answer, "files")]
            kept |= {one["path"] for one in answer["kept"]}
            assert answer["stay"] > stay or answer["removed"] or not answer["more"]
            stay, more = answer["stay"], answer["more"]
        assert len(told) == len(set(told)) == 301
        assert len(kept) == 300
    assert len(files_below(target)) == 300


def dead_work(start: Start, agent_path: Path) -> Path:
    victim = start()
    die(victim)
    return Path(victim.hello["work"])


def test_of_a_dead_agents_work_directory_only_what_agents_make_is_removed(start: Start, agent_path: Path) -> None:
    work = dead_work(start, agent_path)
    (work / "gate").write_text("")
    (work / "calyx_lat.1.log").write_text("1, 2, 0, 4096, 0")
    laid = work / ".calyx-orch-aaaaaa"
    laid.mkdir()
    (laid / "job.0").write_text("")
    theirs = [work / "thesis", work / "calyx_figures"]
    for directory in theirs:
        directory.mkdir()
        (directory / "chapter.tex").write_text("years of work")
    agent = start()
    answer = clean(agent, agent_path.parent)
    assert answer["failed"] == [{"path": str(work), "why": "files lie in it that no agent made"}]
    assert sorted(path.name for path in work.iterdir()) == ["calyx_figures", "owner", "thesis"]
    for directory in theirs:
        assert (directory / "chapter.tex").read_text() == "years of work"
        shutil.rmtree(directory)
    assert clean(agent, agent_path.parent)["removed"] == [str(work)]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
@pytest.mark.parametrize("place", ["thesis", ".calyx-orch-bbbbbb"])
def test_what_is_mounted_in_a_work_directory_stays(start: Start, agent_path: Path, tmp_path: Path, place: str) -> None:
    """A bind mount has the device number of the file system around it."""
    precious = tmp_path / "precious"
    precious.mkdir()
    for name in ("job.0", "gate", "owner"):
        (precious / name).write_text("years of work")
    living, work = start(), dead_work(start, agent_path)
    points = [work / place, Path(living.hello["work"]) / place]
    for point in points:
        point.mkdir()
        subprocess.run(["mount", "--bind", precious, point], check=True)
    try:
        answer = clean(start(), agent_path.parent)
        assert [one["path"] for one in answer["failed"]] == [str(work)]
        living.send("bye")
        living.end()
        assert files_below(precious) == ["gate", "job.0", "owner"]
    finally:
        for point in points:
            subprocess.run(["umount", point], check=True)
            point.rmdir()
    assert clean(start(), agent_path.parent)["failed"] == []


@pytest.mark.parametrize("since", ["99999999999999999999999", "9223372036854775808", "-1", "soon"])
def test_a_note_with_an_absurd_number_hinders_nothing(start: Start, target: Path, since: str) -> None:
    made = left_by_the_dead(start, target)
    note = made / "owner"
    note.write_text(re.sub("since=.*", f"since={since}", re.sub("pid=.*", f"pid={since}", note.read_text())))
    answer = clean(start(), target)
    (files,) = found(answer, "files")
    assert files["since_s"] in (0, None)
    assert files["pid"] in (0, None)
    assert str(made) in answer["removed"]
