"""`calyx-orch history`: a metric over nights, with incidents and suspects."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from calyx_orch.commands import naming, outputs
from calyx_orch.errors import EXIT_FINE, UsageError
from calyx_orch.report import screen
from calyx_orch.report.history import METRICS


def show(
    metric: str,
    *,
    scope: str,
    where: dict[str, str],
    inventory: str | None = None,
    store: str | None,
    as_json: bool,
    html: Path | None = None,
    dashboard: Path | None = None,
) -> int:
    """Draw each series with its incidents, as a page too where `html` names one; `where` narrows it by name, workload and engine.

    Raises UsageError for an unknown metric or scope, and when there is nothing to show.
    """
    from calyx_orch.analysis import history as histories
    from calyx_orch.analysis import nights
    from calyx_orch.analysis.scopes import SCOPES
    from calyx_orch.report import history
    from calyx_orch.store import database

    if html is not None:
        outputs.checked(html, "--html", "page")
    naming.known("metric", metric, METRICS)
    naming.known("scope", scope, SCOPES)
    if inventory is not None:
        where = {**where, "inventory": naming.inventory_key(inventory)}
    with closing(database.open_store(store, create=False)) as opened:
        rows = opened.trend(METRICS[metric], scope=scope, where=where)
    if not rows:
        raise UsageError(f"the store has no {metric} by {scope} that fits; `calyx-orch list` shows what it has")
    found = histories.history(METRICS[metric], nights.nights_by_inventory(rows))
    if html is not None:
        from calyx_orch.report import history_page

        history_page.write(found, metric, scope, out=html, dashboard=dashboard)
    if as_json:
        screen.deliver_json(history.to_json(found, metric))
        return EXIT_FINE
    console = screen.console()
    history.show(found, metric, scope, console)
    if html is not None:
        screen.line(f"page: {html}", to=console)
    return EXIT_FINE
