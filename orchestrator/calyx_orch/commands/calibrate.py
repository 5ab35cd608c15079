"""`calyx-orch calibrate`: what the thresholds of incidents are worth on this very fleet."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict

from calyx_orch.commands import naming
from calyx_orch.errors import EXIT_FINE, UsageError
from calyx_orch.report import screen
from calyx_orch.report.history import METRICS


def show(
    runs: tuple[str, ...], *, inventory: str | None, scope: str, engine: str, store: str | None, as_json: bool
) -> int:
    """Say what the thresholds are worth on this fleet. Raises UsageError when the store has no such nights."""
    from calyx_orch.analysis import false_alarms, history, nights
    from calyx_orch.analysis.scopes import SCOPES
    from calyx_orch.store import database

    naming.known("scope", scope, SCOPES)
    where = {"engine": engine}
    if inventory is not None:
        where["inventory"] = naming.inventory_key(inventory)
    found: dict[str, false_alarms.Calibration] = {}
    with closing(database.open_store(store, create=False)) as opened:
        wanted = {naming.id_of(opened, run) for run in runs}
        for metric in ("throughput", "p99"):
            rows = opened.trend(METRICS[metric], scope=scope, where=where)
            series = nights.series_of(row for row in rows if not wanted or row.run_id in wanted)
            if series:
                found[metric] = false_alarms.calibrate(series, history.BETTER[METRICS[metric]])
    if not found:
        raise UsageError(f"the store has no nights by {scope} that fit; `calyx-orch list` shows what it has")
    if as_json:
        screen.deliver_json({metric: {**asdict(one), "sentence": one.sentence} for metric, one in found.items()})
        return EXIT_FINE
    for metric, one in found.items():
        screen.line(f"{metric} by {scope}: {one.sentence}")
    return EXIT_FINE
