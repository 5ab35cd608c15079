"""Two guests with kernels of their own for all tests of this folder: Debian 12 (Linux 6.1) and Debian 13 (Linux 6.12)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qemu.machines import Machine, machines

SUITES = ("bookworm", "trixie")


@pytest.fixture(scope="session")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Machine]]:
    """One machine of each suite, up."""
    with machines(SUITES, tmp_path_factory.mktemp("machines")) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_ssh_set_up_of_the_user(guests: list[Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HOME is empty and there is no ssh-agent: only what a test sets up can let it in."""
    home = tmp_path / "controller-home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
