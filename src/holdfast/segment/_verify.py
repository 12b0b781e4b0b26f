"""Every byte of a segment, looked at: what fsck asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from holdfast.errors import Corruption
from holdfast.segment._stream import StreamReader
from holdfast.segment.format import FOOTER_SIZE, HEADER_SIZE, Footer, decode_footer, decode_header


def find_damage(buffer: Any, path: Path, footer: Footer, streams: Iterable[StreamReader]) -> list[Corruption]:
    """All damage in header, streams, the zeros between them, meta block and footer; batches must decode."""
    data = memoryview(buffer)
    found: list[Corruption] = []

    def sound(check: Callable[..., object], *arguments: Any) -> bool:
        try:
            check(*arguments)
        except Corruption as damage:
            found.append(damage)
            return False
        return True

    sound(lambda: decode_footer(data, decode_header(data, path), path))
    end = HEADER_SIZE
    for stream in streams:
        entry = stream.entry
        sound(_check_zeros, data, end, entry.position, path)
        parts = [sound(stream.check_frame), sound(stream.check_dictionaries)]
        parts += [sound(stream.check_chunk, chunk) for chunk in range(entry.chunks)]
        if all(parts):
            sound(lambda stream: list(map(stream.reader(), range(stream.entry.chunks))), stream)
        end = entry.position + entry.length
    sound(_check_zeros, data, end, footer.meta_position, path)
    sound(_check_zeros, data, footer.meta_position + footer.meta_length, len(data) - FOOTER_SIZE, path)
    return found


def _check_zeros(data: memoryview, start: int, end: int, path: Path) -> None:
    gap = bytes(data[start:end])
    if any(gap):
        raise Corruption(path, start + len(gap) - len(gap.lstrip(b"\0")), "padding between parts is not zero")
