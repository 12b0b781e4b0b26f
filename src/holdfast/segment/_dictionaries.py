"""One vocabulary per stream and dictionary-encoded column.

An Arrow IPC file holds each dictionary once, before its first batch, so all batches of a stream must share
it. The shared vocabulary is the union in order of first appearance: the same batches always give the same
one. A union that grows too large, or that the index type cannot count, ends the stream: the batches are
divided over several streams of the same slot and fingerprint. A batch alone always fits, for it brings its
own dictionary.

Not every dictionary can join another: ordered ones, where the position has a meaning; ones that hold null;
ones whose values are nested or floating-point, for pyarrow takes 0.0 and -0.0 for the same and garbles half
floats. Those share a stream only with neighbours whose dictionary is the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

# Decodes batches [start, end) into arrays that nobody else holds: unifying changes nested arrays in place.
Decode = Callable[[int, int], list[pa.RecordBatch]]

_JOINABLE: Final = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


def shared_dictionaries(decode: Decode, count: int, max_dictionary_size: int) -> Iterator[list[pa.RecordBatch]]:
    """Divide `count` batches, in order, into runs; the batches of a run share every dictionary."""
    batches = decode(0, count)
    encoded = [_dictionary_arrays(batch.columns) for batch in batches]
    vocabularies = [[array.dictionary for array in arrays] for arrays in encoded]
    if not all(_can_join(array.type) for array in encoded[0]) or any(
        vocabulary.null_count for row in vocabularies for vocabulary in row
    ):
        yield from _equal_runs(batches, vocabularies)
        return
    pending = [(0, count)]
    while pending:
        start, end = pending.pop()
        run = batches if end - start == count else decode(start, end)
        limits = _limits(vocabularies[start:end], max_dictionary_size)
        unified = run if len(run) == 1 else _unify(run, limits)
        if unified is not None:
            yield unified
        else:
            middle = (start + end) // 2
            pending += ((middle, end), (start, middle))


def _can_join(kind: pa.DictionaryType) -> bool:
    return not kind.ordered and any(test(kind.value_type) for test in _JOINABLE)


def _limits(vocabularies: Sequence[Sequence[pa.Array]], max_dictionary_size: int) -> list[int]:
    """The size allowed per dictionary; what a single batch brings along is allowed whatever its size."""
    return [max(max_dictionary_size, *map(len, column)) for column in zip(*vocabularies, strict=True)]


def _unify(batches: Sequence[pa.RecordBatch], limits: Sequence[int]) -> list[pa.RecordBatch] | None:
    """The same values over one vocabulary per dictionary, or `None` if one of them outgrows its limit."""
    try:
        table = pa.Table.from_batches(batches).unify_dictionaries()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # the index type cannot count the union
        return None
    # Column by column, for Table.to_batches leaves batches without rows out.
    columns = [column.chunks for column in table.columns]
    unified = [pa.RecordBatch.from_arrays(list(arrays), schema=table.schema) for arrays in zip(*columns, strict=True)]
    sizes = (len(array.dictionary) for array in _dictionary_arrays(unified[0].columns))
    return None if any(size > limit for size, limit in zip(sizes, limits, strict=True)) else unified


def _equal_runs(
    batches: Sequence[pa.RecordBatch], vocabularies: Sequence[Sequence[pa.Array]]
) -> Iterator[list[pa.RecordBatch]]:
    """Neighbours whose dictionaries are the same already, as bytes: equal values may differ in bits."""
    content = [[_bytes(vocabulary) for vocabulary in row] for row in vocabularies]
    start = 0
    for index in range(1, len(batches)):
        if content[index] != content[start]:
            yield list(batches[start:index])
            start = index
    yield list(batches[start:])


def _bytes(vocabulary: pa.Array) -> bytes:
    """The values without dictionaries further down, which stand in the list by themselves."""
    data: bytes = pa.RecordBatch.from_arrays([vocabulary], [""]).serialize().to_pybytes()
    return data


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
            pending.append(array.dictionary)  # whose values may hold others
        elif pa.types.is_map(kind):
            pending += (array.items, array.keys)
        elif pa.types.is_struct(kind) or pa.types.is_union(kind):
            pending += (array.field(index) for index in reversed(range(kind.num_fields)))
        elif pa.types.is_nested(kind):  # the lists, and run-end encoding
            pending.append(array.values)
    return found
