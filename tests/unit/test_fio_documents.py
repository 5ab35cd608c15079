"""What fio leaves behind is read the same whatever its version, and a failed fio is never taken for a good one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calyx_orch.analysis.histogram import percentile
from calyx_orch.engines.fio_documents import FioOutput, parse_log, read_output
from calyx_orch.errors import FormatError

GOLDEN = Path(__file__).parent.parent / "golden"
JSON_CASES = GOLDEN / "fio-json"
RUN_CASES = GOLDEN / "fio-run"


def text(case: str, name: str) -> str:
    folder = JSON_CASES if (JSON_CASES / case).is_dir() else RUN_CASES
    return (folder / case / name).read_text(encoding="utf-8")


def expected(case: str) -> Any:
    return json.loads(text(case, "expected.json"))


def check_numbers(output: FioOutput, facts: dict[str, Any]) -> None:
    (job,) = output.jobs
    assert job.read is not None
    assert job.write is not None
    assert output.status == facts["status"]
    assert job.read.iops == pytest.approx(facts["read_iops"])
    assert job.read.bytes_per_s == facts["read_bw_bytes"]
    assert job.read.ios == facts["read_total_ios"]
    assert job.read.percentile(99.0) == facts["read_p99_ns"]
    assert job.write.percentile(99.0) is facts["write_p99_ns"] is None


def test_error_lines_before_the_document_mark_the_run_failed_with_their_errno() -> None:
    """A-001: the document is found, the lines are kept, and the reason is EIO and not a parse error."""
    output, facts = read_output(text("A-001", "fio_io_errors.out")), expected("A-001")
    assert (output.status, output.errno) == (facts["status"], facts["errno"])
    assert len(output.messages) == facts["preamble_lines"]
    assert "EIO" in output.why
    assert "rr" in output.why
    assert output.jobs


def test_harmless_notes_before_the_document_change_no_number() -> None:
    """A-002: four notes become four messages of a good run."""
    output, facts = read_output(text("A-002", "fio_notes.out")), expected("A-002")
    check_numbers(output, facts)
    assert len(output.messages) == facts["warnings"]


def test_braces_in_the_preamble_do_not_shift_the_document() -> None:
    """A-003: only an object with `fio version` and jobs is taken."""
    output = read_output(text("A-003", "fio_brace_preamble.out"))
    check_numbers(output, expected("A-003"))
    assert '{"note": 1}' in output.messages


def test_a_client_run_names_the_host_without_result_and_counts_no_sum_twice() -> None:
    """A-004: chatter around the document; `All clients` is no host; an announced host that is missing fails the run."""
    output, facts = read_output(text("A-004", "fio_client_chatter.out")), expected("A-004")
    assert list(output.hosts) == facts["hosts_with_results"]
    assert list(output.missing_hosts) == facts["missing_hosts"]
    assert output.status == facts["status"]
    assert [job.name for job in output.jobs] == ["j1", "j1"]
    assert "vm-c" in output.why


def test_periodic_documents_are_running_totals_and_the_last_is_the_result() -> None:
    """A-005: four cumulative documents; the intervals are their differences."""
    output, facts = read_output(text("A-005", "fio_status_interval.out")), expected("A-005")
    assert output.documents == facts["documents"]
    assert output.total_ios == facts["final_total_ios"]
    assert list(output.interval_ios) == facts["interval_ios"]
    assert output.status == "ok"


def test_a_cut_stream_is_partial_and_shows_its_last_whole_document() -> None:
    """A-006: never `ok`, so never a baseline."""
    output, facts = read_output(text("A-006", "fio_status_interval_cut.out")), expected("A-006")["cut"]
    assert output.status == facts["status"]
    assert output.total_ios == facts["last_complete_total_ios"]
    assert "middle" in output.why


def test_an_empty_file_is_no_output() -> None:
    """A-006: what a killed fio leaves with --output."""
    output, facts = read_output(text("A-006", "fio_empty.json")), expected("A-006")["empty"]
    assert (output.status, output.why) == (facts["status"], facts["reason"])


def test_a_human_report_around_the_document_does_no_harm() -> None:
    """A-007: --output-format=normal,json."""
    output, facts = read_output(text("A-007", "fio_normal_and_json.out")), expected("A-007")["fio_normal_and_json"]
    assert output.status == facts["status"]
    assert output.total_ios == facts["read_total_ios"]


def test_a_document_that_begins_in_the_line_of_a_progress_bar_is_found() -> None:
    """A-007: no newline before the brace."""
    check_numbers(read_output(text("A-007", "fio_same_line.out")), expected("A-007")["fio_same_line"])


def test_a_direction_without_samples_has_no_percentile() -> None:
    """A-008: None, never 0."""
    output, facts = read_output(text("A-008", "fio_write_no_samples.out")), expected("A-008")
    check_numbers(output, facts)
    assert output.jobs[0].write is not None
    assert output.jobs[0].write.iops == facts["write_iops"]
    assert output.jobs[0].write.latency.max_ns is None


def test_latency_keys_without_ns_are_microseconds() -> None:
    """A-009: the unit follows from the key."""
    facts = expected("A-009")
    found = []
    for name, key in (("fio_2_14.json", "p99_ns_from_2x"), ("fio_3_33_same_run.json", "p99_ns_from_3x")):
        read = read_output(text("A-009", name)).jobs[0].read
        assert read is not None
        assert read.percentile(99.0) == facts[key]
        found.append(read.percentile(99.0) or 0)
    assert abs(found[0] - found[1]) <= facts["tolerance_ns"]


@pytest.mark.parametrize("name", ["fio_2_14.json", "fio_3_1.json", "fio_3_33.json"])
def test_bytes_and_bandwidth_have_the_same_unit_from_every_version(name: str) -> None:
    """A-010: io_bytes was KiB, bw_bytes is missing before 3.2."""
    facts = expected("A-010")
    read = read_output(text("A-010", name)).jobs[0].read
    assert read is not None
    assert read.bytes == facts["io_bytes"]
    assert abs(read.bytes_per_s - facts["bw_bytes"]) <= facts["tolerance_bytes_per_s"]


def test_padding_percentiles_are_ignored_and_the_rest_is_in_numeric_order() -> None:
    """A-011: `0.00` entries of 3.1."""
    output = read_output(text("A-011", "fio_padded_percentiles.json"))
    check_numbers(output, expected("A-011"))
    assert output.jobs[0].read is not None
    percents = [percent for percent, _ in output.jobs[0].read.percentiles]
    assert percents == sorted(percents)
    assert percents[0] > 0


def test_total_latency_is_not_taken_for_completion_latency() -> None:
    """A-012: with lat_percentiles=1 the distribution sits under lat_ns, and there is none of completion latency."""
    facts = expected("A-012")
    read = read_output(text("A-012", "fio_lat_percentiles.json")).jobs[0].read
    assert read is not None
    assert read.latency_kind == "total"
    assert facts["p99_kind"] == "lat"
    assert read.percentile(99.0, "total") == facts["p99_ns"]
    assert read.percentile(99.0, "completion") is facts["clat_p99_ns"] is None


def test_bins_add_up_and_give_the_printed_percentile() -> None:
    """A-013: keys are durations and numbers, reads and writes apart."""
    (job,) = read_output(text("A-013", "fio_jsonplus.json")).jobs
    for way, facts in expected("A-013").items():
        direction = getattr(job, way)
        assert direction.samples == facts["N"]
        assert direction.latency.count == facts["bins_sum"]
        assert percentile(direction.latency, 99.0) == facts["p99_from_bins"]
        assert direction.percentile(99.0) == facts["p99_printed"]
        assert list(direction.latency.buckets) == sorted(direction.latency.buckets)


def test_unified_reporting_is_neither_doubled_nor_zero() -> None:
    """A-014: `mixed` alone is the total; beside read and write it is ignored, also when it is zero."""
    facts = expected("A-014")
    mixed = read_output(text("A-014", "fio_unified_mixed.json"))
    assert mixed.total_ios == facts["mixed"]["total_ios"]
    assert mixed.jobs[0].read is facts["mixed"]["read"] is None
    for name in ("fio_unified_both.json", "fio_unified_both_zero_mixed.json"):
        (job,) = read_output(text("A-014", name)).jobs
        assert job.read is not None
        assert job.write is not None
        assert (job.total_ios, job.read.ios, job.write.ios) == tuple(facts["both"].values())


def test_a_job_with_an_error_fails_the_whole_fio_with_the_name_of_the_error() -> None:
    """A-015: its partial numbers and huge eta mean nothing."""
    facts = expected("A-015")
    one = read_output(text("A-015", "fio_job_error22.json"))
    assert (one.status, one.errno) == ("failed", facts["fio_job_error22"]["errno"])
    assert facts["fio_job_error22"]["errname"] in one.why
    two = read_output(text("A-015", "fio_one_of_two_failed.json"))
    assert two.status == "failed"
    assert list(two.failed_jobs) == facts["fio_one_of_two_failed"]["failed_jobs"]
    assert len(two.jobs) == 2


def test_a_log_with_four_columns_reads_as_one_with_five() -> None:
    """A-016: unknown columns are ignored."""
    old, new = (parse_log(text("A-016", f"lg_iops_{columns}col.log"), "log") for columns in (4, 5))
    assert old == new
    assert [old[0].end_ms, old[0].value] == expected("A-016")["first"]


@pytest.mark.parametrize("line", ["200, 105, 0", "200", "200, x, 0, 0", "fio: died, 1, 2, 3"])
def test_a_short_or_foreign_line_of_a_log_is_an_error_with_its_number(line: str) -> None:
    """A-016: the file and the line are named."""
    with pytest.raises(FormatError, match=r"calyx_bw\.1\.log:2: "):
        parse_log(f"100, 1, 0, 0\n{line}\n", "calyx_bw.1.log")


def test_a_verify_failure_is_told_as_one() -> None:
    """A-017: errno 84 is no character-set error."""
    facts = expected("A-017")
    output = read_output(text("A-017", "fio_verify_failed.out"), text("A-017", "fio_verify_failed.err"), 1)
    assert (output.status, output.errno) == (facts["status"], facts["errno"])
    assert output.why.startswith("data verification failed (EILSEQ)")


def test_a_killed_worker_fails_a_run_that_ended_with_zero() -> None:
    """A-018: stderr decides, neither the exit status nor the job's error."""
    status = int(text("A-018", "rc"))
    output = read_output(text("A-018", "fio_worker_killed.out"), text("A-018", "fio_worker_killed.err"), status)
    facts = expected("A-018")
    assert status == 0
    assert (output.status, output.why) == (facts["status"], facts["reason"])


