"""One stream as an Arrow IPC file, made of messages that were encoded long ago.

    "ARROW1\\0\\0", schema | dictionaries | chunk 0 | chunk 1 | ... | end of stream, footer, length, "ARROW1"
                   <---------- encapsulated messages ---------->

A payload of kind MESSAGE is exactly one chunk of such a file. So nothing is encoded again: the head and the
footer's schema come from an empty file that pyarrow writes, and the footer's empty list of chunks is replaced
by one that names ours. The footer is a flatbuffer; a table's field is an offset to its value, so the new list
goes to the end and the field is pointed at it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import crc32c
import pyarrow as pa
from pyarrow import ipc

from holdfast.clock import breathe

_MAGIC: Final = b"ARROW1"
_HEAD: Final = b"ARROW1\0\0"
SCHEMA_POSITION: Final = len(_HEAD)  # where the schema message begins
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
_CONTINUATION: Final = 0xFFFFFFFF
_PREFIX: Final = struct.Struct("<Ii")  # of a message: continuation marker, length of its flatbuffer
_TAIL: Final = len(_MAGIC) + 4  # footer length and magic
_BLOCK: Final = struct.Struct("<qi4xq")  # where a message stands: offset, length of prefix and flatbuffer, body length
_DICTIONARIES, _RECORD_BATCHES = 2, 3  # fields of the footer's root table


class UnexpectedLayout(RuntimeError):
    """pyarrow wrote something other than what is known here; encode by pyarrow alone instead."""


class StreamImage(NamedTuple):
    """A whole IPC file: its bytes in pieces, and where each chunk is, counted from the file's start."""

    buffers: list[Any]
    length: int
    positions: list[int]
    lengths: list[int]
    rows: list[int]
    checksums: list[int]  # one per chunk
    schema_length: int  # up to the end of the schema message
    schema_checksum: int
    dictionaries_checksum: int  # from there to the first chunk
    footer_checksum: int  # from the end of the last chunk to the end of the file


def assemble(schema: pa.Schema, messages: Sequence[Any], rows: list[int], checksums: list[int]) -> StreamImage:
    """An IPC file of `messages` as they are; raises `UnexpectedLayout` if the parts do not fit together."""
    head, footer = _template(schema)
    lengths = [len(message) for message in breathe(messages)]
    ends = list(accumulate(lengths, initial=len(head)))
    blocks: list[int] = []
    for message, position, length in breathe(zip(messages, ends, lengths, strict=False)):
        marker, metadata_length = _PREFIX.unpack_from(message)
        if marker != _CONTINUATION or metadata_length % 8 or length % 8:
            raise UnexpectedLayout("a payload is not one encapsulated message")
        blocks += (position, metadata_length + _PREFIX.size, length - metadata_length - _PREFIX.size)
    tail = _END_OF_STREAM + _footer_with(footer, blocks)
    return StreamImage(
        [head, *messages, tail],
        ends[-1] + len(tail),
        ends[:-1],
        lengths,
        rows,
        checksums,
        len(head),
        crc32c.crc32c(head),
        crc32c.crc32c(b""),
        crc32c.crc32c(tail),
    )


def encode(schema: pa.Schema, batches: Sequence[pa.RecordBatch], compression: str | None) -> StreamImage:
    """An IPC file of `batches`, encoded anew: for dictionaries, and for compression."""
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        for batch in batches:  # one by one: write_table leaves batches without rows out
            writer.write_batch(batch)
    data = sink.getvalue()
    view = memoryview(data)
    blocks = _blocks(view)
    positions = [offset for offset, _, _ in blocks]
    lengths = [metadata + body for _, metadata, body in blocks]
    first, end = positions[0], positions[-1] + lengths[-1]
    if len(blocks) != len(batches) or list(accumulate(lengths, initial=first))[:-1] != positions:
        raise UnexpectedLayout(f"{len(batches)} batches became {len(blocks)} messages, or these are not adjacent")
    schema_length = SCHEMA_POSITION + _PREFIX.size + _PREFIX.unpack_from(view, SCHEMA_POSITION)[1]
    return StreamImage(
        [data],
        len(view),
        positions,
        lengths,
        [batch.num_rows for batch in batches],
        [crc32c.crc32c(view[at : at + length]) for at, length in zip(positions, lengths, strict=True)],
        schema_length,
        crc32c.crc32c(view[:schema_length]),
        crc32c.crc32c(view[schema_length:first]),
        crc32c.crc32c(view[end:]),
    )


def _template(schema: pa.Schema) -> tuple[bytes, bytes]:
    """What stands before the first chunk, and the footer's flatbuffer, of a file without chunks."""
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, schema, options=ipc.IpcWriteOptions()):
        pass
    data = sink.getvalue().to_pybytes()
    footer = _footer(memoryview(data))
    head = data[: len(data) - _TAIL - len(footer) - len(_END_OF_STREAM)]
    schema_end = SCHEMA_POSITION + _PREFIX.size + _PREFIX.unpack_from(data, SCHEMA_POSITION)[1]
    if (
        not data.startswith(_HEAD)
        or data[len(head) : len(head) + len(_END_OF_STREAM)] != _END_OF_STREAM
        or schema_end != len(head)
        or _vector(footer, _DICTIONARIES)[1]
        or _vector(footer, _RECORD_BATCHES)[1]
    ):
        raise UnexpectedLayout("an empty Arrow IPC file is more than head, schema, end of stream and footer")
    return head, bytes(footer)


def _footer_with(footer: bytes, blocks: list[int]) -> bytes:
    """`footer` with its list of record batches replaced, then its length and the closing magic."""
    field, _ = _vector(memoryview(footer), _RECORD_BATCHES)
    result = bytearray(footer)
    result += bytes(-(len(result) + 4) % 8)  # the structs after the u32 count are aligned to 8
    struct.pack_into("<I", result, field, len(result) - field)
    count = len(blocks) // 3
    result += struct.pack("<I" + "qi4xq" * count, count, *blocks)
    return bytes(result) + struct.pack("<i", len(result)) + _MAGIC


def _footer(data: memoryview) -> memoryview:
    if bytes(data[-len(_MAGIC) :]) != _MAGIC:
        raise UnexpectedLayout("an Arrow IPC file does not end in its magic")
    (length,) = struct.unpack_from("<i", data, len(data) - _TAIL)
    return data[len(data) - _TAIL - length : len(data) - _TAIL]


def _vector(footer: memoryview, number: int) -> tuple[int, int]:
    """Where the root table's field `number` is, and how many structs the vector that it points to holds."""
    (root,) = struct.unpack_from("<I", footer, 0)
    table = root - struct.unpack_from("<i", footer, root)[0]
    (table_size,) = struct.unpack_from("<H", footer, table)
    slot = 4 + 2 * number
    (entry,) = struct.unpack_from("<H", footer, table + slot) if slot < table_size else (0,)
    if not entry:
        raise UnexpectedLayout(f"field {number} of an Arrow IPC footer is absent")
    field = root + entry
    (count,) = struct.unpack_from("<I", footer, field + struct.unpack_from("<I", footer, field)[0])
    return field, count


def _blocks(data: memoryview) -> list[tuple[int, int, int]]:
    """Offset, prefix and flatbuffer length, and body length of each record batch of an IPC file."""
    footer = _footer(data)
    field, count = _vector(footer, _RECORD_BATCHES)
    start = field + struct.unpack_from("<I", footer, field)[0] + 4
    return list(_BLOCK.iter_unpack(footer[start : start + count * _BLOCK.size]))
