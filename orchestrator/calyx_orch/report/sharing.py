"""The columns of what guests share and how steady it was: fairness, at which level figures differ, steady state."""

from __future__ import annotations

from collections.abc import Iterable

from calyx_orch.analysis.doubt import label_of
from calyx_orch.analysis.rows import CarriedRow, DensityRow, FairnessRow, PartsRow, SteadyRow
from calyx_orch.report import wording
from calyx_orch.report.fields import Field, named

SUM = "sum over the guests, each in the rounds that all of them share"


def named_doubts(names: Iterable[str]) -> str:
    """The rules that struck, as they are called in every table; that the run is short stands over the whole table."""
    return ", ".join(label_of(name) for name in names if name != "short")


def _holds(row: DensityRow) -> str:
    if row.budget is None:
        return ""
    return wording.NOT_AVAILABLE if row.holds is None else "yes" if row.holds else "no"


def _window(row: SteadyRow) -> str:
    if row.window_first is None or row.window_last is None:
        return wording.NOT_AVAILABLE
    return f"{row.window_first + 1} to {row.window_last + 1}"


FAIR = "Jain's index of the guests' throughput: 1 is equal shares, 1 / guests when one has all"
SHARE = "of the variance of single rounds; n/a where it cannot be told, as with one vm_host, one guest on each, or one round"
PARTS_TEXT = "Shares of the variance of single rounds (nested analysis): what vm_hosts differ by, guests of a vm_host, rounds of a guest."

FAIRNESS: tuple[Field[FairnessRow], ...] = (
    *named("scope", "name", "workload", "target", "engine", "load"),
    Field("guests", lambda row: str(row.guests), 4),
    Field("MB/s", lambda row: wording.megabytes(row.throughput_bytes_per_s), 2, explanation=SUM),
    Field("fairness", lambda row: wording.ratio(row.fairness), explanation=FAIR),
    Field("least", lambda row: f"{row.lowest} {wording.rate(row.lowest_bytes_per_s)}", 1, is_number=False),
    Field("most", lambda row: f"{row.highest} {wording.rate(row.highest_bytes_per_s)}", 1, is_number=False),
    Field("doubts", lambda row: named_doubts(row.doubts), 3, is_number=False),
)

PARTS: tuple[Field[PartsRow], ...] = (
    *named("workload", "target", "engine", "load", "metric"),
    Field("guests", lambda row: str(row.guests), 4),
    Field("CV of a round", lambda row: wording.cv(row.cv), explanation="of one round of one guest: the whole"),
    Field("between vm_hosts", lambda row: wording.cv(row.between_vm_hosts), explanation=SHARE),
    Field("between guests", lambda row: wording.cv(row.between_guests), explanation=SHARE),
    Field("between rounds", lambda row: wording.cv(row.between_rounds), explanation=SHARE),
    Field("doubts", lambda row: named_doubts(row.doubts), 3, is_number=False),
)

STEADY: tuple[Field[SteadyRow], ...] = (
    Field("scope", lambda row: row.scope if row.scope != "guest" else row.guest, is_number=False),
    *named("workload", "target", "engine", "load", "verdict"),
    Field("rounds", lambda row: str(row.rounds), 5),
    Field("window", _window, 4, is_number=False, explanation="the last five rounds"),
    Field(
        "range", lambda row: wording.cv(row.range_share), 3, explanation="of the mean over the window; 20 % is allowed"
    ),
    Field(
        "slope", lambda row: wording.cv(row.slope_share), 3, explanation="of the mean over the window; 10 % is allowed"
    ),
    Field("unsteady", lambda row: f"{row.unsteady} of {row.rounds}", 3, explanation="rounds not steady in themselves"),
    Field("reason", lambda row: row.why, 2, is_number=False),
    Field("doubts", lambda row: named_doubts(row.doubts), 6, is_number=False),
)
STEADY_TEXT = (
    "By the window of SNIA: the last five rounds lie within 20 % of their mean and the line through them moves by at most 10 %; and each "
    "round by its fifths."
)

DENSITY: tuple[Field[DensityRow], ...] = (
    *named("scope", "name", "workload", "target", "engine"),
    Field("at once", lambda row: str(row.guests), explanation="guests of this place that ran at once"),
    Field("MB/s", lambda row: wording.megabytes(row.throughput_bytes_per_s), 1, explanation=SUM),
    Field("MB/s a guest", lambda row: wording.megabytes(row.throughput_per_guest), 2),
    Field("kept", lambda row: wording.cv(row.kept), explanation="of a guest's throughput with the fewest at once"),
    Field("P99", lambda row: wording.latency(row.p99_ns)),
    Field("budget", lambda row: row.budget or "", 3, is_number=False),
    Field("holds", lambda row: _holds(row), 1, is_number=False),
    Field("doubts", lambda row: named_doubts(row.doubts), 4, is_number=False),
)

CARRIED: tuple[Field[CarriedRow], ...] = (
    *named("scope", "name", "workload", "target", "budget"),
    Field("carries", lambda row: "none" if row.guests_held is None else f"{row.guests_held} guests", is_number=False),
    Field("broke at", lambda row: "" if row.guests_broke is None else f"{row.guests_broke} guests", 1, is_number=False),
    Field("tried up to", lambda row: str(row.guests_most), 2),
    Field("reason", lambda row: row.why, 3, is_number=False),
    Field("doubts", lambda row: named_doubts(row.doubts), 4, is_number=False),
)
