"""The agent gets onto guests of every kind, or the sentence says why not. Guests are behind a real sshd."""

# ruff: noqa: ASYNC240 - mount and chmod take milliseconds, and nothing else runs meanwhile

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from calyx_agent import executables as shipped
from calyx_agent.executables import Executable
from calyx_orch.commands.loopback import LoopbackFleet, LoopbackGuest
from calyx_orch.deploy import Agent, deploy, probe, starting
from calyx_orch.errors import AgentError, CalyxError, ReachError
from calyx_orch.model import Guest, Target
from calyx_orch.transport import Pool, connect
from fleet.conftest import CASES, sshd_lines, until_gone

pytestmark = pytest.mark.fleet

GREETING = r"""printf 'calyx-agent/1 {"type":"hello","protocol":1,"sha256":"%s","path":"%s","work":"/tmp/calyx-work-script"}\n' "$sha" "$0"
"""
ANSWERS = r"""while read -r verb rest; do
	[ "$verb" = bye ] && exit 0
	printf '{"type":"heard","verb":"%s","rest":"%s"}\n' "$verb" "$rest"
done
"""


def script_agent(tmp_path: Path, body: str = GREETING + ANSWERS, *, arch: str = "x86_64") -> dict[str, Executable]:
    """A shell script that greets as an agent does: what is tested here is the way to it. `$sha` is its own digest."""
    content = b'#!/bin/sh\nsha=$(sha256sum < "$0"); sha=${sha%% *}\n' + body.encode()
    path = tmp_path / f"script-agent-{arch}"
    path.write_bytes(content)
    return {arch: Executable(arch, path, hashlib.sha256(content).hexdigest(), len(content))}


def guest_of(fleet: LoopbackFleet, made: LoopbackGuest, *, agent_dir: str | None = None) -> Guest:
    return Guest(made.name, fleet.connection(made), (Target("data", str(made.data)),), agent_dir=agent_dir)


async def deployed(guest: Guest, pool: Pool, agents: dict[str, Executable]) -> Agent:
    return await deploy(await connect(guest.connection, pool=pool), guest, executables=agents)


async def refused(guest: Guest, pool: Pool, agents: dict[str, Executable], kind: type[CalyxError] = AgentError) -> str:
    with pytest.raises(kind) as caught:
        await deployed(guest, pool, agents)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def files_of(guest: LoopbackGuest) -> list[str]:
    return sorted(str(path.relative_to(guest.home)) for path in guest.home.rglob("*") if path.is_file())


def take_away(agent: Agent) -> None:
    """What was put outside of the test's own directories; the directory goes when it holds nothing else."""
    Path(agent.path).unlink()
    with contextlib.suppress(OSError):
        Path(agent.path).parent.rmdir()


async def test_the_agent_is_put_once_and_talks(
    fleet: LoopbackFleet, guest: LoopbackGuest, pool: Pool, tmp_path: Path
) -> None:
    """The second time nothing is uploaded; the file has the name of its content and is the user's alone."""
    agents = script_agent(tmp_path)
    for uploaded in (True, False):
        agent = await deployed(guest_of(fleet, guest), pool, agents)
        assert agent.uploaded is uploaded
        assert agent.hello["sha256"] == agents["x86_64"].sha256
        await agent.send("prepare", (("path", "/a b"), ("size", 5)))
        message = await agent.receive(5)
        assert message == {"type": "heard", "verb": "prepare", "rest": "path=/a%20b size=5"}
        with pytest.raises(AgentError, match=r"no answer within 0.05 s"):
            await agent.receive(0.05)
        await agent.close()
        assert await agent.receive(5) is None
        assert agent.last_words() == "the agent ended with status 0"
        assert agent.notes == ()
    assert files_of(guest) == [f".cache/calyx-orch/calyx-agent-{agents['x86_64'].sha256[:16]}"]
    assert Path(agent.path).stat().st_mode & 0o777 == 0o700


async def test_the_real_agent_greets_answers_and_leaves_nothing(
    fleet: LoopbackFleet, guest: LoopbackGuest, pool: Pool
) -> None:
    if not shipped.available():
        pytest.skip("no agent executable is built: run `make build`")
    agent = await deploy(await connect(fleet.connection(guest), pool=pool), guest_of(fleet, guest))
    await agent.send("clock", (("n", 7),))
    message = await agent.receive(5)
    assert message is not None
    assert (message["type"], message["n"]) == ("clock", 7)
    await agent.send("exec", (("arg", "/bin/sh"), ("arg", "-c"), ("arg", "seq 1 30000"), ("timeout_ms", 5000)))
    document = await agent.receive(5)
    assert document is not None
    assert (document["type"], document["name"]) == ("document", "stdout")
    assert document["text"].split() == [str(n) for n in range(1, 30001)]
    work, pid = Path(agent.hello["work"]), int(agent.hello["pid"])
    assert work.is_dir()
    await agent.close()
    assert await until_gone(agent.path)
    assert not work.exists()
    assert not Path(f"/proc/{pid}").exists()


