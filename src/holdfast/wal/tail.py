"""The `tail` file: how far other processes may read.

Two slots of 64 bytes, written in turn, so that a reader finds at least one whole:

     0  8s   magic "HFTAIL\\r\\n"
     8  u16  version;  u16 0;  u32 0
    16  u64  turn: the slot with the higher one counts
    24  u64  durable: every offset below it is durable
    32  u64  sealed: every offset below it is in segments (or was trimmed)
    40  u64  schemas: how many distinct schemas this writer has seen
    48  u64  0
    56  u32  0;  u32 crc32c of bytes 0..60

It is a lower bound: it is written after each sync, before the receipts resolve, and is itself synced only when the
shard is opened and closed. Recovery derives the truth from the WAL and the segments.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple

import crc32c

from holdfast.errors import Corruption, NewerVersion
from holdfast.files import Files, MappedFile, replace_file

MAGIC: Final = b"HFTAIL\r\n"
VERSION: Final = 1
_SLOT: Final = struct.Struct("<8sHHIQQQQQII")
_CHECKED: Final = 60
SLOT_BYTES: Final = 64
TAIL_BYTES: Final = 2 * SLOT_BYTES

if _SLOT.size != SLOT_BYTES:
    raise RuntimeError("the tail's struct does not have the size that its format says")


class Tail(NamedTuple):
    """What a writer tells other processes."""

    durable: int = 0
    sealed: int = 0
    schemas: int = 0
    turn: int = 0


def _encode(tail: Tail) -> bytes:
    data = _SLOT.pack(MAGIC, VERSION, 0, 0, tail.turn, tail.durable, tail.sealed, tail.schemas, 0, 0, 0)
    return data[:_CHECKED] + struct.pack("<I", crc32c.crc32c(data[:_CHECKED]))


def decode_slot(data: bytes, path: Path) -> Tail | None:
    if len(data) < SLOT_BYTES or data[:8] != MAGIC:
        return None
    _, version, _, _, turn, durable, sealed, schemas, _, _, checksum = _SLOT.unpack(data)
    if crc32c.crc32c(data[:_CHECKED]) != checksum:
        return None
    if version > VERSION:
        raise NewerVersion(f"{path} is of version {version}; this Holdfast reads up to {VERSION}: upgrade it")
    return Tail(durable, sealed, schemas, turn)


def check_tail(data: bytes, path: Path) -> list[str]:
    """What is wrong with the two slots, for fsck; one torn slot is what a crash may leave."""
    return [
        f"slot {index} is not whole"
        for index in range(2)
        if decode_slot(data[index * SLOT_BYTES : (index + 1) * SLOT_BYTES], path) is None
    ]


def read_tail(files: Files, path: Path) -> Tail:
    """The newest whole slot; raises `FileNotFoundError`, or `Corruption` when neither slot is whole."""
    data = files.read(path, 0, TAIL_BYTES)
    slots = [decode_slot(data[start : start + SLOT_BYTES], path) for start in (0, SLOT_BYTES)]
    whole = [slot for slot in slots if slot is not None]
    if not whole:
        raise Corruption(path, 0, f"neither of the two slots is whole ({len(data)} bytes)")
    return max(whole, key=lambda slot: slot.turn)


class TailFile:
    """The writer's end of the file."""

    def __init__(self, files: Files, path: Path, start: Tail) -> None:
        """Write the file anew with `start` in both slots, durably, and keep it open."""
        self._turn = start.turn + 2
        slots = [_encode(start._replace(turn=self._turn - 1)), _encode(start._replace(turn=self._turn))]
        replace_file(files, path, slots if self._turn % 2 else slots[::-1])
        self._file: MappedFile = files.open_mapped(path)

    def write(self, durable: int, sealed: int, schemas: int) -> None:
        """Overwrite the older slot."""
        self._turn += 1
        slot = (self._turn % 2) * SLOT_BYTES
        self._file.write_at(slot, _encode(Tail(durable, sealed, schemas, self._turn)))

    def close(self) -> None:
        self._file.sync()
        self._file.close()
