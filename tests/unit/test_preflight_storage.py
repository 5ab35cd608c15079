"""Storage cases that preflight decides from an agent's facts, before anything is written (039, 032, 038)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from calyx_orch.model import Layout, Workload
from calyx_orch.runner import preflight

LAYOUT = Layout(guest="vm1", target="data", path="/data", files=1, size_bytes=1 << 20)


def sentences(workload: Workload, **entry: Any) -> list[str]:
    facts = {"logical_block_size": 4096, "device": "/dev/vdb", "io_poll": None, **entry}
    return preflight.target_problems(LAYOUT, facts, [workload])


RANDREAD = Workload(name="small", rw="randread")


@pytest.mark.parametrize("bs_bytes", [512, 6144])
def test_a_block_below_the_sector_names_the_smallest_allowed(bs_bytes: int) -> None:
    """Case 039: direct I/O of 512 bytes or 6 KiB on sectors of 4096 fails in mid-run, so it is refused before."""
    (sentence,) = sentences(replace(RANDREAD, bs_bytes=bs_bytes))
    assert "4096-byte sectors of /dev/vdb" in sentence
    assert "the smallest is 4096" in sentence


def test_an_offset_between_sectors_is_refused() -> None:
    """Case 039."""
    assert sentences(replace(RANDREAD, offset_bytes=1024))


def test_what_fits_or_is_buffered_is_fine() -> None:
    assert not sentences(RANDREAD)
    assert not sentences(replace(RANDREAD, bs_bytes=512), logical_block_size=512)
    assert not sentences(replace(RANDREAD, bs_bytes=512, direct=False))
    assert not sentences(replace(RANDREAD, bs_bytes=512), logical_block_size=None)


def test_every_problem_of_a_target_is_told_at_once() -> None:
    """Case 032: polling is refused by the device's name, beside a wrong block size."""
    found = sentences(replace(RANDREAD, bs_bytes=512, iopoll=True), io_poll=0)
    assert len(found) == 2
    assert any("polling not supported by /dev/vdb" in sentence for sentence in found)


def test_a_device_with_poll_queues_may_be_polled() -> None:
    assert not sentences(replace(RANDREAD, iopoll=True), io_poll=1)


@pytest.mark.parametrize(
    ("online", "node", "fine"), [("0", 0, True), ("0-1,4", 4, True), ("0", 1, False), (None, 3, True)]
)
def test_a_node_that_the_guest_lacks_is_refused(online: str | None, node: int, fine: bool) -> None:
    found = preflight.numa_problems({"numa_nodes": online}, [replace(RANDREAD, numa=node)])
    assert (not found) is fine
