"""The demo says beforehand what the load modes of its tables mean for its own guests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calyx_orch.commands import demo
from calyx_orch.model import Connection, Guest, Inventory, LoadMode, Place, Target
from calyx_orch.plan.order import guest_sets


@pytest.mark.parametrize(
    ("guests", "told"),
    [
        (1, "1 loopback guest is up, behind its own sshd"),
        (2, "2 loopback guests are up, each behind its own sshd"),
        (4, "on 2 vm_hosts; `together` is all of them, `alone` one guest of each vm_host, 2 at once"),
    ],
)
def test_alone_is_explained_as_it_is_played(guests: int, told: str) -> None:
    """`alone (2 guests)` is no slip: one guest of each vm_host runs, and the number told is that of the rounds."""
    one = Guest("g", Connection("127.0.0.2"), (Target("data", "/data"),))
    all_ = tuple(replace(one, name=f"g{n}", vm_host=f"hv{n % min(guests, 2)}") for n in range(guests))
    places = tuple(Place(name) for name in dict.fromkeys(str(guest.vm_host) for guest in all_))
    text = demo._introduction(Inventory("demo", all_, (), vm_hosts=places), "sshd")
    assert told in text
    if guests > len(places):
        assert f"{len(guest_sets(all_, LoadMode.ALONE, None)[0])} at once" in text
