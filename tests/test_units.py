"""Sizes and durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidSettings
from holdfast.units import format_bytes, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0), ("17", 17), ("17B", 17), ("32MB", 32_000_000), ("32MiB", 33_554_432),
        ("1.5KB", 1500), ("2 GB", 2 * 10**9),
        (" 1kib ", 1024), ("1TB", 10**12), ("1TiB", 2**40), (4096, 4096), (0, 0),
    ],
)  # fmt: skip
def test_sizes(text: str | int, count: int) -> None:
    """Decimal and binary units, in any case, with or without a space; a number is bytes."""
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("60s", 60),
        ("5m", 300),
        ("72h", 259_200),
        ("2d", 172_800),
        ("7", 7),
        (1.5, 1.5),
        (0, 0),
        ("10us", 1e-5),
    ],
)
def test_durations(text: str | float, seconds: float) -> None:
    """From microseconds to days; a number is seconds."""
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1,5MB", "1MB2", "1e3", "nan", "0x10"])
def test_what_is_not_a_size_or_duration(text: str) -> None:
    """The error shows what was written and how to write it."""
    with pytest.raises(InvalidSettings, match=r"write it like 32MB or 64MiB|unknown unit"):
        parse_bytes(text)
    with pytest.raises(InvalidSettings, match=r"write it like 25ms, 60s or 72h|unknown unit"):
        parse_seconds(text)


@pytest.mark.parametrize("text", ["1XB", "5%", "3s"])
def test_unknown_units_of_size(text: str) -> None:
    """A unit that is none of size is named, with those that are."""
    with pytest.raises(InvalidSettings, match="sizes end in B, KB, MB, GB, TB, KIB, MIB, GIB, TIB"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["1min", "5%", "3MB", "1H"])
def test_unknown_units_of_time(text: str) -> None:
    """A unit that is none of time is named, with those that are."""
    with pytest.raises(InvalidSettings, match="durations end in us, ms, s, m, h, d"):
        parse_seconds(text)


@pytest.mark.parametrize("value", [-1, -1000])
def test_negative_numbers(value: int) -> None:
    """Neither a size nor a duration is negative."""
    with pytest.raises(InvalidSettings, match="negative"):
        parse_bytes(value)
    with pytest.raises(InvalidSettings, match="negative"):
        parse_seconds(value)


@given(st.integers(0, 2**53))
def test_a_plain_number_of_bytes_is_exact(count: int) -> None:
    """Nothing is lost between the text and the number."""
    assert parse_bytes(str(count)) == count
    assert parse_bytes(count) == count


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (1500, "1.5 KB"),
        (32_000_000, "32 MB"),
        (5 * 10**9, "5 GB"),
        (7.25e12, "7.25 TB"),
    ],
)
def test_sizes_for_people(count: float, text: str) -> None:
    """Three figures and a decimal unit."""
    assert format_bytes(count) == text
