"""Whole runs and CPU accounting on kernels that this machine does not run: real guests, emulated NVMe, ext4 and XFS.

The tests run in the order in which they stand here: the last one takes a guest's power away.
"""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.agent_process import AgentProcess
from calyx_agent import executables
from calyx_orch.engines.answers import IDLE_GRAIN_NS, cpu_use
from calyx_orch.model import CpuUse
from fleet.whole_runs import run, say, start_run
from qemu.machines import FILE_SYSTEMS, Machine

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(500)]

MS = 1_000_000
KERNELS = {"bookworm": "6.1.", "trixie": "6.12."}


def inventory(guests: list[Machine], body: str) -> str:
    targets = ", ".join(f"{kind}: /data/{kind}" for kind in FILE_SYSTEMS)
    lines = ["vm_hosts: {this: {}}", f"defaults: {{user: root, vm_host: this, targets: {{{targets}}}}}", "guests:"]
    for guest in guests:
        where = f"address: 127.0.0.1, port: {guest.port}, key: {guest.key}, known_hosts: {guest.known_hosts}"
        lines.append(f"  - {{name: {guest.name}, {where}}}")
    return "\n".join([*lines, body])


def left(guest: Machine) -> str:
    """What of ours is left on a guest beside the agent's executable: files on the targets, processes, work directories."""
    return guest.shell(
        "ls -A /data/ext4 /data/xfs | grep -v -e '^/data' -e '^lost+found$' -e '^$'; ls -Ad /tmp/?* /var/tmp/?* 2>/dev/null; "
        "cat /proc/[0-9]*/comm | grep -e '^calyx' -e '^fio'; true"
    )


SHORT = """\
workloads:
  - {name: randrw, rw: randrw, bs: 4k, iodepth: 8, size: 24m, runtime: 2s, ramp_time: 0.5s}
baselines: [fio-io_uring]
repetitions: 1
lost_time_probe: 0
"""


async def test_engine_and_fio_run_on_real_kernels_on_ext4_and_xfs(guests: list[Machine], tmp_path: Path) -> None:
    ended = await run(inventory(guests, SHORT), tmp_path, within_s=240)
    say(ended.out)
    assert ended.status == 0, ended.out + ended.err
    record = ended.record
    for guest in guests:
        facts = record.facts[guest.name]
        assert facts["kernel"].startswith(KERNELS[guest.name])
        assert facts["hypervisor"] == "qemu"
        assert {path["fs_type"] for path in facts["paths"]} == set(FILE_SYSTEMS)
        assert {path["model"] for path in facts["paths"]} == {"QEMU NVMe Ctrl"}
    cells = [(m.guest, m.target, m.engine) for m in record.measurements]
    assert sorted(set(cells)) == sorted(
        (guest.name, kind, engine) for guest in guests for kind in FILE_SYSTEMS for engine in ("calyx", "fio-io_uring")
    )
    for measurement in record.measurements:
        assert (measurement.status, measurement.why) == ("ok", ""), measurement
        assert measurement.cpu is not None
        _check_cpu(measurement.cpu, f"{measurement.guest}, {measurement.engine} on {measurement.target}")
    assert all(row.iops > 100 and row.p99_ns for row in ended.summary.guests)
    assert [left(guest) for guest in guests] == ["", ""]


def _check_cpu(cpu: CpuUse, what: str) -> None:
    """Both ways of accounting are there, and what was taken covers the engine and fits into the window."""
    assert cpu.scheduled_ns is not None, "these kernels have /proc/schedstat"
    assert cpu.busy_ns is not None
    assert cpu.engine_ns is not None
    assert cpu.idle_ns is not None
    assert cpu.iowait_ns is not None
    capacity_ns = cpu.window_ns * cpu.cpus
    say(
        f"{what}: {cpu.busy_how} busy {cpu.busy_ns} scheduled {cpu.scheduled_ns} engine {cpu.engine_ns} of {capacity_ns} ns"
    )
    assert 0 < cpu.engine_ns <= cpu.busy_ns + IDLE_GRAIN_NS
    assert cpu.busy_ns == pytest.approx(capacity_ns - cpu.idle_ns - cpu.iowait_ns, abs=IDLE_GRAIN_NS)


# --- CPU against known loads -------------------------------------------------------------------------------------

