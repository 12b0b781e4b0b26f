"""What a stream's columns hold, computed once at sealing so that readers can skip the stream.

Bounds are inclusive: no value of the column lies outside. A dictionary-encoded column's bounds are those of
its vocabulary. A column has no bounds where they would mislead or not pay: its type has no order, all its
values are null, a floating-point value is not a number (sorted differently by every engine), a bound is
longer than 256 bytes, or its name is not unique.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import compute as pc

MAX_BOUND_BYTES: Final = 256
MIN_CHUNK_ROWS: Final = 1000  # below this, on average, chunks are joined before they are measured
_ORDERED: Final = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_decimal128,
    pa.types.is_decimal256,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)


class Statistics(NamedTuple):
    """Null counts in the schema's order, `None` if unknown; `bounds` has two rows, minimum and maximum."""

    null_counts: list[int | None]
    bounds: pa.RecordBatch


def measure(table: pa.Table) -> Statistics:
    """Null counts and bounds of every column; calls per column, not per chunk, that let other threads run."""
    names = table.column_names
    if table.num_columns and table.column(0).num_chunks > table.num_rows // MIN_CHUNK_ROWS:
        table = _joined(table)
    bounds = {
        name: pair
        for name, column in zip(names, table.columns, strict=True)
        if names.count(name) == 1 and (pair := _bounds(column)) is not None
    }
    return Statistics([_null_count(column) for column in table.columns], pa.RecordBatch.from_pydict(bounds))


def _joined(table: pa.Table) -> pa.Table:
    """Many small chunks in one, which costs less than asking each of them; as they are if they do not fit one."""
    try:
        return table.combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return table


def _null_count(column: pa.ChunkedArray) -> int | None:
    """Where nulls stand in no bitmap they are not counted: pyarrow crashes on some types that it would take."""
    kind = column.type.storage_type if isinstance(column.type, pa.BaseExtensionType) else column.type
    if pa.types.is_union(kind) or pa.types.is_run_end_encoded(kind):
        return None
    if pa.types.is_dictionary(kind):
        values = kind.value_type
        if pa.types.is_union(values) or pa.types.is_run_end_encoded(values) or _vocabulary(column).null_count:
            return None
    return int(column.null_count)


def _vocabulary(column: pa.ChunkedArray) -> pa.Array:
    """All chunks of a stream share one."""
    chunk = column.chunk(0)
    return (chunk.storage if isinstance(column.type, pa.BaseExtensionType) else chunk).dictionary


def _bounds(column: pa.ChunkedArray) -> pa.Array | None:
    kind: Any = column.type
    values: Any = column
    if pa.types.is_dictionary(kind):
        kind, values = kind.value_type, _vocabulary(column)
    if not _is_ordered(kind):
        return None
    found = pc.min_max(values)
    low, high = found["min"], found["max"]
    if not low.is_valid or _too_long(low) or _too_long(high):
        return None
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(values)).as_py():
        return None
    return pa.array([low, high], type=kind)


def _is_ordered(kind: pa.DataType) -> bool:
    """Whether pyarrow can compare values of this type."""
    return any(test(kind) for test in _ORDERED)


def _too_long(bound: pa.Scalar) -> bool:
    buffer = bound.as_buffer() if isinstance(bound, pa.BinaryScalar) else None
    return buffer is not None and buffer.size > MAX_BOUND_BYTES
