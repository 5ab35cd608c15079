"""What becomes of values that strict JSON (RFC 8259) has no words for. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """The same as strict JSON has it: null for NaN and infinity, texts for keys, lists for tuples."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    return value
