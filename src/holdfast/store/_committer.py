"""Group commit: concurrent appends share one write and one sync.

Appenders give a bundle its offset and leave it in `_pending`. Whoever holds the commit lock takes all that is pending,
writes it and syncs it: the committer thread, or a caller who waits while nobody else commits (so an idle caller does
not pay for a change of threads). While one group is being synced, the next one gathers.

A level decides when a receipt resolves and by when the bytes must move; all levels take the same way, in offset order:

    level    resolves            written within      synced within
    memory   at once             relaxed             relaxed         relaxed: RELAXED_SYNC_SECONDS, or the
    os       after the write     at once             relaxed                  flush interval if that is longer
    fsync    after the sync      flush interval      flush interval
"""

from __future__ import annotations

import errno
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from holdfast.clock import Clock, Deadline
from holdfast.config import WalSettings
from holdfast.durability import Durability
from holdfast.encoded import EncodedBundle, EncodedSlot
from holdfast.errors import Backpressure, Closed, DiskFull, HoldfastError, ShardFailed
from holdfast.metrics import SYNC_SECONDS
from holdfast.store._open_segment import Planner
from holdfast.store._receipt import Group, Receipt
from holdfast.wal import WriteAheadLog

RELAXED_SYNC_SECONDS: Final = 0.1
LED_LOOK_SECONDS: Final = 0.003
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_log = structlog.get_logger("holdfast.store")


@dataclass(frozen=True, slots=True)
class CommitStatistics:
    """What the committer did so far, and what waits for it."""

    groups: int
    bundles: int
    bytes: int
    rewrites: int  # groups written again into a new file after a failed write or sync
    failed_bundles: int
    pending_bundles: int
    pending_bytes: int
    throttled: int  # appends that had to wait for room, or were refused


class Publisher(Protocol):
    """Who takes bundles once they are durable, or learns that they are lost. Called under the commit lock."""

    def publish(self, bundles: Sequence[EncodedBundle]) -> None: ...

    def lose(self, first: int, end: int) -> None: ...

    def settled(self) -> None:
        """Receipts have reached `fsync`, or failed."""
        ...


