"""`calyx-orch bench`: the engine in this process gives what a guest's agent gives, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calyx_orch import runner
from calyx_orch.commands import bench as command
from calyx_orch.errors import RefusedError, UsageError
from calyx_orch.report.live import Silent
from calyx_orch.runner import bench
from calyx_orch.store import archive

WORDS = {
    "rw": ("randrw",),
    "bs": ("4k",),
    "iodepth": ("4",),
    "size": ("16m",),
    "runtime": ("400ms",),
    "ramp_time": ("100ms",),
}


@pytest.fixture
def target(tmp_path: Path, built_agent: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to measure, with the agent of these tests and a HOME of its own beside the process."""
    monkeypatch.setenv("CALYX_AGENT_BIN", str(built_agent))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def options(**words: tuple[str, ...]) -> command.BenchOptions:
    return command.BenchOptions(words=WORDS | words, allow_ram=True, seed=7)


def run(target: Path, **words: tuple[str, ...]) -> bench.Benched:
    looks: list[bench.Look] = []

    async def go() -> bench.Benched:
        plan = command.plan_of(target, options(**words))
        return await bench.bench(plan, interrupted=asyncio.Event(), phase=lambda _: None, look=looks.append)

    found = asyncio.run(go())
    assert looks
    assert all(0.0 <= look.share <= 1.0 for look in looks)
    return found


def keys_of(value: Any, path: str = "") -> set[str]:
    """Every key of a document, without the items of lists."""
    if not isinstance(value, dict):
        return set()
    return {path + key for key in value}.union(*(keys_of(below, f"{path}{key}.") for key, below in value.items()))


def test_the_document_is_that_of_a_guest(target: Path, tmp_path: Path) -> None:
    """The same plan by the agent on this machine: the same keys in the document, the same fields filled in the measurement."""
    (done,) = run(target).done
    plan = command.plan_of(target, options())
    plan = replace(plan, inventory=replace(plan.inventory, lost_time_probe_s=0.0))
    folder = archive.RunFolder.create(tmp_path / "runs", plan)
    asyncio.run(runner.run(plan, folder=folder, live=Silent(), interrupted=asyncio.Event()))
    folder.close()
    (theirs,) = archive.read(folder.path).measurements
    (raw,) = folder.path.glob("raw/*/*/result")
    assert keys_of(dict(done.document)) == keys_of(json.loads(raw.read_text()))
    ours = done.measurement
    assert (ours.status, theirs.status) == ("ok", "ok")
    for name in ("read", "write", "series", "cpu", "skew_ns", "setup", "counts", "clock"):
        assert (getattr(ours, name) is None) == (getattr(theirs, name) is None), name
    assert ours.setup.keys() == theirs.setup.keys()
    assert ours.window_ns == theirs.window_ns == 400_000_000


def test_cpu_is_that_of_the_engine_over_the_window(target: Path) -> None:
    """More than nothing, and no more than one thread can use."""
    (done,) = run(target).done
    cpu = done.measurement.cpu
    assert cpu is not None
    assert cpu.engine_ns is not None
    assert 0 < cpu.engine_ns <= 1.1 * cpu.window_ns


def test_nothing_is_left_behind(target: Path) -> None:
    run(target)
    assert list(target.iterdir()) == []


