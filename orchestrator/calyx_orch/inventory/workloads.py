"""From what is written of workloads to the workloads: presets opened, overrides applied, lists expanded into their product.

A generated name is the given name (else `rw-bs`) and a suffix for each parameter that is a list: `seqread-qd8`, `seqread-qd16`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from calyx_orch import documents, units
from calyx_orch.documents import Document, Path
from calyx_orch.inventory import sense
from calyx_orch.inventory.settings.workloads import WORKLOAD_REFUSALS, PresetDocument, WorkloadSettings
from calyx_orch.inventory.words import Split
from calyx_orch.model import Rw, Workload

DEFAULT_PRESET = "four-corners"
WORKLOADS_MAX = 1000

# The inventory's (fio's) word -> the field of model.Workload, and the suffix of a value in a generated name.
_PARAMETERS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "rw": ("rw", str),
    "bs": ("bs_bytes", units.format_size_short),
    "iodepth": ("iodepth", lambda value: f"qd{value}"),
    "numjobs": ("numjobs", lambda value: f"j{value}"),
    "rwmixread": ("rwmixread", lambda value: f"mix{value}"),
    "size": ("size_bytes", lambda value: f"size{units.format_size_short(value)}"),
    "runtime": ("runtime_s", lambda value: f"run{value:g}s"),
    "ramp_time": ("ramp_s", lambda value: f"ramp{value:g}s"),
    "rate_iops": ("rate_iops", lambda value: f"rate{value}"),
    "direct": ("direct", lambda value: "direct" if value else "buffered"),
    "fsync": ("fsync", lambda value: f"fsync{value}"),
    "randseed": ("seed", lambda value: f"seed{value}"),
    "bssplit": ("bssplit", lambda value: _split_name(value)),
    "offset": ("offset_bytes", lambda value: f"at{units.format_size_short(value)}"),
    "rate": ("rate_bytes_per_s", lambda value: _rate_name(value)),
    "arrival": ("arrival", str),
    "random_distribution": ("random_distribution", lambda value: value.replace(":", "-").replace("/", "-")),
    "fdatasync": ("fdatasync", lambda value: f"fdatasync{value}"),
    "sync": ("sync", lambda value: "sync" if value else "nosync"),
    "end_fsync": ("end_fsync", lambda value: "end_fsync" if value else "noend_fsync"),
    "buffer_compress_percentage": ("buffer_compress_percentage", lambda value: f"compress{value}"),
    "dedupe_percentage": ("dedupe_percentage", lambda value: f"dedupe{value}"),
    "verify": ("verify", lambda value: f"verify-{value}"),
    "thinktime": ("thinktime_us", lambda value: f"think{value}us"),
    "thinktime_blocks": ("thinktime_blocks", lambda value: f"after{value}"),
    "cpus_allowed": ("cpus_allowed", lambda value: "cpus" + value.replace(",", "+")),
    "iopoll": ("iopoll", lambda value: "iopoll" if value else "nopoll"),
    "numa": ("numa", lambda value: f"node{value}"),
    "huge_pages": ("huge_pages", lambda value: "huge" if value else "nohuge"),
    "find": ("find", lambda value: re.sub(r"[^\w.]+", "-", value)),
    "setup": ("setup", lambda value: f"setup-{value}"),
    "refill": ("refill", lambda value: f"refill-{value}"),
    "buffers": ("buffers", lambda value: f"buffers-{value}"),
    "interval_ms": ("interval_ms", lambda value: f"interval{value}"),
}


def _rate_name(value: int | float) -> str:
    return f"load{100 * value:g}" if isinstance(value, float) else f"rate{units.format_size_short(value)}"


def _split_name(value: tuple[Split, Split]) -> str:
    sides = ["-".join(f"{units.format_size_short(size)}.{percent}" for size, percent in side) for side in value if side]
    return "split" + "+".join(sides)


class Expansion:
    """Turns the entries of `workloads:` into workloads; what is wrong is added to the document's problems."""

    def __init__(self, document: Document, presets: Mapping[str, str]) -> None:
        self._document = document
        self._presets = presets
        self._opened: dict[str, tuple[WorkloadSettings, ...] | None] = {}
        self._lines: dict[str, int] = {}
        self._found: list[Workload] = []

    def expand(self, entries: Iterable[WorkloadSettings]) -> tuple[Workload, ...]:
        """All workloads, in the order written; names are unique."""
        lone = not isinstance(getattr(self._document.find(("workloads",)), "value", None), list)
        for index, entry in enumerate(entries):
            path: Path = ("workloads",) if lone else ("workloads", index)
            for settings in self._with_preset(entry, path):
                self._add(settings, path)
        return tuple(self._found)

    def open(self, name: str) -> tuple[WorkloadSettings, ...] | None:
        """The entries of the preset `name`, None when there is none; a broken preset adds its problems."""
        if name not in self._opened:
            self._opened[name] = None
            if name in self._presets:
                read = documents.load(self._presets[name], f"workloads/{name}.yaml")
                model, _ = (
                    documents.validate(read, PresetDocument, refusals=WORKLOAD_REFUSALS) if read.root else (None, set())
                )
                self._document.problems += read.problems
                self._opened[name] = tuple(model.workloads) if model is not None else ()
        return self._opened[name]

    def _with_preset(self, entry: WorkloadSettings, path: Path) -> tuple[WorkloadSettings, ...]:
        if entry.preset is None:
            return (entry,)
        opened = self.open(entry.preset)
        if opened is None:
            hint = (
                documents.suggestion(entry.preset, self._presets) or f" (there are: {', '.join(sorted(self._presets))})"
            )
            self._problem((*path, "preset"), f"unknown preset '{entry.preset}'{hint}")
            return ()
        said = {key: getattr(entry, key) for key in entry.model_fields_set - {"preset", "name"}}
        merged = []
        for base in opened:
            name = base.name if entry.name is None else entry.name if len(opened) == 1 else f"{entry.name}-{base.name}"
            merged.append(base.model_copy(update={**said, "name": name, "preset": None}))
        return tuple(merged)

    def _add(self, settings: WorkloadSettings, path: Path) -> None:
        values = {key: getattr(settings, key) for key in _PARAMETERS if getattr(settings, key) is not None}
        missing = [key for key in ("rw", "size") if key not in values]
        for key in missing:
            if not self._document.lacks(path, key):
                self._problem(path, f"missing key '{key}' in {_named(settings, path)}")
        if missing or not self._is_sensible(settings, path):
            return
        count = 1
        for one in values.values():
            count *= len(one)
        if count + len(self._found) > WORKLOADS_MAX:
            self._problem(
                path, f"{_named(settings, path)} expands to {count} workloads: more than {WORKLOADS_MAX} in all"
            )
            return
        varied = [key for key, one in values.items() if len(one) > 1]
        for chosen in itertools.product(*values.values()):
            self._add_one(dict(zip(values, chosen, strict=True)), varied, settings, path)

    def _add_one(self, chosen: Mapping[str, Any], varied: list[str], settings: WorkloadSettings, path: Path) -> None:
        fields: dict[str, Any] = {_PARAMETERS[key][0]: value for key, value in chosen.items()}
        fields["rw"] = Rw(fields["rw"])
        if fields["rw"].trims and fields.get("setup", "auto") == "auto":
            fields["setup"] = "psync"  # a discard blocks whoever asks for it
        if "bssplit" in fields:
            fields["bssplit"], fields["bssplit_write"] = fields["bssplit"]
            fields["bs_bytes"] = max(size for side in chosen["bssplit"] for size, _ in side)
        if isinstance(fields.get("rate_bytes_per_s"), float):
            fields["load_share"] = fields.pop("rate_bytes_per_s")
            fields.setdefault("arrival", "constant")
        if fields.get("find", "").startswith("guests_at "):
            fields["guests_at"] = fields.pop("find").removeprefix("guests_at ")
        base, suffixed = settings.name, varied
        if base is None:
            split = chosen.get("bssplit")
            size = units.format_size_short(fields.get("bs_bytes", 4096)) if split is None else _split_name(split)
            base = f"{chosen['rw']}-{size}"
            suffixed = [key for key in varied if key not in ("rw", "bs", "bssplit")]
        name = "-".join([base, *(_PARAMETERS[key][1](chosen[key]) for key in suffixed)])
        workload = Workload(name=name, targets=tuple(settings.targets or ()), **fields)
        line = self._line(path)
        if name in self._lines:
            self._problem(
                path, f"two workloads are called '{name}' (line {self._lines[name]} and line {line}): give one a name:"
            )
        elif self._bounds_hold(workload, path):
            self._lines[name] = line
            self._found.append(workload)

    def _is_sensible(self, settings: WorkloadSettings, path: Path) -> bool:
        """Whether the keys go together; every one that has no meaning beside the others is told."""
        before = len(self._document.problems)
        for key, message in sense.of_keys(settings):
            self._problem((*path, key), message)
        for key, values in ((key, getattr(settings, key)) for key in _PARAMETERS):
            if values is not None and len(set(values)) < len(values):
                self._problem((*path, key), f"'{key}' names a value twice")
        return len(self._document.problems) == before

    def _bounds_hold(self, workload: Workload, path: Path) -> bool:
        """Whether one expanded workload can be run at all."""
        for key, message in sense.of_workload(workload):
            self._problem((*path, key), f"'{workload.name}': {message}")
            return False
        return True

    def _line(self, path: Path) -> int:
        node = self._document.find(path)
        return node.line if node is not None else 0

    def _problem(self, path: Path, message: str) -> None:
        self._document.problems.append(self._document.problem(path, message))


def _named(settings: WorkloadSettings, path: Path) -> str:
    if settings.name is not None:
        return f"workload '{settings.name}'"
    return f"workloads[{path[-1]}]" if isinstance(path[-1], int) else "workloads"
