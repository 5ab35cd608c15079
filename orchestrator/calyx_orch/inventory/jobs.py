"""An existing fio job file as workloads: what has an equal here is taken, everything else is named by its line.

    my.fio --read--> sections of options with lines --translate--> workload keys with lines --check--> workloads

`parse_jobs` reads the text as fio 3.33 does: `;` and `#` begin comments, [global] holds for the sections behind it, sizes are
binary (4k is 4096; only `kib` and the like are decimal, as in fio), a bare runtime is seconds. A section becomes a workload;
sections run one after another. What changes nothing about the I/O goes on with a note, what would change it is refused, and all
refusals of a file are told at once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from calyx_orch import documents
from calyx_orch.documents import Document, Node
from calyx_orch.errors import InventoryErrors, Problem
from calyx_orch.inventory import fio_values, fio_words
from calyx_orch.inventory.settings.workloads import PresetDocument
from calyx_orch.inventory.workloads import Expansion
from calyx_orch.model import Workload

TEXT_BYTES_MAX = 1 << 20
_ENGINES = {"io_uring": "fio-io_uring", "libaio": "fio-libaio", "psync": "fio-psync"}
_DEFAULT_ENGINE = "psync"  # fio's own on Linux
_INSTEAD = {"rw": "read", "size": "64g"}  # for what cannot be taken and is told, so that it is not told as missing, too


@dataclass(frozen=True)
class JobFile:
    """What a job file asks for. `baselines` are the fio engines its `ioengine`s name; `notes` what is different around the I/O."""

    workloads: tuple[Workload, ...]
    baselines: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Option:
    """One option as written: `value` None where there is no `=`. `name` is fio's own for what was `written`."""

    name: str
    value: str | None
    line: int
    written: str = ""


@dataclass
class Section:
    """A job: its own options behind those of the [global] sections before it; the last of a name counts."""

    name: str
    line: int
    options: dict[str, Option] = field(default_factory=dict)


def parse_jobs(text: str, *, source: str) -> JobFile:
    """The workloads of a job file. Raises InventoryErrors with every line that cannot be taken."""
    reading = _Reading(source)
    sections = reading.sections(text)
    if not sections and not reading.problems:
        reading.problem(1, "there is no job: a job begins with its name in [brackets]")
    entries = [reading.entry(section) for section in sections]
    reading.notes_of_order(sections)
    document = Document(source, _tree(entries))
    model, _ = documents.validate(document, PresetDocument)
    workloads = Expansion(document, {}).expand(model.workloads) if model is not None else ()
    told = {problem.line for problem in reading.problems}
    _raise(
        reading.problems
        + [Problem(one.file, one.line, 0, one.message) for one in document.problems if one.line not in told]
    )
    engines = tuple(dict.fromkeys(_ENGINES[entry.engine] for entry in entries))
    return JobFile(workloads, engines, tuple(dict.fromkeys(reading.notes)))


@dataclass(frozen=True)
class _Entry:
    """One job in the keys of an inventory, each with the line it comes from."""

    line: int
    keys: Mapping[str, tuple[str, int]]
    engine: str


