#!/usr/bin/env python3
"""Does a schedule speak when it should, and only then? Simulated fleets of 60 nights whose truth is known.

    benchmarks/nightly.py              200 fleets: some minutes
    benchmarks/nightly.py --quick      20 fleets: under a minute, which decides little
    benchmarks/nightly.py --check      exit 1 where a goal is missed

A fleet is 40 guests on 5 vm_hosts. The logarithm of a vm_host's night is the mean of its 8 guests, each with first-order noise (0.5 from
night to night, 3 %), plus such noise of the vm_host (2 %), and in one night of 33 it is 18 % slower. One vm_host is 12 % slower
from night 40 to night 50.
What is told is what `calyx-orch schedule` tells: the same functions, and for one fleet the same daemon, store, detection and messages,
which go to a web server on loopback; only the run itself is made up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from side_by_side import present
from side_by_side.ending import ends_as_interrupted
from side_by_side.goals import Figure, at_least
from verdicts import Noise, share

from calyx_orch import inventory as inventories
from calyx_orch import notify, plan, workloads
from calyx_orch.analysis import regression
from calyx_orch.analysis.scopes import ScopeRow
from calyx_orch.model import GuestOutcome, Histogram, RunRecord
from calyx_orch.schedule import copying, daemon, firings, nightly, rows
from calyx_orch.schedule.deciding import Firing, Schedule, Settings
from calyx_orch.store import database
from calyx_orch.store.schedules import Schedules

Floats = npt.NDArray[np.float64]

FLEETS, FLEETS_QUICK = 200, 20
HOSTS, GUESTS_EACH, NIGHTS = 5, 8, 60
SLOWER, RECOVERED, SLOW = 40, 50, "hv3"
WITHIN = 7
DROP = 0.12
LEVEL_BYTES_PER_S = 400e6
DAY_S = 86400.0
BEGIN_S = 1_767_225_600.0  # 2026-01-01 00:00 UTC


def main() -> int:
    """Simulate, print and judge. Returns the exit status."""
    options = argparse.ArgumentParser(
        description="Does a schedule speak when it should? Simulated fleets whose truth is known."
    )
    options.add_argument("--quick", action="store_true", help="20 fleets")
    options.add_argument("--json", metavar="FILE", type=Path, help="write all figures")
    options.add_argument("--check", action="store_true", help="exit 1 where a goal is missed")
    options.add_argument("--seed", type=int, default=1, help="seed of all noise")
    given = options.parse_args()
    count = FLEETS_QUICK if given.quick else FLEETS
    figures = [*fleet_figures(Noise(given.seed), count), *end_to_end_figures(Noise(given.seed + 1))]
    present.print_figures(figures)
    return present.finish(figures, given, present.document(figures, {"seed": given.seed, "quick": given.quick}))


def fleet_figures(noise: Noise, count: int) -> list[Figure]:
    """In which share of fleets nothing is told before the change, the change is told once, and its end is told."""
    silent = named = closed = 0
    for _ in range(count):
        told = regression.incidents({name: np.exp(logs).tolist() for name, logs in fleet(noise).items()}, "higher")
        silent += not any(one.opened < SLOWER for one in told)
        late = [one for one in told if one.opened >= SLOWER and one.worse]
        is_named = len(late) == 1 and late[0].series == SLOW and late[0].opened < SLOWER + WITHIN
        named += is_named
        closed += is_named and late[0].recovered is not None and late[0].recovered >= RECOVERED
    cell = f"{HOSTS * GUESTS_EACH} guests, one vm_host {100 * DROP:g} % slower"
    return [
        Figure(cell, f"no incident before night {SLOWER}", share(silent, count), at_least(0.95, significant=True)),
        Figure(
            cell,
            f"one incident, of that vm_host, within {WITHIN} nights",
            share(named, count),
            at_least(0.90, significant=True),
        ),
        Figure(cell, "the same, and closed after recovery", share(closed, count), at_least(0.90, significant=True)),
    ]


def fleet(noise: Noise) -> dict[str, Floats]:
    """Logarithms of the nights of each vm_host."""
    found = {f"hv{number + 1}": _nights(noise) for number in range(HOSTS)}
    found[SLOW][SLOWER:RECOVERED] += math.log(1 - DROP)
    return found


def _nights(noise: Noise) -> Floats:
    guests = np.mean([noise.drift(NIGHTS, 0.03) for _ in range(GUESTS_EACH)], axis=0)
    return noise.drift(NIGHTS, 0.02) + guests - 0.2 * (noise.draw.random(NIGHTS) < 1 / 33)


# --- one fleet through daemon, store, detection and a web server -----------------------------------------------------------


def end_to_end_figures(noise: Noise) -> list[Figure]:
    """What people were sent of one fleet, night by night."""
    with tempfile.TemporaryDirectory(prefix="calyx-nightly-") as made, _web_server() as (address, got):
        os.environ["CALYX_NIGHTLY_HOOK"] = address
        asyncio.run(_live(noise, Path(made)))
    titles = [str(json.loads(body)["title"]) for body in got]
    opened = [title for title in titles if "regression opened" in title]
    recovered = [title for title in titles if "recovered" in title]
    cell = "one fleet, from the daemon to a web server"
    print(f"told in {NIGHTS} nights: " + ("; ".join(titles) or "nothing"))
    right = [
        ("the vm_host's regression told once", sum(SLOW in title for title in opened) == 1 == len(opened)),
        ("its recovery told once", sum(SLOW in title for title in recovered) == 1 == len(recovered)),
        (
            "no other vm_host was told of",
            not any(f"hv{n + 1}" in title for title in titles for n in range(HOSTS) if f"hv{n + 1}" != SLOW),
        ),
    ]
    return [
        Figure(cell, name, replace(share(int(is_so), 1), low=float(is_so), high=float(is_so)), at_least(1.0))
        for name, is_so in right
    ]


async def _live(noise: Noise, folder: Path) -> None:
    """A daemon lives through the nights by a clock that goes on when it waits."""
    inventory = inventories.parse(
        _inventory(), source=str(folder / "fleet.yaml"), base_dir=str(folder), presets=workloads.read_presets()
    )
    planned = plan.make(inventory, seed=1)
    logs = fleet(noise)
    opened = database.open_store(f"sqlite:///{folder / 'store.sqlite'}")
    store = Schedules(opened)
    now_s = BEGIN_S
    nights = 0

    async def fire(schedule: Schedule, firing: Firing) -> int:
        nonlocal nights
        record = _record(planned, firing, folder)
        values = {name: LEVEL_BYTES_PER_S * math.exp(logs[name][nights]) for name in logs}
        opened.index(record, _rows(values), sentence="")

        def again(_: tuple[str, ...]) -> RunRecord | str:
            return "a simulated night cannot be measured again"

        night = nightly.after(opened, schedule, firing, record, measure_again=again, now_s=now_s, trials=1)
        details = {"news": list(night.news), "findings": list(night.findings), "notes": list(night.notes)}
        store.update(
            firing.schedule,
            firing.due_s,
            run_id=record.run_id,
            verdict=night.verdict,
            details=details,
        )
        nights += 1
        return 0

    async def tell(firing: Firing) -> tuple[str, dict[str, Any]]:
        why = await asyncio.to_thread(
            notify.send, "env:CALYX_NIGHTLY_HOOK", firing.message["title"], firing.message["body"]
        )
        return why, dict(firing.message)

    clock = firings.Clock(lambda: now_s, lambda: now_s, asyncio.sleep)
    one = daemon.Daemon(
        store, fire, tell, lambda _: None, clock=clock, copy=lambda _: copying.Copied("", (), inventory), tick_s=DAY_S
    )
    settings = Settings(
        str(folder / "fleet.yaml"),
        "30 2 * * *",
        "Europe/Berlin",
        str(folder),
        notify="env:CALYX_NIGHTLY_HOOK",
        quiet=True,
    )
    store.add("nightly", rows.settings_row(settings), now_s)
    while nights < NIGHTS:
        now_s += await one.tick()
        await one.idle()
    await one.deliver()
    opened.close()


def _inventory() -> str:
    hosts = "\n".join(f"  hv{number + 1}: {{}}" for number in range(HOSTS))
    guests = "\n".join(f"  - {{name: 'hv{n + 1}-vm[1:{GUESTS_EACH}]', vm_host: hv{n + 1}}}" for n in range(HOSTS))
    return (
        f"defaults: {{targets: {{data: /data}}}}\nvm_hosts:\n{hosts}\nguests:\n{guests}\n"
        "workloads: [{name: randread-4k, rw: randread, bs: 4k, size: 1g, runtime: 60s}]\nbaselines: none\n"
    )


def _record(planned: Any, firing: Firing, folder: Path) -> RunRecord:
    import datetime

    at = datetime.datetime.fromtimestamp(firing.due_s, datetime.UTC).isoformat(timespec="seconds")
    outcomes = tuple(GuestOutcome(guest.name, "measured") for guest in planned.inventory.guests)
    return RunRecord(
        f"night-{firing.due_s}", str(folder / f"night-{firing.due_s}"), planned, (), outcomes, {}, at, "finished"
    )


def _rows(values: dict[str, float]) -> list[ScopeRow]:
    """A figure of each vm_host; latency is left out, as what is simulated is throughput."""
    return [
        ScopeRow(
            "vm_host", name, "data", "randread-4k", "calyx", "together", GUESTS_EACH, 3, value, value / 4096, None, None, None,
            0.02, 2000.0, Histogram((), None, None, 0), "1",
        )
        for name, value in values.items()
    ]  # fmt: skip


@contextmanager
def _web_server() -> Iterator[tuple[str, list[bytes]]]:
    """A web server on loopback: its address as apprise writes it, and the bodies that it was sent."""
    got: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"json://127.0.0.1:{server.server_address[1]}/hook", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    ends_as_interrupted()
    sys.exit(main())
