"""What a comparison is: its rows, the words of their verdicts, and the units that they were made of."""

from __future__ import annotations

from dataclasses import dataclass

from calyx_orch.analysis.comparability import Difference
from calyx_orch.analysis.sides import Side, Unit
from calyx_orch.analysis.significance import Effect

BETTER, WORSE, NO_DIFFERENCE = "better", "worse", "no difference found"
NOT_ENOUGH, OTHER_LOAD = "not enough data", "at different load"
FROM_DUE = "from when due"  # a label of latencies that count from when an I/O was due


@dataclass(frozen=True)
class ComparisonRow:
    """One side against the reference under one key and metric. Figures are means over the units that were compared.

    `effect.ratio` is side / reference; `p_adjusted` is Holm's over all rows of the comparison; `verdict` is of the side. `doubt_names` are
    the rules that struck on either side.
    """

    side: str
    reference: str
    target: str
    workload: str
    engine: str  # empty where the sides are engines
    load: str
    metric: str
    value: float | None
    reference_value: float | None
    effect: Effect
    verdict: str
    p_adjusted: float | None = None
    note: str = ""
    labels: tuple[str, ...] = ()
    doubt_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """All rows, the sides in order (the first is the reference), what differs besides, and what the rows cannot say."""

    sides: tuple[Side, ...]
    rows: tuple[ComparisonRow, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class SideUnits:
    """The units of one side under one key, cut to guests that were measured whole in all of them: what a page draws of a side."""

    side: str
    target: str
    workload: str
    engine: str  # that of the side where the sides are engines
    load: str
    units: tuple[Unit, ...]
