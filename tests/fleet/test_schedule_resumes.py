"""A daemon is killed in a firing on real guests; the one that comes after it goes on with the run, or measures anew, by the policy."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from calyx_orch.commands.loopback import inventory_yaml
from calyx_orch.commands.processes import descendants
from calyx_orch.store import archive
from fleet.schedule_verbs import Calyx, each_second, said, wait
from fleet.whole_runs import guests_up, nothing_left
from web_server import WebServer

pytestmark = [pytest.mark.fleet]

FOUR_ROUNDS = """\
workloads:
  - {name: randread, rw: randread, bs: 4k, iodepth: 4, size: 8m, runtime: 1s, ramp_time: 0.1s, rate_iops: 400}
  - {name: randwrite, rw: randwrite, bs: 4k, iodepth: 4, size: 8m, runtime: 1s, ramp_time: 0.1s, rate_iops: 400}
baselines: none
repetitions: 2
settle: 0
lost_time_probe: 0
seed: 7
"""


def done(folder: Path) -> int:
    """How many rounds of a run were over."""
    return Counter(entry["event"] for entry in archive.journal(folder))["done"]


@pytest.mark.timeout(250)
@pytest.mark.parametrize("policy", ["resume", pytest.param("retry", marks=pytest.mark.slow)])
async def test_a_night_whose_daemon_is_killed_is_gone_on_with_by_the_next_one(
    policy: str, tmp_path: Path, web: WebServer, calyx: Calyx
) -> None:
    """After two of four rounds: resumed, these stand and the night is one run; retried, it is another run beside that one."""
    runs = tmp_path / "runs"
    async with guests_up(2, tmp_path) as fleet:
        inventory = tmp_path / "inventory.yaml"
        inventory.write_text(inventory_yaml(fleet, body=FOUR_ROUNDS))
        words = ("--cron", "* * * * *", "--notify", "env:HOOK", "--interrupted", policy, "--runs", runs)
        await asyncio.to_thread(said, calyx("add", "often", inventory, *words))
        each_second(tmp_path, "often")
        killed = calyx("daemon")

        def night() -> list[Path]:
            return [one for one in runs.glob("often-*") if one.is_dir()] if runs.is_dir() else []

        await asyncio.to_thread(wait, lambda: night() and done(night()[0]) >= 2)
        family = descendants(killed.pid)
        killed.send_signal(signal.SIGKILL)
        await asyncio.to_thread(killed.communicate)
        await asyncio.to_thread(wait, lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))
        (folder,) = night()
        before = archive.read(folder)
        assert before.status == "interrupted"
        stood = done(folder)
        with sqlite3.connect(tmp_path / "store.sqlite") as store:
            (due_s,) = store.execute("SELECT due_s FROM firing WHERE state = 'running'").fetchone()
            store.execute("UPDATE firing SET lease_s = 0 WHERE state = 'running'")
            store.execute("UPDATE schedule SET paused = 1")
        out = await asyncio.to_thread(said, calyx("daemon", "--once"))
        assert f"ended in the middle; {policy}" in out
        await nothing_left(fleet)
    told = json.loads(await asyncio.to_thread(said, calyx("history", "often", "--limit", "1000", "--json")))
    (row,) = [one for one in told["firings"] if one["due_s"] == due_s]
    assert (row["state"], row["attempt"]) == ("finished", 2), row
    assert row["reason"].endswith(f"ended in the middle; {policy}")
    assert "2 of 2 guests measured" in row["verdict"]
    record = archive.read(Path(row["folder"]))
    assert record.status == "finished"
    assert {one.state for one in record.outcomes} == {"measured"}
    assert {one.round_index for one in record.measurements} == {0, 1, 2, 3}
    assert (Path(row["folder"]) / "report.html").is_file()
    if policy == "resume":
        assert Path(row["folder"]) == folder
        assert record.run_id == before.run_id
        (resumed,) = record.resumed
        assert 2 <= resumed.kept <= stood
        assert night() == [folder]
    else:
        assert Path(row["folder"]).name == f"{folder.name}-2"
        assert record.run_id != before.run_id
        assert record.resumed == ()
    messages = [json.loads(body)["message"] for body in web.to("/hook")]
    assert sum("2 of 2 guests measured" in text for text in messages) == 1
