"""Passphrases of encrypted key files: asked at the terminal, once each, before a run; kept in memory and nowhere else.

A key that an ssh-agent holds needs none. Without a terminal (a scheduled run, a pipe) nothing is asked.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from getpass import getpass
from pathlib import Path

import asyncssh

from calyx_orch.model import Connection, TransportKind
from calyx_orch.transport.ssh.settings import DEFAULT_KEYS, agent_keys, is_encrypted, public_part

TRIES = 3


def ask_at_terminal(path: str) -> str | None:
    """The passphrase that the user types for a key file, unseen; None without a terminal, or at the end of input."""
    if not sys.stdin.isatty():
        return None
    try:
        return getpass(f"Passphrase for {path}: ")
    except EOFError:
        return None


def unlock(connections: Iterable[Connection], ask: Callable[[str], str | None] = ask_at_terminal) -> Mapping[str, str]:
    """The passphrases of the encrypted keys that these connections need, by path; each is asked for once, TRIES times.

    A key that stays locked is left out: the guests that need it then say so. Blocks; call it outside of an event loop.
    """
    # Each file is read once, however many guests share it.
    alike = {(one.transport, one.key_files, one.ssh_config, one.jump): one for one in connections}
    wanted = dict.fromkeys(path for connection in alike.values() for path in _locked(connection))
    if not wanted:
        return {}
    held = {pair.key_public_data for pair in asyncio.run(agent_keys())}
    found: dict[str, str] = {}
    for path in wanted:
        if public_part(Path(path)) not in held and (passphrase := _right_one(path, ask)) is not None:
            found[path] = passphrase
    return found


def _right_one(path: str, ask: Callable[[str], str | None]) -> str | None:
    for _ in range(TRIES):
        passphrase = ask(path)
        if passphrase is None:
            return None
        try:
            asyncssh.read_private_key(path, passphrase)
        except (OSError, ValueError):
            continue
        return passphrase
    return None


def _locked(connection: Connection) -> Iterator[str]:
    """Encrypted key files on the way to a guest: the named ones, else the default ones when each of those is encrypted."""
    if connection.transport is not TransportKind.SSH:
        return
    if connection.jump is not None:
        yield from _locked(connection.jump)
    if connection.key_files:
        paths = [Path(name).expanduser() for name in connection.key_files]
        yield from (str(path) for path in paths if is_locked(path))
    elif not connection.ssh_config:
        paths = [path for name in DEFAULT_KEYS if (path := Path("~/.ssh", name).expanduser()).exists()]
        if all(map(is_locked, paths)):
            yield from map(str, paths)


def is_locked(path: Path) -> bool:
    """Whether a key file can be read but for its passphrase."""
    try:
        asyncssh.read_private_key(str(path))
    except ValueError as error:
        return is_encrypted(error)
    except OSError:
        return False
    return False
