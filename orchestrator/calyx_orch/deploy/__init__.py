"""Put the agent on a guest and start it: one probe, at most one upload, one long-lived channel.

    probe   architecture, a directory that takes and starts programs, and whether the agent is there already
    put     once per content hash, under the hash's name: a running older agent is not disturbed
    start   `exec PATH` on a line channel, until `hello` with the right digest

`borrowed`, an agent leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

from calyx_agent import executables as shipped
from calyx_agent.executables import Executable
from calyx_orch.deploy.agent import Agent
from calyx_orch.deploy.probe import PROBE_TIMEOUT_S, STEP, agent_name, candidates, choose, look, notes_of, read_probe
from calyx_orch.deploy.starting import put, start
from calyx_orch.errors import AgentError, GuestError
from calyx_orch.model import Guest
from calyx_orch.transport import Transport

__all__ = ["PROBE_TIMEOUT_S", "STEP", "Agent", "agent_name", "candidates", "deploy", "give_back", "read_probe"]

# Arguments: a file (empty: none), then directories that may be empty.
_GIVE_BACK = """\
PATH=${PATH:+$PATH:}/usr/bin:/bin; export PATH
p=$1; shift
[ -z "$p" ] || rm -f -- "$p"
for d do rmdir -- "$d"; done 2> /dev/null
exit 0
"""


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
    probed = await look(transport, guest, agents)
    executable = choose(probed, agents)
    if probed.path is None:
        raise AgentError("no directory takes the agent: " + "; ".join(probed.tried), step=STEP)
    notes = notes_of(guest, probed)
    uploaded = not probed.is_there
    if uploaded:
        await put(transport, executable, probed.path)
    try:
        channel, decoder, hello = await start(transport, guest, probed, executable)
    except AgentError:
        if uploaded:
            raise
        # The file that was there has the name and the size, but may not be what it should be.
        await put(transport, executable, probed.path)
        uploaded = True
        channel, decoder, hello = await start(transport, guest, probed, executable)
    return Agent(channel, decoder, hello, path=probed.path, uploaded=uploaded, notes=notes)


async def _borrow(transport: Transport, guest: Guest, agents: Mapping[str, Executable]) -> Agent:
    """Start the agent and leave no file of it: one that another run may be using is neither replaced nor removed."""
    suffix = f".check-{secrets.token_hex(4)}"
    probed = await look(transport, guest, agents, suffix)
    ours: str | None = None
    try:
        executable = choose(probed, agents)
        if probed.path is None:
            raise AgentError("no directory takes the agent: " + "; ".join(probed.tried), step=STEP)
        try:
            if not probed.is_there:
                ours = probed.path
                await put(transport, executable, ours)
            channel, decoder, hello = await start(transport, guest, probed, executable)
        except AgentError:
            if ours is not None:
                raise
            # A run would replace what has the name and the size but is not what it should be; here it stays.
            ours = probed.path + suffix
            await put(transport, executable, ours)
            channel, decoder, hello = await start(transport, guest, replace(probed, path=ours), executable)
    except BaseException:
        await _remove(transport, probed.made, ours)
        raise
    notes = notes_of(guest, probed)
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
