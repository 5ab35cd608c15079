"""Where io_uring is forbidden the agent says by what: the sysctl, and who is exempt from it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_process import AgentProcess

DENY = Path(__file__).resolve().parents[1] / "golden" / "tools" / "deny_syscall.py"
SYSCTL = "/proc/sys/kernel/io_uring_disabled"
GROUP = "/proc/sys/kernel/io_uring_group"
LAID_OVER = f'mount --bind "$2/disabled" {SYSCTL} && mount --bind "$2/group" {GROUP} && exec {sys.executable} "$0" EPERM 425 -- "$1"'


@pytest.mark.root
@pytest.mark.skipif(
    os.geteuid() != 0 or not Path(GROUP).exists(), reason="needs root and a kernel with that sysctl (6.6)"
)
@pytest.mark.parametrize(
    ("disabled", "group", "said"),
    [
        ("1", "-1", "kernel.io_uring_disabled is 1, kernel.io_uring_group -1"),
        ("1", "980", "kernel.io_uring_disabled is 1, kernel.io_uring_group 980"),
        ("2", "980", "kernel.io_uring_disabled is 2"),
    ],
)
def test_the_sysctl_and_its_group_are_told(
    start: Callable[..., AgentProcess], tmp_path: Path, disabled: str, group: str, said: str
) -> None:
    """A-027: 2 forbids it to everybody, 1 to all but root and a group. Files of a test stand for the kernel's own."""
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    (tmp_path / "disabled").write_text(disabled + "\n")
    (tmp_path / "group").write_text(group + "\n")
    agent = AgentProcess(["unshare", "-m", "sh", "-c", LAID_OVER, DENY, start().hello["path"], tmp_path])
    try:
        ring = agent.ask("facts", "facts")["io_uring"]
    finally:
        agent.leave()
    assert ring["ok"] is False
    assert ring["why"].endswith(said), ring["why"]
    assert "EPERM (Operation not permitted)" in ring["why"]
