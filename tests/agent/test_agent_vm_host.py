"""A real agent tells what the hypervisor wrote of its own host: in Hyper-V's pool of keys and values, and in SMBIOS."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_process import AgentProcess

pytestmark = pytest.mark.root

ABOVE = """
mount -t tmpfs tmpfs /var/lib && mkdir -p /var/lib/hyperv && cp "$1/pool" /var/lib/hyperv/.kvp_pool_3 &&
mount -t tmpfs tmpfs /sys/firmware && mkdir -p /sys/firmware/dmi/entries/11-0 /sys/firmware/dmi/entries/11-1 &&
cp "$1/oem" /sys/firmware/dmi/entries/11-1/raw && cp "$1/other" /sys/firmware/dmi/entries/11-0/raw && exec "$0"
"""
KEY = "PhysicalHostNameFullyQualified"


def entry(key: str, value: str | bytes) -> bytes:
    """A record of the pool as Hyper-V's daemon writes it: 512 bytes of key, 2048 of value."""
    return key.encode().ljust(512, b"\0") + (value if isinstance(value, bytes) else value.encode()).ljust(2048, b"\0")


def oem(*strings: str) -> bytes:
    """A structure of type 11: type, length, handle, how many strings; then these, ended by an empty one."""
    return bytes([11, 5, 0x0B, 0, len(strings)]) + b"".join(one.encode() + b"\0" for one in strings) + b"\0"


@pytest.fixture
def told(start: Callable[..., AgentProcess], tmp_path: Path) -> Iterator[Callable[..., dict[str, str | None]]]:
    """What an agent tells that sees these files in a mount namespace of its own."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    agents: list[AgentProcess] = []

    def ask(pool: bytes, table: bytes = b"") -> dict[str, str | None]:
        for name, content in (("pool", pool), ("oem", table), ("other", oem("nothing of ours"))):
            (tmp_path / name).write_bytes(content)
        agents.append(AgentProcess(["unshare", "-m", "sh", "-c", ABOVE, start().hello["path"], tmp_path]))
        found: dict[str, str | None] = agents[-1].ask("facts", "facts")["vm_host"]
        return found

    yield ask
    for agent in agents:
        agent.leave()


def test_the_host_is_found_among_the_records_of_the_pool(told: Callable[..., dict[str, str | None]]) -> None:
    records = [entry("HostName", "HV1"), entry(KEY, "hv1.corp.example"), entry("VirtualMachineName", "vm")]
    assert told(b"".join(records)) == {"kvp": "hv1.corp.example", "smbios": None}


def test_the_oem_string_is_found_behind_others(told: Callable[..., dict[str, str | None]]) -> None:
    assert told(b"", oem("rack 7", "calyx.host=kvm-03", "more")) == {"kvp": None, "smbios": "kvm-03"}


@pytest.mark.parametrize(
    ("pool", "table"),
    [
        (entry(KEY + "X", "hv1"), oem("calyx.hosts=kvm")),  # a longer key is another one
        (entry(KEY, "hv1")[:-1], oem()),  # cut off
        (entry(KEY, ""), oem("calyx.host=")),
        (b"", bytes([11])),
        (b"\xff" * 2560, bytes([11, 255, 0, 0, 1]) + b"calyx.host=kvm"),  # its formatted part reaches beyond its end
    ],
)
def test_what_is_not_there_or_broken_is_null(
    told: Callable[..., dict[str, str | None]], pool: bytes, table: bytes
) -> None:
    assert told(pool, table) == {"kvp": None, "smbios": None}


def test_a_value_without_an_end_is_cut(told: Callable[..., dict[str, str | None]]) -> None:
    found = told(entry(KEY, b"h" * 2048), bytes([11, 5, 0, 0, 1]) + b"calyx.host=" + b"k" * 4000)
    assert found["kvp"] == "h" * 2047
    assert (found["smbios"] or "").startswith("kkk")


def test_the_model_of_the_cpus_is_that_of_the_kernel(start: Callable[..., AgentProcess]) -> None:
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    assert start().ask("facts", "facts")["cpu_model"] == (models[0] if models else None)
