"""The benchmarks' own arithmetic: ratios, intervals, verdicts, and what is read from valgrind and strace."""

from __future__ import annotations

import itertools
import json
import math
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import engine  # noqa: E402  (the benchmarks are programs, found by their directory)
import paper  # noqa: E402
from side_by_side import cells, costs, goals, pairs, present, profile, record  # noqa: E402
from side_by_side.goals import Figure, Verdict, at_least, at_most, judge  # noqa: E402
from side_by_side.guest import Sample, Side  # noqa: E402

from calyx_orch.errors import GuestError  # noqa: E402
from calyx_orch.model import Rw, Workload  # noqa: E402

SAMPLE = Sample(
    iops=1000.0,
    bytes_per_s=4_096_000.0,
    p50_ns=100_000,
    p99_ns=200_000,
    ios=3000,
    cpu_ns=3_000_000,
    cpu_user_ns=30_000_000,
    busy_percent=50.0,
    engine_percent=20.0,
    setup={"took": "defer"},
    counts={"enter": 3000},
)


# --- ratios ------------------------------------------------------------------------------------------------------


def test_a_ratio_and_its_inverse_have_inverse_intervals() -> None:
    """Swapping the sides of every pair inverts the ratio and swaps its bounds."""
    given = [(110.0, 100.0), (95.0, 100.0), (120.0, 90.0), (101.0, 99.0)]
    there, back = pairs.of_pairs(given), pairs.of_pairs([(second, first) for first, second in given])
    assert there.low is not None
    assert back.high is not None
    assert there.value == pytest.approx(1 / back.value)
    assert there.low == pytest.approx(1 / back.high)


def test_the_interval_is_students() -> None:
    """Two pairs have one degree of freedom: t is 12.7062 times the standard error of the logarithms."""
    found = pairs.of_pairs([(math.e, 1.0), (1.0, 1.0)])
    assert found.value == pytest.approx(math.exp(0.5))
    assert found.high == pytest.approx(math.exp(0.5 + 12.7062 * 0.5))


@pytest.mark.parametrize(("freedom", "t"), [(1, 12.706), (5, 2.571), (10, 2.228), (39, 2.0227), (120, 1.9799)])
def test_t_is_that_of_the_tables(freedom: float, t: float) -> None:
    """Below eleven degrees from a table, above it by expansion; both agree with printed tables."""
    assert pairs.t_975(freedom) == pytest.approx(t, abs=5e-4)


def test_intervals_hold_what_they_promise() -> None:
    """Of 400 runs of 8 noisy pairs with a true ratio of 1, about 5 % of the intervals miss it."""
    draw = random.Random(7)

    def run() -> pairs.Estimate:
        return pairs.of_pairs([(math.exp(draw.gauss(0, 0.2)), math.exp(draw.gauss(0, 0.2))) for _ in range(8)])

    misses = sum(
        not (low <= 1 <= high) for low, high in ((e.low or 0, e.high or 0) for e in (run() for _ in range(400)))
    )
    assert 8 <= misses <= 34  # 20 expected; 3 standard deviations are 13


def test_a_geometric_mean_weighs_cells_alike() -> None:
    """A cell with many pairs counts no more than one with few."""
    found = pairs.geometric_mean([[(2.0, 1.0), (2.1, 1.0)], [(1.0, 2.0), (1.0, 2.1)] * 10])
    assert found.value == pytest.approx(1.0, abs=1e-9)
    assert found.pairs == 2


def test_a_geometric_mean_is_narrower_than_its_cells() -> None:
    """Independent noise of four cells averages out."""
    draw = random.Random(3)
    each = [[(math.exp(draw.gauss(0, 0.1)), 1.0) for _ in range(20)] for _ in range(4)]
    whole = pairs.geometric_mean(each)
    alone = pairs.of_pairs(each[0])
    assert math.log((whole.high or 0) / (whole.low or 1)) < 0.75 * math.log((alone.high or 0) / (alone.low or 1))


