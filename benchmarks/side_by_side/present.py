"""Options, tables and documents of the benchmarks that compare side by side."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from side_by_side import record
from side_by_side.cells import Cell, Samples
from side_by_side.goals import DECISIVE_PAIRS, Figure, Verdict, furthest, judge
from side_by_side.pairs import Estimate

ROUND_BESIDES_S = 1.35  # the rest before a round, and what is said before and after it


def parser(description: str, *, pairs: int, seconds: float) -> argparse.ArgumentParser:
    """The options that every such benchmark has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--quick", action="store_true", help="less than a minute; says what it cannot decide")
    options.add_argument("--pairs", type=int, help=f"alternating pairs of each cell (default {pairs})")
    options.add_argument("--seconds", type=float, help=f"measured window of a round (default {seconds:g})")
    options.add_argument(
        "--cells", default="", help="only the cells with these words in their name, such as q8,xfs or randread-4k-q1"
    )
    options.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="where the files are made (a disk)")
    options.add_argument("--size-mib", type=int, help="size of the file")
    options.add_argument("--seed", type=int, default=1, help="seed of offsets and data")
    options.add_argument("--json", type=Path, metavar="FILE", help="write all figures and samples")
    options.add_argument(
        "--resume", action="store_true", help="keep what is in the --json FILE and measure only what is missing there"
    )
    options.add_argument("--check", action="store_true", help="exit 1 where a goal is missed")
    return options


def parse(options: argparse.ArgumentParser) -> argparse.Namespace:
    """The options given, those that do not go together refused."""
    given = options.parse_args()
    if given.resume and given.json is None:
        options.error("--resume goes on with a file: name it with --json")
    return given


def is_chosen(cell: str, wanted: str) -> bool:
    """Whether `--cells` names this cell; without it every cell is chosen."""
    words = [word for word in wanted.split(",") if word]
    return not words or any(f"-{word}-" in f"-{cell}-" for word in words)


def estimate_text(estimate: Estimate | None, unit: str = "") -> str:
    """`0.873 (0.81 to 0.94)`; a count without bounds."""
    if estimate is None:
        return "-"
    if estimate.is_exact:
        return f"{estimate.value:.4g}{unit}"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.3f}{unit} (too few pairs)"
    return f"{estimate.value:.3f}{unit} ({estimate.low:.3f} to {estimate.high:.3f})"


def print_figures(figures: Sequence[Figure]) -> None:
    """The table of figures with their goals, and what could not be decided."""
    width = max(len(figure.cell) for figure in figures)
    names = max(len(figure.name) for figure in figures)
    for figure in figures:
        goal = str(figure.goal) if figure.goal is not None else ""
        text = estimate_text(figure.estimate, figure.unit)
        row = f"{figure.cell:<{width}}  {figure.name:<{names}}  {text:<26}  {goal:<11} {judge(figure)}"
        print((row + (f"  ({figure.reason})" if figure.reason else "")).rstrip())
    open_ones = [figure for figure in figures if judge(figure) is Verdict.OPEN]
    if open_ones:
        print(f"\nnot decided ({len(open_ones)}), for want of pairs ({DECISIVE_PAIRS} decide) or of a figure:")
        print("  " + "; ".join(f"{figure.cell}: {figure.name}" for figure in open_ones))


def last_line(figures: Sequence[Figure]) -> str:
    """The figure that is furthest from its goal, as a sentence."""
    figure = furthest(figures)
    if figure is None or figure.goal is None:
        return "no figure could be judged"
    missed = sum(judge(each) is Verdict.MISSED for each in figures)
    judged = sum(judge(each) in (Verdict.MISSED, Verdict.MET) for each in figures)
    text = f"{figure.cell}: {figure.name} {estimate_text(figure.estimate, figure.unit)}, goal {figure.goal}"
    return f"{missed} of {judged} goals missed; furthest from its goal: {text}, {judge(figure)}"


def document(figures: Sequence[Figure], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Everything as one JSON object: where it ran, the figures with their verdicts, and what else the program knows."""
    return {
        "machine": machine(),
        "figures": [
            asdict(figure) | {"goal": str(figure.goal) if figure.goal else None, "verdict": str(judge(figure))}
            for figure in figures
        ],
        **extra,
    }


def machine() -> dict[str, Any]:
    """What this ran on, and how busy that was."""
    return {
        "kernel": platform.release(),
        "arch": platform.machine(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg(),
    }


def course_text(cells: Sequence[Cell], samples: Samples, count: int) -> str:
    """How long the pairs ahead will take, before the first of them."""
    ahead = [(cell, max(0, count - samples.pairs(cell))) for cell in cells]
    seconds = sum(
        left * len(cell.sides) * (cell.workload.ramp_s + cell.workload.runtime_s + ROUND_BESIDES_S)
        for cell, left in ahead
    )
    there = sum(samples.pairs(cell) for cell in cells)
    kept = f" ({there} pairs are there already)" if there else ""
    length = f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"
    return f"{sum(left for _, left in ahead)} pairs in {len(cells)} cells{kept}: about {length}"


def finish(figures: Sequence[Figure], options: argparse.Namespace, whole: Mapping[str, Any]) -> int:
    """Write what was asked for, say the last line; the exit status."""
    if options.json is not None:
        record.write(options.json, whole)
    print(last_line(figures))
    missed = any(judge(figure) is Verdict.MISSED for figure in figures)
    return 1 if options.check and missed else 0
