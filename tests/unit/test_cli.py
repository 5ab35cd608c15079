"""The command line: what is said without an inventory, what is chosen by name, and that help shows its words as they are."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from calyx_orch import cli
from calyx_orch.commands import report
from calyx_orch.commands import run as command
from calyx_orch.errors import UsageError
from calyx_orch.store import archive
from report_records import run_record

GUEST = ("run", "--guest", "bench@vm1:2222", "--target", "/data", "--dry-run", "--json")


def planned(*words: str) -> dict[str, Any]:
    """The plan that these words give on a guest of the command line."""
    done = CliRunner().invoke(cli.app, [*GUEST, *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    plan: dict[str, Any] = json.loads(done.stdout)["plan"]
    return plan


def names(plan: dict[str, Any]) -> list[str]:
    return [workload["name"] for workload in plan["inventory"]["workloads"]]


def verbs() -> list[str]:
    return sorted(get_command(cli.app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("verb", verbs())
def test_help_shows_every_word_that_is_written(verb: str) -> None:
    """Brackets of a text are no markup: all its words are on the screen."""
    shown = CliRunner().invoke(cli.app, [verb, "--help"], env={"COLUMNS": "240", "NO_COLOR": "1"}).output
    for parameter in get_command(cli.app).commands[verb].params:  # type: ignore[attr-defined]
        text = " ".join((parameter.help or "").split())
        assert text in " ".join(shown.split()), text


@pytest.mark.parametrize("verb", [[], *([name] for name in verbs()), ["schedule", "add"]])
def test_help_shows_no_type_behind_a_flag(verb: list[str]) -> None:
    """There is nothing to write behind it; what does take a value still says which."""
    shown = CliRunner().invoke(cli.app, [*verb, "--help"], env={"COLUMNS": "240", "NO_COLOR": "1"}).output
    assert "--help" in shown
    assert "bool" not in re.sub(r"--direct +BOOL", "", shown).lower()
    if verb == ["run"]:
        assert re.search(r"--seed +N ", shown)


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ((), ["randread-4k", "seqwrite-1m"]),
        (("randread*",), ["randread-4k"]),
        (("randread",), ["randread-4k"]),
        (("quick",), ["randread-4k", "seqwrite-1m"]),
        (("four-corners",), ["randread-4k", "randwrite-4k", "seqread-1m", "seqwrite-1m"]),
        (("seqwrite-1m,mixed",), ["seqwrite-1m", "mixed-8k-qd1", "mixed-8k-qd8", "mixed-8k-qd32"]),
        (("seqwrite-1m", "mixed"), ["seqwrite-1m", "mixed-8k-qd1", "mixed-8k-qd8", "mixed-8k-qd32"]),
    ],
)
def test_workload_narrows_the_quick_preset_or_names_another(words: tuple[str, ...], chosen: list[str]) -> None:
    """A filter never makes a run larger: what matches in the quick preset is taken from there."""
    plan = planned(*(part for word in words for part in ("--workload", word)))
    assert names(plan) == chosen
    (narrowed,) = [one for one in plan["inventory"]["workloads"] if one["name"] == chosen[0]]
    assert narrowed["size_bytes"] == (4 << 30 if words == ("four-corners",) else 256 << 20)


@pytest.mark.parametrize("words", [("seqread-1m",), ("quick", "seqread-1m"), ("q*",)])
def test_a_workload_that_nothing_is_called_is_refused_and_what_there_is_told(words: tuple[str, ...]) -> None:
    """Also beside a preset that there is; a glob is never a preset."""
    options = [part for word in words for part in ("--workload", word)]
    with pytest.raises(
        UsageError, match=f"--workload {re.escape(words[-1])}: no workload or preset is called that"
    ) as caught:
        CliRunner().invoke(cli.app, [*GUEST, *options], catch_exceptions=False)
    assert "workloads: randread-4k, seqwrite-1m; presets: four-corners, mixed, paper, quick" in str(caught.value)


def test_names_may_stand_behind_one_another_with_commas() -> None:
    """As they do elsewhere; nothing between two commas, or nothing at all, never stands for everything."""
    more = ("--guest", "vm2", "--guest", "vm3")
    chosen = planned(*more, "--limit", "vm1,vm3")["inventory"]["guests"]
    assert [one["name"] for one in chosen] == ["vm1", "vm3"]
    for written in ("", "vm1,"):
        with pytest.raises(UsageError, match="--limit : no guest, group, vm_host or storage is called that"):
            CliRunner().invoke(cli.app, [*GUEST, *more, "--limit", written], catch_exceptions=False)


def test_guests_of_the_command_line_are_reached_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Key, known hosts, policy, configuration and jump host, with whole paths and all of it in the run folder's copy."""
    monkeypatch.chdir(tmp_path)
    words = (
        "--key",
        "id",
        "--key",
        "~/other",
        "--known-hosts",
        "hosts",
        "--host-key-policy",
        "accept-new",
        "--ssh-config",
        "/c",
    )
    plan = planned(*words, "--jump", "bastion")
    reached = plan["inventory"]["guests"][0]["connection"]
    assert reached["key_files"] == [str(tmp_path / "id"), "~/other"]
    assert reached["known_hosts"] == str(tmp_path / "hosts")
    assert (reached["host_key_policy"], reached["ssh_config"]) == ("accept-new", "/c")
    assert (reached["jump"]["address"], reached["jump"]["port"]) == ("bastion", 22)
    assert json.loads(plan["inventory"]["text"])["defaults"]["host_key_policy"] == "accept-new"
    jump = planned("--jump", "ops@bastion:2200")["inventory"]["guests"][0]["connection"]["jump"]
    assert (jump["user"], jump["address"], jump["port"]) == ("ops", "bastion", 2200)


