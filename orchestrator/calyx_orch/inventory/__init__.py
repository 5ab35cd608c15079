"""An inventory: which guests, how they are reached, and what is measured on them. Pure: text in, `model.Inventory` out.

`parse` reads a document, or raises InventoryErrors with every problem and its place; `from_guests` takes the command line's
--guest and --target instead, `choose_workloads` its --workload. `schema` says what a document may hold (as JSON Schema),
`first_inventory` is a commented one to begin with.
"""

from __future__ import annotations

import json
import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calyx_orch import documents
from calyx_orch.documents import Document
from calyx_orch.errors import InventoryErrors, Problem, UsageError
from calyx_orch.inventory import addresses
from calyx_orch.inventory.first import FIRST_INVENTORY
from calyx_orch.inventory.resolve import Fleet
from calyx_orch.inventory.schema import InventoryDocument
from calyx_orch.inventory.settings.conduct import QuorumSettings
from calyx_orch.inventory.settings.workloads import WORKLOAD_REFUSALS, WorkloadSettings
from calyx_orch.inventory.workloads import DEFAULT_PRESET, Expansion
from calyx_orch.model import (
    AbortIf,
    Baselines,
    Guest,
    Impact,
    Inventory,
    LoadMode,
    Policy,
    Precondition,
    Until,
    Workload,
)
from calyx_orch.names import is_workload

PROBLEMS_SHOWN_MAX = 200
NO_FILES = frozenset({"stdin", "--guest"})  # sources that no store can know again
_REFUSALS = {
    **WORKLOAD_REFUSALS,
    "hosts": "a guest is one virtual machine that is measured, a vm_host the machine it runs on: name them under guests: and vm_hosts:",
    "password": "passwords are not read from an inventory: use a key (key:) or an SSH agent",
    **{
        theirs: f"it is called {ours}"
        for ours, others in {
            "address": ("HostName", "hostname", "ip"),
            "key": ("IdentityFile", "identity_file", "private_key"),
            "jump": ("ProxyJump", "proxy_jump", "bastion"),
        }.items()
        for theirs in others
    },
    **{
        f"ansible_{theirs}": f"it is called {ours}; inventories/from_ansible reads whole inventories of Ansible"
        for theirs, ours in {"host": "address", "port": "port", "user": "user", "ssh_private_key_file": "key"}.items()
    },
}


def parse(text: str, *, source: str, base_dir: str, presets: Mapping[str, str]) -> Inventory:
    """Read one inventory with every default applied.

    `source` is the file's name for messages, `base_dir` what relative key, known_hosts and ssh_config paths are relative to,
    `presets` the texts of workloads/ by name. Raises InventoryErrors with all problems, ordered by place.
    """
    document = documents.load(text, source)
    model: InventoryDocument | None = None
    cut: set[documents.Path] = set()
    if document.root is not None and document.root.value is not None:
        model, cut = documents.validate(document, InventoryDocument, refusals=_REFUSALS)
    elif document.readable and not document.problems:
        message = "the inventory is empty: `calyx-orch init` writes one to begin with"
        raise InventoryErrors((Problem(source, 1, 1, message),))
    if model is None:
        _raise(document)
        raise AssertionError("a document without a model has problems")
    fleet = Fleet(document, model, cut, base_dir)
    guests = fleet.guests()
    workloads = _workloads(document, model, cut, presets)
    _check_targets(document, guests, workloads)
    if not model.allow_psync:
        _refuse_psync(document, workloads)
    _raise(document)
    return Inventory(
        name=model.name or _stem(source), guests=guests, workloads=workloads,
        vm_hosts=fleet.places("vm_hosts"), storage=fleet.places("storage"),
        baselines=_baselines(model), **_repetitions(model), precondition=_precondition(model),
        load=tuple(dict.fromkeys(LoadMode(one) if isinstance(one, str) else LoadMode.DENSITY for one in model.load)),
        density=tuple(level for one in model.load if not isinstance(one, str) for level in one.density),
        impact=_impact(model), policy=_policy(model), settle_s=model.settle, stagger_s=model.stagger,
        lost_time_probe_s=model.lost_time_probe, seed=model.seed, source=source, text=text, allow_psync=model.allow_psync,
        origin="" if source in NO_FILES else posixpath.join(base_dir, posixpath.basename(source)),
    )  # fmt: skip


