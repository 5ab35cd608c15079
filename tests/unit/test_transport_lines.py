"""Lines out of bytes, within bounds."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calyx_orch.errors import AgentError
from calyx_orch.transport import Completed
from calyx_orch.transport.lines import Capped, LineBuffer, Tail
from calyx_orch.transport.put import check_put


def all_lines(buffer: LineBuffer) -> list[bytes]:
    lines = []
    while buffer.is_ready and (line := buffer.take()) is not None:
        lines.append(line)
    return lines


@given(data=st.binary(max_size=400), cuts=st.lists(st.integers(0, 400), max_size=20))
def test_lines_do_not_depend_on_how_the_bytes_arrive(data: bytes, cuts: list[int]) -> None:
    buffer = LineBuffer()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for begin, end in itertools.pairwise(edges):
        buffer.feed(data[begin:end])
    buffer.feed_eof()
    expected = data.split(b"\n")
    assert all_lines(buffer) == (expected if expected[-1] else expected[:-1])
    assert buffer.held_bytes == 0
    assert buffer.take() is None


@pytest.mark.parametrize("data", [b"x" * 11, b"ok\n" + b"x" * 11, b"x" * 11 + b"\nlater\n"])
def test_a_long_line_is_an_error_and_is_not_kept(data: bytes) -> None:
    """Lines before it are given out, nothing after it, and the error stays."""
    buffer = LineBuffer(limit=10)
    for byte in data:
        buffer.feed(bytes([byte]))
    buffer.feed(b"y" * 1_000_000)
    assert len(buffer._rest) <= 10
    if data.startswith(b"ok"):
        assert buffer.take() == b"ok"
    for _ in range(2):
        with pytest.raises(AgentError, match="longer than"):
            buffer.take()


def test_ends_of_streams_are_kept_within_their_limits() -> None:
    tail, first = Tail(limit=5), Capped(limit=5)
    for part in (b"abc", b"defg", b"h"):
        tail.feed(part)
        first.feed(part)
    assert (tail.data, first.data) == (b"defgh", b"abcde")


@pytest.mark.parametrize(
    ("stderr", "sentence"),
    [
        (
            b"cat: write error: No space left on device\ntmpfs  64  64  0 100% /small\n",
            r"No space left on device \(/small/agent, 0 bytes free\)",
        ),
        (
            b"sh: 5: cannot create /small/agent.part.9: Read-only file system\n",
            "cannot write /small/agent: Read-only file system",
        ),
        (b"noise\nonly 17 of 20 bytes arrived\n", "cannot write /small/agent: only 17 of 20 bytes arrived"),
        (b"", "the shell ended with status 1"),
    ],
)
def test_a_file_that_did_not_arrive_is_told_in_the_guests_words(stderr: bytes, sentence: str) -> None:
    with pytest.raises(AgentError, match=sentence):
        check_put(Completed(1, b"", stderr), "/small/agent")


def test_a_connection_lost_while_writing_is_told() -> None:
    with pytest.raises(AgentError, match="the connection was lost while /a/b was being written"):
        check_put(Completed(None, b"", b""), "/a/b")
