"""The closing sentence of a run: how the fleet did, who stands out, what is doubtful, and the next command."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from calyx_orch import units
from calyx_orch.analysis.rows import FleetRow, GuestRow, InterferenceRow, PairRow, Summary
from calyx_orch.model import RunRecord

STANDS_OUT_MIN = 0.10  # less than a tenth from its peers is nobody's news
NOISE_UNKNOWN = 0.20  # with one or two repetitions nothing tells noise from difference: more is asked
REPETITIONS_MIN = 3
NOISE_FACTOR = 3.0
MAD_TO_SIGMA = 1.4826
DOUBTS_SHOWN = 3
TOLD_ELSEWHERE = frozenset({"missing", "fio-start"})  # the failures have been told, and a late fio is nothing to act on
FAILURES_SHOWN = 2
DEMO = ("loopback", "demo.yaml")  # name and source of the inventory that `calyx-orch demo` writes


@dataclass(frozen=True)
class Outlier:
    """A guest or vm_host that differs from the median of its peers: by `change` (-0.3: 30 % less) in `metric`."""

    kind: str  # guest or vm_host
    name: str
    metric: str  # throughput or P99
    change: float
    peers: int


def sentence(record: RunRecord, summary: Summary, *, on_page: bool = False, is_drawn: bool | None = None) -> str:
    """One sentence for the end of the terminal, or for the head of the report (`on_page`).

    `is_drawn` says whether the report is there to be opened; None: it is, unless the run was cut off before it was drawn.
    """
    rows = main_rows(summary)
    clauses = [_how_it_did(summary, rows), _failures(record) if rows else _where_all_failed(record)]
    if record.status != "finished" and record.measurements:
        clauses.append(f"the run was {record.status} after {_played(record)} of {len(record.plan.rounds)} rounds")
    clauses.append(_resumed(record))
    if len(rows) >= 2:
        clauses.append(_who_stands_out(rows))
    clauses += [_doubtful(summary), _next(record, summary, bool(rows), on_page, is_drawn)]
    text = "; ".join(clause for clause in clauses if clause) + "."
    return text[:1].upper() + text[1:]


def main_rows(summary: Summary) -> tuple[GuestRow, ...]:
    """The measured guests under the plan's first workload that anyone was measured in: calyx before fio, together before alone."""
    measured = [row for row in summary.guests if row.rounds and row.throughput_bytes_per_s is not None]
    if not measured:
        return ()
    ranked = min(
        range(len(measured)), key=lambda at: (measured[at].engine != "calyx", measured[at].load != "together", at)
    )
    key = _key(measured[ranked])
    return tuple(row for row in measured if _key(row) == key)


def outlier(rows: Sequence[GuestRow]) -> Outlier | None:
    """The guest or vm_host furthest from the median of its peers, if clearly beyond the noise; None below two guests.

    Noise is the larger of three times the spread of the peers (median absolute deviation) and three times the CV between
    repetitions. A vm_host is named when it has several guests, all of which differ in its direction. All figures come from the
    rounds that the guests share; who was measured in others is compared with nobody.
    """
    rows = comparable(rows)
    found = [one for metric in ("throughput", "P99") for one in (*_vm_hosts(rows, metric), *_guests(rows, metric))]
    if not found:
        return None
    furthest = max(found, key=lambda one: abs(math.log1p(one.change)))
    hosts = [one for one in found if one.kind == "vm_host"]
    if furthest.kind == "guest" and hosts:
        host_of = {row.guest: row.vm_host for row in rows}
        return next((host for host in hosts if host.name == host_of[furthest.name]), furthest)
    return furthest


def comparable(rows: Sequence[GuestRow]) -> tuple[GuestRow, ...]:
    """The largest group of rows whose figures come from the same rounds; under loads with sets of guests, from the same turns."""
    groups: dict[tuple[int, ...], list[GuestRow]] = {}
    for row in rows:
        if row.shared is not None:
            groups.setdefault(row.shared.turns, []).append(row)
    largest = max(groups, key=lambda turns: len(groups[turns]), default=None)
    return () if largest is None else tuple(groups[largest])


