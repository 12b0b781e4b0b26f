"""The columns of a table and those of a batch: what one may hold of the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.types as kind

from holdfast.errors import SinkRefused

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_INTEGERS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_EXACT_IN: Final = {"float": 16, "double": 32}  # the widest integer whose every value it holds
# Values of these have one text each, which a partition's folder and a table's log can carry.
PARTITION_TYPES: Final = frozenset({"string", "bool", "date32[day]", *_INTEGERS})


def arrow_schema(columns: StructType, sink: str) -> pa.Schema:
    """The Arrow schema of a frame, timestamps in UTC; raises `SinkRefused` for what files cannot hold."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    if not columns.fields:
        raise SinkRefused(f"{sink}: the data has no columns; nothing can be written")
    _refuse_same(columns.names, sink)
    fields = []
    for column in columns:
        try:
            found = to_arrow_type(column.dataType, timezone="UTC")
        except (PySparkException, TypeError, ValueError) as problem:
            raise _unfit(column.name, column.dataType.simpleString(), sink) from problem
        if _holds_unfit(found):
            raise _unfit(column.name, column.dataType.simpleString(), sink)
        fields.append(pa.field(column.name, found))
    return pa.schema(fields)


def _unfit(column: str, found: str, sink: str) -> SinkRefused:
    return SinkRefused(f"{sink}: column {column!r} has the type {found}, which its files cannot hold; cast it in a sql")


def _holds_unfit(found: pa.DataType) -> bool:
    if kind.is_nested(found):
        return any(_holds_unfit(found.field(number).type) for number in range(found.num_fields))
    return any(is_one(found) for is_one in (kind.is_null, kind.is_duration, kind.is_interval, kind.is_time))


def _refuse_same(names: Iterable[str], sink: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other is not name:
            raise SinkRefused(
                f"{sink}: the columns {other!r} and {name!r} have the same name, as case does not count; rename one"
            )


def merged_schema(table: pa.Schema, batch: pa.Schema, sink: str) -> pa.Schema:
    """`table` widened by what only `batch` has; raises `SinkRefused` where a column cannot hold what the batch has."""
    _refuse_same({*table.names, *batch.names}, sink)
    fields = {field.name: field for field in table}
    for field in batch:
        known = fields.get(field.name)
        fields[field.name] = field if known is None else known.with_type(_merged(known.type, field.type, field, sink))
    return pa.schema(list(fields.values()))


def _merged(table: pa.DataType, batch: pa.DataType, column: pa.Field, sink: str) -> pa.DataType:
    """The type that a table's column needs to hold both: its own, or a struct with more fields in it."""
    if table == batch or _holds(table, batch):
        return table
    if kind.is_struct(table) and kind.is_struct(batch):
        fields = {table.field(number).name: table.field(number) for number in range(table.num_fields)}
        for number in range(batch.num_fields):
            field = batch.field(number)
            known = fields.get(field.name)
            found = field.type if known is None else _merged(known.type, field.type, column, sink)
            fields[field.name] = pa.field(field.name, found)
        return pa.struct(list(fields.values()))
    if kind.is_list(table) and kind.is_list(batch):
        item = _merged(table.value_type, batch.value_type, column, sink)
        return pa.list_(table.value_field.with_type(item))
    if kind.is_map(table) and kind.is_map(batch):
        key, item = (
            _merged(table.key_type, batch.key_type, column, sink),
            _merged(table.item_type, batch.item_type, column, sink),
        )
        return pa.map_(key, table.item_field.with_type(item))
    raise SinkRefused(
        f"{sink}: column {column.name!r} holds {table} there, and the data has {batch}, which does not fit into it; "
        "cast the column in a sql transform, or write to a new path"
    )


def _holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Has every value of `narrow` an equal one in `wide`?"""
    if kind.is_timestamp(wide) and kind.is_timestamp(narrow):
        return (wide.tz is None) == (narrow.tz is None) and wide.unit == narrow.unit
    if kind.is_decimal(wide) and kind.is_decimal(narrow):
        digits = wide.precision - wide.scale, narrow.precision - narrow.scale
        return bool(wide.scale >= narrow.scale and digits[0] >= digits[1])
    texts, bytes_ = (kind.is_string, kind.is_large_string), (kind.is_binary, kind.is_large_binary)
    if any(all(any(is_one(each) for is_one in family) for each in (wide, narrow)) for family in (texts, bytes_)):
        return True
    if str(narrow) == "float":
        return str(wide) == "double"
    bits = _INTEGERS.get(str(wide)) or _EXACT_IN.get(str(wide), 0)
    return _INTEGERS.get(str(narrow), 65) <= bits


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`batch` with exactly the columns of `schema`, which holds its types; those it lacks are null."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        number = batch.schema.get_field_index(field.name)
        if number < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            column = batch.column(number)
            columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def check_partitions(schema: pa.Schema, partition_by: Iterable[str], sink: str) -> None:
    """Raises `SinkRefused` for columns that rows cannot be partitioned by."""
    names = list(partition_by)
    for name in names:
        if name not in schema.names:
            raise SinkRefused(f"{sink}: partition_by names {name!r}, which is no column; there are {schema.names}")
        if str(schema.field(name).type) not in PARTITION_TYPES:
            raise SinkRefused(
                f"{sink}: partition_by names {name!r}, which is a {schema.field(name).type}; it takes text, integers, "
                "booleans and dates: make such a column in a sql transform"
            )
    if names and len(names) == len(schema.names):
        raise SinkRefused(f"{sink}: partition_by names every column; one at least has to be left for the files")
