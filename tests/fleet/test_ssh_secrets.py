"""Secrets and borders: passphrases, passwords, private files, no open port, and servers that say what they should not."""

# ruff: noqa: ASYNC240, ASYNC110 - looking at files and processes takes no time, and nothing else runs meanwhile

from __future__ import annotations

import asyncio
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from calyx_orch.commands.loopback import LoopbackFleet, LoopbackGuest, inventory_yaml
from calyx_orch.errors import ReachError
from calyx_orch.model import Connection, HostKeyPolicy
from calyx_orch.plan.choice import Candidate, Choice
from calyx_orch.runner.calibration import Cache
from calyx_orch.transport import Pool, connect
from calyx_orch.transport.ssh import passphrases
from calyx_orch.transport.ssh.server import write_key
from fleet.disks import need_root
from fleet.whole_runs import TINY, guests_up, left_processes, nothing_left, processes_below, run, start_run

pytestmark = pytest.mark.fleet

SECRET = "correct horse battery 47"


def lock(key: Path) -> Path:
    """Give a key file a passphrase, and take its public file away."""
    words = ["ssh-keygen", "-q", "-p", "-P", "", "-N", SECRET, "-f", str(key)]
    subprocess.run(words, check=True, capture_output=True)
    key.with_name(key.name + ".pub").unlink(missing_ok=True)
    return key


def asked(answers: list[str | None]) -> tuple[Callable[[str], str | None], list[str]]:
    """A user who gives these answers, and a list of what was asked."""
    heard: list[str] = []

    def ask(path: str) -> str | None:
        heard.append(path)
        return answers[len(heard) - 1]

    return ask, heard


# --- passphrases -------------------------------------------------------------------------------------------------


async def test_a_key_is_asked_for_once_for_all_its_guests_and_their_jump_host(
    guest: LoopbackGuest, connection: Connection
) -> None:
    """Two wrong tries are forgiven; the login works with what was typed."""
    lock(guest.user_key)
    jump = replace(connection, address="127.0.0.99")
    ask, heard = asked(["wrong", "", SECRET])
    many = [connection, replace(connection, address="::1"), replace(connection, jump=jump)]
    found = await asyncio.to_thread(passphrases.unlock, many, ask)
    assert heard == [str(guest.user_key)] * 3
    assert found == {str(guest.user_key): SECRET}
    async with Pool(passphrases=found) as pool:
        transport = await connect(connection, pool=pool)
        assert (await transport.run(("true",), timeout_s=10)).status == 0
        await transport.close()


async def test_a_key_that_stays_locked_is_told_where_it_is_needed(guest: LoopbackGuest, connection: Connection) -> None:
    lock(guest.user_key)
    ask, heard = asked(["wrong", "wrong", "wrong", SECRET])
    assert await asyncio.to_thread(passphrases.unlock, [connection], ask) == {}
    assert len(heard) == 3
    async with Pool() as pool:
        with pytest.raises(ReachError, match=f"{guest.user_key} is encrypted and no ssh-agent holds it"):
            await connect(connection, pool=pool)


async def test_an_encrypted_default_key_is_asked_for_only_when_there_is_no_other(
    guest: LoopbackGuest, connection: Connection
) -> None:
    ssh = Path(os.environ["HOME"]) / ".ssh"
    ssh.mkdir()
    shutil.copy(guest.user_key, ssh / "id_ed25519")
    lock(ssh / "id_ed25519")
    ask, heard = asked([SECRET, SECRET])
    plain = replace(connection, key_files=())
    found = await asyncio.to_thread(passphrases.unlock, [plain], ask)
    async with Pool(passphrases=found) as pool:
        await (await connect(plain, pool=pool)).close()
    assert heard == [str(ssh / "id_ed25519")]
    shutil.copy(guest.user_key, ssh / "id_rsa")
    assert await asyncio.to_thread(passphrases.unlock, [plain], ask) == {}
    assert len(heard) == 1


async def test_the_terminal_asks_once_and_the_passphrase_goes_nowhere(tmp_path: Path) -> None:
    """At a terminal: one question for two guests; it is shown, kept in the run folder and in a process list nowhere."""
    async with guests_up(2, tmp_path) as fleet:
        for other in fleet.guests[1:]:
            shutil.copy(fleet.guests[0].directory / "authorized_keys", other.directory / "authorized_keys")
        key = lock(fleet.guests[0].user_key)
        text = re.sub(r"key: .*", f'key: "{key}"', inventory_yaml(fleet, body=TINY))
        (tmp_path / "inventory.yaml").write_text(text)
        controller, terminal = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "calyx_orch.cli", "run", "inventory.yaml", "--out", "run",
            cwd=tmp_path, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        shown = await asyncio.to_thread(_read_until, controller, b"Passphrase for ")
        os.write(controller, SECRET.encode() + b"\n")
        rest = asyncio.create_task(asyncio.to_thread(_read_until, controller, None))
        while not (words := " ".join(left_processes(fleet).values())).count("calyx-agent-") >= 2:
            assert process.returncode is None
            await asyncio.sleep(0.05)
        assert SECRET not in words + " ".join(processes_below(os.getpid()))
        shown += await rest
        assert await process.wait() == 0, shown
        await nothing_left(fleet)
    assert shown.count(b"Passphrase for ") == 1
    assert SECRET.encode() not in shown
    kept = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]


