"""A version string never raises, and what a fio lacks is told before any guest starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calyx_orch.engines import fio_facts, fio_lacks, parse_version

TABLE = (Path(__file__).parent.parent / "golden" / "fio-run" / "A-019" / "fio_versions.tsv").read_text(encoding="utf-8")
VERSIONS = [tuple(line.split("\t")) for line in TABLE.splitlines()]
HELP = "Available IO engines:\n\tcpuio\n\tmmap\n\tlibaio\n\tio_uring\n"


@pytest.mark.parametrize(("text", "wanted"), VERSIONS)
def test_every_version_string_is_read_or_unknown(text: str, wanted: str) -> None:
    """A-019: suffixes, three numbers, spaces, none at all."""
    version = parse_version(text)
    assert ("unknown" if version is None else str(version)) == wanted


def test_versions_compare_by_number() -> None:
    """A-019: as text 3.9 would come after 3.10."""
    older, newer = parse_version("fio-3.9"), parse_version("fio-3.10")
    assert older is not None
    assert newer is not None
    assert (older.major, older.minor) < (newer.major, newer.minor)


@given(st.text(), st.text())
def test_no_text_raises(version: str, enghelp: str) -> None:
    facts = fio_facts(version, enghelp)
    assert facts["raw"] == version.strip()
    fio_lacks(facts, "io_uring")


def test_the_list_of_engines_is_read_from_enghelp() -> None:
    facts = fio_facts("fio-3.33\n", HELP)
    assert facts == {"raw": "fio-3.33", "version": "3.33", "engines": ["cpuio", "mmap", "libaio", "io_uring"]}


def test_a_fio_without_the_engine_is_named_with_its_version() -> None:
    """A-022: known before any guest starts."""
    facts = fio_facts("fio-3.1", "Available IO engines:\n\tlibaio\n")
    assert fio_lacks(facts, "io_uring") == "its fio 3.1 has no io_uring engine"
    assert fio_lacks(facts, "libaio") is None


def test_an_unknown_version_is_able_when_its_list_says_so() -> None:
    assert fio_lacks(fio_facts("fio-master", HELP), "io_uring") is None
    assert fio_lacks(fio_facts("bash: fio: command not found", ""), "io_uring") is not None


def test_a_fio_of_microseconds_is_no_baseline() -> None:
    """A-009: 2.x would be read, but has no json+ durations to compare."""
    assert fio_lacks(fio_facts("fio-2.14", HELP), "libaio") == "its fio 2.14 is older than 3.0"
