"""Whether a guest is what it was when it was measured: each fact that would mix figures of two things refuses by its name."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from calyx_orch.runner import identity

DIRECTORY: dict[str, Any] = {
    "path": "/data", "is_block": False, "fs_type": "xfs", "fs_uuid": "a" * 32, "mount_options": "rw,noatime",
    "source": "/dev/sdb1", "total_bytes": 1 << 30, "free_bytes": 1 << 29, "device": "sdb", "scheduler": "none",
    "write_cache": "write back", "queue_depth": 64, "rotational": False, "model": "Virtual Disk", "io_poll": 0,
    "is_ram": False,
    "disk": {
        "number": "8:16", "size_bytes": 1 << 31, "serial": "S1", "wwid": "naa.1", "uuid": None, "backing_file": None,
    },
}  # fmt: skip
RAW: dict[str, Any] = {
    **DIRECTORY, "path": "/dev/disk/by-id/swp", "is_block": True, "fs_type": "devtmpfs", "source": "devtmpfs",
    "mount_options": "rw,size=100k", "fs_uuid": None, "device": "loop0", "model": None,
    "disk": {
        "number": "7:0", "size_bytes": 64 << 20, "serial": None, "wwid": None, "uuid": None, "backing_file": "/images/a",
    },
    "block": {"node": "/dev/loop0", "size_bytes": 64 << 20, "serial": "", "wwid": None, "discard": True, "refused": ""},
}  # fmt: skip
FACTS: dict[str, Any] = {
    "boot_id": "b1", "machine_id": "m", "kernel": "6.1", "cpus": 4, "cpu_model": "EPYC", "numa_nodes": "0", "product": None,
    "memory_bytes": 4 << 30, "hostname": "a", "uid": 0, "clock": {"cost_ns": 23}, "fio": {"path": "/usr/bin/fio", "version": "3.33"},
    "paths": [DIRECTORY, RAW],
}  # fmt: skip


def told(at: int | None, **changes: Any) -> list[str]:
    """The differences after a change of the facts, or of the path at `at`; what is an object is changed within."""
    now = copy.deepcopy(FACTS)
    where = now if at is None else now["paths"][at]
    for key, value in changes.items():
        where[key] = {**where[key], **value} if isinstance(value, dict) else value
    return identity.differences(FACTS, now)


REFUSED: list[tuple[int | None, dict[str, Any], str]] = [
    (None, {"cpu_model": "Xeon"}, "CPU model was EPYC, is Xeon"),
    (None, {"numa_nodes": "0-1"}, "NUMA nodes was 0, is 0-1"),
    (None, {"product": "Other"}, "virtual hardware was not known, is Other"),
    (None, {"machine_id": None}, "machine id was m, is not known"),
    (None, {"fio": {"path": "/opt/fio"}}, "path of fio was /usr/bin/fio, is /opt/fio"),
    (0, {"fs_uuid": "c" * 32}, f"uuid of the file system of /data was {'a' * 32}, is {'c' * 32}"),
    (0, {"mount_options": "rw"}, "mount options of /data was rw,noatime, is rw"),
    (0, {"total_bytes": 1 << 31}, "size of the file system of /data was"),
    (0, {"io_poll": 1}, "polling of /data was 0, is 1"),
    (0, {"is_ram": True}, "lying in memory of /data was False, is True"),
    (0, {"model": None}, "disk model of /data was Virtual Disk, is not known"),
    (0, {"write_cache": None}, "write cache of /data was write back, is not known"),
    (0, {"disk": {"serial": "S2"}}, "serial number of the disk of /data was S1, is S2"),
    (0, {"disk": {"serial": None}}, "serial number of the disk of /data was S1, is not known"),
    (0, {"disk": {"wwid": "naa.2"}}, "world-wide id of the disk of /data was naa.1, is naa.2"),
    (0, {"disk": {"uuid": "LVM-x"}}, "uuid of the volume of /data was not known, is LVM-x"),
    (0, {"disk": {"size_bytes": 1}}, "size of the disk of /data was 2147483648, is 1"),
    (1, {"disk": {"backing_file": "/images/b"}}, "backing file of the disk of /dev/disk/by-id/swp was /images/a"),
    (1, {"disk": {"size_bytes": 100 << 20}}, "size of the disk of /dev/disk/by-id/swp was 67108864, is 104857600"),
    (1, {"block": {"discard": False}}, "discard of /dev/disk/by-id/swp was True, is False"),
]


@pytest.mark.parametrize(("at", "changes", "says"), REFUSED, ids=[says for _, _, says in REFUSED])
def test_another_thing_is_named(at: int | None, changes: dict[str, Any], says: str) -> None:
    (found,) = told(at, **changes)
    assert found.startswith(says)


LET_BE: list[tuple[int | None, dict[str, Any]]] = [
    (None, {}),
    (None, {"hostname": "b", "uid": 1000, "clock": {"cost_ns": 40}, "boot_id": "b2"}),
    (0, {"device": "sdc", "source": "/dev/sdc1", "free_bytes": 1, "disk": {"number": "8:32"}}),
    (
        1,
        {
            "device": "loop3",
            "mount_options": "rw,size=200k",
            "disk": {"number": "7:3"},
            "block": {"node": "/dev/loop3"},
        },
    ),
]


@pytest.mark.parametrize(("at", "changes"), LET_BE)
def test_another_name_of_the_same_thing_is_let_be(at: int | None, changes: dict[str, Any]) -> None:
    """Nodes and numbers may change while wwid, serial or backing file stay: it is the same disk."""
    assert told(at, **changes) == []


@pytest.mark.parametrize(
    ("boot_id", "says"), [("b1", ["device number of the disk of /x was 254:16, is 254:32"]), ("b2", [])]
)
def test_a_disk_without_any_name_is_known_by_its_number_as_long_as_the_kernel_lives(
    boot_id: str, says: list[str]
) -> None:
    """After a boot the numbers may be dealt anew; then its size is what is left, and the doubt of a guest that was started anew."""
    bare = {"path": "/x", "is_block": True, "disk": {"number": "254:16", "size_bytes": 5, "serial": None, "wwid": None}}
    other = {**bare, "disk": {**bare["disk"], "number": "254:32"}}
    found = identity.differences({"boot_id": "b1", "paths": [bare]}, {"boot_id": boot_id, "paths": [other]})
    assert found == says


@pytest.mark.parametrize(("source", "says"), [("server:/b", ["what is mounted of /n was server:/a, is server:/b"])])
def test_another_share_is_another_thing(source: str, says: list[str]) -> None:
    """It has no disk here and no uuid: what is mounted is all that tells."""
    share = {"path": "/n", "fs_type": "nfs4", "source": "server:/a", "disk": None, "fs_uuid": None}
    assert identity.differences({"paths": [share], "cpus": 1}, {"paths": [{**share, "source": source}]}) == says


def test_a_measured_guest_whose_facts_are_gone_is_not_taken_for_the_same() -> None:
    assert identity.differences({}, FACTS) == ["what it said of itself when it was measured is not in the run folder"]


def test_what_the_agents_of_before_did_not_say_is_not_compared() -> None:
    assert identity.differences({"cpus": 4, "paths": [{"path": "/data"}]}, FACTS) == []
