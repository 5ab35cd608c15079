"""Every way in which a login can fail, as one sentence: what happened, to whom, what to do. Pure.

Sentences name no guest (the table does) but always the address, since a jump host may be meant.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from dataclasses import dataclass

import asyncssh

from calyx_orch.errors import ReachError
from calyx_orch.model import Connection
from calyx_orch.transport.ssh.host_keys import KnownLine
from calyx_orch.transport.ssh.settings import Settings


@dataclass
class Login:
    """What one attempt saw, filled in on the way."""

    connection: Connection
    settings: Settings
    tcp_open: bool = False
    unknown: asyncssh.SSHKey | None = None  # the host key that was not trusted
    known: tuple[KnownLine, ...] = ()
    recording: ReachError | None = None
    connected: asyncssh.SSHClientConnection | None = None
    greeting: bytes | None = None  # what spoke first, when that was not SSH


def place(connection: Connection) -> str:
    """`address:port`, as ssh and URLs write it."""
    host = f"[{connection.address}]" if ":" in connection.address else connection.address
    return f"{host}:{connection.port}"


def who(connection: Connection, hop: bool = False) -> str:
    """The server a sentence is about: `10.0.0.7:22`, `jump host gw:22`, `10.0.0.7:22 through the jump host gw:22`."""
    if hop:
        return f"jump host {place(connection)}"
    via = f" through the jump host {place(connection.jump)}" if connection.jump else ""
    return f"{place(connection)}{via}"


def explain(error: BaseException, login: Login, *, hop: bool = False) -> ReachError:
    """The sentence for a failed login to `login.connection`; `hop`: it is a jump host."""
    name = who(login.connection, hop)
    if isinstance(error, ReachError):
        return error
    if login.recording is not None:
        return login.recording
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return ReachError(_timed_out(login, name))
    if isinstance(error, socket.gaierror):
        return ReachError(
            f"the name {login.connection.address} is not known here ({error.strerror}): correct `address`, "
            "or add it to DNS or /etc/hosts"
        )
    if isinstance(error, asyncssh.ChannelOpenError):
        return ReachError(f"cannot reach {name}: the jump host says {error.reason!r}")
    if isinstance(error, asyncssh.Error):
        return ReachError(_ssh(error, login, name), at=_how_far(error, login))
    if isinstance(error, OSError):
        return ReachError(_system(error, name))
    return ReachError(f"cannot log in to {name}: {type(error).__name__}: {error}")


def not_ssh(login: Login, name: str) -> ReachError:
    """For a port on which something else answers."""
    greeting = login.greeting or b""
    said = greeting.split(b"\n")[0][:60].decode("utf-8", "replace").strip()
    heard = f"it says {said!r}" if said else "it closes the connection without a word"
    return ReachError(f"what listens on {name} is no SSH server ({heard}): correct `port`")


def _timed_out(login: Login, name: str) -> str:
    seconds = f"{login.connection.connect_timeout_s:g} s"
    if login.tcp_open:
        return (
            f"{name} took the connection but did not finish the login within {seconds}: is the guest or its sshd hung?"
        )
    return f"no answer from {name} within {seconds}: is the guest up, and does a firewall drop this port?"


def _system(error: OSError, name: str) -> str:
    if error.errno == errno.ECONNREFUSED or ("Connect call failed" in str(error) and "[Errno 111]" in str(error)):
        return f"{name} refused the connection: is sshd running, and is this its port?"
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return f"no route to {name} ({os.strerror(error.errno)}): correct `address`, or name a `jump` host"
    if isinstance(error, ConnectionError):
        return _dropped(name)
    return f"cannot reach {name}: {error.strerror or error}"


def _dropped(name: str) -> str:
    return (
        f"{name} closed the connection during the login, again and again: "
        "see the log of its sshd (MaxStartups, PerSourcePenalties, hosts.deny)"
    )


def _how_far(error: asyncssh.Error, login: Login) -> str:
    if login.unknown is not None or isinstance(error, asyncssh.HostKeyNotVerifiable):
        return "host key"
    refused = isinstance(error, asyncssh.PermissionDenied) or "Too many authentication failures" in error.reason
    return "login" if refused else "reach"


def _ssh(error: asyncssh.Error, login: Login, name: str) -> str:
    if login.unknown is not None:
        return str(host_key(login, name))
    reason = " ".join(error.reason.split())
    if "Too many authentication failures" in reason:
        return f"{name} closed the login after too many keys ({_offered(login)}): name the right one with `key`"
    if isinstance(error, asyncssh.PermissionDenied):
        return (
            f"{name} does not let {login.settings.user} in ({_offered(login)}): name the right `user` or `key`, "
            "or add the public key to its authorized_keys"
        )
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return f"the host key of {name} cannot be trusted: {reason}"
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return f"{name} and this machine have no algorithm in common: {reason}"
    if isinstance(error, asyncssh.ConnectionLost):
        return _dropped(name)
    if isinstance(error, asyncssh.ProtocolNotSupported):
        return f"{name} speaks no SSH 2: {reason}"
    return f"the login to {name} failed: {reason or type(error).__name__}"


def _offered(login: Login) -> str:
    keys = login.settings.keys
    told = f"tried: {', '.join(keys)}" if keys else "no key was found to try"
    if login.settings.unusable:
        told += f"; unusable: {', '.join(login.settings.unusable)}"
    return told


def host_key(login: Login, name: str) -> ReachError:
    """For a host key (`login.unknown`) that is in no file, or is not the one that is there (`login.known`)."""
    assert login.unknown is not None
    new = f"{login.unknown.get_algorithm()} {login.unknown.get_fingerprint()}"
    address, port = login.connection.address, login.connection.port
    if login.known:
        old = login.known[0]
        forget = address if port == 22 else f"[{address}]:{port}"
        return ReachError(
            f"the host key of {name} has CHANGED: it is now {new}, but {old.path}:{old.number} says {old.fingerprint}; "
            f"if the guest was rebuilt, run `ssh-keygen -R '{forget}' -f {old.path}` and accept the new key",
            at="host key",
        )
    where = login.settings.host_keys.files[0]
    return ReachError(
        f"the host key of {name} is unknown ({new}): compare it and add it with "
        f"`ssh-keyscan -p {port} {address} >> {where}`, or set `host_key_policy: accept-new` "
        "(with --guest: `--host-key-policy accept-new`)",
        at="host key",
    )
