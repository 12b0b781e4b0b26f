"""Record bytes to bundles, and why a scan ended where it did."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import crc32c
import pyarrow as pa
from pyarrow import ipc

from holdfast.encoded import ALIGNMENT, EncodedBundle, EncodedSlot, PayloadKind
from holdfast.wal.format import (
    BUNDLE_FIXED_BYTES,
    BUNDLE_MAGIC,
    BUNDLE_REST,
    CHECKED_FROM,
    FILE_HEADER_BYTES,
    HAS_EVENT_TIME,
    PREFIX,
    SCHEMA_HEADER_BYTES,
    SCHEMA_MAGIC,
    SCHEMA_REST,
    SLOT,
    FileHeader,
)

_crc = crc32c.crc32c
_KINDS: Final = {int(kind): kind for kind in PayloadKind}
PREFIX_MARK: Final = 8  # magic and salt


@dataclass(frozen=True, slots=True)
class ScanEnd:
    """Where a scan stopped: cleanly (no record of this file begins here), or at one that is `bad` for this reason."""

    position: int
    offset: int  # of the bundle that should have come next
    bad: str | None = None
    cut_short: bool = False  # bad only because the data ends too early


class _Bad(Exception):
    """This record is not whole."""


class _CutShort(_Bad):
    """This record is whole as far as it goes."""


class WalScan:
    """A scan that can go on as its file grows: it remembers position, next offset and the schemas seen."""

    def __init__(self, path: Path, header: FileHeader) -> None:
        self.path = path
        self.header = header
        self.position = FILE_HEADER_BYTES
        self.offset = header.first_offset
        self.synced = header.supersedes  # below this, all was durable when the file was begun
        self.highest_offset = (
            header.first_offset - 1
        )  # of any record header that is whole, also one whose payload is not
        self.next_segment_seq = header.next_segment_seq
        self.end: ScanEnd | None = None
        self._base = 0
        salt = struct.pack("<I", header.salt)
        self._marks = (BUNDLE_MAGIC + salt, SCHEMA_MAGIC + salt)
        self.schemas: dict[bytes, pa.Schema] = {}

    def advance(self, data: Any, until: int | None = None, *, base: int = 0) -> list[EncodedBundle]:
        """The bundles from here up to offset `until`, or to where the records end; then `end` says why.

        `data` is the file from byte `base` on.
        """
        bundles: list[EncodedBundle] = []
        view = memoryview(data)
        self._base = base
        self.end = None
        while until is None or self.offset < until:
            try:
                if not self._record_begins(view):
                    self.end = ScanEnd(self.position, self.offset)
                    break
                bundle = self._record(data, view)
            except _Bad as reason:
                self.end = ScanEnd(self.position, self.offset, str(reason), isinstance(reason, _CutShort))
                break
            if bundle is not None:
                bundles.append(bundle)
        return bundles

    def _record_begins(self, view: memoryview) -> bool:
        start = self.position - self._base
        return bytes(view[start : start + PREFIX_MARK]) in self._marks

    def _record(self, data: Any, view: memoryview) -> EncodedBundle | None:
        start = self.position - self._base
        if view.nbytes - start < PREFIX.size:
            raise _CutShort("the file ends within a record's header")
        magic, _, checksum, length, slots, flags, size, position, offset, synced = PREFIX.unpack_from(view, start)
        least = BUNDLE_FIXED_BYTES + SLOT.size * slots if magic == BUNDLE_MAGIC else SCHEMA_HEADER_BYTES
        if length < least or length % ALIGNMENT:
            raise _Bad(f"a record header of impossible length {length}")
        if start + length > view.nbytes:
            raise _CutShort("the file ends within a record's header")
        found = _crc(view[start + CHECKED_FROM : start + length])
        if found != checksum:
            raise _Bad(f"record header fails its checksum: found {found:#010x}, expected {checksum:#010x}")
        if position != self.position:
            raise _Bad(f"a record that belongs at byte {position}")
        if offset != self.offset:
            raise _Bad(f"offset {offset} where {self.offset} should be")
        if synced > self.synced:
            self.synced = synced
        self._seen(magic, offset)
        payload = start + length
        if payload + size > view.nbytes:
            missing = payload + size - view.nbytes
            raise _CutShort(f"the file ends {missing} bytes before the record of offset {offset} does")
        bundle = None
        if magic == BUNDLE_MAGIC:
            bundle = self._bundle(data, view, start, payload, slots, flags, size, offset)
            self.offset += 1
            if bundle.segment_seq > self.next_segment_seq:
                self.next_segment_seq = bundle.segment_seq
        else:
            self._schema(data, start, payload, size)
        self.position += length + size
        return bundle

    def _seen(self, magic: bytes, offset: int) -> None:
        if magic == BUNDLE_MAGIC and offset > self.highest_offset:
            self.highest_offset = offset

    def _bundle(
        self,
        data: Any,
        view: memoryview,
        start: int,
        payload: int,
        slots: int,
        flags: int,
        size: int,
        offset: int,
    ) -> EncodedBundle:
        seq, index, attributes_length, ingested, first, last = BUNDLE_REST.unpack_from(view, start + PREFIX.size)
        cursor = start + BUNDLE_FIXED_BYTES
        encoded = []
        at = payload
        for _ in range(slots):
            number, kind, _zero, checksum, rows, length, fingerprint = SLOT.unpack_from(view, cursor)
            cursor += SLOT.size
            if at + length > payload + size or kind not in _KINDS:
                raise _Bad(f"slot {number} of offset {offset} does not fit its record")
            found = _crc(view[at : at + length])
            if found != checksum:
                raise _Bad(
                    f"payload of offset {offset}, slot {number}, fails its checksum: "
                    f"found {found:#010x}, expected {checksum:#010x}"
                )
            schema = self.schemas.get(fingerprint)
            if schema is None:
                raise _Bad(f"offset {offset} needs schema {fingerprint.hex()}, which no record before it holds")
            encoded.append(
                EncodedSlot(number, fingerprint, _KINDS[kind], rows, checksum, data.slice(at, length), schema)
            )
            at += length
        if cursor + attributes_length > payload or at != payload + size:
            raise _Bad(f"the lengths in the record of offset {offset} contradict each other")
        return EncodedBundle(
            offset, seq, index, ingested, (first, last) if flags & HAS_EVENT_TIME else None,
            bytes(view[cursor : cursor + attributes_length]), tuple(encoded), size,
        )  # fmt: skip

    def _schema(self, data: Any, start: int, payload: int, size: int) -> None:
        fingerprint, checksum, _zero = SCHEMA_REST.unpack_from(memoryview(data), start + PREFIX.size)
        message = data.slice(payload, size)
        found = _crc(message)
        if found != checksum:
            raise _Bad(f"schema {fingerprint.hex()} fails its checksum: found {found:#010x}, expected {checksum:#010x}")
        self.schemas[fingerprint] = ipc.read_schema(message)

    def look_beyond(self, data: Any) -> None:
        """Search what follows the end for whole record headers of this file: their marks and offsets count too.

        If there are any, the scan did not end where the writer did, and the end is bad.
        """
        rest = bytes(memoryview(data)[self.position :])
        salt = self._marks[0][4:]
        at = rest.find(salt, 4 + 1)
        while at >= 0:
            if self._consider(rest, at - 4) and self.end is not None and self.end.bad is None:
                self.end = replace(self.end, bad="no record begins here, yet others follow")
            at = rest.find(salt, at + 1)

    def _consider(self, rest: bytes, at: int) -> bool:
        if (self.position + at) % ALIGNMENT or len(rest) - at < PREFIX.size:
            return False
        magic, _, checksum, length, _, _, _, position, offset, synced = PREFIX.unpack_from(rest, at)
        if not PREFIX.size <= length <= len(rest) - at or position != self.position + at:
            return False
        if _crc(rest[at + CHECKED_FROM : at + length]) != checksum:
            return False
        self.synced = max(self.synced, synced)
        self._seen(magic, offset)
        return True


def scan_file(data: Any, path: Path) -> tuple[WalScan, list[EncodedBundle]]:
    """All bundles of a WAL file; raises `Corruption` when its header is bad."""
    scan = WalScan(path, FileHeader.decode(data, path))
    return scan, scan.advance(data)