def test_one_pair_gives_no_interval() -> None:
    """One pair has a ratio and nothing is said about how sure it is."""
    assert pairs.of_pairs([(2.0, 1.0)]) == pairs.Estimate(2.0, None, None, 1)
    assert pairs.geometric_mean([[(2.0, 1.0)], [(2.0, 1.0), (3.0, 1.0)]]).low is None


def test_pairs_without_figures_are_refused() -> None:
    """Zeros have no ratio."""
    with pytest.raises(ValueError, match="no pair"):
        pairs.of_pairs([(0.0, 1.0), (1.0, 0.0)])


def test_a_steadier_side_has_a_smaller_variation() -> None:
    """The ratio of CVs lies below 1 with its whole interval when one side hardly varies."""
    draw = random.Random(5)
    steady, wild = ([100 + draw.gauss(0, spread) for _ in range(40)] for spread in (1, 10))
    found = pairs.of_variations(steady, wild)
    assert (found.high or 1) < 0.5 < 1


# --- goals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "count", "goal", "verdict"),
    [
        (0.99, 1.05, 40, at_least(0.99), Verdict.MET),
        (0.98, 1.05, 40, at_least(0.99), Verdict.MISSED),
        (0.98, 1.05, 39, at_least(0.99), Verdict.OPEN),
        (0.90, 0.98, 3, at_least(0.99), Verdict.MISSED),
        (0.80, 1.05, 40, at_least(1.0, significant=True), Verdict.MET),
        (0.80, 1.05, 5, at_least(1.0, significant=True), Verdict.OPEN),
        (0.80, 0.99, 40, at_least(1.0, significant=True), Verdict.MISSED),
        (0.80, 1.01, 40, at_most(1.0), Verdict.MISSED),
        (0.80, 1.01, 40, at_most(1.0, significant=True), Verdict.MET),
        (1.01, 1.20, 4, at_most(1.0, significant=True), Verdict.MISSED),
        (0.70, 0.90, 3, at_most(0.90), Verdict.MET),
    ],
)
def test_verdicts(low: float, high: float, count: int, goal: goals.Goal, verdict: Verdict) -> None:
    """An interval on both sides of a bound is open until there are pairs enough; then a bound is missed, significance not."""
    estimate = pairs.Estimate((low * high) ** 0.5, low, high, count)
    assert judge(Figure("cell", "figure", estimate, goal)) is verdict


def test_a_count_is_judged_without_pairs() -> None:
    """A counted figure is never open."""
    assert judge(Figure("c", "f", pairs.exact(0.0), at_most(0.0))) is Verdict.MET
    assert judge(Figure("c", "f", pairs.exact(1.0), at_most(0.0))) is Verdict.MISSED
    assert judge(Figure("c", "f", None, at_most(0.0))) is Verdict.OPEN


def test_the_furthest_figure_is_the_worst_miss() -> None:
    """Distances are ratios to the bound, in the direction of the miss; what has no goal is no candidate."""
    near = Figure("near", "P99", pairs.Estimate(1.02, 0.99, 1.05, 40), at_most(1.0))
    vague = Figure("vague", "P99", pairs.Estimate(3.0, 0.1, 90.0, 3), at_most(1.0))
    far = Figure("far", "IOPS", pairs.Estimate(0.85, 0.8, 0.9, 40), at_least(0.99))
    told = Figure("told", "P50", pairs.Estimate(9.0, 8.0, 10.0, 40))
    assert goals.furthest([near, vague, far, told]) is far
    assert "far: IOPS" in present.last_line([near, far, told])
    assert "2 of 2 goals missed" in present.last_line([near, far, told])


# --- figures of samples ------------------------------------------------------------------------------------------


def _samples(names: dict[tuple[str, str], Sample], count: int) -> cells.Samples:
    found = cells.Samples()
    for key, sample in names.items():
        found.by_side[key] = [
            replace(sample, iops=sample.iops * (1 + 0.01 * k), bytes_per_s=sample.bytes_per_s * (1 + 0.01 * k))
            for k in range(count)
        ]
    return found


