"""What others need for the same: parallel-ssh and ansible, in a virtual environment of their own that is thrown away.

Each connects to every guest and runs one command. Ours checks each host key; parallel-ssh never does, and ansible is let off it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from at_scale.servers import PORT, Servers

WANTED = {"parallel-ssh": "parallel-ssh", "ansible": "ansible-core"}  # by the names of the index
INSTALL_WITHIN_S = 300.0
RUN_WITHIN_S = 900.0
FORKS = 50
_PARALLEL_SSH = """\
import json, resource, sys
from pssh.clients import ParallelSSHClient
def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
hosts = json.load(open(sys.argv[1]))
began_s = cpu_s()
client = ParallelSSHClient(hosts, user=sys.argv[2], pkey=sys.argv[3], port=int(sys.argv[4]), num_retries=3, timeout=60)
output = client.run_command("/bin/true", stop_on_errors=False)
client.join(output)
lost = sum(one.exception is not None or one.exit_code != 0 for one in output)
print(json.dumps({"cpu_s": cpu_s() - began_s, "lost": lost}))
"""


class PeerError(Exception):
    """Why a peer was not measured, as a sentence."""


@dataclass(frozen=True)
class Took:
    """One pass of a peer over all guests: CPU seconds of it and its children, without its start; guests it did not reach."""

    cpu_s: float
    lost: int


def install(directory: Path, names: Sequence[str] = tuple(WANTED)) -> None:
    """Make the virtual environment, unless it is there. Raises PeerError."""
    if not (directory / "bin" / "python").exists():
        venv.create(directory, with_pip=True)
    words = [str(directory / "bin" / "python"), "-m", "pip", "install", "-q", *(WANTED[name] for name in names)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_WITHIN_S)
    except subprocess.TimeoutExpired:
        raise PeerError(f"installing {' and '.join(names)} took more than {INSTALL_WITHIN_S:g} s") from None
    if done.returncode:
        raise PeerError(f"{' and '.join(names)} cannot be installed: {done.stderr.strip()[-300:]}")


def parallel_ssh(environment: Path, servers: Servers, count: int) -> Took:
    """One command on the first `count` guests by parallel-ssh, with its defaults. Raises PeerError."""
    with tempfile.TemporaryDirectory() as work:
        hosts, program = Path(work, "hosts.json"), Path(work, "program.py")
        hosts.write_text(json.dumps(servers.addresses[:count]))
        program.write_text(_PARALLEL_SSH)
        words = [str(program), str(hosts), servers.user, str(servers.key), str(PORT)]
        done = _run([str(environment / "bin" / "python"), *words], {})[0]
    try:
        found = json.loads(done.stdout)
    except ValueError:
        raise PeerError(f"parallel-ssh failed: {done.stderr.strip()[-300:]}") from None
    return Took(found["cpu_s"], found["lost"])


def ansible(environment: Path, servers: Servers, count: int) -> Took:
    """One command by its leanest module, `raw`, which needs no Python on the guest. Raises PeerError.

    What it takes to start is measured with --version and taken off. It shares no connections here, since the processes that keep
    them outlive it and would be counted nowhere.
    """
    with tempfile.TemporaryDirectory() as work:
        hosts = Path(work, "hosts")
        hosts.write_text("\n".join(servers.addresses[:count]) + "\n")
        settings = {
            "ANSIBLE_HOST_KEY_CHECKING": "False",
            "ANSIBLE_LOCAL_TEMP": work,
            "ANSIBLE_HOME": work,
            "ANSIBLE_SSH_ARGS": "-F none -o ControlMaster=no -o UserKnownHostsFile=/dev/null",
            "ANSIBLE_GATHERING": "explicit",
        }
        program = [str(environment / "bin" / "python"), str(environment / "bin" / "ansible")]
        _, start_s = _run([*program, "--version"], settings)
        words = ["all", "-i", str(hosts), "-m", "raw", "-a", "/bin/true", "-f", str(FORKS), "-u", servers.user, "-o"]
        connection = ["-e", f"ansible_port={PORT}", "--private-key", str(servers.key)]
        done, cpu_s = _run([*program, *words, *connection], settings)
    reached = sum("| CHANGED" in line or "| SUCCESS" in line for line in done.stdout.splitlines())
    if not reached:
        raise PeerError(f"ansible failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return Took(cpu_s - start_s, count - reached)


def _run(words: Sequence[str], settings: dict[str, str]) -> tuple[subprocess.CompletedProcess[str], float]:
    """A program to its end, and the CPU of its whole tree."""
    measured = "import json, resource, subprocess, sys\n"
    measured += "ended = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL)\n"
    measured += "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
    measured += (
        "print('\\n' + json.dumps(used.ru_utime + used.ru_stime), file=sys.stderr)\nsys.exit(ended.returncode)\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", measured, *words], capture_output=True, text=True, timeout=RUN_WITHIN_S,
            env={**os.environ, **settings},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise PeerError(f"{Path(words[1]).name} took more than {RUN_WITHIN_S:g} s") from None
    return done, float(done.stderr.splitlines()[-1])
