"""The network or the power of one guest goes away in one phase: what the user sees, and what remains. docs/failures.md is the table."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from calyx_orch.commands.loopback import LoopbackGuest, inventory_yaml
from faults.light_guests import LightFleet, light_guests
from faults.test_processes import CALYX, _check_other, into_phase
from fleet.disks import need_root
from fleet.whole_runs import Ended, left_files, say, start, start_run

pytestmark = [pytest.mark.fleet, pytest.mark.root]

NOTICED_WITHIN_S = 15.0  # three keep-alives of 5 s that nobody answers
RESET = "meta l4proto tcp reject with tcp reset"


@dataclass(frozen=True)
class Cut:
    """How the second guest is cut off, in which phase, words of the reason, and until when its own lease has cleaned it."""

    how: str
    phase: str
    reason: str = "connection to the agent was lost"
    clean_within_s: float = 45.0
    is_slow: bool = True

    def __str__(self) -> str:
        return f"{self.how}-{self.phase}"

    def make(self, fleet: LightFleet, guest: LoopbackGuest) -> None:
        """Cut it off."""
        match self.how:
            case "link-down":
                fleet.link(guest, up=False)
            case "drop":
                fleet.drop(guest)
            case "reset":
                fleet.drop(guest, RESET, ways=("input",))


CUTS = (
    Cut("link-down", "layout"),
    Cut("link-down", "calyx"),
    Cut("drop", "calyx"),
    Cut("drop", "fio"),
    Cut("drop", "clean", reason=""),
    Cut("reset", "calyx"),
)


@pytest.mark.parametrize(
    "cut", [pytest.param(c, id=str(c), marks=[pytest.mark.slow] if c.is_slow else []) for c in CUTS]
)
async def test_a_guest_that_is_cut_off(cut: Cut, tmp_path: Path) -> None:
    """No packet says goodbye: noticed within 15 s, lost with a reason; cut off, the guest ends fio and I/O and cleans by itself."""
    need_root("fio")
    async with light_guests(2, tmp_path) as fleet:
        guest = fleet.guests[1]
        started = await into_phase(cut.phase, fleet, tmp_path)
        cut.make(fleet, guest)
        began = asyncio.get_running_loop().time()
        if cut.phase in ("calyx", "layout") and cut.reason:
            await started.until("guest2: lost", within_s=NOTICED_WITHIN_S + 10)
            noticed = asyncio.get_running_loop().time() - began
            say(f"noticed after {noticed:.1f} s")
            assert noticed < NOTICED_WITHIN_S + 2
        ended = await started.ended(within_s=100)
        took = await fleet.nothing_left(within_s=cut.clean_within_s)
        say(f"clean {took:.1f} s after the end; {ended.outcomes[guest.name]}")
    if cut.phase == "clean":
        _check_cleaning(ended)
        return
    _check_lost(ended, cut.reason)


def _check_lost(ended: Ended, reason: str) -> None:
    said = ended.out + ended.err
    assert "Traceback" not in said, said
    assert ended.status == 3, said
    assert ended.outcomes["guest2"].state == "lost"
    assert reason in ended.outcomes["guest2"].reason, said
    assert len(ended.failure_lines("guest2")) == 1, said
    _check_other(ended)


def _check_cleaning(ended: Ended) -> None:
    """All was measured; whether the guest was clean is known, or said to be unknown."""
    assert ended.status == 0, ended.out + ended.err
    notes = " ".join(ended.outcomes["guest2"].notes)
    assert not notes or "cleaning was not confirmed" in notes
    _check_other(ended)


async def test_a_cable_that_is_out_for_a_moment_costs_nothing(tmp_path: Path) -> None:
    """Three seconds without a link in a round, which TCP bridges: measured, exit code 0, nothing said of a lost guest."""
    async with light_guests(2, tmp_path) as fleet:
        started = await into_phase("calyx", fleet, tmp_path)
        fleet.link(fleet.guests[1], up=False)
        await asyncio.sleep(3.0)
        fleet.link(fleet.guests[1], up=True)
        ended = await started.ended()
        await fleet.nothing_left(within_s=5.0)
    assert ended.status == 0, ended.out + ended.err
    assert {outcome.state for outcome in ended.outcomes.values()} == {"measured"}
    _check_other(ended)


@pytest.mark.slow
async def test_a_network_that_loses_packets_costs_time_only(tmp_path: Path) -> None:
    """One packet in ten is lost both ways, from before the login on: measured all the same."""
    async with light_guests(2, tmp_path) as fleet:
        fleet.drop(fleet.guests[1], "numgen random mod 100 < 10 drop")
        text = inventory_yaml(fleet, body=CALYX)  # type: ignore[arg-type]  # it has what is asked of a fleet
        ended = await (await start_run(text, tmp_path, within=fleet.within)).ended(within_s=110)
        fleet.undrop(fleet.guests[1])
        await fleet.nothing_left(within_s=10.0)
    assert ended.status == 0, ended.out + ended.err
    assert ended.outcomes["guest2"].state == "measured"


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("link-down", "10.77.0.3:22"),
        pytest.param("drop", "no answer from 10.77.0.3:22 within 4 s", marks=pytest.mark.slow),
    ],
)
async def test_a_guest_that_is_cut_off_before_the_login(how: str, reason: str, tmp_path: Path) -> None:
    """Told with its address within `connect_timeout`; the others go on."""
    async with light_guests(2, tmp_path) as fleet:
        Cut(how, "connect").make(fleet, fleet.guests[1])
        text = inventory_yaml(fleet, body=CALYX)  # type: ignore[arg-type]  # it has what is asked of a fleet
        text = text.replace("defaults:\n", "defaults:\n  connect_timeout: 4s\n")
        ended = await (await start_run(text, tmp_path, within=fleet.within)).ended()
    _check_lost(ended, reason)
    assert ended.outcomes["guest2"].step == "connect"


@pytest.mark.slow
async def test_a_guest_whose_power_is_cut(tmp_path: Path) -> None:
    """Lost; after the reboot its files are still there, the next run names them and is measured, and `clean` removes them."""
    async with light_guests(2, tmp_path) as fleet:
        guest = fleet.guests[1]
        started = await into_phase("calyx", fleet, tmp_path)
        await fleet.power_off(guest)
        ended = await started.ended(within_s=100)
        left = left_files(guest)
        await fleet.power_on(guest)
        (tmp_path / "again").mkdir()
        text = inventory_yaml(fleet, body=CALYX)  # type: ignore[arg-type]  # it has what is asked of a fleet
        again = await (await start_run(text, tmp_path / "again", within=fleet.within)).ended()
        inventory = tmp_path / "inventory.yaml"
        words = ("clean", inventory)
        cleaned = await (await start(*words, folder=tmp_path, cwd=tmp_path, within=fleet.within)).ended()
        await fleet.nothing_left(within_s=5.0)
    _check_lost(ended, "connection to the agent was lost")
    assert any("job.0" in name for name in left), left
    assert again.status == 0, again.out + again.err
    assert ".calyx-orch-" in " ".join(again.outcomes["guest2"].notes), "what lies there is named"
    assert cleaned.status == 0, cleaned.out + cleaned.err
    assert "guest2" in cleaned.out