def _read_until(terminal: int, word: bytes | None) -> bytes:
    """What comes out of a terminal until `word` is there (None: until its other side is closed)."""
    found = b""
    try:
        while (word is None or word not in found) and (data := os.read(terminal, 65536)):
            found += data
    except OSError:  # EIO: the other side is closed
        pass
    return found


async def test_without_a_terminal_nothing_is_asked(tmp_path: Path) -> None:
    """A nightly run: the guest with the locked key is lost with a way out, the other is measured (case A-091)."""
    async with guests_up(2, tmp_path) as fleet:
        lock(fleet.guests[0].user_key)
        ended = await run(inventory_yaml(fleet, body=TINY), tmp_path, within_s=60)
    assert ended.status == 3, ended.out + ended.err
    assert "run `ssh-add" in ended.outcomes["guest1"].reason
    assert ended.outcomes["guest2"].state == "measured"
    assert "Passphrase" not in ended.out + ended.err


@pytest.mark.parametrize("key", ["password", "ssh_password", "ansible_password"])
async def test_a_password_in_an_inventory_is_refused_and_not_repeated(key: str, tmp_path: Path) -> None:
    """Neither the message nor a run folder holds what was written."""
    inventory = f"defaults: {{targets: {{data: /tmp}}, {key}: {SECRET}}}\nguests: {{vm1: {{{key}: {SECRET}}}}}\n"
    ended = await run(inventory, tmp_path, within_s=30)
    assert ended.status == 2
    assert key in ended.err
    assert SECRET not in ended.out + ended.err
    assert not (tmp_path / "run").exists()


# --- host keys ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", list(HostKeyPolicy))
async def test_a_revoked_host_key_lets_nobody_in(
    policy: HostKeyPolicy, fleet: LoopbackFleet, connection: Connection, pool: Pool, tmp_path: Path
) -> None:
    """`@revoked` beats a line that trusts the key, and `accept-new`."""
    line = fleet.known_hosts.read_text()
    file = tmp_path / "known_hosts"
    for text in (f"@revoked {line}", f"{line}@revoked {line}", f"@revoked * {line.split(' ', 1)[1]}"):
        file.write_text(text)
        async with Pool() as another:
            with pytest.raises(ReachError, match="Host key is revoked"):
                await connect(replace(connection, known_hosts=str(file), host_key_policy=policy), pool=another)
        assert file.read_text() == text


async def test_a_jump_hosts_key_is_checked_by_the_inventory(tmp_path: Path) -> None:
    """Both in the inventory's known_hosts: works. The hop alone unknown: the sentence names the hop; accept-new records it."""
    async with guests_up(2, tmp_path) as fleet:
        hop, target = fleet.guests
        lines = fleet.known_hosts.read_text().splitlines(keepends=True)
        inventory = f"""\
jump_hosts: {{gw: {{address: {hop.address}, port: {hop.port}, user: root, key: {hop.user_key}, host_key_policy: POLICY}}}}
defaults: {{known_hosts: {tmp_path}/known, jump: gw, targets: {{data: {{path: {target.data}, allow_ram: true}}}}}}
guests: {{vm1: {{address: {target.address}, port: {target.port}, key: {target.user_key}, user: root}}}}
{TINY}"""
        (tmp_path / "known").write_text(lines[1])
        strict = await run(inventory.replace("POLICY", "strict"), tmp_path, within_s=60)
        (tmp_path / "again").mkdir()
        accepting = await run(inventory.replace("POLICY", "accept-new"), tmp_path / "again", within_s=60)
        await nothing_left(fleet)
    assert strict.status == 3, strict.out + strict.err
    assert f"the host key of jump host {hop.address}:{hop.port} is unknown" in strict.outcomes["vm1"].reason
    assert accepting.status == 0, accepting.out + accepting.err
    assert (tmp_path / "known").read_text().splitlines()[1].startswith(f"[{hop.address}]:{hop.port} ssh-ed25519 ")


# --- files, ports, privileges ------------------------------------------------------------------------------------


