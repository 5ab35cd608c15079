"""Histograms and interval series as compressed bytes: a short head and columns of little-endian numbers in one zstd frame.

    histogram   u32 buckets  u32 grid  u64 overflow  i64 min_ns  i64 max_ns (-1: none)  u64 sum_ns  u16 steps of index[]  u8 width  count[]
    series      u32 intervals  u64 interval_ns  column of read_ios, read_bytes, write_ios, write_bytes
    column      a letter, then:   m  i64 k: k times the column before        1 2 4 8  steps of whole numbers, so many bytes each
                                  f  f64 each, where some are not whole

A step is the difference to the number before. All of it is exact. VERSION stands in front of the frame; the first version had none, and
wider columns, and is still read.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import zstandard

from calyx_orch.model import Histogram, Series

VERSION = b"2"  # no frame of zstd begins so
_HISTOGRAM = struct.Struct("<IIQqqQ")
_SERIES = struct.Struct("<IQ")
_FACTOR = struct.Struct("<q")
_LEVEL = 1  # more gains a few per cent of size and costs twice the time
_COLUMNS = ("read_ios", "read_bytes", "write_ios", "write_bytes")
_MULTIPLE, _EXACT = b"m", b"f"
_WHOLE_MAX = float(1 << 53)

Floats = npt.NDArray[np.float64]


def pack_histogram(histogram: Histogram) -> bytes:
    """Pack a histogram; `unpack_histogram` gives an equal one. ValueError: a bucket that none can have."""
    head = _HISTOGRAM.pack(
        len(histogram.buckets),
        histogram.grid,
        histogram.overflow,
        -1 if histogram.min_ns is None else histogram.min_ns,
        -1 if histogram.max_ns is None else histogram.max_ns,
        min(histogram.sum_ns, (1 << 64) - 1),
    )
    indices = np.array([index for index, _ in histogram.buckets], dtype=np.int64)
    counts = np.array([count for _, count in histogram.buckets], dtype=np.uint64)
    if len(indices) and not 0 <= indices.min() <= indices.max() < 1 << 16:
        raise ValueError(f"a histogram has no buckets {int(indices.min())} to {int(indices.max())}")
    steps = np.diff(indices, prepend=0).astype("<u2")  # modulo 2^16, as is the sum when they are read
    width = next(width for width in (1, 2, 4, 8) if int(counts.max(initial=0)) < 1 << (8 * width))
    whole = head + steps.tobytes() + bytes([width]) + counts.astype(f"<u{width}").tobytes()
    return VERSION + zstandard.compress(whole, _LEVEL)


def unpack_histogram(packed: bytes) -> Histogram:
    """Give back what `pack_histogram` packed, in this version or the one before."""
    raw = _raw(packed)
    length, grid, overflow, low, high, total = _HISTOGRAM.unpack_from(raw)
    at = _HISTOGRAM.size
    if packed.startswith(VERSION):
        indices = np.cumsum(np.frombuffer(raw, "<u2", length, at), dtype=np.uint16)
        counts = np.frombuffer(raw, f"<u{raw[at + 2 * length]}", length, at + 2 * length + 1)
    else:
        indices = np.frombuffer(raw, "<u4", length, at)
        counts = np.frombuffer(raw, "<u8", length, at + 4 * length)
    return Histogram(
        buckets=tuple(zip(indices.tolist(), counts.tolist(), strict=True)),
        min_ns=None if low < 0 else low,
        max_ns=None if high < 0 else high,
        sum_ns=total,
        overflow=overflow,
        grid=grid,
    )


def pack_series(series: Series) -> bytes:
    """Pack an interval series; `unpack_series` gives an equal one."""
    parts = [_SERIES.pack(len(series.read_ios), series.interval_ns)]
    before = np.zeros(len(series.read_ios))
    for name in _COLUMNS:
        column = np.asarray(getattr(series, name), dtype=np.float64)
        parts += _packed(column, before)
        before = column
    return VERSION + zstandard.compress(b"".join(parts), _LEVEL)


def unpack_series(packed: bytes) -> Series:
    """Give back what `pack_series` packed, in this version or the one before."""
    raw = _raw(packed)
    length, interval_ns = _SERIES.unpack_from(raw)
    at = _SERIES.size
    read = _unpacked if packed.startswith(VERSION) else _unpacked_first
    columns = [np.zeros(length)]
    for _ in _COLUMNS:
        column, at = read(raw, at, columns[-1])
        columns.append(column)
    return Series(interval_ns, *(tuple(column.tolist()) for column in columns[1:]))


def _raw(packed: bytes) -> bytes:
    return zstandard.decompress(packed.removeprefix(VERSION))


def _packed(column: Floats, before: Floats) -> list[bytes]:
    """A column by the one before it, which is in most a multiple: bytes of one block size, and zeros where nothing is done that way."""
    factor = _factor(column, before)
    if factor is not None:
        return [_MULTIPLE, _FACTOR.pack(factor)]
    if not (np.array_equal(np.rint(column), column) and np.abs(column).max() < _WHOLE_MAX):
        return [_EXACT, column.astype("<f8").tobytes()]
    steps = np.diff(column.astype(np.int64), prepend=0)
    least, most = int(steps.min()), int(steps.max())
    width = next(width for width in (1, 2, 4, 8) if -(1 << (8 * width - 1)) <= least and most < 1 << (8 * width - 1))
    return [b"%d" % width, steps.astype(f"<i{width}").tobytes()]


def _factor(column: Floats, before: Floats) -> int | None:
    """Which whole multiple of `before` a column is, exactly; None: it is none."""
    if not column.any():
        return 0
    if not before.any() or not (np.isfinite(column).all() and np.isfinite(before).all()):
        return None
    at = int(np.argmax(before != 0))
    factor = float(column[at]) / float(before[at])
    whole = factor.is_integer() and abs(factor) < _WHOLE_MAX
    return int(factor) if whole and np.array_equal(before * factor, column) else None


def _unpacked(raw: bytes, at: int, before: Floats) -> tuple[Floats, int]:
    """A column at `at` and where the next one begins."""
    kind, at, length = raw[at : at + 1], at + 1, len(before)
    if kind == _MULTIPLE:
        (factor,) = _FACTOR.unpack_from(raw, at)
        return before * float(factor), at + _FACTOR.size
    if kind == _EXACT:
        return np.frombuffer(raw, "<f8", length, at).astype(np.float64), at + 8 * length
    width = int(kind)
    steps = np.frombuffer(raw, f"<i{width}", length, at)
    return np.cumsum(steps, dtype=np.int64).astype(np.float64), at + width * length


def _unpacked_first(raw: bytes, at: int, before: Floats) -> tuple[Floats, int]:
    """The same of the first version: `w` and steps of eight bytes, or `f` and exact ones."""
    kind, at, length = raw[at : at + 1], at + 1, len(before)
    if kind == _EXACT:
        return np.frombuffer(raw, "<f8", length, at).astype(np.float64), at + 8 * length
    return np.cumsum(np.frombuffer(raw, "<i8", length, at)).astype(np.float64), at + 8 * length
