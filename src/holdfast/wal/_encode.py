"""Bundles to record bytes. Payloads are passed on as they are, never copied."""

from __future__ import annotations

from typing import Any, Final

import crc32c

from holdfast.encoded import ALIGNMENT, EncodedBundle
from holdfast.wal.format import (
    BUNDLE_FIXED_BYTES,
    BUNDLE_MAGIC,
    BUNDLE_REST,
    HAS_EVENT_TIME,
    PREFIX_CHECKED,
    PREFIX_START,
    SCHEMA_HEADER_BYTES,
    SCHEMA_MAGIC,
    SCHEMA_REST,
    SLOT,
)

_crc = crc32c.crc32c
_ZEROS: Final = tuple(bytes(count) for count in range(ALIGNMENT))


def bundle_bytes(bundle: EncodedBundle) -> int:
    """How long the record of `bundle` is."""
    header = BUNDLE_FIXED_BYTES + SLOT.size * len(bundle.slots) + len(bundle.attributes)
    return header + -header % ALIGNMENT + bundle.size


def encode_bundle(bundle: EncodedBundle, *, salt: int, position: int, synced: int) -> bytes:
    """The record's header; the payloads of the slots follow it, in order."""
    slots = bundle.slots
    attributes = bundle.attributes
    length = BUNDLE_FIXED_BYTES + SLOT.size * len(slots) + len(attributes)
    padding = -length % ALIGNMENT
    event_time = bundle.event_time
    first, last = event_time or (0, 0)
    rest = BUNDLE_REST.pack(
        bundle.segment_seq, bundle.bundle_index, len(attributes), bundle.ingestion_time_ns, first, last
    )
    for slot in slots:
        rest += SLOT.pack(slot.slot, slot.kind, 0, slot.checksum, slot.rows, slot.data.size, slot.fingerprint)
    if length > BUNDLE_FIXED_BYTES:
        rest += attributes + _ZEROS[padding]
    flags = 0 if event_time is None else HAS_EVENT_TIME
    return _seal(
        BUNDLE_MAGIC, length + padding, len(slots), flags, bundle.size, position, bundle.offset, synced, rest, salt
    )


def encode_schema(fingerprint: bytes, message: Any, *, salt: int, position: int, offset: int, synced: int) -> bytes:
    """The header of a schema record; `message` follows it, padded."""
    size = message.size
    rest = SCHEMA_REST.pack(fingerprint, _crc(message), 0)
    return _seal(SCHEMA_MAGIC, SCHEMA_HEADER_BYTES, 0, 0, size, position, offset, synced, rest, salt)


def _seal(
    magic: bytes,
    length: int,
    slots: int,
    flags: int,
    size: int,
    position: int,
    offset: int,
    synced: int,
    rest: bytes,
    salt: int,
) -> bytes:
    checked = PREFIX_CHECKED.pack(length, slots, flags, size, position, offset, synced) + rest
    return PREFIX_START.pack(magic, salt, _crc(checked)) + checked
