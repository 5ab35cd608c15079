"""Traps that other tools fell into, as files in tests/golden/inventory: what each must say or keep."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest

from calyx_orch import inventory
from calyx_orch.errors import InventoryErrors
from calyx_orch.model import Inventory

CASES = Path(__file__).parent.parent / "golden" / "inventory"
PRESETS = {"four-corners": "workloads: [{name: r, rw: randread, size: 1m}]"}


def read(name: str) -> Inventory:
    return inventory.parse((CASES / name).read_text(encoding="utf-8"), source=name, base_dir="/base", presets=PRESETS)


def refused(name: str) -> list[tuple[int, str]]:
    with pytest.raises(InventoryErrors) as caught:
        read(name)
    assert all(problem.file == name for problem in caught.value.problems)
    return [(problem.line, problem.message) for problem in caught.value.problems]


def test_no_is_a_name() -> None:
    """`no`, `on`, `y`, `yes` and NO, off, n are the texts that were written."""
    guests = read("norway.yaml").guests
    assert [guest.name for guest in guests] == ["no", "on", "y", "yes"]
    assert [guest.labels["site"] for guest in guests] == ["NO", "off", "n", "SE"]


def test_duplicate_keys_are_refused_with_both_lines() -> None:
    """A copied block does not make the fleet smaller in silence."""
    assert refused("dup.yaml") == [
        (3, "duplicate key 'port': line 3 and line 3"),
        (4, "duplicate key 'vm1': line 2 and line 4"),
    ]


def test_merge_keys_with_an_override_are_loaded() -> None:
    """The check for duplicates lets `<<` and what is written beside it pass."""
    vm1, vm2 = read("merge.yaml").guests
    assert (vm1.connection.user, vm1.connection.port) == ("bench", 2222)
    assert (vm2.connection.user, vm2.connection.port, dict(vm2.labels)) == ("x", 22, {"iodepth": "64"})


def test_numbers_with_a_leading_zero_are_refused() -> None:
    """In ports and racks, on each of the lines, once for each number."""
    problems = refused("octal.yaml")
    assert [(line, message.split()[0]) for line, message in problems if "leading zero" in message] == [
        (2, "0022"), (2, "07"), (3, "08"), (4, "02222"), (4, "010"),
    ]  # fmt: skip
    assert all("leading zero" in message for _, message in problems)


def test_base_60_numbers_are_text_where_text_is_wanted() -> None:
    """12:30 is neither 750 nor 45000."""
    guest = read("sexagesimal_text.yaml").guests[0]
    assert dict(guest.labels) == {"early": "02:30", "noon": "12:30", "late": "22:30", "short": "2:30"}


def test_base_60_numbers_are_refused_where_numbers_are_wanted() -> None:
    """Durations, sizes and ports."""
    assert [line for line, _ in refused("sexagesimal_numbers.yaml")] == [2, 3, 4, 6]


def test_versions_and_names_keep_their_text() -> None:
    """3.10 is not 3.1, 1e3 no thousand, and a date no date."""
    guests = read("implicit_kept.yaml").guests
    assert [guest.name for guest in guests] == ["2024-01-01", "1e3", "0x1F"]
    assert guests[0].labels["fio_version"] == "3.10"


def test_a_null_name_and_an_underscored_size_are_refused() -> None:
    """Each at its line; the rest is fine."""
    assert [(line, message.split(":")[0]) for line, message in refused("implicit.yaml")] == [
        (3, "'name' is empty"), (7, "'size'"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["bomb.yaml", "bomb_below_the_limit.yaml"])
def test_an_alias_bomb_is_refused_in_a_few_lines(name: str) -> None:
    """Within a second and 200 MB; what it expands to is nowhere in the message."""
    began_s = time.process_time()
    problems = refused(name)
    assert time.process_time() - began_s < 1.0
    tracemalloc.start()
    try:
        assert refused(name) == problems
        assert tracemalloc.get_traced_memory()[1] < 200_000_000
    finally:
        tracemalloc.stop()
    assert len(problems) < 20
    assert sum(len(message) for _, message in problems) < 3000


def test_python_tags_do_nothing(tmp_path: Path) -> None:
    """Refused with its line; the command is neither run nor shown."""
    text, place = (CASES / "pytag.yaml").read_text(encoding="utf-8"), "/tmp/calyx_pwned"
    assert f"touch {place}" in text
    marker = tmp_path / "pwned"
    with pytest.raises(InventoryErrors) as caught:
        inventory.parse(text.replace(place, str(marker)), source="pytag.yaml", base_dir="/base", presets=PRESETS)
    assert [(problem.line, problem.message) for problem in caught.value.problems] == [
        (2, "tag '!!python/object/apply:os.system' is not supported: write the plain value")
    ]
    assert not marker.exists()


def test_tags_of_other_tools_are_refused_without_their_values() -> None:
    """One line each, no vault text."""
    problems = refused("tags.yaml")
    assert [(line, message.split("'")[1]) for line, message in problems] == [
        (4, "!vault"),
        (5, "!vault"),
        (8, "!NetworkType"),
    ]
    assert "6162636465" not in str(problems)


def test_users_are_passed_on_unchanged() -> None:
    """Backslash, @ and spaces are part of a user; an address is split at its last @."""
    a, b, c, d = (guest.connection for guest in read("users.yaml").guests)
    assert (a.user, b.user, c.user) == ("DOM\\user", "user@dom.local", "first last")
    assert (d.user, d.address) == ("user@dom.local", "127.0.0.1")


def test_a_backslash_in_double_quotes_gets_the_hint() -> None:
    """Use single quotes."""
    assert "use single quotes" in refused("backslash.yaml")[0][1]


@pytest.mark.parametrize("name", ["empty.yaml", "comments.yaml", "empty_list.yaml", "null_guests.yaml"])
def test_an_empty_fleet_is_refused(name: str) -> None:
    """And says what to do."""
    message = refused(name)[0][1]
    assert "calyx-orch init" in message or "name at least one under guests:" in message


def test_the_address_is_the_name_when_it_is_not_said() -> None:
    """With settings and without any."""
    assert [guest.connection.address for guest in read("missing_address.yaml").guests] == ["vm1"]
    assert [guest.connection.address for guest in read("guest_null.yaml").guests] == ["vm1", "vm2"]


def test_a_machine_named_twice_is_refused() -> None:
    """By the same address, by localhost and by ::1; each says both guests."""
    problems = refused("same_vm.yaml")
    assert [line for line, _ in problems] == [3, 4, 5]
    assert ["'vm2'" in problems[0][1], "'vm3'" in problems[1][1], "'vm4'" in problems[2][1]] == [True, True, True]
    assert all("'vm1' (line 2)" in message and "same_machine: true" in message for _, message in problems)
