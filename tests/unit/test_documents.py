"""YAML is read with the place of every value, bounded, and never reinterpreted."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Annotated

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calyx_orch import documents


def said(text: str) -> list[str]:
    return [str(problem) for problem in documents.load(text, "f.yaml").problems]


def test_scalars_stay_text() -> None:
    """Nothing of YAML 1.1's implicit typing happens, but for null."""
    document = documents.load("[no, on, 1e3, 0x1F, 22:22, 2024-01-01, 1_000, 3.10, .inf, ~, null, '', '~']", "f.yaml")
    assert documents.to_plain(document.root) == [
        "no", "on", "1e3", "0x1F", "22:22", "2024-01-01", "1_000", "3.10", ".inf", None, None, "", "~",
    ]  # fmt: skip
    assert document.problems == []


@pytest.mark.parametrize("number", ["0022", "08", "-07", "+010", "00", "007.5"])
def test_a_leading_zero_is_refused_unless_quoted(number: str) -> None:
    """Plain: an error with its place; quoted: text."""
    assert said(f"a: {number}")[0].startswith(f"f.yaml:1:4: {number} has a leading zero")
    assert said(f"a: '{number}'") == []


def test_zero_and_dotted_texts_are_no_leading_zeros() -> None:
    """0, 0.5, addresses and dates pass."""
    assert said("[0, 0.5, -0, 01.2.3.4, 02:30, 0x10, 2024-01-01]") == []


def test_merge_keys_are_honoured_and_earlier_ones_win() -> None:
    """What is written beats what is merged, the first merged beats the second, wherever << stands."""
    text = "x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz: {c: 3, <<: [*x, *y]}\nw: {<<: *x, a: 9}"
    plain = documents.to_plain(documents.load(text, "f.yaml").root)
    assert plain["z"] == {"c": "3", "a": "1", "b": "1"}
    assert plain["w"] == {"a": "9", "b": "1"}


def test_a_quoted_merge_key_is_a_key() -> None:
    """Only a plain << merges."""
    assert documents.to_plain(documents.load("'<<': {a: 1}", "f.yaml").root) == {"<<": {"a": "1"}}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml:3:1: duplicate key 'a': line 1 and line 3"),
        ("<<: {a: 1}\n<<: {b: 1}", "f.yaml:2:1: duplicate key '<<': line 1 and line 2"),
        ("<<: 3", "f.yaml:1:1: '<<' takes a mapping or a list of mappings"),
        ("~: 1", "f.yaml:1:1: this key is null"),
        ("? [a]\n: 1", "f.yaml:1:3: this key is a list or mapping"),
        ("a: !vault secret", "f.yaml:1:4: tag '!vault' is not supported"),
        ("a: !!python/name:os.system x", "f.yaml:1:4: tag '!!python/name:os.system' is not supported"),
        ("a: 1\n---\nb: 2", "f.yaml:2:1: a second document begins here"),
        ("a: *b", "f.yaml:1:4: unknown alias '*b'"),
        ("a: &a [*a]", "f.yaml:1:8: alias '*a' stands inside what it names"),
        ('a: "DOM\\user"', "f.yaml:1:10: not readable as YAML: did not find expected hexadecimal number (a backslash"),
        ("a:\n\tb: 1", "f.yaml:2:1: not readable as YAML: found character that cannot start any token (a tab"),
        ("a: b: c", "f.yaml:1:5: not readable as YAML: mapping values are not allowed in this context (a text with"),
        ("a: @b", "f.yaml:1:4: not readable as YAML: found character that cannot start any token (a text that begins"),
        ("[" * 100 + "]" * 100, "f.yaml:1:65: nested deeper than 64 levels"),
        ("- " * 100_000, "f.yaml:1:129: nested deeper than 64 levels"),
        ("a: b\0c", "f.yaml:1:5: not readable as YAML: control characters are not allowed"),
        ("a: &x 1\nb: &x 2", "f.yaml:2:4: duplicate anchor '&x': line 1 and line 2"),
    ],
)  # fmt: skip
def test_what_is_refused_says_where_and_what_to_do(text: str, problem: str) -> None:
    """One sentence each, with line and column."""
    assert [one for one in said(text) if one.startswith(problem)], said(text)


def test_a_refused_tag_shows_nothing_of_its_value() -> None:
    """A vault's text does not end in a terminal."""
    assert "6162" not in "".join(said("a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162636465"))