class _Reading:
    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self._names: dict[str, int] = {}

    def problem(self, line: int, message: str) -> None:
        found = Problem(self.source, line, 0, message)
        if found not in self.problems:
            self.problems.append(found)

    def note(self, line: int, message: str) -> None:
        self.notes.append(f"{self.source}:{line}: {message}")

    # --- lines ---

    def sections(self, text: str) -> list[Section]:
        """Every job with all options that hold for it."""
        if len(text) > TEXT_BYTES_MAX:
            self.problem(1, "this file is larger than 1 MiB: it is no job file")
            return []
        common: dict[str, Option] = {}
        jobs: list[Section] = []
        current: dict[str, Option] | None = None
        for number, raw in enumerate(text.splitlines(), start=1):
            line = re.split(r"[;#]", raw, maxsplit=1)[0].strip()
            if not line:
                continue
            if line.startswith("[") and line.endswith("]"):
                name = line[1:-1].strip()
                if name == "global":
                    current = common
                else:
                    jobs.append(Section(name, number, dict(common)))
                    current = jobs[-1].options
                continue
            if re.match(r"include\s", line):
                self.problem(
                    number, "include has no equivalent in calyx-orch: copy the lines of that file into this one"
                )
            elif current is None:
                self.problem(number, f"'{line[:40]}' stands in front of the first section")
            else:
                option = self._option(line, number)
                current.pop(option.name, None)
                current[option.name] = option
        return jobs

    def _option(self, line: str, number: int) -> Option:
        name, equals, value = (part.strip() for part in line.partition("="))
        if "$" in value:
            self.problem(number, f"'{value}' holds a variable, which has no equivalent in calyx-orch: write its value")
        return Option(fio_words.ALIASES.get(name, name), value if equals else None, number, name)

    # --- options ---

    def entry(self, section: Section) -> _Entry:
        """One section in the keys of an inventory."""
        keys: dict[str, tuple[str, int]] = {"name": (self._name(section), section.line)}
        for option in section.options.values():
            self._take(option, section, keys)
        engine = self._engine(section, keys)
        if "rw" not in keys and not any(name == "rw" for name in section.options):
            keys["rw"] = ("read", section.line)  # as fio
        self._defaults(section, keys)
        return _Entry(section.line, keys, engine)

    def _name(self, section: Section) -> str:
        plain = re.sub(r"[^\w.+-]", "-", section.name)[:70].lstrip(".+-") or "job"
        self._names[plain] = self._names.get(plain, 0) + 1
        return plain if self._names[plain] == 1 else f"{plain}-{self._names[plain]}"

    def _take(self, option: Option, section: Section, keys: dict[str, tuple[str, int]]) -> None:
        name, written = option.name, option.written
        if name in _INSTEAD:
            keys[name] = (_INSTEAD[name], option.line)
        if option.value is not None and "$" in option.value:
            return  # told already
        try:
            if name in fio_values.TRANSLATED:
                translated, notes = fio_values.TRANSLATED[name](option.value, fio_values.Around(section.options))
                keys.update({key: (value, option.line) for key, value in translated.items()})
                for note in notes:
                    self.note(option.line, note)
            elif name in fio_words.TOLD:
                self.note(option.line, f"{written} has no equivalent in calyx-orch: {fio_words.TOLD[name]}")
            elif name in fio_words.REFUSED:
                self.problem(option.line, f"{written} has no equivalent in calyx-orch: {fio_words.REFUSED[name]}")
            elif name in fio_words.OTHERS:
                self.problem(option.line, f"{written} has no equivalent in calyx-orch: leave it out")
            elif name not in fio_words.HARMLESS and name != "ioengine":
                self.problem(option.line, f"fio 3.33 has no option '{written}'{_suggestion(name)}")
        except ValueError as error:
            self.problem(option.line, f"{written}={option.value or ''} {error}")

    def _engine(self, section: Section, keys: dict[str, tuple[str, int]]) -> str:
        option = section.options.get("ioengine")
        engine = _DEFAULT_ENGINE if option is None else option.value or ""
        line = section.line if option is None else option.line
        if engine not in _ENGINES:
            self.problem(line, f"ioengine={engine} has no equivalent in calyx-orch: {', '.join(_ENGINES)} have")
            return _DEFAULT_ENGINE
        if engine != _DEFAULT_ENGINE:
            return engine
        if option is None:
            self.note(
                line,
                f"[{section.name}] names no ioengine, and fio's own is psync: calyx makes one call after another, too",
            )
        if keys.pop("iodepth", ("1", 0))[0] != "1":
            self.note(line, "iodepth means nothing to psync, which has one I/O in flight")
        keys["setup"] = ("psync", line)
        return engine

    def _defaults(self, section: Section, keys: dict[str, tuple[str, int]]) -> None:
        """What fio does where nothing is said is not always what calyx does."""
        line, options = section.line, section.options
        if "direct" not in keys:
            keys["direct"] = ("false", line)
        if "runtime" not in options:
            self.note(line, f"[{section.name}] has no runtime: it is measured for 60 s")
        elif "time_based" not in options or fio_values.is_off(options["time_based"].value):
            self.note(
                line, f"[{section.name}] is not time_based: it is measured for its runtime, however small its size"
            )
        if "ramp_time" not in options:
            self.note(line, f"[{section.name}] has no ramp_time: 10 s are run before it is measured")
        if keys.get("rw", ("", 0))[0].startswith("rand") and (
            "norandommap" not in options or fio_values.is_off(options["norandommap"].value)
        ):
            self.note(
                line,
                f"[{section.name}] keeps a random map; calyx and its baseline keep none, so that a block may be met again",
            )

    def notes_of_order(self, sections: Sequence[Section]) -> None:
        """Sections without stonewall run at once in fio."""
        for section in sections[1:]:
            if "stonewall" not in section.options:
                self.note(
                    section.line,
                    f"[{section.name}] has no stonewall, so that fio runs it with the sections before it; here it is a workload of its own",
                )


def _suggestion(name: str) -> str:
    known: set[str] = {
        *fio_values.TRANSLATED,
        *fio_words.HARMLESS,
        *fio_words.TOLD,
        *fio_words.REFUSED,
        *fio_words.ALIASES,
    }
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f" (did you mean '{close[0]}'?)" if close else ""


def _tree(entries: Sequence[_Entry]) -> Node:
    """The entries as the tree of a document, so that they are checked like any workload, and complaints have their lines."""
    jobs = [
        Node(
            {key: (Node(key, line, 0), Node(value, line, 0)) for key, (value, line) in entry.keys.items()},
            entry.line,
            0,
        )
        for entry in entries
    ]
    return Node({"workloads": (Node("workloads", 1, 0), Node(list(jobs), 1, 0))}, 1, 0)


def _raise(problems: Sequence[Problem]) -> None:
    if problems:
        raise InventoryErrors(tuple(sorted(dict.fromkeys(problems), key=lambda one: one.line)))
