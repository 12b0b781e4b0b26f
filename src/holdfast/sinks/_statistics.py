"""What a Parquet file holds, as a Delta table's log tells it: rows, nulls, lowest and highest values.

Readers skip files by it, so what is not certain is left out: the order of NaN differs between readers, and a text of
more than 4 KB has no bounds in the file's own statistics.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kind

MAX_COLUMNS: Final = 32  # as Delta's own writers do: a log entry should stay small
_TEXT_LENGTH: Final = 32  # characters of a bound; a longer one is cut such that it is still a bound
_AFTER: Final = "\U0010ffff"  # no character is above it
_FLOAT_DIGITS: Final = 15  # a reader that takes numbers as doubles has these exactly


def statistics(schema: pa.Schema, metadata: pq.FileMetaData, with_nan: Collection[str]) -> str:
    """The `stats` of an add action: JSON. `with_nan` are the top-level columns that hold a NaN."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for number, (path, leaf) in enumerate(_leaves(schema)):
        if number == MAX_COLUMNS:
            break
        if path is None:
            continue
        column = _Column(metadata, number)
        if column.nulls is not None:
            _put(nulls, path, column.nulls)
        if path[0] in with_nan or (kind.is_floating(leaf) and len(path) > 1) or not column.bounded:
            continue
        first, last = _low(column.lowest), _high(column.highest)
        if first is not None:
            _put(lowest, path, first)
        if last is not None:
            _put(highest, path, last)
    found = {"numRecords": metadata.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


class _Column:
    """One column of a file, over its row groups."""

    def __init__(self, metadata: pq.FileMetaData, number: int) -> None:
        self.nulls: int | None = 0
        self.bounded = True
        self.lowest: Any = None
        self.highest: Any = None
        for group in range(metadata.num_row_groups):
            self._add(metadata.row_group(group).column(number))

    def _add(self, chunk: pq.ColumnChunkMetaData) -> None:
        found = chunk.statistics
        if found is None or not found.has_null_count:
            self.nulls, self.bounded = None, False
            return
        if self.nulls is not None:
            self.nulls += found.null_count
        if not found.has_min_max:
            self.bounded &= found.null_count == chunk.num_values
            return
        try:
            first, last = found.min, found.max
        except (ValueError, OverflowError):  # a timestamp that Python has no date for
            self.bounded = False
            return
        self.lowest = first if self.lowest is None else min(first, self.lowest)
        self.highest = last if self.highest is None else max(last, self.highest)


def _leaves(schema: pa.Schema) -> Iterator[tuple[tuple[str, ...] | None, pa.DataType]]:
    """The columns of a file in their order, with the path of those that the log can tell of: not inside lists."""
    for field in schema:
        yield from _leaves_of(field.type, (field.name,))


def _leaves_of(
    found: pa.DataType, path: tuple[str, ...] | None
) -> Iterator[tuple[tuple[str, ...] | None, pa.DataType]]:
    if kind.is_struct(found):
        for number in range(found.num_fields):
            field = found.field(number)
            yield from _leaves_of(field.type, None if path is None else (*path, field.name))
    elif kind.is_map(found):
        yield from _leaves_of(found.key_type, None)
        yield from _leaves_of(found.item_type, None)
    elif kind.is_nested(found):
        yield from _leaves_of(found.value_type, None)
    else:
        yield path, found


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _low(value: Any) -> Any:
    return value[:_TEXT_LENGTH] if isinstance(value, str) else _bound(value)


def _high(value: Any) -> Any:
    if not isinstance(value, str):
        return _bound(value)
    if len(value) <= _TEXT_LENGTH:
        return value
    return None if value[_TEXT_LENGTH] == _AFTER else value[:_TEXT_LENGTH] + _AFTER


def _bound(value: Any) -> Any:
    """A bound that is not a text, as JSON has it; `None` for one that it cannot have exactly, and for booleans."""
    match value:
        case bool() | bytes() | None:
            return None
        case datetime():
            text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
            return text if value.tzinfo is None else text + "Z"
        case date():
            return value.isoformat()
        case Decimal():
            return float(value) if len(value.as_tuple().digits) <= _FLOAT_DIGITS else None
        case float():
            return value if isfinite(value) else None
        case int():
            return value
        case _:
            return None
