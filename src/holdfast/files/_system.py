"""The real filesystem. What differs between systems is in this package and nowhere else."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from holdfast.files._handles import SystemFile, SystemMappedFile, SystemSharedFile
from holdfast.files._locks import SystemLock, claim
from holdfast.files._native import BINARY, write_at
from holdfast.files._protocol import Lock, LockHeld, MappedFile, SharedFile, Watch, WritableFile
from holdfast.files._watch import open_watch

_NOTE_BYTES: Final = 4096  # how much of a lock file is read for an error message


class SystemFiles:
    """Files on this machine."""

    def create(self, path: Path) -> WritableFile:
        return SystemFile(path, os.O_CREAT | os.O_EXCL)

    def open(self, path: Path) -> WritableFile:
        return SystemFile(path, 0)

    def open_shared(self, path: Path) -> SharedFile:
        return SystemSharedFile(path)

    def open_mapped(self, path: Path) -> MappedFile:
        return SystemMappedFile(path)

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
        descriptor = os.open(path, os.O_RDONLY | BINARY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path, *, note: str, shared: bool = False, wait: bool = False) -> Lock:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | BINARY, 0o644)
        try:
            if not claim(descriptor, shared=shared, wait=wait):
                raise LockHeld(path, self.read(path, 0, _NOTE_BYTES).decode(errors="replace").strip())
            if note:
                os.ftruncate(descriptor, 0)
                write_at(descriptor, note.encode(), 0)
        except BaseException:
            os.close(descriptor)  # and with it goes the claim
            raise
        return SystemLock(descriptor)

    def watch(self) -> Watch:
        return open_watch()

    def free_bytes(self, path: Path) -> tuple[int, int]:
        usage = shutil.disk_usage(path)
        return usage.free, usage.total
