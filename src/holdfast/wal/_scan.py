"""Record bytes to bundles, and why a scan ended where it did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import crc32c
import pyarrow as pa
from pyarrow import ipc

from holdfast.encoded import ALIGNMENT, EncodedBundle, EncodedSlot, PayloadKind
from holdfast.wal._format import (
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
_ZERO_STEP: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ScanEnd:
    """Where a scan stopped: cleanly (nothing but zeros follow), or at a record that is `bad` for this reason."""

    position: int
    offset: int  # of the bundle that should have come next
    bad: str | None = None


class _Bad(Exception):
    """This record is not whole."""


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
        self._schemas: dict[bytes, pa.Schema] = {}

    def advance(self, data: Any, until: int | None = None) -> list[EncodedBundle]:
        """The bundles from here up to offset `until`, or to where the records end; then `end` says why."""
        bundles: list[EncodedBundle] = []
        view = memoryview(data)
        self.end = None
        while until is None or self.offset < until:
            if view.nbytes - self.position < PREFIX.size:
                self._stop(view, "the file ends within a record's header" if self.position < view.nbytes else None)
                break
            try:
                bundle = self._record(data, view)
            except _Bad as reason:
                self._stop(view, str(reason))
                break
            if bundle is not None:
                bundles.append(bundle)
        return bundles

    def _stop(self, view: memoryview, bad: str | None) -> None:
        if bad is not None and _all_zero(view[self.position :]):
            bad = None
        self.end = ScanEnd(self.position, self.offset, bad)

    def _record(self, data: Any, view: memoryview) -> EncodedBundle | None:
        start = self.position
        magic, checksum, length, slots, flags, size, position, offset, synced = PREFIX.unpack_from(view, start)
        if magic not in (BUNDLE_MAGIC, SCHEMA_MAGIC):
            raise _Bad(f"no record begins here: found {bytes(magic)!r}")
        least = BUNDLE_FIXED_BYTES + SLOT.size * slots if magic == BUNDLE_MAGIC else SCHEMA_HEADER_BYTES
        if length < least or length % ALIGNMENT or start + length > view.nbytes:
            raise _Bad(f"a record header of impossible length {length}")
        found = _crc(view[start + CHECKED_FROM : start + length], self.header.salt)
        if found != checksum:
            raise _Bad(f"record header fails its checksum: found {found:#010x}, expected {checksum:#010x}")
        if position != start:
            raise _Bad(f"a record that belongs at byte {position}")
        if offset != self.offset:
            raise _Bad(f"offset {offset} where {self.offset} should be")
        self.synced = max(self.synced, synced)
        payload = start + length
        if payload + size > view.nbytes:
            self._seen(magic, offset)
            raise _Bad(f"the file ends {payload + size - view.nbytes} bytes before the record of offset {offset} does")
        bundle = None
        if magic == BUNDLE_MAGIC:
            self._seen(magic, offset)
            bundle = self._bundle(data, view, start, payload, slots, flags, size, offset)
            self.offset += 1
            self.next_segment_seq = max(self.next_segment_seq, bundle.segment_seq)
        else:
            self._schema(data, start, payload, size)
        self.position = payload + size
        return bundle

    def _seen(self, magic: bytes, offset: int) -> None:
        if magic == BUNDLE_MAGIC:
            self.highest_offset = max(self.highest_offset, offset)

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
            schema = self._schemas.get(fingerprint)
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
        self._schemas[fingerprint] = ipc.read_schema(message)

    def look_beyond(self, data: Any) -> None:
        """Search what follows a bad record for whole record headers: their marks and offsets count too."""
        rest = bytes(memoryview(data)[self.position :])
        at = rest.find(b"HFr", 1)
        while at >= 0:
            if (self.position + at) % ALIGNMENT == 0 and len(rest) - at >= PREFIX.size:
                self._consider(rest, at)
            at = rest.find(b"HFr", at + 1)

    def _consider(self, rest: bytes, at: int) -> None:
        magic, checksum, length, _, _, _, position, offset, synced = PREFIX.unpack_from(rest, at)
        whole = PREFIX.size <= length <= len(rest) - at and position == self.position + at
        if whole and _crc(rest[at + CHECKED_FROM : at + length], self.header.salt) == checksum:
            self.synced = max(self.synced, synced)
            self._seen(magic, offset)


def _all_zero(view: memoryview) -> bool:
    """Room that a crash left in the file without data in it."""
    zeros = bytes(_ZERO_STEP)
    return all(
        view[start : start + _ZERO_STEP] == zeros[: min(_ZERO_STEP, view.nbytes - start)]
        for start in range(0, view.nbytes, _ZERO_STEP)
    )


def scan_file(data: Any, path: Path) -> tuple[WalScan, list[EncodedBundle]]:
    """All bundles of a WAL file; raises `Corruption` when its header is bad."""
    scan = WalScan(path, FileHeader.decode(data, path))
    return scan, scan.advance(data)
