r"""Checkpoints: small documents under a checksum, replaced whole.

     0                8         10       12       16       20                    20 + length
     +----------------+---------+--------+--------+--------+---------------------+
     | "HFCKPT\r\n"   | version | 0      | length | crc32c | JSON, UTF-8         |
     +----------------+---------+--------+--------+--------+---------------------+
       8 bytes          u16       u16      u32      u32      the checksum is over bytes 8 to 15 and the JSON

Numbers are little-endian. Nothing may follow the JSON. The magic ends in CR LF so that a transfer that
mangles line ends is seen. Each checkpoint file has one component that writes it.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, Final

import crc32c

from holdfast.errors import Corruption, NewerVersion
from holdfast.files._atomic import replace_file
from holdfast.files._protocol import Files

MAGIC: Final = b"HFCKPT\r\n"
VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sHHI")
_CHECKSUM: Final = struct.Struct("<I")
_BODY_START: Final = _HEAD.size + _CHECKSUM.size


def encode_checkpoint(document: dict[str, Any]) -> bytes:
    """The bytes of a checkpoint file; keys are sorted, so equal documents give equal bytes."""
    body = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    head = _HEAD.pack(MAGIC, VERSION, 0, len(body))
    return head + _CHECKSUM.pack(_checksum(head, body)) + body


def decode_checkpoint(data: bytes, path: Path) -> dict[str, Any]:
    """The document in `data`; raises `Corruption` or `NewerVersion`, naming `path`."""
    if len(data) < _BODY_START or data[: len(MAGIC)] != MAGIC:
        raise Corruption(path, 0, f"not a checkpoint: begins with {data[: len(MAGIC)]!r}, expected {MAGIC!r}")
    _, version, reserved, length = _HEAD.unpack_from(data)
    (expected,) = _CHECKSUM.unpack_from(data, _HEAD.size)
    body = data[_BODY_START:]
    found = _checksum(data[: _HEAD.size], body)
    if found != expected:
        what = f"checkpoint fails its checksum: found {found:#010x}, expected {expected:#010x}"
        raise Corruption(path, _HEAD.size, what)
    if version > VERSION:
        raise NewerVersion(
            f"{path} is a checkpoint of version {version}; this Holdfast reads up to {VERSION}: upgrade it"
        )
    if length != len(body) or reserved:
        what = f"checkpoint says {length} bytes and {reserved} in a reserved field; found {len(body)} bytes"
        raise Corruption(path, _HEAD.size - 4, f"{what}, expected as many and 0")
    document: dict[str, Any] = json.loads(body)
    return document


def _checksum(head: bytes, body: bytes) -> int:
    return int(crc32c.crc32c(body, crc32c.crc32c(head[len(MAGIC) :])))


def write_checkpoint(files: Files, path: Path, document: dict[str, Any]) -> None:
    """Replace the checkpoint at `path`; on return it is durable."""
    replace_file(files, path, [encode_checkpoint(document)])


def read_checkpoint(files: Files, path: Path) -> dict[str, Any]:
    """Read the checkpoint at `path`; raises `FileNotFoundError` if there is none."""
    return decode_checkpoint(files.read(path), path)
