"""A fio job file becomes workloads; whatever has no equal here is named by its line, all at once."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calyx_orch import cli, plan
from calyx_orch.commands import run as command
from calyx_orch.errors import InventoryErrors, UsageError
from calyx_orch.inventory import fio_values, jobs
from calyx_orch.model import Baselines, Connection, Guest, Inventory, Rw, Target, Workload

FIO = shutil.which("fio")
WHOLE = """; a database, roughly
[global]
ioengine=libaio
direct=1
time_based
runtime=2m      # long enough
ramp_time=500ms
size=1g
norandommap
group_reporting
thread

[reader]
rw=randread
bs=8k
iodepth=16
numjobs=4
rate_iops=1000

[log writer]
stonewall
rw=write
blocksize=64k
fdatasync=1
thinktime=200
"""


def told(text: str) -> list[str]:
    with pytest.raises(InventoryErrors) as caught:
        jobs.parse_jobs(text, source="my.fio")
    return [str(one) for one in caught.value.problems]


def one(
    options: str, *, head: str = "ioengine=io_uring\nnorandommap\nstonewall\ntime_based\nruntime=9\nramp_time=9\n"
) -> Workload:
    (workload,) = jobs.parse_jobs(f"[j]\n{head}{options}", source="my.fio").workloads
    return workload


def test_sections_become_workloads_with_what_global_says() -> None:
    found = jobs.parse_jobs(WHOLE, source="my.fio")
    reader, writer = found.workloads
    assert found.baselines == ("fio-libaio",)
    assert found.notes == ()
    assert (reader.name, reader.rw, reader.bs_bytes, reader.iodepth, reader.numjobs) == (
        "reader",
        Rw.RANDREAD,
        8192,
        16,
        4,
    )
    assert (reader.runtime_s, reader.ramp_s, reader.size_bytes, reader.rate_iops) == (120.0, 0.5, 1 << 30, 1000)
    assert (writer.name, writer.rw, writer.bs_bytes, writer.fdatasync) == ("log-writer", Rw.WRITE, 65536, 1)
    assert (writer.thinktime_us, writer.direct) == (200, True)


def test_a_later_global_holds_for_the_sections_behind_it_only() -> None:
    text = "[global]\nsize=1m\nioengine=io_uring\n[a]\nrw=read\n[global]\nsize=2m\n[b]\nrw=read\n"
    assert [w.size_bytes for w in jobs.parse_jobs(text, source="f").workloads] == [1 << 20, 2 << 20]


def test_what_fio_does_unasked_is_done_too_or_told() -> None:
    """No direct is buffered, no ioengine is psync; a missing runtime, ramp, time_based, stonewall, norandommap is named."""
    found = jobs.parse_jobs("[a]\nsize=1m\nrw=randread\n[b]\nsize=1m\nioengine=io_uring\nruntime=5\n", source="my.fio")
    first, second = found.workloads
    assert (first.direct, first.setup, first.labels) == (False, "psync", ("buffered", "psync"))
    assert (second.rw, second.setup) == (Rw.READ, "auto")
    notes = "\n".join(found.notes)
    for part in (
        "my.fio:1: [a] names no ioengine", "my.fio:1: [a] has no runtime", "my.fio:1: [a] has no ramp_time",
        "my.fio:1: [a] keeps a random map", "my.fio:4: [b] has no stonewall", "my.fio:4: [b] is not time_based",
    ):  # fmt: skip
        assert part in notes


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("size=1m\nrw=readwrite\nrwmixwrite=20", {"rw": Rw.RW, "rwmixread": 80}),
        ("size=1m\nrw=randrw\nbs=4k,64k", {"bssplit": ((4096, 100),), "bssplit_write": ((65536, 100),)}),
        ("size=1m\nrw=randwrite\nbs=4k,64k", {"bs_bytes": 65536, "bssplit": ()}),
        ("size=1m\nrw=randread\nbssplit=4k/30:8k/", {"bssplit": ((4096, 30), (8192, 70))}),
        ("size=1m\nrw=rw\nrate=7m,3m\nrwmixread=70", {"rate_bytes_per_s": 10 << 20}),
        ("size=1m\nrw=write\nrate=1m,2m", {"rate_bytes_per_s": 2 << 20}),
        ("size=1m\nrw=rw\nrate_iops=500", {"rate_iops": 1000}),
        ("size=1m\nrw=read\nbuffered=1", {"direct": False}),
        ("size=1m\nrw=read\ndirect=1\nhipri", {"iopoll": True}),
        ("size=1m\nrw=read\nsqthread_poll=1", {"setup": "sqpoll"}),
        ("size=1m\nrw=read\niomem=mmaphuge", {"huge_pages": True}),
        ("size=1m\nrw=read\nnuma_mem_policy=bind:1", {"numa": 1}),
        ("size=1m\nrw=write\nsync=1\nend_fsync=1", {"sync": True, "end_fsync": True}),
        (
            "size=1m\nrw=randread\nrandom_distribution=zipf:1.1\nrandseed=7",
            {"random_distribution": "zipf:1.1", "seed": 7},
        ),
        ("size=1m\nrw=write\nverify=crc32c", {"verify": "crc32c"}),
        ("size=1m\noffset=512k\nrw=write\ncpus_allowed=0-1", {"offset_bytes": 1 << 19, "cpus_allowed": "0-1"}),
    ],
)
def test_options_are_taken_over(options: str, expected: dict[str, object]) -> None:
    found = one(options)
    assert {key: getattr(found, key) for key in expected} == expected


def test_everything_without_an_equal_is_named_by_its_line_at_once() -> None:
    text = (
        "size=9\n[a]\nioengine=sg\nrw=randtrim\nsize=20%\niodepht=4\nzero_buffers\niodepth_batch_submit=2\nbsrange=1k-4k\n"
        "include other.fio\nrate_process=poisson\nrunfor=3\nbs=$pagesize\niodepth=5000\n"
    )
    assert told(text) == [
        "my.fio:1: 'size=9' stands in front of the first section",
        "my.fio:3: ioengine=sg has no equivalent in calyx-orch: io_uring, libaio, psync have",
        "my.fio:4: rw=randtrim has no equivalent in calyx-orch: calyx does not trim",
        "my.fio:5: size=20% has no equivalent in calyx-orch: write the size in bytes, the files are made anew",
        "my.fio:6: fio 3.33 has no option 'iodepht' (did you mean 'iodepth'?)",
        "my.fio:7: zero_buffers has no equivalent in calyx-orch: zeros are compressed or deduplicated by layers below, so the figures "
        "would be those of a cache",
        "my.fio:9: bsrange has no equivalent in calyx-orch: sizes are written out by bssplit, and aligned to the smallest",
        "my.fio:10: include has no equivalent in calyx-orch: copy the lines of that file into this one",
        "my.fio:11: rate_process=poisson has no equivalent in calyx-orch: arrival: poisson in an inventory is an open loop, which fio's "
        "is not",
        "my.fio:12: fio 3.33 has no option 'runfor'",
        "my.fio:13: '$pagesize' holds a variable, which has no equivalent in calyx-orch: write its value",
        "my.fio:14: 'iodepth' must be at most 4096, not '5000'",
    ]


def test_what_changes_no_io_goes_on_with_a_note() -> None:
    found = jobs.parse_jobs(
        "[j]\nioengine=io_uring\nsize=1m\nruntime=9\ntime_based\nramp_time=1\niodepth_batch_submit=2\nfilename=/dev/sdz\nwrite_bw_log=x\n",
        source="my.fio",
    )
    assert [note.split(":", 3)[:3] for note in found.notes] == [
        ["my.fio", "7", " iodepth_batch_submit has no equivalent in calyx-orch"],
        ["my.fio", "8", " filename has no equivalent in calyx-orch"],
        ["my.fio", "9", " write_bw_log has no equivalent in calyx-orch"],
    ]


def test_values_are_checked_like_those_of_an_inventory() -> None:
    assert told("[j]\nioengine=io_uring\nsize=1m\nrw=read\niodepth=5000\n") == [
        "my.fio:5: 'iodepth' must be at most 4096, not '5000'"
    ]
    assert told("[j]\nioengine=io_uring\nrw=read\n") == ["my.fio:1: missing key 'size' in workload 'j'"]
    assert told("\n") == ["my.fio:1: there is no job: a job begins with its name in [brackets]"]


@given(st.text(max_size=200))
def test_no_text_is_beyond_it(text: str) -> None:
    """Whatever stands in the file: workloads, or problems."""
    with contextlib.suppress(InventoryErrors):
        assert jobs.parse_jobs(text, source="f").workloads


@pytest.mark.skipif(FIO is None, reason="fio is not installed")
@pytest.mark.parametrize("written", ["64k", "64K", "64kb", "64ki", "80KiB", "1m", "1mb", "1mib", "0x10000", "81920"])
def test_sizes_are_those_of_a_real_fio(written: str, tmp_path: Path) -> None:
    """A real fio makes a file of that size: the same number of bytes."""
    file = tmp_path / "f"
    argv = [str(FIO), "--name=t", f"--size={written}", "--bs=500", f"--filename={file}", "--create_only=1"]
    subprocess.run(argv, capture_output=True, timeout=30, check=True)
    assert file.stat().st_size == fio_values.size(written)


# --- the command line --------------------------------------------------------------------------------------------

INVENTORY = "defaults: {targets: {data: /data}, transport: local}\nguests: {vm1: }\n"


def test_a_run_takes_a_job_file_in_place_of_the_workloads(tmp_path: Path) -> None:
    """Its engines are the baselines, its notes stand in the plan."""
    (tmp_path / "my.fio").write_text(WHOLE + "exitall\n")
    guest = Guest("vm1", Connection("vm1"), (Target("data", "/data"),))
    inventory = Inventory("i", (guest,), (Workload("own", Rw.READ),))
    made = command.plan_of(inventory, command.RunOptions(jobs=tmp_path / "my.fio", seed=1))
    assert {r.workload.name for r in made.rounds} == {"reader", "log-writer"}
    assert {r.engine for r in made.rounds} == {"calyx", "fio-libaio"}
    assert any("exitall" in note for note in made.notes)
    named = Inventory("i", (guest,), (Workload("own", Rw.READ),), baselines=Baselines((), auto=False))
    assert {r.engine for r in command.plan_of(named, command.RunOptions(jobs=tmp_path / "my.fio", seed=1)).rounds} == {
        "calyx"
    }
    assert plan.from_json(plan.to_json(made)) == made


def test_sections_with_several_ioengines_are_compared_with_each(tmp_path: Path) -> None:
    """Every section runs by calyx and by each engine that the file names, where that engine can make the same I/O."""
    common = "[global]\nsize=8m\nruntime=9\ntime_based\nramp_time=1\nnorandommap\ndirect=1\nrw=randread\n"
    sections = "".join(
        f"[{name}]\nstonewall\nioengine={engine}\n{depth}"
        for name, engine, depth in (
            ("a", "libaio", "iodepth=8\n"),
            ("b", "io_uring", "iodepth=8\n"),
            ("c", "psync", ""),
        )
    )
    (tmp_path / "my.fio").write_text(common + sections)
    guest = Guest("vm1", Connection("vm1"), (Target("data", "/data"),))
    made = command.plan_of(Inventory("i", (guest,), ()), command.RunOptions(jobs=tmp_path / "my.fio", seed=1))
    by_section = {
        name: {round_.engine for round_ in made.rounds if round_.workload.name == name} for name in ("a", "b", "c")
    }
    queued = {"calyx", "fio-libaio", "fio-io_uring"}
    assert by_section == {"a": queued, "b": queued, "c": {"calyx", "fio-psync"}}


def test_a_job_file_that_cannot_be_taken_ends_with_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "i.yaml").write_text(INVENTORY)
    (tmp_path / "my.fio").write_text("[j]\nnonsense=1\nzero_buffers\n")
    monkeypatch.setattr(
        "sys.argv", ["calyx-orch", "run", str(tmp_path / "i.yaml"), "--jobs", str(tmp_path / "my.fio"), "--dry-run"]
    )
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.removeprefix(str(tmp_path)).split(": ")[0] for line in lines] == [
        "/my.fio:1",
        "/my.fio:2",
        "/my.fio:3",
    ]


def test_a_missing_job_file_is_one_sentence(tmp_path: Path) -> None:
    guest = Guest("vm1", Connection("vm1"), (Target("data", "/data"),))
    with pytest.raises(UsageError, match="cannot read the job file"):
        command.plan_of(Inventory("i", (guest,), ()), command.RunOptions(jobs=tmp_path / "none.fio"))
