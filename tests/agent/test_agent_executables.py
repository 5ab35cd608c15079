"""Finding the executable for a guest."""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from calyx_agent import executables


def test_what_make_build_builds_is_there() -> None:
    """Elsewhere tests skip without the agent's executable or the engine in the process; here a build that made none fails."""
    assert executables.local({}).path.is_file()
    assert importlib.import_module("calyx_agent.engine")


def test_every_available_agent_has_its_digest() -> None:
    available = executables.available({})
    assert available
    for arch, executable in available.items():
        assert executable.arch == arch
        content = executable.read()
        assert (executable.sha256, executable.size_bytes) == (hashlib.sha256(content).hexdigest(), len(content))


def test_a_missing_architecture_says_what_to_do() -> None:
    with pytest.raises(executables.MissingAgentError, match=r"^no agent for riscv64; run make agents$"):
        executables.find("riscv64", {})


def test_a_development_build_goes_first(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(b"not really an agent")
    found = executables.find(platform.machine(), {"CALYX_AGENT_BIN": str(mine)})
    assert (found.path, found.size_bytes) == (mine, 19)
    with pytest.raises(executables.MissingAgentError, match="cannot be read"):
        executables.local({"CALYX_AGENT_BIN": str(tmp_path / "gone")})


def test_the_executable_is_static_small_and_starts(agent_path: Path) -> None:
    """No loader and no C library of the guest is needed (case 071)."""
    if shutil.which("readelf") is None:
        pytest.skip("no readelf to look into the executable with")
    headers = subprocess.run(["readelf", "-l", agent_path], capture_output=True, text=True, check=True).stdout
    if "INTERP" in headers:
        pytest.skip("built without a static C library on this machine")
    assert agent_path.stat().st_size < 1_200_000
    assert os.access(agent_path, os.X_OK)
    assert stat.S_ISREG(agent_path.stat().st_mode)
    if os.geteuid() == 0:  # where nothing else is
        starts = ["chroot", agent_path.parent, f"/{agent_path.name}", "--version"]
        assert subprocess.run(starts, capture_output=True, text=True, check=True).stdout.startswith("calyx-agent ")
