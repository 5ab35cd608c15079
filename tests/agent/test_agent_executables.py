"""Finding the executable for a guest."""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import subprocess
from pathlib import Path

import pytest

from calyx_agent import executables


def test_every_available_agent_has_its_digest() -> None:
    for arch, executable in executables.available({}).items():
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


def test_the_executable_is_static_small_and_starts(built_agent: Path) -> None:
    """No loader and no C library of the guest is needed (case 071)."""
    headers = subprocess.run(["readelf", "-l", built_agent], capture_output=True, text=True, check=False)
    if headers.returncode:
        pytest.skip("no readelf to look into the executable with")
    if "INTERP" in headers.stdout:
        pytest.skip("built without a static C library on this machine")
    assert built_agent.stat().st_size < 1_200_000
    assert os.access(built_agent, os.X_OK)
    assert stat.S_ISREG(built_agent.stat().st_mode)