def test_an_engine_that_cannot_be_loaded_is_told_in_the_words_of_fio() -> None:
    """A-022: three lines on two streams, no document."""
    output = read_output(text("A-022", "engine_not_loadable.out"), text("A-022", "engine_not_loadable.err"), 1)
    assert output.status == "failed"
    assert "liburing" in output.why
    assert "exit status 1" in output.why


@pytest.mark.parametrize(
    ("case", "name", "error", "errno"),
    [("A-027", "fio_eperm.out", "EPERM", 1), ("A-030", "fio_enomem.out", "ENOMEM", 12)],
)
def test_a_ring_that_fio_was_refused_fails_the_run_although_it_carries_numbers(
    case: str, name: str, error: str, errno: int
) -> None:
    """A-027, A-030: io_uring is forbidden, or its memory is; the figures beside it are those of a good run."""
    output = read_output(text(case, name), exit_status=1)
    assert (output.status, output.errno) == ("failed", errno)
    assert error in output.why
    assert "io_queue_init" in " ".join(output.messages)
    (job,) = output.jobs
    assert job.read is not None
    assert job.read.ios == 1024


def test_a_directory_as_target_fails_the_run() -> None:
    """A-023: the document of a run with EISDIR is no result."""
    output = read_output(text("A-023", "dir_target.out"), text("A-023", "dir_target.err"), 1)
    assert output.status == "failed"
    assert "EISDIR" in output.why


