"""Guests that lie in one place each: every field of every message and document, replaced by one nonsense after another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from calyx_orch.transport.simulated import Script

Path = tuple[str | int, ...]

EVIL = "<b id=evil>"
NONSENSE: Mapping[str, str] = {  # JSON texts, of which some are none
    "null": "null",
    "true": "true",
    "fraction": "1.5",
    "negative": "-1",
    "2^63": str(1 << 63),
    "2^64-1": str((1 << 64) - 1),
    "10^400": "1" + "0" * 400,
    "1e308": "1e308",
    "1e999": "1e999",
    "NaN": "NaN",
    "text": '"x"',
    "empty": '""',
    "surrogate": '"/\\ud800"',
    "NUL": '"/a\\u0000b"',
    "markup": json.dumps(f"/{EVIL}\x1b[31m\x9b\u202e\r\n[bold]</script>"),
    "percents": json.dumps("/" + "%" * 30_000),
    "60 kB": json.dumps("/" + "x" * 60_000),
    "100 kB": json.dumps("/" + "y" * 100_000),
    "list": "[]",
    "list of lists": "[[]]",
    "list of objects": "[{}]",
    "object": "{}",
    "deep": "[" * 300 + "]" * 300,
    "deeper": '{"a":' * 5000 + "1" + "}" * 5000,
}
_HERE = "@@nonsense@@"


@dataclass(frozen=True)
class Lie:
    """One place, and the nonsense that is there instead. `kind` is a message's type, or `document NAME`."""

    kind: str
    path: Path
    nonsense: str

    def __str__(self) -> str:
        return f"{self.kind} {'.'.join(map(str, self.path))} = {self.nonsense}"

    def script(self) -> Script:
        """A guest that tells this lie whenever it says such a message, and else the truth."""
        if self.kind == "hello":
            return Script(bend_hello=lambda hello: json.loads(bent(hello, self.path, self.nonsense)))
        if self.kind.startswith("document "):
            return Script(bend_document=self._document)
        return Script(bend=self._message)

    def _message(self, message: dict[str, Any]) -> list[bytes]:
        if message["type"] != self.kind:
            return [json.dumps(message).encode()]
        return [bent(message, self.path, self.nonsense).encode()]

    def _document(self, name: str, text: str) -> str:
        if self.kind != f"document {name}" or not text.startswith("{"):
            return text
        return bent(json.loads(text), self.path, self.nonsense)


def bent(value: Any, path: Path, nonsense: str) -> str:
    """The JSON of a value with the nonsense at that path, or as it is where it has no such path."""
    try:
        return json.dumps(_with(value, path)).replace(f'"{_HERE}"', NONSENSE[nonsense])
    except (KeyError, IndexError, TypeError):
        return json.dumps(value)


def _with(value: Any, path: Path) -> Any:
    if not path:
        return _HERE
    first, *rest = path
    if isinstance(value, list):
        assert isinstance(first, int)
        return [*value[:first], _with(value[first], tuple(rest)), *value[first + 1 :]]
    if first == "further":
        return {**value, first: _HERE}
    return {**value, first: _with(value[first], tuple(rest))}


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place of a value, of a list only the first entry, and a key that it has not."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, child in value.items():
            if (key, path) != ("type", ()):
                yield from places(child, (*path, key))
        yield (*path, "further")
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))
