"""The fixed parts of a segment file: its name, its header, its footer, and what they promise each other."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import crc32c

from holdfast.errors import Corruption, NewerVersion
from holdfast.files import Files

VERSION: Final = 1
MAGIC: Final = b"HFSEG\r\n\0"
END_MAGIC: Final = b"HFSEGEND"
SUFFIX: Final = ".seg"
SHARD_ID_SIZE: Final = 16
ALIGNMENT: Final = 64  # of each stream and of the meta block: a cache line, and what Arrow recommends for buffers

_HEADER: Final = struct.Struct("<8sHHIQQ16s12sI")
_FOOTER: Final = struct.Struct("<QQIIQQQHHI8s")
HEADER_SIZE: Final = _HEADER.size
FOOTER_SIZE: Final = _FOOTER.size
_HEADER_CHECKED: Final = HEADER_SIZE - 4  # the checksum is the header's last field
_FOOTER_CHECKED: Final = FOOTER_SIZE - 12  # the checksum stands before the magic, and covers the magic too
if HEADER_SIZE != ALIGNMENT or FOOTER_SIZE != ALIGNMENT:  # so that the first stream needs no padding
    raise RuntimeError("header and footer must be exactly one alignment unit")

_NAME: Final = re.compile(r"(\d{16})-(\d{20})\.seg")


@dataclass(frozen=True, slots=True)
class Header:
    """Whose bundles these are."""

    segment_seq: int
    first_offset: int
    bundle_count: int
    shard_id: bytes


@dataclass(frozen=True, slots=True)
class Footer:
    """Where the meta block is, and the numbers of the header once more."""

    meta_position: int
    meta_length: int
    meta_checksum: int
    segment_seq: int
    first_offset: int
    bundle_count: int
    file_size: int


def segment_name(segment_seq: int, first_offset: int) -> str:
    """The file name; names sort as the segments do."""
    return f"{segment_seq:016d}-{first_offset:020d}{SUFFIX}"


def parse_segment_name(name: str) -> tuple[int, int] | None:
    """`(segment_seq, first_offset)`, or `None` if the name is not a segment's."""
    match = _NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def padding(size: int, alignment: int = ALIGNMENT) -> int:
    """How many bytes are missing to the next multiple of `alignment`."""
    return -size % alignment


def encode_header(header: Header) -> bytes:
    fields = _HEADER.pack(
        MAGIC,
        VERSION,
        0,
        header.bundle_count,
        header.segment_seq,
        header.first_offset,
        header.shard_id,
        b"",
        0,
    )[:_HEADER_CHECKED]
    return fields + struct.pack("<I", crc32c.crc32c(fields))


def encode_footer(footer: Footer) -> bytes:
    fields = struct.pack(
        "<QQIIQQQHH",
        footer.meta_position,
        footer.meta_length,
        footer.meta_checksum,
        footer.bundle_count,
        footer.segment_seq,
        footer.first_offset,
        footer.file_size,
        VERSION,
        0,
    )
    return fields + struct.pack("<I", crc32c.crc32c(END_MAGIC, crc32c.crc32c(fields))) + END_MAGIC


def decode_header(data: memoryview, path: Path) -> Header:
    """The header of the file in `data`; every version keeps these 64 bytes, so that a newer one is known."""
    if bytes(data[:8]) != MAGIC:
        raise Corruption(path, 0, f"not a segment: begins with {bytes(data[:8])!r}, expected {MAGIC!r}")
    if len(data) < HEADER_SIZE + FOOTER_SIZE:
        raise Corruption(
            path, 0, f"segment is cut short: {len(data)} bytes, expected at least {HEADER_SIZE + FOOTER_SIZE}"
        )
    _, version, reserved, count, seq, first, shard_id, rest, checksum = _HEADER.unpack_from(data)
    require_checksum(path, 0, "segment header", data[:_HEADER_CHECKED], checksum)
    if version > VERSION:
        raise NewerVersion(f"{path} is a segment of version {version}; this Holdfast reads up to {VERSION}: upgrade it")
    if reserved or any(rest):
        raise Corruption(path, 0, "segment header has bytes set that version 1 leaves zero")
    return Header(seq, first, count, shard_id)


def read_header(files: Files, path: Path) -> Header:
    """The header of a segment file, without a look at the rest."""
    return decode_header(memoryview(files.read(path, 0, HEADER_SIZE + FOOTER_SIZE)), path)


def decode_footer(data: memoryview, header: Header, path: Path) -> Footer:
    """The footer of the file in `data`, checked against the header and the file's length."""
    at = len(data) - FOOTER_SIZE
    meta_at, meta_length, meta_checksum, count, seq, first, size, _version, _zero, checksum, magic = (
        _FOOTER.unpack_from(data, at)
    )
    if magic != END_MAGIC:
        raise Corruption(path, at, f"segment is cut short or overwritten: ends with {magic!r}, expected {END_MAGIC!r}")
    found = crc32c.crc32c(END_MAGIC, crc32c.crc32c(data[at : at + _FOOTER_CHECKED]))
    if found != checksum:
        raise Corruption(path, at, f"segment footer fails its checksum: found {found:#010x}, expected {checksum:#010x}")
    if size != len(data):
        raise Corruption(path, at, f"segment has {len(data)} bytes, its footer says {size}")
    if (seq, first, count) != (header.segment_seq, header.first_offset, header.bundle_count):
        raise Corruption(
            path,
            at,
            f"footer is of segment {seq}, first offset {first}, {count} bundles; the header is of segment "
            f"{header.segment_seq}, first offset {header.first_offset}, {header.bundle_count} bundles",
        )
    if meta_at < HEADER_SIZE or meta_at % ALIGNMENT or meta_at + meta_length > at:
        raise Corruption(path, at, f"meta block of {meta_length} bytes at {meta_at} does not lie inside the segment")
    require_checksum(path, meta_at, "meta block", data[meta_at : meta_at + meta_length], meta_checksum)
    return Footer(meta_at, meta_length, meta_checksum, seq, first, count, size)


def require_checksum(path: Path, position: int, what: str, data: Any, expected: int) -> None:
    """Raise `Corruption` unless the CRC32C of `data`, which stands at `position`, is `expected`."""
    found = crc32c.crc32c(data)
    if found != expected:
        raise Corruption(path, position, f"{what} fails its checksum: found {found:#010x}, expected {expected:#010x}")
