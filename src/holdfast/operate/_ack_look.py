"""An ack file as it is: every record in words, and what is damaged between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import crc32c
import msgspec
import numpy as np

from holdfast.acks import Outcome
from holdfast.acks.format import (
    BODY,
    CHECKED_FROM,
    FILE_HEADER_BYTES,
    HEAD,
    MAX_BODY_BYTES,
    OFFSET_BYTES,
    RANGE_BYTES,
    RECORD_MAGIC,
    FileHeader,
    Kind,
)
from holdfast.errors import Corruption

NO_RECORD: Final = "no whole record begins here"


@dataclass(frozen=True, slots=True)
class AckEntry:
    """One whole record. `ranges` are offsets, the end not included; of a batch, and an answer, there is an identity."""

    position: int
    size: int
    kind: int
    outcome: int
    subscriber: int
    epoch: int
    time_ns: int
    reason: str
    ranges: tuple[tuple[int, int], ...] = ()
    batch: tuple[str, ...] = ()
    status: str = ""

    @property
    def what(self) -> str:
        """Its outcome, or its kind, in a word; of one that makes no sense, its number."""
        names: dict[int, str] = {int(each): each.name.lower() for each in Kind}
        if self.kind in (Kind.BATCH, Kind.ANSWER) or self.kind not in names:
            return names.get(self.kind, f"kind {self.kind}")
        known = {int(each): each.name.lower() for each in Outcome}
        return known.get(self.outcome, f"outcome {self.outcome}")

    @property
    def bundles(self) -> int:
        return sum(end - first for first, end in self.ranges)


@dataclass(slots=True)
class AckLook:
    """What was found in one file."""

    path: Path
    size: int
    header: FileHeader | None = None
    entries: list[AckEntry] = field(default_factory=list)
    damage: list[tuple[int, int, str]] = field(default_factory=list)  # position, length, what
    torn: int | None = None  # where a record begins that the end of the file cuts short


def look_at_acks(data: bytes, path: Path, *, entries: bool = True) -> AckLook:
    """Read all of an ack file; raises `NewerVersion`. Behind damage the next whole record is looked for.

    Without `entries` it is only seen where records begin and end.
    """
    look = AckLook(path, len(data))
    try:
        look.header = FileHeader.decode(data, path)
    except Corruption as problem:
        look.damage.append((0, min(FILE_HEADER_BYTES, len(data)), problem.what))
    at = min(FILE_HEADER_BYTES, len(data))
    while at < len(data):
        end = _whole(data, at)
        if end is None:
            following = next((place for place in _magics(data, at + 1) if _whole(data, place) is not None), None)
            if following is None and _is_cut_short(data, at):
                look.torn = at
                break
            look.damage.append((at, (following or len(data)) - at, NO_RECORD))
            at = following or len(data)
            continue
        try:
            if entries:
                look.entries.append(_entry(data[at + HEAD.size : end], at, end - at))
        except (ValueError, TypeError, msgspec.MsgspecError) as problem:
            look.damage.append((at, end - at, f"a whole record that makes no sense: {problem}"))
        at = end
    return look


def _magics(data: bytes, start: int) -> Iterator[int]:
    while (start := data.find(RECORD_MAGIC, start)) >= 0:
        yield start
        start += 1


def _whole(data: bytes, at: int) -> int | None:
    """Where the record that begins here ends; `None` if there is none, or not all of it."""
    if len(data) - at < HEAD.size:
        return None
    magic, checksum, length = HEAD.unpack_from(data, at)
    end = int(at + HEAD.size + length)
    if magic != RECORD_MAGIC or not BODY.size <= length <= MAX_BODY_BYTES or end > len(data):
        return None
    return end if crc32c.crc32c(memoryview(data)[at + CHECKED_FROM : end]) == checksum else None


def _is_cut_short(data: bytes, at: int) -> bool:
    begun = data[at : at + HEAD.size]
    if len(begun) < HEAD.size:
        return RECORD_MAGIC.startswith(begun[: len(RECORD_MAGIC)])
    magic, _, length = HEAD.unpack(begun)
    return bool(magic == RECORD_MAGIC and BODY.size <= length <= MAX_BODY_BYTES and at + HEAD.size + length > len(data))


def _entry(body: bytes, at: int, size: int) -> AckEntry:
    kind, outcome, text_length, subscriber, epoch, count, time_ns = BODY.unpack_from(body)
    reason = body[BODY.size : BODY.size + text_length].decode(errors="replace")
    entries = body[BODY.size + text_length :]
    ranges: list[tuple[int, int]] = []
    batch: list[str] = []
    status = ""
    if kind == Kind.BATCH:
        batch, ranges = msgspec.msgpack.decode(entries, type=tuple[list[str], list[tuple[int, int]]])
    elif kind == Kind.ANSWER:
        batch, status = msgspec.msgpack.decode(entries, type=tuple[list[str], str])
    elif kind in (Kind.OFFSETS, Kind.RANGES):
        each = OFFSET_BYTES if kind == Kind.OFFSETS else RANGE_BYTES
        if len(entries) != count * each:
            raise ValueError(f"{len(entries)} bytes for {count} entries of {each} bytes")
        ranges = _ranges(np.frombuffer(entries, "<u8"), single=kind == Kind.OFFSETS)
    return AckEntry(at, size, kind, outcome, subscriber, epoch, time_ns, reason, tuple(ranges), tuple(batch), status)


def _ranges(numbers: Any, *, single: bool) -> list[tuple[int, int]]:
    """Offsets that follow each other are one range."""
    pairs = [(each, each + 1) for each in numbers.tolist()] if single else numbers.reshape(-1, 2).tolist()
    joined: list[tuple[int, int]] = []
    for first, end in pairs:
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((first, end))
    return joined
