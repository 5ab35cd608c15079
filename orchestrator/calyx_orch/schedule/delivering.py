"""Delivers what is told of a firing: the message to people, and the sign of life; neither waits for the other."""

from __future__ import annotations

from typing import Any

from calyx_orch import notify
from calyx_orch.schedule.deciding import Firing, Settings


def deliver(settings: Settings, firing: Firing) -> tuple[str, dict[str, Any]]:
    """Deliver what is still to be told of a firing. Returns why something was not, or "", and the message with what is left. Blocks."""
    left = dict(firing.message)
    whys = []
    if left.get("notify"):
        whys.append(notify.send(settings.notify, left["title"], left["body"]))
        left["notify"] = bool(whys[-1])
    if left.get("ping"):
        whys.append(notify.ping(settings.ping))
        left["ping"] = bool(whys[-1])
    return "; ".join(filter(None, whys)), left
