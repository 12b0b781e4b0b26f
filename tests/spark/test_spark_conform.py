"""Stored batches in the schema that Spark was promised: every value is what it was."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import arrow_strategies as arrow
from holdfast.errors import SchemaChanged, UnsupportedType
from holdfast.schema import widest
from holdfast.spark import _conform
from holdfast.spark._conform import conform, covers, expect_covered, to_type
from spark.meaning import meaning
from spark.topickit import piece, target_of

LEAVES = [kind for kind in arrow.LEAVES if kind != pa.decimal128(5, -2)]
seeds = st.integers(0, 2**32 - 1)
TOO_LARGE = "would result in out of bounds"
NULL_KEY = "a key of a map is null"


def joined(batches: list[pa.RecordBatch], target: pa.Schema) -> pa.Table:
    found = list(conform([piece(number, batch) for number, batch in enumerate(batches)], target))
    for batch in found:
        assert batch.schema.equals(target)
        batch.validate(full=True)
    return pa.Table.from_batches(found, schema=target)


def outcome(arrays: list[pa.Array], target: pa.Schema) -> pa.ChunkedArray | str:
    """A column that came in these arrays, as Spark gets it; or what was said when it was refused."""
    try:
        return joined([pa.record_batch([array], ["c"]) for array in arrays], target)["c"]
    except UnsupportedType as refused:
        return str(refused)


def target_for(schema: pa.Schema) -> pa.Schema:
    try:
        return target_of(schema)
    except UnsupportedType:
        assume(False)
        raise


def values(column: pa.ChunkedArray) -> list[Any]:
    return [value for chunk in column.chunks for value in meaning(chunk)]


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], max_examples=150)
@given(arrow.types(), seeds, st.lists(st.integers(0, 6), max_size=3))
def test_any_column_keeps_its_values(kind: pa.DataType, seed: int, lengths: list[int]) -> None:
    """Of any storable type, with nulls and slices at every depth: what comes out means what went in.

    But for times beyond what microseconds can count, and null keys, which are refused.
    """
    target, random = target_for(pa.schema([pa.field("c", kind)])), Random(seed)
    arrays = [arrow.make_array(kind, length, random) for length in lengths]
    found = outcome(arrays, target)
    if isinstance(found, str):
        assert found.startswith("column 'c': ")
        assert TOO_LARGE in found or NULL_KEY in found
    else:
        assert values(found) == [value for array in arrays for value in meaning(array)]


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(st.lists(st.sampled_from(LEAVES), min_size=2, max_size=3), seeds)
def test_widened_columns(kinds: list[pa.DataType], seed: int) -> None:
    """A column whose bundles differ in type has the widest in Spark, which covers each, and holds each's values."""
    schemas = [pa.schema([pa.field("c", kind)]) for kind in kinds]
    target, random = target_for(widest(schemas)), Random(seed)
    arrays = [arrow.make_array(kind, 3, random) for kind in kinds]

    for schema in schemas:  # by digits an integer in Spark can be wider than it was: see reading
        assert covers(target, target_of(schema), None) or pa.types.is_decimal(target.field(0).type)
    found = outcome(arrays, target)
    if isinstance(found, str):
        assert TOO_LARGE in found
    else:
        wanted = [value for array in arrays for value in meaning(array)]
        for ours, value in zip(values(found), wanted, strict=True):
            assert ours == (float(value) if isinstance(ours, float) and value is not None else value)


@given(st.lists(st.integers(0, 5), max_size=4), seeds)
def test_absent_columns_are_null(lengths: list[int], seed: int) -> None:
    """A bundle without a column has nulls for it, and as many rows as before."""
    random = Random(seed)
    target = target_of(
        pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string())), ("c", pa.map_(pa.string(), pa.int8()))])
    )
    batches = [
        pa.record_batch([arrow.make_array(pa.int64(), length, random)], ["a"])
        if random.random() < 0.5
        else pa.RecordBatch.from_struct_array(pa.array([{}] * length, pa.struct([])))
        for length in lengths
    ]

    table = joined(batches, target)

    assert len(table) == sum(lengths)
    assert table["b"].null_count == table["c"].null_count == sum(lengths)


@given(st.lists(st.integers(0, 5), max_size=4))
def test_no_columns(lengths: list[int]) -> None:
    """Where no column is asked for the rows still count."""
    batches = [pa.record_batch({"a": list(range(length))}) for length in lengths]

    found = list(conform([piece(number, batch) for number, batch in enumerate(batches)], pa.schema([])))

    assert sum(batch.num_rows for batch in found) == sum(lengths)
    assert all(batch.num_columns == 0 for batch in found)


