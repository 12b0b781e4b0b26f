"""One vocabulary per stream and dictionary-encoded column.

An Arrow IPC file holds each dictionary once, before its first batch, so all batches of a stream must share
it. The shared vocabulary is the union in order of first appearance: the same batches always give the same
one. A union that grows too large, or that the index type cannot count, ends the stream: the batches are
divided over several streams of the same slot and fingerprint. A batch alone always fits, for it brings its
own dictionary.

Not every dictionary can join another: ordered ones, where the position has a meaning; ones that hold null;
ones whose values are nested. Those share a stream only with neighbours that have an equal dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

# Decodes batches [start, end) into arrays that nobody else holds: unifying changes nested arrays in place.
Decode = Callable[[int, int], list[pa.RecordBatch]]


def shared_dictionaries(decode: Decode, count: int, max_dictionary_size: int) -> Iterator[list[pa.RecordBatch]]:
    """Divide `count` batches, in order, into runs; the batches of a run share every dictionary."""
    batches = decode(0, count)
    encoded = [_dictionary_arrays(batch.columns) for batch in batches]
    vocabularies = [[array.dictionary for array in arrays] for arrays in encoded]
    ordered = any(array.type.ordered for array in encoded[0])
    if ordered or any(vocabulary.null_count for row in vocabularies for vocabulary in row):
        yield from _equal_runs(batches, vocabularies)
        return
    pending = [(0, count)]
    while pending:
        start, end = pending.pop()
        run = batches if end - start == count else decode(start, end)
        try:
            unified = run if len(run) == 1 else _unify(run, _limits(vocabularies[start:end], max_dictionary_size))
        except pa.ArrowNotImplementedError:
            yield from _equal_runs(decode(start, end), vocabularies[start:end])
            continue
        if unified is not None:
            yield unified
        else:
            middle = (start + end) // 2
            pending += ((middle, end), (start, middle))


def _limits(vocabularies: Sequence[Sequence[pa.Array]], max_dictionary_size: int) -> list[int]:
    """The size allowed per dictionary; what a single batch brings along is allowed whatever its size."""
    return [max(max_dictionary_size, *map(len, column)) for column in zip(*vocabularies, strict=True)]


def _unify(batches: Sequence[pa.RecordBatch], limits: Sequence[int]) -> list[pa.RecordBatch] | None:
    """The same values over one vocabulary per dictionary, or `None` if one of them outgrows its limit."""
    try:
        table = pa.Table.from_batches(batches).unify_dictionaries()
    except pa.ArrowInvalid:  # the index type has too few values for the union
        return None
    # Column by column, for Table.to_batches leaves batches without rows out.
    columns = [column.chunks for column in table.columns]
    unified = [pa.RecordBatch.from_arrays(list(arrays), schema=table.schema) for arrays in zip(*columns, strict=True)]
    sizes = (len(array.dictionary) for array in _dictionary_arrays(unified[0].columns))
    return None if any(size > limit for size, limit in zip(sizes, limits, strict=True)) else unified


def _equal_runs(
    batches: Sequence[pa.RecordBatch], vocabularies: Sequence[Sequence[pa.Array]]
) -> Iterator[list[pa.RecordBatch]]:
    """Neighbours whose dictionaries are equal already."""
    start = 0
    for index in range(1, len(batches)):
        if not all(map(pa.Array.equals, vocabularies[start], vocabularies[index])):
            yield list(batches[start:index])
            start = index
    yield list(batches[start:])


def _dictionary_arrays(columns: Sequence[pa.Array]) -> list[Any]:
    """Every dictionary-encoded array in `columns` and below them, always in the same order."""
    found: list[Any] = []
    pending = list(reversed(columns))
    while pending:
        array = pending.pop()
        kind = array.type
        if isinstance(kind, pa.BaseExtensionType):
            pending.append(array.storage)
        elif pa.types.is_dictionary(kind):
            found.append(array)
        elif pa.types.is_map(kind):
            pending += (array.items, array.keys)
        elif pa.types.is_struct(kind) or pa.types.is_union(kind):
            pending += (array.field(index) for index in reversed(range(kind.num_fields)))
        elif pa.types.is_nested(kind):  # the lists, and run-end encoding
            pending.append(array.values)
    return found