# --- clauses -----------------------------------------------------------------------------------------------------


def _how_it_did(summary: Summary, rows: Sequence[GuestRow]) -> str:
    if not rows:
        return "no guest was measured"
    first = rows[0]
    what = f"{first.workload} on {first.target} by {first.engine}"
    fleets = [row for row in summary.fleet if _fleet_key(row) == _key(first)]
    fleet = fleets[0] if len(fleets) == 1 else None
    if fleet is None or fleet.guests_planned < 2:
        each_so = f"in {len(fleets)} sets one after another" if len(fleets) > 1 else f"each {first.load}"
        who = f"guest {first.guest}" if len(rows) == 1 else f"{len(rows)} guests, {each_so},"
        throughput = median(row.throughput_bytes_per_s or 0.0 for row in rows)
        worst = max((row.p99_ns for row in rows if row.p99_ns is not None), default=None)
        each = "" if len(rows) == 1 else "a median of "
        return f"{who} did {each}{units.format_rate(throughput)}{_p99(worst, rows)} in {what}"
    shared = f" in the {fleet.rounds_shared} of {fleet.rounds} rounds that they share,"
    return (
        f"{fleet.guests} of {fleet.guests_planned} guests did {units.format_rate(fleet.throughput_bytes_per_s)} "
        f"{'one after another' if fleet.load == 'staggered' else 'together'}{_p99(fleet.p99_ns, ())}"
        f"{shared if fleet.rounds_shared < fleet.rounds else ''} in {what}"
    )


def _p99(p99_ns: int | None, rows: Sequence[GuestRow]) -> str:
    if p99_ns is None:
        return " (too few I/Os for a P99)"
    return f" at a {'worst ' if len(rows) > 1 else ''}P99 of {units.format_latency(p99_ns)}"


def _failures(record: RunRecord) -> str:
    failed = [outcome for outcome in record.outcomes if outcome.state in ("lost", "partial", "skipped")]
    if not failed:
        return ""
    told = [f"{outcome.guest}: {outcome.reason or outcome.state}" for outcome in failed[:FAILURES_SHOWN]]
    more = f" and {len(failed) - FAILURES_SHOWN} more" if len(failed) > FAILURES_SHOWN else ""
    how = "measured in part" if all(outcome.state == "partial" for outcome in failed) else "lost"
    are = "was" if len(failed) == 1 else "were"
    return f"{len(failed)} of {len(record.outcomes)} guests {are} {how} ({', '.join(told)}{more})"


def _resumed(record: RunRecord) -> str:
    """`the run was resumed after 8 of 16 rounds and a gap of 3 min 05 s`; who was started anew in between is a doubt."""
    if not record.resumed:
        return ""
    last = record.resumed[-1]
    gap = units.format_duration(last.gap_s)
    times = f"{len(record.resumed)} times, last " if len(record.resumed) > 1 else ""
    text = f"the run was resumed {times}after {last.kept} of {len(record.plan.rounds)} rounds and a gap of {gap}"
    rebooted = tuple(dict.fromkeys(name for one in record.resumed for name in one.rebooted))
    who = rebooted[0] if len(rebooted) == 1 else f"{len(rebooted)} guests"
    return text + (f", in which {who} {'was' if len(rebooted) == 1 else 'were'} started anew" if rebooted else "")


def _where_all_failed(record: RunRecord) -> str:
    """`3 were lost at connect`: the reasons stand in the table, once a guest."""
    ends = Counter((outcome.state, outcome.step) for outcome in record.outcomes if outcome.state != "measured")
    told = [
        f"{count} {'was' if count == 1 else 'were'} {state}{f' at {step}' if step else ''}"
        for (state, step), count in ends.most_common(DOUBTS_SHOWN)
    ]
    return ", ".join(told)


