"""Who gets in, who does not, and whether the sentence says what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from calyx_orch.commands.loopback import LoopbackFleet, LoopbackGuest
from calyx_orch.errors import ReachError
from calyx_orch.model import Connection, HostKeyPolicy
from calyx_orch.transport import Pool, connect
from calyx_orch.transport.ssh.server import write_key
from fleet.conftest import CASES, sshd_lines

pytestmark = pytest.mark.fleet


async def fails(connection: Connection, pool: Pool) -> str:
    """The sentence of a login that must fail, always one line."""
    with pytest.raises(ReachError) as caught:
        await connect(connection, pool=pool)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


async def works(connection: Connection, pool: Pool) -> None:
    transport = await connect(connection, pool=pool)
    done = await transport.run(("true",), timeout_s=10)
    await transport.close()
    assert done.status == 0


# --- reaching the port ---


async def test_a_closed_port_is_told(connection: Connection, pool: Pool) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    sentence = await fails(replace(connection, address="127.0.0.1", port=port), pool)
    assert sentence.startswith(f"127.0.0.1:{port} refused the connection")


async def test_a_name_that_nobody_knows_is_told(connection: Connection, pool: Pool) -> None:
    sentence = await fails(replace(connection, address="no-such-guest.invalid"), pool)
    assert sentence.startswith("the name no-such-guest.invalid is not known here")
    assert "`address`" in sentence


async def test_a_port_where_something_else_listens_is_told_at_once(connection: Connection, pool: Pool) -> None:
    """The first words of what answers there are shown; nothing is tried eight times."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.com ESMTP\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(5):
        sentence = await fails(replace(connection, address="127.0.0.1", port=port), pool)
    assert "is no SSH server (it says '220 mail.example.com ESMTP')" in sentence
    server.close()


