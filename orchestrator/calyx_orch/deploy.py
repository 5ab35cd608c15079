"""Put the agent on a guest and start it: one probe, at most one upload, one long-lived channel.

    probe   architecture, a directory that takes and starts programs, and whether the agent is there already
    put     once per content hash, under the hash's name: a running older agent is not disturbed
    start   `exec PATH` on a line channel, until `hello` with the right digest

A login shell may print anything around and into this. What is read by a machine is framed by a random marker; the rest is
kept as a note, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calyx_agent import executables as shipped
from calyx_agent.executables import Executable
from calyx_agent.protocol import Decoder, ProtocolError, encode
from calyx_orch.errors import AgentError, GuestError, ReachError
from calyx_orch.model import Guest
from calyx_orch.transport import Channel, Completed, Transport

PROBE_TIMEOUT_S = 60.0  # a login shell's start-up files can cost seconds
PUT_TIMEOUT_S = 120.0
HELLO_TIMEOUT_S = 30.0
PROTOCOL = 1
NOTE_CHARACTERS_MAX = 400
SHARED_PLACES = ("/var/tmp", "/tmp")
PATH_MAX = 4096
STEP = "deploy"

Message = Mapping[str, Any]
Pairs = Sequence[tuple[str, str | int]]

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

# Arguments: a file (empty: none), then directories that may be empty.
_GIVE_BACK = """\
PATH=${PATH:+$PATH:}/usr/bin:/bin; export PATH
p=$1; shift
[ -z "$p" ] || rm -f -- "$p"
for d do rmdir -- "$d"; done 2> /dev/null
exit 0
"""


class Agent:
    """An agent that runs on a guest, and the channel to it.

    `notes` are what the user should hear, each once; `made` the directories that were made for it, deepest first.
    """

    def __init__(
        self,
        channel: Channel,
        decoder: Decoder,
        hello: Message,
        *,
        path: str,
        uploaded: bool,
        notes: Sequence[str],
        made: Sequence[str] = (),
    ) -> None:
        self._channel = channel
        self._decoder = decoder
        self._waiting: deque[Message] = deque()
        self._ended = False
        self.hello = hello
        self.path = path
        self.uploaded = uploaded
        self.notes = tuple(notes)
        self.made = tuple(made)

    async def send(self, verb: str, pairs: Pairs = ()) -> None:
        """Send one line. Raises AgentError when it cannot be said, or when the agent or the connection is gone."""
        try:
            line = encode(verb, pairs)
        except ValueError as error:  # also of a str that is not Unicode: half of what is sent came from the guest
            raise AgentError(f"`{verb}` cannot be said to the agent: {error}", step=verb) from None
        await self._channel.send(line)

    async def receive(self, timeout_s: float | None) -> Message | None:
        """The next message; a long document comes whole, as `document{name,text}`. None at the end.

        Raises AgentError when nothing comes within `timeout_s` (None: for ever), or when it makes no sense.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not self._waiting and not self._ended:
                    line = await self._channel.receive()
                    if line is None:
                        self._ended = True
                    else:
                        self._waiting.extend(_decoded(self._decoder, line))
        except TimeoutError:
            raise AgentError(f"no answer within {timeout_s:g} s") from None
        return self._waiting.popleft() if self._waiting else None

    def last_words(self) -> str:
        """Why there is no more to receive, as a sentence."""
        return _last_words(self._channel)

    async def close(self) -> None:
        """Close the agent's stdin, which makes it stop, clean and end, and wait for that a bounded time."""
        await self._channel.close()


async def deploy(
    transport: Transport, guest: Guest, *, executables: Mapping[str, Executable] | None = None, borrowed: bool = False
) -> Agent:
    """Put the agent on a guest, unless it is there, and start it.

    `executables` are the agents there are, by `uname -m` (None: those of this installation). `borrowed`: an agent that is not
    there is put beside where it would stay, under a name of its own, and is gone from there as soon as it runs; `give_back`
    takes away the directories, too. Raises ReachError when the connection fails, AgentError with one sentence
    when the guest does not take or start the agent.
    """
    agents = shipped.available() if executables is None else executables
    if borrowed:
        return await _borrow(transport, guest, agents)
    probed = await _probe(transport, guest, agents)
    executable = _choose(probed, agents)
    if probed.path is None:
        raise AgentError("no directory takes the agent: " + "; ".join(probed.tried), step=STEP)
    notes = _notes(guest, probed)
    uploaded = not probed.is_there
    if uploaded:
        await _put(transport, executable, probed.path)
    try:
        channel, decoder, hello = await _start(transport, guest, probed, executable)
    except AgentError:
        if uploaded:
            raise
        # The file that was there has the name and the size, but may not be what it should be.
        await _put(transport, executable, probed.path)
        uploaded = True
        channel, decoder, hello = await _start(transport, guest, probed, executable)
    return Agent(channel, decoder, hello, path=probed.path, uploaded=uploaded, notes=notes)


