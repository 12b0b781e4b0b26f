"""A shard that this process owns: append, seal, read, truncate."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import structlog

from holdfast.clock import Clock
from holdfast.config import BufferSettings
from holdfast.durability import Durability
from holdfast.encoded import EncodedBundle, EncodedSlot
from holdfast.errors import HoldfastError
from holdfast.files import Files, Lock
from holdfast.retention import SegmentFacts, SegmentTable
from holdfast.store._committer import CommitStatistics, Committer
from holdfast.store._contents import Contents
from holdfast.store._open_segment import OpenSegment, Planner
from holdfast.store._receipt import Receipt
from holdfast.store._sealing import Sealing
from holdfast.store.keys import KeyIndex
from holdfast.store.recovery import ShardState
from holdfast.store.shard_checkpoint import Range, ShardCheckpoint
from holdfast.store.topic_state import TopicState

_log = structlog.get_logger("holdfast.store")


@dataclass(frozen=True, slots=True)
class ShardStatistics:
    """A look at a shard."""

    start: int
    durable: int
    sealed: int
    segments: int
    segment_bytes: int
    wal_bytes: int
    open_bytes: int
    unsealed_segments: int
    commits: CommitStatistics


class SealQueue(Protocol):
    """Who is told that there is something to seal, now or later."""

    def due(self, shard: Shard) -> None: ...

    def opened(self, deadline: float) -> None: ...


class Shard:
    """The one writer of a shard's folder, and a reader of everything in it."""

    def __init__(
        self,
        number: int,
        folder: Path,
        lock: Lock,
        state: ShardState,
        settings: BufferSettings,
        files: Files,
        clock: Clock,
        topic: TopicState,
        *,
        name: str,
        sealer: SealQueue,
        keys: KeyIndex,
    ) -> None:
        self.number, self.folder, self.name = number, folder, name
        self._lock, self.settings, self._files, self._clock = lock, settings, files, clock
        self._sealer, self._keys, self._wal = sealer, keys, state.log
        self._listeners: tuple[Callable[[], None], ...] = ()  # told of new durable bundles
        self.sealed_one: Callable[[], None] | None = None  # told of each segment that was sealed
        self.receipts_settled: Callable[[], None] | None = None  # told when receipts have reached `fsync`, or failed
        self._closed = False

        self._contents = contents = Contents(
            state, folder, files, topic, keys, name=name, exact=settings.retention.max_age is not None
        )
        self.span = contents.span  # called for each stretch that is read
        self.table_lock = contents.segments.table_lock
        self._planner = Planner(settings.segment, state.next_segment_seq, state.next_offset)
        if contents.open is not None:
            self._planner.resume(contents.open)
        self._committer = Committer(
            state.log, self._planner, self, settings.wal, clock,
            name=name, shard=number, next_offset=state.next_offset,
        )  # fmt: skip
        self._sealing = Sealing(
            contents, state.log, self._planner, self._committer, keys, settings,
            name=name, folder=folder, files=files, topic=topic, due=lambda: sealer.due(self),
        )  # fmt: skip

    def begin(self) -> None:
        """Finish what a crash interrupted: unlink what was trimmed or is covered, seal what is full."""
        contents = self._contents
        with self._sealing.lock:
            with contents.view:
                gone = contents.take_deleted()
            contents.segments.unlink(gone)
            self._sealing.retire()
        if contents.full:
            self._sealer.due(self)

    # -- append -------------------------------------------------------------------------------------------------

    def append(
        self,
        slots: tuple[EncodedSlot, ...],
        attributes: bytes,
        event_time: tuple[int, int] | None,
        level: Durability | None,
        timeout: float | None,
    ) -> Receipt:
        return self._committer.append(
            slots,
            attributes,
            event_time,
            self.settings.durability if level is None else level,
            self.settings.append_timeout if timeout is None else timeout,
        )

    def wait_for_room(self, slots: tuple[EncodedSlot, ...], timeout: float | None) -> None:
        """Block until `append` would not; raises `Backpressure` after the timeout."""
        self._committer.wait_for_room(slots, self.settings.append_timeout if timeout is None else timeout)

    def flush(self) -> None:
        """Write and sync all that was appended; failures go to the receipts."""
        self._committer.flush()

    def publish(self, bundles: Sequence[EncodedBundle]) -> None:
        """Show durable bundles to readers; seal what is full. Called under the commit lock."""
        contents = self._contents
        with contents.view:
            for bundle in bundles:
                segment = contents.open
                if segment is None or segment.segment_seq != bundle.segment_seq:
                    self._sealing.complete()
                    contents.open = segment = OpenSegment(bundle.segment_seq, bundle.offset, self._clock.monotonic())
                    self._sealer.opened(segment.opened + self.settings.segment.max_open_duration)
                segment.bundles.append(bundle)
            contents.durable = bundles[-1].offset + 1
            if self._planner.full:
                self._sealing.roll()
        contents.write_tail()
        for listener in self._listeners:
            listener()
        self._lock.ring()
        self._sealing.limit_backlog()

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener` called, under the commit lock, whenever there is more to read: it must return at once."""
        self._listeners = (*self._listeners, listener)

    def ignore(self, listener: Callable[[], None]) -> None:
        """Take back `listen`."""
        self._listeners = tuple(each for each in self._listeners if each != listener)

    def lose(self, first: int, end: int) -> None:
        """These offsets hold nothing, and never will. Called under the commit lock."""
        contents = self._contents
        with contents.view:
            contents.checkpoint = contents.checkpoint.with_lost([(first, end)])
            contents.checkpoint_dirty = True
            self._sealing.complete()
        self._keys.lose(self.number, first, end)

    def settled(self) -> None:
        """Whoever waits for receipts of this shard may have its answer. Called under the commit lock."""
        if self.receipts_settled is not None:
            self.receipts_settled()

    def block(self, bound: str, why: Callable[[], HoldfastError] | None) -> None:
        """Refuse appends because of this bound until called with `None` for it."""
        self._committer.block(bound, why)

    @property
    def appended_bytes(self) -> int:
        """Of bundles, since the shard was opened."""
        return self._committer.appended_bytes

    # -- seal ---------------------------------------------------------------------------------------------------

    def seal_deadline(self) -> float | None:
        """When the open segment will have been open for long enough."""
        segment = self._contents.open  # read once, without the view: the sealer asks while it holds a lock of its own
        return None if segment is None else segment.opened + self.settings.segment.max_open_duration

    def relieve(self) -> None:
        """The disk runs short: seal what is open, so that its WAL can go, and keep no spare files."""
        self.roll()
        self._wal.drop_spares()

    @property
    def has_work(self) -> bool:
        """Is there anything for the sealer?"""
        return self._sealing.has_work

    def roll(self) -> None:
        """Make what is open full, so that it is sealed next."""
        with self._committer.commit_lock:
            self._committer.flush()
            with self._contents.view:
                self._sealing.roll()

    def seal_next(self) -> bool:
        """Write the oldest full segment into its file. False when there is none; raises `OSError` and keeps it all.

        After `close` it does nothing: the folder may have another writer by then.
        """
        with self._sealing.lock:
            if self._closed or not self._sealing.seal_next():
                return False
            if self.sealed_one is not None:
                self.sealed_one()
            return True

    # -- read ---------------------------------------------------------------------------------------------------

    @property
    def durable(self) -> int:
        """One above the last offset that can be read."""
        return self._contents.durable

    @property
    def start(self) -> int:
        """The lowest offset that may still be here."""
        return self._contents.checkpoint.trimmed

    def lost(self) -> Sequence[Range]:
        """Offsets that never held anything."""
        return self._contents.checkpoint.lost

    # -- delete, truncate and close -----------------------------------------------------------------------------

    def truncate(self, before: int) -> int:
        """Delete everything below `before`, as far as it is durable. Returns where the shard now starts.

        1. Sync a record that says nothing below is needed, and which numbers were given out.
        2. Unlink segments and WAL files that lie wholly below. A crash before that: they are found to be trimmed.
        """
        contents = self._contents
        with self._sealing.lock:
            with self._committer.commit_lock:
                self._committer.flush()
                with contents.view:
                    before = min(before, contents.durable)
                    if before <= contents.checkpoint.trimmed:
                        return contents.checkpoint.trimmed
                    if contents.open is not None and contents.open.end <= before:
                        self._sealing.roll()
                    checkpoint = self._numbered(replace(contents.checkpoint, trimmed=before).without(()))
                self._keys.before_seal()
                checkpoint.write(self._files, self.folder)
                with contents.view:
                    contents.checkpoint, contents.checkpoint_dirty = checkpoint, False
                    while contents.full and contents.full[0].end <= before:
                        contents.sealed = max(contents.sealed, contents.full.popleft().end)
                    gone = contents.take_deleted()
                if before >= contents.durable:
                    self._wal.finish_file()
            contents.segments.unlink(gone)
            contents.write_tail()
            self._sealing.retire()
            return before

    def table(self) -> SegmentTable:
        """The facts of all sealed segments, oldest first. To be used, and marked, under `table_lock`."""
        return self._contents.segments.table()

    def open_facts(self) -> SegmentFacts | None:
        """The oldest segment that is not sealed, as retention sees it."""
        return self._contents.oldest_unsealed()

    def delete(self, ranges: Sequence[Range]) -> list[Path]:
        """Give up these segments, wherever they stand; readers that are inside one finish it. Their files.

        1. Sync a record that says nothing of them is needed, and which numbers were given out.
        2. Take them out of the readers' view. The caller unlinks the files: a crash before that, and the next writer
           finds them to be deleted.
        """
        contents = self._contents
        with self._sealing.lock:
            if self._closed:
                return []
            with self._committer.commit_lock, contents.view:
                checkpoint = self._numbered(contents.checkpoint.without(ranges))
            self._keys.before_seal()
            checkpoint.write(self._files, self.folder)
            with contents.view:
                # An append that failed meanwhile added to what is lost.
                contents.checkpoint = checkpoint.with_lost(contents.checkpoint.lost)
                contents.checkpoint_dirty = contents.checkpoint != checkpoint
                gone = contents.take_deleted()
            paths = contents.segments.let_go(gone)
            contents.write_tail()
            return paths

    def _numbered(self, checkpoint: ShardCheckpoint) -> ShardCheckpoint:
        """With the numbers that were given out so far: soon nothing else may know them."""
        return replace(
            checkpoint,
            next_offset=max(checkpoint.next_offset, self._contents.durable),
            next_segment_seq=max(checkpoint.next_segment_seq, self._planner.next_segment_seq),
        )

    def close(self) -> None:
        """Commit, seal everything, and let go of the folder."""
        try:
            self._committer.close()
            with self._contents.view:
                self._sealing.complete()
            try:
                while self.seal_next():
                    pass
            except OSError as problem:
                _log.warning("not everything could be sealed; the WAL keeps it", shard=self.name, error=str(problem))
            with self._sealing.lock:
                self._close_files()
        finally:
            with self._sealing.lock:
                self._closed = True
            self._lock.release()

    def _close_files(self) -> None:
        with contextlib.suppress(OSError):  # everything acknowledged is synced; this only tidies
            with self._committer.commit_lock:
                self._wal.finish_file()
            self._sealing.retire()
            self._wal.drop_spares()
        with contextlib.suppress(OSError):
            self._contents.close()
        self._contents.segments.readers.close()

    def facts(self) -> list[SegmentFacts]:
        """Of each sealed segment, oldest first."""
        with self.table_lock:
            return list(self.table())

    @property
    def segment_count(self) -> int:
        """Of sealed ones."""
        return len(self._contents.segments.names)

    def unsealed_bytes(self) -> int:
        """Of bundles that are not in a segment file yet."""
        return self._contents.unsealed_bytes()

    def statistics(self) -> ShardStatistics:
        commits = self._committer.statistics()
        contents = self._contents
        with contents.view:
            return ShardStatistics(
                contents.checkpoint.trimmed, contents.durable, contents.sealed, len(contents.segments.names),
                contents.segments.total_bytes(), self._wal.size, self._planner.bytes, len(contents.full), commits,
            )  # fmt: skip
