"""Arrow types as Spark has them.

| Arrow                                          | Spark                                             |
|------------------------------------------------|---------------------------------------------------|
| null                                           | void                                              |
| bool, int8 to int64, float32, float64          | boolean, tinyint to bigint, float, double         |
| uint8, uint16, uint32                          | smallint, int, bigint                             |
| uint64                                         | decimal(20,0)                                     |
| float16                                        | float                                             |
| decimal32 to decimal256, up to 38 digits       | decimal                                           |
| string, large_string, string_view              | string                                            |
| binary, large, view, fixed size                | binary                                            |
| date32, date64                                 | date                                              |
| time32, time64                                 | bigint: nanoseconds since midnight                |
| timestamp with a time zone                     | timestamp, in UTC; cut to microseconds            |
| timestamp without one                          | timestamp_ntz; cut to microseconds                |
| duration                                       | interval day to second; cut to microseconds       |
| list, large, view, fixed size                  | array                                             |
| struct, map                                    | struct, map                                       |
| dictionary, run-end encoded                    | their values                                      |
| extension                                      | its storage                                       |

No match: unions, the other intervals, decimals of more digits; and a column whose bundles have types that no one type
holds (`widest` keeps the conflict in the field). Each is an `UnsupportedType` that names the column.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import types as spark

from holdfast.errors import UnsupportedType
from holdfast.schema import CONFLICTING_TYPES

MAX_DIGITS: Final = 38
_SIMPLE: Final[dict[pa.DataType, spark.DataType]] = {
    pa.null(): spark.NullType(),
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.uint8(): spark.ShortType(),
    pa.uint16(): spark.IntegerType(),
    pa.uint32(): spark.LongType(),
    pa.uint64(): spark.DecimalType(20, 0),
    pa.float16(): spark.FloatType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.large_string(): spark.StringType(),
    pa.string_view(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.large_binary(): spark.BinaryType(),
    pa.binary_view(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
    pa.date64(): spark.DateType(),
}
MISFITS: Final = "leave it out (option leaveOut; in a pipeline `leave_out` of the source), or append it as another type"


def struct_of(schema: pa.Schema, where: str) -> spark.StructType:
    """Raises `UnsupportedType`, which names the first column that has no match."""
    _expect_distinct(schema.names, where)
    return spark.StructType([_field(field, field.name, where) for field in schema])


def _expect_distinct(names: Sequence[str], where: str) -> None:
    lowered = [name.lower() for name in names]
    for name in names:
        if lowered.count(name.lower()) > 1:
            raise UnsupportedType(f"{where} has more than one column {name!r}, which Spark cannot tell apart")


def _field(field: pa.Field, path: str, where: str) -> spark.StructField:
    conflicts = (field.metadata or {}).get(CONFLICTING_TYPES)
    if conflicts:
        types = ", ".join([str(field.type), *json.loads(conflicts)])
        raise UnsupportedType(f"column {path!r} of {where} has types that no one type holds ({types}); {MISFITS}")
    return spark.StructField(field.name, _type(field.type, path, where), nullable=True)


def _type(kind: pa.DataType, path: str, where: str) -> spark.DataType:
    if isinstance(kind, pa.BaseExtensionType):  # first: one that is written in Python may have no hash
        return _type(kind.storage_type, path, where)
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return simple
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _type(kind.value_type, path, where)
    if pa.types.is_decimal(kind) and kind.precision <= MAX_DIGITS and 0 <= kind.scale <= kind.precision:
        return spark.DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return spark.TimestampNTZType() if kind.tz is None else spark.TimestampType()
    if pa.types.is_duration(kind):
        return spark.DayTimeIntervalType()
    if pa.types.is_time(kind):
        return spark.LongType()
    if pa.types.is_fixed_size_binary(kind):
        return spark.BinaryType()
    if is_list(kind):
        return spark.ArrayType(_field(kind.value_field, f"{path}.element", where).dataType, containsNull=True)
    if pa.types.is_struct(kind):
        _expect_distinct([field.name for field in kind], f"column {path!r} of {where}")
        return spark.StructType([_field(field, f"{path}.{field.name}", where) for field in kind])
    if pa.types.is_map(kind):
        key = _field(kind.key_field, f"{path}.key", where).dataType
        if not isinstance(key, spark.NullType):
            value = _field(kind.item_field, f"{path}.value", where).dataType
            return spark.MapType(key, value, valueContainsNull=True)
    raise UnsupportedType(f"column {path!r} of {where} is of the Arrow type {kind}, which Spark lacks; {MISFITS}")


def is_list(kind: pa.DataType) -> bool:
    """Of any layout."""
    checks = (
        pa.types.is_list,
        pa.types.is_large_list,
        pa.types.is_fixed_size_list,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
    )
    return any(check(kind) for check in checks)
