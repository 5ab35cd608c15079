"""The terminal: every number whole at every width, the worst of many guests, no control character of a guest, strict JSON."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from calyx_orch import plan as planning
from calyx_orch.analysis import verdict
from calyx_orch.analysis.summary import Summary, summarise
from calyx_orch.model import GuestOutcome, LoadMode, RunRecord
from calyx_orch.report import facts, tables, terminal, wording
from report_records import run_record


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return run_record(4, per_host=2, blocks=3, runtime_s=60.0)


@pytest.fixture(scope="module")
def summary(record: RunRecord) -> Summary:
    return summarise(record)


def shown(record: RunRecord, summary: Summary, *, width: int | None = None, sentence: str = "All is well.") -> str:
    """What a pipe (no width) or a terminal of `width` gets."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=width is not None, width=width, color_system=None, highlight=False)
    terminal.show(record, summary, sentence, console)
    return out.getvalue()


def section(text: str, title: str) -> str:
    """The lines of one table."""
    return text.split(f"\n{title}", 1)[1].split("\n\n", 1)[0]


def test_the_table_has_guest_target_workload_engine_and_every_figure(record: RunRecord, summary: Summary) -> None:
    text = section(shown(record, summary), "randread-4k on data, together")
    row = next(row for row in summary.guests if row.load == "together" and row.engine == "fio-io_uring")
    line = next(line for line in text.splitlines() if line.startswith(row.guest) and "fio-io_uring" in line)
    for value in (
        wording.megabytes(row.throughput_bytes_per_s),
        wording.significant(row.iops),
        wording.cv(row.cv_within_run),
        wording.cv(row.cv_between_repetitions),
        wording.latency(row.p50_ns),
        wording.latency(row.p99_ns),
        wording.latency(row.p999_ns),
        wording.percent(row.cpu_percent),
        wording.latency(row.cpu_ns_per_io),
        wording.latency(row.skew_median_ns),
    ):
        assert value in line
        assert value != "n/a"
    head = " ".join(text.split("──")[0].split())
    for word in ("guest", "engine", "MB/s", "IOPS", "P50", "P99", "P99.9", "CPU", "skew"):
        assert word in head


def test_the_fleet_pairs_neighbours_failures_and_the_sentence_follow_in_this_order(
    record: RunRecord, summary: Summary
) -> None:
    text = shown(record, summary, sentence="Said last.")
    titles = [
        "randread-4k on data, together",
        "the fleet",
        "calyx / fio",
        "with neighbours / alone",
        "guests that failed",
    ]
    places = [text.index(f"\n{title}") for title in titles]
    assert places == sorted(places)
    assert text.rstrip().endswith("\nSaid last.")
    assert "no answer for 15 s: the connection was lost" in section(text, "guests that failed")


def test_a_pipe_gets_no_colours_and_160_columns_or_those_of_columns(
    record: RunRecord, summary: Summary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    text = shown(record, summary)
    assert "\x1b" not in text
    tables_only = text.split("doubtful:")[0].splitlines()
    assert 120 < max(map(len, tables_only)) <= 160
    monkeypatch.setenv("COLUMNS", "100")
    assert max(map(len, shown(record, summary).split("doubtful:")[0].splitlines())) <= 100


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200])
def test_no_number_is_cut_at_any_width(record: RunRecord, summary: Summary, width: int) -> None:
    text = shown(record, summary, width=width)
    assert "…" not in text
    rows = [row for row in summary.guests if row.load == "together" and row.workload == "randread-4k"]
    body = section(text, "randread-4k on data, together")
    for row in rows:
        for value in (
            wording.megabytes(row.throughput_bytes_per_s),
            wording.significant(row.iops),
            wording.latency(row.p99_ns),
        ):
            assert re.search(rf"(^|\s){re.escape(value)}(\s|$)", body, re.M), (width, value)
    if width >= 80:
        assert max(map(len, text.splitlines())) <= width


def test_columns_that_have_no_room_are_named(record: RunRecord, summary: Summary) -> None:
    narrow = " ".join(section(shown(record, summary, width=80), "randread-4k on data, together").split())
    assert "no room in 80 columns for: vm_host, rounds, CV between repetitions, CPU engine, CPU per I/O, skew" in narrow
    assert "no room" not in section(shown(record, summary, width=200), "randread-4k on data, together")


def test_a_narrow_terminal_keeps_what_tells_one_row_from_another(record: RunRecord, summary: Summary) -> None:
    body = section(shown(record, summary, width=80), "calyx / fio")
    lines = [tuple(line.split()[:4]) for line in body.splitlines() if line.startswith("hv")]
    assert len(lines) == 16
    assert len(set(lines)) == 16


