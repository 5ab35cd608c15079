"""The agent's executables that this installation holds, by architecture (as `uname -m` says it).

They lie in `calyx_agent/bin` as `calyx-agent-ARCH`. For development the environment's CALYX_AGENT_BIN names one
executable that is used for the machine it runs on, in front of the packaged one.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGED = Path(__file__).parent / "bin"
PREFIX = "calyx-agent-"

# What `uname -m` says for machines that run an executable made for another name.
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}
_ARCHITECTURE = re.compile(r"[a-z0-9_]+\Z")


class MissingAgentError(LookupError):
    """There is no executable for that architecture; the sentence says what to do."""


@dataclass(frozen=True)
class Executable:
    """One agent: where it is and what it is. `sha256` is the digest of its bytes, the name under which it is deployed."""

    arch: str
    path: Path
    sha256: str
    size_bytes: int

    def read(self) -> bytes:
        """Its bytes."""
        return self.path.read_bytes()


def find(arch: str, environment: Mapping[str, str] = os.environ) -> Executable:
    """The agent for a guest whose `uname -m` says `arch`. Raises MissingAgentError."""
    name = _ALIASES.get(arch, arch)
    path = _places(environment).get(name)
    if path is None:
        raise MissingAgentError(f"no agent for {arch}; run make agents")
    return _load(name, path)


def local(environment: Mapping[str, str] = os.environ) -> Executable:
    """The agent for the machine that this runs on. Raises MissingAgentError."""
    return find(platform.machine(), environment)


def available(environment: Mapping[str, str] = os.environ) -> dict[str, Executable]:
    """Every agent there is, by architecture."""
    return {arch: _load(arch, path) for arch, path in sorted(_places(environment).items())}


def _places(environment: Mapping[str, str]) -> dict[str, Path]:
    places = {
        arch: path
        for path in PACKAGED.glob(PREFIX + "*")
        if _ARCHITECTURE.match(arch := path.name.removeprefix(PREFIX)) and path.is_file()
    }
    override = environment.get("CALYX_AGENT_BIN")
    if override:
        places[_ALIASES.get(platform.machine(), platform.machine())] = Path(override)
    return places


def _load(arch: str, path: Path) -> Executable:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MissingAgentError(f"the agent for {arch} cannot be read: {error}") from error
    return Executable(arch, path, hashlib.sha256(content).hexdigest(), len(content))
