"""A-107: the disk of the controller is full in a night: it is told clearly, no night is lost, and the next one works."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from calyx_orch.store import archive
from faults.test_disks import fill
from fleet.local_guests import two_guests
from fleet.schedule_verbs import Calyx, said, wait
from fleet.test_run_full_folder import small_disk
from web_server import WebServer

pytestmark = [pytest.mark.fleet]

NIGHTLY = ("--cron", "30 2 * * *", "--notify", "env:HOOK", "--ping", "env:PING", "--quiet")


def grown(mount: Path) -> None:
    """Make room on a tmpfs."""
    subprocess.run(["mount", "-o", "remount,size=64m", str(mount)], check=True)


def test_run_folders_that_fill_their_disk_fail_the_night_by_name_and_the_next_one_works(
    tmp_path: Path, web: WebServer, calyx: Calyx
) -> None:
    """The answers do not fit: what was measured until then is kept."""
    fleet = two_guests(tmp_path, repetitions=2)
    with small_disk(tmp_path / "runs", "64k"):
        said(calyx("add", "nightly", fleet, *NIGHTLY, "--runs", tmp_path / "runs"))
        out = said(calyx("run-now", "nightly"), status=3)
        assert "No space left on device" in out
        assert "Traceback" not in out
        (told,) = map(json.loads, web.to("/hook"))
        assert told["title"] == "calyx-orch nightly: the run failed"
        assert "reason: exit code 4: cannot write " in told["message"]
        assert "No space left on device; what was measured until then is kept" in told["message"]
        assert "the last firing was failed" in said(calyx("list", "--check"), status=1)
        (first,) = [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]
        assert archive.read(first).run_id
        assert list((tmp_path / "data").iterdir()) == []
        grown(tmp_path / "runs")
        assert "nightly: finished. Too few nights to judge yet (1 of 12); 2 of 2 guests measured." in said(
            calyx("run-now", "nightly")
        )
        said(calyx("list", "--check"))
        assert [one.path for one in web.got] == ["/hook", "/ping"]
        history = json.loads(said(calyx("history", "nightly", "--json")))["firings"]
        assert [one["state"] for one in history] == ["finished", "failed"]
        assert archive.read(Path(history[0]["folder"])).status == "finished"


@pytest.mark.slow
def test_a_night_whose_report_does_not_fit_is_judged_all_the_same_and_that_is_told(
    tmp_path: Path, web: WebServer, calyx: Calyx
) -> None:
    fleet = two_guests(tmp_path)
    with small_disk(tmp_path / "runs", "1m"):
        said(calyx("add", "nightly", fleet, *NIGHTLY, "--runs", tmp_path / "runs"))
        out = said(calyx("run-now", "nightly"))
        assert "nightly: finished. Too few nights to judge yet (1 of 12); 2 of 2 guests measured." in out
        (told,) = map(json.loads, web.to("/hook"))
        assert "cannot write the report" in told["title"]
        assert "No space left on device" in told["title"]
        assert "2 of 2 guests measured" in told["message"]
        assert len(web.to("/ping")) == 1
        (row,) = json.loads(said(calyx("history", "nightly", "--json")))["firings"]
        assert row["run_id"] == archive.read(Path(row["folder"])).run_id
        left = [path.name for path in (tmp_path / "runs").rglob(".*") if path.is_file()]
        assert left == []


@pytest.mark.slow
def test_a_night_that_ends_while_the_disk_of_the_store_is_full_has_its_record_once_there_is_room(
    tmp_path: Path, web: WebServer, calyx: Calyx
) -> None:
    fleet = two_guests(tmp_path)
    fleet.write_text(fleet.read_text().replace("runtime: 0.5s", "runtime: 3s"))
    with small_disk(tmp_path / "disk", "2m"):
        where = {"CALYX_ORCH_STORE": f"sqlite:///{tmp_path / 'disk' / 'store.sqlite'}"}
        said(calyx("add", "nightly", fleet, *NIGHTLY, "--runs", tmp_path / "runs", **where))
        night = calyx("run-now", "nightly", **where)
        wait(lambda: list((tmp_path / "data").glob("*/job.0")))
        filler = fill(tmp_path / "disk")

        def log() -> str:
            return "".join(path.read_text() for path in (tmp_path / "runs").glob("*.log"))

        wait(lambda: "database or disk is full" in log())
        filler.unlink()
        assert "nightly: finished. Too few nights to judge yet (1 of 12); 2 of 2 guests measured." in said(night)
        (row,) = json.loads(said(calyx("history", "nightly", "--json", **where)))["firings"]
        assert (row["state"], row["run_id"]) == ("finished", archive.read(Path(row["folder"])).run_id)
        assert [one.path for one in web.got] == ["/ping"]
