"""What a login needs, loaded once per distinct setting and not per guest: keys, ssh-agent, known_hosts, options."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from calyx_orch.errors import ReachError
from calyx_orch.model import Connection
from calyx_orch.transport.ssh.host_keys import HostKeys

KEEPALIVE_S = 5.0
AGENT_TIMEOUT_S = 5.0
KEEPALIVE_COUNT = 2  # unanswered ones that are borne: the next, after KEEPALIVE_S * (KEEPALIVE_COUNT + 1), ends it
CIPHERS = "^aes128-gcm@openssh.com"  # first of the defaults: half the CPU per message of chacha20
DEFAULT_KEYS = ("id_ed25519_sk", "id_ecdsa_sk", "id_ed25519", "id_ecdsa", "id_rsa")
_OPENSSH_MAGIC = b"openssh-key-v1\0"


@dataclass(frozen=True)
class Settings:
    """One distinct setting. `keys` says which keys are offered, `unusable` which were found and cannot be, and why."""

    options: asyncssh.SSHClientConnectionOptions
    host_keys: HostKeys
    keys: tuple[str, ...]
    unusable: tuple[str, ...]
    from_config: bool = False

    @property
    def user(self) -> str:
        """The user that is logged in."""
        return self.options.username


@dataclass(frozen=True)
class _Keys:
    """Keys to offer, in order; `told` names them. The ssh-agent's keys are among them."""

    pairs: tuple[asyncssh.SSHKeyPair, ...]
    told: tuple[str, ...]
    unusable: tuple[str, ...] = ()


def setting_key(connection: Connection) -> tuple[object, ...]:
    """Connections with the same value share a Settings. With an ssh_config every host may differ."""
    host = (connection.address, connection.port) if connection.ssh_config else ()
    return (
        connection.user,
        connection.key_files,
        connection.ssh_config,
        connection.known_hosts,
        connection.host_key_policy,
        connection.connect_timeout_s,
        *host,
    )


async def load(connection: Connection, passphrases: Mapping[str, str]) -> Settings:
    """Load keys and options; `passphrases` are those of encrypted key files. Raises ReachError naming the file at fault."""
    agent = await agent_keys()
    return await asyncio.get_running_loop().run_in_executor(None, _load, connection, agent, passphrases)


def _load(connection: Connection, agent: Sequence[asyncssh.SSHKeyPair], passphrases: Mapping[str, str]) -> Settings:
    options: dict[str, Any] = {
        "connect_timeout": connection.connect_timeout_s,
        "login_timeout": connection.connect_timeout_s,
        "keepalive_interval": KEEPALIVE_S,
        "keepalive_count_max": KEEPALIVE_COUNT,
        "preferred_auth": "publickey",
        "gss_host": None,
        "x509_trusted_certs": None,
        "utf8_decode_errors": "replace",
    }
    if connection.user is not None:
        options["username"] = connection.user
    if connection.ssh_config:
        options["config"] = [str(Path(connection.ssh_config).expanduser())]
        options |= {"host": connection.address, "port": connection.port if connection.port != 22 else ()}
    else:
        options |= {"config": None, "encryption_algs": CIPHERS}
    if connection.ssh_config and not connection.key_files:
        keys = _Keys((), ("the keys of ssh_config", *_told_agent(agent)))
    else:
        named_keys = connection.key_files
        keys = _named_keys(named_keys, agent, passphrases) if named_keys else _default_keys(agent, passphrases)
        # None, since an empty list would make asyncssh look for keys by itself; no agent path, since its keys are in.
        options |= {"client_keys": list(keys.pairs) or None, "agent_path": ""}
    made = _options(connection, options)
    named: list[str] = []
    if connection.ssh_config and isinstance(made.known_hosts, list | tuple):
        named = [str(path) for path in made.known_hosts if Path(str(path)).expanduser().exists()]
    return Settings(made, HostKeys.of(connection, named), keys.told, keys.unusable, bool(connection.ssh_config))