PRINTED = [
    path
    for path in sorted([*JSON_CASES.glob("A-0*/*.*"), *RUN_CASES.glob("A-018/*.out")])
    if '"bins"' in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", PRINTED, ids=lambda path: path.name)
def test_our_percentiles_of_the_bins_equal_all_that_fio_printed(path: Path) -> None:
    """On the grid of 64, by the same rule, without tolerance."""
    compared = 0
    for job in read_output(path.read_text(encoding="utf-8")).jobs:
        for direction in (job.read, job.write):
            for percent, value in direction.percentiles if direction is not None else ():
                assert direction is not None
                assert percentile(direction.latency, percent) == value
                compared += 1
    assert compared >= 10


@given(st.text(), st.text(), st.integers(0, 255))
def test_no_output_of_a_dying_fio_raises(stdout: str, stderr: str, status: int) -> None:
    """Any text gives a status and, when it is not ok, a reason."""
    output = read_output(stdout, stderr, status)
    assert output.status == "failed"
    assert output.why


@given(st.data())
def test_no_damage_to_a_document_raises_or_passes_as_good_when_it_is_cut(data: st.DataObject) -> None:
    """A document that was cut anywhere is never `ok`."""
    whole = text("A-013", "fio_jsonplus.json").rstrip()
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert read_output(whole[:cut]).status == "failed"


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5), st.data()
)
def test_no_value_in_a_document_raises(value: Any, data: st.DataObject) -> None:
    """Whatever stands where a number should be gives a sentence, not a traceback."""
    document = json.loads(text("A-013", "fio_jsonplus.json"))
    job = document["jobs"][0]
    place = data.draw(
        st.sampled_from([document, job, job["read"], job["read"]["clat_ns"], job["read"]["clat_ns"]["bins"]])
    )
    place[data.draw(st.sampled_from(sorted(place)))] = value
    read_output(json.dumps(document))