@pytest.mark.parametrize("tail", ["hosts: *i", "guests: *i", "x: {<<: *i}"])
def test_an_alias_bomb_is_refused_at_once(tail: str) -> None:
    """Nine levels of nine aliases: under a second, and under 200 MB for the whole process."""
    program = (
        "import re, time\n"
        "from pathlib import Path\n"
        "from calyx_orch import documents\n"
        "text = 'a: &a [x, x, x, x, x, x, x, x, x]\\n'\n"
        "for a, b in zip('abcdefgh', 'bcdefghi'): text += f'{b}: &{b} [' + ','.join([f'*{a}'] * 9) + ']\\n'\n"
        "begin = time.monotonic()\n"
        f"document = documents.load(text + {tail!r}, 'f.yaml')\n"
        "seconds = time.monotonic() - begin\n"
        # Not ru_maxrss: a child begins with its parent's, which in a whole suite is large.
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1]\n"
        "print(len(document.problems), seconds, peak)\n"
        "print(document.problems[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    figures, problem = done.stdout.splitlines()
    count, seconds, kilobytes = figures.split()
    assert int(count) == 1
    assert "aliases expand to more than" in problem
    assert float(seconds) < 1
    assert int(kilobytes) < 200_000


def test_aliases_that_stay_small_are_fine() -> None:
    """A base shared by many is what aliases are for."""
    text = "base: &base {user: bench, port: 22}\n" + "".join(
        f"g{n}: {{<<: *base, address: a{n}}}\n" for n in range(5000)
    )
    document = documents.load(text, "f.yaml")
    assert document.problems == []
    assert documents.to_plain(document.root)["g4999"]["user"] == "bench"


JSON_VALUES = st.recursive(
    st.none()
    | st.text(
        st.characters(
            codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufeff\ufffe\uffff\u2028\u2029\x85"
        ),
        max_size=20,
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text("abcdefghij<", min_size=1, max_size=8).filter(lambda key: key != "<<"), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_json_is_read_as_what_it_is(value: object) -> None:
    """Strings, nulls, lists and mappings of JSON come back unchanged."""
    document = documents.load(json.dumps({"v": value}, ensure_ascii=False, indent=1), "f.json")
    assert document.problems == []
    assert documents.to_plain(document.root) == {"v": value}


@given(st.text(max_size=60))
def test_no_text_makes_the_reader_raise(text: str) -> None:
    """Whatever is written ends in a document or in problems."""
    document = documents.load(text, "f.yaml")
    assert document.readable or document.problems


class Inner(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    port: Annotated[int, pydantic.Field(ge=1, le=65535)] = 22
    name: str = ""


class Outer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    guests: dict[str, Inner | None] = {}
    entries: list[Inner] = []
    need: str


def checked(text: str) -> tuple[Outer | None, list[str]]:
    document = documents.load(text, "inventory.yaml")
    model, _ = documents.validate(document, Outer, refusals={"bad": "it is bad"})
    return model, [str(problem) for problem in sorted(document.problems, key=lambda one: (one.line, one.column))]


def test_all_problems_of_a_schema_are_told_at_once_with_their_places() -> None:
    """Unknown keys get the closest known one; what is fine is still there for further checks."""
    model, problems = checked(
        "need: x\nguests:\n  vm1: {prot: 22}\n  vm2: {port: 99999}\n  vm3: {port: 3}\n  vm4: nothing\nentries: [{}, {nam: x}, 3]\nbad: 1\n"
    )
    assert problems == [
        "inventory.yaml:3:9: unknown key 'prot' (did you mean 'port'?)",
        "inventory.yaml:4:15: 'port' must be at most 65535, not '99999'",
        "inventory.yaml:6:8: 'vm4' must be a mapping, not 'nothing'",
        "inventory.yaml:7:16: unknown key 'nam' (did you mean 'name'?)",
        "inventory.yaml:7:25: 'entries[2]' must be a mapping, not '3'",
        "inventory.yaml:8:1: 'bad' is refused: it is bad",
    ]
    assert model is not None
    assert model.guests["vm3"] == Inner(port=3)


def test_a_missing_key_is_named_where_it_is_missing() -> None:
    """At the mapping that lacks it."""
    assert checked("guests: {}")[1] == ["inventory.yaml:1:1: missing key 'need'"]


def test_a_wrong_value_is_shown_shortened() -> None:
    """A value may be long; its message is not."""
    _, problems = checked("need: x\nguests: {vm1: {port: " + "9" * 500 + "}}")
    assert len(problems) == 1
    assert len(problems[0]) < 200


def test_ten_thousand_entries_are_read_in_seconds() -> None:
    """Reading and checking 10 000 guests stays far below ten seconds of CPU."""
    text = "need: x\nguests:\n" + "".join(f"  vm{n}: {{port: {n % 60000 + 1}, name: g{n}}}\n" for n in range(10_000))
    begin = time.process_time()
    model, problems = checked(text)
    assert problems == []
    assert model is not None
    assert len(model.guests) == 10_000
    assert time.process_time() - begin < 10
