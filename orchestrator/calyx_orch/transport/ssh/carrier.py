"""Logins: bounded in number, retried when a server drops them, over jump connections that guests share."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import asyncssh

from calyx_orch.errors import ReachError
from calyx_orch.model import Connection
from calyx_orch.transport import CLOSE_TIMEOUT_S, Transport
from calyx_orch.transport.ssh import words
from calyx_orch.transport.ssh.session import SshTransport
from calyx_orch.transport.ssh.settings import Settings, load, setting_key
from calyx_orch.transport.ssh.words import Login

ATTEMPTS = 8  # of one login whose connection the server drops
BACK_OFF_S = 0.2  # before the second attempt, doubled each time up to BACK_OFF_MAX_S, with full jitter
BACK_OFF_MAX_S = 3.0
GREETING_TIMEOUT_S = 2.0

_Key = TypeVar("_Key")
_Made = TypeVar("_Made")


class SshCarrier:
    """Reaches guests by SSH."""

    def __init__(self, *, logins: int, logins_per_server: int, passphrases: Mapping[str, str]) -> None:
        self._passphrases = passphrases
        self._logins = asyncio.Semaphore(logins)
        self._per_server: dict[tuple[str, int], asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(logins_per_server)
        )
        self._settings: dict[tuple[object, ...], asyncio.Task[Settings]] = {}
        self._jumps: dict[Connection, asyncio.Task[asyncssh.SSHClientConnection]] = {}
        self._jitter = random.Random()

    async def connect(self, connection: Connection) -> Transport:
        """Log in to one guest. Raises ReachError; when a jump host is at fault, the sentence names it."""
        return SshTransport(await self._log_in(connection), words.who(connection))

    async def close(self) -> None:
        """Close the jump connections and forget what was loaded."""
        jumps, self._jumps = list(self._jumps.values()), {}
        for task in (*jumps, *self._settings.values()):
            task.cancel()
        await asyncio.gather(*jumps, *self._settings.values(), return_exceptions=True)
        self._settings = {}
        opened = [connection for connection in map(_opened, jumps) if connection is not None]
        for connection in opened:
            connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await asyncio.gather(*(connection.wait_closed() for connection in opened), return_exceptions=True)

    async def _log_in(self, connection: Connection, *, hop: bool = False) -> asyncssh.SSHClientConnection:
        settings = await _shared(self._settings, setting_key(connection), lambda: load(connection, self._passphrases))
        name = words.who(connection, hop)
        for attempt in range(ATTEMPTS):
            # The jump connection comes first, outside of the bounds: waiting for it must not hold a place of others.
            tunnel = await self._jump(connection.jump) if connection.jump is not None else None
            login = Login(connection, settings)
            try:
                async with self._per_server[connection.address, connection.port], self._logins:
                    return await _attempt(login, tunnel)
            except Exception as error:
                if not _is_drop(error, login):
                    raise words.explain(error, login, hop=hop) from None
                if attempt == 0:
                    await _look_into_drop(login, tunnel, name)
                if attempt == ATTEMPTS - 1:
                    raise words.explain(error, login, hop=hop) from None
            await asyncio.sleep(self._jitter.uniform(0.3, 1.0) * min(BACK_OFF_MAX_S, BACK_OFF_S * 2**attempt))
        raise AssertionError("unreachable")

    async def _jump(self, jump: Connection) -> asyncssh.SSHClientConnection:
        """The shared connection to a jump host, made anew when the last one is gone."""
        task = self._jumps.get(jump)
        if task is not None and (connection := _opened(task)) is not None and connection.is_closed():
            del self._jumps[jump]
        return await _shared(self._jumps, jump, lambda: self._log_in(jump, hop=True))


def _opened(task: asyncio.Task[asyncssh.SSHClientConnection]) -> asyncssh.SSHClientConnection | None:
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    return task.result()


async def _shared(
    tasks: dict[_Key, asyncio.Task[_Made]], key: _Key, make: Callable[[], Coroutine[Any, Any, _Made]]
) -> _Made:
    """One task per key, awaited by all who need it; one that failed is told to all who waited and then forgotten.

    A waiter that is cancelled does not cancel the task: others wait for it too.
    """
    task = tasks.get(key)
    if task is None:
        task = tasks[key] = asyncio.create_task(make())
        task.add_done_callback(
            lambda done: None if done.cancelled() else done.exception()
        )  # heard, even with no waiter
    try:
        return await asyncio.shield(task)
    except Exception:
        if tasks.get(key) is task:
            del tasks[key]
        raise


async def _attempt(login: Login, tunnel: asyncssh.SSHClientConnection | None) -> asyncssh.SSHClientConnection:
    connection, settings = login.connection, login.settings
    where: dict[str, Any] = {"host": connection.address}
    if not settings.from_config or connection.port != 22:
        where["port"] = connection.port  # else ssh_config may name one
    if tunnel is not None or not settings.from_config:
        where["tunnel"] = tunnel
    return await asyncssh.connect(
        config=None,
        options=settings.options,
        client_factory=lambda: _Client(login),
        known_hosts=settings.host_keys.lookup,
        **where,
    )


class _Client(asyncssh.SSHClient):
    """Takes part in a login: notes how far it came, and judges a host key that is in no file."""

    def __init__(self, login: Login) -> None:
        self._login = login

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._login.tcp_open = True
        self._login.connected = conn

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        host_keys = self._login.settings.host_keys
        self._login.known = host_keys.matches(host, addr, port)
        if key.get_fingerprint() in {line.fingerprint for line in self._login.known}:
            return True  # recorded since the files were loaded, by another login or another program
        if not self._login.known and host_keys.record_in is not None:
            try:
                host_keys.record(host, port, key)
            except ReachError as error:
                self._login.recording = error
                return False
            return True
        self._login.unknown = key
        return False


def _is_drop(error: Exception, login: Login) -> bool:
    """Whether a server dropped the connection before the login was judged: worth another attempt."""
    if login.unknown is not None or login.recording is not None:
        return False
    return isinstance(error, asyncssh.ConnectionLost | ConnectionResetError | BrokenPipeError | ConnectionAbortedError)


async def _look_into_drop(login: Login, tunnel: asyncssh.SSHClientConnection | None, name: str) -> None:
    """Raise ReachError when another attempt is of no use: a host key of another kind than is known, or no SSH server."""
    if login.connected is not None and login.connected.get_extra_info("server_version"):
        await _check_host_key(login, login.connected, tunnel, name)
    elif tunnel is None:
        await _check_greeting(login, name)


async def _check_host_key(
    login: Login, dropped: asyncssh.SSHClientConnection, tunnel: asyncssh.SSHClientConnection | None, name: str
) -> None:
    """A server that has no key of a known kind closes without a word, so ask for the key that it does have."""
    host, port = dropped.get_extra_info("host"), dropped.get_extra_info("port")
    address = (dropped.get_extra_info("peername") or ("",))[0]
    known = login.settings.host_keys.matches(host, address, port)
    if not known:
        return
    try:
        async with asyncio.timeout(login.connection.connect_timeout_s):
            key = await asyncssh.get_server_host_key(host, port, tunnel=tunnel, config=None)
    except (OSError, TimeoutError, asyncssh.Error):
        return
    if key is not None and key.get_fingerprint() not in {line.fingerprint for line in known}:
        login.unknown, login.known = key, known
        raise words.host_key(login, name)


async def _check_greeting(login: Login, name: str) -> None:
    """Raise ReachError when what listens there is no SSH server; say nothing when it is, or cannot be told."""
    try:
        async with asyncio.timeout(GREETING_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(login.connection.address, login.connection.port)
    except (OSError, TimeoutError):
        return
    try:
        async with asyncio.timeout(GREETING_TIMEOUT_S):
            greeting = await reader.read(256)
    except (OSError, TimeoutError):
        return
    finally:
        writer.close()
    if greeting and b"SSH-" not in greeting and b"MaxStartups" not in greeting:
        login.greeting = greeting
        raise words.not_ssh(login, name)
