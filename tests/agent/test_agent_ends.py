"""However the agent's life ends, it leaves no file and no process."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_process import AgentProcess, files_below, is_gone
from test_agent_holds_fio import SIZE, fio_command, needs_fio, script, waiter
from test_agent_runs import MS, prepare, ready

SOON_S = 2.0  # "within about a second", with room for a busy machine

Ending = Callable[[AgentProcess], None]


def hang_up(agent: AgentProcess) -> None:
    agent.close_stdin()


def terminate(agent: AgentProcess) -> None:
    agent.process.send_signal(signal.SIGTERM)


def kill_agent_behind_its_guard(agent: AgentProcess) -> None:
    os.kill(agent.hello["pid"], signal.SIGKILL)


def kill_guard(agent: AgentProcess) -> None:
    agent.process.kill()


ENDINGS = [hang_up, terminate, kill_agent_behind_its_guard, kill_guard]
every_ending = pytest.mark.parametrize("ending", ENDINGS)


def assert_leaves_nothing(
    agent: AgentProcess, ending: Ending, agent_path: Path, target: Path, *, within_s: float = SOON_S
) -> None:
    pids = agent.pids()
    began = time.monotonic()
    ending(agent)
    agent.end()
    while not all(map(is_gone, pids)) and time.monotonic() < began + within_s:
        time.sleep(0.005)
    assert [pid for pid in pids if not is_gone(pid)] == []
    assert time.monotonic() - began < within_s
    assert files_below(target) == []
    assert files_below(agent_path.parent) == [agent_path.name]


@every_ending
def test_in_the_middle_of_a_layout(agent: AgentProcess, agent_path: Path, target: Path, ending: Ending) -> None:
    agent.send("prepare", path=target, size=64 << 20, files=2, max_bytes_per_s=16 << 20)
    while not list(target.rglob("job.0")):
        time.sleep(0.005)
    assert_leaves_nothing(agent, ending, agent_path, target)


@every_ending
def test_in_the_middle_of_a_run(agent: AgentProcess, agent_path: Path, target: Path, ending: Ending) -> None:
    ready(agent, prepare(agent, target), runtime_ns=60_000 * MS)
    agent.arm(20 * MS)
    agent.until("started")
    assert_leaves_nothing(agent, ending, agent_path, target)


@needs_fio
@pytest.mark.parametrize("way", ["--thread", "--group_reporting"], ids=["threads", "processes"])
@every_ending
def test_in_the_middle_of_fio(agent: AgentProcess, agent_path: Path, target: Path, ending: Ending, way: str) -> None:
    """Workers of fio have sessions of their own, so that its process group does not reach them."""
    command = fio_command(agent, target, way, "--runtime=60")
    agent.send("exec", ("hold", 2), *command, ramp_ns=0, runtime_ns=60_000 * MS)
    agent.until("ready")
    agent.arm(50 * MS)
    agent.until("started")
    assert_leaves_nothing(agent, ending, agent_path, target)


@needs_fio
@every_ending
def test_with_fio_at_the_gate(agent: AgentProcess, agent_path: Path, target: Path, ending: Ending) -> None:
    agent.send("exec", ("hold", 2), *fio_command(agent, target, "--thread"), runtime_ns=100 * MS)
    agent.until("ready")
    assert_leaves_nothing(agent, ending, agent_path, target)


def test_with_a_program_that_ignores_term(agent: AgentProcess, agent_path: Path, target: Path) -> None:
    text = f"trap '' TERM HUP; sh -c \"{waiter(agent)}\"; while :; do sleep 1; done"
    agent.send("exec", ("hold", 1), *script(text), runtime_ns=60_000 * MS)
    agent.until("ready")
    agent.arm(20 * MS)
    agent.until("started")
    assert_leaves_nothing(agent, hang_up, agent_path, target)


def test_when_the_lease_runs_out(agent: AgentProcess, agent_path: Path, target: Path) -> None:
    """A half-dead network sends no end of stdin. Each word puts the end off, the last one by the whole lease."""
    prepare(agent, target)
    agent.send("lease", ms=1000)
    began = time.monotonic()
    for _ in range(4):
        time.sleep(0.3)
        last = time.monotonic()
        agent.send("alive")
    assert agent.end(5) == 0
    ended = time.monotonic()
    assert last - began >= 1.0, "beyond the first lease"
    assert 0.99 <= ended - last < 1.0 + 0.6
    assert files_below(target) == []
    assert files_below(agent_path.parent) == [agent_path.name]


def stop_agent(agent: AgentProcess) -> None:
    """SIGSTOP: it neither hears its controller nor sees its lease end; only the guard can."""
    os.kill(agent.hello["pid"], signal.SIGSTOP)


def stop_guard_then_hang_up(agent: AgentProcess) -> None:
    agent.process.send_signal(signal.SIGSTOP)
    agent.close_stdin()


def laying_out(agent: AgentProcess, target: Path) -> None:
    agent.send("prepare", path=target, size=64 << 20, files=2, max_bytes_per_s=16 << 20)
    while not list(target.rglob("job.0")):
        time.sleep(0.005)


def armed(agent: AgentProcess, target: Path) -> None:
    ready(agent, prepare(agent, target), runtime_ns=60_000 * MS)
    agent.arm(30_000 * MS)


def running(agent: AgentProcess, target: Path) -> None:
    ready(agent, prepare(agent, target), runtime_ns=60_000 * MS)
    agent.arm(20 * MS)
    agent.until("started")


def running_fio(agent: AgentProcess, target: Path) -> None:
    command = fio_command(agent, target, "--group_reporting", "--runtime=60")
    agent.send("exec", ("hold", 2), *command, ramp_ns=0, runtime_ns=60_000 * MS)
    agent.until("ready")
    agent.arm(50 * MS)
    agent.until("started")


def collecting(agent: AgentProcess, target: Path) -> None:
    """The I/O is over, and of 48 MiB of answers nobody reads more than a pipe holds."""
    prepare(agent, target)
    agent.send("exec", *script("head -c 50331648 /dev/zero | tr '\\0' x"))
    time.sleep(0.5)


PHASES = [laying_out, armed, running, pytest.param(running_fio, marks=needs_fio), collecting]
STILL_S = 5.0  # 300 ms of lease and 2 s of grace, in half seconds of the guard, on a busy machine


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("ending", [stop_agent, kill_agent_behind_its_guard, kill_guard, stop_guard_then_hang_up])
def test_whatever_is_killed_or_stopped_in_any_phase(
    agent: AgentProcess, agent_path: Path, target: Path, ending: Ending, phase: Callable[[AgentProcess, Path], None]
) -> None:
    phase(agent, target)
    agent.send("lease", ms=300 if ending is stop_agent else 60_000)
    time.sleep(0.05)  # the lease has been heard
    assert_leaves_nothing(agent, ending, agent_path, target, within_s=STILL_S if ending is stop_agent else SOON_S)


def test_fio_that_was_stopped_ends_with_its_lease(agent: AgentProcess, agent_path: Path, target: Path) -> None:
    running_fio(agent, target)
    for pid in agent.pids()[2:]:
        os.kill(pid, signal.SIGSTOP)
    agent.send("lease", ms=300)
    assert_leaves_nothing(agent, lambda _: None, agent_path, target, within_s=STILL_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_with_128_and_its_number(agent: AgentProcess, number: signal.Signals) -> None:
    agent.process.send_signal(number)
    assert agent.end(5) == 128 + number


def test_a_closed_stdout_is_an_end(agent: AgentProcess, agent_path: Path, target: Path) -> None:
    ready(agent, prepare(agent, target), runtime_ns=60_000 * MS)
    agent.arm(20 * MS)
    agent.until("started")

    def close_stdout(agent: AgentProcess) -> None:
        assert agent.process.stdout is not None
        agent.process.stdout.close()

    assert_leaves_nothing(agent, close_stdout, agent_path, target)


def test_a_reader_that_stops_reading_holds_up_neither_the_io_nor_the_end(
    agent: AgentProcess, agent_path: Path, target: Path
) -> None:
    ready(agent, prepare(agent, target), runtime_ns=60_000 * MS)
    agent.arm(20 * MS)
    agent.until("started")
    for n in range(4000):  # more answers than a pipe holds
        agent.send("clock", n=n)
    io = Path(f"/proc/{agent.hello['pid']}/io")

    def moved() -> int:
        return sum(int(line.split()[1]) for line in io.read_text().splitlines() if line.startswith(("read_b", "syscr")))

    before = moved()
    time.sleep(0.1)
    on_a_disk = before > SIZE // 64
    assert moved() > before or not on_a_disk
    assert_leaves_nothing(agent, hang_up, agent_path, target)


def test_what_was_unread_is_still_there_after_the_end(agent: AgentProcess) -> None:
    agent.send("clock", n=5)
    agent.send("bye")
    assert agent.end(5) == 0
    assert agent.until("clock")["n"] == 5


@needs_fio
def test_a_layout_on_another_agent_is_left_alone(start: Callable[..., AgentProcess], target: Path) -> None:
    """Two controllers may use one guest: each agent removes its own only."""
    one, other = start(), start()
    prepare(one, target)
    kept = prepare(other, target)
    one.send("bye")
    assert one.end(5) == 0
    assert [Path(path).exists() for path in kept] == [True]
    assert other.ask("clean", "cleaned")["failed"] == []


def test_a_waiter_without_its_agent_gives_up(agent_path: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.write_bytes(b"\0" * 64)
    answer = subprocess.run([agent_path, "wait", f"gate={gate}"], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (2, f"calyx-agent: {gate} is no gate\n")
