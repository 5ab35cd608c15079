"""An inventory is read from a file, a program or standard input; what cannot be read says what to do."""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

import pytest

from calyx_orch import sources
from calyx_orch.errors import UsageError


def write(path: Path, text: str | bytes, *, executable: bool = False) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o755 if executable else 0o644)
    return str(path)


def test_a_file_is_read_with_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths in it start there, also when it is named relatively; a byte order mark is no text."""
    path = write(tmp_path / "inventory.yaml", b"\xef\xbb\xbfname: \xc3\xbc\n")
    assert sources.read(path) == ("name: ü\n", path, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert sources.read("inventory.yaml") == ("name: ü\n", "inventory.yaml", str(tmp_path))


def test_a_program_is_run_and_its_output_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its notes on standard error are passed on."""
    path = write(tmp_path / "make", "#!/bin/sh\necho 'name: x'\necho left out: y >&2\n", executable=True)
    assert sources.read(path) == ("name: x\n", path, str(tmp_path))
    assert capsys.readouterr().err == "left out: y\n"


def test_a_program_in_python_finds_the_same_packages(tmp_path: Path) -> None:
    """`/usr/bin/env python3` is the Python that runs calyx-orch, whether its environment is activated or not."""
    path = write(tmp_path / "make", "#!/usr/bin/env python3\nimport sys\nprint(sys.prefix)\n", executable=True)
    assert Path(sources.read(path)[0].strip()) == Path(sys.prefix)


def test_a_document_that_only_looks_executable_is_read(tmp_path: Path) -> None:
    """On a Windows share every file is executable; with #! in front it is a program all the same."""
    assert sources.read(write(tmp_path / "a.yaml", "name: x\n", executable=True))[0] == "name: x\n"
    assert sources.read(write(tmp_path / "b.yaml", "#!/bin/sh\necho name: y\n", executable=True))[0] == "name: y\n"


def test_a_program_that_fails_shows_what_it_said(tmp_path: Path) -> None:
    """With its exit code or signal."""
    path = write(tmp_path / "make", "#!/bin/sh\necho no such vault >&2\nexit 3\n", executable=True)
    with pytest.raises(UsageError, match=r"exit code 3\. It said:\nno such vault"):
        sources.read(path)
    with pytest.raises(UsageError, match="signal 9"):
        sources.read(write(tmp_path / "kill", "#!/bin/sh\nkill -9 $$\n", executable=True))
    with pytest.raises(UsageError, match="printed nothing"):
        sources.read(write(tmp_path / "silent", "#!/bin/sh\n", executable=True))
    with pytest.raises(UsageError, match=r"chmod -x"):
        sources.read(write(tmp_path / "text", "name: x\n", executable=True))


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    """Also when a child holds its output open; nothing is left running."""
    note = tmp_path / "pid"
    path = write(
        tmp_path / "hang", f"#!/bin/sh\nsleep 300 &\necho $! > {note}\necho waiting >&2\nwait\n", executable=True
    )
    begin = time.monotonic()
    with pytest.raises(UsageError, match=r"did not end within 0\.5 s"):
        sources.read(path, timeout_s=0.5)
    assert time.monotonic() - begin < 10
    assert is_gone(int(note.read_text()))


def is_gone(pid: int) -> bool:
    """Whether the process has ended (a zombie that nobody reaps has, too); a killed one may take a moment."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`-`, relative to where one is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"name: x\n")))
    assert sources.read("-") == ("name: x\n", "stdin", str(tmp_path))


def test_what_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    """Missing, a directory, another encoding."""
    with pytest.raises(UsageError, match="calyx-orch init"):
        sources.read(str(tmp_path / "none.yaml"))
    with pytest.raises(UsageError, match="is a directory"):
        sources.read(str(tmp_path))
    with pytest.raises(UsageError, match=r"l1\.yaml:2: not UTF-8"):
        sources.read(write(tmp_path / "l1.yaml", b"a: 1\nb: \xe4\n"))
    if os.geteuid() != 0:
        locked = write(tmp_path / "locked", "x")
        Path(locked).chmod(0)
        with pytest.raises(UsageError, match="Permission denied"):
            sources.read(locked)
