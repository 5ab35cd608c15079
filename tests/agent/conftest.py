"""A real agent for the tests: the packaged one, else one built from this tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from agent_process import AgentProcess
from loop_devices import Loops

from calyx_agent import executables

ROOT = Path(__file__).resolve().parents[2]
DENY = ROOT / "tests" / "golden" / "tools" / "deny_syscall.py"


@pytest.fixture(scope="session")
def built_agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent's executable for this machine."""
    try:
        return executables.local().path
    except executables.MissingAgentError:
        pass
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no packaged agent, and no cmake to build one")
    build = tmp_path_factory.mktemp("build")
    subprocess.run([cmake, "-S", ROOT, "-B", build], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([cmake, "--build", build, "--target", "calyx-agent"], check=True, stdout=subprocess.DEVNULL)
    return next(build.glob("calyx-agent-*"))


@pytest.fixture
def agent_path(built_agent: Path, tmp_path: Path) -> Path:
    """A copy of the executable in a directory of its own, so that its work directory is found there and nowhere else."""
    directory = tmp_path / "home"
    directory.mkdir()
    return Path(shutil.copy(built_agent, directory / "calyx-agent"))


@pytest.fixture
def start(agent_path: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Starts agents; they are ended with the test. `deny` are system calls that fail with EPERM, `wrapper` starts it."""
    agents: list[AgentProcess] = []

    def start_agent(*, deny: str = "", wrapper: Sequence[str] = (), env: dict[str, str] | None = None) -> AgentProcess:
        denying = [sys.executable, str(DENY), "EPERM", deny, "--"] if deny else []
        agents.append(AgentProcess([*wrapper, *denying, agent_path], env=env))
        return agents[-1]

    yield start_agent
    for agent in agents:
        agent.leave()


@pytest.fixture
def agent(start: Callable[..., AgentProcess]) -> AgentProcess:
    """One running agent, greeted."""
    return start()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A directory to lay files out in."""
    directory = tmp_path / "target"
    directory.mkdir()
    return directory


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[Loops]:
    made = Loops(tmp_path)
    yield made
    for device in made.made:
        if device:
            subprocess.run(["losetup", "--detach", device], check=False)
