"""calyx against fio, and together against alone: paired by block, with an interval or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from calyx_orch.analysis import position, ratios, rounds
from calyx_orch.analysis.cells import Cell, Key
from calyx_orch.analysis.histogram import percentile_or_none
from calyx_orch.analysis.rounds import Figures
from calyx_orch.analysis.rows import DoubtRow, FleetPairRow, InterferenceRow, PairRow
from calyx_orch.analysis.variation import mean_known
from calyx_orch.model import LoadMode

PLACE = "place"

Metric = Callable[[Sequence[Figures]], float | None]


def _throughput(figures: Sequence[Figures]) -> float | None:
    """The mean over rounds of each guest, summed over guests."""
    return _summed(figures, lambda found: found.throughput_bytes_per_s)


def _iops(figures: Sequence[Figures]) -> float | None:
    return _summed(figures, lambda found: found.iops)


def _summed(figures: Sequence[Figures], figure: Callable[[Figures], float]) -> float | None:
    guests: dict[str, list[float]] = {}
    for found in figures:
        guests.setdefault(found.measurement.guest, []).append(figure(found))
    return math.fsum(fmean(values) for values in guests.values()) if guests else None


def _p99(figures: Sequence[Figures]) -> float | None:
    return percentile_or_none(rounds.latencies(figures), 99.0)


def _cpu_per_io(figures: Sequence[Figures]) -> float | None:
    return mean_known(found.engine_ns_per_io for found in figures)


def _cv_within_run(figures: Sequence[Figures]) -> float | None:
    return mean_known(found.cv_within_run.value for found in figures)


PAIRED: tuple[tuple[str, Metric], ...] = (
    ("throughput", _throughput),
    ("IOPS", _iops),
    ("P99", _p99),
    ("CPU per I/O", _cpu_per_io),
    ("CV within a run", _cv_within_run),
)
INTERFERED: tuple[tuple[str, Metric], ...] = (("throughput", _throughput), ("P99", _p99))


def pair_rows(cells: Sequence[Cell]) -> Iterable[PairRow]:
    """Our engine against each of fio's, guest by guest."""
    ours = {(cell.guest, cell.key[0], cell.key[1], cell.key[3]): cell for cell in cells if cell.key[2] == "calyx"}
    every: dict[tuple[str, str, str, str], list[Cell]] = {}
    for cell in cells:
        every.setdefault((cell.guest, cell.key[0], cell.key[1], cell.key[3]), []).append(cell)
    effects: dict[tuple[str, ...], position.Effect | None] = {}
    for cell in cells:
        target, workload, engine, load = cell.key
        own = ours.get((cell.guest, target, workload, load))
        if engine == "calyx" or own is None:
            continue
        doubts = rounds.doubt_names((*own.figures, *cell.figures))
        for name, metric in PAIRED:
            found, _, _ = _compared(metric, [(own, cell)])
            at = (cell.guest, target, workload, load)
            if (*at, name) not in effects:  # the same for each engine: it comes from the rounds of all
                effects[*at, name] = position.effect(_turns(metric, every[at]))
            place = effects[*at, name]
            is_doubtful = place is not None and place.is_doubtful(found.value)
            yield PairRow(
                guest=cell.guest,
                vm_host=cell.vm_host,
                target=target,
                workload=workload,
                engine=engine,
                load=load,
                metric=name,
                ratio=found.value,
                low=found.low,
                high=found.high,
                pairs=found.pairs,
                interval=found.interval,
                reason=found.reason,
                labels=cell.labels,
                place_ratio=place.ratio if place else None,
                place_p=place.p if place else None,
                doubt_names=(*doubts, PLACE) if is_doubtful else doubts,
            )


def place_doubts(pairs: Iterable[PairRow]) -> DoubtRow | None:
    """The pairs that the place in the block makes doubtful, as one doubt; None without any."""
    struck = [row for row in pairs if PLACE in row.doubt_names and row.place_ratio is not None]
    if not struck:
        return None
    worst = max(struck, key=lambda row: row.place_ratio or 0.0)
    share = 100 * ((worst.place_ratio or 1.0) - 1)
    return DoubtRow(
        name=PLACE,
        label=f"place {share:.0f} %",
        sentence=f"{worst.metric} differs by {share:.1f} % with the place in the block, by more than half of what the engines differ by",
        remedy="let the storage rest longer (settle), precondition it, or measure more blocks",
        guests=tuple(dict.fromkeys(row.guest for row in struck)),
        measurements=len(struck),
    )


