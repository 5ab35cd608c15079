"""JSON that a person can read line by line and that is written quickly. Pure.

`json.dumps(indent=1)` is written by Python and not by C: a plan and the facts of a large fleet then cost more CPU than all
guests' commands. So only the outer levels get lines of their own, and what lies deeper stays on its line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any


def spread(
    value: Any, levels: int, *, default: Callable[[Any], Any] | None = None, ascii_only: bool = True, nan: bool = True
) -> str:
    """JSON text with a line for each entry of the outer `levels` of objects and lists; the rest as `json.dumps` does.

    `default` is that of json.dumps; `nan` whether NaN and infinities may be in it (else ValueError). Raises TypeError for
    what is no JSON.
    """
    encoder = json.JSONEncoder(default=default, ensure_ascii=ascii_only, allow_nan=nan)

    def written(one: Any, left: int, margin: str) -> str:
        if not left or not isinstance(one, Mapping | list | tuple) or not one:
            return encoder.encode(one)
        inner = margin + " "
        if isinstance(one, Mapping):
            rows = [f"{encoder.encode(str(key))}: {written(each, left - 1, inner)}" for key, each in one.items()]
        else:
            rows = [written(each, left - 1, inner) for each in one]
        opens, closes = ("{", "}") if isinstance(one, Mapping) else ("[", "]")
        return f"{opens}\n{inner}" + f",\n{inner}".join(rows) + f"\n{margin}{closes}"

    return written(value, levels, "")
