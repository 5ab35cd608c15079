"""Which engines a workload is compared on: fio only where it makes the same I/O, else a sentence says why it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calyx_orch import engines
from calyx_orch.errors import UsageError
from calyx_orch.model import Baselines, Workload

CALYX = "calyx"
PSYNC_BASELINE = "fio-psync"


def engines_of(
    workloads: Sequence[Workload], baselines: Baselines
) -> tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]]:
    """The engines of each workload by its name, and a sentence for each baseline that is no equal.

    With `baselines: auto` a workload with setup psync is compared with fio's psync. Raises UsageError when a baseline that was
    named, and may not be skipped, has no equal of some workload.
    """
    compared: dict[str, tuple[str, ...]] = {}
    refused: dict[tuple[str, str], list[str]] = {}
    for workload in workloads:
        wanted = baselines.engines
        if baselines.auto and workload.setup == "psync":
            wanted = tuple(dict.fromkeys(PSYNC_BASELINE for _ in wanted))
        elif baselines.auto:
            wanted = tuple(engine for engine in wanted if engine != PSYNC_BASELINE)
        reasons = {engine: engines.no_equal(engine, workload) for engine in wanted}
        compared[workload.name] = (CALYX, *(engine for engine, why in reasons.items() if why is None))
        for engine, why in reasons.items():
            if why is not None:
                refused.setdefault((engine, why), []).append(workload.name)
    lines = tuple(f"no {engine} baseline of {_named(names)}: {why}" for (engine, why), names in refused.items())
    if lines and not baselines.auto and not baselines.skip_when_missing:
        raise UsageError(
            "a named baseline does not make the same I/O:\n  " + "\n  ".join(lines) + "\n"
            "set `when_missing: skip` under baselines, use `baselines: auto`, or change the workload"
        )
    return compared, lines


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:4])
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")
