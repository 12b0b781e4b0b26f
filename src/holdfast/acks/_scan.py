"""Bytes to what they record, and on behind bytes that are damaged."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Final

import crc32c
import msgspec
import numpy as np

from holdfast.acks._bounds import MAX_END, Range
from holdfast.acks._found import Damage, Found
from holdfast.acks.format import (
    BODY,
    CHECKED,
    CHECKED_FROM,
    FILE_HEADER_BYTES,
    HEAD,
    MAX_BODY_BYTES,
    MAX_TEXT_BYTES,
    OFFSET_BYTES,
    RANGE_BYTES,
    RECORD_MAGIC,
    SINGLE,
    FileHeader,
    Kind,
)
from holdfast.acks.outcome import LAST_FINAL, Outcome
from holdfast.acks.records import AnswerRecord, BatchId, BatchRecord, BatchStatus
from holdfast.errors import Corruption

_crc = crc32c.crc32c
_batch = msgspec.msgpack.Decoder(tuple[BatchId, list[Range]]).decode
_answer = msgspec.msgpack.Decoder(tuple[BatchId, BatchStatus]).decode
_single = SINGLE.unpack_from
_SINGLE_BYTES: Final = SINGLE.size
_SINGLE_SHAPE: Final = CHECKED.pack(BODY.size + OFFSET_BYTES) + bytes([Kind.OFFSETS])
_OUTCOMES: Final = frozenset(int(outcome) for outcome in Outcome)
_TORN: Final = "a record that is not whole"


class AckScan:
    """A scan of one file that can go on as the file grows. It never counts more as final than was written.

    A record that fails its checksum is passed over up to the next one that is whole. One that is only cut short at
    the end of the data may still be being written, and is waited for, unless the file is `settled`: nobody can be
    writing to it. Whole records behind it show that nobody is writing it any more, too.
    """

    def __init__(self, path: Path, number: int, shard_id: bytes) -> None:
        self.path, self.number = path, number
        self._shard_id = shard_id
        self.position = 0  # everything before it was read
        self._damaged_from: int | None = None  # where damage began whose end has not been found
        self._foreign = False  # the header says that this is another file
        self._reported = False

    @property
    def is_untouched(self) -> bool:
        """Whether there is a whole header, and nothing behind it."""
        return self.position == FILE_HEADER_BYTES and not self._reported

    def advance(self, data: bytes, found: Found, *, settled: bool) -> None:
        """Read on in `data`, the file from `position` on; raises `NewerVersion`."""
        start = 0
        if self.position == 0:
            if len(data) < FILE_HEADER_BYTES and not settled:
                return
            self._header(data, found)
            start = min(FILE_HEADER_BYTES, len(data))
        self.position += self._records(data, start, found, settled=settled) if not self._foreign else len(data)

    def _header(self, data: bytes, found: Found) -> None:
        """A damaged header is reported; the records behind it have checksums of their own, and count."""
        try:
            header = FileHeader.decode(data, self.path)
        except Corruption as problem:
            self._report(found, 0, min(FILE_HEADER_BYTES, len(data)), problem.what)
            return
        if (header.number, header.shard_id) != (self.number, self._shard_id):
            self._foreign = True
            what = f"this is file {header.number} of shard {header.shard_id.hex()}"
            expected = f"expected file {self.number} of shard {self._shard_id.hex()}; nothing in it counts"
            self._report(found, 0, len(data), f"{what}, {expected}")

    def _records(self, data: bytes, at: int, found: Found, *, settled: bool) -> int:
        """Gather records from `data[at:]`; where the next one begins or will begin."""
        view, size, records = memoryview(data), len(data), found.records
        starts = ends = array("Q")
        run_key = -1
        while at < size:
            if at + _SINGLE_BYTES <= size:
                # Nearly all records are of one offset: this way through is the short one.
                magic, checksum, shape, outcome, text, subscriber, _, count, _, offset = _single(data, at)
                if (
                    shape == _SINGLE_SHAPE
                    and count == 1
                    and not text
                    and magic == RECORD_MAGIC
                    and _crc(view[at + CHECKED_FROM : at + _SINGLE_BYTES]) == checksum
                    and offset < MAX_END
                    and outcome in _OUTCOMES
                ):
                    if self._damaged_from is not None:
                        self._end_damage(found, at)
                    if run_key != subscriber << 8 | outcome:
                        run_key = subscriber << 8 | outcome
                        _, starts, ends = found.run(subscriber, outcome)
                    starts.append(offset)
                    ends.append(offset + 1)
                    records += 1
                    at += _SINGLE_BYTES
                    continue
            end = self._whole(view, at)
            if end is None:
                behind, hopeful = self._next_whole(data, view, at)
                if behind is None and not settled:
                    if hopeful > at and self._damaged_from is None:
                        self._damaged_from = self.position + at
                    at = hopeful
                    break
                if self._damaged_from is None:
                    self._damaged_from = self.position + at
                at = size if behind is None else behind
                self._end_damage(found, at)
                continue
            if self._damaged_from is not None:
                self._end_damage(found, at)
            self._record(view[at + HEAD.size : end], at, found)
            run_key = -1
            records += 1
            at = end
        found.records = records
        return at

    def _whole(self, view: memoryview, at: int) -> int | None:
        """Where the record that begins here ends; `None` if there is none, or not all of it."""
        if len(view) - at < HEAD.size:
            return None
        magic, checksum, length = HEAD.unpack_from(view, at)
        end = int(at + HEAD.size + length)
        if magic != RECORD_MAGIC or not BODY.size <= length <= MAX_BODY_BYTES or end > len(view):
            return None
        return end if _crc(view[at + CHECKED_FROM : end]) == checksum else None

    def _next_whole(self, data: bytes, view: memoryview, at: int) -> tuple[int | None, int]:
        """Where the next whole record begins; and where the first one does that may yet become whole."""
        hopeful = at if self._may_become_whole(view, at) else None
        place = at
        while (place := data.find(RECORD_MAGIC, place + 1)) >= 0:
            if self._whole(view, place) is not None:
                return place, place
            if hopeful is None and self._may_become_whole(view, place):
                hopeful = place
        return None, max(at, len(data) - len(RECORD_MAGIC) + 1) if hopeful is None else hopeful

    def _may_become_whole(self, view: memoryview, at: int) -> bool:
        """Whether this is the beginning of a record, cut short by the end of the data."""
        begun = bytes(view[at : at + len(RECORD_MAGIC)])
        if not RECORD_MAGIC.startswith(begun):
            return False
        if len(view) - at < HEAD.size:
            return True
        length = HEAD.unpack_from(view, at)[2]
        return bool(BODY.size <= length <= MAX_BODY_BYTES and at + HEAD.size + length > len(view))

    def _record(self, body: memoryview, at: int, found: Found) -> None:
        """One whole record. If what it says makes no sense it counts for nothing, and is reported as damage."""
        kind, outcome, text_length, subscriber, _, count, _ = BODY.unpack_from(body)
        entries = body[BODY.size + text_length :]
        problem: str | None
        if kind in (Kind.BATCH, Kind.ANSWER):
            problem = _document(kind, entries, found)
        else:
            problem = _outcomes(kind, outcome, subscriber, count, entries, found)
        if problem is None and text_length:
            problem = _text(body[BODY.size : BODY.size + text_length])
        if problem is not None:
            self._report(found, self.position + at, HEAD.size + len(body), problem)

    def _end_damage(self, found: Found, at: int) -> None:
        start, self._damaged_from = self._damaged_from, None
        if start is not None:
            self._report(found, start, self.position + at - start, _TORN)

    def _report(self, found: Found, position: int, length: int, what: str) -> None:
        self._reported = True
        found.damage.append(Damage(str(self.path), position, length, what))


def _text(text: memoryview) -> str | None:
    try:
        str(text, "utf-8")
    except UnicodeDecodeError:
        return "a reason that is not UTF-8; its outcomes count"
    return None if len(text) <= MAX_TEXT_BYTES else f"a reason of {len(text)} bytes; its outcomes count"


def _outcomes(kind: int, outcome: int, subscriber: int, count: int, entries: memoryview, found: Found) -> str | None:
    if kind not in (Kind.OFFSETS, Kind.RANGES):
        return f"a record of unknown kind {kind}"
    if outcome not in _OUTCOMES or (kind == Kind.RANGES and outcome > LAST_FINAL):
        return f"outcome {outcome} in a record of {Kind(kind).name.lower()}"
    each = OFFSET_BYTES if kind == Kind.OFFSETS else RANGE_BYTES
    if not count or len(entries) != count * each:
        return f"{len(entries)} bytes for {count} entries of {each} bytes"
    numbers = np.frombuffer(entries, "<u8")
    if kind == Kind.OFFSETS:
        if numbers.max() >= MAX_END:
            return f"offset {numbers.max()}, expected one below {MAX_END}"
        found.add(subscriber, outcome, numbers, numbers + np.uint64(1))
    else:
        starts, ends = numbers[0::2], numbers[1::2]
        if ends.max() > MAX_END or not (starts < ends).all():
            return f"a range that is empty or goes beyond {MAX_END}"
        found.add(subscriber, outcome, starts, ends)
    return None


def _document(kind: int, entries: memoryview, found: Found) -> str | None:
    record: BatchRecord | AnswerRecord
    try:
        if kind == Kind.BATCH:
            batch, ranges = _batch(entries)
            if not all(0 <= first < end <= MAX_END for first, end in ranges):
                return f"a batch with a range that is empty or goes beyond {MAX_END}"
            record = BatchRecord(batch, ranges)
        else:
            record = AnswerRecord(*_answer(entries))
    except msgspec.MsgspecError as problem:
        return f"a record of kind {Kind(kind).name.lower()} that says nothing: {problem}"
    found.batches.append(record)
    return None


def scan_bytes(data: bytes, path: Path, number: int, shard_id: bytes, *, settled: bool = True) -> tuple[AckScan, Found]:
    """A whole file at once."""
    scan, found = AckScan(path, number, shard_id), Found()
    scan.advance(data, found, settled=settled)
    return scan, found
