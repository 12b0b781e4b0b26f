"""The meta block: everything about a segment that is not payload, in one checksummed piece.

    0        8              8 + length, padded to 8: sections are counted from here, each at a multiple of 8
    +--------+--------------+------------+------------+-------------------+-----------------------+
    | length | directory    | manifest   | chunks     | representatives   | statistics            |
    +--------+--------------+------------+------------+-------------------+-----------------------+
      u64      JSON, UTF-8    Arrow IPC    Arrow IPC    Arrow IPC schema    Arrow IPC stream of two
                              stream       stream       for each slot       rows for each stream

The directory says where the other sections are; padding is zero. What there is per bundle and per chunk is in
Arrow's own form, so that opening a segment of many thousand bundles decodes a handful of buffers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyarrow import ipc

from holdfast.errors import Corruption
from holdfast.segment.format import padding

_LENGTH: Final = struct.Struct("<Q")

MANIFEST: Final = pa.schema(
    [
        pa.field("ingestion_time_ns", pa.int64(), nullable=False),
        pa.field("event_time_min_ns", pa.int64()),
        pa.field("event_time_max_ns", pa.int64()),
        pa.field("signal", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("attributes", pa.large_binary(), nullable=False),
        pa.field(
            "slots",
            pa.list_(
                pa.field(
                    "item",
                    pa.struct(
                        [
                            pa.field("stream", pa.uint32(), nullable=False),
                            pa.field("chunk", pa.uint32(), nullable=False),
                        ]
                    ),
                    nullable=False,
                )
            ),
            nullable=False,
        ),
    ]
)
CHUNKS: Final = pa.schema(
    [
        pa.field("stream", pa.uint32(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("checksum", pa.uint32(), nullable=False),
    ]
)


class Section(msgspec.Struct, frozen=True, array_like=True):
    """A piece of the meta block, counted from the end of the directory."""

    start: int
    length: int


class StreamEntry(msgspec.Struct, frozen=True):
    """A stream as the directory has it. `position` counts from the start of the file."""

    id: int
    slot: int
    fingerprint: bytes
    position: int
    length: int
    rows: int
    chunks: int
    absent: tuple[str, ...]  # columns of the slot's representative schema that this stream lacks
    null_counts: tuple[int | None, ...]  # per column, in the stream's own order; `None` if unknown
    event_time: tuple[int, int] | None  # nanoseconds, inclusive, over the bundles that have a chunk here
    schema_length: int  # from `position` to the end of the schema message
    schema_checksum: int
    dictionaries_checksum: int  # from there to the first chunk
    footer_checksum: int  # from the end of the last chunk to the end of the stream
    statistics: Section | None = None  # the bounds; `None` when no column has any


class Directory(msgspec.Struct, frozen=True):
    """The first section: all streams, and where the other sections are."""

    streams: tuple[StreamEntry, ...]
    manifest: Section
    chunks: Section
    representatives: dict[int, Section]


class Meta(NamedTuple):
    """A meta block, decoded; the Arrow parts point into the file."""

    directory: Directory
    manifest: pa.RecordBatch
    chunks: pa.RecordBatch
    sections: Any

    def representative(self, slot: int) -> pa.Schema:
        return ipc.read_schema(_cut(self.sections, self.directory.representatives[slot]))

    def bounds(self, stream: StreamEntry) -> pa.RecordBatch | None:
        return None if stream.statistics is None else _read_batch(self.sections, stream.statistics)


def encode_meta(
    streams: Sequence[StreamEntry],
    bounds: Sequence[pa.RecordBatch],
    manifest: pa.RecordBatch,
    chunks: pa.RecordBatch,
    representatives: Mapping[int, pa.Schema],
) -> bytes:
    """The block; `bounds` are one batch per stream, and fill the entries' `statistics`."""
    sections = bytearray()

    def add(data: Any) -> Section:
        section = Section(len(sections), len(data))
        sections.extend(data)
        sections.extend(bytes(padding(len(sections), 8)))
        return section

    directory = Directory(
        manifest=add(_batch_bytes(manifest)),
        chunks=add(_batch_bytes(chunks)),
        representatives={slot: add(schema.serialize()) for slot, schema in representatives.items()},
        streams=tuple(
            msgspec.structs.replace(stream, statistics=add(_batch_bytes(batch))) if batch.num_columns else stream
            for stream, batch in zip(streams, bounds, strict=True)
        ),
    )
    text = msgspec.json.encode(directory)
    return b"".join((_LENGTH.pack(len(text)), text, bytes(padding(len(text), 8)), sections))


def decode_meta(block: Any, path: Path, position: int) -> Meta:
    """The meta block in `block`, whose checksum is right; raises `Corruption` if it makes no sense."""
    (length,) = _LENGTH.unpack_from(block) if block.size >= _LENGTH.size else (0,)
    start = _LENGTH.size + length + padding(length, 8)
    if start > block.size:
        raise Corruption(path, position, f"directory of {length} bytes does not fit a meta block of {block.size} bytes")
    try:
        directory = msgspec.json.decode(memoryview(block)[_LENGTH.size : _LENGTH.size + length], type=Directory)
        sections = block.slice(start)
        manifest = _read_batch(sections, directory.manifest)
        chunks = _read_batch(sections, directory.chunks)
    except (msgspec.MsgspecError, pa.ArrowException, OSError, ValueError) as error:
        raise Corruption(path, position, f"meta block cannot be decoded: {error}") from error
    for batch, expected in ((manifest, MANIFEST), (chunks, CHUNKS)):
        if not batch.schema.equals(expected):
            raise Corruption(
                path, position, f"meta block holds columns {batch.schema.names}, expected {expected.names}"
            )
    return Meta(directory, manifest, chunks, sections)


def _batch_bytes(batch: pa.RecordBatch) -> Any:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batch.schema, options=ipc.IpcWriteOptions()) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _read_batch(sections: Any, section: Section) -> pa.RecordBatch:
    return ipc.open_stream(_cut(sections, section)).read_next_batch()


def _cut(sections: Any, section: Section) -> Any:
    if section.start < 0 or section.length < 0 or section.start + section.length > sections.size:
        raise ValueError(f"a section at {section.start} of {section.length} bytes lies outside")
    return sections.slice(section.start, section.length)
