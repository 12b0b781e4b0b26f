"""A segment file as it is: whose it is, what it covers, and all that is wrong with it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from holdfast.errors import Corruption, NewerVersion
from holdfast.files import Files
from holdfast.schema import fingerprint
from holdfast.segment import SegmentReader
from holdfast.segment.format import FOOTER_SIZE, HEADER_SIZE, Header, decode_footer, decode_header
from holdfast.store.segments import SegmentName

_FOOTER_COUNT_AT: Final = 20  # of the bundle count, in the footer


@dataclass(slots=True)
class SegmentLook:
    """One segment. `end` is unknown (`None`) where neither header nor footer can be believed."""

    name: SegmentName
    path: Path
    size: int
    end: int | None = None
    shard_id: bytes | None = None
    damage: list[Corruption] = field(default_factory=list)
    schemas: dict[tuple[int, bytes], pa.Schema] = field(default_factory=dict)  # by slot and fingerprint
    signals: dict[int, str] = field(default_factory=dict)  # of bundles, by the lowest of their slots

    @property
    def first(self) -> int:
        return self.name.first_offset


def look_at_segment(files: Files, path: Path, name: SegmentName) -> SegmentLook:
    """Check every byte of a segment. Raises `FileNotFoundError`; `NewerVersion` is told as damage too."""
    look = SegmentLook(name, path, files.size(path))
    try:
        reader = SegmentReader(files, path)
    except Corruption as damage:
        look.damage.append(damage)
        _extent_without_meta(files, look)
        return look
    except NewerVersion as newer:
        look.damage.append(Corruption(path, 8, str(newer)))
        return look
    look.shard_id, look.end = reader.shard_id, reader.end_offset
    if (reader.segment_seq, reader.first_offset) != name:
        look.damage.append(
            Corruption(
                path, 16, f"its header says segment {reader.segment_seq}, first offset {reader.first_offset}: renamed"
            )
        )
    look.damage += reader.verify()
    for stream in reader.streams:
        with contextlib.suppress(Corruption):  # `verify` has told of it
            schema = look.schemas[stream.slot, stream.fingerprint] = reader.schema(stream)
            found = fingerprint(schema)
            if found != stream.fingerprint:
                said = stream.fingerprint.hex()
                what = f"stream {stream.id} has the fingerprint {found.hex()}, the directory says {said}"
                look.damage.append(Corruption(path, stream.position, what))
    _learn_signals(reader, look)
    return look


def _learn_signals(reader: SegmentReader, look: SegmentLook) -> None:
    """A bundle's signal is the name of its lowest slot: the one place outside the topic where names are kept."""
    slots = [stream.slot for stream in reader.streams]
    for index, signal in enumerate(reader.manifest.signals):
        numbers = [slots[stream] for stream, _ in reader.manifest.pairs(index)]
        if numbers:
            look.signals[min(numbers)] = signal


def _extent_without_meta(files: Files, look: SegmentLook) -> None:
    """Header and footer both say how many bundles there are; one of them may still be whole."""
    data = memoryview(files.map(look.path))
    header = None
    with contextlib.suppress(Corruption):
        header = decode_header(data, look.path)
        look.shard_id = header.shard_id
    if header is None:
        header = header_from_footer(data, look)
    if header is not None and (header.segment_seq, header.first_offset) == look.name:
        look.end = header.first_offset + header.bundle_count


def header_from_footer(data: memoryview, look: SegmentLook, shard_id: bytes = b"") -> Header | None:
    """The header as it must have been, if the footer is whole and is the one that the file's name asks for."""
    at = len(data) - FOOTER_SIZE
    if at < HEADER_SIZE:
        return None
    count = int.from_bytes(data[at + _FOOTER_COUNT_AT : at + _FOOTER_COUNT_AT + 4], "little")
    header = Header(look.name.segment_seq, look.name.first_offset, count, shard_id)
    try:
        decode_footer(data, header, look.path)
    except Corruption:
        return None
    return header
