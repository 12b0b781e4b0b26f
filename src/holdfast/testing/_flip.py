"""Damage on purpose."""

from __future__ import annotations

from pathlib import Path

from holdfast.files import Files


def flip_bit(files: Files, path: Path, bit_index: int) -> None:
    """Invert one bit of a file in place: bit `bit_index % 8` (lowest first) of byte `bit_index // 8`."""
    position, bit = divmod(bit_index, 8)
    size = files.size(path)
    if not 0 <= position < size:
        raise ValueError(f"{path} has bits 0 to {size * 8 - 1}; there is no bit {bit_index}")
    byte = files.read(path, position, 1)[0]
    file = files.open(path)
    try:
        file.write_at(position, bytes([byte ^ (1 << bit)]))
    finally:
        file.close()
