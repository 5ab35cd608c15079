"""docs/failures.md and the tests of faults agree: every test has a row, every row its test, with that state, exit code and words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from faults.test_network import CUTS
from faults.test_processes import FAULTS

TESTS = Path(__file__).parent.parent
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (TESTS.parent / "docs" / "failures.md").read_text(encoding="utf-8").splitlines()
    if "`test_" in line and line.startswith("|")
]


def functions(folder: str) -> set[str]:
    """The names of all tests in a folder of tests/."""
    found: set[str] = set()
    for path in (TESTS / folder).glob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {name for name in found if name.startswith("test_")}


def named(row: list[str]) -> list[str]:
    return re.findall(r"`(test_[\w\[\]-]+)`", row[-1])


def with_ids() -> dict[str, tuple[str, str, str]]:
    """Tests with an id: the guest's state, the exit code, and the words of the reason, by name."""
    found = {
        f"test_a_process_of_a_guest[{fault}]": (fault.state, "0" if fault.state == "measured" else "3", fault.reason)
        for fault in FAULTS
    }
    for cut in CUTS:
        state, code = ("lost", "3") if cut.reason else ("measured", "0")
        found[f"test_a_guest_that_is_cut_off[{cut}]"] = (state, code, cut.reason)
    return found


def test_every_test_of_a_fault_has_a_row() -> None:
    whole = {name for name in functions("faults") if not name.startswith("test_every")}
    in_rows = {name for row in ROWS for name in named(row)}
    with_id = set(with_ids())
    bare = whole - {name.partition("[")[0] for name in with_id}
    assert sorted((bare | with_id) - in_rows) == []


def test_every_row_names_tests_that_exist() -> None:
    known = set(with_ids()).union(*map(functions, ("faults", "fleet", "agent")))
    assert len(ROWS) > 40
    assert [(row[0], name) for row in ROWS for name in named(row) if name not in known] == []


@pytest.mark.parametrize("name", with_ids())
def test_every_row_says_what_its_test_sees(name: str) -> None:
    state, code, reason = with_ids()[name]
    (row,) = [row for row in ROWS if name in named(row)]
    phase = re.search(r"(\w+)\]$", name)
    assert phase is not None
    assert (row[1], row[2], row[3]) == (f"`{phase[1]}`", state, code)
    for words in filter(None, reason.split("|")):
        assert f"`{words}" in row[4]


def test_every_claim_of_the_security_page_names_a_test_that_exists() -> None:
    text = (TESTS.parent / "docs" / "security.md").read_text(encoding="utf-8")
    known = set().union(*map(functions, ("faults", "fleet", "agent", "unit")))
    claimed = re.findall(r"`(test_\w+)`", text)
    assert len(claimed) > 10
    assert [name for name in claimed if name not in known] == []
    assert [path for path in re.findall(r"`(tests/[\w/.]+)`", text) if not (TESTS.parent / path).exists()] == []
