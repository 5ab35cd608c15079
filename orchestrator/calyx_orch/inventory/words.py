"""fio's words whose value has a syntax of its own: bssplit, random_distribution, cpus_allowed, thinktime; and our `find`.

Every parser takes the text as written and raises ValueError with a sentence that can be shown as it is.
"""

from __future__ import annotations

import re
from fractions import Fraction

from calyx_orch import units

READWRITE = "readwrite"
CPUS_MAX = 4096
BSSPLIT_ENTRIES_MAX = 64
ZONES_MAX = 64
BLOCK_BYTES_MAX = 64 * units.MIB
DISTRIBUTION_PATTERN = r"^(random|uniform|zipf(:[0-9.]+)?|pareto(:[0-9.]+)?|normal(:[0-9.]+)?|zoned(:[0-9]+/[0-9]*)+)$"
CPUS_PATTERN = r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"
FIND_PATTERN = r"^(iops|guests)_at\s+['\"]?(p[0-9]+(\.[0-9]+)?|mean)\s*<\s*[0-9.]+\s*(us|ms|s)['\"]?$"

DENSITY_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 99999}, {"const": "all"}]}

Split = tuple[tuple[int, int], ...]
_PERCENT = re.compile(r"^[0-9]{1,3}$", re.ASCII)
_NUMBER = re.compile(r"^[0-9]+(\.[0-9]+)?$", re.ASCII)
_THINKTIMES_US = {"": 1, "us": 1, "usec": 1, "ms": 1000, "msec": 1000, "s": 1_000_000}
_BUDGET = re.compile(
    r"^(?:iops|guests)_at\s+(p[0-9]{1,2}(?:\.[0-9]{1,3})?|mean)\s*<\s*([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s)$", re.ASCII
)
# What fio takes when the shape is not said.
_SHAPES = {"zipf": "1.1", "pareto": "0.2", "normal": "0"}


def block_size(written: str) -> int:
    """Bytes of one block. ValueError unless a multiple of 512 up to 64m."""
    size = units.parse_size(written)
    if size % 512 or not 512 <= size <= BLOCK_BYTES_MAX:
        raise ValueError(f"{written!r} is no multiple of 512 bytes from 512 to 64m")
    return size


def pattern(written: object) -> object:
    """The other word of fio for `rw` as that one; anything else as it is."""
    return "rw" if written == READWRITE else written


def bssplit(written: str) -> tuple[Split, Split]:
    """(reads, writes) of `4k/50:64k/50` or `4k/50:64k/50,8k/100`: (bytes, percent) pairs; no writes of their own: ()."""
    sides = written.split(",")
    if len(sides) > 2:
        raise ValueError(f"{written!r} has more than two parts: write one split, or one for reads and one for writes")
    parsed = [_split(side.strip()) for side in sides]
    return parsed[0], parsed[1] if len(parsed) == 2 else ()


def _split(written: str) -> Split:
    entries: list[tuple[int, int | None]] = []
    for part in written.split(":"):
        size, slash, percent = part.partition("/")
        if slash and percent and not _PERCENT.match(percent):
            raise ValueError(f"{part!r} has no whole percentage behind the /: write it as 4k/50:64k/50")
        entries.append((block_size(size), int(percent) if percent else None))
    if len(entries) > BSSPLIT_ENTRIES_MAX:
        raise ValueError(f"has {len(entries)} sizes: at most {BSSPLIT_ENTRIES_MAX}")
    if len({size for size, _ in entries}) < len(entries):
        raise ValueError(f"{written!r} names a size twice")
    return _shared_out(written, entries)


def _shared_out(written: str, entries: list[tuple[int, int | None]]) -> Split:
    """As fio: sizes without a percentage share what the others leave."""
    said = sum(percent for _, percent in entries if percent is not None)
    open_ = [size for size, percent in entries if percent is None]
    left = 100 - said
    if left < 0 or (left > 0 and not open_):
        raise ValueError(f"the percentages of {written!r} sum to {said}, not to 100")
    if open_ and left < len(open_):
        raise ValueError(f"the percentages of {written!r} leave nothing for the sizes without one")
    each, rest = divmod(left, len(open_)) if open_ else (0, 0)
    shares = {size: each + (number < rest) for number, size in enumerate(open_)}
    return tuple((size, shares[size] if percent is None else percent) for size, percent in entries if percent != 0)


