"""The table of types: what each Arrow type is in Spark, and what is said of those that are nothing there."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from pyspark.sql import types as spark

import arrow_strategies as arrow
from holdfast.errors import UnsupportedType
from holdfast.schema import widest
from holdfast.spark.types import MISFITS, struct_of

LONG, TEXT = spark.LongType(), spark.StringType()
TABLE: list[tuple[pa.DataType, spark.DataType]] = [
    (pa.null(), spark.NullType()),
    (pa.bool_(), spark.BooleanType()),
    (pa.int8(), spark.ByteType()),
    (pa.int16(), spark.ShortType()),
    (pa.int32(), spark.IntegerType()),
    (pa.int64(), LONG),
    (pa.uint8(), spark.ShortType()),
    (pa.uint16(), spark.IntegerType()),
    (pa.uint32(), LONG),
    (pa.uint64(), spark.DecimalType(20, 0)),
    (pa.float16(), spark.FloatType()),
    (pa.float32(), spark.FloatType()),
    (pa.float64(), spark.DoubleType()),
    (pa.decimal32(9, 2), spark.DecimalType(9, 2)),
    (pa.decimal64(18, 0), spark.DecimalType(18, 0)),
    (pa.decimal128(38, 38), spark.DecimalType(38, 38)),
    (pa.decimal256(38, 10), spark.DecimalType(38, 10)),
    (pa.string(), TEXT),
    (pa.large_string(), TEXT),
    (pa.string_view(), TEXT),
    (pa.binary(), spark.BinaryType()),
    (pa.large_binary(), spark.BinaryType()),
    (pa.binary_view(), spark.BinaryType()),
    (pa.binary(5), spark.BinaryType()),
    (pa.date32(), spark.DateType()),
    (pa.date64(), spark.DateType()),
    (pa.time32("s"), LONG),
    (pa.time64("ns"), LONG),
    (pa.timestamp("ns", "Europe/Berlin"), spark.TimestampType()),
    (pa.timestamp("s", "UTC"), spark.TimestampType()),
    (pa.timestamp("ms"), spark.TimestampNTZType()),
    (pa.duration("ns"), spark.DayTimeIntervalType()),
    (pa.list_(pa.int64()), spark.ArrayType(LONG)),
    (pa.large_list(pa.int64()), spark.ArrayType(LONG)),
    (pa.list_view(pa.int64()), spark.ArrayType(LONG)),
    (pa.large_list_view(pa.int64()), spark.ArrayType(LONG)),
    (pa.list_(pa.int64(), 3), spark.ArrayType(LONG)),
    (pa.struct([("a", pa.int64()), ("b", pa.string())]), spark.StructType().add("a", LONG).add("b", TEXT)),
    (pa.struct([]), spark.StructType()),
    (pa.map_(pa.string(), pa.int64()), spark.MapType(TEXT, LONG)),
    (pa.dictionary(pa.int8(), pa.string()), TEXT),
    (pa.run_end_encoded(pa.int32(), pa.int64()), LONG),
    (pa.list_(pa.dictionary(pa.int8(), pa.string())), spark.ArrayType(TEXT)),
    (pa.uuid(), spark.BinaryType()),
    (pa.json_(), TEXT),
    (arrow.Celsius(pa.list_(pa.uint8())), spark.ArrayType(spark.ShortType())),
    (pa.fixed_shape_tensor(pa.float32(), [2, 2]), spark.ArrayType(spark.FloatType())),
]
UNION = pa.dense_union([pa.field("a", pa.int8()), pa.field("b", pa.string())])


@pytest.mark.parametrize(("kind", "wanted"), TABLE, ids=lambda kind: str(kind)[:40])
def test_table(kind: pa.DataType, wanted: spark.DataType) -> None:
    """Each Arrow type has the Spark type that the table promises; everything may be null."""
    schema = pa.schema([pa.field("c", kind, nullable=pa.types.is_null(kind))])

    assert struct_of(schema, "prod/logs") == spark.StructType([spark.StructField("c", wanted, nullable=True)])


@pytest.mark.parametrize(
    ("kind", "path", "named"),
    [
        (UNION, "c", UNION),
        (pa.list_(UNION), "c.element", UNION),
        (pa.struct([("deep", pa.list_(UNION))]), "c.deep.element", UNION),
        (pa.map_(pa.string(), UNION), "c.value", UNION),
        (pa.map_(pa.decimal256(39, 0), pa.int8()), "c.key", pa.decimal256(39, 0)),
        (pa.month_day_nano_interval(), "c", pa.month_day_nano_interval()),
        (arrow.MONTHS, "c", arrow.MONTHS),
        (pa.decimal256(76, 38), "c", pa.decimal256(76, 38)),
        (pa.decimal128(5, -2), "c", pa.decimal128(5, -2)),
        (pa.dictionary(pa.int8(), pa.decimal256(39, 0)), "c", pa.decimal256(39, 0)),
        (
            pa.map_(pa.field("key", pa.dictionary(pa.int8(), pa.null()), nullable=False), pa.int8()),
            "c",
            pa.map_(pa.field("key", pa.dictionary(pa.int8(), pa.null()), nullable=False), pa.int8()),
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_types_that_spark_lacks(kind: pa.DataType, path: str, named: pa.DataType) -> None:
    """The error names the column, down to the very field, the type, and a way out."""
    with pytest.raises(UnsupportedType) as caught:
        struct_of(pa.schema([pa.field("good", pa.int8()), pa.field("c", kind)]), "prod/logs (logs)")

    wanted = f"column {path!r} of prod/logs (logs) is of the Arrow type {named}, which Spark lacks; {MISFITS}"
    assert str(caught.value) == wanted


def test_conflicting_types() -> None:
    """A column whose bundles have types that no one type holds is refused, and all of them are named."""
    schema = widest([pa.schema([("c", kind)]) for kind in (pa.int64(), pa.string(), pa.binary(3))])

    with pytest.raises(UnsupportedType) as caught:
        struct_of(schema, "prod/logs (logs)")

    assert str(caught.value).startswith(
        "column 'c' of prod/logs (logs) has types that no one type holds (int64, string, fixed_size_binary[3]); "
    )


def test_conflicting_types_inside_a_struct() -> None:
    """A conflict is found where it is."""
    kinds = [pa.struct([("deep", pa.int64())]), pa.struct([("deep", pa.string())])]

    with pytest.raises(
        UnsupportedType, match=r"column 'c\.deep' of t has types that no one type holds \(int64, string"
    ):
        struct_of(widest([pa.schema([("c", kind)]) for kind in kinds]), "t")


@pytest.mark.parametrize("names", [["a", "a"], ["a", "A"], ["é", "É"]])
def test_names_that_spark_cannot_tell_apart(names: list[str]) -> None:
    """Two columns of one name, or two fields of a struct, are refused: one would be read for the other."""
    flat = pa.schema([pa.field(name, pa.int8()) for name in names])
    deep = pa.schema([pa.field("c", pa.struct(list(flat)))])

    with pytest.raises(
        UnsupportedType, match=f"t has more than one column '{names[0]}', which Spark cannot tell apart"
    ):
        struct_of(flat, "t")
    with pytest.raises(UnsupportedType, match=f"column 'c' of t has more than one column '{names[0]}', which Spark"):
        struct_of(deep, "t")


@given(arrow.schemas())
def test_any_schema(schema: pa.Schema) -> None:
    """Whatever can be stored has a match, column for column, or an error that says which column has none."""
    try:
        names = struct_of(schema, "t").names
    except UnsupportedType as refused:
        names = [name for name in schema.names if repr(name)[1:-1] in str(refused)][:1]
        assert names, "the column is named"
    else:
        assert names == schema.names