def test_engine_figures_are_calyx_over_fio() -> None:
    """Twice the IOPS is 2, half the latency and CPU is 0.5, and the goals are judged on that."""
    better = replace(SAMPLE, iops=2000.0, p99_ns=100_000, cpu_ns=1_500_000)
    found = engine.pair_figures(_samples({("randread-4k-q8", "calyx"): better, ("randread-4k-q8", "fio"): SAMPLE}, 40))
    by_name = {(figure.cell, figure.name): figure for figure in found}
    for name, value in (("IOPS", 2.0), ("P99", 0.5), ("CPU per I/O", 0.5)):
        figure = by_name["randread-4k-q8", name]
        assert figure.estimate is not None
        assert figure.estimate.value == pytest.approx(value)
        assert judge(figure) is Verdict.MET
    assert by_name["randread-4k, 1 of 6 depths", "P99"].goal == at_most(1.0)


def test_growth_is_the_same_side_at_two_depths() -> None:
    """CPU of the guest from QD 8 to QD 64 compares an engine with itself."""
    named = {
        (f"seqread-1m-q{depth}", side): replace(SAMPLE, busy_percent=percent)
        for side, each in (("calyx", (40.0, 44.0)), ("fio", (40.0, 60.0)))
        for depth, percent in zip((8, 64), each, strict=True)
    }
    found = {figure.name: figure for figure in engine.pair_figures(_samples(named, 40)) if "growth" in figure.name}
    calyx, fio = found["CPU of the guest, growth, calyx"], found["CPU of the guest, growth, fio"]
    assert calyx.estimate is not None
    assert fio.estimate is not None
    assert calyx.estimate.value == pytest.approx(1.1)
    assert judge(calyx) is Verdict.MISSED
    assert fio.estimate.value == pytest.approx(1.5)
    assert judge(fio) is Verdict.NONE


def test_the_full_run_has_the_cells_of_the_goals() -> None:
    """Every depth of the random reads, the growth depths, and the XFS write are there; names are unique."""
    names = [cell.name for cell in engine.all_cells(3.0, 1 << 30)]
    assert len(names) == len(set(names)) == 11
    assert {"randread-4k-q1", "randread-4k-q64", engine.READ, engine.WRITE} <= set(names)


PAPER = {
    ("read-ext4-q8", "calyx defer"): SAMPLE,
    ("read-ext4-q8", "calyx coop"): replace(SAMPLE, cpu_ns=2_000_000),
    ("read-ext4-q8", "fio io_uring"): replace(SAMPLE, cpu_ns=9_000_000),
}


def test_what_is_compared_does_not_choose_itself() -> None:
    """The set-up that is judged is that of samples of their own, even where another did better in those that are compared."""
    compared = _samples(PAPER, 4)
    choice = _samples({("read-ext4-q8", side): replace(SAMPLE, cpu_ns=cost) for side, cost in (
        ("calyx defer", 1_000_000), ("calyx coop", 8_000_000))}, 2)  # fmt: skip
    assert paper.best_setup(choice, ["read-ext4-q8"]) == "calyx defer"
    found = paper.paper_figures(compared, choice)
    judged = [figure.name for figure in found if figure.goal is not None]
    assert "CPU per I/O, calyx defer / fio io_uring" in judged
    assert not [name for name in judged if "coop" in name]


def test_without_a_choice_nothing_is_judged_nor_published(capsys: pytest.CaptureFixture[str]) -> None:
    """Fio never stands where calyx belongs."""
    compared = _samples(PAPER, 4)
    assert paper.paper_figures(compared, cells.Samples()) == []
    paper.print_published(compared, cells.Samples())
    calyx = next(line for line in capsys.readouterr().out.splitlines() if "4,576.92" in line)
    assert "not measured" in calyx
    assert "fio" not in calyx


def test_every_set_up_has_its_ratios_and_the_chosen_one_its_mark() -> None:
    rows = paper.ratio_rows(_samples(PAPER, 4), _samples(PAPER, 2))
    assert [row["set-up"] for row in rows] == ["calyx defer", "calyx coop*"]
    assert rows[1]["CPU per I/O / fio io_uring"].startswith("0.222")


def test_published_figures_stand_beside_ours(capsys: pytest.CaptureFixture[str]) -> None:
    """The published rows are printed with what was measured here, or that it was not."""
    both = _samples({("read-ext4-q8", "calyx defer"): SAMPLE}, 2)
    paper.print_published(both, both)
    out = capsys.readouterr().out
    assert "4,576.92" in out
    assert "39,059.46" in out
    assert "not measured" in out
    assert "calyx defer" in out


