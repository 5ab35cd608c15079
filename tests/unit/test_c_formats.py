"""Every directive in a sentence of the C sources is one that `calyx_format` knows; the compiler checks them as printf's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FORMATTER = ROOT / "native/src/text.c"
SOURCES = sorted({*ROOT.glob("agent/src/*.c"), *ROOT.glob("native/src/*.c")} - {FORMATTER})
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"(?:\s*(PRI\w+))?')
DIRECTIVE = re.compile(r"%(?:%|(?:\.(?:\*|\d+))?s|c|(?:ll?|z)?[du])")
MACROS = {"PRId32", "PRIu32", "PRId64", "PRIu64"}


def unknown_directives(source: str) -> list[str]:
    """What a sentence would show as it stands, instead of its argument."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", source, flags=re.DOTALL)
    found = []
    for text, macro in LITERAL.findall(code):
        rest = DIRECTIVE.sub("", text)
        if macro in MACROS and rest.endswith("%"):
            rest = rest[:-1]
        if "%" in rest:
            found.append(f'"{text}" {macro}'.strip())
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_directive_is_known_to_the_formatter(path: Path) -> None:
    assert not unknown_directives(path.read_text(encoding="utf-8"))


def test_a_directive_that_is_unknown_is_found() -> None:
    source = (
        'say("%x"); say("%5d of %s"); say("%" PRIi64); say("%.3f"); say("%g %" PRIu64); fine("%.*s %% %" PRIu64 "%zu");'
    )
    assert len(unknown_directives(source)) == 5