@pytest.mark.parametrize("option", ["--key", "--known-hosts", "--host-key-policy", "--ssh-config", "--jump"])
def test_how_guests_are_reached_is_said_in_an_inventory_where_there_is_one(option: str) -> None:
    """The option is refused, with the key to write instead."""
    with pytest.raises(
        UsageError, match=f"{option} goes with --guest; in an inventory write `{option[2:].replace('-', '_')}:`"
    ):
        CliRunner().invoke(cli.app, ["run", "fleet.yaml", option, "strict"], catch_exceptions=False)


@pytest.mark.parametrize(
    "words",
    [
        ("--seed", "0"), ("--repetitions", "1"), ("--limit", "vm1"), ("--workload", "quick"), ("--out", "x"), ("--recalibrate",),
        ("--dry-run",), ("--jobs", "x.fio"), ("--guest", "vm1"), ("--target", "/d"), ("--key", "k"), ("--jump", "j"),
    ],
)  # fmt: skip
def test_what_would_make_another_plan_does_not_go_with_resume(words: tuple[str, ...], folder: Path) -> None:
    """The option is named, also where its value is 0."""
    with pytest.raises(UsageError, match=f"leave out {words[0]}: --resume goes on with the plan of the run"):
        CliRunner().invoke(cli.app, ["run", "--resume", str(folder), *words], catch_exceptions=False)


def test_a_run_that_has_ended_is_not_resumed(folder: Path) -> None:
    with pytest.raises(UsageError, match="nothing is missing, all that could be measured was"):
        CliRunner().invoke(cli.app, ["run", "--resume", str(folder), "--quiet"], catch_exceptions=False)


