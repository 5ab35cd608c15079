"""Which figure a guest's CPU time is taken from, where the scheduler and the kernel's idle time differ."""

from __future__ import annotations

import pytest

from calyx_orch.engines.answers import cpu_use
from calyx_orch.model import CpuUse

SECOND = 1_000_000_000


def cpu_of(busy_ms: int, idle_ms: int, iowait_ms: int = 0, *, engine_ms: int = 0, idle_timed: bool = True) -> CpuUse:
    """Two CPUs for 3 s of which so much was idle, and what the scheduler says."""
    stat = {"idle_ns": idle_ms * 1_000_000, "iowait_ns": iowait_ms * 1_000_000, "steal_ns": 0}
    usage = {"window_start_ns": 0, "window_end_ns": 3 * SECOND, "cpus": 2, "busy_ns": busy_ms * 1_000_000, "stat": stat}
    found = cpu_use(usage | {"engine_ns": engine_ms * 1_000_000, "idle_timed": idle_timed})
    assert found is not None
    return found


def test_the_scheduler_is_believed_where_idle_time_agrees_within_its_ticks() -> None:
    cpu = cpu_of(1010, 4980, 20)
    assert (cpu.busy_ns, cpu.busy_how) == (1_010_000_000, "schedstat")
    assert cpu_of(6005, 0).busy_percent == 100.0, "its samples are not taken at one instant"


@pytest.mark.parametrize(
    ("scheduled_ms", "idle_ms", "busy_ms"),
    [
        (1676, 2820, 3180),  # kernel 6.1: a spin of 3 s on one CPU; its thread had left it last after 1.5 s
        (2444, 3350, 2650),  # kernel 6.1: fio at depth 8; a tenth was interrupts of idle CPUs
        (9000, 5900, 100),  # a spin that ended as the window began, counted as it left its CPU
    ],
)
def test_what_the_scheduler_leaves_out_is_taken_from_idle_time(scheduled_ms: int, idle_ms: int, busy_ms: int) -> None:
    cpu = cpu_of(scheduled_ms, idle_ms)
    assert (cpu.busy_ns, cpu.busy_how) == (busy_ms * 1_000_000, "idle")
    assert cpu.scheduled_ns == scheduled_ms * 1_000_000


def test_sampled_idle_time_decides_nothing() -> None:
    """With `nohz=off` a load that follows the timer is not seen at ticks: 5 s of 6 would be idle."""
    cpu = cpu_of(2444, 5000, idle_timed=False)
    assert (cpu.busy_ns, cpu.busy_how) == (2_444_000_000, "schedstat")


def test_a_guest_was_never_less_busy_than_its_engine() -> None:
    """Kernel 5.10 under SQPOLL: the submitter's 2.02 s and the poller's 3.00 s are more than either account holds."""
    cpu = cpu_of(3668, 1441, engine_ms=5021)
    assert (cpu.busy_ns, cpu.busy_how) == (5_021_000_000, "engine")
    assert cpu_of(3668, 1441, engine_ms=4580).busy_how == "idle", "within the ticks"


def test_the_threads_that_poll_are_told_apart() -> None:
    """Two SQPOLL threads among others; an answer that makes no sense is none of them."""
    told = [
        {"name": "iou-sqp-77", "ns": 2 * SECOND},
        {"name": "calyx-agent", "ns": 1},
        {"name": "iou-sqp-78", "ns": SECOND},
        {"name": "iou-sqp-79", "ns": "all"},
        "nonsense",
    ]
    cpu = cpu_use({"window_start_ns": 0, "window_end_ns": 3 * SECOND, "cpus": 2, "threads": told})
    assert cpu is not None
    assert (cpu.poller_ns, cpu.pollers) == (3 * SECOND, 2)
    assert cpu_of(1000, 5000).poller_ns is None


def test_a_device_that_did_not_settle_is_a_doubt_of_the_measurement() -> None:
    from measured import guest, round_

    from calyx_orch.engines.answers import NOT_IDLE, blank
    from calyx_orch.model import Answers, ClockBound

    for idle, doubts in ((True, ()), (False, (NOT_IDLE,))):
        said = Answers({"settled": {"type": "settled", "idle": idle}}, {}, ClockBound(0, 0), 0)
        assert blank(round_(0, ["vm1"]), guest("vm1"), said).doubts == doubts