async def test_a_login_that_prints_text_is_noted_once(fleet: LoopbackFleet, pool: Pool, tmp_path: Path) -> None:
    """Banners before, after and without a newline, on both streams, and the agent still works (cases A-062, A-063)."""
    for case, script, said in (
        ("A-062", "noisy.sh", f"Welcome to {platform.node()}! Last maintenance: never."),
        ("A-063", "noisy2.sh", "Notice: only vfolder paths are persistent"),
    ):
        made = await fleet.add(case, extra=(f"ForceCommand {CASES / case / script}",))
        agent = await deployed(guest_of(fleet, made), pool, script_agent(tmp_path))
        assert len(agent.notes) == 1
        assert agent.notes[0].startswith(f"the login shell of {case} prints text:")
        assert said in agent.notes[0]
        assert "\033" not in agent.notes[0]
        await agent.send("hi")
        assert (await agent.receive(5) or {})["verb"] == "hi"
        await agent.close()


async def test_a_login_that_runs_no_command_is_told(fleet: LoopbackFleet, pool: Pool, tmp_path: Path) -> None:
    made = await fleet.add("sftp-only", extra=("ForceCommand echo This service allows sftp connections only.; exit 1",))
    sentence = await refused(guest_of(fleet, made), pool, script_agent(tmp_path))
    assert sentence == (
        "the login runs no command (it says 'This service allows sftp connections only.', status 1): is it restricted?"
    )


async def test_one_session_is_enough(fleet: LoopbackFleet, pool: Pool, tmp_path: Path) -> None:
    """MaxSessions 1: probe, upload and agent come one after another."""
    made = await fleet.add("single", extra=("MaxSessions 1",))
    agent = await deployed(guest_of(fleet, made), pool, script_agent(tmp_path))
    await agent.close()


async def test_a_home_that_does_not_exist_is_gone_around(fleet: LoopbackFleet, pool: Pool, tmp_path: Path) -> None:
    """The agent goes elsewhere, in a directory of its own; HOME is not made (case A-069)."""
    made = await fleet.add("homeless", extra=sshd_lines("A-069"))
    agent = await deployed(guest_of(fleet, made), pool, script_agent(tmp_path))
    await agent.close()
    try:
        assert Path(agent.path).parent == Path(f"/var/tmp/calyx-orch-{os.geteuid()}")
        assert agent.notes == (
            f"the agent is at {agent.path}, as it could not go to ~/.cache/calyx-orch: HOME (/nonexistent) does not exist",
        )
        assert not Path("/nonexistent").exists()
    finally:
        take_away(agent)


async def test_the_directory_that_was_asked_for_comes_first(
    fleet: LoopbackFleet, guest: LoopbackGuest, pool: Pool, tmp_path: Path
) -> None:
    for named, expected in (
        (str(tmp_path / "it's" / "here"), tmp_path / "it's" / "here"),
        ("~/agents", guest.home / "agents"),
    ):
        agent = await deployed(guest_of(fleet, guest, agent_dir=named), pool, script_agent(tmp_path))
        await agent.close()
        assert Path(agent.path).parent == expected


async def test_what_another_user_put_there_is_not_started(
    fleet: LoopbackFleet, guest: LoopbackGuest, pool: Pool, tmp_path: Path
) -> None:
    """A file of the right name and size in a directory of someone else is not trusted."""
    if os.geteuid() != 0:
        pytest.skip("needs root to give a file to someone else")
    agents = script_agent(tmp_path)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o777)
    planted = open_to_all / probe.agent_name(agents["x86_64"])
    planted.write_bytes(agents["x86_64"].read())
    planted.chmod(0o755)
    os.chown(planted, 65534, 65534)
    os.chown(open_to_all, 65534, 65534)
    agent = await deployed(guest_of(fleet, guest, agent_dir=str(open_to_all)), pool, agents)
    await agent.close()
    assert agent.uploaded
    assert Path(agent.path).parent == open_to_all / "calyx-orch-0"


