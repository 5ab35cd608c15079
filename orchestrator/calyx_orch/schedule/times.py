"""When a schedule is due: cron expressions in a time zone, as seconds since 1970. Pure; cronsim's home.

A job at a fixed time of day is due once on each of its days, also on the two nights on which clocks change: a time that does not
exist is due at the next minute that does, and one that exists twice is due the first time (as Debian's cron has it). An
expression whose minute or hour begins with `*` follows the time that really passes.
"""

from __future__ import annotations

import datetime
import itertools
import os
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cronsim import CronSim, CronSimError

from calyx_orch.errors import UsageError

YEAR_S = 365 * 86400
COUNTED = 10_000
LISTED = 32  # so many of the missed times are recorded, the newest
FIELDS = 5  # cronsim takes six, with seconds in front: a slip of the key would fire all day
LOOK_BACK_S = (
    3600.0,
    86400.0,
    32 * 86400.0,
)  # how far back due times are looked for: as far as needed, a month at most


@dataclass(frozen=True)
class Times:
    """A cron expression in a time zone of the IANA database."""

    cron: str
    timezone: str

    def after(self, after_s: float) -> Iterator[int]:
        """Due times later than `after_s`, in order, without end."""
        zone = zoneinfo.ZoneInfo(self.timezone)
        begin = datetime.datetime.fromtimestamp(after_s, zone).replace(microsecond=0)
        last = after_s
        for found in CronSim(self.cron, begin):
            due_s = int(found.timestamp())
            # cronsim goes by the clock on the wall, which shows an hour twice: the first of two may be over.
            if due_s > last:
                last = due_s
                yield due_s

    def next(self, after_s: float) -> int | None:
        """The first due time later than `after_s`; None: there is none (a 30th of February)."""
        return next(self.after(after_s), None)

    def between(self, after_s: float, until_s: float) -> tuple[int, ...]:
        """Due times in (`after_s`, `until_s`], in order: of many only those of the end, LISTED or more, of a month at most."""
        found: tuple[int, ...] = ()
        for back_s in LOOK_BACK_S:
            begin_s = max(after_s, until_s - back_s)
            found = tuple(itertools.takewhile(lambda due_s: due_s <= until_s, self.after(begin_s)))
            if len(found) >= LISTED or begin_s == after_s:
                break
        return found

    def in_a_year(self, now_s: float) -> int:
        """How often it is due in the year to come; of what is due more than COUNTED times an estimate by the first of them."""
        until_s, last_s = now_s + YEAR_S, now_s
        for count, due_s in enumerate(self.after(now_s)):
            if due_s > until_s:
                return count
            if count == COUNTED:
                return round(COUNTED * YEAR_S / (last_s - now_s))
            last_s = due_s
        return 0

    def local(self, at_s: float) -> str:
        """A time as people of that zone write it, `2026-03-29 03:00 CEST`."""
        return datetime.datetime.fromtimestamp(at_s, zoneinfo.ZoneInfo(self.timezone)).strftime("%Y-%m-%d %H:%M %Z")


def checked(cron: str, timezone: str) -> Times:
    """Read both. Raises UsageError that says what is wrong and how it is written."""
    try:
        zoneinfo.ZoneInfo(timezone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(f"--timezone {timezone}: no such time zone; write one such as Europe/Berlin or UTC") from error
    if len(cron.split()) > FIELDS:
        raise UsageError(
            f"--cron {cron!r} has {len(cron.split())} fields: write five, minute, hour, day, month and weekday, without seconds"
        )
    try:
        CronSim(cron, datetime.datetime(2026, 1, 1))
        found = Times(cron, timezone).next(0)
    except CronSimError as error:
        raise UsageError(
            f"--cron {cron!r}: {error}; write minute, hour, day, month and weekday, such as '30 2 * * *' for each night at half past two"
        ) from error
    if found is None:
        raise UsageError(f"--cron {cron!r} is never due")
    return Times(cron, timezone)


def zone_of_machine() -> str:
    """The time zone of this machine by its name, as its programs see it ($TZ, else /etc/localtime); UTC where it has no name."""
    for name in (os.environ.get("TZ", "").lstrip(":"), _localtime()):
        try:
            if name:
                return str(zoneinfo.ZoneInfo(name))
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return "UTC"


def _localtime() -> str:
    target = str(Path("/etc/localtime").resolve())
    return target.rpartition("/zoneinfo/")[2] if "/zoneinfo/" in target else ""
