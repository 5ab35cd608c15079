"""No page, export or JUnit file takes the place of what it is made of, or of what is something else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calyx_orch import cli
from calyx_orch.commands import outputs
from calyx_orch.errors import UsageError
from calyx_orch.store.archive import RunFolder
from report_records import run_record


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    record = run_record(2, per_host=1, blocks=1)
    made = RunFolder.create(tmp_path, record.plan, path=tmp_path / "run one")
    made.keep_facts(record.facts)
    made.keep_measurements(record.measurements)
    made.finish(status="finished", outcomes=record.outcomes, notes=())
    made.close()
    return made.path


def test_no_document_of_a_run_is_written_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever of it, and by whatever name; the run can be read afterwards."""
    monkeypatch.setenv("CALYX_ORCH_STORE", f"sqlite:///{folder.parent / 'store.sqlite'}")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (folder.parent / "link").symlink_to(folder / "plan.json")
    places = [*before, folder / "raw" / "new.html", folder.parent / "link"]
    verbs = [["report", str(folder), "--out"], ["export", str(folder), "--out"], ["history", "--html"]]
    verbs += [["compare", str(folder), "--by", "vm_host", "--html"]]
    for place in places:
        for verb in verbs:
            with pytest.raises(
                UsageError, match=r"it belongs to the run in .*run one, which would be lost: name another file"
            ):
                CliRunner().invoke(cli.app, [*verb, str(place)], catch_exceptions=False)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert CliRunner().invoke(cli.app, ["report", str(folder), "--out", str(folder / "page.html")]).exit_code == 0
    assert CliRunner().invoke(cli.app, ["report", str(folder), "--out", str(folder / "page.html")]).exit_code == 0


@pytest.mark.parametrize(("what", "own"), [("page", "<!DOCTYPE html>"), ("JUnit file", "<?xml version=")])
def test_what_is_something_else_is_not_written_over(tmp_path: Path, what: str, own: str) -> None:
    """As an inventory whose name was completed by a shell; its own kind is, and what is empty, and a pipe is not read."""
    file = tmp_path / "fleet.yaml"
    file.write_text("guests: [a]\n")
    with pytest.raises(
        UsageError, match=f"--out {file}: it is there and is no {what}: name another file, or remove it"
    ):
        outputs.checked(file, "--out", what)
    for text in (own, ""):
        file.write_text(text)
        assert outputs.checked(file, "--out", what) == file
    with pytest.raises(UsageError, match=f"^--out {tmp_path}/no/such: there is no directory {tmp_path}/no$"):
        outputs.checked(tmp_path / "no" / "such", "--out", what)
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "new", "."):
        outputs.checked(tmp_path / name, "--out", what)