def _who_stands_out(rows: Sequence[GuestRow]) -> str:
    if len(comparable(rows)) < 2:
        return "no guest is compared with another, as no two were measured in the same rounds"
    found = outlier(rows)
    if found is None:
        return "no guest stands out"
    percent = abs(found.change) * 100
    how = f"{percent:.0f} % {'less' if found.change < 0 else 'more'}"
    if found.change > 1:
        how = f"{found.change + 1:.1f} times"
    metric = "throughput" if found.metric == "throughput" else "P99 latency"
    than = "as much" if found.change > 1 else ""
    comparison = f"{how} {than + ' ' if than else ''}{metric} {'as' if than else 'than'} the median of its peers"
    return f"{found.kind} {found.name} stands out with {comparison}{_standing_still(found, rows)}"


def _standing_still(found: Outlier, rows: Sequence[GuestRow]) -> str:
    """A guest whose engine or storage stood still for a while is not slow: it is told in the same breath."""
    labels = [
        label
        for row in rows
        if (row.guest if found.kind == "guest" else row.vm_host) == found.name
        for name, label in zip(row.doubt_names, row.doubts, strict=True)
        if name == "stalled"
    ]
    return f" ({labels[0]})" if labels else ""


def _doubtful(summary: Summary) -> str:
    doubts = [doubt for doubt in summary.doubts if doubt.name not in TOLD_ELSEWHERE]
    if not doubts:
        return ""
    everyone = {row.guest for row in summary.guests}
    told = []
    for doubt in doubts[:DOUBTS_SHOWN]:
        where = "" if set(doubt.guests) == everyone and len(everyone) > 1 else f" on {_names(doubt.guests)}"
        told.append(f"{doubt.label}{where if len(everyone) > 1 else ''}")
    more = f" and {len(doubts) - DOUBTS_SHOWN} more" if len(doubts) > DOUBTS_SHOWN else ""
    return f"doubtful: {', '.join(told)}{more}"


def _names(guests: Sequence[str]) -> str:
    return ", ".join(guests) if len(guests) <= 2 else f"{len(guests)} guests"


def _next(record: RunRecord, summary: Summary, measured: bool, on_page: bool, is_drawn: bool | None) -> str:
    """What a person would do now. On the page itself nobody is sent to the page."""
    is_cut = record.status == "interrupted" and not _is_demo(record)  # the guests of a demo are gone with it
    resuming = [f"`calyx-orch run --resume {shlex.quote(record.folder)}` to measure what is missing"] if is_cut else []
    if not measured:
        look = f"see {shlex.quote(record.folder)} for what each guest said"
        return f"{look}; next: {resuming[0]}" if resuming else look
    has_page = not on_page and (not is_cut if is_drawn is None else is_drawn)
    page = [f"open {shlex.quote(f'{record.folder}/report.html')}"] if has_page else []
    steps = [*resuming, *page] if resuming else [*page, *_advice(record, summary)]
    return f"next: {', then '.join(steps)}" if steps else ""


def _is_demo(record: RunRecord) -> bool:
    return (record.plan.inventory.name, record.plan.inventory.source) == DEMO


def _advice(record: RunRecord, summary: Summary) -> list[str]:
    """How to get figures that are worth more than these."""
    inventory = record.plan.inventory
    if _is_demo(record):
        return ["`calyx-orch init` for an inventory of your own"]
    longer = "`ramp_time: 10s` and `runtime: 60s` for true figures"
    more = f"`repetitions: {REPETITIONS_MIN}` for intervals"
    paired: tuple[PairRow | InterferenceRow, ...] = (*summary.pairs, *summary.interference)
    lack = inventory.repetitions < REPETITIONS_MIN and any(row.ratio is not None and not row.interval for row in paired)
    wanted = [*([longer] if any(doubt.name == "short" for doubt in summary.doubts) else []), *([more] if lack else [])]
    return [f"run again with {' and '.join(wanted)}"] if wanted else []


