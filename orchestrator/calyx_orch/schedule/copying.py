"""The inventory of a schedule at one firing: its text, and the places that a run of it burdens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calyx_orch import inventory as inventories
from calyx_orch import sources, workloads
from calyx_orch.model import Inventory


@dataclass(frozen=True)
class Copied:
    """The text as it was read, and whom a run of it burdens: `storage:a`, `vm_host:hv1`, `guest:10.0.0.7:22`."""

    text: str
    places: tuple[str, ...]
    inventory: Inventory


def copy(path: str) -> Copied:
    """Read an inventory as it is now. Raises UsageError when it cannot be read or is faulty."""
    text, source, base_dir = sources.read(path)
    return of_text(text, source, base_dir)


def of_text(text: str, source: str, base_dir: str) -> Copied:
    """An inventory that was read before. Raises InventoryErrors when it is faulty."""
    inventory = inventories.parse(text, source=source, base_dir=base_dir, presets=workloads.read_presets())
    return Copied(text, tuple(dict.fromkeys(_places(inventory))), inventory)


def changes(before: Inventory, now: Inventory) -> tuple[str, ...]:
    """What another text of an inventory means: guests and workloads that came, went or differ."""
    told = []
    for noun, old, new in (
        ("guest", {one.name: one for one in before.guests}, {one.name: one for one in now.guests}),
        ("workload", {one.name: one for one in before.workloads}, {one.name: one for one in now.workloads}),
    ):
        came, went = [name for name in new if name not in old], [name for name in old if name not in new]
        differ = [name for name in new if name in old and _of(old[name]) != _of(new[name])]
        told += [
            f"{noun} {name} {word}"
            for names, word in ((came, "is new"), (went, "is gone"), (differ, "differs"))
            for name in names
        ]
    return tuple(told) or ("only its text differs, or settings of the whole run",)


def _of(one: object) -> dict[str, object]:
    return {key: value for key, value in vars(one).items() if key != "line"}


def _places(inventory: Inventory) -> Iterable[str]:
    for guest in inventory.guests:
        yield f"guest:{guest.connection.address}:{guest.connection.port}"
        if guest.vm_host is not None:
            yield f"vm_host:{guest.vm_host}"
        if guest.storage is not None:
            yield f"storage:{guest.storage}"