def test_structs_gain_fields() -> None:
    """A field that a bundle's struct lacks is null in it; the order is that of the schema."""
    old, new = pa.struct([("a", pa.int8())]), pa.struct([("b", pa.string()), ("a", pa.int64())])
    target = target_of(pa.schema([("c", new)]))
    batches = [
        pa.record_batch({"c": pa.array([{"a": 1}, None], old)}),
        pa.record_batch({"c": pa.array([{"b": "x", "a": 2}], new)}),
    ]

    assert joined(batches, target)["c"].to_pylist() == [{"b": None, "a": 1}, None, {"b": "x", "a": 2}]


def test_small_batches_are_joined() -> None:
    """Many small bundles become few batches: each costs Spark more than its rows."""
    batches = [pa.record_batch({"a": [number]}) for number in range(1000)]

    found = list(conform([piece(number, batch) for number, batch in enumerate(batches)], batches[0].schema))

    assert [batch.num_rows for batch in found] == [1000]


def test_batches_of_a_good_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch grows far beyond the good size, by rows or by bytes."""
    monkeypatch.setattr(_conform, "GOOD_ROWS", 10)
    monkeypatch.setattr(_conform, "GOOD_BYTES", 1000)
    small = [piece(number, pa.record_batch({"a": ["x"] * 4})) for number in range(10)]
    large = [piece(0, pa.record_batch({"a": ["y"] * 95})), piece(1, pa.record_batch({"a": ["z" * 900] * 2}))]
    schema = small[0].batch.schema

    assert [batch.num_rows for batch in conform(small, schema)] == [12, 12, 12, 4]
    assert [batch.num_rows for batch in conform(large, schema)] == [20, 20, 20, 20, 15, 2]


def test_extra_columns_follow_the_rows() -> None:
    """Metadata is made for the rows of each batch, across a change of schema."""
    target = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("_bundle", pa.int64())])
    pieces = [
        piece(0, pa.record_batch({"a": [1, 2]})),
        piece(3, pa.record_batch({"a": [3]})),
        piece(4, pa.record_batch({"b": [4]})),
    ]

    def extra(group: Any) -> list[pa.Array]:
        return [pa.array(np.repeat([each.bundle for each in group], [each.batch.num_rows for each in group]))]

    found = pa.Table.from_batches(list(conform(pieces, target, extra)))

    assert found.to_pydict() == {
        "a": [1, 2, 3, None],
        "b": [None, None, None, 4],
        "_bundle": [0, 0, 3, 4],
    }


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.duration("s")])
def test_times_that_microseconds_cannot_count(kind: pa.DataType) -> None:
    """A time too far away is refused, not turned into another one."""
    batch = pa.record_batch({"c": pa.array([2**62], pa.int64()).cast(kind)})

    with pytest.raises(UnsupportedType, match=r"column 'c': .* does not become"):
        joined([batch], target_of(batch.schema))


def test_nanoseconds_are_cut() -> None:
    """Nanoseconds are cut to microseconds, and are no error."""
    array = pa.array([1_999, -1_999, None], pa.timestamp("ns"))

    assert to_type(array, pa.timestamp("us")).cast(pa.int64()).to_pylist() == [1, -1, None]


@pytest.mark.parametrize(
    ("known", "new", "text"),
    [
        ([("a", pa.int64())], [("b", pa.string())], "b string"),
        ([("a", pa.int32())], [("a", pa.int64())], "a int64"),
        ([("a", pa.int32())], [("a", pa.string())], "a string"),
        (
            [("a", pa.int64()), ("z", pa.int8())],
            [("b", pa.int8()), ("a", pa.int64()), ("c", pa.int8())],
            "b int8, c int8",
        ),
    ],
)
def test_what_a_schema_does_not_cover(known: list[Any], new: list[Any], text: str) -> None:
    """Columns that are new, or wider, are named."""
    with pytest.raises(SchemaChanged) as caught:
        expect_covered(pa.schema(known), pa.schema(new), None, "prod/logs")

    assert str(caught.value) == (
        f"prod/logs has what the query's schema does not: {text}; start the query again, "
        "or, if its schema is meant to lack them, name the columns with option columns"
    )


@pytest.mark.parametrize(
    ("known", "other"),
    [
        ([("a", pa.int64())], [("a", pa.int32())]),
        ([("a", pa.int64()), ("b", pa.string())], [("b", pa.string())]),
        ([("a", pa.float64())], [("a", pa.int8())]),
        ([("a", pa.int64())], []),
        ([("a", pa.int64())], [("a", pa.null())]),
    ],
)
def test_what_a_schema_covers(known: list[Any], other: list[Any]) -> None:
    """Fewer columns, in another order, and narrower types are covered."""
    expect_covered(pa.schema(known), pa.schema(other), None, "prod/logs")


def test_columns_not_asked_for_are_nobodys_business() -> None:
    """A new column beside those asked for changes nothing."""
    known, new = pa.schema([("a", pa.int64())]), pa.schema([("a", pa.int64()), ("b", pa.string())])

    expect_covered(known, new, ["a"], "prod/logs")
