"""What fio prints, read robustly: its JSON among other lines, and what is to be thought of it.

`read_output` never raises: whatever a fio of any version, or a dying one, left behind becomes a FioOutput with a status
and a sentence. Units are decided by the keys (`lat_ns` or `lat`, `io_kbytes`, `bw_bytes`), then by the version.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from calyx_orch.engines.fio_jobs import FioDirection, FioJob, jobs_of, options_of
from calyx_orch.engines.fio_logs import LogLine, parse_log
from calyx_orch.engines.fio_versions import FioVersion, fio_facts, fio_lacks, parse_version
from calyx_orch.errors import FormatError

__all__ = [
    "FioDirection",
    "FioJob",
    "FioOutput",
    "FioVersion",
    "LogLine",
    "fio_facts",
    "fio_lacks",
    "parse_log",
    "parse_version",
    "read_output",
]

PRERUN = "Saving output of prerun in"  # what each job says of its `exec_prerun`
VERIFY_ERRNO = 84  # EILSEQ: fio's word for data that is not what was written
ERRNO_MAX = 4095  # as in the kernel

BROKEN_MAX = (
    100  # objects that begin and are none, before the rest is taken as cut: each costs a reading of all that follows
)

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_DOCUMENT_START = re.compile(r'\{\s*"fio version"')
_KILLED = re.compile(r"pid=\d+, got signal=(\d+)")
_ERROR_LINE = re.compile(r"\berr=\s*(\d+)/")
_CLIENT_LINE = re.compile(r"^hostname=([^,\s]+),")


@dataclass(frozen=True)
class FioOutput:
    """All that one fio left: `ok`, `partial` (cut; the last whole document is shown) or `failed`, and why in words.

    Only `ok` may enter an aggregate or a baseline. `messages` are the lines around the documents. `interval_ios` are
    the differences of cumulative documents (--status-interval), the last of which is the result.
    """

    status: str
    why: str = ""
    errno: int | None = None
    version: FioVersion | None = None
    jobs: tuple[FioJob, ...] = ()
    failed_jobs: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    documents: int = 0
    interval_ios: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    missing_hosts: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)  # those given to all jobs, as fio understood them

    @property
    def total_ios(self) -> int:
        """I/Os of all jobs."""
        return sum(job.total_ios for job in self.jobs)


@dataclass
class _Found:
    documents: list[dict[str, Any]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    cut: bool = False


def read_output(stdout: str, stderr: str = "", exit_status: int = 0) -> FioOutput:
    """Reads fio's stdout (or its --output file) with its stderr and exit status. Never raises."""
    found = _find_documents(stdout)
    messages = (*found.messages, *(line for line in stderr.splitlines() if line.strip()))
    try:
        readings = [jobs_of(document) for document in found.documents]
    except FormatError as error:
        return FioOutput("failed", str(error), messages=messages, documents=len(found.documents))
    if not readings:
        return _without_document(found, messages, exit_status)
    jobs = readings[-1]
    totals = [sum(job.total_ios for job in reading) for reading in readings]
    hosts = tuple(dict.fromkeys(job.host for job in jobs if job.host is not None))
    announced = [match[1] for line in messages if (match := _CLIENT_LINE.match(line))]
    missing = tuple(name for name in dict.fromkeys(announced) if name not in hosts)
    number = next((job.error for job in jobs if job.error), None) or _errno_of(messages)
    status, why = _judge(found, jobs, messages, exit_status, number, missing)
    return FioOutput(
        status=status,
        why=why,
        errno=number,
        version=parse_version(str(found.documents[-1].get("fio version", ""))),
        jobs=jobs,
        failed_jobs=tuple(job.name for job in jobs if job.error),
        messages=messages,
        documents=len(readings),
        interval_ios=tuple(after - before for before, after in zip([0, *totals], totals, strict=False)),
        hosts=hosts,
        missing_hosts=missing,
        options=options_of(found.documents[-1]),
    )


# --- finding documents -------------------------------------------------------------------------------------------


def _find_documents(text: str) -> _Found:
    """Every object with `fio version` and jobs, and the lines around them; `cut` when one begins and does not end."""
    found = _Found()
    decoder = json.JSONDecoder()
    text = _SURROGATE.sub("\\\\ufffd", text)  # half a character is none; fio writes no whole one so
    position = outside = broken = 0
    while (position := text.find("{", position)) >= 0:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            broken += 1
            if _DOCUMENT_START.match(text, position) or broken > BROKEN_MAX:
                found.cut = True
                break
            position += 1
            continue
        if isinstance(value, dict) and "fio version" in value and ("jobs" in value or "client_stats" in value):
            found.messages += _lines(text[outside:position])
            found.documents.append(value)
            outside = end
        position = end
    found.messages += _lines(text[outside : position if found.cut else len(text)])
    return found


def _lines(text: str) -> Iterator[str]:
    return (line.rstrip() for line in text.splitlines() if line.strip())


def _without_document(found: _Found, messages: tuple[str, ...], exit_status: int) -> FioOutput:
    if found.cut:
        why = "fio's output ends in the middle of its document"
    elif messages:
        why = "fio gave no result: " + "; ".join(line.removeprefix("fio: ") for line in messages[-3:])
    else:
        why = "no output"
    if exit_status:
        why += f" (exit status {exit_status})"
    return FioOutput("failed", why, errno=_errno_of(messages), messages=messages)


# --- judging -----------------------------------------------------------------------------------------------------


def _judge(
    found: _Found,
    jobs: tuple[FioJob, ...],
    messages: tuple[str, ...],
    exit_status: int,
    number: int | None,
    missing: tuple[str, ...],
) -> tuple[str, str]:
    """Status and reason. When a worker was killed, fio 3.33 answers exit status 0 and error 0: stderr decides."""
    killed = next((match[1] for line in messages if (match := _KILLED.search(line))), None)
    if killed is not None:
        return "failed", f"worker killed by signal {killed}"
    if number is not None:
        names = ", ".join(job.name for job in jobs if job.error)
        return "failed", _errno_sentence(number) + (f" in {names}" if names else "")
    if missing:
        return "failed", f"no result of {', '.join(missing)}"
    if found.cut:
        return "partial", "fio's output ends in the middle of a document; the last whole one is shown"
    if exit_status:
        return "failed", f"fio ended with exit status {exit_status}{_last_words(messages)}"
    if not jobs:
        return "failed", "fio's document has no job"
    return "ok", ""


def _last_words(messages: tuple[str, ...]) -> str:
    """The last line around the document that is fio's own and says more than where a prerun's output is."""
    own = [line.strip() for line in messages if PRERUN not in line and not line.strip().isdecimal()]
    return f": {own[-1].removeprefix('fio: ')}" if own else ""


def _errno_sentence(number: int) -> str:
    if number == VERIFY_ERRNO:
        return "data verification failed (EILSEQ)"
    return f"{errno.errorcode.get(number, f'errno {number}')} ({os.strerror(min(abs(number), ERRNO_MAX))})"


def _errno_of(messages: tuple[str, ...]) -> int | None:
    """The error number of the first `fio: pid=.., err=N/..` line, else None."""
    numbers = (
        int(match[1][:9]) for line in messages if line.startswith("fio: ") and (match := _ERROR_LINE.search(line))
    )
    return next((number for number in numbers if number), None)
