"""`calyx-orch compare`: runs against each other, or the parts of one run by vm_host, storage, group, engine or any fact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from calyx_orch.commands import naming, outputs
from calyx_orch.errors import EXIT_FINE, UsageError
from calyx_orch.report import screen
from calyx_orch.store import archive

if TYPE_CHECKING:
    from calyx_orch.analysis.comparison import Comparison
    from calyx_orch.analysis.sides import Side


def show(
    runs: Sequence[str],
    *,
    by: str | None,
    reference: str | None,
    as_json: bool,
    html: Path | None = None,
    dashboard: Path | None = None,
    store: str | None = None,
) -> int:
    """Compare and print, and draw a page where `html` names one; runs are folders, ids of the store, or `latest`.

    The first side, or the one named `reference`, is what all others are held against. Returns the exit code. Raises UsageError
    when there is nothing to compare, or when a workload is other I/O on each side.
    """
    from calyx_orch.analysis import compare
    from calyx_orch.report import comparison

    if html is not None:
        outputs.checked(html, "--html", "page")
    sides = _with_reference(_sides(naming.folders(runs, store), by), reference)
    found = compare.compare(sides, fact=by or "")
    _refuse_unlike(found)
    if html is not None:
        from calyx_orch.report import comparison_page

        comparison_page.write(found, by or "", out=html, dashboard=dashboard)
    if as_json:
        screen.deliver_json(comparison.to_json(found, by or ""))
        return EXIT_FINE
    console = screen.console()
    comparison.show(found, by or "", console)
    if html is not None:
        screen.line(f"page: {html}", to=console)
    return EXIT_FINE


def _sides(runs: Sequence[Path], by: str | None) -> tuple[Side, ...]:
    from calyx_orch.analysis import sides

    if by is None:
        if len(runs) < 2:
            raise UsageError(
                "name two runs, or one run and --by vm_host, storage, group, guest, engine, a label or a fact"
            )
        records = [archive.read(run) for run in runs]
        if len({record.run_id for record in records}) < len(records):
            raise UsageError("these are one and the same run: compare it with another, or its parts --by a fact")
        names = _names(runs)
        shared = set.intersection(*({g.name for g in record.plan.inventory.guests} for record in records))
        if not shared:
            raise UsageError("these runs have no guest in common: nothing can be compared")
        return tuple(sides.of_run(name, record, shared) for name, record in zip(names, records, strict=True))
    if len(runs) != 1:
        raise UsageError("--by compares the parts of one run: name one")
    return sides.by_fact(archive.read(runs[0]), by)


def _names(runs: Sequence[Path]) -> list[str]:
    """What tells the folders apart: their names, or their paths where names are alike."""
    short = [run.resolve().name for run in runs]
    return short if len(set(short)) == len(short) else [str(run) for run in runs]


def _with_reference(sides: Sequence[Side], reference: str | None) -> tuple[Side, ...]:
    if reference is None:
        return tuple(sides)
    first = [side for side in sides if side.name == reference]
    if not first:
        raise UsageError(f"no side is called {reference!r}: there are {', '.join(side.name for side in sides)}")
    return (*first, *(side for side in sides if side.name != reference))


def _refuse_unlike(found: Comparison) -> None:
    unlike = [one.sentence for one in found.differences if one.forbids]
    if unlike:
        raise UsageError(
            "\n".join(("these runs did other I/O under the same name, so their figures are not compared:", *unlike))
        )
