"""A display that breaks takes no measurement with it: closed pipes, full devices, no Unicode, a terminal that hangs up."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from calyx_orch.store import archive
from fleet.local_guests import two_guests

WITHIN_S = 60
pytestmark = [pytest.mark.fleet]
COMMAND = (sys.executable, "-m", "calyx_orch.cli", "run")


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    return two_guests(tmp_path)


def run(inventory: Path, *words: str, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The real command; `shell` comes after it, and the exit code is the command's own."""
    out = inventory.parent / "run"
    line = [
        "bash",
        "-c",
        f'"$@" {shell}; exit ${{PIPESTATUS[0]}}',
        "run",
        *COMMAND,
        str(inventory),
        "--out",
        str(out),
        *words,
    ]
    return subprocess.run(
        line, check=False, capture_output=True, text=True, timeout=WITHIN_S, env={**os.environ, **environment}
    )


def check_whole(inventory: Path) -> None:
    """Both guests were measured, and the report is there."""
    record = archive.read(inventory.parent / "run")
    assert record.status == "finished"
    assert [outcome.state for outcome in record.outcomes] == ["measured", "measured"]
    assert (inventory.parent / "run" / "report.html").is_file()


def test_a_reader_that_leaves_early_loses_only_what_it_does_not_read(inventory: Path) -> None:
    """`| head -1`: the run goes on to its end with exit code 0, and nobody complains."""
    done = run(inventory, shell="| head -1")
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")
    check_whole(inventory)


def test_a_full_device_as_standard_output_loses_the_display_only(inventory: Path) -> None:
    done = run(inventory, shell="> /dev/full")
    assert (done.returncode, done.stderr) == (0, "")
    check_whole(inventory)


def test_json_that_is_not_taken_is_told(inventory: Path) -> None:
    """What a program waits for is never lost in silence: exit code 4, and how it is had again."""
    done = run(inventory, "--json", shell="> /dev/full")
    assert done.returncode == 4
    assert "standard output did not take the JSON" in done.stderr
    assert "Traceback" not in done.stderr
    check_whole(inventory)


DOCUMENTS = (
    "schema",
    "run INVENTORY --dry-run --json",
    "report RUN --json",
    "bench DATA --json --allow-ram --size 1m --rw read --runtime 0.1s --ramp-time 0",
)


@pytest.fixture
def words(request: pytest.FixtureRequest, inventory: Path) -> list[str]:
    """A command line whose standard output is a document."""
    command = str(request.param)
    if "RUN" in command.split():
        assert run(inventory).returncode == 0
    places = {"INVENTORY": inventory, "RUN": inventory.parent / "run", "DATA": inventory.parent / "data"}
    return [str(places.get(word, word)) for word in command.split()]


@pytest.mark.parametrize("words", [*DOCUMENTS, "--version", "--help"], indirect=True)
def test_a_document_that_is_not_taken_is_one_sentence_and_exit_code_4(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND[:-1], *words], check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=WITHIN_S
        )
    assert done.returncode == 4
    assert re.fullmatch(r"calyx-orch: standard output did not take .*No space left on device.*\n", done.stderr), (
        done.stderr
    )


@pytest.mark.parametrize("words", [*DOCUMENTS, "--version", "--help"], indirect=True)
def test_a_reader_of_a_document_may_leave(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND[:-1], *words], check=False, stdout=write, stderr=subprocess.PIPE, text=True, timeout=WITHIN_S
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_standard_output_at_all_is_no_trouble(inventory: Path) -> None:
    done = run(inventory, shell=">&- 2>&-")
    assert done.returncode == 0
    check_whole(inventory)


@pytest.mark.parametrize("kind", ["terminal", pytest.param("pipe", marks=pytest.mark.slow)])
def test_a_display_that_takes_nothing_holds_up_no_run(
    kind: str, inventory: Path, request: pytest.FixtureRequest
) -> None:
    """Ctrl-S on the terminal, or a reader that reads nothing, from the first round on: the run ends all the same.

    What was to be shown comes when the display goes on: all phases in their order, then the sentence.
    """
    out = inventory.parent / "run"
    text = inventory.read_text().replace("repetitions: 1", "repetitions: 3").replace("runtime: 0.5s", "runtime: 1.5s")
    inventory.write_text(text)
    ours, theirs = pty.openpty() if kind == "terminal" else os.pipe()
    if kind == "terminal":
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    else:
        fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
        os.write(theirs, b"x" * 4096)  # full from the start
    process = subprocess.Popen(
        [*COMMAND, str(inventory), "--out", str(out)], stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    request.addfinalizer(process.kill)
    os.close(theirs)
    said = b""
    if kind == "terminal":
        while b"round 1 of" not in said:
            said += os.read(ours, 1 << 16)
        os.write(ours, b"\x13")
    deadline = time.monotonic() + WITHIN_S
    while not (out / "run.json").exists() or archive.read(out).status != "finished":
        assert time.monotonic() < deadline, "the run waits for its display"
        time.sleep(0.1)
    assert process.poll() is None, "it has not shown its end yet"
    if kind == "terminal":
        os.write(ours, b"\x11")
    told = [said]
    reader = threading.Thread(target=_read_all, args=(ours, told), daemon=True)
    reader.start()
    assert process.wait(WITHIN_S) == 0
    reader.join(10)
    os.close(ours)
    shown = b"".join(told).decode(errors="replace")
    phases = re.findall(r"round (\d) of 3: block [^\n]*\(2 guests\)", shown)
    assert phases == ["1", "2", "3"]
    assert shown.index("round 3 of 3") < shown.rindex("report:")
    check_whole(inventory)


def _read_all(descriptor: int, told: list[bytes]) -> None:
    try:
        while data := os.read(descriptor, 1 << 16):
            told.append(data)
    except OSError:  # the terminal's other side is gone
        return


def test_a_terminal_without_unicode_gets_likenesses(inventory: Path) -> None:
    """In ASCII microseconds are `us`, and the run ends with exit code 0."""
    done = run(inventory, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert " us" in done.stdout
    check_whole(inventory)


async def test_a_terminal_that_hangs_up_interrupts_in_good_order(inventory: Path) -> None:
    """SIGHUP is heard as SIGTERM is: guests are cleaned and the folder says interrupted. Exit code 129."""
    status, folder = await _hung_up(inventory, *COMMAND)
    assert status == 128 + signal.SIGHUP
    record = archive.read(folder)
    assert record.status == "interrupted"
    assert "running" not in (folder / "run.json").read_text()
    events = [json.loads(line)["event"] for line in (folder / "journal.jsonl").read_text().splitlines()]
    assert events.count("cleaned") == 2


async def test_what_is_told_to_ignore_a_hang_up_does(inventory: Path) -> None:
    """Under nohup the run goes on."""
    status, _ = await _hung_up(inventory, "nohup", *COMMAND)
    assert status == 0
    check_whole(inventory)


async def _hung_up(inventory: Path, *command: str) -> tuple[int, Path]:
    """Start a run, send SIGHUP once a round has begun, and wait for its end."""
    folder = inventory.parent / "run"
    process = await asyncio.create_subprocess_exec(
        *command, str(inventory), "--out", str(folder), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    async with asyncio.timeout(WITHIN_S):
        while b"round 1 of" not in (line := await process.stdout.readline()):
            assert line, "it ended before its first round"
        process.send_signal(signal.SIGHUP)
        await process.stdout.read()
        return await process.wait(), folder
