"""The ack log of one shard: written and read by any number of processes at once.

Who may do what: appending takes the lock file shared, so that nobody rotates meanwhile; rotating takes it exclusively;
reading takes no lock. The order of locks: the lock file first, then `AckLog.lock`.

What a failed sync means: the system may have dropped the pages, and a later sync of the same file would succeed
without them. So the file is marked, for every process to see, and is never relied on again: whoever next makes
something durable rotates instead, which brings all that could be read into the checkpoint. The append whose sync
failed raises, and is to be repeated. One moment is left open: a process that dies between the failed sync and the mark
tells nobody. (Processes that have the file open already are told by the system itself, on Linux.)
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.acks._checkpoint import AckCheckpoint
from holdfast.acks._encode import encode_record
from holdfast.acks._follow import Change, Follower
from holdfast.acks._progress import Progress
from holdfast.acks._state import AckState
from holdfast.acks.format import (
    DISTRUSTED_SUFFIX,
    FILE_HEADER_BYTES,
    FOLDER,
    LOCK,
    FileHeader,
    file_name,
    file_number,
    list_acks,
)
from holdfast.acks.records import Record
from holdfast.clock import Clock
from holdfast.errors import Corruption
from holdfast.files import Files, Lock, SharedFile, replace_file

ROTATE_BYTES: Final = 8_000_000  # 180,000 records of one offset each: read in a quarter of a second


@dataclass(frozen=True, slots=True)
class AckLogStatistics:
    """How large an ack log is; `damage_...` count since the shard was made, the rest since the last checkpoint."""

    files: int
    bytes: int
    records: int
    damage_count: int
    damage_bytes: int


class AckLog:
    """Thread-safe. `state` is what the last `refresh` left, and empty before the first.

    lock   held while `state` changes: hold it to look at more of it than one `Progress`. Never append, sync, rotate
           or lock exclusively while holding it.
    """

    def __init__(
        self, files: Files, folder: Path, shard_id: bytes, *, clock: Clock, rotate_bytes: int = ROTATE_BYTES
    ) -> None:
        """`folder` is the shard's. Touches nothing: a reader of a shard that has no ack log yet sees an empty one."""
        self._files, self._shard, self._shard_id, self._clock = files, folder, shard_id, clock
        self._folder = folder / FOLDER
        self._rotate_bytes = rotate_bytes
        self.lock = threading.RLock()
        self._follower = Follower(files, folder, shard_id)
        self._exclusive_thread: int | None = None  # which of this object's threads holds the lock file exclusively
        self._opening = threading.Lock()
        self._current: _Current | None = None
        self._least: int | None = None  # no file below this one may be appended to
        self._synced = (0, 0)  # file and position up to which everything read is durable
        self._names_synced = -1  # the file whose name was made durable last
        self._distrusted: int | None = None  # a file that this log could not sync, or make durably
        self._relied: bool | None = None  # were there no records yet when we came, or has a checkpoint taken them in?

    @classmethod
    def create(cls, files: Files, folder: Path, shard_id: bytes) -> None:
        """Make the ack log of a new shard, durable; does nothing if there is one."""
        files.make_folder(folder / FOLDER)
        lock = files.lock(folder / FOLDER / LOCK, note=f"ack log of shard {shard_id.hex()}\n", wait=True)
        try:
            if not list_acks(files, folder / FOLDER):
                _create_file(files, folder / FOLDER, 0, shard_id)
        finally:
            lock.release()

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> AckState:
        return self._follower.state

    def progress(self, subscriber: int) -> Progress:
        """The subscriber's progress, begun if there is none; another object after a refresh that reloaded."""
        progress = self.state.progress.get(subscriber)  # without the lock, which a long rotation may hold
        if progress is None:
            with self.lock:
                progress = self.state.of(subscriber)
        return progress

    def refresh(self) -> Change:
        """Read what anybody has appended since, and take it into `state`. Raises `OSError`; then repeat it."""
        return self._refresh(alone=False)

    def _refresh(self, *, alone: bool) -> Change:
        with self.lock:
            self._follower.refresh(alone=alone)
            if self._relied is None:
                self._relied = self._follower.records == 0
            return self._follower.take_change()

    @property
    def needs_rotation(self) -> bool:
        """Whether what would be replayed after opening has passed its bound, as far as it was read."""
        return self._distrusted is not None or self._follower.replayed_bytes > self._rotate_bytes

    def statistics(self) -> AckLogStatistics:
        numbers = list_acks(self._files, self._folder)
        sizes = []
        for number in numbers:
            with contextlib.suppress(FileNotFoundError):  # rotated away just now
                sizes.append(self._files.size(self._folder / file_name(number)))
        follower = self._follower
        return AckLogStatistics(len(sizes), sum(sizes), follower.records, follower.damage_count, follower.damage_bytes)

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(
        self,
        records: Sequence[Record],
        *,
        sync: bool = False,
        guard: Callable[[], None] | None = None,
        epoch: int = 0,
    ) -> None:
        """Write all records in one piece; with `sync` they are durable on return.

        `guard` is called under the lock, before anything is written; what it raises is passed on. After an `OSError`
        any part of the records may stand in the log; repeat the call: no final outcome counts twice.
        """
        now_ns = self._clock.now_ns()
        data = b"".join([part for record in records for part in encode_record(record, epoch=epoch, now_ns=now_ns)])
        if not data:
            return
        while True:
            with self._shared():
                if guard is not None:
                    guard()
                current = self._open_current()
                if current is not None:
                    current.file.append([data])
                    if not sync:
                        return
                    if self._make_durable(current.file, current.number):
                        return
                    break
            self._make_first_file()
        self._renew()

    def sync(self) -> None:
        """Make durable all that `refresh` has read, whoever wrote it; costs nothing if there is nothing new.

        The first time, what was there before is brought into the checkpoint: a sync of it may have failed, and whoever
        was told so been killed before leaving the mark.
        """
        with self.lock:
            read = self._follower.number, self._follower.position
        if read <= self._synced:
            return
        if not self._relied:
            with self.exclusive():
                self.rotate(self.state.progress.keys())
            return
        durable = True
        with self._shared():
            current = self._open_current()
            if current is not None:
                try:
                    # A file that is not the current one was synced, or marked, before the next one was begun.
                    same = current.number == read[0]
                    durable = self._make_durable(*current[:2]) if same else not self._is_distrusted()
                except OSError:
                    durable = False  # what was read is in `state`, and the checkpoint can take it from there
        if durable:
            self._synced = max(self._synced, read)
        else:
            self._renew()

    def close(self) -> None:
        """Close the file that is open; the log can still be used, and opens it again."""
        with self._opening:
            if self._current is not None:
                self._current.file.close()
                self._current = None

    # -- rotating ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[Change]:
        """Nobody else appends or rotates in here, and `state` is complete; yields what the refresh brought.

        Appending, syncing and rotating from this thread is allowed inside.
        """
        with self._exclusively():
            yield self._refresh(alone=True)

    def rotate(self, keep: Collection[int]) -> None:
        """Bring the state into the checkpoint, with the subscribers in `keep` only, and go on in a new file.

        1. Sync the current file.               A crash now: nothing has changed.
        2. Make the next file, durable.         A crash now: both are replayed; appends go to the new one.
        3. Write the checkpoint, durable.       A crash now: the old files are there and are not read.
        4. Unlink the old files.                A crash may bring some back: they are below what is replayed.

        An empty current file is used again, so that failing at step 3 over and over makes no more files. A file that
        cannot be synced is marked, and its content is safe at step 3. Other logs forget a subscriber that is not kept
        when they next load the checkpoint. Only inside `exclusive`. Raises `OSError`; then repeat it.
        """
        if self._exclusive_thread != threading.get_ident():
            raise RuntimeError("rotate() is for the thread inside exclusive()")
        self._rotate(keep)

    def _rotate(self, keep: Collection[int] | None) -> None:
        with self.lock:
            follower = self._follower
            follower.refresh(alone=True)
            kept = follower.state.progress.keys() if keep is None else keep
            number = self._begin_next()
            checkpoint = AckCheckpoint(follower.state, number, follower.damage_count, follower.damage_bytes)
            checkpoint.write(self._files, self._shard, self._shard_id, kept)
            follower.state.keep(kept)
            follower.rotated(number)
            self._relied = True
            self._synced = (number, FILE_HEADER_BYTES)
            self._distrusted = None
        self._unlink_below(number)

    def _begin_next(self) -> int:
        """Steps 1 and 2; the number of a file without records."""
        number = self._follower.number
        if number in list_acks(self._files, self._folder):
            if self._follower.is_untouched and not self._is_distrusted():
                return number
            with contextlib.suppress(OSError):  # then it is marked, and the checkpoint holds what was read of it
                self._sync_by_name(number)
            number += 1
        self._create_file(number)
        self._names_synced = number
        return number

    def _unlink_below(self, number: int) -> None:
        """In rising order and no further than the first failure: a file that is left has the next one beside it."""
        for name in self._files.list(self._folder):
            old = file_number(name)
            if name.endswith(DISTRUSTED_SUFFIX) or (old is not None and old < number):
                with contextlib.suppress(FileNotFoundError):
                    self._files.unlink(self._folder / name)

    def _renew(self) -> None:
        """Rotate away from a file that is distrusted; on return all that was read is durable."""
        with self._exclusively():
            if self._is_distrusted():  # if not, somebody else has done it
                self._rotate(None)

    # -- files -------------------------------------------------------------------------------------------------------

    def _open_current(self) -> _Current | None:
        """The file that is appended to, opened anew if another one is by now; `None` if there is none.

        The caller holds the lock file, so it stays the current one.
        """
        with self._opening:
            current = self._current
            if current is not None:
                if self._files.exists(current.path) and not self._files.exists(current.next_path):
                    return current
                current.file.close()
                self._current = None
            numbers = list_acks(self._files, self._folder)
            if not numbers or numbers[-1] < self._least_number():
                return None
            number = numbers[-1]
            path = self._folder / file_name(number)
            next_path = self._folder / file_name(number + 1)
            self._current = _Current(self._files.open_shared(path), number, path, next_path)
            return self._current

    def _least_number(self) -> int:
        """No file below this one is read, so none may be appended to; asked once, since files only follow."""
        if self._least is None:
            try:
                checkpoint = AckCheckpoint.read(self._files, self._shard, self._shard_id)
            except Corruption:  # readers report it, and begin with the first file there is
                checkpoint = None
            self._least = 0 if checkpoint is None else checkpoint.replay_from
        return self._least

    def _make_first_file(self) -> None:
        """For a shard that has no ack log yet, or that lost the file that its checkpoint goes on in."""
        with self._exclusively():
            numbers = list_acks(self._files, self._folder)
            if not numbers or numbers[-1] < self._least_number():
                self._create_file(self._least_number())

    def _create_file(self, number: int) -> None:
        try:
            _create_file(self._files, self._folder, number, self._shard_id)
        except OSError:
            self._distrusted = number
            raise

    def _make_durable(self, file: SharedFile, number: int) -> bool:
        """Sync a file and its name; `False` if an earlier sync failed, so that this one is worth nothing."""
        try:
            file.sync()
            if self._names_synced < number:
                self._files.sync_folder(self._folder)
                self._files.sync_folder(self._shard)
                self._names_synced = number
        except OSError:
            self._distrusted = number
            _mark(self._files, self._folder, number)
            raise
        return not self._is_distrusted()

    def _sync_by_name(self, number: int) -> None:
        file = self._files.open_shared(self._folder / file_name(number))
        try:
            self._make_durable(file, number)
        finally:
            file.close()

    def _is_distrusted(self) -> bool:
        """Whether something in the log may never become durable, whoever found that out."""
        names = self._files.list(self._folder)
        if self._distrusted is not None:
            if file_name(self._distrusted) in names:
                _mark(self._files, self._folder, self._distrusted)  # again, should it have failed
                return True
            self._distrusted = None  # rotated away since
        return any(name.endswith(DISTRUSTED_SUFFIX) for name in names)

    # -- locks -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _shared(self) -> Iterator[None]:
        if self._exclusive_thread == threading.get_ident():
            yield
            return
        lock = self._take_lock(shared=True)
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        if self._exclusive_thread == threading.get_ident():
            yield
            return
        lock = self._take_lock(shared=False)
        self._exclusive_thread = threading.get_ident()
        try:
            yield
        finally:
            self._exclusive_thread = None
            lock.release()

    def _take_lock(self, *, shared: bool) -> Lock:
        path = self._folder / LOCK
        try:
            return self._files.lock(path, note="", shared=shared, wait=True)
        except FileNotFoundError:  # a shard made before there were ack logs
            self._files.make_folder(self._folder)
            return self._files.lock(path, note="", shared=shared, wait=True)


class _Current(NamedTuple):
    """The file that is appended to."""

    file: SharedFile
    number: int
    path: Path
    next_path: Path


def _create_file(files: Files, folder: Path, number: int, shard_id: bytes) -> None:
    """A file without records, durable; one whose name may not be durable is marked."""
    try:
        replace_file(files, folder / file_name(number), [FileHeader(number, shard_id).encode()])
    except OSError:
        _mark(files, folder, number)
        raise


def _mark(files: Files, folder: Path, number: int) -> None:
    """Tell every process that this file, or its name, may never become durable."""
    with contextlib.suppress(OSError):  # also if it is marked already; the error that led here is the one to tell
        files.create(folder / f"{number:016d}{DISTRUSTED_SUFFIX}").close()
