"""How many bundles shared each sync, so that the bare disk is measured with the very same group sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.files import SystemFiles, WritableFile


class GroupLog:
    """The bytes that went into the WAL between one sync and the next."""

    def __init__(self, bundle_bytes: float) -> None:
        self._bundle_bytes = bundle_bytes
        self._sizes: list[int] = []
        self._unsynced = 0

    def restart(self) -> None:
        self._sizes, self._unsynced = [], 0

    def written(self, size: int) -> None:
        self._unsynced += size

    def synced(self) -> None:
        if self._unsynced:
            self._sizes.append(self._unsynced)
        self._unsynced = 0

    def bundles(self) -> list[int]:
        """Bundles per group, in order; a group of less than one bundle (a file's header) does not count."""
        counts = (round(size / self._bundle_bytes) for size in self._sizes)
        return [count for count in counts if count]


class ObservedFiles(SystemFiles):
    """The real filesystem; writes and syncs of WAL files are noted in a `GroupLog`."""

    def __init__(self, log: GroupLog) -> None:
        super().__init__()
        self._log = log

    def create(self, path: Path) -> WritableFile:
        return self._observed(super().create(path))

    def open(self, path: Path) -> WritableFile:
        return self._observed(super().open(path))

    def _observed(self, file: WritableFile) -> WritableFile:
        return _ObservedFile(file, self._log) if file.path.suffix == ".wal" else file


class _ObservedFile:
    def __init__(self, file: WritableFile, log: GroupLog) -> None:
        self._file = file
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def append(self, buffers: Sequence[Any]) -> int:
        size = self._file.append(buffers)
        self._log.written(size)
        return size

    def sync(self) -> None:
        self._file.sync()
        self._log.synced()
