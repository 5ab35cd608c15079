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
from calyx_orch.model import GuestOutcome, LoadMode, Resumed, RunRecord
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
    text = section(shown(record, summary, width=250), "guest by guest")
    row = next(row for row in summary.guests if row.load == "together" and row.engine == "fio-io_uring")
    line = next(line for line in text.splitlines() if line.split()[:5:2] == [row.guest, "randread-4k", "fio-io_uring"])
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


def test_failures_fleet_guests_comparisons_doubts_and_the_sentence_follow_in_this_order(
    record: RunRecord, summary: Summary
) -> None:
    text = shown(record, summary, sentence="Said last.")
    titles = [
        "guests that failed",
        "the fleet",
        "guest by guest",
        "calyx / fio",
        "with neighbours / alone",
        "what is doubtful",
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
    tables_only = text.splitlines()[:-2]
    assert 120 < max(map(len, tables_only)) <= 160
    for odd in ("-5", "", "many"):
        monkeypatch.setenv("COLUMNS", odd)
        assert shown(record, summary) == text
    monkeypatch.setenv("COLUMNS", "100")
    assert max(map(len, shown(record, summary).splitlines()[:-2])) <= 100


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200])
def test_no_number_is_cut_at_any_width(record: RunRecord, summary: Summary, width: int) -> None:
    text = shown(record, summary, width=width)
    assert "…" not in text
    rows = [row for row in summary.guests if row.load == "together" and row.workload == "randread-4k"]
    body = section(text, "guest by guest")
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
    narrow = " ".join(section(shown(record, summary, width=80), "guest by guest").split())
    assert (
        "no room in 80 columns for: vm_host, rounds, CV within run, CV between repetitions, P50, P99.9, CPU, CPU engine"
        in narrow
    )
    assert "no room" not in section(shown(record, summary, width=250), "guest by guest")


def test_a_column_without_any_figure_takes_no_room_and_is_named(record: RunRecord, summary: Summary) -> None:
    """With one repetition there is no CV between repetitions, and a P99.9 may lack samples in every row."""
    blank = replace(
        summary, guests=tuple(replace(row, cv_between_repetitions=None, p999_ns=None) for row in summary.guests)
    )
    body = section(shown(record, blank, width=160), "guest by guest")
    assert "Not known in any row: CV between repetitions, P99.9." in " ".join(body.split("──")[0].split())
    head = body.split("──")[0].rsplit("guest ", 1)[1]
    assert "P99.9" not in head


def test_a_narrow_terminal_keeps_what_tells_one_row_from_another(record: RunRecord, summary: Summary) -> None:
    body = section(shown(record, summary, width=80), "guest by guest")
    lines = [tuple(line.split()[:4]) for line in body.splitlines() if line.startswith("hv")]
    assert len(lines) == 32
    assert len(set(lines)) == 32


def test_of_many_rows_those_furthest_above_their_peers_are_shown() -> None:
    record = run_record(64, per_host=16, blocks=1, runtime_s=2.0, loads=(LoadMode.TOGETHER,))
    summary = summarise(record)
    slow = next(row for row in summary.guests if row.workload == "seqwrite-1m" and row.engine == "calyx")
    summary = replace(
        summary, guests=tuple(replace(row, p99_ns=10**10) if row is slow else row for row in summary.guests)
    )
    body = section(
        shown(record, summary), "guest by guest, the 30 of 256 rows furthest above the P99 of their peers (short run)"
    )
    lines = [line for line in body.splitlines() if line.startswith("hv")]
    assert len(lines) == 30
    assert sum(line.startswith(slow.guest) and wording.latency(10**10) in line for line in lines) == 1
    assert sum(line.startswith("hv4-vm16") for line in lines) >= 2  # it was lost: not all of its rounds


