"""What the directory says about a stream is true of its rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from sealing import sealed

from holdfast.segment import SegmentReader


def bounds(reader: SegmentReader, stream: int = 0) -> dict[str, list[Any]]:
    batch = reader.bounds(reader.streams[stream])
    return {} if batch is None else batch.to_pydict()


def column_bounds(*arrays: pa.Array) -> list[Any] | None:
    reader = sealed([{0: pa.record_batch({"c": array})} for array in arrays])
    return bounds(reader).get("c")


def test_counts_and_bounds_span_the_whole_stream() -> None:
    """Rows, chunks, null counts and bounds are over all batches of the stream."""
    batches = [
        pa.record_batch({"n": pa.array([5, None], pa.int64()), "s": pa.array(["m", "z"])}),
        pa.record_batch({"n": pa.array([-2], pa.int64()), "s": pa.array([None], pa.string())}),
    ]
    reader = sealed([{0: batch} for batch in batches])
    (stream,) = reader.streams
    assert (stream.rows, stream.chunks, stream.null_counts) == (3, 2, (1, 1))
    assert bounds(reader) == {"n": [-2, 5], "s": ["m", "z"]}


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([True, False]), [False, True]),
        (pa.array([b"b", b"a"]), [b"a", b"b"]),
        (pa.array([1.5, -1.5]), [-1.5, 1.5]),
        (pa.array(["b", "a"]).dictionary_encode(), ["a", "b"]),
        (pa.array([1.5, float("nan")]), None),
        (pa.array([None], pa.int64()), None),
        (pa.array([], pa.int64()), None),
        (pa.array([[1]]), None),
        (pa.array(["a"], pa.string_view()), None),
        (pa.array(["a", "b" * 256]), ["a", "b" * 256]),
        (pa.array(["a", "b" * 257]), None),
    ],
    ids=str,
)
def test_bounds_where_they_make_sense(array: pa.Array, expected: list[Any] | None) -> None:
    """A column has bounds unless they would mislead or be too long."""
    assert column_bounds(array) == expected


def test_bounds_keep_their_type() -> None:
    """Nanoseconds are not rounded."""
    batch = pa.record_batch({"t": pa.array([1_700_000_000_000_000_001, 5], pa.timestamp("ns", "UTC"))})
    reader = sealed([{0: batch}])
    found = reader.bounds(reader.streams[0])
    assert found is not None
    assert found.schema.field("t").type == pa.timestamp("ns", "UTC")
    assert found["t"].cast(pa.int64()).to_pylist() == [5, 1_700_000_000_000_000_001]


def test_columns_of_one_name_have_no_bounds() -> None:
    """Where a name does not say which column, there are none."""
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["n", "n", "m"])
    assert bounds(sealed([{0: batch}])) == {"m": [3, 3]}


def test_unknown_null_counts() -> None:
    """Where no bitmap shows the nulls the count is left open."""
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, None])])
    runs = pa.RunEndEncodedArray.from_arrays([1, 2], pa.array([1, None]))
    batch = pa.record_batch({"u": union, "r": runs, "n": pa.array([1, None])})
    assert sealed([{0: batch}]).streams[0].null_counts == (None, None, 1)


def test_event_times_per_stream() -> None:
    """A stream's event time covers the bundles that have a chunk in it, and those alone."""
    one, two = pa.record_batch({"a": [1]}), pa.record_batch({"b": [1]})
    reader = sealed([{0: one}, {0: one}, {0: two}, {0: one}, {1: one}])  # bundles 1 and 3 have times
    assert [stream.event_time for stream in reader.streams] == [(1, 30), None, None]


def test_absent_columns_and_representative_schema() -> None:
    """Per slot there is one schema that covers all streams, and each stream says what it lacks of it."""
    narrow = pa.record_batch({"a": pa.array([1], pa.int32())})
    wide = pa.record_batch({"a": pa.array([1], pa.int64()), "b": pa.array(["x"])})
    reader = sealed([{0: narrow, 1: narrow}, {0: wide}])
    assert reader.representative(0).names == ["a", "b"]
    assert reader.representative(0).field("a").type == pa.int64()
    assert reader.representative(1).names == ["a"]
    assert [(stream.slot, stream.absent) for stream in reader.streams] == [(0, ("b",)), (1, ()), (0, ())]
    assert reader.schema(reader.streams[0]).equals(narrow.schema)
    assert sorted(reader.slots) == [0, 1]
    with pytest.raises(KeyError):
        reader.representative(2)
