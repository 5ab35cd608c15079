"""The wire protocol in Python: whatever comes up is a message, noise or a ProtocolError; what goes down comes out the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from agent_process import AgentProcess
from hypothesis import given, settings
from hypothesis import strategies as st

from calyx_agent.protocol import LINE_MAX_BYTES, MARKER, NOISE_LINES_MAX, Decoder, ProtocolError, encode

HELLO = MARKER + b'{"type":"hello"}\n'
keys = st.from_regex(r"[a-z0-9_]{1,12}", fullmatch=True)
values = st.binary(max_size=60).filter(lambda raw: b"\0" not in raw)


def greeted() -> Decoder:
    decoder = Decoder()
    assert decoder.feed(HELLO) == [{"type": "hello"}]
    return decoder


def chunk(**fields: Any) -> bytes:
    return json.dumps({"type": "output"} | fields).encode() + b"\n"


def chunks(name: str, text: str, size: int, *, encoding: str = "utf-8") -> list[bytes]:
    digest = hashlib.sha256(text.encode(encoding)).hexdigest()
    pieces = [text[at : at + size] for at in range(0, len(text), size)] or [""]
    return [chunk(name=name, n=n, of=len(pieces), sha256=digest, text=piece) for n, piece in enumerate(pieces)]


@given(verb=keys, pairs=st.lists(st.tuples(keys, values), max_size=8))
def test_any_bytes_survive_encoding(verb: str, pairs: list[tuple[str, bytes]]) -> None:
    line = encode(verb, pairs)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    first, *words = line[:-1].split(b" ")
    assert first == verb.encode()
    decoded = [word.split(b"=", 1) for word in words]
    assert [(key.decode(), unquote_to_bytes(value)) for key, value in decoded] == pairs


@given(value=st.binary(max_size=200).filter(lambda raw: b"\0" not in raw))
@settings(max_examples=40, deadline=None)
def test_the_agent_reads_what_python_encodes(shared_agent: AgentProcess, value: bytes) -> None:
    """The agent tells the path back as it read it; non-UTF-8 comes back as Latin-1."""
    told = shared_agent.ask("facts", "facts", ("path", b"/" + value))["paths"][0]["path"]
    try:
        assert told == "/" + value.decode()
    except UnicodeDecodeError:
        assert told == "/" + value.decode("latin-1")


@pytest.fixture(scope="module")
def shared_agent(built_agent: Any) -> Any:
    agent = AgentProcess([built_agent])
    yield agent
    agent.leave()


@pytest.mark.parametrize(
    ("verb", "pairs", "words"),
    [
        ("Run", [], "no verb or key"),
        ("run", [("a b", "")], "no verb or key"),
        ("run", [("path", "a\0b")], "NUL"),
        ("run", [("path", "x" * LINE_MAX_BYTES)], "more than a line"),
    ],
)
def test_what_the_agent_could_not_read_is_not_encoded(verb: str, pairs: list[tuple[str, str]], words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        encode(verb, pairs)


def test_numbers_and_truth_values_are_decimal() -> None:
    assert encode("run", [("bs", 4096), ("direct", True)]) == b"run bs=4096 direct=1\n"


def test_banners_before_the_marker_are_noise() -> None:
    decoder = Decoder()
    banner = b'Welcome to vm1\r\n\n{not json\n{"type":"hello"}\n\xff\xfe bytes\nlast login, no newline '
    assert decoder.feed(banner) == []
    assert decoder.feed(HELLO + b'{"type":"clock"}\n') == [{"type": "hello"}, {"type": "clock"}]
    assert decoder.noise[0] == "Welcome to vm1"
    assert decoder.noise[-1].startswith("last login")
    assert decoder.noise_lines == 5


def test_later_lines_that_are_no_objects_are_noise() -> None:
    decoder = greeted()
    assert decoder.feed(b"mail has arrived\n" * 500 + b'{"type":"clock"}\n') == [{"type": "clock"}]
    assert (len(decoder.noise), decoder.noise_lines) == (NOISE_LINES_MAX, 500)


def feed_endlessly(decoder: Decoder, data: bytes) -> None:
    for _ in range(1000):
        decoder.feed(data)


def test_endless_noise_without_a_greeting_is_an_error() -> None:
    decoder = Decoder()
    with pytest.raises(ProtocolError, match="greeting"):
        feed_endlessly(decoder, (b"yes " * 25 + b"\n") * 400)
    with pytest.raises(ProtocolError):
        decoder.feed(HELLO)


def test_endless_noise_without_a_newline_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="greeting"):
        feed_endlessly(Decoder(), b"y" * 40_000)


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"{}",
        b'{"type":5}',
        b'{"type":"a"} {"type":"b"}',
        b'{"type":"\xff"}',
        b'{"type":"a","x":NaN}',
        b'{"type":"a","x":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        b'{"type":"a","x":' + b"9" * 5000 + b"}",
        b'{"type":"a","x":"' + b"y" * LINE_MAX_BYTES + b'"}',
        b'{"type":"output"}',
        b'{"type":"output","name":"r","n":true,"of":1,"sha256":"","text":""}',
        b'{"type":"output","name":"r","n":1,"of":2,"sha256":"","text":""}',
        b'{"type":"output","name":"r","n":0,"of":0,"sha256":"","text":""}',
        b'{"type":"output","name":"r","n":0,"of":1,"sha256":"","text":"\\ud800"}',
    ],
)
def test_what_makes_no_sense_is_a_protocol_error(line: bytes) -> None:
    decoder = greeted()
    with pytest.raises(ProtocolError):
        decoder.feed(line + b"\n")
    with pytest.raises(ProtocolError):
        decoder.feed(b'{"type":"clock"}\n')


@given(data=st.lists(st.one_of(st.binary(max_size=80), st.just(HELLO), st.just(b"{"), st.just(b"\n")), max_size=20))
def test_no_bytes_crash_the_decoder(data: list[bytes]) -> None:
    decoder = Decoder()
    try:
        for piece in data:
            for message in decoder.feed(piece):
                assert isinstance(message["type"], str)
    except ProtocolError:
        pass


@given(text=st.text(st.characters(exclude_categories=["Cs"])), size=st.integers(1, 50), step=st.integers(1, 300))
@settings(deadline=None)
def test_a_document_is_put_together_however_it_is_cut(text: str, size: int, step: int) -> None:
    decoder = greeted()
    stream = b"".join(chunks("result", text, size))
    messages = [message for at in range(0, len(stream), step) for message in decoder.feed(stream[at : at + step])]
    assert [message["text"] for message in messages] == [text]


def test_latin1_documents_are_told_from_utf8_by_their_digest() -> None:
    decoder = greeted()
    (message,) = decoder.feed(b"".join(chunks("stdout", "caf\xe9", 2, encoding="latin-1")))
    assert message["text"] == "caf\xe9"


def test_two_documents_may_come_interleaved() -> None:
    one, other = chunks("a", "12", 1), chunks("b", "34", 1)
    decoder = greeted()
    messages = decoder.feed(b"".join([one[0], other[0], one[1], other[1]]))
    assert [message["text"] for message in messages] == ["12", "34"]


def test_a_wrong_digest_and_a_missing_chunk_are_errors() -> None:
    good = chunks("a", "123", 1)
    with pytest.raises(ProtocolError, match="digest"):
        greeted().feed(b"".join([*good[:2], good[2].replace(b'"3"', b'"4"')]))
    with pytest.raises(ProtocolError, match="does not follow"):
        greeted().feed(good[0] + good[2])


def test_documents_beyond_the_limit_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calyx_agent.protocol.DOCUMENT_MAX_BYTES", 10)
    with pytest.raises(ProtocolError, match="MiB"):
        greeted().feed(b"".join(chunks("a", "x" * 11, 5)))


@pytest.mark.parametrize(
    "value",
    [
        "1" + "0" * 400, str(1 << 64), str(-(1 << 64)), "1e999", "-1e308", "NaN", "Infinity", "9" * 5000, r'"\ud800"', r'"a\udfff"',
        r'{"\udc00":1}', "[" * 40 + "]" * 40, '{"a":' * 40 + "1" + "}" * 40, "[" * 9000 + "]" * 9000,
    ],
)  # fmt: skip
def test_what_would_break_something_further_on_is_no_message(value: str) -> None:
    """Numbers beyond 64 bits or floats, half characters, deep nesting: refused here, with what it was."""
    with pytest.raises(ProtocolError, match="what is no JSON"):
        greeted().feed(b'{"type":"x","value":%s}\n' % value.encode())


@pytest.mark.parametrize(
    "value", [str((1 << 64) - 1), "1.5", "-1", r'"\ud83d\ude00"', "[" * 30 + "]" * 30, '"' + "[" * 500 + '"']
)
def test_what_only_looks_odd_is_a_message(value: str) -> None:
    """The largest number of 64 bits, a whole surrogate pair, brackets in a text."""
    (message,) = greeted().feed(b'{"type":"x","value":%s}\n' % value.encode())
    assert message["value"] == json.loads(value)


@pytest.mark.parametrize("name", ["", "x" * 81, "\u00e9" * 41, "a\0b", "a\nb", "\u202e"])
def test_a_document_has_a_name_that_a_file_can_have(name: str) -> None:
    with pytest.raises(ProtocolError, match="no name of a document"):
        greeted().feed(chunks(name, "text", 10)[0])


def test_documents_under_way_are_few_and_no_chunk_is_empty() -> None:
    """Neither costs memory without being counted."""
    with pytest.raises(ProtocolError, match="under way"):
        greeted().feed(b"".join(chunks(f"d{number}", "12", 1)[0] for number in range(100)))
    with pytest.raises(ProtocolError, match="is empty"):
        greeted().feed(chunk(name="a", n=0, of=2, sha256="", text=""))