def test_many_guests_are_told_by_the_fleet_and_the_thirty_worst() -> None:
    record = run_record(64, per_host=16, blocks=1, runtime_s=2.0, loads=(LoadMode.TOGETHER,))
    summary = summarise(record)
    text = shown(record, summary)
    body = section(text, "randread-4k on data, together, the 30 worst of 64 guests (short run)")
    names = {line.split()[0] for line in body.splitlines() if line.startswith("hv")}
    assert len(names) == 30
    rows = [row for row in summary.guests if row.workload == "randread-4k" and row.p99_ns is not None]
    assert max(rows, key=lambda row: row.p99_ns or 0).guest in names
    assert min(rows, key=lambda row: row.p99_ns or 0).guest not in names
    lost = section(text, "seqwrite-1m on data, together, the 30 worst of 64 guests")
    assert "hv4-vm16" in lost


def test_a_short_run_is_labelled_in_every_table() -> None:
    record = run_record(3, per_host=2, blocks=1, runtime_s=2.0)
    text = shown(record, summarise(record))
    titles = [
        line for line in text.splitlines() if re.match(r"(\S+ on data, |the fleet|calyx / fio|with neighbours)", line)
    ]
    assert len(titles) == 7
    assert all(title.endswith("(short run)") for title in titles)


def test_control_characters_and_markup_of_guests_are_shown_not_obeyed(record: RunRecord) -> None:
    evil = "\x1b]0;owned\x07[bold red]x[/] \u202e"
    bad = replace(
        record,
        outcomes=(*record.outcomes, GuestOutcome("vm\x1b[2J", "lost", "connect", evil)),
        notes=(evil,),
        measurements=tuple(replace(m, why=evil) if m.status != "ok" else m for m in record.measurements),
    )
    for width in (None, 120):
        text = shown(bad, summarise(bad), width=width, sentence=evil)
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\u202e" not in text
        assert "[bold red]x[/]" in text
        assert "vm\\x1b[2J" in text


def test_an_empty_run_still_ends_with_its_sentence(record: RunRecord) -> None:
    outcomes = tuple(GuestOutcome(one.guest, "lost", "connect", "refused") for one in record.outcomes)
    empty = replace(record, measurements=(), outcomes=outcomes)
    text = shown(empty, summarise(empty), sentence="Nothing was measured.")
    assert text.count("refused") == 4
    assert text.rstrip().endswith("Nothing was measured.")


def test_json_is_strict_and_holds_every_row(record: RunRecord, summary: Summary) -> None:
    broken = replace(summary, guests=(replace(summary.guests[0], iops=float("nan"), cv_within_run=float("inf")),))
    data = terminal.to_json(record, broken)
    text = json.dumps(data, allow_nan=False)
    assert json.loads(text)["guests"][0]["iops"] is None
    assert json.loads(text)["guests"][0]["cv_within_run"] is None
    whole = json.loads(json.dumps(terminal.to_json(record, summary), allow_nan=False))
    assert whole["format"] == "calyx-orch-result/1"
    assert whole["run"]["seed"] == 7
    assert whole["run"]["is_short"] is False
    assert whole["sentence"] == verdict.sentence(record, summary)
    assert len(whole["guests"]) == len(summary.guests)
    assert whole["guests"][0]["throughput_bytes_per_s"] == summary.guests[0].throughput_bytes_per_s
    assert set(whole) == {
        "format",
        "run",
        "outcomes",
        "found",
        "guests",
        "fleet",
        "pairs",
        "interference",
        "places",
        "doubts",
        "fleet_pairs",
        "sentence",
    }


def test_a_dry_run_shows_rounds_costs_and_what_needs_leave(record: RunRecord) -> None:
    rows = [*planning.describe(record.plan)]
    rows[1] = replace(rows[1], exceeds=True)
    out = io.StringIO()
    terminal.dry_run(record.plan, tuple(rows), Console(file=out, highlight=False))
    text = out.getvalue()
    assert "randread-4k  together  calyx" in text
    assert "needs --allow-growth" in text
    assert "72 rounds, about" in text
    assert "seed 7" in text
    assert "hv1-vm01" in text


def test_fleet_sums_are_the_sums_of_the_rows_shown(record: RunRecord, summary: Summary) -> None:
    fleet = next(row for row in summary.fleet if row.workload == "randread-4k" and row.engine == "calyx")
    made = tables.table("fleet", "", tables.FLEET, summary.fleet)
    assert made is not None
    column = [column.title for column in made.columns].index("IOPS")
    total = sum(
        row.iops or 0
        for row in summary.guests
        if (row.workload, row.engine, row.load) == ("randread-4k", "calyx", "together")
    )
    assert made.rows[0][column] == wording.significant(total)
    assert fleet.iops == pytest.approx(total)


@pytest.mark.parametrize("nonsense", [None, "x", 7, [], ["x"], [None], {"ok": True}, {"ok": False, "setups": 3}])
def test_facts_of_any_shape_make_a_table(record: RunRecord, nonsense: object) -> None:
    names = ("kernel", "cpus", "memory_bytes", "io_uring", "paths", "programs", "fio", "hypervisor")
    odd = replace(record, facts={guest: dict.fromkeys(names, nonsense) for guest in record.facts})
    made = facts.guests(odd)
    assert made is not None
    assert len(made.rows) == 4
    assert all(len(row) == len(made.columns) for row in made.rows)
