"""Sizes, durations, rates and percentages: how the inventory writes them and how tables show them.

A size is 4096, 4k, 1m, 2g, 1t (fio's letters: binary, 4k = 4096), or has KiB MiB GiB TiB (binary) or kB MB GB TB (decimal).
A duration is 10, 10s, 500ms, 2m, 2min or 1h. A rate is a size, with or without /s: 200MB/s. A percentage is 80%.

Parsers raise ValueError with a sentence that can be shown as it is. Formatters take None for what is unknown.
"""

from __future__ import annotations

import re
from fractions import Fraction

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
UNKNOWN = "–"

SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)?\s*([kKmMgGtT]|[KMGT]iB|[kKMGT]B|B)?$"
DURATION_PATTERN = r"^[0-9]+(\.[0-9]+)?\s*(ms|s|m|min|h)?$"
RATE_PATTERN = SIZE_PATTERN[:-1] + r"(/s)?$"
PERCENT_PATTERN = r"^[0-9]+(\.[0-9]+)?\s*%$"
FRACTION_PATTERN = r"^(0(\.[0-9]+)?|1(\.0+)?)$"

_SIZES = {
    "": 1, "B": 1, "k": KIB, "K": KIB, "m": MIB, "M": MIB, "g": GIB, "G": GIB, "t": TIB, "T": TIB,
    "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB,
    "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}  # fmt: skip
_DURATIONS_S = {
    "": Fraction(1),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "min": Fraction(60),
    "h": Fraction(3600),
}
_LATENCIES_NS = {"ns": 1, "us": 1000, "µs": 1000, "ms": 10**6, "s": 10**9}
_NUMBER = re.compile(r"^([0-9]+(?:\.[0-9]+)?)\s*(.*)$", re.ASCII)
_SIZE_MAX = 1 << 60


def parse_size(text: str) -> int:
    """Bytes of a size such as `4k`, `1.5GiB` or `200MB`. ValueError: not that syntax, or not whole bytes."""
    number, unit = _split(text, "size", "4k, 64MiB or 10GB")
    if unit not in _SIZES:
        raise ValueError(f"{_shown(text)} is no size: write k m g t or KiB MiB GiB TiB (binary), kB MB GB TB (decimal)")
    value = number * _SIZES[unit]
    if value.denominator != 1:
        raise ValueError(f"{_shown(text)} is not a whole number of bytes")
    if value > _SIZE_MAX:
        raise ValueError(f"{_shown(text)} is beyond 1 EiB")
    return int(value)


def parse_duration(text: str) -> float:
    """Seconds of a duration such as `10`, `10s`, `2m` or `500ms`. ValueError: not that syntax."""
    number, unit = _split(text, "duration", "10s, 2m or 500ms")
    if unit not in _DURATIONS_S:
        raise ValueError(f"{_shown(text)} is no duration: write ms, s, m (or min) or h, such as 90s")
    return float(number * _DURATIONS_S[unit])


def parse_latency(text: str) -> float:
    """Nanoseconds of a latency such as `200us` or `2ms`; the unit has to be there. ValueError: not that syntax."""
    number, unit = _split(text, "latency", "200us or 2ms")
    if unit not in _LATENCIES_NS:
        raise ValueError(f"{_shown(text)} is no latency: write ns, us, ms or s, such as 200us")
    return float(number * _LATENCIES_NS[unit])


def parse_rate(text: str) -> int:
    """Bytes per second of a rate such as `200MB/s` or `1GiB`. ValueError: not that syntax."""
    stripped = text.strip().removesuffix("/s")
    try:
        return parse_size(stripped)
    except ValueError:
        raise ValueError(f"{_shown(text)} is no rate: write it as 200MB/s or 1GiB/s") from None


def parse_percent(text: str, *, example: str = "80%", most: float | None = 1.0) -> float:
    """The fraction of a percentage such as `80%`, at most `most` (None: of any size). ValueError: not that syntax, or above."""
    number, unit = _split(text, "percentage", example)
    if unit != "%":
        raise ValueError(f"{_shown(text)} is no percentage: write it as {example}")
    if most is not None and number > 100 * most:
        raise ValueError(f"{_shown(text)} is above {100 * most:g}%")
    return float(number / 100)


def parse_share(text: str) -> float:
    """The fraction (0..1) of `2%` or `0.02`. ValueError: neither, or above 1."""
    if "%" in text:
        return parse_percent(text, example="2%")
    if not re.match(FRACTION_PATTERN, text.strip(), re.ASCII):
        raise ValueError(f"{_shown(text)} is no share: write it as 0.02 or 2%")
    return float(text)


def format_bytes(size_bytes: int | None) -> str:
    """Binary units, as sizes are given: `512 B`, `64 GiB`, `1.5 MiB`."""
    if size_bytes is None:
        return UNKNOWN
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit:
            return f"{_three_digits(size_bytes / unit)} {name}"
    return f"{size_bytes} B"


def format_size_short(size_bytes: int) -> str:
    """As fio spells it, for names, exact: `4k`, `1m`, `1536`."""
    for unit, letter in ((TIB, "t"), (GIB, "g"), (MIB, "m"), (KIB, "k")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit}{letter}"
    return str(size_bytes)


def _in_units(value: float, units: tuple[tuple[int, str], ...]) -> str:
    """Three digits of a value in the first unit that it holds, else in the last."""
    unit, name = next((one for one in units if abs(value) >= one[0]), units[-1])
    return f"{_three_digits(value / unit)} {name}"


def format_rate(bytes_per_s: float | None) -> str:
    """Decimal units, as drives are sold: `512 MB/s`, `1.21 GB/s`."""
    if bytes_per_s is None:
        return UNKNOWN
    return _in_units(bytes_per_s, ((10**12, "TB/s"), (10**9, "GB/s"), (10**6, "MB/s"), (10**3, "kB/s"), (1, "B/s")))


def format_count(count: float | None) -> str:
    """I/Os per second and the like: `950`, `12.3 k`, `1.21 M`."""
    if count is None:
        return UNKNOWN
    for unit, name in ((10**9, " G"), (10**6, " M"), (10**4, " k")):
        if count >= unit:
            return f"{_three_digits(count / (unit if unit > 10**4 else 10**3))}{name}"
    return f"{count:.0f}"


def format_latency(nanoseconds: float | None) -> str:
    """`850 ns`, `85.3 µs`, `1.20 ms`, `3.40 s`."""
    if nanoseconds is None:
        return UNKNOWN
    return _in_units(nanoseconds, ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns")))


def format_duration(seconds: float | None) -> str:
    """`0.5 s`, `42 s`, `1 min 10 s`, `1 h 05 min`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s" if whole % 60 else f"{whole // 60} min"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_percent(percent: float | None, *, digits: int = 1) -> str:
    """A value in percent (not a fraction): `12.3 %`."""
    return UNKNOWN if percent is None else f"{percent:.{digits}f} %"


def _split(text: str, what: str, example: str) -> tuple[Fraction, str]:
    match = _NUMBER.match(text.strip())
    if match is None or len(text) > 40:
        raise ValueError(f"{_shown(text)} is no {what}: write it as {example}")
    if match[1].startswith("0") and match[1] != "0" and not match[1].startswith("0."):
        raise ValueError(f"{_shown(text)} has a leading zero, which readers disagree about: write it without")
    return Fraction(match[1]), match[2].strip()


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _three_digits(value: float) -> str:
    if value >= 99.95 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
