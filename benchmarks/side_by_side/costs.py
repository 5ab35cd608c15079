"""What an engine costs that can be counted instead of sampled: instructions, system calls, bytes.

The agent and fio are run by themselves, under valgrind or strace, with the very command of a round but for fio's gate. Each
is run twice, for two lengths: the difference has no start-up in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calyx_agent.protocol import Decoder, encode
from calyx_orch import engines
from calyx_orch.model import LoadMode, Round, Workload
from side_by_side.guest import Side

LEAD_NS = 1_000_000_000
ENDED_WITHIN_S = 60.0


class CostError(Exception):
    """Why a cost could not be counted, as a sentence."""


@dataclass(frozen=True)
class Counted:
    """What was counted in one run, and the I/Os that were done in it."""

    ios: int
    amounts: Mapping[str, float]


def per_io(short: Counted, long: Counted) -> dict[str, float]:
    """What one I/O costs: the difference of two lengths. Raises CostError when the longer one did no more I/O."""
    ios = long.ios - short.ios
    if ios <= 0:
        raise CostError(f"the longer run did {long.ios} I/Os, the shorter one {short.ios}")
    names = {*short.amounts, *long.amounts}
    return {name: (long.amounts.get(name, 0.0) - short.amounts.get(name, 0.0)) / ios for name in sorted(names)}


# --- instructions and system calls -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bench:
    """What is run by itself: the file, the pattern, the programs. `taken` is the set-up that fio is given."""

    path: str
    workload: Workload
    agent: Path
    fio: str
    taken: Mapping[str, Any]
    facts: Mapping[str, Any]


def instructions(bench: Bench, side: Side, runtime_s: float) -> Counted:
    """User instructions of a whole run, by callgrind. Raises CostError without valgrind."""
    if shutil.which("valgrind") is None:
        raise CostError("valgrind is not installed")
    with tempfile.TemporaryDirectory() as directory:
        # The agent forks: each process writes a file of its own.
        out = Path(directory) / "callgrind.out.%p"
        ios = _run(bench, side, runtime_s, ("valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"), directory)
        text = "".join(part.read_text() for part in Path(directory).glob("callgrind.out*"))
    return Counted(ios, {"instructions": parse_callgrind(text)})


def system_calls(bench: Bench, side: Side, runtime_s: float) -> Counted:
    """System calls of a whole run by name, by strace. Raises CostError without strace."""
    if shutil.which("strace") is None:
        raise CostError("strace is not installed")
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "strace.out"
        ios = _run(bench, side, runtime_s, ("strace", "-f", "-qq", "-c", "-o", str(out)), directory)
        return Counted(ios, parse_strace(out.read_text()))


def parse_callgrind(text: str) -> int:
    """The instructions that a callgrind file adds up to. Raises CostError without a sum."""
    found = re.findall(r"^totals: (\d+)", text, re.MULTILINE)
    if not found:
        raise CostError("callgrind wrote no sum")
    return sum(int(each) for each in found)


def parse_strace(text: str) -> dict[str, float]:
    """Calls by name of the table that `strace -c` writes."""
    rows = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?([a-z_]\w*)$", text, re.MULTILINE)
    calls = {name: float(count) for count, name in rows if name != "total"}
    if not calls:
        raise CostError("strace wrote no table")
    return calls


def _run(bench: Bench, side: Side, runtime_s: float, wrapper: Sequence[str], directory: str) -> int:
    """Runs one side by itself below a wrapper; the I/Os it did."""
    workload = replace(bench.workload, ramp_s=0.0, runtime_s=runtime_s, setup=side.setup, refill=side.refill)
    round_ = Round(0, 0, workload, "target", side.engine, LoadMode.TOGETHER, ("here",), seed=1)
    hello = {"path": str(bench.agent), "work": directory}
    command = engines.command(
        round_, paths=(bench.path,), data_seed=1, taken=bench.taken, facts=bench.facts, hello=hello, fio_path=bench.fio
    )
    if side.engine == "calyx":
        with direct_agent(bench.agent, wrapper=wrapper) as agent:
            return int(agent.run(command.pairs)["counts"]["submitted"])
    arguments = [str(value) for key, value in command.pairs if key == "arg"]
    return _fio_ios([each for each in arguments if not each.startswith("--exec_prerun")], wrapper, directory)


def _fio_ios(arguments: Sequence[str], wrapper: Sequence[str], directory: str) -> int:
    done = subprocess.run([*wrapper, *arguments], capture_output=True, text=True, cwd=directory, timeout=600)
    if done.returncode:
        raise CostError(f"fio below {wrapper[0]} ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    document = json.loads(done.stdout[done.stdout.index("{") :])
    return sum(job[way]["total_ios"] for job in document["jobs"] for way in ("read", "write"))


class DirectAgent:
    """The agent as a child of this process, spoken to line by line: for what a wrapper around it counts."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._decoder = Decoder()
        self._waiting: list[Mapping[str, Any]] = []
        self.documents: dict[str, str] = {}
        self.hello: Mapping[str, Any] = {}

    @property
    def pids(self) -> tuple[int, int]:
        """The agent's two processes where no wrapper is around it: the guard, which was started, and the one that serves."""
        return self._process.pid, int(self.hello["pid"])

    def send(self, verb: str, pairs: Sequence[tuple[str, str | int]] = ()) -> None:
        """One line down."""
        assert self._process.stdin is not None
        self._process.stdin.write(encode(verb, pairs))
        self._process.stdin.flush()

    def wait_for(self, kind: str, timeout_s: float = ENDED_WITHIN_S) -> Mapping[str, Any]:
        """The next message of that type. Raises CostError when it is refused, late, or never comes."""
        deadline = time.monotonic() + timeout_s
        while True:
            while self._waiting:
                message = self._waiting.pop(0)
                if message["type"] == "output":
                    self.documents[message["name"]] = message["text"]
                if message["type"] == kind:
                    return message
                if message["type"] == "refused":
                    raise CostError(f"the agent refused: {message.get('why')}")
            self._waiting += self._decoder.feed(self._read(deadline))

    def _read(self, deadline: float) -> bytes:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        data = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
        if not data:
            raise CostError("the agent says nothing" if not ready else "the agent ended")
        return data

    def run(self, pairs: Sequence[tuple[str, str | int]]) -> dict[str, Any]:
        """One whole `run`; the result document."""
        self.begin(pairs)
        return self.end()

    def begin(self, pairs: Sequence[tuple[str, str | int]]) -> Mapping[str, Any]:
        """Make a job ready and arm it; the set-up that took effect."""
        self.send("run", pairs)
        setup = self.wait_for("ready")["setup"]
        self.send("arm", (("start_ns", time.monotonic_ns() + LEAD_NS),))
        self.wait_for("started")
        return dict(setup)

    def end(self) -> dict[str, Any]:
        """Wait for the end of the job that was begun. Raises CostError when it failed."""
        ended = self.wait_for("result", 600.0)
        if ended["status"] != "ok":
            raise CostError(f"the agent's job ended as {ended['status']}: {ended.get('why')}")
        return dict(json.loads(self.documents["result"]))


