"""The run folder: plain files that can be read with `cat`, flushed to the disk after every round, while the next one settles.

    RUN/
      run.json              id, when, status, outcomes of the guests, notes, when it was resumed   (rewritten when it ends)
      plan.json             every round, layout and seed
      inventory.yaml        the text that was run, as it was read
      facts.json            what each guest said of itself
      found.json            what searches found, where there were any
      journal.jsonl         what happened, an event a line
      measurements.jsonl    one measurement a line
      raw/0001-NAME/GUEST/  the guest's answers to one round: messages.json and each document as it came
      aside-1/              what the first resume put aside: rounds whose block was not whole; nothing reads it

A controller may be killed at any write: files are written beside and renamed, and of the two that are appended to a last line that
is not whole is left out when they are read. While a controller is at work it holds a lock on the journal.

Folders are 0700 and files 0600. Names made from guests' or workloads' names are percent-encoded.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import pydantic

from calyx_orch import plan as planning
from calyx_orch.analysis import vm_hosts
from calyx_orch.documents.spread import spread
from calyx_orch.errors import FolderError, FormatError, UsageError
from calyx_orch.model import Answers, Found, GuestOutcome, Measurement, Plan, Resumed, Round, RunRecord
from calyx_orch.store import digests, durable

UNFIT_MAX = 4000  # characters of a journal entry that is no strict JSON

Entry = Mapping[str, Any]  # one line of the journal

_T = TypeVar("_T")
_MEASUREMENT = pydantic.TypeAdapter(Measurement)
_FOUND = pydantic.TypeAdapter(tuple[Found, ...])
_FACTS = pydantic.TypeAdapter(dict[str, dict[str, Any]])


class _Head(pydantic.BaseModel):
    """What run.json says; `started_at` must be a time."""

    run_id: str
    started_at: Annotated[str, pydantic.AfterValidator(lambda text: datetime.datetime.fromisoformat(text) and text)]
    status: str
    outcomes: tuple[GuestOutcome, ...]
    notes: tuple[str, ...]
    resumed: tuple[Resumed, ...] = ()


_HEAD = pydantic.TypeAdapter(_Head)


class RunFolder:
    """One run on disk, being written. What is written survives the controller's death at once, and the machine's from `flush` on.

    Each raises FolderError when the disk does not take it; what was written before stays whole.
    """

    def __init__(self, path: Path, run_id: str, started_at: str, resumed: tuple[Resumed, ...] = ()) -> None:
        self.path = path
        self.run_id = run_id
        self.started_at = started_at
        self.resumed = resumed
        self._journal = durable.open_private(path / "journal.jsonl", os.O_APPEND)
        if not durable.lock(self._journal):
            os.close(self._journal)
            raise UsageError(f"the run in {path} is still going on: {_controller(path)} is at work on it")
        try:
            self._measurements = durable.open_private(path / "measurements.jsonl", os.O_APPEND)
        except OSError:
            os.close(self._journal)
            raise
        self._kept: dict[str, str] = {}  # document -> digest of what this controller wrote
        self._unflushed: list[Path] = []  # answers that were written and may not have reached the disk

    @classmethod
    def create(cls, parent: Path, plan: Plan, *, path: Path | None = None) -> RunFolder:
        """Make a new folder: `path` when given (it must be new or empty), else one named by time under `parent`.

        Raises UsageError when it cannot be made.
        """
        now = datetime.datetime.now().astimezone()
        run_id = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        folder = path or parent / f"{quote(plan.inventory.name, safe='')}-{run_id}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise UsageError(f"the run folder {folder} is not empty: name a new one with --out")
            (folder / "raw").mkdir(mode=0o700)
            run = cls(folder, run_id, now.isoformat(timespec="seconds"))
        except OSError as error:
            raise UsageError(
                f"cannot make the run folder {folder}: {error.strerror}; name another with --out"
            ) from error
        try:
            run.keep_plan(plan)
            run._keep("inventory.yaml", plan.inventory.text)
            run.finish(status="running", outcomes=(), notes=())
        except FolderError as error:
            run.close()
            raise UsageError(f"{error}; nothing was started: name another folder with --out") from error
        return run

    @classmethod
    def reopen(cls, path: Path) -> tuple[RunFolder, RunRecord, tuple[Entry, ...]]:
        """A run whose controller ended, to be continued: the folder, what is in it, and its journal.

        Of the journal and the measurements a last line that is not whole is cut off. Raises UsageError when there is no run, when it
        is still going on, or when one of its documents is not what the journal says.
        """
        if not (path / "run.json").is_file():
            raise UsageError(f"{path} is not a run folder: it holds no run.json")
        head = _understood(path / "run.json", _HEAD.validate_json)
        try:
            run = cls(path, head.run_id, head.started_at, head.resumed)
        except OSError as error:
            raise UsageError(f"cannot write in the run folder {path}: {error.strerror}") from error
        try:
            with durable.writing(path):
                for name, is_whole in (("journal.jsonl", _is_entry), ("measurements.jsonl", _is_measurement)):
                    durable.cut_torn_lines(path / name, is_whole)
                for torn in path.glob("*.tmp"):
                    torn.unlink()
            entries = journal(path)
            digests.refuse_changed(path, entries)
            return run, _read(path), entries
        except BaseException:
            run.close()
            raise

    def resume(self, resumed: Resumed, kept: frozenset[int], **details: Any) -> None:
        """Note that the run goes on with the rounds `kept`; what else was measured is put aside, where nothing reads it."""
        self.note("resumed", time.monotonic_ns(), sync=True, at=resumed.at, kept=sorted(kept), **details)
        self.resumed = (*self.resumed, resumed)
        aside = self.path / f"aside-{len(self.resumed)}"
        lines = (self.path / "measurements.jsonl").read_bytes().splitlines(keepends=True)
        stay = [line for line in lines if json.loads(line)["round_index"] in kept]
        go = [line for line in lines if json.loads(line)["round_index"] not in kept]
        raw = [one for one in (self.path / "raw").iterdir() if _index_of(one) not in kept]
        with durable.writing(aside):
            if go or raw:
                (aside / "raw").mkdir(mode=0o700, parents=True, exist_ok=True)
                aside.chmod(0o700)
            if go:
                durable.write(aside / "measurements.jsonl", b"".join(go).decode())
                durable.write(self.path / "measurements.jsonl", b"".join(stay).decode())
                os.close(self._measurements)
                self._measurements = durable.open_private(self.path / "measurements.jsonl", os.O_APPEND)
            for one in raw:
                one.replace(aside / "raw" / one.name)
        self.finish(status="running", outcomes=(), notes=())

    def note(self, event: str, at_ns: int, *, sync: bool = False, **details: Any) -> None:
        """Add one event to the journal. `at_ns` is the controller's monotonic clock."""
        try:
            line = json.dumps({"at_ns": at_ns, "event": event, **details}, default=_plain, allow_nan=False)
        except (ValueError, RecursionError) as error:  # the journal is strict JSON, whatever a guest's message holds
            line = json.dumps(
                {"at_ns": at_ns, "event": event, "details": repr(details)[:UNFIT_MAX], "unfit": str(error)}
            )
        with durable.writing(self.path / "journal.jsonl"):
            durable.append(self._journal, line + "\n", sync=sync)

    def keep_plan(self, plan: Plan) -> None:
        """Write the plan anew, with what was decided on the way: set-ups, buffers, rounds of searches."""
        self._keep("plan.json", planning.to_json(plan))

    def keep_found(self, found: Iterable[Found]) -> None:
        """Write what the searches found."""
        self._keep("found.json", _FOUND.dump_json(tuple(found), indent=1).decode())

    def keep_facts(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Write what the guests said of themselves."""
        self._keep("facts.json", spread(facts, 2, default=_plain))

    def _keep(self, name: str, text: str) -> None:
        """Write a document, its digest in the journal before and after, so that a resume knows whether it was changed since."""
        sha256 = digests.digest(durable.encoded(text))
        if self._kept.get(name) == sha256:
            return  # it is there
        self.note(digests.KEEPING, time.monotonic_ns(), sync=True, file=name, sha256=sha256)
        durable.write(self.path / name, text)
        self.note(digests.KEPT, time.monotonic_ns(), file=name, sha256=sha256)
        self._kept[name] = sha256

    def keep_answers(self, round_: Round, guest: str, answers: Answers) -> None:
        """Write one guest's raw answers to one round."""
        folder = self.path / "raw" / quote(round_.name, safe="") / _safe(guest)
        with durable.writing(folder):
            for each in (folder.parent, folder):  # `parents=True` would make the outer one open to others
                each.mkdir(mode=0o700, exist_ok=True)
        head = {
            "messages": answers.messages,
            "clock": dataclasses.asdict(answers.clock),
            "held_start_ns": answers.held_start_ns,
            "lost_time": None if answers.lost_time is None else dataclasses.asdict(answers.lost_time),
        }
        self._keep_raw(folder / "messages.json", spread(head, 2, default=_plain))
        for name, text in answers.documents.items():
            self._keep_raw(folder / ("%" + name if name == "messages.json" else _safe(name)), text)

    def _keep_raw(self, path: Path, text: str) -> None:
        """Write a file in place: until its round is done nothing reads it, and `flush` makes it last."""
        with durable.writing(path):
            descriptor = durable.open_private(path, os.O_TRUNC)
            try:
                durable.append(descriptor, text, sync=False)
            finally:
                os.close(descriptor)
        self._unflushed.append(path)

    def flush(self) -> None:
        """Make all that was written so far last, in the order in which it is relied on. May run in a thread of its own."""
        waiting, self._unflushed = self._unflushed, []
        with durable.writing(self.path):
            for path in waiting:
                durable.sync(path)
            for folder in dict.fromkeys(path.parent for path in waiting):
                durable.sync(folder)
            for descriptor in (self._measurements, self._journal):
                os.fsync(descriptor)

    def keep_measurements(self, measurements: Iterable[Measurement]) -> None:
        """Append a round's measurements."""
        lines = b"".join(_MEASUREMENT.dump_json(measurement) + b"\n" for measurement in measurements)
        with durable.writing(self.path / "measurements.jsonl"):
            durable.append(self._measurements, lines.decode(), sync=False)

    def finish(self, *, status: str, outcomes: tuple[GuestOutcome, ...], notes: tuple[str, ...]) -> None:
        """Write how the run stands: `running`, `finished`, `interrupted` or `failed`."""
        head = {
            "run_id": self.run_id,
            "started_at": self.started_at,
            "status": status,
            "outcomes": [dataclasses.asdict(outcome) for outcome in outcomes],
            "notes": list(notes),
            "resumed": [dataclasses.asdict(one) for one in self.resumed],
            "controller": f"process {os.getpid()} on {platform.node()}",
        }
        durable.write(self.path / "run.json", json.dumps(head, indent=1))

    def close(self) -> None:
        """Let go of the files."""
        for descriptor in (self._journal, self._measurements):
            os.close(descriptor)


def read(path: Path) -> RunRecord:
    """Read a run back from its folder, each guest on the vm_host that it told where none was declared.

    A run that was cut off is read as far as it was written. Raises UsageError when the folder holds no run or one of its files
    cannot be understood, naming it.
    """
    return vm_hosts.placed(_read(path))


def _read(path: Path) -> RunRecord:
    """As it was written."""
    if not (path / "run.json").is_file():
        raise UsageError(f"{path} is not a run folder: it holds no run.json")
    head = _understood(path / "run.json", _HEAD.validate_json)
    plan = _understood(path / "plan.json", lambda text: planning.from_json(text.decode()))
    found = _understood(path / "found.json", _FOUND.validate_json) if (path / "found.json").is_file() else ()
    facts = _understood(path / "facts.json", _FACTS.validate_json) if (path / "facts.json").is_file() else {}
    measurements, cut = _read_measurements(path / "measurements.jsonl")
    return RunRecord(
        run_id=head.run_id,
        folder=str(path),
        plan=plan,
        measurements=measurements,
        outcomes=head.outcomes,
        facts=facts,
        started_at=head.started_at,
        status="interrupted" if head.status == "running" else head.status,
        notes=(*head.notes, *cut),
        found=found,
        resumed=head.resumed,
    )


def run_id_in(path: Path) -> str | None:
    """The id of the run that a folder holds by now, of which nothing else is read; None: of none, or its run.json is damaged."""
    try:
        return str(json.loads((path / "run.json").read_bytes())["run_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_going_on(path: Path) -> bool:
    """Whether a controller is at work on the run in this folder; False also where the file system knows no locks."""
    try:
        descriptor = os.open(path / "journal.jsonl", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not durable.lock(descriptor)
    finally:
        os.close(descriptor)


def journal(path: Path) -> tuple[Entry, ...]:
    """The events of a run in their order. What is no event, such as a last line that was cut off, is left out."""
    lines = (path / "journal.jsonl").read_bytes().split(b"\n") if (path / "journal.jsonl").is_file() else []
    return tuple(json.loads(line) for line in lines if _is_entry(line))


def _is_entry(line: bytes) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and isinstance(entry.get("event"), str)


def _is_measurement(line: bytes) -> bool:
    try:
        _MEASUREMENT.validate_json(line)
    except ValueError:
        return False
    return True


def _index_of(raw: Path) -> int:
    number = raw.name.partition("-")[0]
    return int(number) if number.isdigit() else -1


def _controller(path: Path) -> str:
    try:
        return f"its controller ({json.loads((path / 'run.json').read_text(encoding='utf-8'))['controller']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "its controller"


def _read_measurements(path: Path) -> tuple[tuple[Measurement, ...], tuple[str, ...]]:
    """All whole lines; a last line that was cut off by a crash is left out and told."""
    lines = path.read_bytes().split(b"\n") if path.is_file() else []
    found: list[Measurement] = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            found.append(_MEASUREMENT.validate_json(line))
        except ValueError as error:
            if number == len(lines):
                return tuple(found), ("the last measurement was cut off while it was written and is left out",)
            raise UsageError(f"{path}:{number} is damaged, no measurement: {_first_problem(error)}") from error
    return tuple(found), ()


def _understood(path: Path, read: Callable[[bytes], _T]) -> _T:
    """What `read` makes of a file. Raises UsageError that names the file and what is wrong with it, and where to find it whole."""
    try:
        return read(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (FormatError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path} is damaged, so the run cannot be read: {_first_problem(error)}") from error


def _first_problem(error: Exception) -> str:
    """One line of what a check found."""
    if not isinstance(error, pydantic.ValidationError):
        return " ".join(str(error).split())
    first, *others = error.errors(include_url=False)
    where = ".".join(map(str, first["loc"]))
    more = f", and {len(others)} more" if others else ""
    return f"{f'{where}: ' if where else ''}{first['msg']}{more}"


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


def _safe(name: str) -> str:
    """A file name for any text: percent-encoded, and never `.` or `..`."""
    encoded = quote(name, safe=" @+,=")
    return encoded.replace(".", "%2E") if set(encoded) == {"."} else encoded
