"""What a guest's fio is and can: its version string and its list of engines, as preflight asks for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_VERSION = re.compile(r"^fio[- ](\d+)\.(\d+)(?:\.(\d+))?(?:[-\s].*)?$", re.MULTILINE)
OLDEST = (3, 0)  # before 2.99, latencies are microseconds and json+ bins are no durations


@dataclass(frozen=True, order=True)
class FioVersion:
    """A version by number, so that 3.10 follows 3.9; `str` gives `3.33` or `2.1.10`."""

    major: int
    minor: int
    patch: int | None = None

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}" + (f".{self.patch}" if self.patch is not None else "")


def parse_version(text: str) -> FioVersion | None:
    """The version in what `fio --version` printed, None when unknown; suffixes (`-38-g0739`, `-dirty`) are ignored."""
    match = _VERSION.search(text.strip())
    if match is None:
        return None
    return FioVersion(int(match[1]), int(match[2]), int(match[3]) if match[3] is not None else None)


def fio_facts(version_out: str, enghelp_out: str) -> dict[str, Any]:
    """What preflight keeps of `fio --version` and `fio --enghelp`.

    `raw` is the version as printed, `version` its number or None when unknown, `engines` the names, None when fio gave
    no list.
    """
    version = parse_version(version_out)
    lines = enghelp_out.splitlines()
    listed = any(line.strip().lower().startswith("available io engines") for line in lines)
    engines = [line.strip() for line in lines if line[:1].isspace() and line.strip()]
    return {
        "raw": version_out.strip(),
        "version": None if version is None else str(version),
        "engines": engines if listed else None,
    }


def fio_lacks(facts: Mapping[str, Any], engine: str) -> str | None:
    """Why this fio cannot run an engine (`io_uring`, `libaio`): `its fio 3.1 has no io_uring engine`; None when it can.

    `facts` is what `fio_facts` gave. An unknown version with a list of engines that holds the name is taken as able.
    """
    version = parse_version(f"fio-{facts.get('version')}")
    called = f"its fio {facts.get('version') or '(' + (str(facts.get('raw')) or 'no version') + ')'}"
    if version is not None and (version.major, version.minor) < OLDEST:
        return f"{called} is older than 3.0"
    engines = facts.get("engines")
    if engines is None:
        return f"{called} gave no list of engines"
    return None if engine in engines else f"{called} has no {engine} engine"
