"""fio's words in an inventory: checked, told with a way out, sent to calyx, and given to a real fio that does the same."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from measured import guest, measurement, record, round_

from calyx_orch import engines, inventory
from calyx_orch.analysis import summary
from calyx_orch.errors import InventoryErrors
from calyx_orch.inventory import words
from calyx_orch.model import Answers, ClockBound, Direction, Histogram, Rw, Workload
from calyx_orch.report import tables

KIB, MIB = 1 << 10, 1 << 20
FIO = shutil.which("fio")
HEAD = "defaults: {targets: {data: /data}}\nguests: [vm1: ]\n".replace("[vm1: ]", "{vm1: }")
BASE = Workload("w", Rw.RANDRW, 4 * KIB, 4, size_bytes=8 * MIB, runtime_s=0.4, ramp_s=0.0)


def parse(entry: str, top: str = "") -> Workload:
    text = f"{HEAD}{top}\nworkloads:\n  - {{{entry}}}\n"
    (workload,) = inventory.parse(text, source="i.yaml", base_dir="/", presets={}).workloads
    return workload


def problem(entry: str, top: str = "") -> str:
    with pytest.raises(InventoryErrors) as caught:
        parse(entry, top)
    return "\n".join(str(one) for one in caught.value.problems)


# --- the words ---------------------------------------------------------------------------------------------------


def test_every_word_reaches_the_workload() -> None:
    told = parse(
        "rw: randrw, size: 1g, bssplit: '4k/50:64k/,8k/100', offset: 64k, rate: 20MB/s, random_distribution: 'zipf:1.2', "
        "fdatasync: 4, sync: yes, end_fsync: yes, buffer_compress_percentage: 40, dedupe_percentage: 10, thinktime: 2ms, "
        "thinktime_blocks: 8, cpus_allowed: '0,2-3', iopoll: no, numa: 0, huge_pages: yes, direct: false"
    )
    assert told.bssplit == ((4 * KIB, 50), (64 * KIB, 50))
    assert told.bssplit_write == ((8 * KIB, 100),)
    assert (told.bs_bytes, told.block_sizes) == (64 * KIB, (4 * KIB, 8 * KIB, 64 * KIB))
    assert (told.offset_bytes, told.file_bytes, told.rate_bytes_per_s) == (64 * KIB, (1 << 30) + 64 * KIB, 20_000_000)
    assert (told.random_distribution, told.fdatasync, told.sync, told.end_fsync) == ("zipf:1.2", 4, True, True)
    assert (told.buffer_compress_percentage, told.dedupe_percentage) == (40, 10)
    assert (told.thinktime_us, told.thinktime_blocks, told.cpus_allowed) == (2000, 8, "0,2-3")
    assert (told.iopoll, told.numa, told.huge_pages, told.labels) == (False, 0, True, ("buffered",))


def test_words_may_be_lists_and_name_their_workloads() -> None:
    text = (
        HEAD
        + "workloads: [{rw: randread, size: 1g, bssplit: ['4k/50:8k/50', 4k/100], random_distribution: [random, zipf], numa: [0, 1]}]\n"
    )
    found = inventory.parse(text, source="i.yaml", base_dir="/", presets={}).workloads
    assert len({one.name for one in found}) == 8
    assert found[0].name == "randread-split4k.50-8k.50-random-node0"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("rw: randread, size: 1g, bssplit: 4k/50:8k/40", "sum to 90, not to 100"),
        ("rw: randread, size: 1g, bssplit: 4k/60:8k/60", "sum to 120"),
        ("rw: randread, size: 1g, bssplit: 4k/100:8k/", "leave nothing"),
        ("rw: randread, size: 1g, bssplit: 4k/50:4k/50", "names a size twice"),
        ("rw: randread, size: 1g, bssplit: 1000/100", "no multiple of 512"),
        ("rw: randread, size: 1g, bssplit: 4k/100, bs: 4k", "both say the size"),
        ("rw: randread, size: 1g, bssplit: '4k/100,8k/100'", "only where rw is rw or randrw"),
        ("rw: randread, size: 1g, bssplit: 4k/50:6k/50", "no multiple of the smallest block"),
        ("rw: randread, size: 1g, random_distribution: zipfian", "is no distribution"),
        ("rw: randread, size: 1g, random_distribution: 'zipf:1'", "not 1"),
        ("rw: randread, size: 1g, random_distribution: 'pareto:2'", "between 0 and 1"),
        ("rw: randread, size: 1g, random_distribution: normal", "in percent"),
        ("rw: randread, size: 1g, random_distribution: 'zoned:60/10:30/90'", "accesses sum to 90"),
        ("rw: read, size: 1g, random_distribution: 'zipf:1.2'", "no meaning for a sequential"),
        ("rw: read, size: 1g, fdatasync: 3", "only reads"),
        ("rw: read, size: 1g, dedupe_percentage: 3", "only reads"),
        ("rw: write, size: 1g, rate: 1MB/s, rate_iops: 100", "both bound the rate"),
        ("rw: write, size: 1g, arrival: poisson", "needs rate_iops"),
        ("rw: write, size: 1g, thinktime: 3parsec", "no thinktime"),
        ("rw: write, size: 1g, thinktime_blocks: 3", "without thinktime"),
        ("rw: write, size: 1g, cpus_allowed: 3-1", "no range of CPUs"),
        ("rw: write, size: 1g, cpus_allowed: '1,1'", "twice"),
        ("rw: write, size: 1g, offset: 1000", "no multiple of the smallest block"),
        ("rw: write, size: 1g, setup: psync", "allow_psync: true"),
        ("rw: write, size: 1g, iopoll: yes, direct: no", "must be direct"),
        ("rw: write, size: 1g, iopoll: yes, fsync: 3", "takes no fsync"),
        ("rw: randread, size: 1g, find: 'fast'", "nothing to find"),
        ("rw: randread, size: 1g, find: 'iops_at p99<0ms'", "nothing is below 0"),
        ("rw: randread, size: 1g, find: 'iops_at p99<2ms', rate_iops: 5", "what is searched for"),
        ("rw: write, size: 1g, verify: md5", "must be one of crc32c"),
        ("rw: write, size: 1g, zero_buffers: true", "refused: zeros are compressed or deduplicated"),
        ("rw: write, size: 1g, hipri: true", "iopoll"),
    ],
)
def test_nonsense_is_told_with_its_reason(entry: str, told: str) -> None:
    assert told in problem(entry)


def test_psync_is_for_one_io_in_flight() -> None:
    assert parse("rw: write, size: 1g, setup: psync", "allow_psync: true").labels == ("psync",)
    assert "iodepth must be 1" in problem("rw: write, size: 1g, setup: psync, iodepth: 2", "allow_psync: true")
    assert "io_uring" in problem("rw: write, size: 1g, setup: psync, huge_pages: true", "allow_psync: true")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("iops_at 'p99<2ms'", (99.0, 2_000_000)),
        ("iops_at p99.9 < 500us", (99.9, 500_000)),
        ("iops_at mean<1.5ms", (None, 1_500_000)),
    ],
)
def test_a_budget_is_read_in_any_spelling(written: str, meant: tuple[float | None, int]) -> None:
    assert words.budget(words.find(written)) == meant


# --- calyx -------------------------------------------------------------------------------------------------------


def pairs_of(workload: Workload) -> dict[str, str | int]:
    command = engines.command(
        round_(0, ["vm1"], workload=workload),
        paths=("/d/job.0",),
        data_seed=1,
        taken={},
        facts={},
        hello={},
        fio_path=None,
    )
    return dict(command.pairs)


def test_what_a_workload_does_not_say_is_not_sent() -> None:
    """An agent that knows none of the newer keys still takes a plain job."""
    new = {
        "bssplit",
        "offset",
        "rate",
        "arrival",
        "random_distribution",
        "fdatasync",
        "sync",
        "end_fsync",
        "verify",
        "huge",
    }
    assert not new & set(pairs_of(BASE))


def test_each_word_is_sent_as_the_protocol_has_it() -> None:
    told = replace(
        BASE, bssplit=((4096, 50), (65536, 50)), bssplit_write=((8192, 100),), offset_bytes=1 << 20, rate_bytes_per_s=1000_000,
        random_distribution="zipf:1.2", fdatasync=3, sync=True, end_fsync=True, buffer_compress_percentage=50, dedupe_percentage=20,
        verify="crc32c", thinktime_us=500, thinktime_blocks=4, cpus_allowed="0,2-3", iopoll=True, numa=0, huge_pages=True,
        arrival="poisson", direct=False,
    )  # fmt: skip
    expected = {
        "bssplit": "4096/50:65536/50", "bssplit_write": "8192/100", "offset": 1 << 20, "rate": 1_000_000, "arrival": "poisson",
        "random_distribution": "zipf:1.2", "fdatasync": 3, "sync": 1, "end_fsync": 1, "buffer_compress_percentage": 50,
        "dedupe_percentage": 20, "verify": "crc32c", "thinktime_us": 500, "thinktime_blocks": 4, "cpus_allowed": "0,2-3",
        "iopoll": 1, "numa": 0, "huge": 1, "direct": 0,
    }  # fmt: skip
    pairs = pairs_of(told)
    assert {key: pairs.get(key) for key in expected} == expected


def direction(ios: int, **more: Any) -> dict[str, Any]:
    latency = {"min_ns": 100, "max_ns": 200, "sum_ns": 150 * ios, "overflow": 0, "buckets": [[100, ios]]}
    return {
        "ios": ios,
        "bytes": ios * 4096,
        "errors": 0,
        "short": 0,
        "latency": latency if ios else {"buckets": []},
        **more,
    }


def result(**more: Any) -> Answers:
    document = {
        "window_start_ns": 0, "window_end_ns": 1_000_000_000, "read": direction(2000), "write": direction(0), "sync": direction(0),
        **more,
    }  # fmt: skip
    return Answers({"result": {"status": "ok"}}, {"result": json.dumps(document)}, ClockBound(0, 0), 0)


def test_the_two_latencies_of_an_open_loop_are_kept_apart() -> None:
    intended = {"min_ns": 100, "max_ns": 9000, "sum_ns": 1, "overflow": 0, "buckets": [[300, 2000]]}
    open_loop = replace(BASE, rw=Rw.RANDREAD, arrival="poisson", rate_iops=2000)
    of = round_(0, ["vm1"], workload=open_loop)
    vm = guest("vm1")
    found = engines.measure(of, vm, result(read=direction(2000, latency_intended=intended, late=20)))
    assert found.read is not None
    assert found.read.latency_intended is not None
    assert (found.read.latency.buckets, found.read.latency_intended.buckets) == (((100, 2000),), ((300, 2000),))
    (row,) = summary.summarise(record([vm], [of], [found])).guests
    assert (row.labels, row.late_share) == (("open loop",), 0.01)
    assert row.p99_ns is not None
    assert row.p99_intended_ns is not None
    assert row.p99_intended_ns > row.p99_ns
    written = {field.title: field.text(row) for field in tables.GUEST}
    assert (written["kind"], written["late"]) == ("open loop", "1.00 %")


@pytest.mark.parametrize(
    ("changes", "label"), [({"direct": False}, "buffered"), ({"setup": "psync", "iodepth": 1}, "psync")]
)
def test_what_means_something_else_is_labelled_in_every_table(changes: dict[str, Any], label: str) -> None:
    of = [round_(n, ["vm1"], engine=e, workload=replace(BASE, **changes)) for n, e in enumerate(("calyx", "fio-psync"))]
    vm = guest("vm1")
    found = summary.summarise(record([vm], of, [measurement(vm, one, 1000.0) for one in of]))
    assert {row.labels for row in (*found.guests, *found.fleet, *found.pairs)} == {(label,)}


def test_blocks_that_read_back_wrong_fail_the_round_by_offset() -> None:
    bad = {"checked": 2000, "bad": 2, "first_bad": [{"path": "/d/job.0", "offset": 8192, "why": "crc"}]}
    found = engines.measure(round_(0, ["vm1"]), guest("vm1"), result(verify=bad))
    assert (found.status, found.why) == ("failed", "2 blocks read back wrong, first at byte 8192 of /d/job.0 (crc)")
    good = engines.measure(round_(0, ["vm1"]), guest("vm1"), result(verify={"checked": 9, "bad": 0, "first_bad": []}))
    assert (good.status, good.verify["checked"]) == ("ok", 9)


# --- fio ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "changes", "why"),
    [
        ("fio-io_uring", {"arrival": "poisson", "rate_iops": 10}, "no open loop"),
        ("fio-io_uring", {"verify": "crc32c"}, "only blocks that it wrote"),
        ("fio-io_uring", {"thinktime_us": 5}, "empty queue"),
        ("fio-io_uring", {"setup": "psync", "iodepth": 1}, "fio-psync does"),
        ("fio-psync", {}, "setup psync only"),
        ("fio-libaio", {"iopoll": True}, "no polled"),
        ("fio-io_uring", {"setup": "sqpoll", "cpus_allowed": "0"}, "inherits cpus_allowed"),
        (
            "fio-io_uring",
            {"bssplit": ((4096, 100),), "bssplit_write": ((8192, 100),), "random_distribution": "zipf:1.1"},
            "off the file",
        ),
        ("fio-libaio", {"find": "iops_at p99<2ms"}, "calyx alone"),
    ],
)
def test_what_fio_does_not_do_alike_is_no_baseline(engine: str, changes: dict[str, Any], why: str) -> None:
    assert why in (engines.no_equal(engine, replace(BASE, **changes)) or "")


def test_what_fio_does_alike_is_a_baseline() -> None:
    assert engines.no_equal("fio-io_uring", replace(BASE, thinktime_us=5, iodepth=1, iopoll=True)) is None
    assert engines.no_equal("fio-psync", replace(BASE, setup="psync", iodepth=1)) is None
    assert engines.no_equal("calyx", replace(BASE, verify="crc32c")) is None


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fio") / "job.0"
    path.write_bytes(b"\xa5" * (9 * MIB))
    return path


def run_fio(
    file: Path, workload: Workload, ioengine: str = "io_uring", taken: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A real fio with the very options that a guest is given, but for the gate; raises when it refuses one."""
    of = round_(0, ["vm1"], engine=f"fio-{ioengine}", workload=workload)
    command = engines.command(
        of, paths=(str(file),), data_seed=1, taken=taken or {}, facts={}, hello={"path": "x", "work": "y"}, fio_path=FIO
    )
    arguments = [
        str(value) for key, value in command.pairs if key == "arg" and not str(value).startswith("--exec_prerun")
    ]
    done = subprocess.run(arguments, cwd=file.parent, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr + done.stdout[:500]
    (job,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    assert job["error"] == 0
    return dict(job)


needs_fio = pytest.mark.skipif(FIO is None, reason="fio is not installed")


@needs_fio
def test_fio_splits_block_sizes_alike(file: Path) -> None:
    """Half 4 KiB and half 64 KiB reads, 8 KiB writes."""
    job = run_fio(file, replace(BASE, bssplit=((4096, 50), (65536, 50)), bssplit_write=((8192, 100),)))
    mean = job["read"]["io_bytes"] / job["read"]["total_ios"]
    assert mean == pytest.approx(34816, rel=0.15)
    assert job["write"]["io_bytes"] / job["write"]["total_ios"] == pytest.approx(8192, rel=0.15)


@needs_fio
def test_fio_shares_a_rate_out_to_both_directions(file: Path) -> None:
    """2 MB/s in all, 70 % of them read."""
    job = run_fio(file, replace(BASE, rate_bytes_per_s=2_000_000, rwmixread=70, runtime_s=1.0))
    assert job["read"]["bw_bytes"] == pytest.approx(1_400_000, rel=0.3)
    assert job["write"]["bw_bytes"] == pytest.approx(600_000, rel=0.3)


@needs_fio
def test_fio_flushes_after_as_many_writes(file: Path) -> None:
    """One fsync for every four writes; fio 3.33 makes fdatasync alike but counts none of them."""
    job = run_fio(file, replace(BASE, rw=Rw.RANDWRITE, iodepth=1, fsync=4))
    assert job["sync"]["total_ios"] == pytest.approx(job["write"]["total_ios"] / 4, rel=0.3, abs=2)


@needs_fio
@pytest.mark.parametrize(
    ("changes", "ioengine", "taken"),
    [
        (
            {"offset_bytes": MIB, "random_distribution": "zoned:60/10:40/90"},
            "io_uring",
            {"fixed_buffers": True, "fixed_files": True},
        ),
        ({"random_distribution": "zipf:1.2", "cpus_allowed": "0"}, "libaio", {}),
        ({"random_distribution": "normal:10", "direct": False}, "io_uring", {}),
        (
            {
                "rw": Rw.RANDWRITE,
                "buffer_compress_percentage": 50,
                "dedupe_percentage": 30,
                "sync": True,
                "fdatasync": 4,
            },
            "io_uring",
            {},
        ),
        ({"rw": Rw.WRITE, "setup": "psync", "iodepth": 1, "end_fsync": True, "thinktime_us": 200}, "psync", {}),
        ({"rw": Rw.RANDREAD, "numa": 0, "random_distribution": "pareto:0.3"}, "io_uring", {}),
    ],
)
def test_fio_takes_the_options(file: Path, changes: dict[str, Any], ioengine: str, taken: dict[str, Any]) -> None:
    """Real fio runs with them and does I/O."""
    job = run_fio(file, replace(BASE, **changes), ioengine, taken)
    assert job["read"]["total_ios"] + job["write"]["total_ios"] > 0


def test_fios_poller_gets_the_cpu_that_calyxs_poller_has() -> None:
    """Where the agent tells it, and one job is one poller."""
    taken = {"sqpoll": True, "poller_cpus": [3]}
    of = round_(0, ["vm1"], engine="fio-io_uring", workload=BASE)

    def options(workload: Workload) -> set[str]:
        command = engines.command(
            replace(of, workload=workload), paths=("/d/job.0",), data_seed=1, taken=taken, facts={}, hello={"path": "x", "work": "y"},
            fio_path="fio",
        )  # fmt: skip
        return {str(value) for key, value in command.pairs if key == "arg"}

    assert {"--sqthread_poll=1", "--sqthread_poll_cpu=3"} <= options(BASE)
    assert "--sqthread_poll_cpu=3" not in options(replace(BASE, numjobs=2))


def test_an_empty_direction_keeps_no_second_latency() -> None:
    assert Direction(0, 0, Histogram()).latency_intended is None
