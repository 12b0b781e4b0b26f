"""Structs, the file header and the file names; the drawing is in the package's docstring."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import crc32c

from holdfast.errors import Corruption, NewerVersion
from holdfast.files import Files

FILE_MAGIC: Final = b"HFWAL\r\n\0"
VERSION: Final = 1
SCHEMA_MAGIC: Final = b"HFrs"
BUNDLE_MAGIC: Final = b"HFrb"
HAS_EVENT_TIME: Final = 1

FILE_HEADER: Final = struct.Struct("<8sHHI16sQQQQqI")
FILE_HEADER_BYTES: Final = FILE_HEADER.size + 4
PREFIX: Final = struct.Struct("<4sIIIHHIQQQ")
PREFIX_START: Final = struct.Struct("<4sII")  # magic, salt, checksum; the checksum covers everything after it
PREFIX_CHECKED: Final = struct.Struct("<IHHIQQQ")
SCHEMA_REST: Final = struct.Struct("<16sII")
BUNDLE_REST: Final = struct.Struct("<QIIqqq")
SLOT: Final = struct.Struct("<HBBIQQ16s")
CHECKED_FROM: Final = PREFIX_START.size

SCHEMA_HEADER_BYTES: Final = PREFIX.size + SCHEMA_REST.size
BUNDLE_FIXED_BYTES: Final = PREFIX.size + BUNDLE_REST.size

_RELATIONS = (
    FILE_HEADER_BYTES == 80,
    PREFIX.size == PREFIX_START.size + PREFIX_CHECKED.size == 48,
    SCHEMA_HEADER_BYTES == 72,
    BUNDLE_FIXED_BYTES == 88,
    SLOT.size == 40,
)
if not all(_RELATIONS):
    raise RuntimeError("the WAL's structs do not have the sizes that its format says")


class WalName(NamedTuple):
    """A WAL file's name, taken apart; sorts by generation, which is the order of writing."""

    generation: int
    first_offset: int

    @classmethod
    def parse(cls, name: str) -> WalName | None:
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[2]), int(match[1]))

    def __str__(self) -> str:
        return f"{self.first_offset:020d}-{self.generation:010d}.wal"


_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.wal")


def list_wal(files: Files, folder: Path) -> list[WalName]:
    """The WAL files in a folder, in the order in which they were written."""
    return sorted(name for text in files.list(folder) if (name := WalName.parse(text)) is not None)


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What a WAL file says of itself."""

    salt: int
    shard_id: bytes
    generation: int
    first_offset: int
    next_segment_seq: int
    supersedes: int
    created_ns: int

    def encode(self) -> bytes:
        body = FILE_HEADER.pack(
            FILE_MAGIC, VERSION, 0, self.salt, self.shard_id, self.generation,
            self.first_offset, self.next_segment_seq, self.supersedes, self.created_ns, 0,
        )  # fmt: skip
        return body + struct.pack("<I", crc32c.crc32c(body))

    @classmethod
    def decode(cls, data: Any, path: Path) -> FileHeader:
        """Raises `Corruption` (also for a file that ends within its header) or `NewerVersion`."""
        head = bytes(memoryview(data)[:FILE_HEADER_BYTES])
        if len(head) < FILE_HEADER_BYTES:
            raise Corruption(path, len(head), f"the file ends within its {FILE_HEADER_BYTES}-byte header")
        magic, version, zero, salt, shard_id, generation, first, seq, supersedes, created, zero2 = (
            FILE_HEADER.unpack_from(head)
        )
        if magic != FILE_MAGIC:
            raise Corruption(path, 0, f"not a WAL file: begins with {magic!r}, expected {FILE_MAGIC!r}")
        (expected,) = struct.unpack_from("<I", head, FILE_HEADER.size)
        found = crc32c.crc32c(head[: FILE_HEADER.size])
        if found != expected or zero or zero2:
            raise Corruption(path, 0, f"file header fails its checksum: found {found:#010x}, expected {expected:#010x}")
        if version > VERSION:
            raise NewerVersion(f"{path} is a WAL of version {version}; this Holdfast reads up to {VERSION}: upgrade it")
        return cls(salt, shard_id, generation, first, seq, supersedes, created)
