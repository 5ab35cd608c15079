"""A round becomes one line for the guest, fair to both engines, and whatever a guest answers becomes a measurement."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import guest, round_

from calyx_orch import engines
from calyx_orch.engines import calyx, fio
from calyx_orch.engines.answers import cpu_use
from calyx_orch.engines.buckets import index_of
from calyx_orch.errors import Fault
from calyx_orch.model import Answers, ClockBound, LoadMode, Round, Rw, Workload

GOLDEN = Path(__file__).parent.parent / "golden"
VM = guest("vm1", "hv1")
HELLO = {"path": "/home/bench/.calyx/agent", "work": "/run/user/1/calyx-x"}
TAKEN = {"took": "defer", "fixed_buffers": True, "fixed_files": True, "sqpoll": False}
PATHS = ("/data/.calyx-orch-1/job.0", "/data/.calyx-orch-1/job.1")
MIXED = Workload(
    "mixed", Rw.RANDRW, 4096, 8, 2, 1 << 20, runtime_s=60.0, ramp_s=10.0, rwmixread=70, rate_iops=1000, fsync=5
)
SECOND = 1_000_000_000


def line(of: Round, **changes: Any) -> engines.Command:
    arguments: dict[str, Any] = {
        "paths": PATHS,
        "data_seed": 77,
        "taken": TAKEN,
        "facts": {"clocksource": "kvm-clock"},
        "hello": HELLO,
        "fio_path": "/usr/bin/fio",
    }
    return engines.command(of, **(arguments | changes))


def arguments_of(command: engines.Command) -> list[str]:
    return [str(value) for key, value in command.pairs if key == "arg"]


def mixed_round(engine: str, **changes: Any) -> Round:
    return round_(3, ["vm1"], engine=engine, workload=replace(MIXED, **changes))


# --- commands ----------------------------------------------------------------------------------------------------


def test_the_run_line_of_calyx_holds_the_whole_job() -> None:
    command = line(mixed_round("calyx"))
    pairs = dict(command.pairs)
    assert command.verb == "run"
    assert [value for key, value in command.pairs if key == "path"] == list(PATHS)
    assert {
        key: pairs[key] for key in ("rw", "bs", "iodepth", "size", "rwmixread", "rate_iops", "direct", "fsync")
    } == {
        "rw": "randrw",
        "bs": 4096,
        "iodepth": 8,
        "size": 1 << 20,
        "rwmixread": 70,
        "rate_iops": 1000,
        "direct": 1,
        "fsync": 5,
    }
    assert (pairs["ramp_ns"], pairs["runtime_ns"], pairs["interval_ns"]) == (10 * SECOND, 60 * SECOND, 100_000_000)
    assert (pairs["seed"], pairs["data_seed"]) == (4, 77)
    assert (pairs["setup"], pairs["refill"], pairs["buffers"]) == ("auto", "each", "auto")
    assert pairs["deadline_ns"] == 80 * SECOND
    assert "ramp_extra_ns" not in pairs


@pytest.mark.parametrize("engine", list(engines.ENGINES))
def test_a_ready_guest_waits_a_little_longer_than_the_round_waits_for_its_slowest(engine: str) -> None:
    """Neither gives up a round that may still begin, nor does a forgotten job stay loaded for the agent's own two minutes."""
    pairs = dict(line(mixed_round(engine)).pairs)
    ready_within_ms = 1000 * engines.READY_WITHIN_S
    assert ready_within_ms + 10_000 <= int(pairs["arm_within_ms"]) <= ready_within_ms + 30_000
    if engine != "calyx":
        assert pairs["timeout_ms"] == ready_within_ms, "as long on the way to the gate"


@pytest.mark.parametrize("engine", ["fio-io_uring", "fio-libaio"])
def test_fio_gets_huge_pages_where_calyx_has_them(engine: str) -> None:
    """A large I/O on huge pages is one piece of memory: on some disks twice as fast, so neither engine may have them alone."""
    given_to_fio = arguments_of(line(mixed_round(engine), taken=TAKEN | {"transparent_huge": True}))
    assert given_to_fio[:3] == ["env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1", "/usr/bin/fio"]
    assert arguments_of(line(mixed_round(engine), taken=TAKEN | {"transparent_huge": False}))[0] == "/usr/bin/fio"


