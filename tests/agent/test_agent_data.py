"""No layer below finds the same data twice, in what is laid out and in what is written."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
from agent_process import AgentProcess
from test_agent_runs import MS, ready

from calyx_agent import protocol

BLOCK = 4096
SECTOR = 512
GENERATOR_STEP = 0x9E3779B97F4A7C15  # of SplitMix64: seeds that far apart are the closest there are
LAYOUT_BYTES = 4 << 20
WRITTEN_BYTES = 2 << 20
WRITES: dict[str, dict[str, protocol.Value]] = {
    "randwrite": {"rw": "randwrite", "bs": 4096, "iodepth": 4},
    "large": {"rw": "write", "bs": 65536, "iodepth": 2},
    "mixed": {"rw": "randrw", "bs": 4096, "iodepth": 4},
    "bssplit": {"rw": "randwrite", "bs": 16384, "bssplit": "4096/50:16384/50", "iodepth": 4},
    "verify": {"rw": "randwrite", "bs": 4096, "iodepth": 4, "verify": "crc32c"},
}


def pieces(path: str, size: int) -> list[bytes]:
    data = Path(path).read_bytes()
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("verify", ["none", "crc32c"])
def test_no_block_is_laid_out_twice_over_all_files_and_seeds(agent: AgentProcess, target: Path, verify: str) -> None:
    """Neighbouring seeds, and those a step of the generator apart, whose streams would be the same but for a shift."""
    blocks: list[bytes] = []
    for seed in (42, 43, 42 + GENERATOR_STEP):
        size = {"size": LAYOUT_BYTES, "files": 3}
        prepared = agent.ask("prepare", "prepared", path=target, seed=seed, verify=verify, **size)
        for file in prepared["files"]:
            blocks += pieces(file["path"], BLOCK)
    assert len(blocks) == 3 * 3 * LAYOUT_BYTES // BLOCK
    assert len({hash(block[64:]) for block in blocks}) == len(blocks)  # behind a header of verify


@pytest.mark.parametrize("seed", [1, 2**64 - 1])
def test_what_is_laid_out_and_written_by_one_seed_differs(agent: AgentProcess, target: Path, seed: int) -> None:
    size = {"size": WRITTEN_BYTES, "files": 1}
    prepared = agent.ask("prepare", "prepared", path=target, seed=seed, **size)
    path = prepared["files"][0]["path"]
    before = pieces(path, SECTOR)
    write(agent, [path], {"rw": "write", "bs": 65536, "iodepth": 2, "data_seed": seed})
    after = pieces(path, SECTOR)
    assert {sector[8:] for sector in before}.isdisjoint(sector[8:] for sector in after)


def write(agent: AgentProcess, paths: list[str], job: dict[str, protocol.Value]) -> None:
    """A write round that goes over each file several times, whatever the disk."""
    for runtime_ms in (300, 1200, 5000):
        ready(agent, paths, **(job | {"size": WRITTEN_BYTES, "ramp_ns": 0, "runtime_ns": runtime_ms * MS}))
        agent.arm(20 * MS)
        assert agent.until("result")["status"] == "ok"
        document = json.loads(agent.documents["result"])
        if document["write"]["bytes"] >= 4 * WRITTEN_BYTES * len(paths):
            return
    pytest.skip("too slow a disk to write the files over")


@pytest.mark.parametrize("kind", WRITES)
def test_each_sector_that_a_round_wrote_is_unlike_all_others_and_no_block_compresses(
    agent: AgentProcess, target: Path, kind: str
) -> None:
    """512 bytes are the least that anything below compares; fio's scramble_buffers keeps to the same."""
    verify = str(WRITES[kind].get("verify", "none"))
    prepared = agent.ask("prepare", "prepared", path=target, size=WRITTEN_BYTES, files=2, seed=9, verify=verify)
    paths = [file["path"] for file in prepared["files"]]
    write(agent, paths, WRITES[kind])
    sectors = [sector for path in paths for sector in pieces(path, SECTOR)]
    assert len(set(sectors)) == len(sectors)
    blocks = [block for path in paths for block in pieces(path, BLOCK)]
    assert min(len(zlib.compress(block)) / BLOCK for block in blocks) >= 0.99


def test_data_that_shall_compress_still_does(agent: AgentProcess, target: Path) -> None:
    """The stamps of the sectors are 8 bytes of each 512."""
    prepared = agent.ask("prepare", "prepared", path=target, size=WRITTEN_BYTES, files=1)
    paths = [prepared["files"][0]["path"]]
    write(agent, paths, {"rw": "write", "bs": 65536, "iodepth": 2, "buffer_compress_percentage": 75})
    data = Path(paths[0]).read_bytes()
    assert 0.22 < len(zlib.compress(data)) / len(data) < 0.32
