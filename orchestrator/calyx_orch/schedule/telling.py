"""What is told of a firing, to whom it is told again and when. Pure.

notice   ""  nothing to tell     waiting  to be told, or told again     sent     given up  (after TRIES_MAX)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from calyx_orch.report.wording import printable
from calyx_orch.schedule.deciding import Firing, Schedule

WAITS_S = (60.0, 300.0, 900.0, 3600.0)  # after the first failure to tell, the second ...; then as the last
TRIES_MAX = 24  # the last after most of a day
FINDINGS_TOLD = 3
LINES_TOLD = 12  # of what is new, and of what was noted: a message is read on a telephone, and services cut long ones


def notice(schedule: Schedule, firing: Firing, now_s: float) -> dict[str, Any]:
    """The columns of a firing that is over: its message, and whether somebody is to hear it."""
    settings = schedule.settings
    told = message(schedule, firing)
    is_ping = bool(settings.ping) and firing.state == "finished"
    is_quiet = settings.quiet and firing.state == "finished" and not firing.details.get("news")
    is_told = bool(settings.notify) and not is_quiet
    return {
        "message": {**told, "notify": is_told, "ping": is_ping},
        "notice": "waiting" if is_told or is_ping else "",
        "notice_tries": 0,
        "notice_next_s": now_s,
        "notice_why": "",
    }


def missed(schedule: Schedule, due_s: Sequence[int]) -> dict[str, Any]:
    """The columns of the last of several times that were missed in a row, of which one message tells."""
    if len(due_s) < 2:
        return {}
    first = schedule.settings.times.local(due_s[0])
    return {"details": {"news": [f"{len(due_s)} due times in a row were missed, the first {first}"]}}


def message(schedule: Schedule, firing: Firing) -> dict[str, str]:
    """Title and text: how it ended, what is new, the three worst findings with their intervals, and a link.

    Half of it may be what guests and services said: no line of it holds a control character.
    """
    news = _lines(firing, "news")
    what = (
        news[0] if news else {"finished": "nothing changed", "failed": "the run failed"}.get(firing.state, firing.state)
    )
    lines = [f"due {schedule.settings.times.local(firing.due_s)}: {firing.state}"]
    lines += f"reason: {firing.reason}".splitlines() if firing.reason else []
    lines += [line for why in firing.details.get("tried", []) for line in f"tried before: {why}".splitlines()]
    lines += [firing.verdict] if firing.verdict else []
    lines += _first(news)
    if findings := _lines(firing, "findings"):
        lines += ["worst:", *(f"  {line}" for line in findings[:FINDINGS_TOLD])]
    lines += _first(_lines(firing, "notes"))
    lines += [link(schedule, firing)] if firing.folder else []
    body = "\n".join(map(printable, lines))
    return {"title": printable(f"calyx-orch {schedule.name}: {what}"), "body": body}


def _lines(firing: Firing, key: str) -> list[str]:
    return [str(line) for line in firing.details.get(key, [])]


def _first(lines: list[str]) -> list[str]:
    """The first lines, and how many there are more."""
    more = len(lines) - LINES_TOLD
    return lines if more <= 0 else [*lines[:LINES_TOLD], f"and {more} more"]


def link(schedule: Schedule, firing: Firing) -> str:
    """Where the report is: below `link`, else its path."""
    if schedule.settings.link:
        name = quote(firing.folder.rstrip("/").rpartition("/")[2])
        return f"{schedule.settings.link.rstrip('/')}/{name}/report.html"
    return f"{firing.folder}/report.html"


def wait_s(tries: int) -> float:
    """How long to wait after so many attempts."""
    return WAITS_S[min(tries, len(WAITS_S)) - 1]


def told(tries: int, why: str) -> dict[str, Any]:
    """What an attempt to tell leads to; `why` is empty when it was delivered."""
    if not why:
        return {"notice": "sent", "notice_why": ""}
    return {"notice": "given up" if tries >= TRIES_MAX else "waiting", "notice_why": why}
