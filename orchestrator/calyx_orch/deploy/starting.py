"""Put an executable on a guest, start it there, and hear from its greeting that it is the one that was put."""

from __future__ import annotations

import asyncio

from calyx_agent.executables import Executable
from calyx_agent.protocol import Decoder
from calyx_orch.deploy.agent import Message, decoded
from calyx_orch.deploy.probe import PROBE_TIMEOUT_S, STEP, Probed
from calyx_orch.deploy.words import brief, last_words
from calyx_orch.errors import AgentError, GuestError
from calyx_orch.model import Guest
from calyx_orch.transport import Channel, Transport

PUT_TIMEOUT_S = 120.0
HELLO_TIMEOUT_S = 30.0
PROTOCOL = 1
PATH_MAX = 4096


async def put(transport: Transport, executable: Executable, path: str) -> None:
    """Write the agent to a path of the guest. Raises GuestError."""
    try:
        await transport.put(executable.read(), path, mode=0o700, timeout_s=PUT_TIMEOUT_S)
    except GuestError as error:
        error.step = error.step or STEP
        raise


async def start(
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
                for message in decoded(decoder, line):
                    return message
    except TimeoutError:
        raise AgentError(f"the agent did not greet within {HELLO_TIMEOUT_S:g} s", step=STEP) from None
    raise _SilentEndError


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
    said = last_words(channel, decoder)
    if "GLIBC" in said or "libc.so" in said:
        libc = await transport.run(
            ("/bin/sh", "-c", "getconf GNU_LIBC_VERSION || ldd --version 2>&1"), timeout_s=PROBE_TIMEOUT_S
        )
        version = brief(libc.stdout.decode("utf-8", "replace").partition("\n")[0]) or "no glibc"
        return f"the agent needs a newer C library than this guest's ({version}): {said}; run `make agents` for a static one"
    return f"the agent does not start on this guest ({probed.arch}, {probed.path}): {said}"
