"""Whether a guest is what it was when it was measured, by its facts: what differs, each as a sentence. Pure.

Which facts refuse, which are a doubt and which are let be, with the reason of each, is in docs/resume.md. A fact that only one side
has a key for is not compared (the agent is the same on both sides, so that is a fact of another version); one that was known and
is unknown now is a difference, as is the reverse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Facts = Mapping[str, Any]

GUEST_FACTS = {  # key -> how it is called to the user
    "machine_id": "machine id",
    "kernel": "kernel",
    "arch": "architecture",
    "cpus": "number of CPUs",
    "cpu_model": "CPU model",
    "numa_nodes": "NUMA nodes",
    "hypervisor": "hypervisor",
    "product": "virtual hardware",
    "clocksource": "clock source",
}
QUEUE_FACTS = {
    "logical_block_size": "logical block size",
    "physical_block_size": "physical block size",
    "rotational": "rotational",
    "scheduler": "I/O scheduler",
    "write_cache": "write cache",
    "queue_depth": "queue depth",
    "model": "disk model",
    "io_poll": "polling",
    "is_ram": "lying in memory",
}
DISK_FACTS = {"size_bytes": "size of the disk", "discard": "discard"}
NAMES_OF_DISKS = {  # what one disk has and no other, also under another node
    "wwid": "world-wide id of the disk",
    "serial": "serial number of the disk",
    "uuid": "uuid of the volume",
    "backing_file": "backing file of the disk",
}
FILE_SYSTEM_FACTS = {
    "fs_type": "file system",
    "fs_uuid": "uuid of the file system",
    "mount_options": "mount options",
}
SIZED = ("ext2", "ext3", "ext4", "xfs")  # file systems whose size is fixed; of others it changes with what lies on them


def differences(before: Facts, now: Facts) -> list[str]:
    """What would mix figures of two things, as sentences."""
    if not before:
        return ["what it said of itself when it was measured is not in the run folder"]
    found = _of(GUEST_FACTS, before, now, "")
    fio = [_object(side.get("fio")) for side in (before, now)]
    if fio[0].get("path"):
        if fio[0].get("version") != fio[1].get("version"):
            found.append(f"fio was {_said(fio[0].get('version'))}, is {fio[1].get('version') or 'missing'}")
        found += _of({"path": "path of fio"}, fio[0], fio[1], "")
    paths = {entry.get("path"): entry for entry in _objects(now.get("paths"))}
    is_same_boot = _is_same(before.get("boot_id"), now.get("boot_id"))
    for entry in _objects(before.get("paths")):
        there = paths.get(entry.get("path"), {})
        found += _of_path(entry, there, f" of {entry.get('path')}", is_same_boot=is_same_boot)
    return found


def _of_path(before: Facts, now: Facts, where: str, *, is_same_boot: bool) -> list[str]:
    """Of one target: the disk below it and how it is driven; of a directory also the file system on it."""
    found = _of(QUEUE_FACTS, before, now, where)
    disks = _disk(before), _disk(now)
    found += _of(DISK_FACTS | NAMES_OF_DISKS, *disks, where)
    if is_same_boot and not _has_name(disks[0]):
        # Without any name of its own a disk is known by its number, which lasts as long as the kernel.
        found += _of({"number": "device number of the disk"}, *disks, where)
    if before.get("is_block") or before.get("block"):
        return found  # what it lies on is the file system of its node
    keys = dict(FILE_SYSTEM_FACTS)
    if before.get("fs_type") in SIZED:
        keys["total_bytes"] = "size of the file system"
    if not str(before.get("source")).startswith("/dev/"):  # names of nodes may change; that of a share is its identity
        keys["source"] = "what is mounted"
    return found + _of(keys, before, now, where)


def _disk(entry: Facts) -> dict[str, Any]:
    """What is told of the disk below a path, and of the path as a raw device."""
    return {**_object(entry.get("block")), **_object(entry.get("disk"))}


def _has_name(disk: Facts) -> bool:
    return any(disk.get(key) for key in NAMES_OF_DISKS)


def _of(keys: Mapping[str, str], before: Facts, now: Facts, where: str) -> list[str]:
    return [
        f"{words}{where} was {_said(before[key])}, is {_said(now[key])}"
        for key, words in keys.items()
        if key in before and key in now and _said(before[key]) != _said(now[key])
    ]


def _said(value: object) -> str:
    return "not known" if value is None or value == "" else str(value)


def _is_same(before: object, now: object) -> bool:
    return before is not None and before == now


def _object(value: object) -> Facts:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> Iterable[Facts]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
