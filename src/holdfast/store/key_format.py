r"""The bytes of the key log: `<topic>/keys/0000000000000003.keys`, one file for each generation.

A file begins with what was carried over from the generation before, written whole before it got its name:

     0  8s   magic "HFKEYS\r\n"
     8  u16  version;  u16 0
    12  u32  voids among the carried records
    16  u64  generation, as in the name
    24  u64  follows: the length of the generation before, all of which was carried over
    32  u64  carried: where the carried records end
    40  u32  0;  u32 crc32c of bytes 0..44

Then come records, one after the other:

     0  4s   magic "HFky"
     4  u32  crc32c of all that follows in the record
     8  u32  length of the body
    12  u8   kind;  u8 0;  u16 count of entries
    16  u32  voids before this one in this file: so a reader that passed over damage knows whether one was in it
    20  ...  body: `count` entries of 20 bytes, then the bytes of their keys without anything between

     kind           entry: u64             u64          u16     u16
     1  KEYS        offset                 time in ns   shard   length of the key
     2  LOST        first offset           end          shard   0            a void: these offsets hold nothing
     3  RECOVERED   end                    0            shard   0            a void: nothing was kept from here on

A KEYS entry with the offset `UNPLACED` says that a bundle with this key is about to get its place in the shard; the
entry is written again with the offset right after. `WITHDRAWN` says that it got none. Of two entries with the same key
the later one counts. A void is written twice in a row, alike to the last bit. All numbers are little-endian.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

import crc32c

from holdfast.errors import Corruption, NewerVersion

DAMAGED_SUFFIX: Final = ".damaged"
FILE_MAGIC: Final = b"HFKEYS\r\n"
VERSION: Final = 1
RECORD_MAGIC: Final = b"HFky"
UNPLACED: Final = 2**64 - 1
WITHDRAWN: Final = 2**64 - 2
MAX_KEY_BYTES: Final = 256
MAX_ENTRIES: Final = 1000  # of one record: little is lost with a damaged one

_HEADER: Final = struct.Struct("<8sHHIQQQI")
_CHECKSUM: Final = struct.Struct("<I")
HEADER_BYTES: Final = _HEADER.size + _CHECKSUM.size
_PREFIX: Final = struct.Struct("<4sI")
_CHECKED: Final = struct.Struct("<IBBHI")
RECORD_BYTES: Final = _PREFIX.size + _CHECKED.size
_ENTRY: Final = struct.Struct("<QQHH")
_MAX_BODY: Final = MAX_ENTRIES * (_ENTRY.size + MAX_KEY_BYTES)
_NAME: Final = re.compile(r"(\d{16})\.keys")

if (HEADER_BYTES, RECORD_BYTES, _ENTRY.size) != (48, 20, 20):
    raise RuntimeError("the key log's structs do not have the sizes that its format says")


class Kind(IntEnum):
    KEYS = 1
    LOST = 2
    RECOVERED = 3


_KINDS: Final = frozenset(Kind)


class KeyEntry(NamedTuple):
    """A key and its place: a bundle of this shard at this offset (or `UNPLACED`, or `WITHDRAWN`)."""

    key: bytes
    shard: int
    offset: int
    time_ns: int


class Void(NamedTuple):
    """Offsets of a shard at which no bundle is: `first` up to `end`, or all from `first` on when it was recovered."""

    kind: Kind
    shard: int
    first: int
    end: int = 0


Record = Sequence[KeyEntry] | Void


class Found(NamedTuple):
    """A whole record that was read, and where it ends; `voids` are those before it."""

    record: Record
    voids: int
    end: int


class Damage(NamedTuple):
    """Bytes that are no record. At the `tail` no record follows: a crash tore the last write, or worse."""

    start: int
    end: int
    tail: bool


@dataclass(frozen=True, slots=True)
class KeyFileHeader:
    """What a file of the key log says of itself."""

    generation: int
    follows: int
    carried: int
    voids: int

    def encode(self) -> bytes:
        body = _HEADER.pack(FILE_MAGIC, VERSION, 0, self.voids, self.generation, self.follows, self.carried, 0)
        return body + _CHECKSUM.pack(crc32c.crc32c(body))

    @classmethod
    def decode(cls, data: bytes, path: Path) -> KeyFileHeader:
        """Raises `Corruption` or `NewerVersion`."""
        if len(data) < HEADER_BYTES:
            raise Corruption(path, len(data), f"the file ends within its {HEADER_BYTES}-byte header")
        magic, version, zero, voids, generation, follows, carried, zero2 = _HEADER.unpack_from(data)
        if magic != FILE_MAGIC:
            raise Corruption(path, 0, f"not a key log: begins with {magic!r}, expected {FILE_MAGIC!r}")
        (expected,) = _CHECKSUM.unpack_from(data, _HEADER.size)
        found = crc32c.crc32c(data[: _HEADER.size])
        if found != expected or zero or zero2:
            raise Corruption(path, 0, f"file header fails its checksum: found {found:#010x}, expected {expected:#010x}")
        if version > VERSION:
            raise NewerVersion(
                f"{path} is a key log of version {version}; this Holdfast reads up to {VERSION}: upgrade it"
            )
        return cls(generation, follows, carried, voids)


def file_name(generation: int) -> str:
    return f"{generation:016d}.keys"


def generation_of(name: str) -> int | None:
    """The generation in a file's name; `None` if it is no such name."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


def encode_record(record: Record, voids: int) -> bytes:
    if isinstance(record, Void):
        kind, count = record.kind, 1
        body = _ENTRY.pack(record.first, record.end, record.shard, 0)
    else:
        kind, count = Kind.KEYS, len(record)
        parts = [_ENTRY.pack(entry.offset, entry.time_ns, entry.shard, len(entry.key)) for entry in record]
        parts.extend(entry.key for entry in record)
        body = b"".join(parts)
    checked = _CHECKED.pack(len(body), kind, 0, count, voids) + body
    return _PREFIX.pack(RECORD_MAGIC, crc32c.crc32c(checked)) + checked


def read_records(data: bytes) -> Iterator[Found | Damage]:
    """The records in `data`, which begins with one, and what lies between them."""
    position, size = 0, len(data)
    while position < size:
        found = _record_at(data, position)
        if found is not None:
            yield found
            position = found.end
            continue
        start = position
        while found is None and (position := data.find(RECORD_MAGIC, position + 1)) >= 0:
            found = _record_at(data, position)
        if found is None:
            yield Damage(start, size, tail=True)
            return
        yield Damage(start, position, tail=False)


def _record_at(data: bytes, position: int) -> Found | None:
    start = position + _PREFIX.size
    body = position + RECORD_BYTES
    if body > len(data):
        return None
    magic, expected = _PREFIX.unpack_from(data, position)
    length, kind, _, count, voids = _CHECKED.unpack_from(data, start)
    end = body + length
    if magic != RECORD_MAGIC or length > _MAX_BODY or end > len(data) or kind not in _KINDS:
        return None
    if crc32c.crc32c(memoryview(data)[start:end]) != expected:
        return None
    keys = body + count * _ENTRY.size
    entries = _ENTRY.iter_unpack(data[body:keys])
    if kind != Kind.KEYS:
        ((first, stop, shard, _),) = entries
        return Found(Void(Kind(kind), shard, first, stop), voids, end)
    record = []
    for offset, time_ns, shard, size in entries:
        record.append(KeyEntry(data[keys : keys + size], shard, offset, time_ns))
        keys += size
    return Found(record, voids, end)
