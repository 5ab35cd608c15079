"""Executables of other versions of the agent on a guest: found by their content, removed when nobody runs them.

The name of an agent holds the first digits of its digest (deploy/probe.py). That is its record: what does not have the digest that its
name says was not put there by us, or not whole, and stays.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from calyx_agent.executables import Executable
from calyx_orch import deploy
from calyx_orch.errors import AgentError
from calyx_orch.model import Guest, Untouched
from calyx_orch.transport import Completed, Transport

WITHIN_S = 60.0

# Arguments: marker, `remove` or `list`, names to keep (` a b `), then candidate directories as in deploy/probe.py. Nothing is made.
_SCRIPT = """\
LC_ALL=C; PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin; export LC_ALL PATH
m=$1; do=$2; keep=$3; shift 3
say() { printf '%s %s\\n' "$m" "$*"; }
running=$(readlink /proc/[0-9]*/exe 2>/dev/null)
for d do
	case $d in
	"~/"*) d=$HOME/${d#??} ;;
	shared:*) d=${d#shared:}/calyx-orch-$(id -u) ;;
	*) [ -O "$d" ] || d=$d/calyx-orch-$(id -u) ;;
	esac
	[ -d "$d" ] && [ -O "$d" ] && [ ! -L "$d" ] || continue
	for f in "$d"/calyx-agent-*; do
		[ -f "$f" ] && [ -O "$f" ] && [ ! -L "$f" ] || continue
		name=${f##*/}; digits=${name#calyx-agent-}; digits=${digits%%.*}
		case $keep in *" $name "*) continue ;; esac
		[ ${#digits} -eq 16 ] || { say kept "$f: its name is none of an agent"; continue; }
		sum=$(sha256sum 2>/dev/null < "$f") || { say kept "$f: no sha256sum to know it by"; continue; }
		case $sum in "$digits"*) ;; *) say kept "$f: its content is not what its name says"; continue ;; esac
		case $running in *"/$name"*) say kept "$f: it is running"; continue ;; esac
		size=$(wc -c < "$f")
		if [ "$do" = list ]; then say old $((size)) "$f"
		elif why=$(rm -f -- "$f" 2>&1); then say old $((size)) "$f"
		else say failed "$f:" ${why##*: }; fi
	done
done
say end
"""


async def remove(
    transport: Transport, guest: Guest, agents: Mapping[str, Executable], *, dry_run: bool
) -> tuple[tuple[tuple[str, int], ...], tuple[Untouched, ...], tuple[Untouched, ...]]:
    """Remove all agents on a guest but those of this installation: (path, bytes) of each, what was kept, and what stayed.

    Raises AgentError when the guest does not run the script to its end.
    """
    marker = f"calyx-{secrets.token_hex(8)}"
    keep = f" {' '.join(deploy.agent_name(agent) for agent in agents.values())} "
    argv = ("/bin/sh", "-c", _SCRIPT, "calyx-old-agents", marker, "list" if dry_run else "remove", keep)
    return read(await transport.run((*argv, *deploy.candidates(guest)), timeout_s=WITHIN_S), marker)


def read(
    done: Completed, marker: str
) -> tuple[tuple[tuple[str, int], ...], tuple[Untouched, ...], tuple[Untouched, ...]]:
    """What the script said. Raises AgentError when it did not come to its end."""
    said: dict[str, list[str]] = {}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        _, found, words = line.partition(marker + " ")
        if found:
            key, _, value = words.partition(" ")
            said.setdefault(key, []).append(value)
    if "end" not in said:
        raise AgentError("old agents could not be looked for: the script did not come to its end", step="clean")
    old = [line.partition(" ") for line in said.get("old", ())]
    agents = tuple((path, int(size)) for size, _, path in old if size.isascii() and size.isdigit())
    kept, failed = (
        tuple(Untouched(path, why) for path, _, why in (line.partition(": ") for line in said.get(key, ())))
        for key in ("kept", "failed")
    )
    return tuple(dict.fromkeys(agents)), kept, failed
