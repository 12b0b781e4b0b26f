"""The trash of a shard: where deleted files wait for `trash_age`, in case they are missed.

    <shard>/trash/01700000000000000000-0000000000000120-00000000000000004200.seg
                  when it was deleted, in nanoseconds, and its name before

A file comes here by one rename, so at any moment it is in one place and whole. Nothing reads the trash but people.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from holdfast.files import Files
from holdfast.retention._usage import TRASH

_log = structlog.get_logger("holdfast.retention")

_DIGITS: Final = 20


class Emptied(NamedTuple):
    """What left the trash for good."""

    files: int = 0
    freed_bytes: int = 0
    failed: int = 0


class Trash:
    """The trash folder of one shard, made when it is first needed."""

    def __init__(self, files: Files, shard: Path) -> None:
        self._files, self.folder = files, shard / TRASH

    def put(self, path: Path, now_ns: int) -> None:
        """Move a file here. Durable after `sync` here and a sync of the folder that it was in, in this order."""
        if not self._files.is_folder(self.folder):
            self._files.make_folder(self.folder)
        self._files.rename(path, self.folder / f"{now_ns:0{_DIGITS}d}-{path.name}")

    def sync(self) -> None:
        self._files.sync_folder(self.folder)

    def total_bytes(self) -> int:
        return sum(size for _, _, size in self._entries())

    def expire(self, now_ns: int, trash_age: float | None) -> Emptied:
        """Delete what is older than `trash_age` seconds; all of it if that is `None`, the trash being given up."""
        bound_ns = None if trash_age is None else now_ns - round(trash_age * 1e9)
        return self._empty(each for each in self._entries() if bound_ns is None or each[1] < bound_ns)

    def empty(self, wanted_bytes: int) -> Emptied:
        """Delete the oldest files, until `wanted_bytes` are freed or none is left."""
        return self._empty(self._entries(), wanted_bytes)

    def _entries(self) -> Iterator[tuple[Path, int, int]]:
        """Path, time of deletion and size of each file, the oldest first."""
        try:
            names = self._files.list(self.folder)
        except FileNotFoundError:
            return
        for name in names:
            stamp = name.split("-", 1)[0]
            path = self.folder / name
            if stamp.isdecimal() and len(stamp) == _DIGITS:  # what somebody else put here is not ours to delete
                try:
                    yield path, int(stamp), self._files.size(path)
                except FileNotFoundError:
                    continue

    def _empty(self, entries: Iterator[tuple[Path, int, int]], wanted_bytes: int | None = None) -> Emptied:
        done = Emptied()
        for path, _, size in entries:
            if wanted_bytes is not None and done.freed_bytes >= wanted_bytes:
                break
            try:
                self._files.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as problem:  # the next sweep meets it again; the others go all the same
                _log.warning("file in the trash could not be deleted", file=str(path), error=str(problem))
                done = done._replace(failed=done.failed + 1)
                continue
            done = Emptied(done.files + 1, done.freed_bytes + size, done.failed)
        if done.files:
            _log.info("trash emptied", folder=str(self.folder), files=done.files, bytes=done.freed_bytes)
        return done
