"""What is said of a program that ran on a guest: someone else's text made fit for one line, and a channel's last words. Pure."""

from __future__ import annotations

import contextlib
import signal

from calyx_agent.protocol import Decoder
from calyx_orch.transport import Channel

NOTE_CHARACTERS_MAX = 400


def brief(text: str) -> str:
    """One line of someone else's text, without control characters and not too long."""
    plain = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(plain.split())[:NOTE_CHARACTERS_MAX]


def last_words(channel: Channel, decoder: Decoder | None = None) -> str:
    """What can be said of a channel that has ended: its status and the end of its stderr."""
    lines = [line for line in channel.stderr_tail().decode("utf-8", "replace").splitlines() if line.strip()]
    if not lines and decoder is not None:
        lines = decoder.noise[-1:]
    said = f": {brief('; '.join(lines[-3:]))}" if lines else ""
    if channel.exit_status is None:
        return f"the connection to the agent was lost{said}"
    if channel.exit_status > 128:
        with contextlib.suppress(ValueError):
            return f"the agent was ended by {signal.Signals(channel.exit_status - 128).name}{said}"
    return f"the agent ended with status {channel.exit_status}{said}"
