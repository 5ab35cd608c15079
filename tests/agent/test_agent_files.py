"""Files are laid out whole, and removed again."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_process import AgentProcess, files_below

SIZE = 4 << 20


def test_prepared_files_have_their_size_and_no_hole(agent: AgentProcess, target: Path) -> None:
    prepared = agent.ask("prepare", "prepared", path=target, size=SIZE, files=2, seed=5)
    paths = [Path(file["path"]) for file in prepared["files"]]
    assert [path.name for path in paths] == ["job.0", "job.1"]
    assert paths[0].parent.stat().st_mode & 0o777 == 0o700
    for path, file in zip(paths, prepared["files"], strict=True):
        status = path.stat()
        assert status.st_size == file["size"] == SIZE
        assert status.st_mode & 0o777 == 0o600
        assert status.st_blocks * 512 >= SIZE
        assert file["unwritten"] in (0, None)
        assert file["holes"] in (0, None)
    assert prepared["written_bytes"] == 2 * SIZE
    assert prepared["took_ns"] > 0
    assert paths[0].read_bytes() != paths[1].read_bytes()


def test_clean_removes_what_prepare_made_and_nothing_else(agent: AgentProcess, target: Path) -> None:
    other = target / ".calyx-orch-other"
    other.write_text("not ours")
    prepared = agent.ask("prepare", "prepared", path=target, size=SIZE, files=1)
    cleaned = agent.ask("clean", "cleaned")
    assert cleaned["removed"] == [str(Path(prepared["files"][0]["path"]).parent)]
    assert cleaned["failed"] == []
    assert files_below(target) == [other.name]
    assert agent.ask("clean", "cleaned")["removed"] == []


@pytest.mark.parametrize("name", [b"two words", b'a:b "c" \\d', b"new\nline", b"50%=x", "größe".encode(), b"caf\xe9"])
def test_any_bytes_make_a_path(agent: AgentProcess, target: Path, name: bytes) -> None:
    directory = target / os.fsdecode(name)
    try:
        directory.mkdir()
    except OSError as error:
        pytest.skip(f"the file system refuses this name: {error}")
    prepared = agent.ask("prepare", "prepared", path=directory, size=65536, files=1)
    told = prepared["files"][0]["path"]
    with contextlib.suppress(UnicodeDecodeError):
        assert told.startswith(os.fsencode(directory).decode())
    assert [path.stat().st_size for path in directory.rglob("job.*")] == [65536]
    agent.ask("clean", "cleaned")
    assert list(directory.iterdir()) == []


def test_more_than_the_free_space_is_refused_before_anything_is_written(agent: AgentProcess, target: Path) -> None:
    agent.send("prepare", path=target, size=1 << 60, files=1)
    refused = agent.until("refused")
    assert refused["errno"] == 28
    assert "No space left on device" in refused["why"]
    assert "bytes free" in refused["why"]
    assert files_below(target) == []


def test_a_missing_target_and_a_file_are_refused_by_name(agent: AgentProcess, target: Path) -> None:
    (target / "file").write_text("")
    agent.send("prepare", path=target / "missing", size=SIZE)
    assert str(target / "missing") in agent.until("refused")["why"]
    agent.send("prepare", path=target / "file", size=SIZE)
    assert "is no directory" in agent.until("refused")["why"]


def test_a_target_that_cannot_be_written_is_refused(start: Callable[..., AgentProcess], target: Path) -> None:
    """A root that may write anywhere runs the agent without that power."""
    power = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"]
    if os.geteuid() == 0 and shutil.which(power[0]) is None:
        pytest.skip("no setpriv to give up root's power with")
    agent = start(wrapper=power if os.geteuid() == 0 else ())
    target.chmod(0o500)
    agent.send("prepare", path=target, size=SIZE)
    assert "Permission denied" in agent.until("refused")["why"]


def test_prepare_tells_how_far_it_is_and_stops(agent: AgentProcess, target: Path) -> None:
    agent.send("prepare", path=target, size=64 << 20, files=1, max_bytes_per_s=8 << 20)
    beat = agent.until("beat")
    assert (beat["phase"], beat["total_bytes"]) == ("prepare", 64 << 20)
    assert 0 < beat["done_bytes"] < 64 << 20
    agent.send("stop")
    assert "stopped" in agent.until("refused")["why"]
    assert files_below(target) == []