# --- how pairs are played ----------------------------------------------------------------------------------------


@dataclass
class _Disk:
    """Stands in for the guest: says who was played, in which order, and fails where told to."""

    played: list[tuple[str, str, int]] = field(default_factory=list)
    fails: frozenset[int] = frozenset()

    async def play(self, side: Side, workload: Workload, target: str, seed: int) -> Sample:
        self.played.append((workload.name, side.name, seed))
        if len(self.played) in self.fails:
            raise GuestError("it failed")
        return replace(SAMPLE, rested_s=1.5)


def _cell(name: str, *sides: str) -> cells.Cell:
    workload = Workload(name, rw=Rw.READ)
    return cells.Cell(name, "ext4", workload, tuple(Side(side, side) for side in sides))


async def _play(disk: _Disk, given: list[cells.Cell], count: int, samples: cells.Samples, **course: Any) -> None:
    await cells.play_pairs(disk, given, cells.Course(count, 1, **course), samples)  # type: ignore[arg-type]


async def test_two_sides_go_first_by_turns() -> None:
    disk, samples = _Disk(), cells.Samples()
    await _play(disk, [_cell("c", "calyx", "fio")], 4, samples)
    assert [side for _, side, _ in disk.played] == ["calyx", "fio", "fio", "calyx"] * 2
    assert len({seed for _, _, seed in disk.played}) == 4  # each pair its own, both sides the same


@pytest.mark.parametrize("count", [3, 4, 6])
def test_more_sides_follow_each_other_equally_often(count: int) -> None:
    """Each stands equally often at each place and after each other one: none has a neighbour that spares it the disk."""
    sides = [Side(str(number), "calyx") for number in range(count)]
    orders = [[side.name for side in cells.order(sides, number)] for number in range(2 * count)]
    for place in range(count):
        assert {side: [one[place] for one in orders].count(side) for side in orders[0]} == dict.fromkeys(orders[0], 2)
    followed = Counter(pair for one in orders for pair in itertools.pairwise(one))
    assert set(followed.values()) == {2}
    assert len(followed) == count * (count - 1)


async def test_what_is_there_is_not_played_again() -> None:
    """A second part plays the pairs that are missing, with the seeds and the order that they would have had."""
    whole, parts = _Disk(), _Disk()
    given = [_cell("a", "calyx", "fio"), _cell("b", "calyx", "fio")]
    await _play(whole, given, 3, cells.Samples())
    samples = cells.Samples()
    await _play(parts, given[:1], 2, samples)
    assert samples.pairs(given[0]) == 2
    await _play(parts, given, 3, samples)
    assert sorted(parts.played) == sorted(whole.played)
    assert [samples.pairs(cell) for cell in given] == [3, 3]


async def test_a_pair_of_which_one_side_fails_is_left_out() -> None:
    disk, samples = _Disk(fails=frozenset({2})), cells.Samples()
    cell = _cell("c", "calyx", "fio")
    await _play(disk, [cell], 2, samples)
    assert (samples.pairs(cell), len(samples.of("c", "calyx"))) == (1, 1)
    assert "pair 1 of c: it failed" in samples.failures
    assert any("of 2 pairs there are c 1" in note for note in cells.notes_of(samples, [cell], 2))


async def test_no_pair_is_begun_when_time_is_over() -> None:
    disk, samples = _Disk(), cells.Samples()
    await _play(disk, [_cell("c", "calyx", "fio")], 4, samples, until_s=time.monotonic() - 1)
    assert not disk.played


async def test_unequal_rests_are_told() -> None:
    samples, cell = cells.Samples(), _cell("c", "calyx", "fio")
    await _play(_Disk(), [cell], 3, samples)
    assert any(note.endswith("rested 1.50 s (1.50 to 1.50)") for note in cells.notes_of(samples, [cell], 3))
    samples.by_side["c", "fio"][1] = replace(SAMPLE, rested_s=3.0)
    assert any("1 of 6 samples by more than 0.1 s else" in note for note in cells.notes_of(samples, [cell], 3))