def test_only_the_guests_of_the_run_are_asked_a_passphrase_for(tmp_path: Path) -> None:
    """And only when nothing else would refuse the run."""
    (tmp_path / "id").write_bytes(asyncssh.generate_private_key("ssh-ed25519").export_private_key(passphrase="secret"))
    (tmp_path / "i.yaml").write_text(
        "defaults: {targets: {d: /d}}\nguests: {vm1: {transport: local}, vm2: {key: id}}\n"
    )
    argv = [
        sys.executable,
        "-m",
        "calyx_orch.cli",
        "run",
        str(tmp_path / "i.yaml"),
        "--out",
        "/proc/no",
        "--allow-growth",
    ]
    ours, theirs = pty.openpty()
    try:
        for words in (("--limit", "vm1"), ("--budget", "nothing.p99<1s")):
            ended = subprocess.run(
                [*argv, *words], stdin=theirs, capture_output=True, text=True, timeout=20, start_new_session=True
            )
            assert (ended.returncode, "Passphrase" in ended.stderr) == (2, False), ended.stderr
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_job_file_that_cannot_be_read_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "utf16.fio").write_bytes("[j]\n".encode("utf-16"))
    for path, why in (("gone.fio", "No such file or directory"), ("utf16.fio", "it is not UTF-8 text")):
        with pytest.raises(UsageError, match=f"^cannot read the job file {tmp_path / path}: {why}$"):
            CliRunner().invoke(cli.app, [*GUEST, "--jobs", str(tmp_path / path)], catch_exceptions=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run that has ended."""
    record = run_record(2, per_host=2, blocks=2, runtime_s=60.0)
    run = archive.RunFolder.create(tmp_path, record.plan)
    run.keep_facts(record.facts)
    run.keep_measurements(record.measurements)
    run.finish(status=record.status, outcomes=record.outcomes, notes=record.notes)
    run.close()
    return run.path


def test_another_dashboard_is_drawn_beside_the_runs_own_page(folder: Path, tmp_path: Path) -> None:
    """report.html stays as it is; --out says otherwise."""
    own = folder / "report.html"
    own.write_text("the run's own page")
    dashboard = tmp_path / "night.yaml"
    dashboard.write_text(
        (Path(__file__).parent.parent.parent / "dashboards" / "fleet.yaml").read_text(encoding="utf-8"),
        encoding="utf-8",
    )
    done = CliRunner().invoke(cli.app, ["report", str(folder), "--dashboard", str(dashboard)], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.stdout.strip() == f"report: {folder / 'report-night.html'}"
    assert "<html" in (folder / "report-night.html").read_text(encoding="utf-8")
    assert own.read_text() == "the run's own page"
    report.draw(str(folder), dashboard=None, out=None, store=None)
    assert "<html" in own.read_text(encoding="utf-8")


def test_the_result_of_a_run_is_told_again_as_json(folder: Path) -> None:
    """The same data that `run --json` prints, alone on standard output, and no page."""
    done = CliRunner().invoke(cli.app, ["report", str(folder), "--json"], catch_exceptions=False)
    whole = json.loads(done.stdout)
    assert done.exit_code == 0
    assert whole["format"] == "calyx-orch-result/1"
    assert {row["guest"] for row in whole["guests"]} == {"hv1-vm01", "hv1-vm02"}
    assert not list(folder.glob("*.html"))
    with pytest.raises(UsageError, match="--json draws no page"):
        CliRunner().invoke(cli.app, ["report", str(folder), "--json", "--out", "x.html"], catch_exceptions=False)


def test_the_defaults_of_reaching_are_left_to_the_inventory() -> None:
    """Nothing said is nothing written."""
    assert command.Reached().settings() == {}


def test_a_percentage_that_is_none_is_shown_what_one_looks_like() -> None:
    """As one would write this limit; a latency may be allowed to double and more."""
    with pytest.raises(UsageError, match=r"--max-regression 5: '5' is no percentage: write it as 5%"):
        CliRunner().invoke(cli.app, [*GUEST, "--max-regression", "5"], catch_exceptions=False)
    assert CliRunner().invoke(cli.app, [*GUEST, "--max-regression", "150%"], catch_exceptions=False).exit_code == 0


GROWING = "vm_hosts:\n  hv1: {free: 1m}\nguests:\n  vm1: {vm_host: hv1, targets: {data: /data}}\nworkloads: [quick]\n"


def test_a_dry_run_says_what_a_run_would_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its closing sentence; with the leave for it there is nothing to say."""
    monkeypatch.setenv("COLUMNS", "240")
    (tmp_path / "i.yaml").write_text(GROWING)
    words = ["run", str(tmp_path / "i.yaml"), "--dry-run"]
    told = CliRunner().invoke(cli.app, words, catch_exceptions=False)
    last = " ".join(told.stdout.split())
    refusal = "this run would write more new bytes than it may: 256 MiB on vm_host hv1, which declares 1 MiB free: use smaller files"
    assert f"As it stands, `run` would refuse this: {refusal}" in last
    assert told.exit_code == CliRunner().invoke(cli.app, [*words, "--json"]).exit_code == 2
    allowed = CliRunner().invoke(cli.app, [*words, "--allow-growth"], catch_exceptions=False)
    assert ("would refuse" in allowed.stdout, allowed.exit_code) == (False, 0)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--budget", "rr.p99<2"), "budget"),
        (("--against", "nosuch"), "nosuch"),
        (("--against", "baseline"), "baseline"),
    ],
)
def test_a_dry_run_refuses_limits_that_a_run_refuses(
    words: tuple[str, str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALYX_ORCH_STORE", f"sqlite:///{tmp_path / 'store.sqlite'}")
    with pytest.raises(UsageError, match=why):
        CliRunner().invoke(cli.app, [*GUEST, *words], catch_exceptions=False)


def test_a_screen_of_no_size_is_one_of_unknown_size() -> None:
    """What draws on it takes every digit of Unicode for a number."""
    words = [sys.executable, "-m", "calyx_orch.cli", "run", "--help"]
    for odd in ("²", "٣", "-5", "0", "many"):
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "COLUMNS": odd, "LINES": odd},
        )
        assert (done.returncode, done.stderr) == (0, ""), odd