def test_fio_gets_the_same_pattern_the_same_ramp_and_total_latency() -> None:
    command = line(mixed_round("fio-io_uring"))
    given_to_fio = arguments_of(command)
    assert command.verb == "exec"
    assert given_to_fio[0] == "/usr/bin/fio"
    for option in (
        "--thread",
        "--ioengine=io_uring",
        "--rw=randrw",
        "--bs=4096",
        "--iodepth=8",
        "--size=1048576",
        "--direct=1",
        "--time_based",
        "--norandommap",
        "--allow_file_create=0",
        "--rwmixread=70",
        "--fsync=5",
        "--ramp_time=10000000us",
        "--runtime=60000000us",
        "--lat_percentiles=1",
        "--clat_percentiles=0",
        "--output-format=json+",
        "--log_avg_msec=100",
    ):
        assert option in given_to_fio
    pairs = dict(command.pairs)
    assert (pairs["hold"], pairs["ramp_ns"], pairs["runtime_ns"]) == (2, 10 * SECOND, 60 * SECOND)
    assert pairs["deadline_ns"] == dict(line(mixed_round("calyx")).pairs)["deadline_ns"]
    assert [value for key, value in command.pairs if key == "collect"] == [
        "calyx_bw.1.log",
        "calyx_iops.1.log",
        "calyx_bw.2.log",
        "calyx_iops.2.log",
    ]


def test_each_file_is_a_job_section_behind_the_global_one() -> None:
    given_to_fio = arguments_of(line(mixed_round("fio-libaio")))
    names = [argument for argument in given_to_fio if argument.startswith(("--name=", "--filename="))]
    assert names == [
        "--name=global",
        "--name=job0",
        f"--filename={PATHS[0]}",
        "--name=job1",
        f"--filename={PATHS[1]}",
    ]


def test_fio_gets_what_took_effect_for_calyx_and_no_more() -> None:
    """Registered buffers and files, and SQPOLL, only when calyx has them, and only for io_uring."""
    options = {"--fixedbufs=1", "--registerfiles=1", "--sqthread_poll=1"}
    everything = TAKEN | {"sqpoll": True}
    assert options <= set(arguments_of(line(mixed_round("fio-io_uring"), taken=everything)))
    assert "--sqthread_poll=1" not in arguments_of(line(mixed_round("fio-io_uring")))
    unregistered = TAKEN | {"fixed_buffers": False}
    assert "--fixedbufs=1" not in arguments_of(line(mixed_round("fio-io_uring"), taken=unregistered))
    assert "--registerfiles=1" in arguments_of(line(mixed_round("fio-io_uring"), taken=unregistered))
    assert not options & set(arguments_of(line(mixed_round("fio-libaio"), taken=everything)))


@pytest.mark.parametrize(
    ("clocksource", "named"),
    [("tsc", False), ("hyperv_clocksource_tsc_page", False), ("kvm-clock", True), (None, True)],
)
def test_fio_reads_the_time_stamp_counter_only_where_it_is_the_clock(clocksource: str | None, named: bool) -> None:
    given_to_fio = arguments_of(line(mixed_round("fio-libaio"), facts={"clocksource": clocksource}))
    assert ("--clocksource=clock_gettime" in given_to_fio) is named


def test_a_rate_of_reads_and_writes_together_is_shared_out_to_fio_by_direction() -> None:
    assert "--rate_iops=700,300" in arguments_of(line(mixed_round("fio-libaio")))
    read_only = mixed_round("fio-libaio", rw=Rw.RANDREAD)
    assert "--rate_iops=1000" in arguments_of(line(read_only))
    assert not any(argument.startswith(("--rwmixread", "--fsync")) for argument in arguments_of(line(read_only)))


@given(st.integers(2, 10**6), st.integers(0, 100))
def test_the_shares_of_a_rate_add_up_and_leave_no_direction_without_a_limit(rate: int, mix: int) -> None:
    """A rate of 0 would mean no limit at all to fio."""
    (option,) = [
        argument
        for argument in arguments_of(line(mixed_round("fio-libaio", rate_iops=rate, rwmixread=mix)))
        if argument.startswith("--rate_iops=")
    ]
    reads, writes = (int(part) for part in option.removeprefix("--rate_iops=").split(","))
    assert reads + writes == rate
    assert min(reads, writes) >= 1


def test_colons_in_a_path_are_escaped() -> None:
    """A-024: unescaped, fio takes them for separators and writes other files."""
    assert fio.file_option("/tmp/cx/by:path/t0:1") == "--filename=/tmp/cx/by\\:path/t0\\:1"
    assert fio.file_option("/tmp/cx/with space/t 1,2") == "--filename=/tmp/cx/with space/t 1,2"