async def test_a_damaged_file_is_put_again(
    fleet: LoopbackFleet, guest: LoopbackGuest, pool: Pool, tmp_path: Path
) -> None:
    """Right name, right size, wrong content: found by its digest, and replaced once."""
    agents = script_agent(tmp_path)
    agent = await deployed(guest_of(fleet, guest), pool, agents)
    await agent.close()
    Path(agent.path).write_bytes(agents["x86_64"].read()[:-5] + b"#xyz\n")
    again = await deployed(guest_of(fleet, guest), pool, agents)
    assert again.uploaded
    assert Path(agent.path).read_bytes() == agents["x86_64"].read()
    await again.close()


async def test_an_agent_that_runs_is_not_disturbed_by_a_newer_one(
    fleet: LoopbackFleet, guest: LoopbackGuest, pool: Pool, tmp_path: Path
) -> None:
    """Two versions side by side, each under its own name (case A-073)."""
    old = await deployed(guest_of(fleet, guest), pool, script_agent(tmp_path))
    new = await deployed(guest_of(fleet, guest), pool, script_agent(tmp_path, GREETING + ANSWERS + "# newer\n"))
    for agent in (old, new):
        await agent.send("hi")
        assert (await agent.receive(5) or {})["verb"] == "hi"
    assert old.path != new.path
    await old.close()
    await new.close()


async def test_another_architecture_is_told_before_anything_is_put(
    fleet: LoopbackFleet, pool: Pool, tmp_path: Path
) -> None:
    """A guest whose `uname -m` says aarch64 (case A-072)."""
    shims = CASES / "A-072"
    made = await fleet.add("arm", environment={"PATH": f"{shims}:/usr/bin:/bin"})
    sentence = await refused(guest_of(fleet, made), pool, script_agent(tmp_path))
    assert sentence == "no agent for aarch64 (there is: x86_64): run `make agents`"
    assert files_of(made) == []
    both = script_agent(tmp_path) | script_agent(tmp_path, GREETING + ANSWERS + "# arm\n", arch="aarch64")
    agent = await deployed(guest_of(fleet, made), pool, both)
    assert agent.hello["sha256"] == both["aarch64"].sha256
    await agent.close()


async def test_a_program_of_another_machine_is_told(
    fleet: LoopbackFleet, guest: LoopbackGuest, pool: Pool, tmp_path: Path
) -> None:
    """An ELF file for aarch64 that is given out as x86_64 (case A-072)."""
    subprocess.run([sys.executable, CASES / "A-072" / "elf_wrong_arch.py", "/bin/true", tmp_path / "elf"], check=True)
    elf = (tmp_path / "elf").read_bytes()
    agents = {"x86_64": Executable("x86_64", tmp_path / "elf", hashlib.sha256(elf).hexdigest(), len(elf))}
    sentence = await refused(guest_of(fleet, guest), pool, agents)
    assert sentence.startswith("the agent does not start on this guest (x86_64, ")
    assert "Exec format error" in sentence or "cannot execute binary file" in sentence


async def test_a_c_library_that_is_too_old_is_told_with_its_version(
    fleet: LoopbackFleet, guest: LoopbackGuest, pool: Pool, tmp_path: Path
) -> None:
    """The loader's message is shown, and which glibc the guest has (case A-071)."""
    loader = (CASES / "A-071" / "glibc_too_old.sh").read_text().removeprefix("#!/bin/sh\n")
    sentence = await refused(guest_of(fleet, guest), pool, script_agent(tmp_path, loader))
    assert "version `GLIBC_2.34' not found" in sentence
    assert "newer C library than this guest's (glibc 2." in sentence


async def test_the_agent_that_is_shipped_needs_no_c_library() -> None:
    """Static, or built for an old glibc: nothing in its version needs is above 2.17 (case A-071)."""
    agents = shipped.available()
    if not agents:
        pytest.skip("no agent executable is built: run `make build`")
    for agent in agents.values():
        told = subprocess.run(["readelf", "-dV", agent.path], capture_output=True, text=True, check=True).stdout
        assert "(NEEDED)" not in told


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("exit 7\n", "the agent ended with status 7"),
        ("echo I am no agent\n", "the agent ended with status 0: I am no agent"),
        ('echo \'calyx-agent/1 {"type":"hello","protocol":9}\'\ncat\n', "the agent speaks protocol 9, not 1"),
        ('echo \'calyx-agent/1 {"type":"hello","protocol":1,"sha256":"0"}\'\ncat\n', "not the one that was put there"),
        ("echo 'calyx-agent/1 {'\ncat\n", "the agent sent what is no JSON"),
        ("head -c 200000 /dev/zero; cat\n", "a line longer than 65 KiB came back"),
    ],
)
async def test_a_program_that_is_no_agent_is_told(
    body: str, sentence: str, fleet: LoopbackFleet, guest: LoopbackGuest, pool: Pool, tmp_path: Path
) -> None:
    assert sentence in await refused(guest_of(fleet, guest), pool, script_agent(tmp_path, body))