async def _borrow(transport: Transport, guest: Guest, agents: Mapping[str, Executable]) -> Agent:
    """Start the agent and leave no file of it: one that another run may be using is neither replaced nor removed."""
    suffix = f".check-{secrets.token_hex(4)}"
    probed = await _probe(transport, guest, agents, suffix)
    ours: str | None = None
    try:
        executable = _choose(probed, agents)
        if probed.path is None:
            raise AgentError("no directory takes the agent: " + "; ".join(probed.tried), step=STEP)
        try:
            if not probed.is_there:
                ours = probed.path
                await _put(transport, executable, ours)
            channel, decoder, hello = await _start(transport, guest, probed, executable)
        except AgentError:
            if ours is not None:
                raise
            # A run would replace what has the name and the size but is not what it should be; here it stays.
            ours = probed.path + suffix
            await _put(transport, executable, ours)
            channel, decoder, hello = await _start(transport, guest, replace(probed, path=ours), executable)
    except BaseException:
        await _remove(transport, probed.made, ours)
        raise
    notes = _notes(guest, probed)
    path = ours or probed.path
    agent = Agent(channel, decoder, hello, path=path, uploaded=ours is not None, notes=notes, made=probed.made)
    if ours is not None:
        await _unlink(agent)
    return agent


async def _unlink(agent: Agent) -> None:
    """Have the agent remove its own file: a server may allow no second session (MaxSessions). `give_back` makes sure of it."""
    argv = ("/bin/sh", "-c", _GIVE_BACK, "calyx-give-back", agent.path)
    with contextlib.suppress(GuestError):
        await agent.send("exec", [*(("arg", word) for word in argv), ("timeout_ms", 10_000)])
        while (message := await agent.receive(PROBE_TIMEOUT_S)) is not None:
            if message.get("type") in ("exited", "refused"):
                break


async def give_back(transport: Transport, agent: Agent) -> None:
    """Remove what was made on the guest to borrow an agent that has ended; never raises."""
    await _remove(transport, agent.made, agent.path if agent.uploaded else None)


async def _remove(transport: Transport, made: Sequence[str], path: str | None) -> None:
    """Remove a borrowed agent and the directories that were made for it, as far as nobody else uses them; never raises."""
    if made or path is not None:
        with contextlib.suppress(GuestError):
            await transport.run(
                ("/bin/sh", "-c", _GIVE_BACK, "calyx-give-back", path or "", *made), timeout_s=PROBE_TIMEOUT_S
            )


# --- the probe ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Probed:
    """What the probe said. `path` is where the agent is or goes; None when no candidate will do."""

    arch: str
    path: str | None
    is_there: bool
    tried: tuple[str, ...]
    noise: tuple[str, ...]
    made: tuple[str, ...] = ()  # directories, deepest first


async def _probe(transport: Transport, guest: Guest, agents: Mapping[str, Executable], suffix: str = "") -> Probed:
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
        heard = f"it says {_brief(noise[0])!r}" if noise else "it says nothing"
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


def _choose(probed: Probed, agents: Mapping[str, Executable]) -> Executable:
    if probed.arch not in agents:
        there = ", ".join(agents) or "none"
        raise AgentError(f"no agent for {probed.arch} (there is: {there}): run `make agents`", step=STEP)
    return agents[probed.arch]


def _notes(guest: Guest, probed: Probed) -> tuple[str, ...]:
    notes = []
    if probed.tried:
        notes.append(f"the agent is at {probed.path}, as it could not go to {'; '.join(probed.tried)}")
    if probed.noise:
        more = f" and {len(probed.noise) - 1} more lines" if len(probed.noise) > 1 else ""
        notes.append(f"the login shell of {guest.name} prints text: {_brief(probed.noise[0])}{more}")
    return tuple(notes)


