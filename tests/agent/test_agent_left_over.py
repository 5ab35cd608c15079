"""A `clean` removes what dead agents left, by the records that lie in it, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import signal
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
