"""An agent that runs on a guest: lines down, messages up, and how it ended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from calyx_agent.protocol import Decoder, ProtocolError, encode
from calyx_orch.deploy import words
from calyx_orch.errors import AgentError
from calyx_orch.transport import Channel

Message = Mapping[str, Any]
Pairs = Sequence[tuple[str, str | int]]


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
                        self._waiting.extend(decoded(self._decoder, line))
        except TimeoutError:
            raise AgentError(f"no answer within {timeout_s:g} s") from None
        return self._waiting.popleft() if self._waiting else None

    def last_words(self) -> str:
        """Why there is no more to receive, as a sentence."""
        return words.last_words(self._channel)

    async def close(self) -> None:
        """Close the agent's stdin, which makes it stop, clean and end, and wait for that a bounded time."""
        await self._channel.close()


def decoded(decoder: Decoder, line: bytes) -> list[Message]:
    """The messages that a line completes; a document that came in parts is one. Raises AgentError when the line is none of an agent."""
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
