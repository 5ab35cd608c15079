"""A run that is continued: whatever write its controller died at, the rest is measured, and nothing is mixed."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import replay
from calyx_agent import executables as shipped
from calyx_orch import engines, runner, sources
from calyx_orch import plan as planning
from calyx_orch.analysis import summary, verdict
from calyx_orch.commands import resume as command
from calyx_orch.commands.judging import Limits
from calyx_orch.commands.resume import Reopened, reopen
from calyx_orch.commands.run import RunOptions, exit_code
from calyx_orch.errors import RefusedError, UsageError
from calyx_orch.model import (
    Baselines,
    Connection,
    Guest,
    Inventory,
    Plan,
    Policy,
    Rw,
    Target,
    TransportKind,
    Workload,
)
from calyx_orch.report import facts
from calyx_orch.report.live import Silent
from calyx_orch.runner import resume
from calyx_orch.store import archive, durable
from calyx_orch.transport import Pool
from calyx_orch.transport.simulated import Script, Simulation

READ = Workload("randread", Rw.RANDREAD, iodepth=8, size_bytes=64 << 20, runtime_s=2.0, ramp_s=0.5)
WRITE = replace(READ, name="randwrite", rw=Rw.RANDWRITE)
FIND = replace(READ, name="limit", find="iops_at p99<2ms")


def plan_for(*addresses: str, workloads: tuple[Workload, ...] = (READ, WRITE), **changes: Any) -> Plan:
    guests = tuple(
        Guest(one, Connection(one, transport=TransportKind.SIMULATED), (Target("data", "/data"),)) for one in addresses
    )
    inventory = Inventory("test", guests, workloads, repetitions=2, settle_s=0.0, lost_time_probe_s=0.0, text="x\n")
    return planning.make(replace(inventory, **changes), seed=5)


def play(
    folder: archive.RunFolder,
    plan: Plan,
    earlier: runner.Earlier | None = None,
    scripts: Mapping[str, Script] | None = None,
) -> runner.Ended:
    """Run a plan on the fake fleet, to its end."""

    async def go() -> runner.Ended:
        async with Pool(simulation=Simulation(seed=3, scripts=scripts or {})) as pool:
            return await runner.run(
                plan, folder=folder, live=Silent(), interrupted=asyncio.Event(), pool=pool, earlier=earlier
            )

    try:
        return asyncio.run(go())
    finally:
        folder.close()


def resumed(path: Path, scripts: Mapping[str, Script] | None = None) -> Reopened:
    run = reopen(path)
    play(run.folder, run.plan, run.earlier, scripts)
    return run


@pytest.fixture(autouse=True)
def _one_agent(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same executable throughout, also when it is built anew meanwhile."""
    try:
        shipped.local()
    except shipped.MissingAgentError:
        pytest.skip("no agent executable is built: run `make build`")
    copy = tmp_path_factory.getbasetemp() / "agent"
    if not copy.exists():
        shutil.copy2(shipped.local().path, copy)
    monkeypatch.setenv("CALYX_AGENT_BIN", str(copy))


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed controller loses nothing that was written; only a machine that dies would."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def killed_at(
    event: str,
    count: int,
    plan: Plan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scripts: Mapping[str, Script] | None = None,
) -> Path:
    """The folder as a controller leaves it that is killed right after its `count`-th event of that name."""
    seen: list[str] = []
    path, whole_note = tmp_path / f"killed{len(list(tmp_path.iterdir()))}", archive.RunFolder.note

    def note(folder: archive.RunFolder, event_name: str, /, *args: Any, **details: Any) -> None:
        whole_note(folder, event_name, *args, **details)
        seen.append(event_name)
        if event_name == event and seen.count(event) == count:
            shutil.copytree(folder.path, path)

    with monkeypatch.context() as patch:
        patch.setattr(archive.RunFolder, "note", note)
        play(archive.RunFolder.create(tmp_path, plan), plan, scripts=scripts)
    assert path.exists(), f"no {count} events {event}"
    return path


