"""JSON with a line for each outer entry says the same as JSON on one line."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import pytest

from calyx_orch.documents.spread import spread

VALUE: dict[str, Any] = {
    "empty": {},
    "list": [{"deep": [1, 2, {"more": None}]}, [], "ü\n"],
    "n": 1.5,
    "9": {"a": True, "b": {"c": [0]}},
}


@pytest.mark.parametrize("levels", range(6))
def test_it_reads_back_whatever_is_spread(levels: int) -> None:
    """At every depth, with empty containers and text that needs escapes."""
    assert json.loads(spread(VALUE, levels)) == VALUE


def test_an_outer_entry_has_a_line_and_what_lies_deeper_stays_on_it() -> None:
    """So that a run folder can be read with cat and a line of it found with grep."""
    assert spread({"a": [1, {"b": 2}], "c": {}}, 1) == '{\n "a": [1, {"b": 2}],\n "c": {}\n}'
    assert spread({"a": [1, {"b": 2}]}, 2) == '{\n "a": [\n  1,\n  {"b": 2}\n ]\n}'


def test_what_is_no_json_is_refused_or_made_so() -> None:
    """As json.dumps does, also below the levels that are spread."""
    assert spread({"a": PurePosixPath("/x")}, 1, default=str) == '{\n "a": "/x"\n}'
    with pytest.raises(TypeError):
        spread({"a": {"b": PurePosixPath("/x")}}, 1)
    with pytest.raises(ValueError, match="not JSON compliant"):
        spread({"a": {"b": float("nan")}}, 1, nan=False)
    assert spread({"a": "ü"}, 1, ascii_only=False) == '{\n "a": "ü"\n}'
