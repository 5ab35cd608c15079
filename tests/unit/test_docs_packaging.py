"""What the package says of itself is true: its dependencies, its entry point's exit codes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
OWN = {"calyx_orch", "calyx_agent", "__future__"}


def imported() -> set[str]:
    """The top-level names that the shipped modules import from others than themselves and the standard library."""
    names: set[str] = set()
    for path in [*(ROOT / "orchestrator").rglob("*.py"), *(ROOT / "agent" / "calyx_agent").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.add(node.module.partition(".")[0])
    return names - OWN - sys.stdlib_module_names


def test_every_import_is_a_declared_dependency() -> None:
    """What the package imports is what pyproject.toml declares, no more and no less."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {re.split(r"[><=~! \[]", line)[0].lower() for line in project["dependencies"]}
    distributions = packages_distributions()
    used = {distributions[name][0].lower().replace("_", "-") for name in imported()}
    assert used == declared


@pytest.mark.parametrize(
    "words", [["--nonsense"], ["run", "--nonsense"], ["no-such-verb"], ["run", "/no/such/file.yaml"]]
)
def test_what_cannot_start_exits_2_in_words(words: list[str]) -> None:
    """A wrong option, verb or file ends with exit code 2 and a sentence that names it, not a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "calyx_orch.cli", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert words[-1] in done.stderr
    assert "Traceback" not in done.stderr
