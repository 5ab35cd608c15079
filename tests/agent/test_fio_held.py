"""Both engines on one real agent: the same files, start line and window, and fio's own percentiles are ours."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from agent_process import AgentProcess

from calyx_orch import engines
from calyx_orch.analysis import histogram
from calyx_orch.engines.fio_documents import FioOutput, read_output
from calyx_orch.model import Answers, ClockBound, Connection, Guest, LoadMode, Measurement, Round, Rw, Workload

FIO = shutil.which("fio")
pytestmark = pytest.mark.skipif(FIO is None, reason="fio is not installed here")

GUEST = Guest("vm1", Connection("vm1"), ())
SIZE = 8 << 20
MIXED = Workload("mixed", Rw.RANDRW, 4096, 4, 2, SIZE, runtime_s=1.0, ramp_s=0.4, rwmixread=70)
AHEAD_NS = 500_000_000


def lay_out(agent: AgentProcess, directory: Path, files: int, size: int = SIZE) -> tuple[str, ...]:
    made = agent.ask("prepare", "prepared", path=str(directory), size=size, files=files, seed=7)
    return tuple(str(file["path"]) for file in made["files"])


def play(
    agent: AgentProcess, round_: Round, paths: tuple[str, ...], taken: Mapping[str, Any]
) -> tuple[Answers, Measurement]:
    """One round as the controller plays it, on the agent's own clock."""
    facts = agent.ask("facts", "facts", path=str(Path(paths[0]).parent), program="fio")
    command = engines.command(
        round_, paths=paths, data_seed=9, taken=taken, facts=facts, hello=agent.hello, fio_path=FIO
    )
    agent.documents.clear()
    before = len(agent.messages)
    agent.send(command.verb, *command.pairs)
    assert agent.until("ready", "exited")["type"] == "ready", agent.documents
    start_ns = agent.arm(AHEAD_NS)
    agent.until("result", "exited")
    messages = {message["type"]: message for message in agent.messages[before:]}
    answers = Answers(messages, dict(agent.documents), ClockBound(0, 0), start_ns)
    return answers, engines.measure(round_, GUEST, answers)


def load(agent: AgentProcess, paths: tuple[str, ...]) -> None:
    """Tell the agent to bring one job of fio to the gate."""
    one = round_of("fio-libaio", replace(MIXED, numjobs=1))
    command = engines.command(one, paths=paths, data_seed=1, taken={}, facts={}, hello=agent.hello, fio_path=FIO)
    agent.send(command.verb, *command.pairs)


def round_of(engine: str, workload: Workload) -> Round:
    return Round(0, 0, workload, "data", engine, LoadMode.TOGETHER, ("vm1",), seed=11)


def printed_by(answers: Answers) -> FioOutput:
    return read_output(answers.documents["stdout"], answers.documents["stderr"])


@pytest.mark.parametrize("engine", ["fio-io_uring", "fio-libaio"])
def test_fio_is_held_to_the_start_line_and_measures_the_same_window_as_calyx(
    agent: AgentProcess, target: Path, engine: str
) -> None:
    """Two jobs of a mixed workload by each engine on the same two files."""
    paths = lay_out(agent, target, 2)
    told, ours = play(agent, round_of("calyx", MIXED), paths, {})
    if ours.status == "failed" and "io_uring" in ours.why:
        pytest.skip(f"calyx cannot run here: {ours.why}")
    answers, theirs = play(agent, round_of(engine, MIXED), paths, told.messages["ready"]["setup"])
    assert (ours.why, theirs.why) == ("", "")
    assert (ours.status, theirs.status) == ("ok", "ok")
    assert theirs.skew_ns is not None
    assert theirs.skew_bound_ns is not None
    assert -theirs.skew_bound_ns <= theirs.skew_ns
    assert ours.window_ns == 1_000_000_000
    assert abs(theirs.window_ns - ours.window_ns) <= 30_000_000
    assert theirs.window_start_ns - theirs.start_line_ns == theirs.skew_ns + 400_000_000
    assert theirs.cpu is not None
    assert theirs.cpu.engine_ns
    if engine == "fio-io_uring":
        same = ("fixed_buffers", "fixed_files", "sqpoll")
        assert {name: theirs.setup[name] for name in same} == {name: ours.setup[name] for name in same}
    for found in (ours, theirs):
        assert found.read is not None
        assert found.write is not None
        assert found.read.ios == found.read.latency.count
        assert found.total_bytes == found.total_ios * 4096
        assert found.series is not None
        assert sum(found.series.total_bytes) == pytest.approx(found.total_bytes)
        assert len(found.series.total_ios) == 10
        assert found.latency_kind == "total"
        assert 0.6 < found.read.ios / found.total_ios < 0.8
    assert [job.name for job in printed_by(answers).jobs] == ["job0", "job1"]


