"""One guest of a fleet lies in one field: the run ends well, the honest guest is measured, all can be read, drawn and shown."""

from __future__ import annotations

import asyncio
import io
import json
import random
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from calyx_orch import runner
from calyx_orch.analysis import summary as analysis
from calyx_orch.analysis import verdict
from calyx_orch.commands.run import exit_code
from calyx_orch.deploy import starting
from calyx_orch.model import RunRecord
from calyx_orch.report import run_page, terminal
from calyx_orch.report.live import PlainLive
from calyx_orch.store import archive
from calyx_orch.transport import Pool
from calyx_orch.transport.simulated import Script, Simulation
from unit.nonsense import EVIL, NONSENSE, Lie, places
from unit.test_runner import plan_for

SHARDS = 32  # some 400 liars in one run


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest whose greeting cannot be found is not waited for."""
    monkeypatch.setattr(starting, "HELLO_TIMEOUT_S", 3.0)


def played(scripts: dict[str, Script], tmp_path: Path) -> tuple[RunRecord, str]:
    """Run a fleet of these scripts, read its folder back, and give what was shown live."""
    plan = plan_for(*scripts)
    shown = io.StringIO()

    async def go() -> None:
        async with Pool(simulation=Simulation(seed=3, scripts=scripts)) as pool:
            live = PlainLive(Console(file=shown, width=200))
            await runner.run(plan, folder=folder, live=live, interrupted=asyncio.Event(), pool=pool)

    folder = archive.RunFolder.create(tmp_path, plan)
    try:
        asyncio.run(go())
    finally:
        folder.close()
    return archive.read(folder.path), shown.getvalue()


@pytest.fixture(scope="module")
def every_lie(tmp_path_factory: pytest.TempPathFactory) -> list[Lie]:
    """All lies there are, gathered from what an honest guest says in a run of calyx and fio."""
    said: dict[str, dict[str, Any]] = {}

    def keep(kind: str, value: Any) -> None:
        if isinstance(value, dict):
            said[kind] = said.get(kind, {}) | value

    def message(value: dict[str, Any]) -> list[bytes]:
        keep(value["type"], value)
        return [json.dumps(value).encode()]

    def document(name: str, text: str) -> str:
        keep(f"document {name}", json.loads(text) if text.startswith("{") else None)
        return text

    def hello(value: dict[str, Any]) -> dict[str, Any]:
        keep("hello", value)
        return value

    played(
        {"honest1": Script(bend=message, bend_document=document, bend_hello=hello)}, tmp_path_factory.mktemp("honest")
    )
    assert {"facts", "prepared", "usage", "exited", "cleaned", "document result", "document stdout"} <= set(said)
    return [
        Lie(kind, path, nonsense)
        for kind, value in said.items()
        for path in places(value)
        for nonsense in NONSENSE
        if kind != "hello"
        or nonsense not in ("NaN", "1e999", "10^400", "deep", "deeper")  # a line too long, or no JSON
    ]


def check(lies: Sequence[Lie], tmp_path: Path) -> None:
    """Tell each lie by a guest of its own, all in one run."""
    scripts = {"good1": Script()} | {f"liar{number}": lie.script() for number, lie in enumerate(lies)}
    record, live = played(scripts, tmp_path)
    assert record.outcomes[0].state == "measured", record.outcomes[0]
    assert {m.status for m in record.measurements if m.guest == "good1"} == {"ok"}
    assert record.status == "finished"
    assert exit_code(record) in (0, 3)
    assert not any("unexpected" in outcome.reason for outcome in record.outcomes), [
        (str(lies[at - 1]), outcome.reason)
        for at, outcome in enumerate(record.outcomes)
        if "unexpected" in outcome.reason
    ]
    assert not any("had not thought of" in m.why for m in record.measurements), [
        (str(lies[int(m.guest[4:])]), m.why) for m in record.measurements if "had not thought of" in m.why
    ]
    summary = analysis.summarise(record)
    text = io.StringIO()
    terminal.show(record, summary, verdict.sentence(record, summary), Console(file=text, width=200))
    for drawn in (live, text.getvalue()):
        odd = {c for c in drawn if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"}
        assert not odd, odd
    json.loads(json.dumps(terminal.to_json(record, summary), allow_nan=False))
    html = run_page.write(record, summary, out=tmp_path / "page.html").read_text(encoding="utf-8")
    assert EVIL not in html


def test_a_sample_of_all_lies_costs_nobody_else_a_result(every_lie: list[Lie], tmp_path: Path) -> None:
    """Drawn anew every day would be no test: a fixed sample of each kind of message; all of them in the slow test."""
    rng = random.Random(20261201)
    kinds = {lie.kind for lie in every_lie}
    lies = [lie for kind in sorted(kinds) for lie in rng.sample([one for one in every_lie if one.kind == kind], 8)]
    check(lies, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_lie_costs_anybody_else_a_result(every_lie: list[Lie], shard: int, tmp_path: Path) -> None:
    """Every field of every message and document, replaced by every nonsense."""
    check(every_lie[shard::SHARDS], tmp_path)
