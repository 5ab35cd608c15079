"""Fails when a tracked file holds a word that says its work is not done; `make check` runs it.

Prints one line per find, `file:line: text`, and exits 1 when there was one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# Built from parts so that this file does not find itself.
WORDS = re.compile(
    r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b|NotImplemented" + r"Error|not " + "implemented"
)
SUFFIXES = {".py", ".c", ".h", ".md", ".sh", ".yaml", ".cmake", ".j2", ".toml"}


def finds(path: Path) -> list[str]:
    """One `file:line: text` for each line of `path` that holds such a word."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [f"{path}:{number}: {line.strip()[:120]}" for number, line in enumerate(lines, 1) if WORDS.search(line)]


def main() -> int:
    """Look through the tracked files; the exit code."""
    listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout.split("\n")
    paths = [Path(name) for name in listed if Path(name).suffix in SUFFIXES and not name.startswith("tests/golden/")]
    found = [line for path in paths if path.is_file() for line in finds(path)]
    print("\n".join(found) or f"{len(paths)} files without unfinished words")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
