"""What a clean makes of what agents answer, and what it tells."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from calyx_agent.executables import Executable
from calyx_orch.errors import AgentError
from calyx_orch.model import Cleaned, Connection, Freed, Guest, Leftover, Target, TransportKind, Untouched
from calyx_orch.report import cleaning
from calyx_orch.runner import clean, old_agents
from calyx_orch.transport import Completed, Pool
from calyx_orch.transport.local import LocalTransport
from calyx_orch.transport.simulated import Script, Simulation

LEFT = {
    "path": "/data/.calyx-orch-a1b2c3", "kind": "files", "run": "20261201-aa", "by": "ann@desk", "since_s": 100,
    "pid": 7, "files": 2, "bytes": 8 << 20,
}  # fmt: skip
WORK = {**LEFT, "path": "/var/tmp/calyx-work-x", "kind": "work", "files": 0, "bytes": 4096}
FREED = {"path": "/data", "mount": "/", "bytes": 8 << 20, "discard": "fstrim"}


def answer(**changes: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"removed": [], "failed": [], "found": [], "kept": [], "freed": [], "more": False}
    return {**empty, **changes}


def cleaned(*addresses: str, scripts: Mapping[str, Script] | None = None, dry_run: bool = False) -> tuple[Cleaned, ...]:
    guests = tuple(
        Guest(address, Connection(address, transport=TransportKind.SIMULATED), (Target("data", "/data"),))
        for address in addresses
    )

    async def go() -> tuple[Cleaned, ...]:
        async with Pool(simulation=Simulation(scripts=scripts or {})) as pool:
            return await clean.clean(guests, pool=pool, dry_run=dry_run)

    return asyncio.run(go())


def answering(*answers: dict[str, Any]) -> Script:
    """A guest that answers each `clean` with the next of these."""
    left = list(answers)

    def bend(message: dict[str, Any]) -> list[bytes]:
        if message["type"] == "cleaned" and left:
            message.update(left.pop(0))
        return [json.dumps(message).encode()]

    return Script(bend=bend)


def test_only_what_the_agent_says_is_gone_counts_as_removed() -> None:
    one = clean.of_answers("vm1", [answer(found=[LEFT, WORK], removed=[LEFT["path"]], freed=[FREED])], dry_run=False)
    assert [left.path for left in one.removed] == [LEFT["path"]]
    assert one.freed == (Freed("/data", "/", 8 << 20, "fstrim"),)
    listed = clean.of_answers("vm1", [answer(found=[LEFT, WORK])], dry_run=True)
    assert [left.path for left in listed.removed] == [LEFT["path"], WORK["path"]]


def test_a_guest_is_asked_again_until_it_has_told_all() -> None:
    """The answer is one line: what does not fit comes with the next, and bytes of one place add up."""
    second = {**LEFT, "path": "/data/.calyx-orch-d4e5f6"}
    script = answering(
        answer(found=[LEFT], removed=[LEFT["path"]], freed=[FREED], more=True),
        answer(found=[second], removed=[second["path"]], freed=[FREED]),
    )
    (one,) = cleaned("odd", scripts={"odd": script})
    assert [left.path for left in one.removed] == [LEFT["path"], second["path"]]
    assert one.freed == (Freed("/data", "/", 16 << 20, "fstrim"),)


def test_a_guest_that_always_has_more_and_removes_nothing_is_not_asked_again() -> None:
    asked = 0

    def bend(message: dict[str, Any]) -> list[bytes]:
        nonlocal asked
        if message["type"] == "cleaned":
            asked += 1
            message.update(answer(more=True))
        return [json.dumps(message).encode()]

    (one,) = cleaned("odd", scripts={"odd": Script(bend=bend)})
    assert one.is_clean
    assert one.more
    assert asked == 1


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_stays_is_skipped_at_the_next_question(dry_run: bool) -> None:
    """A list of 300 directories takes more than one answer, and so does what is kept before anything is removed."""
    second = {**LEFT, "path": "/data/.calyx-orch-d4e5f6"}
    gone = {} if dry_run else {"removed": [second["path"]]}
    script = answering(
        answer(kept=[{"path": "/data/x", "why": "no record"}], found=[LEFT], more=True, stay=2),
        answer(found=[second], stay=3, **gone),
    )
    (one,) = cleaned("odd", scripts={"odd": script}, dry_run=dry_run)
    assert [left.path for left in one.removed] == [LEFT["path"], second["path"]][0 if dry_run else 1 :]
    assert [stays.path for stays in one.kept] == ["/data/x"]
    assert not one.more


@pytest.mark.parametrize("since", [1 << 63, -1, "soon", None, 1.5])
def test_a_number_that_is_no_count_is_not_known_and_the_rest_stands(since: Any) -> None:
    odd = answer(found=[WORK, {**LEFT, "since_s": since, "pid": since}], removed=[LEFT["path"], WORK["path"]])
    (one,) = cleaned("odd", scripts={"odd": answering(odd)})
    assert one.trouble == ""
    assert {left.path: left.since_s for left in one.removed} == {WORK["path"]: 100, LEFT["path"]: 0}


def test_what_was_removed_before_an_answer_that_makes_no_sense_is_told() -> None:
    """Also what that answer itself says is gone."""
    script = answering(
        answer(found=[LEFT], removed=[LEFT["path"]], more=True),
        answer(found=[{"kind": "files"}], removed=[WORK["path"], 7], kept="nonsense"),
    )
    (one,) = cleaned("odd", scripts={"odd": script})
    assert "makes no sense" in one.trouble
    assert [left.path for left in one.removed] == [LEFT["path"], WORK["path"]]
    text = told(one)
    assert "odd: not cleaned to the end: " in text
    assert f"removed {WORK['path']}" in text
    assert "Removed 2 directories" in text
    assert "Nothing was" not in text


def test_a_list_that_is_not_whole_says_at_least() -> None:
    assert "Would remove at least 1 directory" in told(Cleaned("vm1", True, removed=(LEFTOVER,), more=True))


def test_one_guest_s_trouble_is_its_own() -> None:
    found = cleaned("unreachable1", "odd", "good1", scripts={"odd": answering(answer(found=[{"kind": "files"}]))})
    assert [one.is_clean for one in found] == [False, False, True]
    assert "refused the connection" in found[0].trouble
    assert "makes no sense" in found[1].trouble


def told(*guests: Cleaned) -> str:
    out = io.StringIO()
    cleaning.show(guests, Console(file=out, width=100, force_terminal=True, color_system=None))
    return " ".join(out.getvalue().split())


LEFTOVER = Leftover("/data/.calyx-orch-a1b2c3", "files", "20261201-aa", "ann@desk", 100, 2, 8 << 20)


def test_what_was_removed_is_told_with_its_run_and_what_the_host_still_holds() -> None:
    text = told(Cleaned("vm1", False, removed=(LEFTOVER,), freed=(Freed("/data", "/mnt", 8 << 20, "fstrim"),)))
    assert "removed /data/.calyx-orch-a1b2c3 (2 files, 8 MiB, of run 20261201-aa of ann@desk)" in text
    assert (
        "8 MiB of /data stay allocated on the vm_host's thin disk until there is a trim: run `sudo fstrim /mnt`" in text
    )
    assert "Removed 1 directory with 2 files (8 MiB) on 1 of 1 guest." in text


@pytest.mark.parametrize(
    ("discard", "words"),
    [("online", "given back"), ("none", "takes no discards"), (None, "is not known"), ("odd", "is not known")],
)
def test_each_kind_of_disk_has_its_sentence(discard: str | None, words: str) -> None:
    assert words in told(Cleaned("vm1", False, removed=(LEFTOVER,), freed=(Freed("/data", "/", 1, discard),)))


def test_a_dry_run_says_would_and_that_nothing_was_touched() -> None:
    text = told(Cleaned("vm1", True, removed=(LEFTOVER,)))
    assert "would remove /data/.calyx-orch-a1b2c3" in text
    assert text.endswith("Nothing was touched.")


def test_what_stays_is_told_with_its_reason_and_without_control_characters() -> None:
    text = told(
        Cleaned("vm1", False, kept=(Untouched("/data/x", "in use by \x1b[2Jrun"),)),
        Cleaned("vm2", False, failed=(Untouched("/data/y", "Operation not permitted"),)),
        Cleaned("vm3", False, trouble="no answer"),
    )
    assert "vm1: kept /data/x: in use by \\x1b[2Jrun" in text
    assert "vm2: could not remove /data/y: Operation not permitted" in text
    assert "vm3: not cleaned: no answer" in text
    assert "something stays on vm1; not clean: vm2, vm3." in text


def test_what_could_not_be_looked_at_is_not_called_clean() -> None:
    text = told(Cleaned("vm1", False), Cleaned("vm2", False, trouble="no answer"))
    assert "Nothing is left by the dead on 1 of 2 guests; not clean: vm2." in text
    silent = told(Cleaned("vm1", False, trouble="no answer"))
    assert "Nothing was cleaned" not in silent, "who does not answer may have cleaned"
    foreign = told(Cleaned("vm1", False, failed=(Untouched("/data/x", "files lie in it that no agent made"),)))
    assert foreign.endswith("Nothing was removed; not clean: vm1.")


def test_all_of_it_is_strict_json() -> None:
    data = json.loads(json.dumps(cleaning.to_json([Cleaned("vm1", False, removed=(LEFTOVER,))]), allow_nan=False))
    assert data["format"] == "calyx-orch-clean/1"
    assert data["guests"][0]["removed"][0]["run"] == "20261201-aa"
    assert data["guests"][0]["clean"] is True


# --- old agents: the very script, on this machine ----------------------------------------------------------------


def put(place: Path, content: bytes, suffix: str = "") -> Path:
    path = place / f"calyx-agent-{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
    path.write_bytes(content)
    path.chmod(0o700)
    return path


@pytest.mark.parametrize("dry_run", [True, False])
def test_only_whole_agents_of_other_versions_that_nobody_runs_are_removed(tmp_path: Path, dry_run: bool) -> None:
    place = tmp_path / "it's a place"
    place.mkdir()
    mine, old, borrowed = put(place, b"mine"), put(place, b"old"), put(place, b"cut off", ".check-12345678")
    other = place / "calyx-agent-0123456789abcdef"
    other.write_bytes(b"not what the name says")
    notes = place / "calyx-agent-notes.txt"
    notes.write_bytes(b"mine")
    link = place / "calyx-agent-fedcba9876543210"
    link.symlink_to(old)
    running = put(place, Path("/bin/sleep").read_bytes())
    process = subprocess.Popen([running, "60"])
    try:
        guest = Guest("vm1", Connection("vm1"), (), agent_dir=str(place))
        agents = {"x86_64": Executable("x86_64", mine, hashlib.sha256(b"mine").hexdigest(), 4)}
        done = asyncio.run(old_agents.remove(LocalTransport(), guest, agents, dry_run=dry_run))
    finally:
        process.kill()
        process.wait()
    gone, kept, failed = done
    here = {path for path, _ in gone if path.startswith(str(place))}
    assert here == {str(old), str(borrowed)}
    assert {stays.path: stays.why for stays in kept if stays.path.startswith(str(place))} == {
        str(other): "its content is not what its name says",
        str(notes): "its name is none of an agent",
        str(running): "it is running",
    }
    assert failed == ()
    left = {mine, other, notes, link, running} | ({old, borrowed} if dry_run else set())
    assert set(place.iterdir()) == left


def test_a_script_that_is_cut_off_is_no_answer() -> None:
    with pytest.raises(AgentError, match="did not come to its end"):
        old_agents.read(Completed(0, b"m old 3 /x\n", b""), "m")
