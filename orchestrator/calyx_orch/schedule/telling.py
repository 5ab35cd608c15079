"""What is told of a firing, to whom it is told again and when. Pure.

notice   ""  nothing to tell     waiting  to be told, or told again     sent     given up  (after TRIES_MAX)
"""

from __future__ import annotations

from typing import Any

from calyx_orch.schedule.deciding import Firing, Schedule

WAITS_S = (60.0, 300.0, 900.0, 3600.0)  # after the first failure to tell, the second ...; then as the last
TRIES_MAX = 24  # the last after most of a day
FINDINGS_TOLD = 3


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


def message(schedule: Schedule, firing: Firing) -> dict[str, str]:
    """Title and text: how it ended, what is new, the three worst findings with their intervals, and a link."""
    news = [str(line) for line in firing.details.get("news", [])]
    what = (
        news[0] if news else {"finished": "nothing changed", "failed": "the run failed"}.get(firing.state, firing.state)
    )
    lines = [f"due {schedule.settings.times.local(firing.due_s)}: {firing.state}"]
    lines += [f"reason: {firing.reason}"] if firing.reason else []
    lines += [f"tried before: {why}" for why in firing.details.get("tried", [])]
    lines += [firing.verdict] if firing.verdict else []
    lines += news
    findings = [str(line) for line in firing.details.get("findings", [])]
    if findings:
        lines += ["worst:", *(f"  {line}" for line in findings[:FINDINGS_TOLD])]
    lines += [str(line) for line in firing.details.get("notes", [])]
    lines += [link(schedule, firing)] if firing.folder else []
    return {"title": f"calyx-orch {schedule.name}: {what}", "body": "\n".join(lines)}


def link(schedule: Schedule, firing: Firing) -> str:
    """Where the report is: below `link`, else its path."""
    if schedule.settings.link:
        return f"{schedule.settings.link.rstrip('/')}/{firing.folder.rstrip('/').rpartition('/')[2]}/report.html"
    return f"{firing.folder}/report.html"


def wait_s(tries: int) -> float:
    """How long to wait after so many attempts."""
    return WAITS_S[min(tries, len(WAITS_S)) - 1]


def told(tries: int, why: str) -> dict[str, Any]:
    """What an attempt to tell leads to; `why` is empty when it was delivered."""
    if not why:
        return {"notice": "sent", "notice_why": ""}
    return {"notice": "given up" if tries >= TRIES_MAX else "waiting", "notice_why": why}