# --- a result in parts -------------------------------------------------------------------------------------------

CONDITIONS = {"agent": "abc", "fio": "3.33", "seconds": 3.0}


def _written(path: Path) -> None:
    samples = _samples(
        {("randread-4k-q8", "calyx"): SAMPLE, ("randread-4k-q8", "fio without fixed buffers"): SAMPLE}, 3
    )
    counted = [Figure("agent", "KB", pairs.exact(90.0), at_most(150.0)), Figure("e", "none", None, at_most(0.0))]
    record.write(
        path, {"conditions": CONDITIONS, "samples": samples.document(), "counted": record.counted_document(counted)}
    )


def test_what_was_written_is_gone_on_with(tmp_path: Path) -> None:
    """Samples come back as they were, counted figures too; what could not be counted is tried again."""
    _written(tmp_path / "f.json")
    earlier = record.read(tmp_path / "f.json", CONDITIONS)
    assert earlier.samples.of("randread-4k-q8", "fio without fixed buffers")[2].iops == pytest.approx(1020.0)
    assert earlier.counted == [Figure("agent", "KB", pairs.exact(90.0), at_most(150.0))]
    assert not record.read(tmp_path / "none.json", CONDITIONS).samples.by_side


def test_other_conditions_are_not_mixed(tmp_path: Path) -> None:
    _written(tmp_path / "f.json")
    with pytest.raises(record.RecordError, match=r"measured with agent abc, now def; seconds 3.0, now 1.0"):
        record.read(tmp_path / "f.json", CONDITIONS | {"agent": "def", "seconds": 1.0})


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"conditions": {}, "samples": {"a b": [{"iops": 1}]}}', '{"conditions": 7}']
)
def test_another_file_is_refused_by_its_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(record.RecordError, match=r"f\.json is not the result of such a run"):
        record.read(tmp_path / "f.json", {})


def test_the_time_ahead_is_told_before_it_passes() -> None:
    """The full run says that it takes more than an hour, and less where a part is there."""
    given = engine.all_cells(3.0, 1 << 30)
    assert "440 pairs in 11 cells: about 78 min" in present.course_text(given, cells.Samples(), 40)
    there = _samples({(cell.name, side.name): SAMPLE for cell in given for side in cell.sides}, 30)
    assert "110 pairs in 11 cells (330 pairs are there already): about 19 min" in present.course_text(given, there, 40)


# --- profiles ----------------------------------------------------------------------------------------------------

PERF = """\
# Overhead  Command          Symbol
    50.00%  swapper          [k] pv_native_safe_halt
    10.00%  python           [.] _PyEval_EvalFrameDefault
    20.00%  calyx-agent-x86  [k] copy_user_generic_unrolled
    12.00%  fio              [.] get_io_u
     8.00%  iou-wrk 12       [k] _raw_spin_lock
     0.10%  fio              [.] tiny
"""


def test_a_profile_is_of_the_engine_and_of_who_works_for_it() -> None:
    found = profile.places(PERF)
    assert [(round(one.percent, 1), one.command, one.space, one.symbol) for one in found] == [
        (49.9, "calyx-agent-x86", "k", "copy_user_generic_unrolled"), (29.9, "fio", ".", "get_io_u"),
        (20.0, "iou-wrk 12", "k", "_raw_spin_lock"),
    ]  # fmt: skip
    with pytest.raises(profile.ProfileError, match="no engine at work"):
        profile.places(PERF.splitlines()[1])


def test_a_profile_is_of_the_measured_window() -> None:
    assert profile.time_span(12_000_000_345, 15_500_000_000) == "12.000000345,15.500000000"


# --- user CPU in ticks -------------------------------------------------------------------------------------------