@pytest.mark.parametrize(("guests", "lines_max"), [(1, 45), (4, 95), (64, 110)])
def test_a_run_is_told_on_a_screen_or_two(guests: int, lines_max: int) -> None:
    """Also of 64 guests: failures, fleet, worst rows, ratios of the fleet, places, doubts."""
    record = run_record(guests, per_host=min(16, max(1, guests // 2)), blocks=1, runtime_s=2.0)
    for width in (80, 120, 160):
        assert len(shown(record, summarise(record), width=width).splitlines()) <= lines_max


def test_the_ratios_of_a_fleet_are_one_row_a_workload_load_and_engine(record: RunRecord, summary: Summary) -> None:
    body = section(shown(record, summary), "calyx / fio over the fleet")
    lines = [line for line in body.splitlines() if "fio-io_uring" in line]
    assert len(lines) == 4
    row = next(row for row in summary.fleet_pairs if row.metric == "IOPS" and row.load == "together")
    assert f"{row.ratio:.3f} ({row.low:.2f}-{row.high:.2f})" in lines[0]
    few = run_record(2, per_host=1, blocks=1, runtime_s=2.0)
    by_guest = section(shown(few, summarise(few)), "calyx / fio (short run)")
    assert {line.split()[0] for line in by_guest.splitlines() if "fio-io_uring" in line} == {"hv1-vm01", "hv2-vm01"}


def test_places_tell_of_interference_and_a_vm_host_of_one_guest_is_no_place() -> None:
    record = run_record(5, per_host=4, blocks=1, runtime_s=2.0)
    body = section(shown(record, summarise(record)), "with neighbours / alone, of each place")
    names = [line.split()[:2] for line in body.splitlines() if line.startswith(("vm_host", "guest", "storage"))]
    assert [name for _, name in names] == ["hv1"] * 4 + [
        "hv2-vm01"
    ] * 2  # alone on its vm_host, so no place tells of it; lost later
    assert "each measured at a time of its own" in body


def test_a_doubt_is_one_line_and_its_letter_stands_in_the_rows(record: RunRecord, summary: Summary) -> None:
    late = replace(record, measurements=tuple(
        replace(m, skew_ns=9_000_000) if (m.guest, m.engine, m.status) == ("hv1-vm01", "calyx", "ok") else m for m in record.measurements
    ))  # fmt: skip
    text = shown(late, summarise(late), width=80)
    doubts = text.split("\nwhat is doubtful")[1].split("\nnote:")[0].split("\n\n")[0].splitlines()[1:]
    (line,) = [line for line in doubts if "skew 9.0 ms (hv1-vm01)" in line]
    letter = line.split()[0]
    rows = [line for line in section(text, "guest by guest").splitlines() if line.startswith("hv")]
    marked = [line for line in rows if letter in line.split()[7:]]
    assert {(line.split()[0], line.split()[3]) for line in marked} == {("hv1-vm01", "calyx")}
    assert all(len(line) <= 80 for line in doubts)
    struck = {name for row in summarise(late).guests for name in row.doubt_names}
    assert len(doubts) == len(struck)


def test_a_skew_of_which_only_the_gate_is_known_is_marked(record: RunRecord) -> None:
    gate = replace(record, measurements=tuple(
        replace(m, skew_how="released", skew_ns=900) if m.engine != "calyx" else m for m in record.measurements
    ))  # fmt: skip
    body = section(shown(gate, summarise(gate), width=250), "guest by guest")
    lines = [line for line in body.splitlines() if line.startswith("hv") and "randread" in line]
    assert all(("gate only" in line) == ("fio-io_uring" in line) for line in lines)
    assert len(lines) == 16
    assert "gate only" in section(shown(gate, summarise(gate), width=250), "the fleet")


def test_a_run_in_which_nobody_was_measured_shows_no_table_of_figures(record: RunRecord) -> None:
    lost = tuple(GuestOutcome(one.guest, "lost", "connect", "no route to host") for one in record.outcomes)
    empty = replace(record, measurements=(), outcomes=lost, status="failed", notes=())
    text = shown(empty, summarise(empty), sentence=verdict.sentence(empty, summarise(empty)))
    assert "n/a" not in text
    assert not re.search(r"^(the fleet|guest by guest|calyx / fio|with neighbours)", text, re.M)
    assert text.count("no route to host") == 4  # once a guest, in the table


def test_after_an_interrupt_what_was_not_run_takes_no_rows(record: RunRecord) -> None:
    """Nine rounds were played; the other workload and load were not."""
    cut = replace(record, measurements=tuple(m for m in record.measurements if m.round_index < 9), status="interrupted")
    text = shown(cut, summarise(cut))
    body = section(text, "guest by guest")
    assert "Not run and not shown: 24 rows." in body
    assert "seqwrite" not in body
    assert "n/a" not in section(text, "calyx / fio")
    assert "with neighbours / alone" not in text


def test_many_notes_are_cut_to_a_few(record: RunRecord, summary: Summary) -> None:
    noted = replace(record, notes=tuple(f"guests a{n} and b are one machine" for n in range(30)))
    text = shown(noted, summary)
    assert text.count("note: ") == 7
    assert "note: and 24 notes more in the report" in text


def test_a_short_run_is_labelled_in_every_table() -> None:
    record = run_record(3, per_host=2, blocks=1, runtime_s=2.0)
    text = shown(record, summarise(record))
    titles = [
        line for line in text.splitlines() if re.match(r"(the fleet|guest by guest|calyx / fio|with neighbours)", line)
    ]
    assert len(titles) == 4
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
    assert whole["sentence"] == verdict.sentence(record, summary, is_drawn=False)  # of a folder that is not there
    assert len(whole["guests"]) == len(summary.guests)
    assert whole["guests"][0]["throughput_bytes_per_s"] == summary.guests[0].throughput_bytes_per_s
    assert set(whole) == {
        "format",
        "run",
        "outcomes",
        "found",
        "conditioned",
        "load_points",
        "settled",
        "guests",
        "fleet",
        "pairs",
        "interference",
        "places",
        "doubts",
        "fleet_pairs",
        "fairness",
        "parts",
        "steady",
        "density",
        "carried",
        "sentence",
    }


def test_a_dry_run_lists_its_rounds_by_workload_and_says_that_this_is_not_their_order(record: RunRecord) -> None:
    """Whatever was drawn: workloads and loads as the inventory has them, calyx before fio."""
    last_first = replace(record.plan, rounds=tuple(reversed(record.plan.rounds)))
    told = []
    for plan in (record.plan, last_first):
        out = io.StringIO()
        terminal.dry_run(plan, (), Console(file=out, highlight=False))
        told.append(out.getvalue().partition("\nrounds\n")[2].partition("\n\n")[0])
    assert told[0] == told[1]
    assert "in an order drawn from the seed" in told[0]
    lines = [line.split() for line in told[0].splitlines()]
    engines = [word for line in lines for word in line if word == "calyx" or word.startswith("fio-")]
    assert engines[0] == "calyx"
    names = [line[0] for line in lines if "calyx" in line]
    assert list(dict.fromkeys(names)) == [workload.name for workload in record.plan.inventory.workloads]


def test_a_dry_run_shows_rounds_costs_and_what_needs_leave(record: RunRecord) -> None:
    rows = [*planning.describe(record.plan)]
    rows[1] = replace(rows[1], exceeds=True)
    out = io.StringIO()
    terminal.dry_run(record.plan, tuple(rows), Console(file=out, highlight=False))
    text = out.getvalue()
    assert "randread-4k  together  calyx" in text
    assert "needs --allow-growth" in text
    assert "would refuse" not in text
    terminal.dry_run(record.plan, tuple(rows), Console(file=out, highlight=False), refusal="too much")
    assert out.getvalue().endswith("Nothing was touched. As it stands, `run` would refuse this: too much.\n")
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


def test_a_ratio_that_some_guests_lack_says_of_how_many_it_is(record: RunRecord, summary: Summary) -> None:
    first = next(row for row in summary.fleet_pairs if row.metric == "P99")
    rows = tuple(replace(row, guests=2) if row is first else row for row in summary.fleet_pairs)
    body = section(shown(record, replace(summary, fleet_pairs=rows)), "calyx / fio over the fleet")
    assert f"{first.ratio:.3f} ({first.low:.2f}-{first.high:.2f}, of 2)" in body


def test_what_a_resume_measured_again_is_told_plainly(record: RunRecord) -> None:
    """One or several, as such; nothing where nothing was."""
    told = []
    for again in (0, 1, 3):
        resumed = (Resumed("2026-12-01T10:00:00+00:00", 60.0, 4, again),)
        told.append(str(tables.header(replace(record, resumed=resumed))))
    assert "again" not in told[0]
    assert "; 1 that was measured before was measured again, to keep blocks whole" in told[1]
    assert "; 3 that were measured before were measured again, to keep blocks whole" in told[2]
