"""A bundle as bytes: what goes into a WAL frame, waits in the open segment, and is sealed into a segment.

A slot's payload is encoded once, at append, and those bytes are what every later stage writes and reads. So
nothing that the caller does to its arrays afterwards can reach the store, and sealing need not encode again.

Two kinds of payload:

MESSAGE   one encapsulated Arrow IPC record-batch message, its schema kept apart: small, and cheap to make
STREAM    a whole Arrow IPC stream (schema, dictionaries, one batch): for schemas with dictionaries, whose
values
          a bare message cannot carry

Both are multiples of 8 bytes long, as Arrow pads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import crc32c
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from holdfast.errors import InvalidBundle

ALIGNMENT = 8  # of every payload, in WAL and segment files, so that mapped buffers are aligned

# Passed on every write: without it, environment variables decide in which of its old formats Arrow writes a
# stream.
_FORMAT: Final = ipc.IpcWriteOptions()

# From this size on a payload is looked at again: a slice's dictionaries and views bring along all that the
# parent has. Below it, the look would cost more than the bytes.
_TRIM_FROM_BYTES: Final = 64 * 1024


class PayloadKind(IntEnum):
    MESSAGE = 0
    STREAM = 1


class EncodedSlot:
    """One slot's payload: `data` is a buffer of `rows` rows whose CRC32C is `checksum`."""

    __slots__ = ("checksum", "data", "fingerprint", "kind", "rows", "schema", "slot")

    def __init__(
        self,
        slot: int,
        fingerprint: bytes,
        kind: PayloadKind,
        rows: int,
        checksum: int,
        data: Any,
        schema: pa.Schema | None = None,
    ) -> None:
        self.slot = slot
        self.fingerprint = fingerprint
        self.kind = kind
        self.rows = rows
        self.checksum = checksum
        self.data = data
        self.schema = schema  # shared by all bundles that have it


@dataclass(slots=True)
class EncodedBundle:
    """A bundle in its place in a shard. `event_time` is the inclusive range in nanoseconds, or `None`."""

    offset: int
    segment_seq: int
    bundle_index: int
    ingestion_time_ns: int
    event_time: tuple[int, int] | None
    attributes: bytes  # MessagePack map; empty when there are none
    slots: tuple[EncodedSlot, ...]  # ordered by slot number
    size: int  # bytes of all payloads


def encode_slot(slot: int, fingerprint: bytes, kind: PayloadKind, batch: pa.RecordBatch) -> EncodedSlot:
    """Copy `batch` into bytes of its own; `kind` is `payload_kind` of its schema, asked once per schema.

    `InvalidBundle` for what Arrow IPC cannot write, such as more than 2**31 - 1 rows.
    """
    try:
        data = batch.serialize() if kind is PayloadKind.MESSAGE else _stream(batch)
        if data.size >= _TRIM_FROM_BYTES and (trimmed := _trimmed(batch)) is not batch:
            data = trimmed.serialize() if kind is PayloadKind.MESSAGE else _stream(trimmed)
    except (pa.ArrowInvalid, pa.ArrowCapacityError, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidBundle(f"a batch of {batch.num_rows} rows cannot be written as Arrow IPC: {error}") from error
    return EncodedSlot(slot, fingerprint, kind, batch.num_rows, crc32c.crc32c(data), data, batch.schema)


def _stream(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batch.schema, options=_FORMAT) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _trimmed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, without the dictionary values and view bytes that no row uses, where those are the most.

    Looks at whole columns only, not inside nested ones. An ordered dictionary keeps all its values: there
    they are a scale, and say something even when unused.
    """
    columns = batch.columns
    smaller = {index: new for index, old in enumerate(columns) if (new := _trimmed_column(old)) is not None}
    if not smaller:
        return batch
    return pa.RecordBatch.from_arrays(
        [smaller.get(index, column) for index, column in enumerate(columns)], schema=batch.schema
    )


def _trimmed_column(column: pa.Array) -> pa.Array | None:
    """`column` with at most half of what its values are kept in, or `None` if that cannot be had."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        # Taking values out of a dictionary of nested or view types is not possible everywhere in Arrow.
        if kind.ordered or kind.value_type.num_fields or kind.value_type.has_variadic_buffers:
            return None
        if len(column.dictionary) <= 2 * len(column):
            return None
        used = pc.unique(column.indices).drop_null()
        indices = pc.index_in(column.indices, value_set=used).cast(kind.index_type)
        return pa.DictionaryArray.from_arrays(indices, column.dictionary.take(used))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        used = column.cast(pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary())
        return used.cast(kind) if 2 * used.nbytes < column.nbytes else None
    return None


def decode_slot(kind: int, data: Any, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in `data`, zero copy: its buffers point into `data`."""
    if kind == PayloadKind.MESSAGE:
        return ipc.read_record_batch(data, schema)
    return ipc.open_stream(data).read_next_batch()


def payload_kind(schema: pa.Schema) -> PayloadKind:
    """`STREAM` if a dictionary stands anywhere in the schema, also inside nested and extension types."""
    return PayloadKind.STREAM if any(_has_dictionary(field.type) for field in schema) else PayloadKind.MESSAGE


def _has_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return True
    if pa.types.is_run_end_encoded(kind):
        return _has_dictionary(kind.value_type)
    return any(_has_dictionary(kind.field(index).type) for index in range(kind.num_fields))