def _played(record: RunRecord) -> int:
    """How many rounds were played to their end; the one that an interrupt fell into was not, unless someone was measured in it."""
    rounds: dict[int, bool] = {}
    counted = {one.index for one in record.plan.rounds}  # and not those of a preconditioning
    for measurement in record.measurements:
        index = measurement.round_index
        if index not in counted:
            continue
        rounds[index] = rounds.get(index, False) or measurement.status == "ok"
    cut = record.status == "interrupted" and bool(rounds) and not list(rounds.values())[-1]
    return len(rounds) - cut


# --- who stands out ----------------------------------------------------------------------------------------------


def _value(row: GuestRow, metric: str) -> float | None:
    """A metric in the rounds that the guest shares with its peers."""
    if row.shared is None:
        return None
    return row.shared.throughput_bytes_per_s if metric == "throughput" else row.shared.p99_ns


def _repeats(row: GuestRow, metric: str) -> float | None:
    """The CV between repetitions of a metric; None where there are too few of them to believe it."""
    shared = row.shared
    if shared is None or len(shared.turns) < REPETITIONS_MIN:
        return None
    return shared.cv_between_repetitions if metric == "throughput" else shared.cv_p99_between_repetitions


def _guests(rows: Sequence[GuestRow], metric: str) -> list[Outlier]:
    values = {row.guest: value for row in rows if (value := _value(row, metric))}
    found = []
    for row in rows:
        peers = [value for name, value in values.items() if name != row.guest]
        if row.guest not in values or not peers:
            continue
        change = values[row.guest] / median(peers) - 1
        if abs(change) > _noise(peers, [_repeats(row, metric)]) and not _is_only_other(rows, metric, change):
            found.append(Outlier("guest", row.guest, metric, change, len(peers)))
    return found


def _is_only_other(rows: Sequence[GuestRow], metric: str, change: float) -> bool:
    """Of two guests either differs from the other: the one that does worse is named."""
    worse = change < 0 if metric == "throughput" else change > 0
    return len(rows) == 2 and not worse


def _vm_hosts(rows: Sequence[GuestRow], metric: str) -> list[Outlier]:
    values: dict[str, list[float]] = {}
    repeats: dict[str, list[float | None]] = {}
    for row in rows:
        value = _value(row, metric)
        if row.vm_host is not None and value:
            values.setdefault(row.vm_host, []).append(value)
            repeats.setdefault(row.vm_host, []).append(_repeats(row, metric))
    found = []
    for name, mine in values.items():
        others = [value for other, theirs in values.items() if other != name for value in theirs]
        if len(mine) < 2 or not others:
            continue
        middle = median(others)
        changes = [value / middle - 1 for value in mine]
        change = median(mine) / middle - 1
        alike = all(each * change > 0 and abs(each) > abs(change) / 2 for each in changes)
        two_hosts_and_better = len(values) == 2 and (change > 0) == (metric == "throughput")
        if alike and abs(change) > _noise(others, repeats[name]) and not two_hosts_and_better:
            found.append(Outlier("vm_host", name, metric, change, len(others)))
    return found


def _noise(peers: Sequence[float], repetitions: Sequence[float | None]) -> float:
    """The relative difference below which nothing is said."""
    middle = median(peers)
    spread = MAD_TO_SIGMA * median(abs(peer - middle) for peer in peers) / middle
    known = [cv for cv in repetitions if cv is not None]
    between = max(known) if known else NOISE_UNKNOWN / NOISE_FACTOR
    return max(STANDS_OUT_MIN, NOISE_FACTOR * spread, NOISE_FACTOR * between)


def _key(row: GuestRow) -> tuple[str, str, str, str]:
    return (row.target, row.workload, row.engine, row.load)


def _fleet_key(row: FleetRow) -> tuple[str, str, str, str]:
    return (row.target, row.workload, row.engine, row.load)