def test_a_path_at_which_fio_would_see_a_comment_is_given_another_way() -> None:
    """A `filename` ends at `;` or `#`: fio would use another file."""
    assert fio.file_option("/tmp/a#b:c/job.0") == "--filename_format=/tmp/a#b:c/job.0"


def test_the_waiter_is_quoted_for_the_shell() -> None:
    hello = {"path": "/home/o'neil/a gent", "work": "/tmp/$x y"}
    (option,) = [
        a for a in arguments_of(line(mixed_round("fio-libaio"), hello=hello)) if a.startswith("--exec_prerun=")
    ]
    assert option == """--exec_prerun=exec '/home/o'"'"'neil/a gent' wait 'gate=/tmp/$x y/gate'"""


def test_a_longer_ramp_reaches_both_engines_and_their_deadlines() -> None:
    for engine in engines.ENGINES:
        short, long = (dict(line(mixed_round(engine), ramp_extra_ns=extra).pairs) for extra in (0, 3 * SECOND))
        assert int(long["deadline_ns"]) - int(short["deadline_ns"]) == 3 * SECOND
    assert "--ramp_time=13000000us" in arguments_of(line(mixed_round("fio-libaio"), ramp_extra_ns=3 * SECOND))
    assert dict(line(mixed_round("calyx"), ramp_extra_ns=3 * SECOND).pairs)["ramp_extra_ns"] == 3 * SECOND


def test_seeds_of_fio_differ_by_guest_when_it_writes_and_are_pinned_when_it_reads() -> None:
    def seed(data_seed: int, rw: Rw) -> str:
        found = arguments_of(line(mixed_round("fio-libaio", rw=rw), data_seed=data_seed))
        return next(argument for argument in found if argument.startswith("--randseed="))

    assert seed(1, Rw.RANDWRITE) != seed(2, Rw.RANDWRITE)
    assert seed(1, Rw.RANDREAD) == seed(2, Rw.RANDREAD) == "--randseed=4"


def test_three_percent_over_is_within_the_deadline_and_twenty_seconds_are_not() -> None:
    """A-021: for runs of a minute."""
    end_ns = 70 * SECOND
    assert end_ns + 2 * SECOND < engines.deadline_ns(round_(0, ["vm1"])) < end_ns + 20 * SECOND


def test_an_unknown_engine_or_a_missing_fio_is_our_fault() -> None:
    with pytest.raises(Fault, match="spdk"):
        line(mixed_round("spdk"))
    with pytest.raises(Fault, match="without fio"):
        line(mixed_round("fio-libaio"), fio_path=None)


def test_only_fio_has_an_engine_name_of_fio() -> None:
    assert [engines.fio_engine(name) for name in ("calyx", "fio-io_uring", "fio-libaio", "fio-rbd")] == [
        None,
        "io_uring",
        "libaio",
        None,
    ]


# --- measurements of calyx ---------------------------------------------------------------------------------------

OFFSET = 5_000 * SECOND


def result(**changes: Any) -> dict[str, Any]:
    latency = {"min_ns": 1000, "max_ns": 3000, "sum_ns": 8000, "overflow": 0}
    read = {"ios": 4, "bytes": 16384, "errors": 0, "short": 0}
    read["latency"] = latency | {"buckets": [[index_of(1000), 1], [index_of(2000), 2], [index_of(3000), 1]]}  # type: ignore[assignment]
    empty = {
        "ios": 0,
        "bytes": 0,
        "errors": 0,
        "short": 0,
        "latency": {"min_ns": None, "max_ns": 0, "sum_ns": 0, "buckets": []},
    }
    return {
        "engine": "calyx",
        "jobs": 2,
        "started_ns": OFFSET + 100,
        "window_start_ns": OFFSET + 10 * SECOND,
        "window_end_ns": OFFSET + 70 * SECOND,
        "read": read,
        "write": empty,
        "sync": empty,
        "series": {
            "interval_ns": 100_000_000,
            "read_ios": [1, 3],
            "read_bytes": [4096, 12288],
            "write_ios": [0, 0],
            "write_bytes": [0, 0],
            "latency_max_ns": [1000, 3000],
        },
        "setup": {"took": "defer", "fixed_buffers": True, "why": ""},
        "counts": {"enter": 5, "unfinished": 0},
        "errors": [],
        "seed": 1,
        "data_seed": 2,
    } | changes


