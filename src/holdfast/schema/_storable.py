"""What Arrow IPC does not bring back as it was is refused before anything is stored.

Known to fail: a dictionary of dictionaries (the inner one is lost and the batch cannot be read), a dictionary
whose values are of an extension type, maps whose child fields have names of their own, extension types that
are not registered in this process, extension keys written by hand beside another type, and more than 63
levels of nesting. The check asks Arrow rather than listing them: the schema and an empty batch go through a
stream and must be equal.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import ipc

from holdfast.errors import InvalidBundle
from holdfast.schema._fingerprint import fingerprint


def check_storable(schema: pa.Schema) -> None:
    """Raise `InvalidBundle`, naming the column, unless Arrow IPC brings `schema` back as it is."""
    trouble = _trouble(schema)
    if trouble is None:
        return
    for index, field in enumerate(schema):
        of_one = _trouble(pa.schema([field]))
        if of_one is not None:
            raise InvalidBundle(f"column {index} {field.name!r} of type {field.type} cannot be stored: {of_one}")
    raise InvalidBundle(f"this schema cannot be stored: {trouble}")


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of zero rows, for any schema that pyarrow has arrays for."""
    return pa.RecordBatch.from_arrays([_empty_array(field.type) for field in schema], schema=schema)


def _empty_array(kind: pa.DataType) -> pa.Array:
    """Built by hand where types nest: `pa.array([], type)` fails there, and `pa.nulls` can come out invalid."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _empty_array(kind.storage_type))
    if pa.types.is_dictionary(kind):
        values = _empty_array(kind.value_type)
        return pa.DictionaryArray.from_arrays(_empty_array(kind.index_type), values, ordered=kind.ordered)
    if kind.num_fields == 0:
        return pa.nulls(0, kind)
    children = [_empty_array(kind.field(index).type) for index in range(kind.num_fields)]
    first_offset = pa.py_buffer(bytes(8))  # a list of no rows still has one offset
    return pa.Array.from_buffers(
        kind, 0, [None, *[first_offset] * (kind.num_buffers - 1)], null_count=0, children=children
    )


def _trouble(schema: pa.Schema) -> str | None:
    """What goes wrong on the way through IPC, and what to do about it; `None` if nothing does."""
    try:
        back = ipc.read_schema(schema.serialize())
        if _same(back, schema):
            sink = pa.BufferOutputStream()
            with ipc.new_stream(sink, schema, options=ipc.IpcWriteOptions()) as writer:
                writer.write_batch(empty_batch(schema))
            back = ipc.open_stream(sink.getvalue()).read_next_batch().schema
    except KeyError:  # how pyarrow says that it has a type but no arrays of it: intervals of months, or of days
        return "pyarrow has no arrays of this type. Cast it where it comes from, for instance to a duration"
    except (pa.ArrowException, OSError) as error:
        return f"Arrow IPC cannot carry it ({error}). Cast it to a simpler type"
    if _same(back, schema):
        return None
    for field, other in zip(schema, back, strict=True):
        if not _same(pa.schema([field]), pa.schema([other])):
            return f"Arrow IPC gives it back as {_described(other, field)}. {_advice(field.type)}"
    return f"Arrow IPC gives its metadata back as {back.metadata}, it was {schema.metadata}"


def _same(first: pa.Schema, second: pa.Schema) -> bool:
    """Equal to pyarrow, which does not look at names inside dictionaries; and to us, who do."""
    return bool(first.equals(second, check_metadata=True)) and fingerprint(first) == fingerprint(second)


def _described(back: pa.Field, field: pa.Field) -> str:
    if str(back.type) != str(field.type):
        return str(back.type)
    return f"{back.type} with other names or metadata inside"


def _advice(kind: pa.DataType) -> str:
    if isinstance(kind, pa.ExtensionType):
        return "Register the type with pyarrow.register_extension_type, or append its storage"
    if pa.types.is_dictionary(kind):
        return "Cast the dictionary's values to a plain type"
    if pa.types.is_map(kind):
        return "Cast it to pyarrow.map_(key type, item type): a map's child fields are named key and value"
    return "Cast it to the type that comes back"
