"""Numbers and untrusted text as reports show them: units come from `units`, NaN and None read `n/a`, nothing is cut.

Rates keep one unit (MB/s, 10^6), so that the rows of a table can be compared at a glance.
"""

from __future__ import annotations

import math
import unicodedata

from calyx_orch import units

NOT_AVAILABLE = "n/a"


def printable(text: str) -> str:
    r"""Put `text` on one line; control, format, lone surrogate and no characters are shown as `\x1b` or `\u202e`."""
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    code = ord(character)
    is_none = code & 0xFFFE == 0xFFFE  # U+FFFE and its like are no characters, and no XML
    if character == " " or (not is_none and unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")):
        return character
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def significant(value: float | None, digits: int = 3) -> str:
    """Write `value` with at least `digits` significant digits, thousands apart by commas, never an exponent."""
    if value is None or not math.isfinite(value):
        return NOT_AVAILABLE
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 9)}f}"


def latency(nanoseconds: float | None) -> str:
    """Write a latency or skew with its unit."""
    if nanoseconds is None or not math.isfinite(nanoseconds):
        return NOT_AVAILABLE
    return f"-{units.format_latency(-nanoseconds)}" if nanoseconds < 0 else units.format_latency(nanoseconds)


def megabytes(bytes_per_s: float | None) -> str:
    """Write a throughput in MB/s (10^6), the unit left to the column."""
    return NOT_AVAILABLE if bytes_per_s is None else significant(bytes_per_s / 1e6)


def rate(bytes_per_s: float | None) -> str:
    """Write a throughput in MB/s (10^6) with its unit."""
    written = megabytes(bytes_per_s)
    return written if written == NOT_AVAILABLE else f"{written} MB/s"


def percent(value: float | None) -> str:
    """Write a value that is in percent already."""
    return NOT_AVAILABLE if value is None or not math.isfinite(value) else f"{significant(value)} %"


def cv(fraction: float | None) -> str:
    """Write a coefficient of variation (a fraction) in percent."""
    return percent(None if fraction is None else 100.0 * fraction)


def ratio(value: float | None) -> str:
    """Write a ratio with two to three decimals."""
    if value is None or not math.isfinite(value):
        return NOT_AVAILABLE
    return f"{value:.3f}" if value < 10 else f"{value:.2f}"


def size(count: float | None) -> str:
    """Write a size in KiB, MiB, GiB or TiB (2^10 steps)."""
    return NOT_AVAILABLE if count is None or not math.isfinite(count) else units.format_bytes(int(count))


def duration(seconds: float | None) -> str:
    """Write `42 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds is None or not math.isfinite(seconds):
        return NOT_AVAILABLE
    return units.format_duration(max(0.0, seconds) if 0 < seconds < 1 else max(0, round(seconds)))


def count_of(number: int, noun: str) -> str:
    """Write `1 guest`, `3 guests`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