USAGE = {
    "window_start_ns": OFFSET + 10 * SECOND,
    "window_end_ns": OFFSET + 70 * SECOND,
    "cpus": 2,
    "busy_ns": 30 * SECOND,
    "delay_ns": 0,
    "engine_ns": 12 * SECOND,
    "stat": {
        "user_ns": 5,
        "nice_ns": 1,
        "system_ns": 7,
        "idle_ns": 89 * SECOND,
        "iowait_ns": SECOND,
        "irq_ns": 0,
        "softirq_ns": 2,
        "steal_ns": 3,
    },
    "steal_known": False,
    "idle_timed": True,
}


def answers(document: Any = None, documents: dict[str, str] | None = None, **messages: Any) -> Answers:
    told: dict[str, Any] = {
        "started": {"now_ns": OFFSET + 40_000, "bound_ns": 5_000, "how": "published"},
        "usage": USAGE,
        "result": {"status": "ok", "why": ""},
    }
    texts = {"result": json.dumps(result() if document is None else document)} | (documents or {})
    return Answers(
        {key: value for key, value in (told | messages).items() if value is not None},
        texts,
        ClockBound(OFFSET, 60_000),
        OFFSET,
    )


CALYX_ROUND = round_(0, ["vm1"])


def test_a_result_of_calyx_becomes_a_measurement_on_the_controllers_clock() -> None:
    found = engines.measure(CALYX_ROUND, VM, answers())
    assert (found.status, found.why) == ("ok", "")
    assert (found.window_start_ns, found.window_end_ns) == (10 * SECOND, 70 * SECOND)
    assert (found.start_line_ns, found.skew_ns, found.skew_bound_ns, found.skew_how) == (0, 40_000, 65_000, "published")
    assert found.read is not None
    assert (found.read.ios, found.read.bytes, found.read.latency.count, found.read.latency.grid) == (4, 16384, 4, 128)
    assert found.write is found.sync is None
    assert found.series is not None
    assert found.series.total_bytes == (4096.0, 12288.0)
    assert found.setup["took"] == "defer"
    assert found.counts["enter"] == 5
    assert (found.vm_host, found.load, found.engine) == ("hv1", "together", "calyx")


def test_cpu_is_that_of_the_window_and_steal_is_unknown_where_none_is_given() -> None:
    cpu = engines.measure(CALYX_ROUND, VM, answers()).cpu
    assert cpu is not None
    assert (cpu.busy_percent, cpu.engine_percent) == (25.0, 10.0)
    assert (cpu.user_ns, cpu.system_ns, cpu.softirq_ns) == (6, 7, 2)
    assert cpu.steal_ns is None
    known = engines.measure(CALYX_ROUND, VM, answers(usage=USAGE | {"steal_known": True})).cpu
    assert known is not None
    assert known.steal_ns == 3
    assert engines.measure(CALYX_ROUND, VM, answers(usage=None)).cpu is None


def test_the_skew_is_that_from_the_controllers_start_line_when_it_is_given() -> None:
    """The clock after the round may place the line elsewhere than where it was drawn: that is skew, too."""
    found = engines.measure(CALYX_ROUND, VM, replace(answers(), start_line_ns=-10_000))
    assert (found.start_line_ns, found.skew_ns) == (-10_000, 50_000)


def test_failed_io_fails_the_measurement_with_the_name_of_the_error() -> None:
    errors = [{"op": "read", "errno": 5, "count": 3, "first_offset": 4096}]
    found = engines.measure(CALYX_ROUND, VM, answers(result(errors=errors)))
    assert found.status == "failed"
    assert found.why == "3 reads failed: EIO (Input/output error), first at byte 4096"
    assert found.read is not None


def test_a_stopped_run_keeps_its_numbers_and_is_not_ok() -> None:
    found = engines.measure(CALYX_ROUND, VM, answers(result={"status": "stopped", "why": "told to stop"}))
    assert (found.status, found.why) == ("stopped", "told to stop")
    assert found.total_ios == 4


