"""Sizes, durations, rates and percentages are read by one documented syntax and shown shortly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calyx_orch import units


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("4096", 4096), ("4k", 4096), ("4K", 4096), ("1m", 1 << 20), ("2g", 2 << 30), ("1t", 1 << 40), ("64 KiB", 65536),
        ("1.5GiB", 3 << 29), ("4kB", 4000), ("200MB", 200_000_000), ("0", 0), ("512B", 512),
    ],
)  # fmt: skip
def test_sizes_have_one_syntax(text: str, size_bytes: int) -> None:
    """Letters as fio has them are binary, as is KiB; kB is decimal."""
    assert units.parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "k", "1_000", "-4k", "4kb", "1e3", "0x10", "010", "1.5", "4k4k", "2EiB", "22:22", "٤k", "9" * 50]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    """Underscores, exponents, octal and base-60 are refused in words."""
    with pytest.raises(ValueError, match=r"size|zero|whole|beyond"):
        units.parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10", 10), ("10s", 10), ("500ms", 0.5), ("2m", 120), ("2min", 120), ("1h", 3600), ("1.5 s", 1.5)],
)
def test_durations_have_one_syntax(text: str, seconds: float) -> None:
    """Plain numbers are seconds."""
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["12:30", "1d", "ten", "1m30s", "-1s", "08s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """A base-60 number is no duration."""
    with pytest.raises(ValueError, match=r"duration|zero"):
        units.parse_duration(text)


def test_rates_and_percentages() -> None:
    """A rate is a size per second; a percentage carries its sign."""
    assert units.parse_rate("200MB/s") == 200_000_000
    assert units.parse_rate("1GiB") == 1 << 30
    assert units.parse_percent("80%") == 0.8
    with pytest.raises(ValueError, match="80%"):
        units.parse_percent("0.8")
    with pytest.raises(ValueError, match="above"):
        units.parse_percent("101%")
    with pytest.raises(ValueError, match="200MB/s"):
        units.parse_rate("fast")


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (units.format_bytes(64 << 30), "64 GiB"), (units.format_bytes(1536), "1.50 KiB"), (units.format_bytes(512), "512 B"),
        (units.format_rate(512e6), "512 MB/s"), (units.format_rate(1.21e9), "1.21 GB/s"), (units.format_rate(0), "0 B/s"),
        (units.format_latency(850), "850 ns"), (units.format_latency(85_300), "85.3 µs"), (units.format_latency(1.2e6), "1.20 ms"),
        (units.format_latency(3.4e9), "3.40 s"), (units.format_duration(0.5), "0.5 s"), (units.format_duration(42), "42 s"),
        (units.format_duration(70), "1 min 10 s"), (units.format_duration(120), "2 min"), (units.format_duration(3900), "1 h 05 min"),
        (units.format_percent(12.34), "12.3 %"), (units.format_count(950), "950"), (units.format_count(12_345), "12.3 k"),
        (units.format_count(1.21e6), "1.21 M"), (units.format_bytes(None), units.UNKNOWN), (units.format_latency(None), units.UNKNOWN),
        (units.format_rate(None), units.UNKNOWN), (units.format_duration(None), units.UNKNOWN),
    ],
)  # fmt: skip
def test_figures_are_shown_shortly(shown: str, expected: str) -> None:
    """Three digits and the unit the field uses; the unknown is a dash."""
    assert shown == expected


@given(st.integers(min_value=1, max_value=1 << 59))
def test_the_short_form_of_a_size_reads_back(size_bytes: int) -> None:
    """Names carry sizes exactly."""
    assert units.parse_size(units.format_size_short(size_bytes)) == size_bytes


@given(st.floats(min_value=0, max_value=1e15))
def test_no_shown_figure_has_more_than_four_digits_before_its_unit(value: float) -> None:
    """Rounding at a unit's edge does not print 1000.0."""
    for shown in (units.format_rate(value), units.format_latency(value)):
        digits = shown.split(" ")[0].replace(".", "")
        assert len(digits) <= 4 or value >= 1e12