def test_user_cpu_is_pooled_over_cells_until_there_are_ticks_enough() -> None:
    """Each cell weighs by the I/Os of both sides: doing more I/O at a cheap depth is no gain."""
    given = {}
    for cell, ios in (("randread-4k-q1", 1000), ("randread-4k-q32", 9000)):
        given[cell, "calyx"] = replace(SAMPLE, ios=ios, cpu_user_ns=ios * 1000)
        given[cell, "fio"] = replace(
            SAMPLE, ios=2 * ios if ios == 1000 else ios, cpu_user_ns=ios * (4000 if ios == 1000 else 2000)
        )
    found = {f.cell: f for f in engine.pair_figures(_samples(given, 40)) if f.name.startswith("user CPU")}
    whole = found["randread-4k, 2 of 6 depths"]
    assert whole.estimate is not None
    assert whole.estimate.value == pytest.approx(0.5)
    assert "too few: 400 a side are enough" in whole.reason
    many = {key: replace(one, cpu_user_ns=10**8) for key, one in given.items()}
    found = {f.cell: f for f in engine.pair_figures(_samples(many, 40)) if f.name.startswith("user CPU")}
    assert found["randread-4k, 2 of 6 depths"].reason.endswith("ticks, enough")


# --- what is counted ---------------------------------------------------------------------------------------------


def test_callgrind_files_are_added_up() -> None:
    """A process that forks writes a file each; their sums are one."""
    assert costs.parse_callgrind("events: Ir\ntotals: 12\n# next file\ntotals: 30\n") == 42
    with pytest.raises(costs.CostError, match="no sum"):
        costs.parse_callgrind("events: Ir\n")


def test_strace_tables_are_read_with_and_without_errors() -> None:
    """The column of errors is empty for calls that never failed; the line of totals is no call."""
    table = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 99.00    1.234567          12     51230           io_uring_enter
  0.90    0.001000           8        31         4 futex
  0.00    0.000000           0         1           read
------ ----------- ----------- --------- --------- ----------------
100.00    1.235567          12     51262         4 total
"""
    assert costs.parse_strace(table) == {"io_uring_enter": 51230.0, "futex": 31.0, "read": 1.0}
    with pytest.raises(costs.CostError, match="no table"):
        costs.parse_strace("")


def test_start_up_is_out_of_a_cost_per_io() -> None:
    """The difference of two lengths divided by the difference of their I/Os."""
    short, long = costs.Counted(100, {"instructions": 5_000_000.0}), costs.Counted(1100, {"instructions": 5_070_000.0})
    assert costs.per_io(short, long) == {"instructions": 70.0}
    with pytest.raises(costs.CostError, match="the longer run"):
        costs.per_io(long, short)


# --- the document ------------------------------------------------------------------------------------------------


def test_the_document_is_json_with_verdicts() -> None:
    """What --json writes can be read back and says what was judged."""
    found = engine.pair_figures(_samples({("randread-4k-q1", "calyx"): SAMPLE, ("randread-4k-q1", "fio"): SAMPLE}, 3))
    document: dict[str, Any] = json.loads(json.dumps(present.document(found, {"notes": []}), default=str))
    assert {figure["verdict"] for figure in document["figures"]} <= {"met", "missed", "open", ""}
    assert document["machine"]["cpus"]


@pytest.mark.parametrize(
    ("wanted", "chosen"), [("", True), ("q8", True), ("seq,q8", True), ("q16", False), ("4k-q8", True), ("q", False)]
)
def test_cells_are_chosen_by_a_part_of_their_name(wanted: str, chosen: bool) -> None:
    """`--cells` takes parts of names, separated by commas; nothing means all."""
    assert present.is_chosen("randread-4k-q8", wanted) is chosen


ENDED = """\
import asyncio, signal, sys, tempfile
from side_by_side.ending import ends_as_interrupted

async def work():
    with tempfile.TemporaryDirectory(dir=sys.argv[1]):
        print("begun", flush=True)
        await asyncio.sleep(30)

signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell has it for what runs behind
ends_as_interrupted()
asyncio.run(work())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_benchmark_that_is_told_to_end_leaves_no_files(number: signal.Signals, tmp_path: Path) -> None:
    words = [sys.executable, "-c", ENDED, str(tmp_path)]
    with subprocess.Popen(words, cwd=BENCHMARKS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        assert list(tmp_path.iterdir())
        process.send_signal(number)
        assert process.wait(10) != 0
    assert not list(tmp_path.iterdir())
