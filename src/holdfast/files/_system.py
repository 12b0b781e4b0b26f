"""The real filesystem. What differs between systems is here and nowhere else."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from holdfast.files._protocol import Bytes, LockHeld, MappedFile, WritableFile

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_IOV_MAX: Final = 1024  # Linux and macOS take at most this many buffers in one writev
_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE
_RANGE_WRITE: Final = 2  # SYNC_FILE_RANGE_WRITE
_F_FULLFSYNC: Final = 51  # macOS: fsync alone leaves the data in the drive's cache
_NOTE_BYTES: Final = 4096  # how much of a lock file is read for an error message
_LOCKED_BYTE: Final = 2**30  # Windows: far behind the note, which others must be able to read
_BINARY: Final = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


def _linux(name: str, *arguments: Any) -> Any:
    """A function of the C library that Python does not offer, or `None` where there is no such function."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        function = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (OSError, AttributeError):
        return None
    function.argtypes = arguments
    return function


_fallocate: Final = _linux("fallocate", ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_sync_file_range: Final = _linux("sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def _sync_descriptor(descriptor: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, _F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def _write_at(descriptor: int, data: Bytes, position: int) -> int:
    """Write some of `data` at `position` and return how much; Windows can only seek and write."""
    if sys.platform == "win32":
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.write(descriptor, data)
    return os.pwrite(descriptor, data, position)


def _write_all_at(descriptor: int, buffers: Sequence[Bytes], position: int) -> int:
    """Write some of `buffers` (at most `_IOV_MAX`) at `position` and return how much."""
    if hasattr(os, "pwritev"):
        return os.pwritev(descriptor, buffers, position)
    return _write_at(descriptor, buffers[0], position)


def _after(buffers: Sequence[Bytes], count: int) -> list[Bytes]:
    """What is left of `buffers` behind their first `count` bytes; empty ones are passed over."""
    for place, buffer in enumerate(buffers):
        size = memoryview(buffer).nbytes
        if count < size:
            return [memoryview(buffer).cast("B")[count:], *buffers[place + 1 :]]
        count -= size
    return []


class _SystemFile:
    def __init__(self, path: Path, flags: int) -> None:
        self._path = path
        self._descriptor = os.open(path, flags | os.O_RDWR | _BINARY, 0o644)
        self._end = os.fstat(self._descriptor).st_size

    @property
    def path(self) -> Path:
        return self._path

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
            written = _write_at(self._descriptor, rest[0], position)
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

    def sync(self) -> None:
        if self._descriptor < 0:  # Python would raise a ValueError of its own
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self._path))
        _sync_descriptor(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class _SystemMappedFile:
    def __init__(self, path: Path) -> None:
        with path.open("r+b", buffering=0) as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def write_at(self, position: int, data: bytes) -> None:
        self._map[position : position + len(data)] = data

    def sync(self) -> None:
        self._map.flush()

    def close(self) -> None:
        self._map.close()


def _claim(descriptor: int, *, shared: bool, wait: bool) -> bool:
    """Lock the open file; `False` if others hold it. Windows knows no shared ones: all are exclusive."""
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        else:
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            return False
        raise
    return True


class _SystemLock:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class SystemFiles:
    """Files on this machine."""

    def create(self, path: Path) -> WritableFile:
        return _SystemFile(path, os.O_CREAT | os.O_EXCL)

    def open(self, path: Path) -> WritableFile:
        return _SystemFile(path, 0)

    def open_mapped(self, path: Path) -> MappedFile:
        return _SystemMappedFile(path)

    def read(self, path: Path, start: int = 0, length: int | None = None) -> bytes:
        with path.open("rb", buffering=0) as file:
            if start:
                file.seek(start)
            if length is None:
                return file.readall()
            parts = []
            while length > 0 and (part := file.read(length)):
                parts.append(part)
                length -= len(part)
            return b"".join(parts)

    def map(self, path: Path) -> Any:
        with path.open("rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size == 0:  # an empty file cannot be mapped
                return pa.py_buffer(b"")
            return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def modified_ns(self, path: Path) -> int:
        return path.stat().st_mtime_ns

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_folder(self, path: Path) -> bool:
        return path.is_dir()

    def list(self, folder: Path) -> list[str]:
        return sorted(os.listdir(folder))

    def make_folder(self, path: Path) -> None:
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        # The deepest folder there is may be the work of a process that was killed before it synced the name.
        # One whose parent we may not even open is not.
        with contextlib.suppress(PermissionError):
            self.sync_folder(path.parent)
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            try:
                self.sync_folder(folder.parent)
            except OSError:
                with contextlib.suppress(OSError):  # a name whose sync failed may never be durable: make it anew
                    folder.rmdir()
                raise

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def sync_folder(self, path: Path) -> None:
        if os.name == "nt":  # folders cannot be opened there; NTFS journals its names
            return
        descriptor = os.open(path, os.O_RDONLY | _BINARY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path, *, note: str, shared: bool = False, wait: bool = False) -> _SystemLock:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | _BINARY, 0o644)
        try:
            if not _claim(descriptor, shared=shared, wait=wait):
                raise LockHeld(path, self.read(path, 0, _NOTE_BYTES).decode(errors="replace").strip())
            if note:
                os.ftruncate(descriptor, 0)
                _write_at(descriptor, note.encode(), 0)
        except BaseException:
            os.close(descriptor)  # and with it goes the claim
            raise
        return _SystemLock(descriptor)

    def free_bytes(self, path: Path) -> tuple[int, int]:
        usage = shutil.disk_usage(path)
        return usage.free, usage.total
