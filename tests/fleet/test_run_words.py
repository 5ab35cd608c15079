"""The command line itself on real guests: demo, JSON, plain output, dry run, what is chosen, guests without an inventory."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

import pytest

from calyx_orch.commands.loopback import base_directory, find_sshd, inventory_yaml
from fleet.whole_runs import (
    TINY,
    guests_up,
    left_files,
    left_processes,
    nothing_left,
    processes_below,
    processes_of,
    run,
    say,
    start,
    start_run,
    strict_json,
)

pytestmark = [pytest.mark.fleet]

GUESTS = re.compile(r"/\S*?/calyx-orch-guests-\w+")
ESCAPES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x9b]")

TWO = """\
workloads:
  - {name: reads, rw: randread, bs: 4k, iodepth: [1, 4], size: 4m, runtime: 0.5s, ramp_time: 0.1s, rate_iops: 300}
  - {name: writes, rw: write, bs: 64k, iodepth: 2, size: 4m, runtime: 0.5s, ramp_time: 0.1s, rate_iops: 100}
baselines: none
repetitions: 3
settle: 0
lost_time_probe: 0
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_the_demo_runs_in_time_and_leaves_nothing_but_its_run_folder(tmp_path: Path) -> None:
    """Under 90 s on real I/O; no process, no file besides the run folder, which holds the report."""
    if not find_sshd():
        pytest.skip("no sshd is installed: install openssh-server")
    places = {tmp_path, Path(tempfile.gettempdir()), base_directory()}
    before = _names_in(places)
    began = time.monotonic()
    ended = await (await start("demo", folder=tmp_path / "out", cwd=tmp_path)).ended(within_s=150)
    took = time.monotonic() - began
    say(f"the demo took {took:.1f} s")
    assert ended.status == 0, ended.out + ended.err
    assert took < 90
    new = [path for path in _names_in(places) - before if "calyx" in path.name]  # other tests may run beside this one
    assert new == [tmp_path / "calyx-runs"]
    (folder,) = _names_in({new[0]})
    assert not processes_of(Path("calyx-orch-guests-")), "no server, agent or fio"
    assert (folder / "report.html").stat().st_size > 100_000
    assert f"report: calyx-runs/{folder.name}/report.html" in ended.out
    assert "4 loopback guests are up, each behind its own OpenSSH sshd" in ended.out
    assert not ESCAPES.search(ended.out)


async def test_an_interrupted_demo_ends_its_guests_too(tmp_path: Path) -> None:
    """Ctrl-C in the second round: 130, the run folder, and nothing else."""
    if not find_sshd():
        pytest.skip("no sshd is installed: install openssh-server")
    started = await start("demo", "--guests", "2", "--out", tmp_path / "out", folder=tmp_path / "out", cwd=tmp_path)
    await started.until("round 2 of")
    (base,) = {Path(match) for words in processes_below(started.process.pid) for match in GUESTS.findall(words)}
    assert base.is_dir()
    started.signal(signal.SIGINT)
    ended = await started.ended()
    assert ended.status == 130, ended.out + ended.err
    assert "Traceback" not in ended.err
    assert not processes_of(base)
    assert not base.exists()
    assert ended.record.status == "interrupted"
    assert {m.round_index for m in ended.record.measurements if m.status == "ok"} >= {ended.record.plan.rounds[0].index}
    assert _names_in({tmp_path}) == {tmp_path / "out", tmp_path / "controller-home"}


def _names_in(places: set[Path]) -> set[Path]:
    return {path for place in places for path in place.iterdir()}


async def test_json_is_strict_and_alone_on_standard_output(tmp_path: Path) -> None:
    """Also with a guest that fails: data on standard output, words on standard error, the same exit code."""
    async with guests_up(2, tmp_path) as fleet:
        await fleet.stop(fleet.guests[1])
        ended = await run(inventory_yaml(fleet, body=TINY), tmp_path, "--json")
    assert ended.status == 3, ended.err
    whole = strict_json(ended.out)
    assert whole["format"] == "calyx-orch-result/1"
    assert {row["guest"]: row["status"] for row in whole["guests"]}["guest1"] == "ok"
    assert [outcome["state"] for outcome in whole["outcomes"]] == ["measured", "lost"]
    assert "guests that failed" in ended.err
    assert not ESCAPES.search(ended.err)


async def test_a_dry_run_tells_the_plan_and_touches_nothing(tmp_path: Path) -> None:
    """No connection, no file, no run folder; as data with --json."""
    async with guests_up(2, tmp_path) as fleet:
        logs = {guest.name: guest.log.read_text().count("Connection from") for guest in fleet.guests}
        text = inventory_yaml(fleet, vm_hosts={"hv1": ["guest1", "guest2"]}, body=TWO)
        ended = await (await start_run(text, tmp_path, "--dry-run")).ended()
        as_json = await (await start_run(text, tmp_path, "--dry-run", "--json")).ended()
        assert {guest.name: guest.log.read_text().count("Connection from") for guest in fleet.guests} == logs, (
            "nobody logged in"
        )
        assert not left_processes(fleet)
        assert [left_files(guest) for guest in fleet.guests] == [[], []]
    assert ended.status == as_json.status == 0, ended.err + as_json.err
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "calyx-runs").exists()
    assert "Nothing was touched." in ended.out
    assert "2 guests (guest1, guest2): 9 rounds" in ended.out
    assert "workloads" in ended.out
    assert len(strict_json(as_json.out)["plan"]["rounds"]) == 9


