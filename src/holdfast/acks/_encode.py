"""Records to bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import crc32c
import msgspec
import numpy as np

from holdfast.acks._bounds import Bounds, joined, ranges_array
from holdfast.acks._bounds import size as size_of
from holdfast.acks.format import (
    BODY,
    CHECKED,
    HEAD,
    MAX_BODY_BYTES,
    MAX_TEXT_BYTES,
    OFFSET_BYTES,
    RECORD_MAGIC,
    Kind,
)
from holdfast.acks.records import BatchRecord, OutcomeRecord, Record
from holdfast.errors import InputError

_crc = crc32c.crc32c
_encode = msgspec.msgpack.Encoder().encode
MAX_NACKED: Final = 1 << 20  # offsets of ranges that are nacked at once: each is counted by itself


def encode_record(record: Record, *, epoch: int, now_ns: int) -> list[bytes]:
    """The record's bytes; several records where one could not hold all entries."""
    if isinstance(record, OutcomeRecord):
        return list(_encode_outcome(record, epoch, now_ns))
    if isinstance(record, BatchRecord):
        bounds = ranges_array(record.ranges)
        pairs = joined(bounds[:, 0], bounds[:, 1]).reshape(-1, 2).tolist()
        return [_encode_document(Kind.BATCH, _encode((record.id, pairs)), epoch, now_ns, f"{len(pairs)} ranges")]
    return [_encode_document(Kind.ANSWER, _encode((record.id, record.status)), epoch, now_ns, "a status")]


def _encode_outcome(record: OutcomeRecord, epoch: int, now_ns: int) -> Iterator[bytes]:
    text = _cut(record.reason) if record.reason else b""
    entries, kind = record.entries, Kind.OFFSETS
    if record.is_ranges:
        if record.outcome.is_final:
            kind = Kind.RANGES
        else:  # a retry is counted for each offset
            entries = _offsets(entries)
    each = OFFSET_BYTES * entries.ndim
    most = (MAX_BODY_BYTES - BODY.size - len(text)) // each
    for start in range(0, len(entries), most):
        part = entries[start : start + most]
        head = BODY.pack(kind, record.outcome, len(text), record.subscriber, epoch, len(part), now_ns)
        yield _seal(head + text + part.astype("<u8", copy=False).tobytes())


def _offsets(ranges: Bounds) -> Bounds:
    bounds = joined(ranges[:, 0], ranges[:, 1])
    if size_of(bounds) > MAX_NACKED:
        raise InputError(f"{size_of(bounds)} offsets to be retried in one record; {MAX_NACKED} at most")
    return np.concatenate([np.arange(first, end, dtype=np.uint64) for first, end in bounds.reshape(-1, 2).tolist()])


def _encode_document(kind: Kind, document: bytes, epoch: int, now_ns: int, what: str) -> bytes:
    body = BODY.pack(kind, 0, 0, 0, epoch, 1, now_ns) + document
    if len(body) > MAX_BODY_BYTES:  # in two records it could be torn in two, and answered for the half that is left
        raise InputError(f"a batch with {what} takes {len(body)} bytes; {MAX_BODY_BYTES} at most: close it earlier")
    return _seal(body)


def _seal(body: bytes) -> bytes:
    return HEAD.pack(RECORD_MAGIC, _crc(body, _crc(CHECKED.pack(len(body)))), len(body)) + body


def _cut(reason: str) -> bytes:
    """As much of the text as may stand in a record; never half a character."""
    text = reason.encode(errors="replace")
    return text if len(text) <= MAX_TEXT_BYTES else text[:MAX_TEXT_BYTES].decode(errors="ignore").encode()
