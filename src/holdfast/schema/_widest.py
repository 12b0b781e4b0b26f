"""The representative schema: one that covers every schema it was made from.

Columns stand in the order in which they first appeared. Where two schemas disagree on a column's type the
result is the narrowest type that holds the values of both; where there is none, the first type stays and the
field says so. `pyarrow.unify_schemas` does not do: it raises on a conflict, makes `int64` of `int64` and
`uint64`, and leaves a column that some schemas lack "not null".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

import pyarrow as pa

from holdfast.schema._types import common_scalar, index_type

CONFLICTING_TYPES: Final = b"holdfast.conflicting_types"

_LISTS: Final = frozenset(
    (
        pa.lib.Type_LIST,
        pa.lib.Type_LARGE_LIST,
        pa.lib.Type_FIXED_SIZE_LIST,
        pa.lib.Type_LIST_VIEW,
        pa.lib.Type_LARGE_LIST_VIEW,
    )
)
_EXTENSION_KEYS: Final = (b"ARROW:extension:name", b"ARROW:extension:metadata")


def widest(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The schema that covers all of `schemas`; it never raises.

    A field is nullable if it is so in any schema or absent from one. Of metadata the first value of a key
    stays. A field whose types have no common type keeps the first, and lists the others, as JSON, under
    `CONFLICTING_TYPES` in its metadata. Widening step by step gives what widening all at once gives.
    """
    result = reduce(_merged, schemas, None)
    return pa.schema([]) if result is None else result


def _merged(first: pa.Schema | None, second: pa.Schema) -> pa.Schema:
    if first is None or first.equals(second, check_metadata=True):
        return second
    return pa.schema(_fields(list(first), list(second)), metadata=_metadata(first.metadata, second.metadata))


def _fields(first: Sequence[pa.Field], second: Sequence[pa.Field]) -> list[pa.Field]:
    """Both lists of fields in one; the n-th field of a name meets the n-th of that name on the other side."""
    ours, theirs = _numbered(first), _numbered(second)
    return [
        *(_field(field, theirs[key]) if key in theirs else field.with_nullable(True) for key, field in ours.items()),
        *(field.with_nullable(True) for key, field in theirs.items() if key not in ours),
    ]


def _numbered(fields: Sequence[pa.Field]) -> dict[tuple[str, int], pa.Field]:
    seen: dict[str, int] = {}
    numbered = {}
    for field in fields:
        number = seen[field.name] = seen.get(field.name, -1) + 1
        numbered[field.name, number] = field
    return numbered


def _field(first: pa.Field, second: pa.Field) -> pa.Field:
    conflicts = _conflicts(first) + _conflicts(second)
    kind = _common(first.type, second.type) if _same_extension(first, second) else None
    if kind is None:
        kind = first.type
        conflicts.append(str(second.type))
    metadata = _metadata(first.metadata, second.metadata)
    if conflicts:
        metadata[CONFLICTING_TYPES] = json.dumps(list(dict.fromkeys(conflicts))).encode()
    empty = pa.types.is_null(first.type) or pa.types.is_null(second.type)
    nullable = first.nullable or second.nullable or empty
    return pa.field(first.name, kind, nullable=nullable, metadata=metadata or None)


def _metadata(first: dict[bytes, bytes] | None, second: dict[bytes, bytes] | None) -> dict[bytes, bytes]:
    return {**(second or {}), **(first or {})}


def _conflicts(field: pa.Field) -> list[str]:
    """The types recorded in a field that is itself the outcome of a widening."""
    recorded = (field.metadata or {}).get(CONFLICTING_TYPES)
    try:
        types = json.loads(recorded) if recorded else []
    except ValueError:
        return []  # somebody else's value under our key; what is found now replaces it
    return [kind for kind in types if isinstance(kind, str)] if isinstance(types, list) else []


def _same_extension(first: pa.Field, second: pa.Field) -> bool:
    """Of extension types that are not registered: whether both fields are of the same, or neither of any."""
    ours, theirs = first.metadata or {}, second.metadata or {}
    return all(ours.get(key) == theirs.get(key) for key in _EXTENSION_KEYS)


def _common(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """The narrowest type for the values of both; `None` if there is none."""
    if first.equals(second, check_metadata=True) or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if isinstance(first, pa.BaseExtensionType) or isinstance(second, pa.BaseExtensionType):
        return first if first.equals(second) else None
    if pa.types.is_dictionary(first) or pa.types.is_dictionary(second):
        return _common_dictionary(first, second)
    if pa.types.is_run_end_encoded(first) or pa.types.is_run_end_encoded(second):
        return _common_run_ends(first, second)
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        return pa.struct(_fields(list(first), list(second)))
    if pa.types.is_map(first) and pa.types.is_map(second):
        return _common_map(first, second)
    if _is_list(first) and _is_list(second):
        return _common_list(first, second)
    return common_scalar(first, second)


def _common_dictionary(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Two dictionaries stay one, with the wider index; beside plain values a dictionary becomes plain too."""
    both = pa.types.is_dictionary(first) and pa.types.is_dictionary(second)
    ours = first.value_type if pa.types.is_dictionary(first) else first
    theirs = second.value_type if pa.types.is_dictionary(second) else second
    values = _common(ours, theirs)
    if not both or values is None:
        return values
    return pa.dictionary(
        index_type(first.index_type, second.index_type), values, ordered=first.ordered and second.ordered
    )


def _common_run_ends(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    both = pa.types.is_run_end_encoded(first) and pa.types.is_run_end_encoded(second)
    ours = first.value_type if pa.types.is_run_end_encoded(first) else first
    theirs = second.value_type if pa.types.is_run_end_encoded(second) else second
    values = _common(ours, theirs)
    if not both or values is None:
        return values
    return pa.run_end_encoded(index_type(first.run_end_type, second.run_end_type), values)


def _common_map(first: pa.MapType, second: pa.MapType) -> pa.DataType | None:
    key = _common(first.key_type, second.key_type)
    if key is None or pa.types.is_null(key):
        return None
    return pa.map_(
        first.key_field.with_type(key),
        _field(first.item_field, second.item_field.with_name(first.item_field.name)),
        keys_sorted=first.keys_sorted and second.keys_sorted,
    )


def _is_list(kind: pa.DataType) -> bool:
    return kind.id in _LISTS


def _common_list(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Lists of one kind stay of it; fixed sizes that differ become a list; any other mix a large list."""
    item = _field(first.value_field, second.value_field)
    fixed = [pa.types.is_fixed_size_list(kind) for kind in (first, second)]
    if all(fixed):
        return pa.list_(item, first.list_size) if first.list_size == second.list_size else pa.list_(item)
    if any(fixed):
        return _same_list(second if fixed[0] else first, item)
    return _same_list(first, item) if first.id == second.id else pa.large_list(item)


def _same_list(kind: pa.DataType, item: pa.Field) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(item)
    if pa.types.is_large_list(kind):
        return pa.large_list(item)
    return pa.list_view(item) if pa.types.is_list_view(kind) else pa.large_list_view(item)
