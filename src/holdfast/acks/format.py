"""Structs, the file header and the file names; the drawing is in the package's docstring."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import crc32c

from holdfast.errors import Corruption, NewerVersion
from holdfast.files import Files

FILE_MAGIC: Final = b"HFACK\r\n\0"
VERSION: Final = 1
# The first byte stands in no UTF-8 text, so that no reason and no identity can look like the beginning of a record.
RECORD_MAGIC: Final = b"\xf5HFa"

FILE_HEADER: Final = struct.Struct("<8sHHIQ16sI")
FILE_HEADER_BYTES: Final = FILE_HEADER.size + 4
HEAD: Final = struct.Struct("<4sII")  # magic, checksum, body length; the checksum covers everything after it
CHECKED: Final = struct.Struct("<I")
BODY: Final = struct.Struct("<BBHIIIq")  # kind, outcome, text length, subscriber, lease epoch, count, time
SINGLE: Final = struct.Struct("<4sI5sBHIIIqQ")  # a whole record of one offset without a text, body length with kind
CHECKED_FROM: Final = HEAD.size - CHECKED.size
OFFSET_BYTES: Final = 8
RANGE_BYTES: Final = 16

MAX_BODY_BYTES: Final = 1 << 20  # 131,000 offsets or 65,000 ranges; longer lists are several records
MAX_TEXT_BYTES: Final = 1 << 10

LOCK: Final = "LOCK"
FOLDER: Final = "acks"  # in the shard's folder
CHECKPOINT: Final = "acks.checkpoint"  # beside it
SUFFIX: Final = ".acks"
DISTRUSTED_SUFFIX: Final = ".distrusted"

_RELATIONS = (
    FILE_HEADER_BYTES == 48,
    HEAD.size == 12,
    BODY.size == 24,
    SINGLE.size == HEAD.size + BODY.size + OFFSET_BYTES,
    BODY.size + MAX_TEXT_BYTES + RANGE_BYTES < MAX_BODY_BYTES,
)
if not all(_RELATIONS):
    raise RuntimeError("the ack log's structs do not have the sizes that its format says")


class Kind(IntEnum):
    """What the entries of a record are."""

    OFFSETS = 1
    RANGES = 2
    BATCH = 3
    ANSWER = 4


_NAME: Final = re.compile(r"(\d{16})\.acks")


def file_name(number: int) -> str:
    return f"{number:016d}{SUFFIX}"


def file_number(name: str) -> int | None:
    """The number in an ack file's name; `None` if it is no such name."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


def list_acks(files: Files, folder: Path) -> list[int]:
    """The numbers of the ack files in a folder, in the order of writing; none if there is no such folder."""
    try:
        names = files.list(folder)
    except FileNotFoundError:
        return []
    return sorted(number for name in names if (number := file_number(name)) is not None)


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What an ack file says of itself."""

    number: int
    shard_id: bytes

    def encode(self) -> bytes:
        body = FILE_HEADER.pack(FILE_MAGIC, VERSION, 0, 0, self.number, self.shard_id, 0)
        return body + CHECKED.pack(crc32c.crc32c(body))

    @classmethod
    def decode(cls, data: Any, path: Path) -> FileHeader:
        """Raises `Corruption` (also for a file that ends within its header) or `NewerVersion`."""
        head = bytes(memoryview(data)[:FILE_HEADER_BYTES])
        if len(head) < FILE_HEADER_BYTES:
            raise Corruption(path, len(head), f"the file ends within its {FILE_HEADER_BYTES}-byte header")
        magic, version, zero, zero2, number, shard_id, zero3 = FILE_HEADER.unpack_from(head)
        if magic != FILE_MAGIC:
            raise Corruption(path, 0, f"not an ack file: begins with {magic!r}, expected {FILE_MAGIC!r}")
        (expected,) = CHECKED.unpack_from(head, FILE_HEADER.size)
        found = crc32c.crc32c(head[: FILE_HEADER.size])
        if found != expected or zero or zero2 or zero3:
            raise Corruption(path, 0, f"file header fails its checksum: found {found:#010x}, expected {expected:#010x}")
        if version > VERSION:
            raise NewerVersion(
                f"{path} is an ack file of version {version}; this Holdfast reads up to {VERSION}: upgrade it"
            )
        return cls(number, shard_id)
