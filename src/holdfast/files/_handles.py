"""Open files of the real filesystem: one writer's, one that many append to, one that is mapped."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.files._native import BINARY, append_once, linux, sync_descriptor, write_at
from holdfast.files._protocol import Bytes

_IOV_MAX: Final = 1024  # Linux and macOS take at most this many buffers in one writev
_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE
_RANGE_WRITE: Final = 2  # SYNC_FILE_RANGE_WRITE

_fallocate: Final = linux("fallocate", ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_sync_file_range: Final = linux("sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def _write_all_at(descriptor: int, buffers: Sequence[Bytes], position: int) -> int:
    """Write some of `buffers` (at most `_IOV_MAX`) at `position` and return how much."""
    if hasattr(os, "pwritev"):
        return os.pwritev(descriptor, buffers, position)
    return write_at(descriptor, buffers[0], position)


def _after(buffers: Sequence[Bytes], count: int) -> list[Bytes]:
    """What is left of `buffers` behind their first `count` bytes; empty ones are passed over."""
    for place, buffer in enumerate(buffers):
        size = memoryview(buffer).nbytes
        if count < size:
            return [memoryview(buffer).cast("B")[count:], *buffers[place + 1 :]]
        count -= size
    return []


class _Handle:
    """A descriptor with its path."""

    def __init__(self, path: Path, flags: int) -> None:
        self._path = path
        self._descriptor = os.open(path, flags | BINARY, 0o644)

    @property
    def path(self) -> Path:
        return self._path

    def sync(self) -> None:
        if self._descriptor < 0:  # Python would raise a ValueError of its own
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self._path))
        sync_descriptor(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class SystemFile(_Handle):
    """Knows its own end: nobody else appends to the file."""

    def __init__(self, path: Path, flags: int) -> None:
        super().__init__(path, flags | os.O_RDWR)
        self._end = os.fstat(self._descriptor).st_size

    def append(self, buffers: Sequence[Bytes]) -> int:
        """One `pwritev` for each thousand buffers; a short write goes on where it stopped."""
        started = self._end
        for first in range(0, len(buffers), _IOV_MAX):
            rest: Sequence[Bytes] = buffers[first : first + _IOV_MAX]
            while rest:
                written = _write_all_at(self._descriptor, rest, self._end)
                self._end += written
                rest = _after(rest, written)
        return self._end - started

    def write_at(self, position: int, data: Bytes) -> None:
        rest: Sequence[Bytes] = [data]
        while rest:
            written = write_at(self._descriptor, rest[0], position)
            position += written
            rest = _after(rest, written)
        self._end = max(self._end, position)

    def preallocate(self, size: int) -> None:
        """Keeps the length: readers see data only, and syncs need not grow the file block by block."""
        if _fallocate is None:
            return
        if _fallocate(self._descriptor, _KEEP_SIZE, 0, size) != 0:
            code = ctypes.get_errno()
            if code not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise OSError(code, os.strerror(code), str(self._path))

    def seek(self, position: int) -> None:
        self._end = position

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._end = size

    def start_sync(self) -> None:
        if _sync_file_range is not None:
            _sync_file_range(self._descriptor, 0, 0, _RANGE_WRITE)  # a hint: whether it worked, `sync` will tell


class SystemSharedFile(_Handle):
    """Leaves it to the system to find the end, at each append anew."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, os.O_WRONLY | os.O_APPEND)

    def append(self, buffers: Sequence[Bytes]) -> int:
        """Joined first: more buffers than one call takes would be several calls."""
        data = b"".join(buffers)
        if data and (written := append_once(self._descriptor, data)) < len(data):
            # No more fitted in: a file comes to take less for hardly another reason, and the rest would be torn off.
            what = f"only {written} of {len(data)} bytes fitted in: make room, then append them again"
            raise OSError(errno.ENOSPC, what, str(self._path))
        return len(data)


class SystemMappedFile:
    """A file as memory."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b", buffering=0) as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def write_at(self, position: int, data: bytes) -> None:
        self._map[position : position + len(data)] = data

    def sync(self) -> None:
        self._map.flush()

    def close(self) -> None:
        self._map.close()