def _options(connection: Connection, options: dict[str, Any]) -> asyncssh.SSHClientConnectionOptions:
    try:
        return asyncssh.SSHClientConnectionOptions(**options)
    except (ValueError, ImportError, OSError, asyncssh.Error) as error:
        if not connection.ssh_config:
            raise ReachError(f"these SSH settings cannot be used: {error}") from None
        said = " ".join(str(error).split())
        if connection.ssh_config not in said and (isinstance(error, ImportError) or "ifaddr" in said):
            said = f"{connection.ssh_config}: a Match line needs what is not installed here ({said})"
        raise ReachError(
            f"ssh_config cannot be used: {said}; remove `ssh_config` from the inventory to go without it"
        ) from None


def _default_keys(agent: Sequence[asyncssh.SSHKeyPair], passphrases: Mapping[str, str]) -> _Keys:
    """As ssh does: the agent's keys, then the default files."""
    pairs, told = list(agent), list(_told_agent(agent))
    unusable: list[str] = []
    for name in DEFAULT_KEYS:
        path = Path("~/.ssh", name).expanduser()
        try:
            pairs += asyncssh.load_keypairs(str(path), passphrases.get(str(path)))
            told.append(str(path))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            unusable.append(f"{path} ({_why(error)})")
    return _Keys(tuple(pairs), tuple(told), tuple(unusable))


def _named_keys(names: Sequence[str], agent: Sequence[asyncssh.SSHKeyPair], passphrases: Mapping[str, str]) -> _Keys:
    """Only the named keys are offered: from their files, or by the agent when a file is encrypted."""
    pairs: list[asyncssh.SSHKeyPair] = []
    for name in names:
        path = Path(name).expanduser()
        try:
            pairs += asyncssh.load_keypairs(str(path), passphrases.get(str(path)))
        except OSError as error:
            raise ReachError(f"the key file {path} cannot be read: {error.strerror}", at="login") from None
        except ValueError as error:
            public = public_part(path)
            held = [pair for pair in agent if public is not None and pair.key_public_data == public]
            pairs += held
            if not held and is_encrypted(error):
                raise ReachError(
                    f"the key file {path} is encrypted and no ssh-agent holds it: run `ssh-add {path}`, "
                    "start at a terminal to be asked for its passphrase, or name a key without one",
                    at="login",
                ) from None
            if not held:
                raise ReachError(f"the key file {path} cannot be used: {error}", at="login") from None
    return _Keys(tuple(pairs), tuple(names))


def is_encrypted(error: Exception) -> bool:
    """Whether this is what asyncssh says of a key file without its passphrase."""
    return "assphrase" in str(error)


def _why(error: Exception) -> str:
    return "encrypted, and its passphrase was not given" if is_encrypted(error) else str(error)


async def agent_keys() -> Sequence[asyncssh.SSHKeyPair]:
    """The keys of the ssh-agent; none without an agent. They reach for it again when they sign."""
    if not os.environ.get("SSH_AUTH_SOCK"):
        return ()
    try:
        async with asyncio.timeout(AGENT_TIMEOUT_S), asyncssh.connect_agent() as agent:
            return await agent.get_keys()
    except (OSError, ValueError, TimeoutError, asyncssh.Error):
        return ()


def _told_agent(agent: Sequence[asyncssh.SSHKeyPair]) -> tuple[str, ...]:
    return tuple(f"{pair.get_comment() or 'a key'} of the ssh-agent" for pair in agent)


def public_part(path: Path) -> bytes | None:
    """The public key of an encrypted private key: of its .pub file, else of the clear part of the OpenSSH format."""
    try:
        return asyncssh.read_public_key(f"{path}.pub").public_data
    except (OSError, ValueError):
        pass
    try:
        text = path.read_text("ascii")
        data = base64.b64decode("".join(line for line in text.splitlines() if not line.startswith("-")))
    except (OSError, ValueError):
        return None
    if not data.startswith(_OPENSSH_MAGIC):
        return None
    rest = data[len(_OPENSSH_MAGIC) :]
    for _ in range(3):  # cipher, kdf, kdf options
        _, rest = _string(rest)
    public, _ = _string(rest[4:])  # after the number of keys
    return public


def _string(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:4], "big")
    return data[4 : 4 + size], data[4 + size :]