def from_guests(
    guests: Sequence[str], *, target: str, presets: Mapping[str, str], workloads: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None, base_dir: str = "",
) -> Inventory:  # fmt: skip
    """An inventory from `[user@]host[:port]` texts (the last @ decides; IPv6 with a port in brackets) and one directory.

    `workloads` names presets (empty: four-corners); `settings` are more keys of `defaults` (such as key or known_hosts).
    The inventory's `text` is a document that says the same, so the run can be repeated. Raises UsageError.
    """
    endpoints = [_endpoint(guest) for guest in guests]
    if not endpoints:
        raise UsageError("no guest: give --guest [user@]host[:port] once for each guest")
    hosts = Counter(endpoint.address for endpoint in endpoints)
    named: dict[str, dict[str, Any]] = {}
    for written, endpoint in zip(guests, endpoints, strict=True):
        unique = hosts[endpoint.address] == 1
        name = endpoint.address if unique else f"{endpoint.address}:{endpoint.port or 22}"
        if name in named:
            raise UsageError(f"--guest {written}: {name} is named twice")
        said = {"address": endpoint.address, "port": endpoint.port, "user": endpoint.user}
        named[name] = {key: value for key, value in said.items() if value is not None}
    content = {
        "name": "guests",
        "defaults": {"targets": {"data": target}, **(settings or {})},
        "guests": named,
        "workloads": list(workloads) or [DEFAULT_PRESET],
    }
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    try:
        return parse(text, source="--guest", base_dir=base_dir, presets=presets)
    except InventoryErrors as errors:
        raise UsageError("\n".join(f"--guest and --target: {problem.message}" for problem in errors.problems)) from None


def choose_workloads(inventory: Inventory, names: Sequence[str], *, presets: Mapping[str, str]) -> Inventory:
    """The inventory with presets of `names` added that it does not hold yet, so that a plan can be limited to `names`.

    A name of the inventory's own workloads (or a glob, or the part in front of a generated suffix) stands for these. A name
    that is only a preset's replaces the workloads. Raises UsageError for a preset that cannot be read.
    """
    own = [name for name in names if any(is_workload(workload.name, name) for workload in inventory.workloads)]
    added = [name for name in names if name not in own and name in presets]
    if not added:
        return inventory
    document = Document(inventory.source, None)
    opened = Expansion(document, presets).expand([WorkloadSettings(preset=name) for name in added])
    if document.problems:
        raise UsageError("\n".join(dict.fromkeys(str(problem) for problem in document.problems)))
    kept = tuple(one for one in inventory.workloads if any(is_workload(one.name, name) for name in own))
    taken = {one.name for one in kept}
    return replace(inventory, workloads=kept + tuple(one for one in opened if one.name not in taken))


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of an inventory, for editors."""
    generated = _tidy(InventoryDocument.model_json_schema(mode="validation"))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "calyx-orch inventory", **generated}


def first_inventory() -> str:
    """The commented inventory that `calyx-orch init` writes."""
    return FIRST_INVENTORY


def _tidy(node: Any) -> Any:
    """Without generated titles and null defaults, and with bounds in the words of JSON Schema where they are pydantic's."""
    if isinstance(node, list):
        return [_tidy(one) for one in node]
    if not isinstance(node, dict):
        return node
    words = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum"}
    tidy = {}
    for key, value in node.items():
        if key in words and not isinstance(value, dict):
            if node.get("type") in ("integer", "number"):
                tidy[words[key]] = value
        elif not (key == "title" and isinstance(value, str)) and not (key == "default" and value is None):
            tidy[key] = {name: _tidy(one) for name, one in value.items()} if key == "properties" else _tidy(value)
    return tidy


def _endpoint(written: str) -> addresses.Endpoint:
    try:
        return addresses.split_endpoint(written)
    except ValueError as error:
        raise UsageError(
            f"--guest {written!r}: {error}; write [user@]host[:port], IPv6 with a port as [::1]:22"
        ) from None


def _precondition(model: InventoryDocument) -> Precondition | None:
    said = model.precondition
    return None if said is None else Precondition(said.max, said.max_bytes, tuple(said.workloads or ()))


