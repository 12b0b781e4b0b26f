"""How many bytes a level of the store takes, by listing its folders.

A level is the store, a namespace or a topic; below a topic are its shards. Every file counts with its length: WAL,
segments, ack log, dead letters, trash, checkpoints. Only the budget's own few bytes do not: asking for room must not
make it scarcer. Segment files never change, so their sizes are asked for once; what is kept of each is a hash of its
name and its size. A folder with nothing but segment files is not even listed again while its modification time stands,
once that is old enough to tell a later change from an earlier one.
"""

from __future__ import annotations

import contextlib
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.clock import Clock, breathe
from holdfast.config import Cap
from holdfast.files import TEMPORARY_SUFFIX, Files
from holdfast.retention._claim import BUDGET_LOCK, CLAIM
from holdfast.retention._request import REQUEST
from holdfast.segment import SUFFIX

SEGMENTS: Final = "segments"
TRASH: Final = "trash"
_NOT_COUNTED: Final = frozenset({BUDGET_LOCK, CLAIM, REQUEST, REQUEST + TEMPORARY_SUFFIX})
_TOPIC_DEPTH: Final = 2  # <store>/<namespace>/<topic>
_SHARD: Final = re.compile(r"shard-\d{4,}")
# Coarsest step of modification times on the filesystems that we know (FAT: 2 s), and as much again.
_SETTLED_NS: Final = 4 * 10**9


class ShardUsage(NamedTuple):
    """The bytes in one shard's folder; those in its trash are among them."""

    folder: Path
    total_bytes: int
    trash_bytes: int


class Usage(NamedTuple):
    """The bytes of one level: all of them, and those of each shard."""

    total_bytes: int
    shards: tuple[ShardUsage, ...]


@dataclass(slots=True)
class _Known:
    """A folder of segment files as it was listed last, in the order of their names."""

    hashes: array[int]
    sizes: array[int]
    total: int
    modified_ns: int
    settled: bool


class Meter:
    """Measures levels of one store; remembers the sizes of segment files. One thread at a time."""

    def __init__(self, files: Files, store: Path, clock: Clock) -> None:
        self._files, self._store, self._clock = files, store, clock
        self._known: dict[Path, _Known] = {}

    def measure(self, cap: Cap) -> Usage:
        """What the cap counts, as it is now; files that come or go meanwhile are in or out."""
        shards: list[ShardUsage] = []
        total = sum(self._level(self._store / folder, len(folder.parts), shards) for folder in cap.folders)
        return Usage(total, tuple(shards))

    def shard(self, folder: Path) -> ShardUsage:
        """One shard alone."""
        total = trash = 0
        for path, is_folder in self._entries(folder):
            if path.name in (SEGMENTS, TRASH):
                size = self._segment_files(path)
                trash += size if path.name == TRASH else 0
            else:
                size = self._tree(path) if is_folder else self._size(path)
            total += size
        return ShardUsage(folder, total, trash)

    def _level(self, folder: Path, depth: int, shards: list[ShardUsage]) -> int:
        total = 0
        for path, is_folder in self._entries(folder):
            if not is_folder:
                total += self._size(path)
            elif depth < _TOPIC_DEPTH:
                total += self._level(path, depth + 1, shards)
            elif _SHARD.fullmatch(path.name):
                shards.append(self.shard(path))
                total += shards[-1].total_bytes
            else:
                total += self._tree(path)
        return total

    def _tree(self, folder: Path) -> int:
        """Everything in a folder that is not laid out by us in a way that helps."""
        return sum(
            self._tree(path) if is_folder else self._size(path) for path, is_folder in breathe(self._entries(folder))
        )

    def _entries(self, folder: Path) -> Iterator[tuple[Path, bool]]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # gone, or not there yet: nothing to count
            for name in self._files.list(folder):
                path = folder / name
                if name not in _NOT_COUNTED:
                    yield path, self._files.is_folder(path)

    def _size(self, path: Path) -> int:
        try:
            return self._files.size(path)
        except FileNotFoundError:
            return 0

    def _segment_files(self, folder: Path) -> int:
        known = self._known.get(folder)
        try:
            modified_ns = self._files.modified_ns(folder)
            if known is not None and known.settled and known.modified_ns == modified_ns:
                return known.total
            listed_ns = self._clock.now_ns()
            names = self._files.list(folder)
        except FileNotFoundError:
            self._known.pop(folder, None)
            return 0
        old = known or _Known(array("q"), array("Q"), 0, 0, settled=False)
        new = _Known(array("q"), array("Q"), 0, modified_ns, settled=modified_ns + _SETTLED_NS < listed_ns)
        at = 0  # both lists are in the order of names, so what stays is met in one pass
        for name in breathe(names, every=1000):
            if not name.endswith(SUFFIX):  # being written: its size changes without the folder's time
                new.settled = False
                new.total += self._size(folder / name)
                continue
            key = hash(name)
            with contextlib.suppress(ValueError):
                at = old.hashes.index(key, at)
            if at < len(old.hashes) and old.hashes[at] == key:
                size = old.sizes[at]
                at += 1
            else:
                size = self._size(folder / name)
            new.hashes.append(key)
            new.sizes.append(size)
            new.total += size
        self._known[folder] = new
        return new.total
