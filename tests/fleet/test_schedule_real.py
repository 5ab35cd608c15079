"""`calyx-orch schedule` as a person uses it: real runs of local guests, a real web server, a real daemon that is killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from calyx_orch.commands.processes import descendants
from calyx_orch.store import archive
from fleet.local_guests import two_guests

WITHIN_S = 100.0


class Web(ThreadingHTTPServer):
    """What it was sent: paths and bodies."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[str, bytes]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Web

    def do_GET(self) -> None:
        self.server.got.append((self.path, self.rfile.read(int(self.headers.get("Content-Length") or 0))))
        self.send_response(200)
        self.end_headers()

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def calyx(tmp_path: Path, web: Web) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command line on a store, caches and secrets of its own."""
    place = f"127.0.0.1:{web.server_address[1]}"
    environment = os.environ | {
        "CALYX_ORCH_STORE": f"sqlite:///{tmp_path / 'store.sqlite'}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HOOK": f"json://{place}/hook",
        "PING": f"http://{place}/ping",
        "COLUMNS": "220",
    }

    def start(*words: str | Path) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "calyx_orch.cli", "schedule", *map(str, words)]
        made.append(
            subprocess.Popen(
                argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=tmp_path
            )
        )
        return made[-1]

    made: list[subprocess.Popen[str]] = []
    yield start
    for process in made:
        process.kill()
        process.wait()


def said(process: subprocess.Popen[str], status: int = 0) -> str:
    out, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == status, out
    return out


def wait(until: Callable[[], Any]) -> Any:
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        if found := until():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")


def test_a_schedule_runs_tells_and_reports_a_changed_inventory(
    tmp_path: Path, web: Web, calyx: Callable[..., subprocess.Popen[str]]
) -> None:
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
    assert "nightly: finished. Nothing changed; 2 of 2 guests measured." in said(calyx("run-now", "nightly"))
    assert [path for path, _ in web.got] == ["/ping"]  # quiet: nobody hears of a night on which nothing changed
    fleet.write_text(fleet.read_text().replace("good2: {}", "good3: {}"))
    said(calyx("run-now", "nightly"))
    (message,) = [json.loads(body) for path, body in web.got if path == "/hook"]
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
    tmp_path: Path, web: Web, calyx: Callable[..., subprocess.Popen[str]]
) -> None:
    """A-107: tried again as often as wanted, told, and seen by a monitor."""
    fleet = two_guests(tmp_path)
    said(
        calyx("add", "nightly", fleet, "--cron", "30 2 * * *", "--notify", "env:HOOK", "--ping", "env:PING", "--quiet")
    )
    (tmp_path / "data").rmdir()
    said(calyx("run-now", "nightly"), status=3)
    ((path, body),) = web.got
    assert path == "/hook"
    assert json.loads(body)["title"] == "calyx-orch nightly: the run failed"
    assert "the last firing was failed" in said(calyx("list", "--check"), status=1)


@pytest.mark.timeout(250)
def test_a_daemon_that_is_killed_in_a_run_leaves_no_run_and_the_next_one_marks_it(
    tmp_path: Path, web: Web, calyx: Callable[..., subprocess.Popen[str]]
) -> None:
    """The run ends with its daemon, and cleans its guests; another daemon tells."""
    fleet = two_guests(tmp_path)
    fleet.write_text(fleet.read_text().replace("runtime: 0.5s", "runtime: 60s"))
    said(calyx("add", "often", fleet, "--cron", "* * * * * *", "--notify", "env:HOOK", "--runs", tmp_path / "runs"))
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
    told = [json.loads(body)["message"] for _, body in web.got]
    assert sum("ended in the middle" in text for text in told) == 1
    assert all("in the way: the run of schedule often" in text for text in told if "ended in the middle" not in text)
