"""The wire protocol between controller and agent (docs/protocol.md), without any I/O: bytes in, messages out, and back.

What comes up is untrusted: whatever it is, it gives messages, noise or a ProtocolError, and never more memory than the limits.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

VERSION = 1
MARKER = b"calyx-agent/1 "
LINE_MAX_BYTES = 64 << 10
DOCUMENT_MAX_BYTES = 64 << 20
NOISE_LINES_MAX = 50  # kept for a note to the user; more are counted
NOISE_LINE_MAX_CHARACTERS = 400
NOISE_MAX_BYTES = 4 << 20  # that much before the marker, and it is no agent that talks
NUMBER_MAX = (1 << 64) - 1  # of every number, either way: what an agent can count; larger ones break floats further on
DEPTH_MAX = 32  # of objects and lists within one another
DOCUMENT_NAME_MAX_BYTES = 80  # so that it is a file name, percent-encoded, too
DOCUMENTS_UNDER_WAY_MAX = 64

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~/:@,+-")
_NAME = re.compile(r"[a-z0-9_]+\Z")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

Value = str | bytes | int | os.PathLike[str]
Message = dict[str, Any]


class ProtocolError(ValueError):
    """What was sent makes no sense: a sentence that says what. A decoder that raised it is of no further use."""


def encode(verb: str, pairs: Iterable[tuple[str, Value]] = ()) -> bytes:
    """One command line with its newline. A key may repeat; a str is sent as its UTF-8 bytes (surrogateescape kept).

    Raises ProtocolError for what the agent could not read: a bad verb or key, a NUL, a line above LINE_MAX_BYTES.
    """
    words = [_name(verb).encode()]
    words += [_name(key).encode() + b"=" + _encode_value(key, value) for key, value in pairs]
    line = b" ".join(words) + b"\n"
    if len(line) > LINE_MAX_BYTES:
        raise ProtocolError(f"the command {verb} takes {len(line)} bytes, more than a line of {LINE_MAX_BYTES}")
    return line


def clean_left_over(paths: Iterable[Value], *, list_only: bool, skip: int = 0, kept: bool = False) -> bytes:
    """The `clean` that also removes (or only lists) what dead agents left in the target directories `paths`.

    `skip` is `stay` of the answer before, whose `more` was true; `kept` removes files that are kept for later runs, too.

    Raises ProtocolError when they do not fit into one line.
    """
    asked = (("list", int(list_only)), ("kept", int(kept)), ("skip", skip))
    return encode("clean", [*(("path", path) for path in paths), *asked])


def _name(text: str) -> str:
    if not _NAME.match(text):
        raise ProtocolError(f"{text!r} is no verb or key: small letters, digits and _ only")
    return text


def _encode_value(key: str, value: Value) -> bytes:
    raw = value if isinstance(value, bytes) else os.fsencode(str(int(value)) if isinstance(value, int) else value)
    if b"\0" in raw:
        raise ProtocolError(f"the value of {key} holds a NUL byte")
    return b"".join(b"%c" % byte if byte in _PLAIN else b"%%%02X" % byte for byte in raw)


@dataclass
class _Document:
    """A document of which not all chunks have come."""

    of: int
    sha256: str
    chunks: list[str] = field(default_factory=list)


class Decoder:
    """Turns the bytes that an agent sends into messages.

    A message is a dict with a str `type`. The chunks of a document are put together and checked: they come out as one message
    `{"type": "output", "name": NAME, "of": 1, "n": 0, "sha256": HEX, "text": WHOLE}`. Lines that are no messages are kept
    in `noise`, the first NOISE_LINES_MAX of them; `noise_lines` counts all.
    """

    def __init__(self) -> None:
        self.noise: list[str] = []
        self.noise_lines = 0
        self.is_greeted = False  # the marker has been seen
        self._pending = b""
        self._skipping = False
        self._noise_bytes = 0
        self._documents: dict[str, _Document] = {}
        self._document_bytes = 0
        self._failure: str | None = None

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes. Raises ProtocolError, from then on at every call."""
        if self._failure is not None:
            raise ProtocolError(self._failure)
        try:
            return self._feed(data)
        except ProtocolError as error:
            self._failure = str(error)
            raise

    def _feed(self, data: bytes) -> list[Message]:
        *lines, rest = (self._pending + data).split(b"\n")
        messages = [message for line in lines if (message := self._take_line(line)) is not None]
        if len(rest) > LINE_MAX_BYTES:
            self._overlong(rest)
            self._skipping, rest = True, b""
        self._pending = rest
        return messages

    def _take_line(self, line: bytes) -> Message | None:
        if self._skipping:
            self._skipping = False
            return None
        if len(line) >= LINE_MAX_BYTES:
            self._overlong(line)
            return None
        if not self.is_greeted:
            noise, marker, line = line.partition(MARKER)
            if not marker:
                self._add_noise(noise)
                return None
            if noise:  # a banner without a newline of its own
                self._add_noise(noise)
            self.is_greeted = True
        elif not line.startswith(b"{"):
            self._add_noise(line)
            return None
        message = _parse(line)
        return self._take_chunk(message) if message["type"] == "output" else message

    def _overlong(self, line: bytes) -> None:
        if self.is_greeted:
            raise ProtocolError(f"the agent sent a line of more than {LINE_MAX_BYTES} bytes")
        self._add_noise(line)

    def _add_noise(self, line: bytes) -> None:
        self._noise_bytes += len(line) + 1
        if not self.is_greeted and self._noise_bytes > NOISE_MAX_BYTES:
            raise ProtocolError(f"{NOISE_MAX_BYTES >> 20} MiB came, and no agent's greeting in it: {self.noise[:1]}")
        if not line.strip():
            return
        self.noise_lines += 1
        if len(self.noise) < NOISE_LINES_MAX:
            self.noise.append(line[:NOISE_LINE_MAX_CHARACTERS].decode("utf-8", "replace").rstrip("\r"))

    def _take_chunk(self, chunk: Message) -> Message | None:
        name, n, of, sha256, text = (chunk.get(key) for key in ("name", "n", "of", "sha256", "text"))
        if not (isinstance(name, str) and isinstance(sha256, str) and isinstance(text, str)):
            raise ProtocolError("a chunk of output without name, sha256 or text")
        if not (0 < len(name.encode()) <= DOCUMENT_NAME_MAX_BYTES and name.isprintable()):
            raise ProtocolError(f"{name[:80]!r} is no name of a document")
        if type(n) is not int or type(of) is not int or not 0 <= n < of:
            raise ProtocolError(f"chunk {n} of {of} of the document {name!r} makes no sense")
        if of > 1 and not text:
            raise ProtocolError(f"chunk {n} of {of} of the document {name!r} is empty")
        document = self._documents.setdefault(name, _Document(of, sha256))
        if len(self._documents) > DOCUMENTS_UNDER_WAY_MAX:
            raise ProtocolError(f"more than {DOCUMENTS_UNDER_WAY_MAX} documents are under way")
        if n != len(document.chunks) or of != document.of or sha256 != document.sha256:
            raise ProtocolError(f"chunk {n} of {of} of the document {name!r} does not follow the one before")
        self._document_bytes += len(text)
        if self._document_bytes > DOCUMENT_MAX_BYTES:
            raise ProtocolError(f"the documents under way take more than {DOCUMENT_MAX_BYTES >> 20} MiB")
        document.chunks.append(text)
        if n + 1 < of:
            return None
        del self._documents[name]
        whole = "".join(document.chunks)
        self._document_bytes -= len(whole)
        _check_digest(name, whole, sha256)
        return {"type": "output", "name": name, "n": 0, "of": 1, "sha256": sha256, "text": whole}