async def test_limit_workload_and_repetitions_choose_what_runs_and_all_of_it_is_kept(tmp_path: Path) -> None:
    """The run folder: plan, inventory copy, journal, facts, raw answers for every round and guest, all private."""
    async with guests_up(3, tmp_path) as fleet:
        logs = fleet.guests[1].log.read_text()
        options = ("--limit", "guest[13]", "--workload", "reads*", "--repetitions", "2", "--quiet")
        text = inventory_yaml(fleet, body=TWO)
        ended = await run(text, tmp_path, *options)
        assert fleet.guests[1].log.read_text() == logs, "a guest that is not chosen is not touched"
        await nothing_left(fleet)
    assert ended.status == 0, ended.out + ended.err
    assert {outcome.guest for outcome in ended.record.outcomes} == {"guest1", "guest3"}
    rounds = ended.record.plan.rounds
    assert sorted({round_.workload.iodepth for round_ in rounds}) == [1, 4]
    assert len(rounds) == 4
    assert "round 1 of" not in ended.out
    assert not ESCAPES.search(ended.out + ended.err)
    folder = ended.folder
    assert (folder / "inventory.yaml").read_text() == text
    assert len(list((folder / "raw").glob("*/*/result"))) == 4 * 2
    assert set(json.loads((folder / "facts.json").read_text())) == {"guest1", "guest3"}
    events = [json.loads(line)["event"] for line in (folder / "journal.jsonl").read_text().splitlines()]
    for event in ("deployed", "prepared", "Ready", "Armed", "Started", "Reported", "cleaned"):
        assert events.count(event) >= 2, event
    assert [path for path in folder.rglob("*") if path.stat().st_mode & 0o077 and path.name != "report.html"] == []


async def test_guests_need_no_inventory(tmp_path: Path) -> None:
    """`run --guest user@address:port --target DIR`, with keys and known hosts by ssh's own set-up."""
    async with guests_up(1, tmp_path) as fleet:
        (guest,) = fleet.guests
        home = tmp_path / "controller-home" / ".ssh"
        home.mkdir(mode=0o700)
        (home / "id_ed25519").write_bytes(guest.user_key.read_bytes())
        (home / "id_ed25519").chmod(0o600)
        (home / "known_hosts").write_text(fleet.known_hosts.read_text())
        folder = tmp_path / "run"
        words = ("--guest", f"{fleet.connection(guest).user}@{guest.address}:{guest.port}", "--target", guest.data)
        dry = await (await start("run", *words, "--dry-run", "--json", folder=folder, cwd=tmp_path)).ended()
        started = await start(
            "run", *words, "--workload", "quick", "--repetitions", "1", "--out", folder, folder=folder, cwd=tmp_path
        )
        await started.until("round 1 of")
        started.signal(signal.SIGINT)  # the preset is as long as it is; that it runs is enough here
        ended = await started.ended()
        await nothing_left(fleet)
    assert dry.status == 0, dry.err
    assert strict_json(dry.out)["plan"]["rounds"]
    assert ended.status == 130, ended.err
    assert ended.record.plan.inventory.guests[0].connection.port == guest.port


async def test_a_terminal_gets_a_live_table_and_then_the_result(tmp_path: Path) -> None:
    """On a real terminal (a pty): the fleet's table is drawn over itself with the time left; the cursor is given back."""
    async with guests_up(2, tmp_path) as fleet:
        (tmp_path / "inventory.yaml").write_text(inventory_yaml(fleet, body=TWO))
        controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 150, 0, 0))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "calyx_orch.cli", "run", "inventory.yaml", "--out", "run", "--repetitions", "1",
            cwd=tmp_path, env={**os.environ, "TERM": "xterm-256color"}, stdin=terminal, stdout=terminal, stderr=terminal,
        )  # fmt: skip
        os.close(terminal)
        shown = await asyncio.to_thread(_all_of, controller)
        assert await process.wait() == 0, shown
        await nothing_left(fleet)
    assert "\x1b[" in shown
    assert re.search(r"guest1.*guest2", shown, re.DOTALL)
    assert shown.rfind("\x1b[?25h") > shown.find("\x1b[?25l") >= 0, "the cursor is hidden and shown again"
    assert re.search(r"left", shown), "time left"
    assert "run folder: run" in shown[shown.rfind("\x1b[?25h") :]


def _all_of(terminal: int) -> str:
    """What comes out of a terminal until its other side is closed."""
    found = b""
    try:
        while data := os.read(terminal, 65536):
            found += data
    except OSError:  # EIO: the other side is closed
        pass
    finally:
        os.close(terminal)
    return found.decode(errors="replace")


async def test_an_inventory_that_is_wrong_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """All errors at once, each with file, line and column; exit 2."""
    text = "guests:\n  vm1: {prot: 22}\n  vm2: {}\ndefaults:\n  targets: {data: relative/path}\n"
    ended = await (await start_run(text, tmp_path)).ended()
    assert ended.status == 2
    assert re.search(r"inventory\.yaml:2:9: unknown key 'prot' \(did you mean 'port'\?\)", ended.err), ended.err
    assert re.search(r"inventory\.yaml:5:\d+: .*relative path", ended.err), ended.err
    assert ended.out == ""
    assert not (tmp_path / "run").exists()