class Committer:
    """The write end of one shard."""

    def __init__(
        self,
        log: WriteAheadLog,
        planner: Planner,
        publisher: Publisher,
        settings: WalSettings,
        clock: Clock,
        *,
        name: str,
        shard: int,
        next_offset: int,
    ) -> None:
        self._log, self._planner, self._publisher = log, planner, publisher
        self._settings, self._clock = settings, clock
        self._name, self._shard = name, shard
        self._topic = name.rpartition("/")[0]
        self._relaxed = max(RELAXED_SYNC_SECONDS, settings.flush_interval)

        self.commit_lock = threading.RLock()  # held while writing; guards log, planner and what is unsynced
        self._durable = next_offset
        self._unsynced: list[tuple[Group, list[EncodedBundle]]] = []

        self._mutex = threading.Lock()  # guards the rest; never held during input or output
        self._wake = threading.Condition(self._mutex)
        self._room = threading.Condition(self._mutex)
        self._next_offset = next_offset
        self._pending: list[EncodedBundle] = []
        self._group = Group()
        self._held_bytes = 0  # pending and unsynced
        self._write_due = math.inf
        self._sync_due = math.inf
        self._blocked: dict[str, Callable[[], HoldfastError]] = {}
        self._failure: Callable[[], HoldfastError] | None = None
        self._closing = False
        self._sleeping = False
        self._led = False  # do callers commit for themselves?
        self._thread: threading.Thread | None = None
        self._groups = self._bundles = self._bytes = self._rewrites = self._failed_bundles = 0
        self._throttled = 0

    # -- the appender's side ------------------------------------------------------------------------------------

    def append(
        self,
        slots: tuple[EncodedSlot, ...],
        attributes: bytes,
        event_time: tuple[int, int] | None,
        level: Durability,
        timeout: float,
    ) -> Receipt:
        """Queue a bundle; blocks up to `timeout` seconds while there is no room, then raises `Backpressure`."""
        size = 0
        for slot in slots:
            size += slot.data.size
        ingested = self._clock.now_ns()
        with self._mutex:
            if self._refusal(size) is not None:
                self._wait_for_room(size, timeout)
            offset = self._next_offset
            self._next_offset = offset + 1
            self._pending.append(EncodedBundle(offset, 0, 0, ingested, event_time, attributes, slots, size))
            self._held_bytes += size
            group = self._group
            self._set_due(level)
            if self._sleeping and not self._led:
                self._wake.notify()
            elif self._thread is None:
                self._start()
        return Receipt(offset, self._shard, level, group, self)

    def wait_for_room(self, slots: tuple[EncodedSlot, ...], timeout: float) -> None:
        """Block until a bundle of these slots may enter; raises as `append` does after `timeout` seconds."""
        with self._mutex:
            self._wait_for_room(sum(slot.data.size for slot in slots), timeout)

    def _set_due(self, level: Durability) -> None:
        if level >= Durability.FSYNC and not self._settings.flush_interval:
            self._write_due = self._sync_due = 0.0
            return
        now = self._clock.monotonic()
        if level >= Durability.FSYNC:
            write = sync = now + self._settings.flush_interval
        else:
            sync = now + self._relaxed
            write = now if level is Durability.OS else sync
        self._write_due = min(self._write_due, write)
        self._sync_due = min(self._sync_due, sync)

    def _refusal(self, size: int) -> Callable[[], HoldfastError] | None:
        """Why a bundle of this size may not enter now. Called with the mutex."""
        if self._failure is not None:
            return self._failure
        if self._closing:
            return lambda: Closed(f"{self._name} is closed; open the store again")
        if self._blocked:
            return next(iter(self._blocked.values()))
        if self._held_bytes and self._held_bytes + size > self._settings.max_pending:
            return lambda: Backpressure(
                f"{self._name}: {self._held_bytes} bytes wait for the disk (wal.max_pending is "
                f"{self._settings.max_pending}); try again, or append more slowly",
                retry_after=0.1,
            )
        return None

    def _wait_for_room(self, size: int, timeout: float) -> None:
        deadline = Deadline(timeout, self._clock)
        self._throttled += 1
        while (refusal := self._refusal(size)) is not None:
            if self._failure is not None or self._closing or deadline.passed():
                raise refusal()
            self._room.wait(deadline.remaining())

    def block(self, bound: str, why: Callable[[], HoldfastError] | None) -> None:
        """Refuse appends because of this bound until called with `None` for it."""
        if why is None and bound not in self._blocked:
            return
        with self._mutex:
            if why is not None:
                self._blocked[bound] = why
            else:
                self._blocked.pop(bound, None)
                self._room.notify_all()

    @property
    def appended_bytes(self) -> int:
        """Of bundles that are durable or were given up."""
        return self._bytes

    def lead(self, group: Group) -> None:
        """Commit `group` in the caller's thread, if it is a single bundle, still pending, and nobody else commits.

        While callers lead, the committer's thread is not woken for each append: it would only be in their way. It
        looks by itself every few milliseconds, until it finds something that nobody waits for, or nothing at all.
        """
        if not self._settings.flush_interval and self.commit_lock.acquire(blocking=False):
            try:
                if group is self._group and self._sync_due == 0.0 and len(self._pending) == 1:
                    self._led = True
                    self._commit(sync=True)
                    return
            finally:
                self.commit_lock.release()
        self.nudge()

    def nudge(self) -> None:
        """Somebody waits, and leaves the commit to the committer's thread."""
        if self._led:
            with self._mutex:
                self._led = False
                self._wake.notify()

    # -- the committer's side -----------------------------------------------------------------------------------

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"holdfast commit {self._name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            with self._mutex:
                while (
                    delay := min(self._write_due, self._sync_due) - self._clock.monotonic()
                ) > 0 and not self._closing:
                    appended = self._next_offset
                    self._sleeping = True
                    self._wake.wait(LED_LOOK_SECONDS if self._led else None if delay == math.inf else delay)
                    self._sleeping = False
                    if self._next_offset == appended:
                        self._led = False
                self._led = False
                if self._closing and not self._pending and self._sync_due == math.inf:
                    return
                sync = self._closing or self._sync_due <= self._clock.monotonic()
            with self.commit_lock:
                self._commit(sync=sync)

    def flush(self) -> None:
        """Write and sync all that is pending; failures go to the receipts."""
        with self.commit_lock:
            self._commit(sync=True)

    def _commit(self, *, sync: bool) -> None:
        """Make what is pending durable. The caller holds the commit lock.

        1. Take the pending bundles and give them their segments.
        2. Write them. A crash now: whole frames may come back, a torn one is cut; nobody was told more than `os`.
        3. Sync file and folder. A crash now: all of them come back.
        4. Publish them to readers, here and (through the tail) in other processes.
        5. Resolve the receipts.

        What cannot be written goes into a new file, and so does what cannot be synced: no later sync of a file that
        failed one is believed. Bundles keep their offsets, and the new file supersedes the old one. If that fails too,
        the receipts fail and their offsets are lost; without room the shard goes on trying, any other fault makes it
        read-only.
        """
        with self._mutex:
            taken, self._pending = self._pending, []
            group = self._group
            if taken:
                self._group = Group()
            self._write_due = math.inf
            if sync:
                self._sync_due = math.inf
        if taken:
            self._planner.place(taken)
            self._unsynced.append((group, taken))
        if not self._unsynced:
            return
        try:
            self._write(taken, sync=sync)
        except Exception as problem:  # a bug here must reach the receipts too, or they would wait for ever
            self._give_up(problem)

    def _write(self, taken: Sequence[EncodedBundle], *, sync: bool) -> None:
        if self._failure is not None:
            raise self._failure()
        try:
            if taken:
                self._log.write(taken, self._durable)
        except OSError as problem:
            self._save_earlier()
            self._write_again(problem)
            return
        if not sync:
            for group, _ in self._unsynced:
                group.reach(Durability.OS)
            return
        started = self._clock.monotonic()
        try:
            self._log.sync()
        except OSError as problem:
            self._write_again(problem)
        else:
            SYNC_SECONDS.observe(self._clock.monotonic() - started, self._topic)
            self._settle(len(self._unsynced))

    def _save_earlier(self) -> None:
        """After a failed write, make durable what earlier writes left whole: its callers were told `os`."""
        if len(self._unsynced) > 1:
            try:
                self._log.sync()
            except OSError:  # then all of it is written again
                return
            self._settle(len(self._unsynced) - 1)

    def _write_again(self, problem: OSError) -> None:
        _log.warning("WAL write failed; writing again into a new file", shard=self._name, error=str(problem))
        self._rewrites += 1
        self._log.write_again([bundle for _, bundles in self._unsynced for bundle in bundles], self._durable)
        self._settle(len(self._unsynced))

    def _settle(self, count: int) -> None:
        """The first `count` groups that were written are durable."""
        settled = self._unsynced[:count]
        bundles = settled[0][1] if count == 1 else [bundle for _, group in settled for bundle in group]
        self._publisher.publish(bundles)
        del self._unsynced[:count]
        self._durable = bundles[-1].offset + 1
        for group, _ in settled:
            group.reach(Durability.FSYNC)
        self._release(bundles)
        self._groups += 1
        self._bundles += len(bundles)
        self._publisher.settled()

    def _release(self, bundles: Sequence[EncodedBundle]) -> None:
        size = sum(bundle.size for bundle in bundles)
        self._bytes += size
        with self._mutex:
            self._held_bytes -= size
            self._room.notify_all()

    def _give_up(self, problem: Exception) -> None:
        given_up, self._unsynced = self._unsynced, []
        bundles = [bundle for _, group in given_up for bundle in group]
        first, end = bundles[0].offset, bundles[-1].offset + 1
        self._log.supersede(first)
        self._planner.roll()
        self._publisher.lose(first, end)
        self._failed_bundles += len(bundles)
        _log.error("bundles could not be stored", shard=self._name, first=first, end=end, error=str(problem))
        no_room = isinstance(problem, OSError) and problem.errno in _NO_ROOM

        def failure() -> HoldfastError:
            if isinstance(problem, ShardFailed):  # these were pending behind the failure
                return ShardFailed(str(problem))
            if no_room:
                return DiskFull(f"{self._name}: no room for offsets {first} to {end - 1}: {problem}; free some space")
            return ShardFailed(f"{self._name}: {problem!r}; the shard is read-only until the store is reopened")

        if no_room:
            self._log.drop_spares()
        else:
            with self._mutex:
                self._failure = failure
        for group, _ in given_up:
            group.fail(failure)
        self._release(bundles)
        self._publisher.settled()

    def close(self) -> None:
        """Refuse new appends, commit what is pending, end the thread."""
        with self._mutex:
            self._closing = True
            self._wake.notify_all()
            self._room.notify_all()
        self.flush()
        if self._thread is not None:
            self._thread.join()

    def statistics(self) -> CommitStatistics:
        with self._mutex:
            return CommitStatistics(
                self._groups, self._bundles, self._bytes, self._rewrites, self._failed_bundles,
                len(self._pending), self._held_bytes, self._throttled,
            )  # fmt: skip
