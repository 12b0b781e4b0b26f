"""A file's bytes as an immutable value, cheap to change and to compare.

A change makes a new value that shares every untouched chunk with the old one. So thousands of crash states
of one disk cost little more than the disk itself, and a chunk's digest is worked out once, whoever shares it.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import Final

CHUNK_BYTES: Final = 16 * 1024


class _Chunk:
    """Some bytes and, once asked for, their digest."""

    __slots__ = ("_digest", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        if self._digest is None:
            self._digest = hashlib.blake2b(self.data, digest_size=16).digest()
        return self._digest


_ZEROS: Final = _Chunk(bytes(CHUNK_BYTES))


class Content:
    """The bytes of a file at one moment; every chunk but the last is full."""

    __slots__ = ("_chunks", "_digest", "size")

    def __init__(self, chunks: tuple[_Chunk, ...], size: int) -> None:
        self._chunks = chunks
        self._digest: bytes | None = None
        self.size = size

    @classmethod
    def of(cls, data: bytes) -> Content:
        return EMPTY.write(0, data)

    @property
    def digest(self) -> bytes:
        """The same for the same bytes, in every process."""
        if self._digest is None:
            joined = b"".join([chunk.digest for chunk in self._chunks])
            self._digest = hashlib.blake2b(joined, digest_size=16, salt=self.size.to_bytes(8, "little")).digest()
        return self._digest

    def read(self, start: int = 0, length: int | None = None) -> bytes:
        end = self.size if length is None else min(self.size, start + length)
        if start >= end:
            return b""
        first, last = start // CHUNK_BYTES, (end - 1) // CHUNK_BYTES
        joined = b"".join([chunk.data for chunk in self._chunks[first : last + 1]])
        return joined[start - first * CHUNK_BYTES : end - first * CHUNK_BYTES]

    def write(self, position: int, data: bytes) -> Content:
        """With `data` at `position`; a gap before it is filled with zeros."""
        if not data:
            return self
        base = self if position <= self.size else self.resize(position)
        end = position + len(data)
        first, last = position // CHUNK_BYTES, (end - 1) // CHUNK_BYTES
        old = b"".join([chunk.data for chunk in base._chunks[first : last + 1]])
        at = position - first * CHUNK_BYTES
        touched = _chunked(old[:at] + data + old[at + len(data) :])
        return Content((*base._chunks[:first], *touched, *base._chunks[last + 1 :]), max(base.size, end))

    def resize(self, size: int) -> Content:
        """Cut to `size`, or grown to it with zeros."""
        if size == self.size:
            return self
        whole, rest = divmod(size, CHUNK_BYTES)
        kept = self._chunks[:whole]
        if rest and whole < len(self._chunks):  # the new last chunk exists: cut or pad it
            kept += (_Chunk(self._chunks[whole].data[:rest].ljust(rest, b"\0")),)
        elif size > self.size:
            if kept and len(kept[-1].data) < CHUNK_BYTES:
                kept = (*kept[:-1], _Chunk(kept[-1].data.ljust(CHUNK_BYTES, b"\0")))
            kept += tuple(itertools.repeat(_ZEROS, whole - len(kept)))
            kept += (_Chunk(bytes(rest)),) if rest else ()
        return Content(kept, size)


def _chunked(data: bytes) -> list[_Chunk]:
    return [_Chunk(data[start : start + CHUNK_BYTES]) for start in range(0, len(data), CHUNK_BYTES)]


EMPTY: Final = Content((), 0)