def test_a_refusal_is_told_in_the_words_of_the_agent() -> None:
    found = engines.measure(
        CALYX_ROUND, VM, answers(refused={"verb": "run", "why": "bs is no multiple of 512", "errno": 22})
    )
    assert (found.status, found.why) == ("failed", "bs is no multiple of 512")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"window_start_ns": "soon"}, "window_start_ns"),
        ({"window_end_ns": None}, "window_end_ns"),
        ({"read": []}, "read"),
        ({"read": {"ios": -1, "bytes": 0}}, "ios"),
        ({"read": {"ios": 1, "bytes": 1, "latency": {"buckets": [[5, 1], [5, 1]]}}}, "ascending"),
        ({"read": {"ios": 1, "bytes": 1, "latency": {"buckets": [[4480, 1]]}}}, "out of range"),
        ({"read": {"ios": 1, "bytes": 1, "latency": {"buckets": [[1.5, 1]]}}}, "integers"),
        ({"read": {"ios": 1, "bytes": 1}}, "no latency"),
        (
            {"series": {"interval_ns": 1, "read_ios": [1], "read_bytes": [], "write_ios": [], "write_bytes": []}},
            "lengths",
        ),
    ],
)
def test_nonsense_in_a_result_is_a_failed_measurement_with_a_sentence(change: dict[str, Any], word: str) -> None:
    found = engines.measure(CALYX_ROUND, VM, answers(result(**change)))
    assert found.status == "failed"
    assert word in found.why


@given(
    st.text()
    | st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(sorted(result())), inner),
    ).map(json.dumps)
)
def test_no_document_raises(text: str) -> None:
    for engine in engines.ENGINES:
        texts = {"result": text, "stdout": text, "stderr": "", "calyx_bw.1.log": text}
        of = replace(CALYX_ROUND, engine=engine)
        found = engines.measure(of, VM, answers(documents=texts, exited={"status": 0, "signal": 0, "timed_out": False}))
        assert found.status == "failed"
        assert found.why


@given(
    st.dictionaries(
        st.sampled_from(["now_ns", "bound_ns", "how", "status", "signal", "cpus", "stat"]),
        st.none() | st.integers() | st.text(),
    )
)
def test_no_message_raises(values: dict[str, Any]) -> None:
    for engine in engines.ENGINES:
        told = answers(
            started=values, usage=values | {"window_end_ns": values.get("cpus")}, exited=values, result=values
        )
        assert engines.measure(replace(CALYX_ROUND, engine=engine), VM, told).why is not None


# --- measurements of fio -----------------------------------------------------------------------------------------


def fio_answers(stdout: str, logs: dict[str, str] | None = None, **messages: Any) -> Answers:
    exited = {"status": 0, "signal": 0, "timed_out": False, "released_ns": OFFSET}
    return answers(documents={"stdout": stdout, "stderr": ""} | (logs or {}), **({"exited": exited} | messages))


def fio_document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        (GOLDEN / "fio-json" / "A-013" / "fio_jsonplus.json").read_text(encoding="utf-8")
    )
    document["jobs"][0]["job_runtime"] = 1000
    return document


FIO_ROUND = round_(1, ["vm1"], engine="fio-io_uring", workload=replace(MIXED, runtime_s=1.0), load=LoadMode.ALONE)


def test_the_window_of_fio_begins_a_ramp_after_its_first_io() -> None:
    found = engines.measure(FIO_ROUND, VM, fio_answers(json.dumps(fio_document())))
    assert (found.status, found.why) == ("ok", "")
    assert (found.window_start_ns, found.window_ns) == (10 * SECOND + 40_000, SECOND)
    assert found.read is not None
    assert found.write is not None
    assert (found.read.ios, found.write.ios) == (707, 317)
    assert found.read.latency.grid == 64
    assert found.latency_kind == "completion"


def test_the_jobs_of_fio_are_merged() -> None:
    document = fio_document()
    document["jobs"].append(document["jobs"][0])
    found = engines.measure(FIO_ROUND, VM, fio_answers(json.dumps(document)))
    assert found.read is not None
    assert (found.read.ios, found.read.latency.count) == (2 * 707, 2 * 707)
    assert found.read.bytes == 2 * 2895872


def test_a_job_that_ended_early_fails_the_measurement_of_fio() -> None:
    """A-018: neither the exit status nor the error of the job tells."""
    document = fio_document()
    document["jobs"][0]["job_runtime"] = 15
    found = engines.measure(FIO_ROUND, VM, fio_answers(json.dumps(document)))
    assert found.status == "failed"
    assert "15 ms of 1000 ms" in found.why


