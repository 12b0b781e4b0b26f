"""What the values of any Arrow array mean, as plain Python values: the model that conversions are held against."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from arrow_strategies import _spans

_MICROSECONDS = {"s": 1_000_000, "ms": 1000, "us": 1}
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def meaning(array: pa.Array) -> list[Any]:
    """Encodings resolved; times in microseconds, cut; times of day in nanoseconds; dates in days; structs as tuples."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return meaning(array.storage)
    if pa.types.is_null(kind):
        return [None] * len(array)
    if pa.types.is_dictionary(kind):
        values = meaning(array.dictionary)
        return [None if index is None else values[index] for index in array.indices.to_pylist()]
    if pa.types.is_run_end_encoded(kind):
        values, ends = meaning(array.values), array.run_ends.to_pylist()
        rows = range(array.offset, array.offset + len(array))
        return [next(value for value, end in zip(values, ends, strict=True) if row < end) for row in rows]
    if kind.num_fields:
        return _nested(array)
    return _leaves(array)


def _nested(array: pa.Array) -> list[Any]:
    valid = array.is_valid().to_pylist()
    if pa.types.is_struct(array.type):
        columns = [meaning(array.field(index)) for index in range(array.type.num_fields)]
        return [tuple(column[row] for column in columns) if ok else None for row, ok in enumerate(valid)]
    values = meaning(array.values)
    return [values[start:end] if ok else None for ok, (start, end) in zip(valid, _spans(array), strict=True)]


def _leaves(array: pa.Array) -> list[Any]:
    kind = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        ticks = array.view(pa.int64())
        if kind.unit == "ns":
            return [
                None if tick is None else (abs(tick) // 1000) * (1 if tick > 0 else -1) for tick in ticks.to_pylist()
            ]
        return _times(ticks, _MICROSECONDS[kind.unit])
    if pa.types.is_time(kind):
        return _times(array.view(pa.int32() if pa.types.is_time32(kind) else pa.int64()), _NANOSECONDS[kind.unit])
    if pa.types.is_date32(kind):
        return array.view(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_date64(kind):
        return [None if tick is None else tick // 86_400_000 for tick in array.view(pa.int64()).to_pylist()]
    if pa.types.is_struct(kind):  # one without fields
        return [() if ok else None for ok in array.is_valid().to_pylist()]
    return array.to_pylist()  # type: ignore[no-any-return]


def _times(ticks: pa.Array, factor: int) -> list[int | None]:
    return [None if tick is None else tick * factor for tick in ticks.to_pylist()]