def _turns(metric: Metric, cells: Sequence[Cell]) -> list[position.Turn]:
    """The rounds of all engines of a guest; those without the figure are left out."""
    return [
        position.Turn(found.measurement.block, cell.key[2], cell.places[found.measurement.round_index], figure)
        for cell in cells
        for found in cell.figures
        if (figure := metric([found])) is not None and figure > 0
    ]


def fleet_pair_rows(pairs: Iterable[PairRow]) -> Iterable[FleetPairRow]:
    """The guests' ratios as one for the fleet: guests count alike, whatever their rates."""
    gathered: dict[tuple[str, str, str, str, str], list[tuple[float, PairRow]]] = {}
    for row in pairs:
        if row.ratio is not None:
            key = (row.workload, row.target, row.load, row.engine, row.metric)
            gathered.setdefault(key, []).append((row.ratio, row))
    for (workload, target, load, engine, metric), found in gathered.items():
        found_ratios = [ratio for ratio, _ in found]
        yield FleetPairRow(
            target=target,
            workload=workload,
            engine=engine,
            load=load,
            metric=metric,
            ratio=math.exp(math.fsum(map(math.log, found_ratios)) / len(found_ratios)),
            low=min(found_ratios),
            high=max(found_ratios),
            guests=len(found_ratios),
            labels=found[0][1].labels,
            doubt_names=tuple(dict.fromkeys(name for _, row in found for name in row.doubt_names)),
        )


def interference_rows(cells: Sequence[Cell]) -> Iterable[InterferenceRow]:
    """Each guest under a load against itself alone."""
    for cell, alone in _with_alone(cells):
        for name, metric in INTERFERED:
            yield _interference("guest", cell.guest, cell.key, name, metric, [(cell, alone)])


def place_rows(cells: Sequence[Cell]) -> Iterable[InterferenceRow]:
    """Each vm_host and storage: all its guests under a load against the same guests one at a time."""
    both = _with_alone(cells)
    for scope in ("vm_host", "storage"):
        for place in dict.fromkeys(getattr(cell, scope) for cell, _ in both):
            mine = [pair for pair in both if place is not None and getattr(pair[0], scope) == place]
            for key in dict.fromkeys(cell.key for cell, _ in mine):
                pairs = [pair for pair in mine if pair[0].key == key]
                for name, metric in INTERFERED:
                    yield _interference(scope, str(place), key, name, metric, pairs)


def _with_alone(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """Every cell of a guest that ran with others, with the cell of the same guest alone."""
    alone = {(cell.guest, *cell.key[:3]): cell for cell in cells if cell.key[3] == LoadMode.ALONE}
    return [
        (cell, alone[cell.guest, *cell.key[:3]])
        for cell in cells
        if cell.key[3] != LoadMode.ALONE and (cell.guest, *cell.key[:3]) in alone
    ]


def _compared(metric: Metric, cells: Sequence[tuple[Cell, Cell]]) -> tuple[ratios.Ratio, float | None, float | None]:
    """A metric of the first cells / of the second, paired by block, and both over all blocks.

    In each block only guests that were measured on both sides count, so that a lost guest does not tilt the ratio.
    """
    blocks: dict[int, tuple[list[Figures], list[Figures]]] = {}
    for first, second in cells:
        ones, others = first.by_block(), second.by_block()
        for block in ones.keys() & others.keys():
            left, right = blocks.setdefault(block, ([], []))
            left.extend(ones[block])
            right.extend(others[block])
    ratio = ratios.of_pairs([(metric(blocks[block][0]), metric(blocks[block][1])) for block in sorted(blocks)])
    left, right = ([found for block in blocks.values() for found in block[side]] for side in (0, 1))
    return ratio, metric(left), metric(right)


def _interference(
    scope: str, place: str, key: Key, name: str, metric: Metric, cells: Sequence[tuple[Cell, Cell]]
) -> InterferenceRow:
    found, together, alone = _compared(metric, cells)
    return InterferenceRow(
        scope=scope,
        guest=place,
        target=key[0],
        workload=key[1],
        engine=key[2],
        load=key[3],
        metric=name,
        ratio=found.value,
        low=found.low,
        high=found.high,
        together=together,
        alone=alone,
        pairs=found.pairs,
        interval=found.interval,
        reason=found.reason,
        doubt_names=rounds.doubt_names(one for pair in cells for cell in pair for one in cell.figures),
    )