def _brief(text: str) -> str:
    """One line of someone else's text, without control characters and not too long."""
    plain = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(plain.split())[:NOTE_CHARACTERS_MAX]


# --- upload and start --------------------------------------------------------------------------------------------


async def _put(transport: Transport, executable: Executable, path: str) -> None:
    try:
        await transport.put(executable.read(), path, mode=0o700, timeout_s=PUT_TIMEOUT_S)
    except GuestError as error:
        error.step = error.step or STEP
        raise


async def _start(
    transport: Transport, guest: Guest, probed: Probed, executable: Executable
) -> tuple[Channel, Decoder, Message]:
    """Start the agent and wait for its greeting. Raises AgentError with what the guest said instead."""
    assert probed.path is not None
    channel = await transport.open((*guest.become, probed.path))
    decoder = Decoder()
    try:
        hello = await _greeting(channel, decoder)
        _check_hello(hello, executable)
    except BaseException as error:
        await channel.close()
        if isinstance(error, _SilentEndError):
            raise AgentError(await _why_it_did_not_start(transport, channel, decoder, probed), step=STEP) from None
        raise
    return channel, decoder, hello


class _SilentEndError(Exception):
    """The program ended before it greeted."""


async def _greeting(channel: Channel, decoder: Decoder) -> Message:
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            while (line := await channel.receive()) is not None:
                for message in _decoded(decoder, line):
                    return message
    except TimeoutError:
        raise AgentError(f"the agent did not greet within {HELLO_TIMEOUT_S:g} s", step=STEP) from None
    raise _SilentEndError


def _decoded(decoder: Decoder, line: bytes) -> list[Message]:
    try:
        messages = decoder.feed(line + b"\n")
    except ProtocolError as error:
        raise AgentError(str(error)) from None
    return [
        {"type": "document", "name": message["name"], "text": message["text"]}
        if message["type"] == "output"
        else message
        for message in messages
    ]


def _check_hello(hello: Message, executable: Executable) -> None:
    if hello.get("type") != "hello":
        raise AgentError(f"the agent began with {str(hello.get('type'))[:40]!r} and not with hello", step=STEP)
    if hello.get("protocol") != PROTOCOL:
        raise AgentError(f"the agent speaks protocol {str(hello.get('protocol'))[:20]}, not {PROTOCOL}", step=STEP)
    if hello.get("sha256") != executable.sha256:
        raise AgentError("the agent that started is not the one that was put there (its digest differs)", step=STEP)
    for key in ("path", "work"):
        value = hello.get(key)
        if not (isinstance(value, str) and value.startswith("/") and "\0" not in value and len(value) <= PATH_MAX):
            raise AgentError(f"the agent's greeting makes no sense: {key} is {str(value)[:40]!r}", step=STEP)


async def _why_it_did_not_start(transport: Transport, channel: Channel, decoder: Decoder, probed: Probed) -> str:
    said = _last_words(channel, decoder)
    if "GLIBC" in said or "libc.so" in said:
        libc = await transport.run(
            ("/bin/sh", "-c", "getconf GNU_LIBC_VERSION || ldd --version 2>&1"), timeout_s=PROBE_TIMEOUT_S
        )
        version = _brief(libc.stdout.decode("utf-8", "replace").partition("\n")[0]) or "no glibc"
        return f"the agent needs a newer C library than this guest's ({version}): {said}; run `make agents` for a static one"
    return f"the agent does not start on this guest ({probed.arch}, {probed.path}): {said}"


def _last_words(channel: Channel, decoder: Decoder | None = None) -> str:
    """What can be said of a channel that has ended: its status and the end of its stderr."""
    lines = [line for line in channel.stderr_tail().decode("utf-8", "replace").splitlines() if line.strip()]
    if not lines and decoder is not None:
        lines = decoder.noise[-1:]
    said = f": {_brief('; '.join(lines[-3:]))}" if lines else ""
    if channel.exit_status is None:
        return f"the connection to the agent was lost{said}"
    if channel.exit_status > 128:
        with contextlib.suppress(ValueError):
            return f"the agent was ended by {signal.Signals(channel.exit_status - 128).name}{said}"
    return f"the agent ended with status {channel.exit_status}{said}"
