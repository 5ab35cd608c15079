"""Numbers and untrusted text as a person reads them: the one place where units are chosen and terminals are protected.

Every function takes None or NaN and answers `n/a`; nothing is ever cut.
"""

from __future__ import annotations

import math
import unicodedata

NOT_AVAILABLE = "n/a"


def printable(text: str) -> str:
    r"""Put `text` on one line; control, format and lone surrogate characters are shown as `\x1b` or `\u202e`."""
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character == " " or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def is_number(value: float | None) -> bool:
    """Whether there is a finite number to show."""
    return value is not None and math.isfinite(value)


def significant(value: float | None, digits: int = 3) -> str:
    """Write `value` with at least `digits` significant digits, thousands apart by commas, never an exponent."""
    if value is None or not math.isfinite(value):
        return NOT_AVAILABLE
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 9)}f}"


def latency(nanoseconds: float | None) -> str:
    """Write a latency with its unit: ns, us, ms or s."""
    if nanoseconds is None or not math.isfinite(nanoseconds):
        return NOT_AVAILABLE
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(nanoseconds) >= size:
            return f"{significant(nanoseconds / size)} {unit}"
    return f"{nanoseconds:.0f} ns"


def rate(bytes_per_s: float | None) -> str:
    """Write a throughput in MB/s (10^6)."""
    return NOT_AVAILABLE if not is_number(bytes_per_s) else f"{significant((bytes_per_s or 0.0) / 1e6)} MB/s"


def iops(per_second: float | None) -> str:
    """Write I/Os per second, the unit left to the column."""
    return significant(per_second)


def percent(value: float | None, digits: int = 3) -> str:
    """Write a value that is in percent already."""
    return NOT_AVAILABLE if not is_number(value) else f"{significant(value, digits)} %"


def ratio(value: float | None) -> str:
    """Write a ratio with two to three decimals."""
    if value is None or not math.isfinite(value):
        return NOT_AVAILABLE
    return f"{value:.3f}" if value < 10 else f"{value:.2f}"


def size(count: float | None) -> str:
    """Write a size in KiB, MiB, GiB or TiB (2^10 steps)."""
    if count is None or not math.isfinite(count):
        return NOT_AVAILABLE
    for unit, step in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(count) >= step:
            return f"{significant(count / step)} {unit}"
    return f"{count:.0f} B"


def duration(seconds: float | None) -> str:
    """Write `42 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds is None or not math.isfinite(seconds):
        return NOT_AVAILABLE
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def count_of(number: int, noun: str) -> str:
    """Write `1 guest`, `3 guests`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