def test_every_job_of_many_runs_to_its_end(agent: AgentProcess, target: Path) -> None:
    """Jobs that are let go early run while the others' shells end; fio must not take a SIGCHLD of those for its own end.

    fio's io_uring engine ends a job, with error 0, when a signal interrupts its wait. Three rounds of 48 jobs: with SIGCHLD
    let through, each loses a job or more on two CPUs.
    """
    jobs, size = 48, 1 << 20
    paths = lay_out(agent, target, jobs, size)
    many = Workload("many", Rw.RANDREAD, 4096, 8, jobs, size, runtime_s=0.3, ramp_s=0.1)
    for _ in range(3):
        answers, found = play(agent, round_of("fio-io_uring", many), paths, {})
        if "io_uring" in found.why:
            pytest.skip(f"fio cannot use io_uring here: {found.why}")
        assert [job.name for job in printed_by(answers).jobs if job.runtime_ms < 290] == []
        assert (found.status, found.why) == ("ok", "")


def test_our_percentiles_of_fio_are_those_it_prints(agent: AgentProcess, target: Path) -> None:
    """To the nanosecond, for every percentile of every direction."""
    paths = lay_out(agent, target, 1)
    answers, found = play(agent, round_of("fio-libaio", replace(MIXED, numjobs=1)), paths, {})
    (job,) = printed_by(answers).jobs
    assert job.read is not None
    assert job.write is not None
    for ours, theirs in ((found.read, job.read), (found.write, job.write)):
        assert ours is not None
        assert len(theirs.percentiles) >= 10
        for percent, value in theirs.percentiles:
            assert histogram.percentile(ours.latency, percent) == value


TARGETS = Path(__file__).parent.parent / "golden" / "fio-run" / "A-024" / "target.yaml"
REPORTED = [name.removeprefix("/tmp/cx/") for name in yaml.safe_load(TARGETS.read_text(encoding="utf-8"))["targets"]]


@pytest.mark.parametrize("name", [*REPORTED, "q'uote\"s", "$HOME%`", "semi;colon:#", "back\\slash\\:"])
def test_fio_opens_exactly_the_wanted_file_whatever_its_name_is(agent: AgentProcess, target: Path, name: str) -> None:
    """A-024: nothing else is made, neither beside the target nor where fio runs."""
    directory = target / name
    directory.mkdir(parents=True)
    (path,) = lay_out(agent, directory, 1)
    tree = sorted(str(found) for found in target.rglob("*"))
    before = Path(path).stat().st_mtime_ns
    workload = replace(MIXED, rw=Rw.RANDWRITE, numjobs=1, runtime_s=0.2, ramp_s=0.0)
    answers, found = play(agent, round_of("fio-libaio", workload), (path,), {})
    assert (found.status, found.why) == ("ok", "")
    assert sorted(str(found) for found in target.rglob("*")) == tree
    assert Path(path).stat().st_mtime_ns > before
    assert Path(path).stat().st_size == SIZE
    work = Path(agent.hello["work"])
    known = {"owner", "gate", "calyx_bw", "calyx_iops", "job0"}  # record and gate of the agent, logs and prerun of fio
    assert {entry.name.partition(".")[0] for entry in work.iterdir()} <= known
    assert answers.messages["exited"]["status"] == 0


def test_a_fio_that_is_stopped_before_its_start_is_no_result(agent: AgentProcess, target: Path) -> None:
    """Held at the gate, then let go: no I/O, no figure."""
    paths = lay_out(agent, target, 1)
    load(agent, paths)
    agent.until("ready")
    agent.send("stop")
    exited = agent.until("exited")
    answers = Answers({"exited": exited}, dict(agent.documents), ClockBound(0, 0), 0)
    found = engines.measure(round_of("fio-libaio", MIXED), GUEST, answers)
    assert found.status == "stopped"
    assert found.total_ios == 0


def test_a_missing_file_fails_with_the_reason_of_fio(agent: AgentProcess, target: Path) -> None:
    """Fio may not make it: the answer is a sentence, and no file."""
    path = str(target / "none")
    load(agent, (path,))
    ended = agent.until("exited", "refused")
    answers = Answers({str(ended["type"]): ended}, dict(agent.documents), ClockBound(0, 0), 0)
    found = engines.measure(round_of("fio-libaio", MIXED), GUEST, answers)
    assert found.status == "failed"
    assert found.why
    assert not os.path.lexists(path)
