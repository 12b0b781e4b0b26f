"""Whole bundles out of damaged files: WAL records behind a bad one, bundles of a segment whose other chunks are bad."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import crc32c
import pyarrow as pa

from holdfast.encoded import ALIGNMENT, EncodedBundle, encode_slot, payload_kind
from holdfast.errors import Corruption, HoldfastError
from holdfast.files import Files
from holdfast.operate._segment_look import SegmentLook, header_from_footer
from holdfast.operate._survey import ShardSurvey
from holdfast.operate._wal_look import WalLook, faults_of
from holdfast.schema import fingerprint
from holdfast.segment import SegmentReader
from holdfast.segment.format import HEADER_SIZE, encode_header
from holdfast.wal import FileHeader, WalScan
from holdfast.wal.format import CHECKED_FROM, FILE_HEADER_BYTES, PREFIX

_MARK: Final = b"HFr"  # what every record begins with
_OFFSET_FIELD: Final = 8  # of a record's prefix

Schemas = Mapping[bytes, pa.Schema]


def salvage(files: Files, found: ShardSurvey, extra: Iterable[pa.Schema] = ()) -> dict[int, EncodedBundle]:
    """Every whole bundle of the shard's files by offset, except those in undamaged segments.

    `extra` are schemas known from elsewhere, for records whose own schema record is damaged. What a later WAL file
    supersedes does not count.
    """
    schemas = {print_: schema for each in found.schemas.values() for print_, schema in each.items()}
    schemas |= {fingerprint(schema): schema for schema in extra}
    bundles: dict[int, EncodedBundle] = {}
    for look in found.own_wal:  # in the order of writing: the later one counts
        for bundle in wal_bundles(look, found.shard_id or b"", schemas):
            if look.limit is None or bundle.offset < look.limit:
                bundles[bundle.offset] = bundle
    for segment in found.own_segments:
        if segment.damage:
            bundles |= {bundle.offset: bundle for bundle in segment_bundles(files, segment, found.shard_id)}
    return bundles


# -- WAL ----------------------------------------------------------------------------------------------------------


def wal_bundles(look: WalLook, shard_id: bytes, schemas: Schemas) -> list[EncodedBundle]:
    """All whole records: those of the scan, then those found by looking for further records behind each bad one."""
    header = look.header or _guessed_header(look, shard_id)
    if header is None:
        return []
    bundles = [bundle for bundle in look.bundles if not faults_of([bundle])]
    position = FILE_HEADER_BYTES if look.scan is None else look.scan.position
    rest = bytes(memoryview(look.data)[position:])
    at = rest.find(_MARK)
    while at >= 0:
        ahead = at + 1
        if (position + at) % ALIGNMENT == 0 and len(rest) - at >= PREFIX.size:
            scan = _resume(look, header, schemas, position + at, PREFIX.unpack_from(rest, at)[_OFFSET_FIELD])
            bundles += [bundle for bundle in scan.advance(look.data) if not faults_of([bundle])]
            ahead = max(ahead, scan.position - position)
        at = rest.find(_MARK, ahead)
    return bundles


def _resume(look: WalLook, header: FileHeader, schemas: Schemas, position: int, offset: int) -> WalScan:
    """A scan that begins in the middle; the record's own checksum, salt and position say whether it is one."""
    scan = WalScan(look.path, header)
    scan.position, scan.offset = position, offset
    scan.schemas.update(schemas)
    return scan


def _guessed_header(look: WalLook, shard_id: bytes) -> FileHeader | None:
    """For a damaged one: numbers from the file's name, and the salt from the first record, if that is whole."""
    data = memoryview(look.data)
    if look.spare or len(data) < FILE_HEADER_BYTES + PREFIX.size:
        return None
    _, salt, checksum, length, *_ = PREFIX.unpack_from(data, FILE_HEADER_BYTES)
    checked = data[FILE_HEADER_BYTES + CHECKED_FROM : FILE_HEADER_BYTES + length]
    if not PREFIX.size <= length <= len(data) - FILE_HEADER_BYTES or crc32c.crc32c(checked) != checksum:
        return None
    first = look.name.first_offset
    return FileHeader(salt, shard_id, look.name.generation, first, 0, first, 0)


# -- segments -----------------------------------------------------------------------------------------------------


def segment_bundles(files: Files, look: SegmentLook, shard_id: bytes | None) -> list[EncodedBundle]:
    """Every bundle whose chunks are all whole. Without the meta block nothing says which chunk is whose: none."""
    reader: SegmentReader | None
    try:
        reader = SegmentReader(files, look.path)
    except HoldfastError:
        reader = _with_header_from_footer(files, look, shard_id or b"")
    if reader is None or (reader.segment_seq, reader.first_offset) != look.name:
        return []
    bundles = []
    for index in range(reader.bundle_count):
        try:
            bundles.append(_encoded(reader, index))
        except Corruption:
            continue
    return bundles


def _encoded(reader: SegmentReader, index: int) -> EncodedBundle:
    sealed = reader.bundle(index)
    slots = []
    for stream, _ in reader.manifest.pairs(index):
        entry = reader.streams[stream]
        schema = reader.schema(entry)
        if fingerprint(schema) != entry.fingerprint:
            raise Corruption(reader.path, entry.position, "the stream's schema is not the one that it says")
        slots.append(encode_slot(entry.slot, entry.fingerprint, payload_kind(schema), sealed.batches[entry.slot]))
    slots.sort(key=lambda slot: slot.slot)
    return EncodedBundle(
        sealed.offset, reader.segment_seq, index, sealed.ingestion_time_ns, sealed.event_time,
        sealed.attributes, tuple(slots), sum(slot.data.size for slot in slots),
    )  # fmt: skip


class _Patched:
    """One file as it would be with another beginning."""

    def __init__(self, files: Files, path: Path, head: bytes) -> None:
        self._files, self._path, self._head = files, path, head

    def map(self, path: Path) -> Any:
        data = self._files.map(path)
        if path != self._path:
            return data
        return pa.py_buffer(self._head + bytes(memoryview(data)[len(self._head) :]))


def _with_header_from_footer(files: Files, look: SegmentLook, shard_id: bytes) -> SegmentReader | None:
    header = header_from_footer(memoryview(files.map(look.path)), look)
    if header is None or len(shard_id) != 16:
        return None
    head = encode_header(replace(header, shard_id=shard_id))
    if len(head) != HEADER_SIZE:
        raise ValueError(f"a segment header of {len(head)} bytes, expected {HEADER_SIZE}")
    try:
        return SegmentReader(_Patched(files, look.path, head), look.path)  # type: ignore[arg-type]
    except HoldfastError:
        return None
