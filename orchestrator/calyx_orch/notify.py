"""Messages to people (apprise: e-mail, Slack, Teams, webhooks ...) and signs of life to dead-man services.

An address is a secret: it is named as `env:NAME` or `file:PATH` and read when it is needed; no text of this module holds it.
"""

from __future__ import annotations

import http.client
import logging
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from calyx_orch.errors import UsageError

PING_TIMEOUT_S = 10.0
SECRET_MIN = 4  # shorter words of an address are no secrets, and are left in what a service says
WHY_MAX = 300
HTTP = ("http://", "https://")


def secret(reference: str) -> str:
    """The address that `env:NAME` or `file:PATH` names. Raises UsageError when it is not there, without a word of it."""
    kind, _, name = reference.partition(":")
    if kind == "env" and name:
        found = os.environ.get(name, "").strip()
        if not found:
            raise UsageError(f"{reference}: the environment has no {name}")
        return found
    if kind == "file" and name:
        try:
            found = Path(name).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{reference} cannot be read: {getattr(error, 'strerror', None) or 'no text'}") from error
        if not found:
            raise UsageError(f"{reference} is empty")
        return found
    raise UsageError("an address is a secret: name where it is, env:NAME or file:PATH, instead of the address itself")


def check_ping(reference: str) -> None:
    """Raise UsageError when the reference is none, or, where it can be read here, holds no http address."""
    if (address := _readable(reference)) and not address.startswith(HTTP):
        raise UsageError(f"{reference} holds no http address")


def check(reference: str) -> None:
    """Raise UsageError when the reference is none, or, where it can be read here, holds no address of a known kind."""
    import apprise

    _hush()
    if (address := _readable(reference)) and not apprise.Apprise().add(address):
        raise UsageError(f"{reference} holds no address that apprise knows, such as mailtos://... or slack://...")


def _readable(reference: str) -> str:
    """The address, or "" where it cannot be read here: it is the daemon's environment that counts. Raises UsageError for no reference."""
    kind, _, name = reference.partition(":")
    if kind not in ("env", "file") or not name:
        return secret(reference)
    try:
        return secret(reference)
    except UsageError:
        return ""


def send(reference: str, title: str, body: str) -> str:
    """Deliver a message. Returns why that failed, without the address, or "". Blocks."""
    import apprise

    try:
        address = secret(reference)
    except UsageError as error:
        return str(error)
    _hush()
    sender = apprise.Apprise()
    if not sender.add(address):
        return f"{reference} holds no address that apprise knows"
    with apprise.LogCapture(level=logging.WARNING) as said:  # type: ignore[no-untyped-call]
        # Said to be text: an e-mail would take what guests said for HTML.
        if sender.notify(title=title, body=body, body_format=apprise.NotifyFormat.TEXT):
            return ""
        return without(said.getvalue(), address) or "the service did not take it"


def ping(reference: str) -> str:
    """Ask for an address once, as dead-man services want it. Returns why that failed, without the address, or "". Blocks."""
    try:
        address = secret(reference)
    except UsageError as error:
        return str(error)
    if not address.startswith(HTTP):
        return f"{reference} holds no http address"
    try:
        with urllib.request.urlopen(address, timeout=PING_TIMEOUT_S):
            return ""
    except urllib.error.HTTPError as error:
        return f"ping: HTTP {error.code}"
    except http.client.HTTPException as error:  # its text may be of the address, or of whatever the server said
        return f"ping: no answer that HTTP knows ({type(error).__name__})"
    except (OSError, ValueError) as error:
        return without(f"ping: {error}", address)


def without(text: str, address: str) -> str:
    """A text on one line, every part of the address that may be a secret taken out, as it is written there and as it is meant."""
    written = set(re.split(r"[:/?&=@#,]+", address))
    meant = {urllib.parse.unquote(word) for word in written} | {urllib.parse.unquote_plus(word) for word in written}
    quoted = {urllib.parse.quote(word, safe="") for word in written}
    for word in sorted(written | meant | quoted, key=len, reverse=True):
        if len(word) >= SECRET_MIN:
            text = text.replace(word, "***")
    return " ".join(text.split())[:WHY_MAX]


def _hush() -> None:
    """What apprise logs may name parts of an address: it is kept for us alone."""
    logger = logging.getLogger("apprise")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