def test_an_exit_status_is_told_with_fio_s_last_words() -> None:
    """Of a fio 3.33 whose file is gone, which ends with status 1 and error 0, only stderr says why; a prerun's line does not."""
    document = json.dumps(
        {"fio version": "fio-3.33", "jobs": [{"jobname": "job0", "error": 0, "read": {"total_ios": 0}}]}
    )
    said = "fio: file creation disallowed by allow_file_create=0\njob0 : Saving output of prerun in job0.prerun.txt\n"
    output = read_output(document, said, 1)
    assert output.why == "fio ended with exit status 1: file creation disallowed by allow_file_create=0"
    assert read_output(document, "", 1).why == "fio ended with exit status 1"


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e308", "1e999", "NaN", '"x"', "-1", "[]", "9223372036854775808"])
@pytest.mark.parametrize("key", ["io_bytes", "total_ios", "runtime"])
def test_a_number_that_is_none_is_a_sentence(key: str, number: str) -> None:
    """Not an exception, and nothing that a float or a file cannot hold."""
    document = '{"fio version": "fio-3.33", "jobs": [{"jobname": "job0", "read": {"KEY": VALUE}}]}'
    document = document.replace("KEY", key).replace("VALUE", number)
    output = read_output(document)
    assert output.status == "failed"
    assert "in fio's document is" in output.why


def test_what_only_looks_like_documents_is_read_in_bounded_time() -> None:
    """Objects that never end would each cost a reading of all that follows."""
    began = time.monotonic()
    output = read_output('{"a":[' * 900 + "1," * 1_000_000)
    assert output.status == "failed"
    assert time.monotonic() - began < 20
