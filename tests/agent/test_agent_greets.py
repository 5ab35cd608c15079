"""Hello, clock, facts, and what the agent refuses without harm."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_process import AgentProcess, files_below


def test_hello_says_who_it_is_without_being_asked(agent: AgentProcess, agent_path: Path) -> None:
    hello = agent.hello
    assert (hello["protocol"], hello["arch"]) == (1, platform.machine())
    assert hello["sha256"] == hashlib.sha256(agent_path.read_bytes()).hexdigest()
    assert hello["path"] == str(agent_path)
    work = Path(hello["work"])
    assert work.parent == agent_path.parent
    assert work.stat().st_mode & 0o777 == 0o700


def test_version_names_agent_and_protocol(agent_path: Path) -> None:
    answer = subprocess.run([agent_path, "--version"], capture_output=True, text=True, check=True).stdout
    assert answer.startswith("calyx-agent 0.")
    assert answer.endswith("protocol 1\n")


def test_any_other_argument_is_refused_with_the_usage(agent_path: Path) -> None:
    answer = subprocess.run([agent_path, "serve"], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "usage:" in answer.stderr


def test_bye_removes_the_work_directory_and_exits_0(agent: AgentProcess, agent_path: Path) -> None:
    agent.send("bye")
    assert agent.end() == 0
    assert files_below(agent_path.parent) == [agent_path.name]


def test_clock_is_the_monotonic_clock(agent: AgentProcess) -> None:
    before_ns = time.monotonic_ns()
    answer = agent.ask("clock", "clock", n=7)
    assert answer["n"] == 7
    assert before_ns < answer["now_ns"] < time.monotonic_ns()


def test_facts_name_the_system_the_path_and_the_program(agent: AgentProcess, target: Path) -> None:
    missing = target / "missing"
    facts = agent.ask("facts", "facts", ("path", target), ("path", missing), program="sh")
    assert facts["kernel"] == platform.release()
    assert facts["cpus"] == len(os.sched_getaffinity(0))
    assert facts["uid"] == os.geteuid()
    assert facts["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts["hypervisor"] in ("hyperv", "kvm", "vmware", "xen", "qemu", "none", "container", "unknown")
    here, there = facts["paths"]
    space = os.statvfs(target)
    assert (here["exists"], here["is_dir"], here["writable"], here["why"]) == (True, True, True, "")
    assert here["total_bytes"] == space.f_blocks * space.f_frsize
    assert (there["exists"], there["writable"], there["why"]) == (False, False, "No such file or directory")
    assert [program["name"] for program in facts["programs"]] == ["sh"]
    assert os.access(facts["programs"][0]["path"], os.X_OK)


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm here")
def test_facts_call_a_tmpfs_ram(agent: AgentProcess) -> None:
    """A direct open does not fail there on new kernels, so the type of the file system has to tell."""
    place = agent.ask("facts", "facts", path="/dev/shm")["paths"][0]
    assert (place["fs_type"], place["is_ram"], place["device"]) == ("tmpfs", True, None)


def test_a_program_is_found_outside_of_path(start: Callable[..., AgentProcess], tmp_path: Path) -> None:
    """A session that is not interactive often has a short PATH (case 064)."""
    odd = tmp_path / "opt"
    odd.mkdir()
    program = odd / "odd-program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    agent = start(env={"PATH": "/nowhere", "HOME": "/nonexistent"})
    facts = agent.ask("facts", "facts", ("program", "odd-program"), ("program", "sh"), ("program", "none"), dir=odd)
    paths = {found["name"]: found["path"] for found in facts["programs"]}
    assert paths["odd-program"] == str(program)
    assert paths["sh"] in ("/usr/bin/sh", "/bin/sh")
    assert paths["none"] is None
    assert facts["path_env"] == "/nowhere"


def test_a_denied_io_uring_is_a_fact_that_names_eperm(start: Callable[..., AgentProcess]) -> None:
    ring = start(deny="425").ask("facts", "facts")["io_uring"]
    assert (ring["ok"], ring["errno"], ring["setups"]) == (False, 1, [])
    assert "EPERM" in ring["why"]
    assert "Success" not in ring["why"]


MALFORMED = {
    b"frobnicate\n": "unknown verb",
    b"clock n\n": "not of the form",
    b"clock n=%4\n": "percent escape",
    b"clock n=%zz\n": "percent escape",
    b"facts path=a%00b\n": "percent escape",
    b"clock n=-1\n": "no whole number",
    b"clock n=99999999999999999999999\n": "above",
    b"clock m=1\n": "unknown key",
    b"clock n=1 n=2\n": "given twice",
    b"clock\tn=1\n": "control character",
    b" =\n": "begins with a verb",
    b"prepare size=1\n": "needs path=",
    b"prepare path=relative size=1\n": "needs path=",
    b"run rw=read\n": "needs path=",
    b"run path=/x rw=sideways bs=4096 size=4096 runtime_ns=1\n": "rw=sideways",
    b"exec\n": "needs arg=",
    b"exec hold=1 arg=true\n": "runtime_ns=",
    b"arm start_ns=1\n": "nothing is ready",
    b"exec arg=/no/such/program\n": "No such file or directory",
    b"settle path=/no/such/place\n": "No such file or directory",
}


def test_a_malformed_command_is_refused_with_a_sentence_and_the_agent_lives(agent: AgentProcess) -> None:
    for line, words in MALFORMED.items():
        agent.send_bytes(line)
        refused = agent.until("refused")
        assert words in refused["why"], (line, refused)
    assert agent.now_ns() > 0


def test_an_overlong_line_is_refused_once_and_skipped(agent: AgentProcess) -> None:
    agent.send_bytes(b"facts path=" + b"a" * 200_000 + b"\n")
    assert "more than 65536 bytes" in agent.until("refused")["why"]
    assert agent.now_ns() > 0
    assert [message["type"] for message in agent.messages].count("refused") == 1


def test_stop_with_nothing_running_is_answered(agent: AgentProcess) -> None:
    assert agent.ask("stop", "stopped") == {"type": "stopped"}


def test_a_second_command_is_refused_while_one_is_worked_on(agent: AgentProcess) -> None:
    agent.send("lost", spin_ms=300)
    agent.send("clean")
    assert agent.until("refused")["why"] == "busy with 'lost'"
    lost = agent.until("lost")
    assert lost["spin_ns"] >= 300_000_000
    assert 0 <= lost["gap_max_ns"] <= lost["lost_ns"] <= lost["spin_ns"]


def test_a_stop_ends_the_spin_of_lost(agent: AgentProcess) -> None:
    agent.send("lost", spin_ms=60_000)
    agent.send("stop")
    assert agent.until("lost", timeout_s=3)["spin_ns"] < 3_000_000_000


def test_exec_tells_output_and_status(agent: AgentProcess) -> None:
    script = "echo out; printf 'caf\\351' >&2; exit 3"
    exited = agent.ask("exec", "exited", ("arg", "sh"), ("arg", "-c"), ("arg", script))
    assert (exited["status"], exited["signal"], exited["timed_out"]) == (3, None, False)
    assert agent.documents == {"stdout": "out\n", "stderr": "caf\xe9"}


def test_long_output_comes_whole(agent: AgentProcess) -> None:
    script = 'i=0; while [ $i -lt 20000 ]; do echo "line $i é \\"quoted\\""; i=$((i+1)); done'
    agent.ask("exec", "exited", ("arg", "sh"), ("arg", "-c"), ("arg", script))
    assert agent.documents["stdout"] == "".join(f'line {i} é "quoted"\n' for i in range(20000))


def test_output_beyond_64_mib_is_thrown_away_and_said(agent: AgentProcess) -> None:
    exited = agent.ask("exec", "exited", ("arg", "head"), ("arg", "-c"), ("arg", "70000000"), ("arg", "/dev/zero"))
    assert "64 MiB" in exited["why"]
    assert agent.documents == {"stdout": "", "stderr": ""}


def test_exec_ends_a_program_at_its_timeout(agent: AgentProcess) -> None:
    exited = agent.ask("exec", "exited", ("arg", "sleep"), ("arg", "60"), timeout_ms=100)
    assert (exited["timed_out"], exited["signal"]) == (True, 15)
    assert "TERM" in exited["why"]


def test_exec_waits_for_what_the_program_left_behind(agent: AgentProcess) -> None:
    """A program that puts itself into the background is not over before it is over."""
    began = time.monotonic()
    agent.ask("exec", "exited", ("arg", "sh"), ("arg", "-c"), ("arg", "setsid sleep 0.4 & exit 0"))
    assert time.monotonic() - began >= 0.4


def test_settle_waits_for_an_idle_device_or_its_timeout(agent: AgentProcess, target: Path) -> None:
    """Others may write on this machine, so either end is right; both are bounded."""
    settled = agent.ask("settle", "settled", path=target, timeout_ms=1000)
    assert 200_000_000 <= settled["waited_ns"] < 2_000_000_000
    assert settled["idle"] or settled["waited_ns"] >= 1_000_000_000


REPLACED = """\
import os, shutil, sys
path = sys.argv[1]
begun = os.open(path, os.O_RDONLY)
if sys.argv[2] == "replaced":
    shutil.copy(path, path + ".new")
    os.rename(path + ".new", path)
else:
    os.unlink(path)
os.execve(begun, [path], os.environ)
"""


@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_an_agent_whose_file_another_controller_has_put_there_anew_knows_its_path(
    start: Callable[..., AgentProcess], agent_path: Path, how: str
) -> None:
    """Two guests of one machine, or two controllers, bring the same agent at once: what lies there by then is the same file."""
    agent = start(wrapper=[sys.executable, "-c", f"import sys; sys.argv.insert(2, {how!r})\n{REPLACED}"])
    gone = "" if how == "replaced" else " (deleted)"
    assert agent.hello["path"] == f"{agent_path}{gone}"
