"""A run folder on a disk that is full: one sentence, no temporary left, guests clean, and what fits is kept and shown."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from calyx_orch.store import archive
from fleet.disks import need_root
from fleet.local_guests import two_guests

pytestmark = [pytest.mark.fleet]


@contextmanager
def small_disk(mount: Path, size: str) -> Iterator[None]:
    """A tmpfs of that size at `mount`."""
    need_root("mount")
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(mount)], check=True)


@pytest.mark.parametrize(
    ("size", "code", "told"),
    [
        pytest.param("4k", 2, "nothing was started", id="not even the plan"),
        pytest.param("64k", 4, "what was measured until then is kept", id="the answers do not"),
        pytest.param("1m", 4, "cannot write the report", id="the report does not"),
    ],
)
def test_what_does_not_fit_is_one_sentence(size: str, code: int, told: str, tmp_path: Path) -> None:
    """The table is shown where there is something to show; no temporary is left, and the guests are clean."""
    inventory = two_guests(tmp_path, repetitions=2)
    with small_disk(tmp_path / "disk", size):
        folder = tmp_path / "disk" / "run"
        done = subprocess.run(
            [sys.executable, "-m", "calyx_orch.cli", "run", str(inventory), "--out", str(folder)],
            check=False, capture_output=True, text=True, timeout=90, env={**os.environ, "COLUMNS": "200"},
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        sentence = done.stderr.strip()
        assert sentence.count("\n") == 0
        assert told in sentence
        assert "No space left on device" in sentence
        left = [path.name for path in folder.rglob("*") if ".tmp" in path.name or path.name.startswith(".")]
        assert left == []
        if code == 4:
            assert f"run folder: {folder}" in done.stdout
            assert archive.read(folder).run_id
        if size == "1m":
            assert "guest good1" in done.stdout or "good1" in done.stdout.partition("randread")[2]
            assert archive.read(folder).status == "finished"
    assert not any((tmp_path / "data").iterdir()), "the guests are clean"