@pytest.mark.parametrize(
    ("exited", "status", "word"),
    [
        ({"status": 0, "timed_out": True}, "failed", "deadline"),
        ({"status": "stopped"}, "stopped", "stopped"),
        ({"status": None, "signal": 9}, "failed", "signal 9"),
        ({"status": 1, "signal": 0}, "failed", "status 1"),
    ],
)
def test_how_fio_ended_decides(exited: dict[str, Any], status: str, word: str) -> None:
    found = engines.measure(FIO_ROUND, VM, fio_answers(json.dumps(fio_document()), exited=exited))
    assert found.status == status
    assert word in found.why


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 10**6), st.sampled_from([0, 1])), max_size=40),
    st.integers(1, 10**9),
)
def test_the_series_of_fio_adds_up_to_its_totals(lines: list[tuple[int, int, int]], total: int) -> None:
    """Whatever lines the interval log has, no byte is lost or made up where any were logged."""
    text = "".join(f"{end * 100}, {rate}, {way}, 0, 0\n" for end, rate, way in sorted(lines))
    document = fio_document()
    document["jobs"][0]["read"]["io_bytes"] = total
    found = engines.measure(FIO_ROUND, VM, fio_answers(json.dumps(document), {"calyx_bw.1.log": text}))
    assert found.series is not None
    assert sum(found.series.read_bytes) == pytest.approx(total)
    assert len(found.series.read_bytes) == 10
    assert min(found.series.read_bytes) >= 0


def test_an_idle_interval_of_fio_is_zero_and_a_missing_end_is_filled() -> None:
    """No line for 300..500 ms means no I/O; the log ends at 900 ms, and what is missing of the total came after it."""
    rate = 1000  # KiB/s, so 102 400 bytes an interval
    text = "".join(f"{end}, {rate}, 0, 0, 0\n" for end in (100, 200, 300, 600, 700, 800, 900))
    document = fio_document()
    document["jobs"][0]["read"]["io_bytes"] = 8 * 102_400
    found = engines.measure(FIO_ROUND, VM, fio_answers(json.dumps(document), {"calyx_bw.1.log": text}))
    assert found.series is not None
    expected = [102_400.0] * 3 + [0.0] * 2 + [102_400.0] * 5
    assert found.series.read_bytes == pytest.approx(expected)


def test_a_first_interval_that_is_longer_reaches_back_to_the_start() -> None:
    """Fio 3.33 was seen to log its first interval at 250 ms, with the rate of all of it."""
    text = "".join(f"{end}, 1000, 0, 0, 0\n" for end in (250, 350, 450, 550, 650, 750, 850, 950))
    document = fio_document()
    document["jobs"][0]["read"]["io_bytes"] = 10 * 102_400
    found = engines.measure(FIO_ROUND, VM, fio_answers(json.dumps(document), {"calyx_bw.1.log": text}))
    assert found.series is not None
    assert found.series.read_bytes == pytest.approx([102_400.0] * 10)


def test_a_log_that_makes_no_sense_fails_the_measurement_with_its_line() -> None:
    found = engines.measure(FIO_ROUND, VM, fio_answers(json.dumps(fio_document()), {"calyx_bw.1.log": "100, 5\n"}))
    assert found.status == "failed"
    assert found.why.startswith("calyx_bw.1.log:1: ")


def test_the_modules_of_the_table_have_what_an_engine_needs() -> None:
    assert all(callable(module.command) and callable(module.measure) for module in engines.ENGINES.values())
    assert engines.ENGINES["calyx"] is calyx


def test_without_schedstat_the_busy_time_is_what_idle_time_leaves_over() -> None:
    """A kernel without CONFIG_SCHEDSTATS says `busy_ns` null: 2 CPUs for 10 s, 12 s idle, 1 s waiting for I/O."""
    stat = {"user_ns": 0, "nice_ns": 0, "system_ns": 0, "idle_ns": 12 * SECOND, "iowait_ns": SECOND, "steal_ns": 0}
    usage = {
        "window_start_ns": 0,
        "window_end_ns": 10 * SECOND,
        "cpus": 2,
        "busy_ns": None,
        "engine_ns": SECOND,
        "stat": stat,
    }
    cpu = cpu_use(usage)
    assert cpu is not None
    assert (cpu.busy_ns, cpu.busy_how, cpu.busy_percent) == (7 * SECOND, "idle", 35.0)


def test_without_any_accounting_the_busy_time_is_unknown() -> None:
    cpu = cpu_use({"window_start_ns": 0, "window_end_ns": 10 * SECOND, "cpus": 2, "stat": None})
    assert cpu is not None
    assert (cpu.busy_ns, cpu.busy_percent) == (None, None)
