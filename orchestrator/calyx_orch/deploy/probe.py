"""One look at a guest before anything is put there: architecture, a directory that starts programs, and whether the agent is in it.

A login shell may print anything around and into this. What is read by a machine is framed by a random marker; the rest is kept as
a note, once.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from calyx_agent.executables import Executable
from calyx_orch.deploy.words import brief
from calyx_orch.errors import AgentError, ReachError
from calyx_orch.model import Guest
from calyx_orch.transport import Completed, Transport

PROBE_TIMEOUT_S = 60.0  # a login shell's start-up files can cost seconds
SHARED_PLACES = ("/var/tmp", "/tmp")
STEP = "deploy"

# Arguments: marker, agents as `arch:name:size ...`, what is appended to the name of one that is not there yet, then candidate
# directories. `~/` stands for HOME. Directories that had to be made are told. In a directory that is open to others (`shared:`) or
# belongs to someone else a private one is made, and what is not ours there is not trusted.
_PROBE = """\
LC_ALL=C; PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin; export LC_ALL PATH
m=$1; agents=$2; suffix=$3; shift 3
say() { printf '%s %s\\n' "$m" "$*"; }
arch=$(uname -m); say arch "$arch"; say home "$HOME"
name=
for agent in $agents; do
	case $agent in "$arch":*) name=${agent#*:}; size=${name#*:}; name=${name%:*};; esac
done
set -f
for d in ${name:+"$@"}; do
	case $d in
	"~/"*) [ -d "$HOME" ] || { say tried "$d: HOME ($HOME) does not exist"; continue; }; d=$HOME/${d#??} ;;
	shared:*) d=${d#shared:}; [ -d "$d" ] || { say tried "$d: does not exist"; continue; }; d=$d/calyx-orch-$(id -u) ;;
	*) [ ! -d "$d" ] || [ -O "$d" ] || d=$d/calyx-orch-$(id -u) ;;
	esac
	p=$d; while [ -n "$p" ] && [ ! -e "$p" ]; do say made "$p"; case $p in */*) p=${p%/*} ;; *) p= ;; esac; done
	why=$(umask 077; mkdir -p "$d" 2>&1) || { say tried "$d:" ${why##*: }; continue; }
	[ -O "$d" ] && [ ! -L "$d" ] || { say tried "$d: belongs to someone else"; continue; }
	t=$d/.exec-test.$$
	why=$( { printf '#!/bin/sh\\nexit 42\\n' > "$t" && chmod 700 "$t"; } 2>&1 )
	if [ $? -ne 0 ]; then rm -f "$t"; say tried "$d:" ${why##*: }; continue; fi
	why=$("$t" 2>&1); status=$?; rm -f "$t"
	[ $status -eq 42 ] || { say tried "$d: no program starts there (mounted noexec?):" ${why##*: }; continue; }
	if [ -x "$d/$name" ] && [ -O "$d/$name" ] && [ "$(wc -c < "$d/$name")" -eq "$size" ]; then say have "$d/$name"; break; fi
	set -- $(df -Pk "$d" 2>/dev/null | tail -n 1)
	case $4 in *[!0-9]*|"") ;; *) [ $(($4 * 1024)) -ge "$size" ] || {
		say tried "$d: No space left on device ($(($4 * 1024)) bytes free)"; continue; } ;;
	esac
	say room "$d/$name$suffix"; break
done
say end
"""


@dataclass(frozen=True)
class Probed:
    """What the probe said. `path` is where the agent is or goes; None when no candidate will do."""

    arch: str
    path: str | None
    is_there: bool
    tried: tuple[str, ...]
    noise: tuple[str, ...]
    made: tuple[str, ...] = ()  # directories, deepest first


async def look(transport: Transport, guest: Guest, agents: Mapping[str, Executable], suffix: str = "") -> Probed:
    """Look at a guest; `suffix` is appended to the name of an agent that is not there yet. Raises ReachError and AgentError."""
    marker = f"calyx-{secrets.token_hex(8)}"
    known = " ".join(f"{arch}:{agent_name(agent)}:{agent.size_bytes}" for arch, agent in agents.items())
    argv = ("/bin/sh", "-c", _PROBE, "calyx-probe", marker, known, suffix, *candidates(guest))
    return read_probe(await transport.run(argv, timeout_s=PROBE_TIMEOUT_S), marker)


def candidates(guest: Guest) -> tuple[str, ...]:
    """The directories to try, in order, as the probe takes them."""
    named = (guest.agent_dir,) if guest.agent_dir is not None else ()
    shared = (*SHARED_PLACES, *(target.path for target in guest.targets if not target.device))
    return (*named, "~/.cache/calyx-orch", *(f"shared:{path}" for path in shared))


def agent_name(agent: Executable) -> str:
    """The file name of an agent on a guest: of its content, so that one name always means the same program."""
    return f"calyx-agent-{agent.sha256[:16]}"


def read_probe(done: Completed, marker: str) -> Probed:
    """Find the probe's words among whatever else the login printed. Raises when it did not come to its end."""
    if done.status is None:
        raise ReachError("the connection was lost while the guest was being looked at", step=STEP)
    said: dict[str, list[str]] = {}
    noise: list[str] = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        before, found, words = line.partition(marker + " ")
        if before.strip():
            noise.append(before.strip())
        if found:
            key, _, value = words.partition(" ")
            said.setdefault(key, []).append(value.strip())
    noise += [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    if "end" not in said:
        heard = f"it says {brief(noise[0])!r}" if noise else "it says nothing"
        raise AgentError(f"the login runs no command ({heard}, status {done.status}): is it restricted?", step=STEP)
    path = said.get("have") or said.get("room")
    return Probed(
        arch=said["arch"][0],
        path=path[0] if path else None,
        is_there="have" in said,
        tried=tuple(said.get("tried", ())),
        noise=tuple(noise),
        made=tuple(sorted(dict.fromkeys(said.get("made", ())), key=len, reverse=True)),
    )


def choose(probed: Probed, agents: Mapping[str, Executable]) -> Executable:
    """The agent for this guest. Raises AgentError when there is none of its architecture."""
    if probed.arch not in agents:
        there = ", ".join(agents) or "none"
        raise AgentError(f"no agent for {probed.arch} (there is: {there}): run `make agents`", step=STEP)
    return agents[probed.arch]


def notes_of(guest: Guest, probed: Probed) -> tuple[str, ...]:
    """What the user should hear of it."""
    notes = []
    if probed.tried:
        notes.append(f"the agent is at {probed.path}, as it could not go to {'; '.join(probed.tried)}")
    if probed.noise:
        more = f" and {len(probed.noise) - 1} more lines" if len(probed.noise) > 1 else ""
        notes.append(f"the login shell of {guest.name} prints text: {brief(probed.noise[0])}{more}")
    return tuple(notes)