SPIN = "busybox timeout -s KILL 5 busybox taskset 2 busybox sh -c 'while :; do :; done'"
LOADS = {
    "nothing": "sleep 4",
    "a spin that never leaves its CPU": SPIN,
    "a spin on each CPU": f"{SPIN.replace('taskset 2', 'taskset 1')} & {SPIN}",
}


@dataclass(frozen=True)
class Accounted:
    """What an agent on a guest said of a load, and the CPU time of the load's threads by their own schedstat."""

    cpu: CpuUse
    threads_ns: int


def account(guest: Machine, load: str) -> Accounted:
    """Run a shell's words behind the gate as fio is run, and take its CPU over 2 s of it."""
    agent = AgentProcess(guest.ssh("exec /root/calyx-agent"))
    try:
        script = f"{agent.hello['path']} wait gate={agent.hello['work']}/gate; {load}; true"
        words: list[tuple[str, Any]] = [("arg", "sh"), ("arg", "-c"), ("arg", script)]
        agent.send("exec", ("hold", 1), *words, ramp_ns=1000 * MS, runtime_ns=2000 * MS)
        agent.until("ready")
        agent.arm(500 * MS)
        usage = agent.until("usage")
        agent.until("exited")
    finally:
        agent.leave()
    cpu = cpu_use(usage)
    assert cpu is not None
    return Accounted(cpu, sum(thread["ns"] for thread in usage["threads"]))


def test_the_cpu_time_of_a_guest_is_that_of_known_loads(guests: list[Machine]) -> None:
    """A window of 2 s on two CPUs. A task that never leaves its CPU is what /proc/schedstat does not count."""
    for guest in guests:
        with executables.local().path.open("rb") as agent:
            subprocess.run(guest.ssh("cat >/root/calyx-agent && chmod 755 /root/calyx-agent"), check=True, stdin=agent)
        found = {name: account(guest, load) for name, load in LOADS.items()}
        nothing, one, two = (found[name].cpu for name in LOADS)
        for name, accounted in found.items():
            _check_cpu_of_load(guest, name, accounted)
        assert nothing.busy_ns is not None
        assert one.busy_ns is not None
        assert two.busy_ns is not None
        assert nothing.busy_ns < 0.25 * nothing.window_ns
        assert one.engine_ns == pytest.approx(one.window_ns, rel=0.03)
        assert 0.97 * one.window_ns < one.busy_ns < 1.3 * one.window_ns
        assert two.engine_ns == pytest.approx(2 * two.window_ns, rel=0.1)
        assert two.busy_ns == pytest.approx(2 * two.window_ns, rel=0.03)


def _check_cpu_of_load(guest: Machine, name: str, accounted: Accounted) -> None:
    if accounted.cpu.engine_ns:
        _check_cpu(accounted.cpu, f"{guest.name}, {name}")
        assert accounted.threads_ns == pytest.approx(accounted.cpu.engine_ns, rel=0.1), "the engine's own threads"


# --- a power failure ---------------------------------------------------------------------------------------------

LONG = """\
workloads:
  - {name: randread, rw: randread, bs: 4k, iodepth: 4, size: 8m, runtime: 5s, ramp_time: 0.5s, rate_iops: 400}
baselines: none
repetitions: 1
lost_time_probe: 0
"""
INTO_THE_IO_S = 3.0  # from the announcement of a round until its I/O surely runs


async def test_a_guest_without_power_in_the_middle_of_a_round_costs_no_other_its_results(
    guests: list[Machine], tmp_path: Path
) -> None:
    """No connection is closed: the controller hears nothing more, as of a machine whose host lost its power."""
    stays, goes = guests
    started = await start_run(inventory(guests, LONG), tmp_path)
    await started.until("round 1 of 2", within_s=90)
    await asyncio.sleep(INTO_THE_IO_S)
    goes.fall_silent()
    ended = await started.ended(within_s=120)
    say(ended.out)
    assert ended.status == 3, ended.out + ended.err
    assert (ended.outcomes[goes.name].state, ended.outcomes[goes.name].step) == ("lost", "round 1")
    assert [line for line in ended.failure_lines(goes.name) if "lost" in line] != []
    assert ended.outcomes[stays.name].state == "measured"
    kept = [m for m in ended.record.measurements if m.guest == stays.name]
    assert [(m.target, m.status) for m in kept] == [("ext4", "ok"), ("xfs", "ok")]
    assert [row.status for row in ended.summary.guests if row.guest == stays.name] == ["ok", "ok"]
    assert left(stays) == ""
