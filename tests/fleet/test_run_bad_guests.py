"""One bad guest of each kind in one fleet: a clear line each, and nobody else loses a result."""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from calyx_orch.commands.loopback import inventory_yaml
from calyx_orch.transport.ssh.server import write_key
from fleet.disks import loop_disk, need_root, read_only
from fleet.whole_runs import TINY, Ended, guests_up, nothing_left, run

pytestmark = [pytest.mark.fleet]

TOOLS = Path(__file__).parent.parent / "golden" / "tools"
DENY_IO_URING = f'{sys.executable} {TOOLS}/deny_syscall.py EPERM 425,426,427 -- /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
HIDE_FIO = 'for f in $(which -a fio); do mount --bind /dev/null $f; done; eval "$SSH_ORIGINAL_COMMAND"'
WITHOUT_FIO = f"unshare --mount /bin/sh -c {shlex.quote(HIDE_FIO)}"


async def test_each_bad_guest_gets_one_clear_line_and_the_others_stand(tmp_path: Path) -> None:
    """Issue's list, A-048, A-049: io_uring refused, wrong key, closed port, full disk, read-only target; two are well."""
    need_root("mkfs.ext4", "losetup", "mount")
    async with guests_up(1, tmp_path) as fleet:
        await fleet.add("loud", extra=[f"Banner {_loud_banner(tmp_path)}"])
        await fleet.add("noring", extra=[f"ForceCommand {DENY_IO_URING}"])
        for name in ("wrongkey", "closed", "full", "readonly"):
            await fleet.add(name)
        guests = {guest.name: guest for guest in fleet.guests}
        (guests["loud"].home / ".bashrc").write_text("echo Welcome to loud; echo and a warning >&2\n")
        guests["wrongkey"].user_key.unlink()
        write_key(guests["wrongkey"].user_key, "a key that no guest knows")
        await fleet.stop(guests["closed"])
        with ExitStack() as stack:
            stack.enter_context(loop_disk(guests["full"].data, tmp_path, kind="ext4", size=16 << 20))
            stack.enter_context(read_only(guests["readonly"].data))
            ended = await run(inventory_yaml(fleet, body=TINY), tmp_path)
            await nothing_left(fleet)
    said = ended.out + ended.err
    assert ended.status == 3, said
    assert ended.record.status == "finished"
    assert "(2 of 7 guests)" in said
    states = {name: outcome.state for name, outcome in ended.outcomes.items()}
    bad = {
        "noring": "io_uring cannot be used: ",
        "wrongkey": "key",
        "closed": "refused the connection",
        "full": "no space left",
        "readonly": "ead-only file system",
    }
    assert states == {"guest1": "measured", "loud": "measured", **dict.fromkeys(bad, "lost")}, said
    for name, words in bad.items():
        reason = ended.outcomes[name].reason
        assert words in reason, reason
        assert "\n" not in reason
        assert len(ended.failure_lines(name)) == 1, said
        assert _unwrapped(reason) in _unwrapped(ended.out), "the table shows the whole sentence"
    assert "EPERM" in ended.outcomes["noring"].reason
    assert "Welcome to loud" in " ".join(ended.outcomes["loud"].notes)
    assert "Welcome to loud" in ended.out, "what the shell printed is told"
    rows = [row for row in ended.summary.guests if row.status == "ok"]
    assert {row.guest for row in rows} == {"guest1", "loud"}
    (fleet_row,) = ended.summary.fleet
    assert fleet_row.status == "2 of 7 guests"
    assert (ended.folder / "report.html").stat().st_size > 100_000


async def test_a_guest_without_fio_keeps_its_calyx_figures(tmp_path: Path) -> None:
    """`baselines: auto`: a clear line, and the other guest has its baseline."""
    ended, _ = await _run_with_one_lacking_fio(tmp_path, "auto")
    assert ended.status == 0, ended.out + ended.err
    engines = {guest: {m.engine for m in ended.record.measurements if m.guest == guest} for guest in ended.outcomes}
    assert engines["guest1"] >= {"calyx", "fio-io_uring"}
    assert engines["nofio"] == {"calyx"}
    assert {outcome.state for outcome in ended.outcomes.values()} == {"measured"}
    assert "fio is not installed" in " ".join(ended.outcomes["nofio"].notes)
    assert "nofio: no fio-io_uring baseline: fio is not installed" in ended.out


async def test_a_named_baseline_that_is_missing_refuses_before_any_guest_starts(tmp_path: Path) -> None:
    ended, files = await _run_with_one_lacking_fio(tmp_path, "[fio-io_uring]")
    assert ended.status == 2
    assert "guest nofio: fio-io_uring: fio is not installed" in ended.err
    assert "no guest was started" in ended.err
    assert f"run folder: {ended.folder} holds what the guests said of themselves; nothing was measured" in ended.err
    assert ended.record.measurements == ()
    assert files == [], "nothing was laid out"


@pytest.mark.slow
async def test_a_named_baseline_may_be_skipped_where_it_is_missing(tmp_path: Path) -> None:
    ended, _ = await _run_with_one_lacking_fio(tmp_path, "{engines: [fio-io_uring], when_missing: skip}")
    assert ended.status == 0, ended.out + ended.err
    assert {m.engine for m in ended.record.measurements if m.guest == "nofio"} == {"calyx"}


async def _run_with_one_lacking_fio(base: Path, baselines: str) -> tuple[Ended, list[str]]:
    need_root("unshare", "fio")
    async with guests_up(1, base) as fleet:
        await fleet.add("nofio", extra=[f"ForceCommand {WITHOUT_FIO}"])
        ended = await run(inventory_yaml(fleet, body=TINY.replace("none", baselines)), base)
        await nothing_left(fleet)
    prepared = [line for line in (ended.folder / "journal.jsonl").read_text().splitlines() if '"prepared"' in line]
    return ended, prepared


def _loud_banner(base: Path) -> Path:
    banner = base / "banner"
    banner.write_text("*" * 70 + '\n  AUTHORISED USE ONLY { } "type": "hello"\n' + "*" * 70 + "\n")
    return banner


def _unwrapped(text: str) -> str:
    """Letters only: a table breaks long cells into lines."""
    return "".join(text.split())