def test_json_holds_rows_documents_and_facts(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Strict JSON, a workload for each value of an option given twice."""
    chosen = replace(options(iodepth=("1", "2")), as_json=True)
    assert command.show(target, chosen) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["format"], document["status"], document["seed"]) == (command.FORMAT, "finished", 7)
    assert [one["workload"]["iodepth"] for one in document["workloads"]] == [1, 2]
    assert all(one["row"]["iops"] > 0 and one["result"]["engine"] == "calyx" for one in document["workloads"])
    assert document["facts"]["kernel"]


def test_the_table_labels_what_is_short(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.show(target, options()) == 0
    shown = capsys.readouterr().out
    assert ", short" in shown
    assert "randrw-4k" in shown
    assert "set-up: " in shown


def test_an_interrupt_stops_the_engine_and_removes_the_files(target: Path) -> None:
    """Ctrl-C in the middle of a minute: over at once, exit 130, no file is left."""
    argv = [
        sys.executable,
        "-m",
        "calyx_orch.cli",
        "bench",
        str(target),
        "--rw",
        "randread",
        "--size",
        "16m",
        "--runtime",
        "60s",
        "--allow-ram",
    ]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": ":".join(sys.path)}
    ) as process:
        try:
            deadline = time.monotonic() + 30
            while not list(target.glob("*/job.0")):
                assert time.monotonic() < deadline, "nothing was laid out"
                time.sleep(0.05)
            time.sleep(1.0)  # well into it
            process.send_signal(signal.SIGINT)
            told, _ = process.communicate(timeout=30)
        finally:
            process.kill()  # one that heard no interrupt; else it has ended
        assert process.returncode == 130
    assert told.decode().rstrip().endswith("Interrupted: 0 of 1 round measured.")
    assert list(target.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"bs": ("3",)}, "^calyx-orch bench: --bs: '3' is no multiple of 512"),
        ({"rw": ("up",)}, "^calyx-orch bench: --rw must be one of read, "),
        ({"ramp_time": ("up",)}, "^calyx-orch bench: --ramp-time: 'up' is no duration"),
        ({"fsync": ("up",)}, "^calyx-orch bench: --option fsync: 'up' is no whole number"),
        ({"nonsense": ("1",)}, "unknown key 'nonsense'"),
        ({"find": ("iops_at p99<1ms",)}, "calyx-orch run"),
        ({"size": ("4k",), "iodepth": ("64",)}, "every I/O in flight needs a place"),
    ],
)
def test_what_cannot_be_used_is_told_in_the_words_of_the_command_line(
    target: Path, words: dict[str, tuple[str, ...]], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        command.plan_of(target, options(**words))


@pytest.mark.parametrize(
    ("name", "told"),
    [("nothing", "nothing does not exist: name a directory"), ("file", "file is no directory: name a directory")],
)
def test_what_is_no_directory_is_told(target: Path, name: str, told: str) -> None:
    (target / "file").touch()
    with pytest.raises(UsageError, match=told):
        command.plan_of(target / name, command.BenchOptions())


def test_a_raw_device_is_told_what_measures_it(target: Path) -> None:
    """Advice that can be followed here: bench takes no mapping."""
    nodes = [node for node in Path("/dev").iterdir() if node.is_block_device()]
    if not nodes:
        pytest.skip("this machine has no block device below /dev")
    with pytest.raises(UsageError, match="is a raw device, and bench makes files in a directory"):
        command.plan_of(nodes[0], command.BenchOptions())


def test_a_directory_below_dev_is_one(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is what it is on this machine, not what its path looks like; as memory it has to be meant."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        with pytest.raises(
            RefusedError, match=f"^{memory} is RAM .*, not a disk: choose another path, or pass --allow-ram$"
        ):
            command.show(Path(memory), replace(options(), allow_ram=False))
        assert command.show(Path(memory), options()) == 0
        assert list(Path(memory).iterdir()) == []
    assert "target target" not in capsys.readouterr().out
    (layout,) = command.plan_of(Path("/dev/shm"), options()).layouts
    assert layout.path == "/dev/shm"


def test_a_disk_without_room_is_told_without_the_name_of_a_target(target: Path) -> None:
    with pytest.raises(RefusedError, match=f"^no space left on {target} "):
        command.show(target, options(size=("900t",)))
    assert RefusedError.exit_code == 2, "as docs/bench.md says"


def test_without_a_word_it_is_the_four_corners(target: Path) -> None:
    plan = command.plan_of(target, command.BenchOptions())
    assert [round_.workload.name for round_ in plan.rounds] == [
        "randread-4k",
        "randwrite-4k",
        "seqread-1m",
        "seqwrite-1m",
    ]
    assert all(round_.workload.is_short and round_.engine == "calyx" for round_ in plan.rounds)