@contextlib.contextmanager
def direct_agent(agent: Path, *, wrapper: Sequence[str] = ()) -> Iterator[DirectAgent]:
    """The agent, maybe below a wrapper, ended by `bye` afterwards."""
    process = subprocess.Popen(
        [*wrapper, str(agent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    child = DirectAgent(process)
    try:
        child.hello = child.wait_for("hello")
        yield child
        child.send("bye")
        process.wait(ENDED_WITHIN_S)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(ENDED_WITHIN_S)
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()


# --- memory ------------------------------------------------------------------------------------------------------


def resident_bytes(bench: Bench) -> int:
    """What the agent's processes hold in memory while it works, besides the buffers of its I/O; what they share counts twice."""
    workload = replace(bench.workload, ramp_s=0.0, runtime_s=0.5)
    round_ = Round(0, 0, workload, "target", "calyx", LoadMode.TOGETHER, ("here",), seed=1)
    command = engines.command(
        round_, paths=(bench.path,), data_seed=1, taken={}, facts=bench.facts, hello={}, fio_path=None
    )
    with direct_agent(bench.agent) as agent:
        setup = agent.begin(command.pairs)
        states = [Path(f"/proc/{pid}/status").read_text() for pid in agent.pids]
        agent.end()
    found = [re.search(r"^VmRSS:\s+(\d+) kB", state, re.MULTILINE) for state in states]
    held = [int(one[1]) * 1024 for one in found if one is not None]
    if len(held) < len(states):
        raise CostError("the kernel does not say what is resident")
    return sum(held) - int(setup["buffer_bytes"])


def c_library(agent: Path) -> str:
    """`glibc`, or `another`, by the words that glibc leaves in a static executable."""
    return "glibc" if b"GNU C Library" in agent.read_bytes() or b"glibc" in agent.read_bytes() else "another"