def _parse(line: bytes) -> Message:
    try:
        message = parse_json(line.decode("utf-8"))
    except ValueError as error:
        raise ProtocolError(f"the agent sent what is no JSON ({error}): {line[:80]!r}") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ProtocolError(f"the agent sent a line that is no message: {line[:80]!r}")
    return message


def parse_json(text: str) -> Any:
    """Parse JSON that can be trusted to be harmless further on, whatever it says.

    No number is beyond NUMBER_MAX either way, no NaN or infinity, no lone surrogate, nothing is nested deeper than DEPTH_MAX.
    Raises ValueError with a sentence otherwise.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_int=_bounded_int, parse_float=_bounded_float)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEPTH_MAX}") from None
    if text.count("[") + text.count("{") > DEPTH_MAX:
        _check_depth(value)
    if _SURROGATE.search(text):
        _check_text(value)
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _bounded_int(digits: str) -> int:
    if len(digits) > 20 or abs(int(digits)) > NUMBER_MAX:
        raise ValueError(f"{digits[:24]} is too large a number")
    return int(digits)


def _bounded_float(digits: str) -> float:
    value = float(digits)
    if not abs(value) <= NUMBER_MAX:
        raise ValueError(f"{digits[:24]} is too large a number")
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [child for one in level for child in _children(one)]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {DEPTH_MAX}")


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return [one for one in value.values() if isinstance(one, dict | list)]
    return [one for one in value if isinstance(one, dict | list)] if isinstance(value, list) else ()


def _check_text(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half a surrogate pair") from None


def _check_digest(name: str, text: str, sha256: str) -> None:
    """Text that was not valid UTF-8 comes as Latin-1 as a whole; the digest, of its bytes, tells which it was."""
    for encoding in ("utf-8", "latin-1"):
        try:
            if hashlib.sha256(text.encode(encoding)).hexdigest() == sha256:
                return
        except UnicodeEncodeError:
            continue
    raise ProtocolError(f"the document {name!r} does not have the digest that was announced")
