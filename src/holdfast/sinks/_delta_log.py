"""The log of a Delta table on a disk: what the library that writes it leaves to others.

`deltalake` writes a log entry, or a checkpoint, whole and in one step for other processes, but syncs nothing. So a
power cut can take an entry away, or leave its name with nothing behind it, and then nobody can read the table.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.files import Files, replace_file
from holdfast.sinks._local import sync_file

LOG: Final = "_delta_log"
LAST_CHECKPOINT: Final = "_last_checkpoint"
CHECKPOINT_ENTRIES: Final = 100  # as Delta's own default
TORN: Final = "_holdfast/torn"  # in the table's folder; readers pass over what begins with an underscore
_ENTRY: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.(?:.+\.)?(?:parquet|json)")


class DeltaLog:
    """The `_delta_log` folder of a table."""

    def __init__(self, files: Files, table: Path) -> None:
        self._files, self._table, self._folder = files, table, table / LOG
        self._synced = -1  # every entry up to this version is durable
        self._refused = False  # the disk did not sync the folder
        self._checkpointed: int | None = None  # the version of the newest checkpoint, -1 for none

    def exists(self) -> bool:
        return self._files.is_folder(self._folder)

    def create(self) -> None:
        """Make the folder: from here on the table's folder is known to be meant for a table."""
        self._files.make_folder(self._folder)

    def versions(self) -> list[int]:
        return [int(found[1]) for name in self._files.list(self._folder) if (found := _ENTRY.fullmatch(name))]

    def set_torn_aside(self) -> list[Path]:
        """Move entries at the end that are not whole out of the way; where they are now.

        Nobody relies on one: it was never synced, so nobody was told that it is there. One in the middle is left for
        the library to complain of: that is damage, and not a power cut.
        """
        moved = []
        for version in sorted(self.versions(), reverse=True):
            path = self._entry(version)
            if _whole(self._files.read(path)):
                break
            target = self._table / TORN / path.name
            self._files.make_folder(target.parent)
            self._files.rename(path, target)
            self._files.sync_folder(target.parent)
            self._files.sync_folder(self._folder)
            moved.append(target)
        return moved

    def sync(self, last: int) -> None:
        """Make all entries up to version `last` durable, whoever wrote them."""
        if last <= self._synced:
            return
        if self._synced < 0:  # a checkpoint that is durable has all that the entries before it have
            names = self._files.list(self._folder)
            newest = max(0, _newest_checkpoint(names))
            paths = [self._folder / name for name in names if _number(name) >= newest]
        else:
            paths = [self._entry(version) for version in range(self._synced + 1, last + 1)]
        for path in paths:
            with contextlib.suppress(FileNotFoundError):  # its retention is over: a durable checkpoint has it
                sync_file(self._files, path, anew=self._refused)
        try:
            self._files.sync_folder(self._folder)
        except OSError:  # names whose sync failed may never be durable: the next attempt makes them anew
            self._refused = True
            raise
        self._synced, self._refused = last, False

    def checkpoint_due(self, version: int) -> bool:
        """Have so many entries come since the newest checkpoint that reading them takes its time?"""
        if self._checkpointed is None:
            self._checkpointed = _newest_checkpoint(self._files.list(self._folder))
        return version - self._checkpointed >= CHECKPOINT_ENTRIES

    def applications(self) -> set[str]:
        """The ids of all that ever wrote a transaction version: in the newest checkpoint, and in entries since."""
        names = self._files.list(self._folder)
        newest = _newest_checkpoint(names)
        found: set[str] = set()
        for name in names:
            if _number(name) >= max(0, newest):
                found.update(_transactions(self._files.read(self._folder / name), name))
        return found

    def checkpoint(self, make: Callable[[Path], None], scratch: Path) -> None:
        """Have `make` write a checkpoint for a copy of the log in `scratch`, and put it in place once it is durable.

        In the table itself the library would first write a name and then, some time, what is behind it.
        """
        names = self._files.list(self._folder)
        since = _newest_checkpoint(names)
        copy = scratch / LOG
        self._files.make_folder(copy)
        self._clear(copy)
        needed = [name for name in names if _number(name) >= max(0, since) or name == LAST_CHECKPOINT]
        for name in needed:
            _copy(self._files, self._folder / name, copy / name)
        make(scratch)
        made = [name for name in self._files.list(copy) if name not in needed and _CHECKPOINT.fullmatch(name)]
        for name in [*made, *([LAST_CHECKPOINT] if made else [])]:
            replace_file(self._files, self._folder / name, [self._files.read(copy / name)])
        self._checkpointed = _newest_checkpoint(made) if made else None
        self._clear(copy)

    def _clear(self, folder: Path) -> None:
        for name in self._files.list(folder):
            if self._files.is_folder(folder / name):
                self._clear(folder / name)
            else:
                self._files.unlink(folder / name)

    def _entry(self, version: int) -> Path:
        return self._folder / f"{version:020}.json"


def _number(name: str) -> int:
    found = _ENTRY.fullmatch(name) or _CHECKPOINT.fullmatch(name)
    return int(found[1]) if found else -1


def _newest_checkpoint(names: Iterable[str]) -> int:
    return max((int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))), default=-1)


def _copy(files: Files, source: Path, target: Path) -> None:
    file = files.create(target)
    try:
        file.append([files.read(source)])
    finally:
        file.close()


def _whole(entry: bytes) -> bool:
    try:
        lines = [json.loads(line) for line in entry.splitlines() if line.strip()]
    except ValueError:
        return False
    return bool(lines)


def _transactions(data: bytes, name: str) -> Iterator[str]:
    """The transaction names in an entry or a checkpoint."""
    if name.endswith(".json"):
        for line in data.splitlines():
            if b'"txn"' in line and (action := json.loads(line).get("txn")):
                yield action["appId"]
        return
    file = pq.ParquetFile(pa.BufferReader(data))
    if "txn" in file.schema_arrow.names:
        column: list[dict[str, Any] | None] = file.read(columns=["txn"]).column("txn").to_pylist()
        yield from (row["appId"] for row in column if row and row["appId"])