def _repetitions(model: InventoryDocument) -> dict[str, Any]:
    said = model.repetitions
    if isinstance(said, int):
        return {"repetitions": said}
    return {"repetitions": said.max, "until": Until(said.min, said.until.cv_interval)}


def _workloads(
    document: Document, model: InventoryDocument, cut: set[documents.Path], presets: Mapping[str, str]
) -> tuple[Workload, ...]:
    if model.workloads is not None:
        return Expansion(document, presets).expand(model.workloads)
    if any(path and path[0] == "workloads" for path in cut):
        return ()
    return Expansion(document, presets).expand([WorkloadSettings(preset=DEFAULT_PRESET)])


def _check_targets(document: Document, guests: Sequence[Guest], workloads: Sequence[Workload]) -> None:
    known = {target.name for guest in guests for target in guest.targets}
    told = set()
    for workload in workloads:
        for target in workload.targets:
            if known and target not in known and target not in told:
                told.add(target)
                hint = documents.suggestion(target, known) or f" (there are: {', '.join(sorted(known))})"
                message = f"unknown target '{target}' of workload '{workload.name}': no guest has it{hint}"
                document.problems.append(document.problem(_written_at(document, "targets", target), message))


def _refuse_psync(document: Document, workloads: Sequence[Workload]) -> None:
    """Synchronous calls are another engine: they are made only where the inventory says that this is meant."""
    named = [workload.name for workload in workloads if workload.setup == "psync" and not workload.rw.trims]
    if named:
        message = (
            f"workload '{named[0]}' has setup psync, which is not io_uring but one call after another: "
            "write allow_psync: true at the top when that is meant"
        )
        document.problems.append(document.problem(_written_at(document, "setup", "psync"), message))


def _written_at(document: Document, key: str, value: str) -> documents.Path:
    """Where `value` is written under `key` among the workloads, or in the one that stands there without a list."""
    entries = document.find(("workloads",))
    count = len(entries.value) if entries is not None and isinstance(entries.value, list) else 0
    paths: list[documents.Path] = [("workloads",), *(("workloads", index) for index in range(count))]
    for path in paths:
        written = document.find((*path, key))
        if written is not None and isinstance(written.value, list):
            for position, one in enumerate(written.value):
                if one.value == value:
                    return (*path, key, position)
        elif written is not None and written.value == value:
            return (*path, key)
    return ("workloads",)


def _baselines(model: InventoryDocument) -> Baselines:
    if model.baselines == "auto":
        return Baselines()
    if isinstance(model.baselines, str):
        return Baselines(engines=(), auto=False)
    skip = model.baselines.when_missing == "skip"
    return Baselines(engines=tuple(dict.fromkeys(model.baselines.engines)), auto=False, skip_when_missing=skip)


def _impact(model: InventoryDocument) -> Impact:
    said = model.impact
    if said is None:
        return Impact()
    abort = said.abort_if
    return Impact(
        said.max_rate, said.max_guests_per_domain, said.max_bytes_written, said.layout_rate, said.window,
        None if abort is None else AbortIf(
            abort.lost_time_above, abort.steal_above, None if abort.latency_above is None else round(abort.latency_above)
        ),
        said.stagger_by == "domain",
    )  # fmt: skip


def _policy(model: InventoryDocument) -> Policy:
    if isinstance(model.policy, QuorumSettings):
        return Policy("continue", model.policy.quorum)
    return Policy(model.policy)


def _stem(source: str) -> str:
    name = source.rsplit("/", 1)[-1]
    return name.rsplit(".", 1)[0] or name or "inventory"


def _raise(document: Document) -> None:
    """Raise all problems of the document, each once, by place."""
    if not document.problems:
        return
    unique = dict.fromkeys(document.problems)
    ordered = sorted(unique, key=lambda problem: (problem.file != document.source, problem.line, problem.column))
    if len(ordered) > PROBLEMS_SHOWN_MAX:
        rest = len(ordered) - PROBLEMS_SHOWN_MAX
        ordered = [*ordered[:PROBLEMS_SHOWN_MAX], Problem(document.source, 0, 0, f"and {rest} more problems")]
    raise InventoryErrors(tuple(ordered))