def random_distribution(written: str) -> str:
    """`random`, `zipf:1.2`, `pareto:0.3`, `normal:10` or `zoned:60/10:40/90`, as the engine and fio take it."""
    name, _, shape = written.strip().partition(":")
    if name in ("random", "uniform") and not shape:
        return "random"
    if name == "zoned":
        return _zoned(written, shape)
    if name not in _SHAPES:
        raise ValueError(
            f"{written!r} is no distribution: random, zipf:1.2, pareto:0.3, normal:10 or zoned:60/10:40/90"
        )
    shape = shape or _SHAPES[name]
    if not _NUMBER.match(shape):
        raise ValueError(
            f"{written!r}: {shape!r} is no number" + (" (a centre of its own is not known)" if ":" in shape else "")
        )
    value = Fraction(shape)
    if name == "zipf" and (value <= 0 or value == 1 or value > 100):
        raise ValueError(f"{written!r}: theta of zipf is more than 0, and not 1")
    if name == "pareto" and not 0 < value < 1:
        raise ValueError(f"{written!r}: the power of pareto lies between 0 and 1")
    if name == "normal" and not 0 < value <= 100:
        raise ValueError(f"{written!r}: write the deviation in percent of the size, as in normal:10")
    return f"{name}:{shape}"


def _zoned(written: str, zones: str) -> str:
    pairs = []
    for zone in zones.split(":"):
        access, slash, size = zone.partition("/")
        if not (slash and _PERCENT.match(access) and _PERCENT.match(size)):
            raise ValueError(f"{written!r}: a zone is ACCESS/SIZE in whole percents, as in zoned:60/10:40/90")
        pairs.append((int(access), int(size)))
    if len(pairs) > ZONES_MAX:
        raise ValueError(f"has {len(pairs)} zones: at most {ZONES_MAX}")
    accesses, sizes = sum(access for access, _ in pairs), sum(size for _, size in pairs)
    if (accesses, sizes) != (100, 100):
        raise ValueError(f"{written!r}: accesses sum to {accesses} and sizes to {sizes}; both must be 100")
    if any(size == 0 for _, size in pairs):
        raise ValueError(f"{written!r}: a zone of no size cannot be accessed")
    return "zoned:" + ":".join(f"{access}/{size}" for access, size in pairs)


def cpus_allowed(written: str) -> str:
    """A list of CPUs such as `0,2-3`: each job is pinned to the next of them in turn."""
    text = written.replace(" ", "")
    if not re.match(CPUS_PATTERN, text, re.ASCII):
        raise ValueError(f"{written!r} is no list of CPUs: write 0,2-3")
    cpus: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high < low or high >= CPUS_MAX:
            raise ValueError(f"{part!r} is no range of CPUs below {CPUS_MAX}")
        cpus += range(low, high + 1)
    if len(set(cpus)) < len(cpus):
        raise ValueError(f"{written!r} names a CPU twice")
    return text


def thinktime_us(written: str) -> int:
    """Microseconds of `500`, `500us`, `2ms` or `1s`; as in fio a bare number is microseconds."""
    match = re.match(r"^([0-9]+)\s*([a-z]*)$", written.strip(), re.ASCII)
    if match is None or match[2] not in _THINKTIMES_US:
        raise ValueError(
            f"{written!r} is no thinktime: write 500us, 2ms or 1s (a bare number is microseconds, as in fio)"
        )
    value = int(match[1]) * _THINKTIMES_US[match[2]]
    if value > 3_600_000_000:
        raise ValueError(f"{written!r} is longer than an hour")
    return value


def find(written: str) -> str:
    """`iops_at p99<2ms` in one spelling; the quotes around the budget may be left out."""
    text = re.sub(r"\s+", " ", written.replace("'", "").replace('"', "")).strip()
    match = _BUDGET.match(text)
    if match is None:
        raise ValueError(f"{written!r} is nothing to find: write iops_at 'p99<2ms' (p50 p95 p99.9 ..; us, ms or s)")
    if Fraction(match[2]) == 0 or (match[1].startswith("p") and float(match[1][1:]) <= 0):
        raise ValueError(f"{written!r}: nothing is below 0")
    return f"{text.split()[0]} {match[1]}<{match[2]}{match[3]}"


def rate(written: str) -> int | float:
    """Bytes per second of `20MB/s`, or the share of a capacity, 0.25 for `25%`."""
    return units.parse_percent(written, example="25%") if "%" in written else units.parse_rate(written)


def density(written: str) -> int:
    """A number of guests of a vm_host; 0 for `all`."""
    if written.strip() == "all":
        return 0
    if not re.match(r"^[1-9][0-9]{0,4}$", written.strip(), re.ASCII):
        raise ValueError(f"{written[:40]!r} is no number of guests: write 1, 2, 4 or all")
    return int(written)


def budget(found: str) -> tuple[float | None, int]:
    """(percentile, nanoseconds) of what `find` gave; percentile None: the mean."""
    match = _BUDGET.match(found)
    if match is None:
        raise ValueError(f"{found!r} is nothing to find")
    scale = {"us": 10**3, "ms": 10**6, "s": 10**9}[match[3]]
    return (None if match[1] == "mean" else float(match[1][1:])), int(Fraction(match[2]) * scale)