async def test_all_that_is_made_is_private_whatever_the_umask(tmp_path: Path) -> None:
    """Under umask 0: files 0600 and folders 0700 on both sides, known_hosts, caches and report included."""
    home = Path(os.environ["HOME"])
    async with guests_up(1, tmp_path) as fleet:
        text = inventory_yaml(fleet, body=TINY).replace(str(fleet.known_hosts), "~/ssh/known_hosts")
        text = text.replace("defaults:\n", "defaults:\n  host_key_policy: accept-new\n")
        before = os.umask(0)
        try:
            started = await start_run(text, tmp_path)
        finally:
            os.umask(before)
        (guest,) = fleet.guests
        while not list(guest.data.glob(".calyx-orch-*/*")):
            await asyncio.sleep(0.01)
        open_on_guest = _open_to_others(guest.home) + _open_to_others(guest.data)
        ended = await started.ended()
        await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    assert open_on_guest == []
    assert (ended.folder / "report.html").exists()
    assert (home / "ssh" / "known_hosts").read_text().startswith("[127.")
    assert _open_to_others(ended.folder) + _open_to_others(home) == []


def test_what_was_calibrated_is_kept_private_whatever_the_umask(tmp_path: Path) -> None:
    chosen = Choice(Candidate("sqpoll", "batch"), "the quickest")
    before = os.umask(0)
    try:
        assert Cache(tmp_path / "state" / "calibration.json").put("key", chosen, {}) is None
    finally:
        os.umask(before)
    assert (tmp_path / "state" / "calibration.json").exists()
    assert _open_to_others(tmp_path / "state") == []
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def _open_to_others(directory: Path) -> list[str]:
    """What group or others may do anything with, at or below a directory but for itself."""
    return [f"{path} {path.stat().st_mode:o}" for path in directory.rglob("*") if path.stat().st_mode & 0o077]


async def test_agent_guard_and_fio_open_no_port(tmp_path: Path) -> None:
    """In a round of fio, none of their sockets is in the kernel's tables of network sockets."""
    need_root("fio")
    async with guests_up(1, tmp_path) as fleet:
        body = TINY.replace("baselines: none", "baselines: [fio-io_uring]").replace("0.6s", "2s")
        started = await start_run(inventory_yaml(fleet, body=body), tmp_path)
        while "--ioengine=io_uring" not in " ".join((ours := left_processes(fleet)).values()):
            await asyncio.sleep(0.02)
        ours = {pid: words for pid, words in ours.items() if "sshd" not in words}
        tables = "".join(Path(f"/proc/self/net/{name}").read_text() for name in ("tcp", "tcp6", "udp", "udp6", "raw"))
        inodes = {line.split()[9] for line in tables.splitlines() if line.split()[9].isdigit()}
        sockets = {pid: _sockets(pid) & inodes for pid in ours}
        assert any("calyx-agent-" in words for words in ours.values())
        ended = await started.ended()
    assert ended.status == 0, ended.out + ended.err
    assert not any(sockets.values()), sockets


