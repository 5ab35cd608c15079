"""One guest of a fleet lies in one field while it is checked or cleaned: it is that guest's failure, and is shown harmlessly."""

from __future__ import annotations

import asyncio
import io
import json
import random
import unicodedata
from typing import Any

import pytest
from rich.console import Console

from calyx_orch.deploy import starting
from calyx_orch.report import cleaning, readiness
from calyx_orch.runner import check, clean
from calyx_orch.transport import Pool
from calyx_orch.transport.simulated import Script, Simulation
from unit.nonsense import NONSENSE, Lie, places
from unit.test_runner import plan_for

SAMPLES = [12, pytest.param(100_000, marks=pytest.mark.slow, id="all")]  # lies of each kind of message
LEFT = {
    "path": "/data/.calyx-orch-a",
    "kind": "files",
    "run": "r",
    "by": "b",
    "since_s": 1,
    "pid": 2,
    "files": 1,
    "bytes": 3,
}
CLEANED: dict[str, Any] = {
    "list": False, "found": [LEFT], "removed": [LEFT["path"]], "failed": [{"path": "/data/x", "why": "busy"}],
    "kept": [{"path": "/data/y", "why": "its agent lives: in use by run r"}], "more": False,
    "freed": [{"path": "/data", "mount": "/", "bytes": 3, "discard": "fstrim"}],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest whose greeting or answer cannot be found is not waited for."""
    monkeypatch.setattr(starting, "HELLO_TIMEOUT_S", 3.0)


def sampled(said: dict[str, dict[str, Any]], most: int) -> list[Lie]:
    """A fixed sample of all lies about these messages."""
    lies = [
        Lie(kind, path, nonsense)
        for kind, value in said.items()
        for path in places(value)
        for nonsense in NONSENSE
        if kind != "hello" or nonsense not in ("NaN", "1e999", "10^400", "deep", "deeper")
    ]
    rng = random.Random(20261201)
    by_kind = [[one for one in lies if one.kind == kind] for kind in said]
    return [lie for some in by_kind for lie in rng.sample(some, min(most, len(some)))]


def harmless(text: str) -> bool:
    return not {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"}


def shown() -> Console:
    return Console(file=io.StringIO(), width=200)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("most", SAMPLES)
def test_a_liar_costs_nobody_else_a_check(most: int) -> None:
    said: dict[str, dict[str, Any]] = {}

    def message(value: dict[str, Any]) -> list[bytes]:
        said[value["type"]] = said.get(value["type"], {}) | value
        return [json.dumps(value).encode()]

    def hello(value: dict[str, Any]) -> dict[str, Any]:
        said["hello"] = value
        return value

    look({"honest": Script(bend=message, bend_hello=hello)})
    assert {"hello", "facts", "prepared", "ready", "result", "clock", "settled", "lost", "exited", "cleaned"} <= set(
        said
    )
    lies = sampled(said, most)
    found, notes = look({"good1": Script()} | {f"liar{n}": lie.script() for n, lie in enumerate(lies)})
    assert found[0].is_ready
    assert found[0].findings == ()
    odd = [(str(lies[int(one.guest[4:])]), one.findings) for one in found[1:] if "unexpected" in str(one.findings)]
    assert not odd, odd
    console = shown()
    readiness.show(found, notes, console)
    assert harmless(text_of(console))
    json.dumps(readiness.to_json(found, notes), allow_nan=False).encode()


def look(scripts: dict[str, Script]) -> Any:
    async def go() -> Any:
        async with Pool(simulation=Simulation(seed=3, scripts=scripts)) as pool:
            return await check.check(plan_for(*scripts), pool=pool, phase=lambda _: None)

    return asyncio.run(go())


@pytest.mark.parametrize("most", SAMPLES)
def test_a_liar_costs_nobody_else_a_clean(most: int) -> None:
    lies = sampled({"cleaned": CLEANED}, most) + [
        Lie("cleaned", path, nonsense)
        for path in places(CLEANED)
        for nonsense in ("markup", "2^64-1", "list of objects")
    ]

    def script(lie: Lie) -> Script:
        told = lie.script().bend
        assert told is not None
        return Script(bend=lambda message: told(message | CLEANED if message["type"] == "cleaned" else message))

    scripts = {"good1": Script()} | {f"liar{n}": script(lie) for n, lie in enumerate(lies)}
    guests = plan_for(*scripts).inventory.guests

    async def go() -> Any:
        async with Pool(simulation=Simulation(seed=3, scripts=scripts)) as pool:
            return await clean.clean(guests, pool=pool)

    found = asyncio.run(go())
    assert found[0].is_clean
    odd = [(str(lies[int(one.guest[4:])]), one.trouble) for one in found[1:] if "unexpected" in one.trouble]
    assert not odd, odd
    console = shown()
    cleaning.show(found, console)
    assert harmless(text_of(console))
    json.dumps(cleaning.to_json(found), allow_nan=False).encode()
