"""Many rising numbers as a short text, for a checkpoint: their differences, as narrow as they are, compressed."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Final

import numpy as np

from holdfast.acks._bounds import Bounds

_WIDTHS: Final = (1, 2, 4, 8)  # bytes for a difference; the first byte of what is compressed says which


def pack(values: Bounds) -> str:
    """Rising numbers as text; none at all are the empty text."""
    if not len(values):
        return ""
    steps = np.diff(values, prepend=np.uint64(0))
    width = next(width for width in _WIDTHS if int(steps.max()) < 1 << 8 * width)
    return base64.b64encode(zlib.compress(bytes([width]) + steps.astype(f"<u{width}").tobytes(), 1)).decode()


def unpack(text: str) -> Bounds:
    """What `pack` made text of; raises `ValueError` for anything else."""
    if not isinstance(text, str):
        raise ValueError(f"found a {type(text).__name__}, expected packed numbers")
    if not text:
        return np.empty(0, np.uint64)
    try:
        data = zlib.decompress(base64.b64decode(text, validate=True))
    except (binascii.Error, zlib.error) as problem:
        raise ValueError(f"packed numbers cannot be unpacked: {problem}") from None
    if not data or data[0] not in _WIDTHS or (len(data) - 1) % data[0]:
        raise ValueError(f"{len(data)} bytes of packed numbers that begin with {data[:1].hex()}")
    return np.cumsum(np.frombuffer(data, f"<u{data[0]}", offset=1), dtype=np.uint64)