def _sockets(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found |= set(re.findall(r"socket:\[(\d+)\]", str(entry.readlink())))
        except OSError:
            continue
    return found


# --- servers that lie --------------------------------------------------------------------------------------------

EVIL = "\x1b]0;owned\x07\x1b[31m<script>alert(1)</script>\u202e\x9b2J"


class _Liar(asyncssh.SSHServer):
    """Greets with a banner of escapes, and ends the login with a reason of escapes."""

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def begin_auth(self, username: str) -> bool:
        self._connection.send_auth_banner(EVIL + "\n")
        raise asyncssh.DisconnectError(2, EVIL)


async def test_what_a_hostile_server_says_reaches_neither_terminal_nor_report_raw(tmp_path: Path) -> None:
    """Banner, reason of the refusal, greeting of another protocol, words of a login shell, PATH of a guest."""
    need_root("unshare", "fio")
    key = tmp_path / "liar_key"
    write_key(key, "liar")
    liar = await asyncssh.create_server(_Liar, "127.0.0.1", 0, server_host_keys=[str(key)], server_version="x")

    async def smtp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 " + EVIL.encode() + b"\r\n")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(smtp, "127.0.0.1", 0)
    (tmp_path / "banner").write_text(EVIL + "\n")
    quoted = shlex.quote(EVIL)
    async with guests_up(1, tmp_path) as fleet:
        await fleet.add("banner", extra=(f"Banner {tmp_path}/banner",))
        shell = tmp_path / "shell"
        shell.write_text(f'#!/bin/sh\necho {quoted}\necho {quoted} >&2\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n')
        shell.chmod(0o755)
        await fleet.add("noisy", extra=(f"ForceCommand {shell}",))
        shut = tmp_path / "shut"
        shut.write_text(f"#!/bin/sh\necho {quoted}\nexit 9\n")
        shut.chmod(0o755)
        await fleet.add("shut", extra=(f"ForceCommand {shut}",))
        more = "".join(
            f"  {name}: {{address: 127.0.0.1, port: {port}, known_hosts: {tmp_path}/new, host_key_policy: accept-new,"
            f" user: x, targets: {{data: /tmp}}}}\n"
            for name, port in (("liar", liar.get_port()), ("smtp", other.sockets[0].getsockname()[1]))
        )
        text = inventory_yaml(fleet).rstrip("\n") + "\n" + more + TINY
        ended = await run(text, tmp_path, within_s=90)
        hidden = tmp_path / "hidden"
        hidden.write_text(
            f"#!/bin/sh\nfor f in $(which -a fio); do mount --bind /dev/null $f; done\nexport PATH=$PATH:{quoted}\n"
            'exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n'
        )
        hidden.chmod(0o755)
        await fleet.add("path", extra=(f"ForceCommand unshare --mount {hidden}",))
        (tmp_path / "refused").mkdir()
        lacking = inventory_yaml(fleet, body=TINY.replace("baselines: none", "baselines: [fio-io_uring]"))
        refused = await run(lacking, tmp_path / "refused", within_s=60)
        await nothing_left(fleet)
    liar.close()
    other.close()
    said = ended.out + ended.err
    assert ended.status == 3, said
    states = {name: outcome.state for name, outcome in ended.outcomes.items()}
    assert states == {
        "guest1": "measured", "banner": "measured", "noisy": "measured", "shut": "lost", "liar": "lost", "smtp": "lost",
    }, said  # fmt: skip
    assert "script>alert" in ended.outcomes["liar"].reason, "the words are there, but harmless"
    assert refused.status == 2, refused.out + refused.err
    assert "guest path: fio-io_uring: fio is not installed" in refused.err
    for shown in (said, refused.out + refused.err):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown), repr(shown)
    page = (ended.folder / "report.html").read_text(encoding="utf-8")
    assert "<script>alert(1)" not in page
    assert "\x1b" not in page


LIAR = """\
#!/bin/sh
# Greets as the agent that was put there would, and then lies.
case $SSH_ORIGINAL_COMMAND in
*calyx-probe* | *calyx-put* | *calyx-give-back*) exec /bin/sh -c "$SSH_ORIGINAL_COMMAND" ;;
*calyx-agent-*) ;;
*) exec /bin/sh -c "$SSH_ORIGINAL_COMMAND" ;;
esac
agent=$(ls "$HOME"/.cache/calyx-orch/calyx-agent-*)
sha=$(sha256sum <"$agent")
printf 'calyx-agent/1 {"type":"hello","protocol":1,"version":"1","sha256":"%s","arch":"x86_64","pid":1,' "${sha%% *}"
printf '"path":"%s","work":"/tmp/calyx-work-liar"}\\n' "$agent"
case KIND in
line) exec tr '\\0' x </dev/zero ;;
beats) exec yes '{"type":"beat","done_bytes":1,"total_bytes":2}' ;;
facts) exec yes '{"type":"facts","hostname":"liar"}' ;;
json) while read -r line; do echo '{"type":"facts","hostname":'; done ;;
esac
"""


@pytest.mark.slow
async def test_an_agent_that_floods_or_babbles_costs_nobody_else_anything(tmp_path: Path) -> None:
    """A line without an end, beats and answers without an end, half a JSON: each is lost; the honest guest is measured."""
    kinds = ("line", "beats", "facts", "json")
    async with guests_up(1, tmp_path) as fleet:
        for kind in kinds:
            script = tmp_path / f"{kind}.sh"
            script.write_text(LIAR.replace("KIND", kind))
            script.chmod(0o755)
            await fleet.add(kind, extra=(f"ForceCommand {script}",))
        started = await start_run(inventory_yaml(fleet, body=TINY), tmp_path)
        most = 0
        while started.process.returncode is None:
            most = max(most, _resident_mib(started.process.pid))
            await asyncio.sleep(0.1)
        ended = await started.ended()
    said = ended.out + ended.err
    assert ended.status == 3, said
    assert "Traceback" not in said
    assert {name: outcome.state for name, outcome in ended.outcomes.items()} == {
        "guest1": "measured", **dict.fromkeys(kinds, "lost"),
    }, said  # fmt: skip
    assert "longer than 64 KiB" in ended.outcomes["line"].reason or "65 KiB" in ended.outcomes["line"].reason
    assert most < 700, f"{most} MiB"


def _resident_mib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmRSS:\s+(\d+)", status)
    return int(found[1]) >> 10 if found else 0
