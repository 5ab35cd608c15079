"""`calyx-orch schedule` as a person uses it: real runs of local guests, a real web server, a real daemon that is killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from calyx_orch.commands.processes import descendants
from calyx_orch.store import archive
from fleet.local_guests import two_guests
from fleet.schedule_verbs import Calyx, each_second, said, wait
from web_server import WebServer


def test_a_schedule_runs_tells_and_reports_a_changed_inventory(tmp_path: Path, web: WebServer, calyx: Calyx) -> None:
    fleet = two_guests(tmp_path)
    words = (
        "--cron",
        "30 2 * * *",
        "--timezone",
        "Europe/Berlin",
        "--notify",
        "env:HOOK",
        "--ping",
        "env:PING",
        "--quiet",
    )
    added = said(calyx("add", "nightly", fleet, *words, "--keep", "90d raw, 2y summaries"))
    assert "365 a year" in added
    assert "all guests together will write at most 730 MiB a year" in added
    assert said(calyx("next", "nightly", "--count", "2")).count(" 02:30 CE") == 2
    assert "nightly: finished. Too few nights to judge yet (1 of 12); 2 of 2 guests measured." in said(
        calyx("run-now", "nightly")
    )
    assert [one.path for one in web.got] == ["/ping"]  # quiet: nobody hears of a night on which nothing changed
    fleet.write_text(fleet.read_text().replace("good2: {}", "good3: {}"))
    said(calyx("run-now", "nightly"))
    (message,) = map(json.loads, web.to("/hook"))
    assert "the inventory has changed: guest good3 is new" in message["message"]
    assert "the inventory has changed: guest good2 is gone" in message["message"]
    assert "How often this fleet alarms falsely is not known yet" in message["message"]
    told = json.loads(said(calyx("history", "nightly", "--json")))
    folder = Path(told["firings"][0]["folder"])
    assert f"{folder}/report.html" in message["message"]
    assert (folder / "report.html").is_file()
    assert "good3" in (folder / "inventory.yaml").read_text()
    assert [one["state"] for one in told["firings"]] == ["finished", "finished"]
    assert told["firings"][0]["inventory_sha256"] != told["firings"][1]["inventory_sha256"]
    said(calyx("list", "--check"))
    every = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and "cache" not in path.parts)
    assert b"json://127" not in every
    said(calyx("remove", "nightly"))
    assert folder.is_dir()


def test_a_night_on_which_all_guests_are_down_has_a_record_a_message_and_a_status(
    tmp_path: Path, web: WebServer, calyx: Calyx
) -> None:
    """A-107: tried again as often as wanted, told, and seen by a monitor."""
    fleet = two_guests(tmp_path)
    said(
        calyx("add", "nightly", fleet, "--cron", "30 2 * * *", "--notify", "env:HOOK", "--ping", "env:PING", "--quiet")
    )
    (tmp_path / "data").rmdir()
    said(calyx("run-now", "nightly"), status=3)
    (sent,) = web.got
    assert sent.path == "/hook"
    told = json.loads(sent.body)
    assert told["title"] == "calyx-orch nightly: the run failed"
    assert "2 of 2 guests failed: good1: " in told["message"]
    assert "the last firing was failed" in said(calyx("list", "--check"), status=1)


@pytest.mark.timeout(250)
def test_a_daemon_that_is_killed_in_a_run_leaves_no_run_and_the_next_one_marks_it(
    tmp_path: Path, web: WebServer, calyx: Calyx
) -> None:
    """The run ends with its daemon, and cleans its guests; another daemon tells."""
    fleet = two_guests(tmp_path)
    fleet.write_text(fleet.read_text().replace("runtime: 0.5s", "runtime: 60s"))
    said(calyx("add", "often", fleet, "--cron", "* * * * *", "--notify", "env:HOOK", "--runs", tmp_path / "runs"))
    each_second(tmp_path, "often")
    killed = calyx("daemon")
    wait(lambda: list((tmp_path / "data").glob("*/job.0")))
    family = descendants(killed.pid)
    killed.send_signal(signal.SIGKILL)
    killed.wait(10)
    wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))
    assert list((tmp_path / "data").iterdir()) == []
    (folder,) = [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    assert archive.read(folder).status == "interrupted"
    with sqlite3.connect(tmp_path / "store.sqlite") as store:
        store.execute("UPDATE firing SET lease_s = 0 WHERE state = 'running'")
        store.execute("UPDATE schedule SET paused = 1")
    assert "interrupted" in said(calyx("daemon", "--once"))
    told = [json.loads(one.body)["message"] for one in web.got]
    assert sum("ended in the middle" in text for text in told) == 1
    assert all("in the way: the run of schedule often" in text for text in told if "ended in the middle" not in text)


def test_a_night_that_is_killed_has_a_record_and_a_message_and_the_next_one_runs(
    tmp_path: Path, web: WebServer, calyx: Calyx
) -> None:
    """A-107: as by the kernel when memory is short: its daemon lives, and says by which signal it ended."""
    fleet = two_guests(tmp_path)
    fleet.write_text(fleet.read_text().replace("runtime: 0.5s", "runtime: 60s"))
    said(calyx("add", "nightly", fleet, "--cron", "30 2 * * *", "--notify", "env:HOOK", "--quiet"))
    by_hand = calyx("run-now", "nightly")
    wait(lambda: list((tmp_path / "data").glob("*/job.0")))
    (run,) = [
        pid for pid in descendants(by_hand.pid) if b"\0fire\0nightly\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(run, signal.SIGKILL)
    assert "nightly: failed. ended by signal 9; its log says more" in said(by_hand, status=3)
    (told,) = map(json.loads, web.to("/hook"))
    assert "reason: ended by signal 9; its log says more" in told["message"]
    wait(lambda: not list((tmp_path / "data").iterdir()))
    fleet.write_text(fleet.read_text().replace("runtime: 60s", "runtime: 0.5s"))
    assert "nightly: finished" in said(calyx("run-now", "nightly"))
    said(calyx("list", "--check"))


def test_a_daemon_that_was_to_look_once_and_is_told_to_end_leaves_nothing_running(
    tmp_path: Path, web: WebServer, calyx: Calyx
) -> None:
    fleet = two_guests(tmp_path)
    fleet.write_text(fleet.read_text().replace("runtime: 0.5s", "runtime: 60s"))
    said(calyx("add", "often", fleet, "--cron", "* * * * *", "--notify", "env:HOOK"))
    each_second(tmp_path, "often")
    once = calyx("daemon", "--once")
    wait(lambda: list((tmp_path / "data").glob("*/job.0")))
    once.send_signal(signal.SIGTERM)
    said(once, status=130)
    assert list((tmp_path / "data").iterdir()) == []
    told = json.loads(said(calyx("history", "often", "--json")))["firings"]
    states = {one["state"] for one in told}
    assert "interrupted" in states
    assert "running" not in states
