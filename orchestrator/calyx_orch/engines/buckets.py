"""The latency grid of native/include/calyx/histogram.h in Python, and fio's grid of 64 per power of two within it.

    values             width here   width in fio's grid
    0 .. 127           1            1
    128 .. 255         1            2
    2^m .. 2^(m+1)-1   2^(m-7)      2^(m-6)

An index of fio's grid is held as the index of the lower of the two buckets here that it covers.
"""

from __future__ import annotations

BUCKETS = 4480
MAX_MSB = 40
FIO_EXACT = 128  # below this fio's buckets hold one value each


def index_of(value_ns: int) -> int:
    """The bucket of a latency; larger ones than the grid holds are in the last."""
    if value_ns < 256:
        return value_ns
    msb = value_ns.bit_length() - 1
    return BUCKETS - 1 if msb > MAX_MSB else (msb - 6) * 128 + ((value_ns >> (msb - 7)) & 127)


def lower_ns(index: int) -> int:
    """The lowest latency that falls into a bucket."""
    if index < 256:
        return index
    octave, step = divmod(index, 128)
    return (128 + step) << (octave - 1)


def upper_ns(index: int) -> int:
    """The lowest latency above a bucket."""
    return lower_ns(index + 1)


def to_fio_grid(index: int) -> int:
    """The index at which the grid of 64 holds what is in this bucket."""
    return index if index < FIO_EXACT else index & ~1


def fio_value_ns(index: int) -> int:
    """The value by which fio stands for the bucket of its grid at `index`: its middle (fio's `plat_idx_to_val`)."""
    index = to_fio_grid(index)
    return index if index < FIO_EXACT else (lower_ns(index) + lower_ns(index + 2)) // 2


def of_fio_value(value_ns: int) -> int:
    """The index at which the grid of 64 holds fio's bin `value_ns` (a key of `bins`: the middle of its bucket)."""
    return to_fio_grid(index_of(value_ns))


def of_fio_index(index: int) -> int:
    """The value in fio's own table at `index`, as old json+ documents name their bins."""
    if index < FIO_EXACT:
        return index
    error_bits = (index >> 6) - 1
    return (1 << (error_bits + 6)) + (index % 64) * (1 << error_bits) + (1 << error_bits) // 2
