"""Who makes the I/O: a table of engines. A round becomes a command, and a guest's answers become a measurement.

To add an engine: a module with `command` and `measure`, and its line in ENGINES. Everything here is pure.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from calyx_orch.engines import calyx, fio, fio_options
from calyx_orch.engines.answers import (
    READY_WITHIN_S,
    Command,
    blank,
    clipped,
    deadline_ns,
    is_count,
    raw_device,
    unmeasured,
)
from calyx_orch.engines.fio_documents import FioVersion, fio_facts, fio_lacks, parse_version
from calyx_orch.errors import Fault, FormatError
from calyx_orch.model import Answers, Guest, Measurement, Round, Workload

ENGINES: dict[str, ModuleType] = {"calyx": calyx, "fio-io_uring": fio, "fio-libaio": fio, "fio-psync": fio}

__all__ = [
    "ENGINES",
    "READY_WITHIN_S",
    "Command",
    "FioVersion",
    "clipped",
    "command",
    "deadline_ns",
    "fio_engine",
    "fio_facts",
    "fio_lacks",
    "is_count",
    "measure",
    "no_equal",
    "parse_version",
    "unmeasured",
]


def fio_engine(engine: str) -> str | None:
    """The name that fio has for an engine (`io_uring`, `libaio`), or None when the engine is not fio."""
    return engine.removeprefix("fio-") if engine.startswith("fio-") and engine in ENGINES else None


def no_equal(engine: str, workload: Workload) -> str | None:
    """Why this engine does not make the same I/O as calyx, so that it is no baseline of the workload; None when it does."""
    own = fio_engine(engine)
    return None if own is None else fio_options.no_equal(own, workload)


def command(
    round_: Round,
    *,
    paths: tuple[str, ...],
    data_seed: int,
    taken: Mapping[str, Any],
    facts: Mapping[str, Any],
    hello: Mapping[str, Any],
    fio_path: str | None,
    ramp_extra_ns: int = 0,
) -> Command:
    """The line that makes a guest ready for this round: `run` for calyx, a held `exec` for fio.

    `paths` are the files, one a job. `taken` is the set-up that took effect for calyx on this guest (the `setup` of
    `ready` or of its result; empty: unknown), so that fio gets no less. `facts` and `hello` are the agent's messages.
    `ramp_extra_ns` lengthens the ramp. Raises Fault for an unknown engine, or a fio engine without `fio_path`, and FormatError
    when what the guest said of its set-up makes no sense.
    """
    if round_.engine not in ENGINES:
        raise Fault(f"unknown engine {round_.engine!r}")
    own = fio_engine(round_.engine)
    if own is None:
        device = raw_device(facts, round_.target) is not None
        return calyx.command(round_, paths=paths, data_seed=data_seed, ramp_extra_ns=ramp_extra_ns, device=device)
    if fio_path is None:
        raise Fault(f"{round_.engine} was planned for a guest without fio")
    try:
        return fio.command(
            round_,
            ioengine=own,
            paths=paths,
            data_seed=data_seed,
            taken=taken,
            facts=facts,
            hello=hello,
            fio_path=fio_path,
            ramp_extra_ns=ramp_extra_ns,
        )
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise FormatError(f"no command for fio can be made of what the guest said: {_where(error)}") from error


def measure(round_: Round, guest: Guest, answers: Answers) -> Measurement:
    """The guest's answers for this round as a measurement.

    Never raises on what a guest sends: nonsense gives a measurement with status `failed` and a sentence in `why`.
    """
    try:
        measured: Measurement = ENGINES[round_.engine].measure(round_, guest, answers)
        return replace(measured, why=clipped(measured.why), notes=tuple(map(clipped, measured.notes)))
    except FormatError as error:
        why = str(error)
    except Exception as error:  # the last net: what one guest sends must not end the others' run
        why = f"its answers make no sense, in a way that we had not thought of: {_where(error)}"
    sane = replace(answers, messages={})
    return replace(blank(round_, guest, sane), status="failed", why=clipped(why))


def _where(error: Exception) -> str:
    """`OverflowError: int too large (fio.py:120)`: what happened and where in our source."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {error} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"