def facts_bent(**changes: Any) -> Callable[[dict[str, Any]], list[bytes]]:
    """A guest whose facts have changed since."""

    def bend(message: dict[str, Any]) -> list[bytes]:
        if message["type"] == "facts":
            message = {**message, **{key: value for key, value in changes.items() if key != "paths"}}
            message["paths"] = [{**entry, **changes.get("paths", {})} for entry in message["paths"]]
        return [json.dumps(message).encode()]

    return bend


def cells(path: Path) -> list[tuple[object, ...]]:
    """What was measured, in order: round by round and guest by guest."""
    return [
        (m.round_index, m.workload, m.engine, m.guest, m.status, m.setup.get("seed"))
        for m in archive.read(path).measurements
    ]


@pytest.mark.parametrize("each", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_killed_at_any_write_is_resumed_to_what_an_undisturbed_one_measures(
    each: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the folder before each write is what a controller killed there leaves; torn writes included.

    Every third write to each document, since rounds write the same again and again; the slow tests take them all.
    """
    plan = plan_for("good1", "good2", repetitions=1, baselines=Baselines(("fio-io_uring",)))
    copies: list[Path] = []
    torn_at: list[str] = []
    whole_append, whole_write = durable.append, durable.write

    def copy(name: str, torn: Callable[[Path], object]) -> None:
        if (folder_path / "run.json").exists():
            copies.append(tmp_path / f"copy{len(copies)}")
            torn_at.append(name)
            shutil.copytree(folder_path, copies[-1])
            torn(copies[-1])

    def append(descriptor: int, text: str, *, sync: bool) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").resolve().name
        if name.endswith(".jsonl"):
            copy(name, lambda path: (path / name).open("a").write(text[: len(text) // 2]))
        whole_append(descriptor, text, sync=sync)

    def write(path: Path, text: str) -> None:
        if "raw" not in path.parts:
            copy(path.name, lambda copied: (copied / (path.name + ".tmp")).write_text(text[: len(text) // 2]))
        whole_write(path, text)

    folder_path = tmp_path / "whole"
    with monkeypatch.context() as patch:
        patch.setattr(durable, "append", append)
        patch.setattr(durable, "write", write)
        play(archive.RunFolder.create(tmp_path, plan, path=folder_path), plan)
    expected = cells(folder_path)
    assert len(expected) == 16
    assert len(copies) > 80
    of_each = [
        [path for path, at in zip(copies, torn_at, strict=True) if at == name] for name in dict.fromkeys(torn_at)
    ]
    assert len(of_each) >= 5, "journal, facts, measurements, plan, run"
    kept = set()
    for path in (path for paths in of_each for path in paths[::each]):
        run = resumed(path)
        kept.add(len(run.earlier.standing.kept))
        record = archive.read(path)
        assert cells(path) == expected, path
        assert record.status == "finished"
        assert record.plan == archive.read(folder_path).plan
        assert [one.state for one in record.outcomes] == ["measured", "measured"]
        assert exit_code(record) == 0
        assert not list(path.glob("*.tmp"))
        shutil.rmtree(path)
    assert kept == {0, 4, 8}, "a block of one workload stands whole or not at all"


PLAN = {"baselines": Baselines(("fio-io_uring",)), "repetitions": 1}


def test_a_half_measured_block_is_put_aside_and_measured_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the second block (rounds 4 to 7) two rounds were measured: they are kept aside with their answers, and no figure uses them."""
    path = killed_at("done", 6, plan_for("good1", **PLAN), tmp_path, monkeypatch)
    raw = {one.name for one in (path / "raw").iterdir()}
    run = resumed(path)
    assert run.earlier.standing.kept == {0, 1, 2, 3}
    assert run.earlier.standing.again == {4, 5}
    assert [one.index for one in run.earlier.standing.missing] == [4, 5, 6, 7]
    aside = path / "aside-1"
    assert {one.name for one in (aside / "raw").iterdir()} == {one for one in raw if one[:4] in ("0004", "0005")}
    assert [json.loads(line)["round_index"] for line in (aside / "measurements.jsonl").read_text().splitlines()] == [
        4,
        5,
    ]
    assert [m.round_index for m in archive.read(path).measurements] == list(range(8))
    assert len(list((path / "raw").iterdir())) == 8
    modes = {one.stat().st_mode & 0o777 for one in path.rglob("*")}
    assert modes == {0o600, 0o700}


def test_the_report_says_when_and_how_a_run_was_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = killed_at("done", 6, plan_for("good1", **PLAN), tmp_path, monkeypatch)
    says = resumed(path).says
    assert "4 of 8 rounds stand, 4 are to be measured, 2 of them again as their block was not whole" in says
    record = archive.read(path)
    (one,) = record.resumed
    assert (one.kept, one.again, one.rebooted) == (4, 2, ())
    sentence = verdict.sentence(record, summary.summarise(record))
    assert "the run was resumed after 4 of 8 rounds and a gap of" in sentence
    header = dict(facts.header(record))
    assert header["Resumed"].startswith(one.at)
    assert "4 rounds (of 8) that stand; 2 that were measured before were measured again" in header["Resumed"]


def test_a_run_is_resumed_as_often_as_it_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time what the first resume measured stands, too."""
    plan = plan_for("good1", workloads=(READ, WRITE, replace(READ, name="more")), **PLAN)
    path = killed_at("done", 5, plan, tmp_path, monkeypatch)
    run = reopen(path)
    seen: list[str] = []
    whole_note = archive.RunFolder.note

    def note(folder: archive.RunFolder, event_name: str, /, *args: Any, **details: Any) -> None:
        whole_note(folder, event_name, *args, **details)
        seen.append(event_name)
        if seen.count("done") == 5:
            shutil.copytree(folder.path, tmp_path / "again", dirs_exist_ok=True)
            seen.append("copied")

    with monkeypatch.context() as patch:
        patch.setattr(archive.RunFolder, "note", note)
        play(run.folder, run.plan, run.earlier)
    second = resumed(tmp_path / "again")
    assert second.earlier.attempt == 3
    assert second.earlier.standing.kept == set(range(8))
    record = archive.read(tmp_path / "again")
    assert [m.round_index for m in record.measurements] == list(range(12))
    assert [one.kept for one in record.resumed] == [4, 8]
    assert "resumed 2 times, last after 8 of 12 rounds" in verdict.sentence(record, summary.summarise(record))


def test_what_is_whole_or_still_going_on_is_not_resumed(tmp_path: Path) -> None:
    plan = plan_for("good1", **PLAN)
    folder = archive.RunFolder.create(tmp_path, plan)
    with pytest.raises(UsageError, match=r"is still going on: its controller \(process \d+ on .*\) is at work on it"):
        reopen(folder.path)
    play(folder, plan)
    with pytest.raises(UsageError, match="nothing is missing"):
        reopen(folder.path)
    with pytest.raises(UsageError, match=r"holds no run\.json"):
        reopen(tmp_path)


@pytest.mark.parametrize("text", [b"guests: {a: }\r\n", b"\xef\xbb\xbfguests: {a: }\n"], ids=["CRLF", "BOM"])
@pytest.mark.parametrize("is_whole_path", [True, False])
def test_an_inventory_was_changed_only_when_it_is_read_as_another_text(
    text: bytes, is_whole_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Line ends and a byte order mark are no change; and it is found from whatever directory the run is resumed."""
    source = tmp_path / "fleet.yaml"
    source.write_bytes(text)
    plan = plan_for(
        "a",
        text=sources.read(str(source))[0],
        source=str(source) if is_whole_path else "fleet.yaml",
        origin=str(source),
    )
    folder = archive.RunFolder.create(tmp_path, plan)
    folder.close()
    monkeypatch.chdir("/")

    def says() -> str:
        run = reopen(folder.path)
        run.folder.close()
        return run.says

    assert "was changed" not in says()
    source.write_bytes(text + b"# more\n")
    assert f"; {source} was changed since: the run goes on with its own copy" in says()


def test_a_run_that_was_killed_at_its_very_end_only_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rounds stand: no guest is asked for anything."""
    path = killed_at("cleaned", 1, plan_for("good1", **PLAN), tmp_path, monkeypatch)
    run = resumed(path, {"good1": Script(reachable=False)})
    assert "all 8 rounds were measured, only its end is missing" in run.says
    record = archive.read(path)
    assert record.status == "finished"
    assert exit_code(record) == 0


CHANGES = [
    ({"kernel": "6.6.0"}, r"guest good1: kernel was 6\.1\.0-simulated, is 6\.6\.0"),
    ({"cpus": 8}, "number of CPUs was 4, is 8"),
    ({"machine_id": "f" * 32}, "machine id was"),
    ({"paths": {"fs_type": "xfs"}}, "file system of /data was ext4, is xfs"),
    ({"paths": {"scheduler": "mq-deadline"}}, "I/O scheduler of /data was none, is mq-deadline"),
    (
        {"paths": {"disk": {"number": "254:16", "size_bytes": 3 << 40}}},
        "device number of the disk of /data was 254:0, is 254:16",
    ),
    ({"paths": {"disk": {"size_bytes": 1 << 40}}}, "size of the disk of /data was"),
    ({"paths": {"disk": {"serial": "B"}}}, "serial number of the disk of /data was not known, is B"),
    ({"paths": {"fs_uuid": "6" * 32}}, "uuid of the file system of /data was"),
    ({"paths": {"total_bytes": 1 << 40}}, "size of the file system of /data was"),
]


@pytest.mark.parametrize(("changes", "says"), CHANGES, ids=[says for _, says in CHANGES])
def test_a_guest_that_is_another_thing_refuses(
    changes: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fact is named; nothing is written on the guest, and the run can be resumed once it is as it was."""
    path = killed_at("done", 4, plan_for("good1", **PLAN), tmp_path, monkeypatch)
    before = (path / "measurements.jsonl").read_bytes(), (path / "facts.json").read_bytes()
    with pytest.raises(RefusedError, match=says):
        resumed(path, {"good1": Script(bend=facts_bent(**changes))})
    assert before == ((path / "measurements.jsonl").read_bytes(), (path / "facts.json").read_bytes())
    assert archive.read(path).status == "interrupted"
    assert archive.read(path).resumed == ()
    assert [one["event"] for one in archive.journal(path)][-2:] != ["prepared", "prepared"]
    resumed(path)
    assert archive.read(path).status == "finished"


@pytest.mark.parametrize("name", ["plan.json", "inventory.yaml", "facts.json"])
def test_a_document_that_was_edited_refuses(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of 4 KiB and of 64 KiB would be averaged in one row; once it is put back the run can be resumed."""
    path = killed_at("done", 4, plan_for("good1", **PLAN), tmp_path, monkeypatch)
    before, journal = (path / name).read_text(), (path / "journal.jsonl").read_bytes()
    edited = before.replace("4096", "65536") if name != "inventory.yaml" else before + "# edited"
    assert edited != before
    (path / name).write_text(edited)
    with pytest.raises(UsageError, match=f"(?s)not resumed.*{name} is not what it was"):
        reopen(path)
    assert (path / "journal.jsonl").read_bytes() == journal
    (path / name).write_text(before)
    resumed(path)
    assert archive.read(path).status == "finished"


def test_measurements_that_are_not_those_of_the_plan_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of another run: each is held against the round of its number."""
    path = killed_at("done", 4, plan_for("good1", **PLAN), tmp_path, monkeypatch)
    lines = path / "measurements.jsonl"
    before = lines.read_text()
    head, *rest = before.splitlines(keepends=True)
    for changes, says in (
        ({"workload": "randwrite"}, "has workload randwrite, in the plan it is randread"),
        ({"engine": "fio-libaio"}, "has engine fio-libaio, in the plan it is fio-io_uring"),
        ({"block": 7}, "has block 7, in the plan it is 0"),
        ({"guest": "good9"}, "of guest good9 is not in the plan"),
    ):
        own = head if "guest" in changes else ""  # a round without its guest's answer does not stand
        lines.write_text(own + json.dumps({**json.loads(head), **changes}) + "\n" + "".join(rest))
        with pytest.raises(UsageError, match=f"round 1 .*{says}"):
            reopen(path)
    lines.write_text(before)
    resumed(path)
    assert archive.read(path).status == "finished"


def test_a_limit_that_cannot_be_read_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = killed_at("done", 4, plan_for("good1", **PLAN), tmp_path, monkeypatch)
    before = (path / "measurements.jsonl").read_bytes()
    for limits in (
        Limits(budgets=("nonsense",)),
        Limits(against=str(tmp_path / "none"), store=f"sqlite:///{tmp_path}/s.db"),
    ):
        with pytest.raises(UsageError):
            command.resume(path, None, RunOptions(quiet=True, limits=limits))
    assert (path / "measurements.jsonl").read_bytes() == before
    assert archive.read(path).status == "interrupted"
    resumed(path)  # nobody holds it


def test_another_agent_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its digest is the engine's."""
    path = killed_at("done", 4, plan_for("good1", **PLAN), tmp_path, monkeypatch)
    journal = path / "journal.jsonl"
    digest = next(e["hello"]["sha256"] for e in archive.journal(path) if e["event"] == "deployed")
    journal.write_text(journal.read_text().replace(digest, "0" * 64))
    with pytest.raises(RefusedError, match=f"agent sha256 was 000000000000, is {digest[:12]}: the engine is another"):
        resumed(path)


def test_another_fio_or_none_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = killed_at("done", 4, plan_for("good1", **PLAN), tmp_path, monkeypatch)
    with pytest.raises(RefusedError, match=r"fio was 3\.33.*, is missing"):
        resumed(path, {"good1": Script(fio=False)})


def test_another_set_up_that_takes_effect_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts are the same, and yet the kernel gives something else, such as buffers that are not registered."""

    def bend(message: dict[str, Any]) -> list[bytes]:
        if message["type"] == "ready" and "setup" in message:
            message = {**message, "setup": {**message["setup"], "fixed_files": False}}
        return [json.dumps(message).encode()]

    path = killed_at("done", 4, plan_for("good1", **PLAN), tmp_path, monkeypatch)
    with pytest.raises(RefusedError, match="set-up of workload 'randread' on data: fixed_files was True, is False"):
        resumed(path, {"good1": Script(bend=bend)})


def test_a_guest_that_was_only_started_anew_is_a_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The boot id tells; it is the same guest, and its hypervisor may have placed it elsewhere."""
    path = killed_at("done", 4, plan_for("good1", "good2", **PLAN), tmp_path, monkeypatch)
    resumed(path, {"good1": Script(bend=facts_bent(boot_id="b" * 32))})
    record = archive.read(path)
    assert record.status == "finished"
    assert record.resumed[0].rebooted == ("good1",)
    assert {(m.guest, m.round_index >= 4) for m in record.measurements if "rebooted" in m.doubts} == {("good1", True)}
    rows = summary.summarise(record)
    assert "in which good1 was started anew" in verdict.sentence(record, rows)
    assert ("rebooted", ("good1",)) in {(row.name, row.guests) for row in rows.doubts}


def test_who_was_lost_in_rounds_that_stand_stays_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its neighbours were measured without it since; who was lost in a block that is measured again is tried again."""
    plan = plan_for("good1", "dying1", **PLAN)
    path = killed_at("done", 4, plan, tmp_path, monkeypatch)
    run = resumed(path, {"dying1": Script()})
    assert set(run.earlier.standing.out) == {"dying1"}
    record = archive.read(path)
    assert {m.guest for m in record.measurements if m.round_index >= 4} == {"good1"}
    assert [(one.guest, one.state) for one in record.outcomes] == [("good1", "measured"), ("dying1", "lost")]
    assert exit_code(record) == 3
    early = killed_at("done", 3, plan, tmp_path, monkeypatch)
    run = resumed(early, {"dying1": Script()})
    assert run.earlier.standing.out == {}
    assert {(m.guest, m.status) for m in archive.read(early).measurements} == {("good1", "ok"), ("dying1", "ok")}


def test_a_run_that_lost_all_its_guests_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller's own network was gone: what came after the last measured round is forgotten, losses included."""
    plan = plan_for("good1", "good2", **PLAN)
    armings = {"good1": 0, "good2": 0}

    def broken(name: str) -> Callable[[dict[str, Any]], list[bytes]]:
        def bend(message: dict[str, Any]) -> list[bytes]:
            armings[name] += message["type"] == "ready"
            return [json.dumps(message).encode()] if armings[name] <= 7 else [b"\xff not JSON {"]

        return bend

    folder = archive.RunFolder.create(tmp_path, plan)
    with monkeypatch.context() as patch:
        patch.setattr(engines, "READY_WITHIN_S", 0.5)
        play(folder, plan, scripts={name: Script(bend=broken(name)) for name in armings})
    first = archive.read(folder.path)
    assert {one.state for one in first.outcomes} <= {"lost", "partial"}
    assert 0 < len({m.round_index for m in first.measurements if m.status == "ok"}) < 8
    resumed(folder.path)
    record = archive.read(folder.path)
    assert [(m.round_index, m.status) for m in record.measurements] == [(at // 2, "ok") for at in range(16)]
    assert exit_code(record) == 0


def test_searches_that_ended_stand_and_the_one_that_did_not_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_for("good1", workloads=(READ, FIND, replace(FIND, name="second")), **PLAN)
    whole = archive.RunFolder.create(tmp_path, plan)
    play(whole, plan)
    expected = archive.read(whole.path)
    first, second = [e["round"] for e in archive.journal(whole.path) if e["event"] == "search"]
    path = killed_at("done", second + 2, plan, tmp_path, monkeypatch)
    run = resumed(path)
    assert run.earlier.standing.searches == 1
    assert run.earlier.standing.kept == set(range(second))
    record = archive.read(path)
    assert record.found[0] == expected.found[0]
    assert [one.workload for one in record.found] == ["limit", "second"]
    indices = [one.index for one in record.plan.rounds]
    assert indices == sorted(set(indices))
    assert [m.round_index for m in record.measurements] == indices
    assert first == 4


def test_set_ups_that_were_chosen_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No trial is made again: another outcome would mix two set-ups."""
    long = replace(READ, runtime_s=60.0, ramp_s=10.0)
    plan = plan_for("good1", workloads=(long, replace(long, name="more")), **PLAN)
    path = killed_at("done", 4, plan, tmp_path, monkeypatch)
    before = archive.read(path).plan.pins
    assert {pin.how for pin in before} == {"calibrated"}
    trials = sum(entry["event"] == "trial" for entry in archive.journal(path))
    resumed(path)
    assert archive.read(path).plan.pins == before
    assert sum(entry["event"] == "trial" for entry in archive.journal(path)) == trials > 0


def test_another_inventory_refuses_and_another_address_does_not() -> None:
    plan = plan_for("good1", "good2", **PLAN)
    ours = plan.inventory
    moved = replace(
        ours.guests[0], connection=replace(ours.guests[0].connection, address="10.0.0.9"), labels={"a": "b"}
    )
    assert resume.inventory_differences(ours, replace(ours, guests=(moved, ours.guests[1]), repetitions=9)) == []
    elsewhere = replace(ours.guests[0], targets=(Target("data", "/other"),), storage="san")
    other = replace(ours, guests=(elsewhere,), workloads=(replace(READ, iodepth=16),), settle_s=9.0)
    told = "\n".join(resume.inventory_differences(ours, other))
    assert "guest good1: targets was" in told
    assert "guest good1: storage was None, is san" in told
    assert "guest good2 is not in it" in told
    assert "workload randread: iodepth was 8, is 16" in told
    assert "workload randwrite is not in it" in told
    assert "settle_s was 0.0, is 9.0" in told


@pytest.mark.parametrize("policy", [Policy(), Policy("stop"), Policy(quorum=0.6)])
def test_the_journal_of_a_run_replays_to_the_same_actions(policy: Policy, tmp_path: Path) -> None:
    """Every event with all it led to is there; a bug of the field can be played again."""
    plan = plan_for("good1", "good2", "dying1", policy=policy, **PLAN)
    folder = archive.RunFolder.create(tmp_path, plan)
    play(folder, plan, scripts={"good2": Script(lines_missed=1)})
    entries = archive.journal(folder.path)
    played = replay.check(entries)
    assert played > 10
    bent = [{**e, "actions": []} if e["event"] == "Opened" else e for e in entries]
    with pytest.raises(AssertionError):
        replay.check(bent)
