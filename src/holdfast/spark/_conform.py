"""Batches as they were stored, turned into what Spark was promised: one schema, few batches of a good size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from holdfast.errors import SchemaChanged, UnsupportedType
from holdfast.schema import widest
from holdfast.spark.types import is_list

GOOD_ROWS: Final = 32_768  # of a batch for Spark: below a few thousand each one costs more than its rows
GOOD_BYTES: Final = 16_000_000


class Piece(NamedTuple):
    """Some rows of one bundle, and the bundle's number in the order of a read.

    `kind` is equal only for pieces of one schema, `size` is about what they take: asking each batch costs more than
    reading a small one does.
    """

    bundle: int
    batch: pa.RecordBatch
    kind: object
    size: int


Extra = Callable[[Sequence[Piece]], list[pa.Array]]  # the metadata columns of these pieces


def conform(pieces: Iterable[Piece], target: pa.Schema, extra: Extra | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of `pieces` in batches of schema `target`: small ones joined, absent columns null, types widened.

    The last columns of `target` are what `extra` gives, if it is there.
    """
    group: list[Piece] = []
    rows = size = 0
    for piece in pieces:
        if group and piece.kind != group[0].kind:
            yield from _joined(group, target, extra)
            group, rows, size = [], 0, 0
        group.append(piece)
        rows += piece.batch.num_rows
        size += piece.size
        if rows >= GOOD_ROWS or size >= GOOD_BYTES:
            yield from _joined(group, target, extra)
            group, rows, size = [], 0, 0
    if group:
        yield from _joined(group, target, extra)


def _joined(group: Sequence[Piece], target: pa.Schema, extra: Extra | None) -> Iterator[pa.RecordBatch]:
    added = [] if extra is None else extra(group)
    table = pa.Table.from_batches([piece.batch for piece in group])
    names = target.names[: len(target) - len(added)]
    columns = [_column(table, name, target.field(name).type) for name in names]
    result = pa.Table.from_arrays([*columns, *added], schema=target) if columns or added else _empty(table)
    if len(group) > 1:
        result = result.combine_chunks()
    yield from result.to_batches(max_chunksize=2 * GOOD_ROWS)


def _empty(table: pa.Table) -> pa.Table:
    """Rows without columns, when none was asked for."""
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.array([{}] * table.num_rows, pa.struct([])))])


def _column(table: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    index = table.schema.get_field_index(name)
    if index < 0:
        return pa.chunked_array([pa.nulls(table.num_rows, kind)], kind)
    column = table.column(index)
    if column.type == kind:
        return column
    try:
        return pa.chunked_array([to_type(chunk, kind) for chunk in column.chunks], kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as problem:
        raise UnsupportedType(f"column {name!r}: {column.type} does not become {kind}: {problem}") from None


def to_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values as another type: encodings resolved, narrower types widened, times cut to microseconds."""
    if array.type == kind:
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        return to_type(array.storage, kind)
    if pa.types.is_dictionary(array.type):
        return to_type(array.dictionary, kind).take(array.indices)
    if pa.types.is_run_end_encoded(array.type):
        rows = np.arange(array.offset, array.offset + len(array))
        runs = np.searchsorted(array.run_ends.to_numpy(), rows, side="right")
        return to_type(array.values, kind).take(pa.array(runs))
    if pa.types.is_time(array.type):
        return array.cast(pa.time64("ns")).cast(pa.int64()) if pa.types.is_int64(kind) else array.cast(kind)
    if pa.types.is_struct(array.type):
        return _struct(array, kind)
    if pa.types.is_map(array.type):
        return _map(array, kind)
    if is_list(array.type):
        return _list(array, kind)
    return array.cast(kind, safe=_coarse(array.type))


def _coarse(kind: pa.DataType) -> bool:
    """Times that grow into microseconds may be too large for them; those that shrink are cut, numbers rounded."""
    return (pa.types.is_timestamp(kind) or pa.types.is_duration(kind)) and kind.unit in ("s", "ms")


def _struct(array: pa.StructArray, kind: pa.DataType) -> pa.Array:
    children = dict(zip([field.name for field in array.type], array.flatten(), strict=True))
    fields = list(kind)
    columns = [
        to_type(children[field.name], field.type) if field.name in children else pa.nulls(len(array), field.type)
        for field in fields
    ]
    if not fields:
        return pa.array([None if null else {} for null in array.is_null().to_pylist()], kind)
    return pa.StructArray.from_arrays(columns, fields=fields, mask=array.is_null())


def _list(array: Any, kind: pa.DataType) -> pa.Array:
    """Values first, then the lists: Arrow's own ways to flatten or cast lists mix some nested types up."""
    values, wanted = array.values, kind.value_type
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        places = pa.concat_arrays([array.offsets]), pa.concat_arrays([array.sizes])  # no slices beside a mask
        view = type(array).from_arrays(*places, to_type(values, wanted), mask=array.is_null())
        sizes = pc.if_else(view.is_null(), 0, pc.list_value_length(view))
        ends, values = pa.concat_arrays([pa.array([0], sizes.type), pc.cumulative_sum(sizes)]), view.flatten()
    elif pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        values = to_type(values.slice(array.offset * size, len(array) * size), wanted)
        ends = pa.array(np.arange(len(array) + 1) * size)
    else:
        ends, values = _reached(array)
        values = to_type(values, wanted)
    return pa.ListArray.from_arrays(ends.cast(pa.int32()), values, type=kind, mask=array.is_null())


def _map(array: pa.MapArray, kind: pa.DataType) -> pa.Array:
    ends, entries = _reached(array)
    keys, items = (to_type(each, wanted) for each, wanted in zip(entries.flatten(), _entry(kind), strict=True))
    if keys.null_count:  # a dictionary may hide one; Arrow ends the process over it
        raise pa.ArrowInvalid("a key of a map is null")
    return pa.MapArray.from_arrays(ends, keys, items, type=kind, mask=array.is_null())


def _entry(kind: pa.MapType) -> tuple[pa.DataType, pa.DataType]:
    return kind.key_type, kind.item_type


def _reached(array: Any) -> tuple[pa.Array, pa.Array]:
    """Of lists and maps: where each ends, from 0 on, and the values from the first to the last."""
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return pc.subtract(array.offsets, first), array.values.slice(first, last - first)


def covers(known: pa.Schema, schema: pa.Schema, columns: Sequence[str] | None) -> bool:
    """Does `known` hold every value that a batch of `schema` may have? Of `columns` only, if they are given."""
    if columns is not None:
        schema = pa.schema([field for field in schema if field.name in columns])
    merged = widest([known, schema])
    return merged.names == known.names and all(
        ours.type == field.type and ours.metadata == field.metadata for ours, field in zip(merged, known, strict=True)
    )


def expect_covered(known: pa.Schema, schema: pa.Schema, columns: Sequence[str] | None, where: str) -> None:
    """Raises `SchemaChanged`, which names what is new."""
    if covers(known, schema, columns):
        return
    new = [
        f"{field.name} {field.type}"
        for field in schema
        if (columns is None or field.name in columns) and not covers(known, pa.schema([field]), None)
    ]
    raise SchemaChanged(
        f"{where} has what the query's schema does not: {', '.join(new)}; "
        "start the query again, or, if its schema is meant to lack them, name the columns with option columns"
    )
