"""The file that all processes of a topic keep their idempotency keys in; everything here happens under its lock.

The newest generation counts. Switching to the next one:

1. Write what is still wanted into a temporary file, sync it, rename it, sync the folder.
2. Unlink the older generations.     A crash before: an older one beside it says that the switch was not finished (its
                                     name may not be durable), and whoever writes next switches once more.

What cannot be relied on is not written to again, but left behind by a switch: a file with damage (a write that a crash
tore, or that failed and could not be taken back, is nothing else), and one whose sync failed. The last damaged one is
set aside under `*.keys.damaged`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import structlog

from holdfast.clock import Clock
from holdfast.errors import Corruption
from holdfast.files import Files, WritableFile, replace_file
from holdfast.store._key_table import KeyTable
from holdfast.store.key_format import (
    DAMAGED_SUFFIX,
    HEADER_BYTES,
    MAX_ENTRIES,
    Damage,
    KeyFileHeader,
    Record,
    Void,
    encode_record,
    file_name,
    generation_of,
    read_records,
)
from holdfast.store.layout import LOCK

SWITCH_BYTES: Final = 4 << 20  # a smaller file is not worth a switch; a larger one may double first
_log = structlog.get_logger("holdfast.store")


class KeyLog:
    """One process's end of the log, and the table that it comes to."""

    def __init__(
        self, files: Files, folder: Path, clock: Clock, table: KeyTable, switch_bytes: int = SWITCH_BYTES
    ) -> None:
        self._files, self._folder, self._clock, self._table = files, folder, clock, table
        self._lock, self._switch_bytes = folder / LOCK, switch_bytes
        self._file: WritableFile | None = None
        self._generation = 0  # none yet
        self._path = self._following = folder  # of this generation, and of the next
        self._position = 0  # up to here it was read, or written by us
        self._carried = 0
        self._voids = 0
        self._leave = False  # this file is not to be written to again
        self._damaged = False
        self._owed: list[Record] = []  # written as soon as the disk takes them, before anything else
        self.unsynced = False
        self.switches = 0
        self.damaged_bytes = 0

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def size(self) -> int:
        return self._position

    @property
    def owes(self) -> int:
        """Records that the disk has refused so far."""
        return len(self._owed)

    def exists(self) -> bool:
        """Has any process of this topic ever used a key?"""
        return self._generation > 0 or self._files.is_folder(self._folder)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The lock, and with it all that other processes have written. Without anything owed on entry."""
        lock = self._files.lock(self._lock, note="", wait=True)
        try:
            self._catch_up()
            while self._owed:
                self.write(self._owed[0])
                del self._owed[0]
            yield
        finally:
            lock.release()

    # -- write --------------------------------------------------------------------------------------------------

    def write_or_owe(self, record: Record) -> None:
        """For what has happened already: it is taken up now, and if the disk refuses, written later."""
        if self._owed:
            self.owe(record)
            return
        try:
            self.write(record)
        except OSError as problem:
            _log.warning("key log could not be written; tried again", folder=str(self._folder), error=str(problem))
            self.owe(record)

    def owe(self, record: Record) -> None:
        """Take up what happened, and write it with the next `held`."""
        self._table.apply(record)
        self._owed.append(record)

    def write(self, record: Record) -> None:
        """Write a record and take it up, and if it is a void, sync it; after an `OSError` it is not taken up."""
        if self._leave or self._position >= max(self._switch_bytes, 2 * self._carried):
            self._switch()
        data = encode_record(record, self._voids)
        if isinstance(record, Void):
            # Twice: to lose one to damage would mean to give out receipts of bundles that are not there.
            self._append(data + data)
            self._voids += 1
            self._sync()
        else:
            self._append(data)
        self._table.apply(record)

    def _append(self, data: bytes) -> None:
        if self._file is None:
            self._file = self._files.open(self._path)
        try:
            self._file.seek(self._position)
            self._file.append([data])
        except OSError:
            with contextlib.suppress(OSError):  # what stays of it is no record, and read as damage
                self._file.truncate(self._position)
            raise
        self._position += len(data)
        self.unsynced = True

    # -- sync ---------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Make durable what this process wrote; the lock is taken only if the file is to be left."""
        if self._owed or (self.unsynced and self._leave):
            with self.held():
                if self._leave:
                    self._switch()
        if self.unsynced:
            self._sync()

    def _sync(self) -> None:
        """After a failure this file is not believed any more: only a switch makes its content durable."""
        if self._file is not None:
            try:
                self._file.sync()
            except OSError:
                self._leave = True
                raise
        self.unsynced = False

    # -- read ---------------------------------------------------------------------------------------------------

    def _generations(self) -> list[int]:
        return sorted(
            generation for name in self._files.list(self._folder) if (generation := generation_of(name)) is not None
        )

    def _catch_up(self) -> None:
        size = self._size()
        if size is None:
            generations = self._generations()
            if not generations:
                if self._generation:  # somebody deleted the whole log; what is known here is still true
                    self._leave = True
                else:
                    self._switch()
                return
            if generations[-1] != self._generation:
                self._enter(generations[-1])
                self.unsynced = self.unsynced and len(generations) > 1  # else a finished switch made it durable
            if len(generations) > 1:
                self._leave = True
            size = self._files.size(self._path)
        if size > self._position:
            self._take_up(self._files.read(self._path, self._position))
        elif size < self._position:  # cut by something other than a crash, which would have ended this process
            self._report(size, self._position)
            self._leave = True

    def _size(self) -> int | None:
        """Of the file we know, if it is the newest; `None` if one has to look. Cheaper than a listing.

        Old generations are unlinked from the oldest on, so the one that follows the one we know is there, or ours is
        not, or ours is the newest.
        """
        if not self._generation or self._files.exists(self._following):
            return None
        try:
            return self._files.size(self._path)
        except FileNotFoundError:
            return None

    def _turn_to(self, generation: int) -> None:
        self.close()
        self._generation = generation
        self._path, self._following = (self._folder / file_name(each) for each in (generation, generation + 1))

    def _enter(self, generation: int) -> None:
        """Turn to another generation; its carried part is passed over by those who knew all of the one before."""
        known = (self._generation + 1, self._position)
        self._turn_to(generation)
        path = self._path
        self._leave, self._damaged, self._voids = False, False, 0
        try:
            header = KeyFileHeader.decode(self._files.read(path, 0, HEADER_BYTES), path)
        except Corruption as problem:
            _log.warning("key log is damaged; its keys may be appended twice", file=str(path), error=problem.what)
            header = KeyFileHeader(generation, 0, 0, 0)
            self._leave = self._damaged = True
        self._carried = header.carried
        if (generation, header.follows) == known and header.carried:
            self._position, self._voids = header.carried, header.voids
        else:
            self._table.clear()
            self._position = HEADER_BYTES

    def _take_up(self, data: bytes) -> None:
        start = self._position
        for found in read_records(data):
            if isinstance(found, Damage):
                self._report(start + found.start, start + found.end)
                self._leave = True
                if found.tail:
                    break
                continue
            void = isinstance(found.record, Void)
            if found.voids != self._voids and not (void and found.voids == self._voids - 1):
                self._forget_all()
            self._voids = found.voids + void
            self._table.apply(found.record)
        self._position = start + len(data)

    def _forget_all(self) -> None:
        """A void was in the damage: any key before it may be of a bundle that was never stored."""
        _log.warning(
            "key log lost a void; all keys before it are forgotten", file=str(self._path), keys=len(self._table)
        )
        self._table.clear()

    def _report(self, start: int, end: int) -> None:
        self._damaged = True
        self.damaged_bytes += end - start
        _log.warning(
            "key log is damaged; its keys may be appended twice", file=str(self._path), error=f"bytes {start} to {end}"
        )

    # -- switch -------------------------------------------------------------------------------------------------

    def _switch(self) -> None:
        """Go on in a new generation, as the module says."""
        now_ns = self._clock.now_ns()
        self._table.forget(now_ns, all_due=True)
        older = self._generations()
        generation = max([self._generation, *older]) + 1
        records, voids = self._carried_records()
        carried = HEADER_BYTES + sum(map(len, records))
        header = KeyFileHeader(generation, self._position, carried, voids)
        replace_file(self._files, self._folder / file_name(generation), [header.encode(), *records])
        damaged = self._path if self._damaged else None
        self._turn_to(generation)
        self._position, self._carried, self._voids = carried, carried, voids
        self._leave = self._damaged = self.unsynced = False
        self.switches += 1
        self._remove(older, damaged)

    def _carried_records(self) -> tuple[list[bytes], int]:
        records: list[bytes] = []
        voids = 0
        carried = self._table.carried()
        while block := list(islice(carried, MAX_ENTRIES)):
            entries = []
            for each in block:
                if isinstance(each, Void):
                    records.append(encode_record(each, voids))
                    voids += 1
                else:
                    entries.append(each)
            if entries:
                records.append(encode_record(entries, voids))
        return records, voids

    def _remove(self, generations: list[int], damaged: Path | None) -> None:
        """The oldest first, and no further than the first that stays: see `_size`."""
        for generation in generations:
            path = self._folder / file_name(generation)
            try:
                if path == damaged:
                    self._set_aside(path)
                else:
                    self._files.unlink(path)
            except OSError as problem:  # its presence makes the next writer switch once more: costly, not wrong
                _log.warning("old key log could not be deleted", file=str(path), error=str(problem))
                return

    def _set_aside(self, path: Path) -> None:
        for name in self._files.list(self._folder):
            if name.endswith(DAMAGED_SUFFIX):
                self._files.unlink(self._folder / name)
        self._files.rename(path, path.with_name(path.name + DAMAGED_SUFFIX))

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with contextlib.suppress(OSError):  # what has to be durable was synced
                file.close()
