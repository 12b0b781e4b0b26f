"""The demo's rows follow from their numbers."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.receivers._settings import DEMO_SCHEMA
from holdfast.receivers.demo import rows


@given(first=st.integers(0, 10**15), count=st.integers(0, 200), cut=st.integers(0, 200), seed=st.integers(-5, 2**70))
def test_rows_do_not_depend_on_where_a_block_begins(first: int, count: int, cut: int, seed: int) -> None:
    """Any part of a block equals those rows asked for by themselves."""
    cut = min(cut, count)
    whole = rows(first, count, seed)
    parts = pa.Table.from_batches([rows(first, cut, seed), rows(first + cut, count - cut, seed)])
    assert pa.Table.from_batches([whole]).equals(parts.combine_chunks())
    assert whole.schema == DEMO_SCHEMA
    assert whole["seq"].to_pylist() == list(range(first, first + count))


def test_rows_never_change() -> None:
    """Another version makes the same rows: who compares tables with them relies on it."""
    assert rows(1, 1, 0).to_pylist() == [
        {
            "seq": 1,
            "ts": datetime(2025, 1, 1, 0, 0, 0, 1000, tzinfo=UTC),
            "level": "WARN",
            "service": "catalog",
            "ms": 441.390625,
            "message": "request 1 to catalog",
        }
    ]
    text = repr(rows(0, 1000, 7).to_pydict()["ms"]).encode()
    assert hashlib.sha256(text).hexdigest()[:16] == "0e93827d976ab1d3"


def test_seeds_give_other_rows_with_the_same_numbers() -> None:
    """The seed changes what is in the rows, not which they are."""
    one, two = rows(0, 100, 1), rows(0, 100, 2)
    assert one["seq"].equals(two["seq"])
    assert not one["ms"].equals(two["ms"])


def test_every_level_and_service_comes() -> None:
    """A filter on any of them finds something, and errors are rare."""
    some = rows(0, 5000, 0)
    levels = some["level"].value_counts().to_pylist()
    assert {each["values"] for each in levels} == {"DEBUG", "INFO", "WARN", "ERROR"}
    assert min(levels, key=lambda each: each["counts"])["values"] == "ERROR"
    assert len(some["service"].unique()) == 8