async def test_an_agent_that_never_greets_is_given_up(
    fleet: LoopbackFleet, guest: LoopbackGuest, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "HELLO_TIMEOUT_S", 0.3)
    assert await refused(guest_of(fleet, guest), pool, script_agent(tmp_path, "cat >/dev/null\n")) == (
        "the agent did not greet within 0.3 s"
    )


async def test_a_guest_that_goes_away_is_a_matter_of_reaching_it(
    fleet: LoopbackFleet, guest: LoopbackGuest, pool: Pool, tmp_path: Path
) -> None:
    transport = await connect(fleet.connection(guest), pool=pool)
    await fleet.stop(guest)
    with pytest.raises(ReachError, match="was lost"):
        await deploy(transport, guest_of(fleet, guest), executables=script_agent(tmp_path))


# --- mounts ---


class Mounts:
    """File systems over directories of a test, taken away after it."""

    def __init__(self) -> None:
        self._mounted: list[Path] = []

    def over(self, path: Path, options: str) -> Path:
        path.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "calyx-test", path], check=True)
        self._mounted.append(path)
        return path

    def undo(self) -> None:
        for path in reversed(self._mounted):
            subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount")
    made = Mounts()
    yield made
    made.undo()


@pytest.mark.root
@pytest.mark.parametrize(
    ("options", "reason"), [("noexec", "no program starts there (mounted noexec?)"), ("ro", "Read-only")]
)
async def test_a_home_that_takes_no_program_is_gone_around(
    options: str, reason: str, fleet: LoopbackFleet, guest: LoopbackGuest, pool: Pool, tmp_path: Path, mounts: Mounts
) -> None:
    """HOME noexec or read-only: the next place is used and the note says why (cases A-068, A-069)."""
    mounts.over(guest.home, options)
    agent = await deployed(guest_of(fleet, guest), pool, script_agent(tmp_path))
    await agent.close()
    take_away(agent)
    assert agent.path.startswith("/var/tmp/")
    assert f"could not go to {guest.home}/.cache/calyx-orch: {reason}" in agent.notes[0]
    assert files_of(guest) == []


@pytest.mark.root
async def test_no_place_at_all_lists_every_place(
    fleet: LoopbackFleet,
    guest: LoopbackGuest,
    pool: Pool,
    tmp_path: Path,
    mounts: Mounts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All candidates noexec: one line that names each with its reason (case A-068)."""
    shared = mounts.over(tmp_path / "shared", "noexec")
    mounts.over(guest.home, "noexec")
    monkeypatch.setattr(probe, "SHARED_PLACES", (str(shared), "/nowhere"))
    mounts.over(guest.data, "ro")
    sentence = await refused(guest_of(fleet, guest), pool, script_agent(tmp_path))
    assert sentence.startswith("no directory takes the agent: ")
    for place in (f"{guest.home}/.cache/calyx-orch: no program", f"{shared}/calyx-orch-0: no program"):
        assert place in sentence
    assert "/nowhere: does not exist" in sentence
    assert f"{guest.data}/calyx-orch-0: Read-only file system" in sentence
    assert list(shared.rglob("*")) == [shared / "calyx-orch-0"]


@pytest.mark.root
async def test_a_full_disk_is_told_with_place_and_room(
    fleet: LoopbackFleet,
    guest: LoopbackGuest,
    pool: Pool,
    tmp_path: Path,
    mounts: Mounts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """64 KiB everywhere and an agent of 200 KB: refused by the room there is, nothing is left (case A-070)."""
    monkeypatch.setattr(probe, "SHARED_PLACES", ())
    mounts.over(guest.home, "size=64k")
    mounts.over(guest.data, "size=64k")
    sentence = await refused(guest_of(fleet, guest), pool, script_agent(tmp_path, GREETING + "#" * 200_000))
    assert f"{guest.home}/.cache/calyx-orch: No space left on device (65536 bytes free)" in sentence
    assert files_of(guest) == []


@pytest.mark.root
async def test_a_disk_that_fills_up_during_the_upload_is_told(
    fleet: LoopbackFleet, guest: LoopbackGuest, pool: Pool, mounts: Mounts
) -> None:
    """The half that was written is removed (case A-070)."""
    mounts.over(guest.home, "size=64k")
    transport = await connect(fleet.connection(guest), pool=pool)
    path = guest.home / "agent"
    with pytest.raises(AgentError) as caught:
        await transport.put(b"x" * 200_000, str(path), mode=0o700, timeout_s=10)
    assert str(caught.value) == f"No space left on device ({path}, 0 bytes free)"
    assert files_of(guest) == []