async def test_a_port_that_never_speaks_is_told(connection: Connection, pool: Pool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    silent = replace(connection, address="127.0.0.1", port=port, connect_timeout_s=0.3)
    assert "took the connection but did not finish the login within 0.3 s" in await fails(silent, pool)
    server.close()


async def test_ipv6_addresses_are_written_in_brackets(connection: Connection, pool: Pool) -> None:
    sentence = await fails(replace(connection, address="::1", port=1), pool)
    assert "[::1]:1" in sentence


# --- host keys ---


async def test_an_unknown_host_key_is_refused_with_its_fingerprint(
    guest: LoopbackGuest, connection: Connection, pool: Pool, tmp_path: Path
) -> None:
    empty = tmp_path / "empty_known_hosts"
    empty.touch()
    sentence = await fails(replace(connection, known_hosts=str(empty)), pool)
    assert "is unknown (ssh-ed25519 SHA256:" in sentence
    assert f"ssh-keyscan -p {guest.port} {guest.address} >> {empty}" in sentence
    assert _fingerprint(guest.directory / "host_key.pub") in sentence
    assert empty.read_text() == ""


async def test_a_missing_known_hosts_file_is_told(connection: Connection, pool: Pool) -> None:
    assert "known_hosts file /nowhere/known_hosts does not exist" in await fails(
        replace(connection, known_hosts="/nowhere/known_hosts"), pool
    )


async def test_a_changed_host_key_is_refused_with_old_and_new(
    fleet: LoopbackFleet, guest: LoopbackGuest, connection: Connection, pool: Pool
) -> None:
    """Rebuilt guest, same address: both fingerprints, the line, the way out; the other guests are not disturbed (A-066)."""
    other = await fleet.add("other")
    old = _fingerprint(guest.directory / "host_key.pub")
    await fleet.stop(guest)
    for name in ("host_key", "host_key.pub"):
        (guest.directory / name).unlink()
    write_key(guest.directory / "host_key", "rebuilt")
    await fleet.restart(guest)
    for policy in HostKeyPolicy:
        sentence = await fails(replace(connection, host_key_policy=policy), pool)
        assert "has CHANGED" in sentence
        assert old in sentence
        assert _fingerprint(guest.directory / "host_key.pub") in sentence
        assert f"{fleet.known_hosts}:1 says" in sentence
        assert f"ssh-keygen -R '[{guest.address}]:{guest.port}' -f {fleet.known_hosts}" in sentence
    await works(fleet.connection(other), pool)


async def test_a_host_key_of_another_kind_is_told_as_changed(
    fleet: LoopbackFleet, guest: LoopbackGuest, connection: Connection, pool: Pool
) -> None:
    await fleet.stop(guest)
    for name in ("host_key", "host_key.pub"):
        (guest.directory / name).unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", guest.directory / "host_key"], check=True)
    await fleet.restart(guest)
    assert "has CHANGED" in await fails(connection, pool)


async def test_accept_new_records_the_key_once_for_all(fleet: LoopbackFleet, pool: Pool, tmp_path: Path) -> None:
    """The first sight of each guest is appended; a last line without a newline and broken lines do no harm."""
    guests = [fleet.guests[0], *[await fleet.add(f"more{n}") for n in range(3)]]
    file = tmp_path / "dir" / "known_hosts"
    file.parent.mkdir()
    file.write_text("one-word-line\n# no newline at the end")
    new = [
        replace(fleet.connection(each), known_hosts=str(file), host_key_policy=HostKeyPolicy.ACCEPT_NEW)
        for each in guests
    ]
    await asyncio.gather(*(works(each, pool) for each in new + new))
    assert sum(line.startswith("[127.0.0.") for line in file.read_text().splitlines()) == 4
    async with Pool() as another:
        await works(replace(new[0], host_key_policy=HostKeyPolicy.STRICT), another)


async def test_the_users_own_known_hosts_is_the_default(
    fleet: LoopbackFleet, connection: Connection, pool: Pool
) -> None:
    """Without `known_hosts`, ~/.ssh/known_hosts decides; hashed names count."""
    assert "is unknown" in await fails(replace(connection, known_hosts=None), pool)
    ssh = Path(os.environ["HOME"]) / ".ssh"
    ssh.mkdir()
    shutil.copy(fleet.known_hosts, ssh / "known_hosts")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", ssh / "known_hosts"], check=True, capture_output=True)
    assert (ssh / "known_hosts").read_text().startswith("|1|")
    async with Pool() as another:
        await works(replace(connection, known_hosts=None), another)


def _fingerprint(public: Path) -> str:
    told = subprocess.run(["ssh-keygen", "-lf", public], check=True, capture_output=True, text=True).stdout
    return told.split()[1]


# --- keys ---


async def test_a_wrong_key_is_told_with_what_was_tried(connection: Connection, pool: Pool, tmp_path: Path) -> None:
    write_key(tmp_path / "wrong", "wrong")
    sentence = await fails(replace(connection, key_files=(str(tmp_path / "wrong"),)), pool)
    assert f"does not let {connection.user} in (tried: {tmp_path}/wrong)" in sentence


async def test_no_key_at_all_is_told(connection: Connection, pool: Pool) -> None:
    assert "(no key was found to try)" in await fails(replace(connection, key_files=()), pool)


async def test_a_key_file_that_is_missing_or_no_key_is_told(connection: Connection, pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    assert "cannot be read: No such file" in await fails(replace(connection, key_files=("/nowhere/key",)), pool)
    assert f"{tmp_path}/text cannot be used" in await fails(
        replace(connection, key_files=(str(tmp_path / "text"),)), pool
    )


async def test_default_keys_are_found_and_an_encrypted_one_is_only_named(
    guest: LoopbackGuest, connection: Connection, pool: Pool
) -> None:
    """An encrypted default key neither stops a login nor asks for a passphrase (case A-091)."""
    ssh = Path(os.environ["HOME"]) / ".ssh"
    ssh.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", ssh / "id_ed25519"], check=True)
    sentence = await fails(replace(connection, key_files=()), pool)
    assert f"unusable: {ssh}/id_ed25519 (encrypted" in sentence
    shutil.copy(guest.user_key, ssh / "id_rsa")
    async with Pool() as another:
        await works(replace(connection, key_files=()), another)


async def test_an_encrypted_key_without_an_agent_is_told(
    guest: LoopbackGuest, connection: Connection, pool: Pool
) -> None:
    key = _encrypted(guest)
    sentence = await fails(replace(connection, key_files=(str(key),)), pool)
    assert sentence.startswith(f"the key file {key} is encrypted and no ssh-agent holds it: run `ssh-add {key}`")


async def test_an_encrypted_key_that_the_agent_holds_is_used(
    guest: LoopbackGuest, connection: Connection, pool: Pool, ssh_agent: dict[str, str]
) -> None:
    """The agent signs for the named key, also without a .pub file, and none of its other keys is offered (case A-091)."""
    subprocess.run(["ssh-add", "-q", guest.user_key], env=os.environ | ssh_agent, check=True, capture_output=True)
    key = _encrypted(guest)
    await works(replace(connection, key_files=(str(key),)), pool)


async def test_only_a_named_key_is_offered(
    fleet: LoopbackFleet, tmp_path: Path, pool: Pool, ssh_agent: dict[str, str]
) -> None:
    """Five keys in the agent and MaxAuthTries 2: without a name the message says what was tried, with one it works (A-067)."""
    strict = await fleet.add("strict", extra=sshd_lines("A-067"))
    for number in range(5):
        write_key(tmp_path / f"wrong{number}", f"wrong{number}")
        subprocess.run(
            ["ssh-add", "-q", tmp_path / f"wrong{number}"], env=os.environ | ssh_agent, check=True, capture_output=True
        )
    sentence = await fails(replace(fleet.connection(strict), key_files=()), pool)
    assert "wrong0 of the ssh-agent" in sentence
    assert "too many keys" in sentence
    assert "name the right one with `key`" in sentence
    await works(fleet.connection(strict), pool)


def _encrypted(guest: LoopbackGuest) -> Path:
    key = guest.directory / "encrypted_key"
    shutil.copy(guest.user_key, key)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", key], check=True, capture_output=True)
    return key


@pytest.fixture
def ssh_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A real ssh-agent for this test."""
    socket_path = tmp_path / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", socket_path], stdout=subprocess.DEVNULL)
    while not socket_path.exists():
        assert process.poll() is None
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket_path))
    yield {"SSH_AUTH_SOCK": str(socket_path)}
    process.terminate()
    process.wait()


# --- many at once ---


async def test_a_server_that_drops_logins_gets_them_again(fleet: LoopbackFleet, pool: Pool) -> None:
    """MaxStartups 2:100:3 and twelve logins at once: all twelve get in (case A-060)."""
    narrow = await fleet.add("narrow", extra=sshd_lines("A-060"))
    transports = await asyncio.gather(*(connect(fleet.connection(narrow), pool=pool) for _ in range(12)))
    assert len(transports) == 12
    await asyncio.gather(*(transport.close() for transport in transports))


async def test_a_server_that_drops_every_login_is_given_up_on(
    connection: Connection, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calyx_orch.transport.ssh.carrier.BACK_OFF_S", 0.001)

    attempts = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sentence = await fails(replace(connection, address="127.0.0.1", port=port), pool)
    assert "closed the connection during the login, again and again" in sentence
    assert attempts >= 8
    server.close()


# --- jump hosts ---


@pytest.fixture
async def hop(fleet: LoopbackFleet) -> LoopbackGuest:
    """A second sshd to jump through."""
    return await fleet.add("hop")


async def test_a_jump_host_has_its_own_key_and_known_hosts(
    fleet: LoopbackFleet, hop: LoopbackGuest, connection: Connection, pool: Pool, tmp_path: Path
) -> None:
    """Target and hop each by their own settings; what one knows does not help the other (case A-092)."""
    lines = fleet.known_hosts.read_text().splitlines(keepends=True)
    target_hosts, hop_hosts = tmp_path / "target_hosts", tmp_path / "hop_hosts"
    target_hosts.write_text(lines[0])
    hop_hosts.write_text(lines[1])
    jump = replace(fleet.connection(hop), known_hosts=str(hop_hosts))
    target = replace(connection, known_hosts=str(target_hosts), jump=jump)
    await works(target, pool)
    sentence = await fails(replace(target, jump=replace(jump, known_hosts=str(target_hosts))), pool)
    assert f"the host key of jump host {hop.address}:{hop.port} is unknown" in sentence
    sentence = await fails(replace(target, known_hosts=str(hop_hosts)), pool)
    assert f"the host key of {connection.address}:{connection.port} through the jump host" in sentence


async def test_an_error_at_the_hop_names_the_hop(
    fleet: LoopbackFleet, hop: LoopbackGuest, connection: Connection, pool: Pool, tmp_path: Path
) -> None:
    write_key(tmp_path / "wrong", "wrong")
    jump = replace(fleet.connection(hop), key_files=(str(tmp_path / "wrong"),))
    sentence = await fails(replace(connection, jump=jump), pool)
    assert sentence.startswith(f"jump host {hop.address}:{hop.port} does not let")


async def test_a_target_that_the_hop_cannot_reach_is_told(
    fleet: LoopbackFleet, hop: LoopbackGuest, connection: Connection, pool: Pool
) -> None:
    sentence = await fails(replace(connection, port=1, jump=fleet.connection(hop)), pool)
    assert sentence.startswith(f"cannot reach {connection.address}:1 through the jump host {hop.address}:{hop.port}")
    assert "Connection refused" in sentence


async def test_guests_share_the_connection_to_their_jump_host(
    fleet: LoopbackFleet, hop: LoopbackGuest, connection: Connection, pool: Pool
) -> None:
    """Ten guests behind one hop cost it one login; when that connection dies, the next guest makes a new one."""
    target = replace(connection, jump=fleet.connection(hop))
    transports = await asyncio.gather(*(connect(target, pool=pool) for _ in range(10)))
    assert hop.log.read_text().count("Accepted publickey") == 1
    await asyncio.gather(*(transport.close() for transport in transports))
    await fleet.stop(hop)
    await fleet.restart(hop)
    await works(target, pool)


# --- ssh_config ---


async def test_ssh_config_is_read_only_when_it_is_named(
    guest: LoopbackGuest, connection: Connection, pool: Pool
) -> None:
    """A broken ~/.ssh/config harms nobody who did not ask for it (case A-094)."""
    ssh = Path(os.environ["HOME"]) / ".ssh"
    ssh.mkdir()
    (ssh / "config").write_text(f"Host *\n  Port 1\n  Nonsense\nMatch exec\nHost {guest.address}\n  User nobody\n")
    await works(connection, pool)


async def test_a_named_ssh_config_gives_what_the_inventory_does_not(
    guest: LoopbackGuest, connection: Connection, pool: Pool, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host vm1\n  HostName {guest.address}\n  Port {guest.port}\n  User {connection.user}\n"
        f"  IdentityFile {guest.user_key}\n  UserKnownHostsFile {connection.known_hosts}\n"
    )
    await works(Connection(address="vm1", ssh_config=str(config)), pool)


@pytest.mark.parametrize(
    "text",
    [
        (CASES / "A-094" / "ssh_config_match").read_text(),
        "Host *\n  Port many\n",
        "Match nonsense\n",
    ],
)
async def test_an_ssh_config_that_cannot_be_read_is_told_in_one_line(
    text: str, connection: Connection, pool: Pool, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(text)
    sentence = await fails(replace(connection, ssh_config=str(config)), pool)
    assert sentence.startswith("ssh_config cannot be used: ")
    assert str(config) in sentence
    assert "remove `ssh_config` from the inventory" in sentence


async def test_an_include_that_matches_nothing_is_no_problem(
    guest: LoopbackGuest, connection: Connection, pool: Pool, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    text = (CASES / "A-094" / "ssh_config_include").read_text()
    assert "Include subdir/none-matches/*" in text
    config.write_text(text.replace("127.0.0.1", guest.address))
    await works(replace(connection, address="vm1", ssh_config=str(config)), pool)
