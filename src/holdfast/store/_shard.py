"""A shard that this process owns: append, seal, read, truncate."""

from __future__ import annotations

import bisect
import contextlib
import errno
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import structlog

from holdfast.clock import Clock, breathe
from holdfast.config import BufferSettings
from holdfast.durability import Durability
from holdfast.encoded import EncodedBundle, EncodedSlot
from holdfast.errors import Backpressure, Corruption, DataLost, HoldfastError, NewerVersion
from holdfast.files import Files, Lock
from holdfast.retention import SegmentFacts, SegmentTable
from holdfast.segment import SegmentReader, write_segment
from holdfast.store._committer import CommitStatistics, Committer
from holdfast.store._open_segment import OpenSegment, Planner
from holdfast.store._receipt import Receipt
from holdfast.store._span import MemorySpan, SegmentSpan, Span
from holdfast.store.keys import KeyIndex
from holdfast.store.segments import SegmentName, SegmentReaders, facts_of, rough_facts
from holdfast.store.shard_checkpoint import Range, ShardCheckpoint
from holdfast.store.topic_state import TopicState
from holdfast.wal import LogFile, TailFile, WriteAheadLog

MAX_UNSEALED_SEGMENTS = 3  # full ones waiting for their file; with the open one, four times the target size in memory
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


@dataclass(slots=True)
class ShardState:
    """What opening a shard found out, and what `Shard` starts from."""

    checkpoint: ShardCheckpoint
    segments: list[tuple[SegmentName, int]]  # with their sizes; oldest first
    sealed: int
    unsealed: list[OpenSegment]  # the last one is open
    log: WriteAheadLog
    next_offset: int
    next_segment_seq: int
    tail: TailFile


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
        self._topic = topic
        self._sealer = sealer
        self._keys = keys
        self._tail, self._wal = state.tail, state.log
        self._readers = SegmentReaders(files, folder / "segments")

        self._view = threading.Lock()  # guards what readers see
        self._checkpoint = state.checkpoint
        self._segments = [name for name, _ in state.segments]
        self._segment_bytes = dict(state.segments)
        self._table: SegmentTable | None = None  # of all segments, once somebody has asked for it
        self.table_lock = threading.RLock()
        self._sealed = state.sealed
        self._durable = state.next_offset
        self._full = deque(state.unsealed[:-1])
        self._open = state.unsealed[-1] if state.unsealed else None

        self._tail_lock = threading.Lock()  # committer and sealer both write it
        self._seal_lock = threading.Lock()  # one sealing or truncation at a time
        self._checkpoint_dirty = False
        self._seal_problem: Exception | None = None
        self._unretired = False  # WAL files that nobody needs could not be deleted
        self._listeners: tuple[Callable[[], None], ...] = ()  # told of new durable bundles
        self.sealed_one: Callable[[], None] | None = None  # told of each segment that was sealed
        self._closed = False

        self._planner = Planner(settings.segment, state.next_segment_seq, state.next_offset)
        if self._open is not None:
            self._planner.resume(self._open)
        self._committer = Committer(
            state.log, self._planner, self, settings.wal, clock,
            name=name, shard=number, next_offset=state.next_offset,
        )  # fmt: skip

    def begin(self) -> None:
        """Finish what a crash interrupted: unlink what was trimmed or is covered, seal what is full."""
        with self._seal_lock:
            with self._view:
                gone = self._forget_deleted()
            self._unlink_segments(gone)
            self._retire()
        if self._full:
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
        with self._view:
            for bundle in bundles:
                segment = self._open
                if segment is None or segment.segment_seq != bundle.segment_seq:
                    self._complete()
                    self._open = segment = OpenSegment(bundle.segment_seq, bundle.offset, self._clock.monotonic())
                    self._sealer.opened(segment.opened + self.settings.segment.max_open_duration)
                segment.bundles.append(bundle)
            self._durable = bundles[-1].offset + 1
            if self._planner.full:
                self._roll()
        self._write_tail()
        for listener in self._listeners:
            listener()
        self._lock.ring()
        self._limit_backlog()

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener` called, under the commit lock, whenever there is more to read: it must return at once."""
        self._listeners = (*self._listeners, listener)

    def ignore(self, listener: Callable[[], None]) -> None:
        """Take back `listen`."""
        self._listeners = tuple(each for each in self._listeners if each != listener)

    def lose(self, first: int, end: int) -> None:
        """These offsets hold nothing, and never will. Called under the commit lock."""
        with self._view:
            self._checkpoint = self._checkpoint.with_lost([(first, end)])
            self._checkpoint_dirty = True
            self._complete()
        self._keys.lose(self.number, first, end)

    def gave_up(self) -> None:
        """Who waits for bundles of this shard may wait in vain. Called under the commit lock."""
        for listener in self._listeners:
            listener()

    def _complete(self) -> None:
        """Nothing more goes into the open segment. Called with the view."""
        segment, self._open = self._open, None
        if segment is not None and segment.bundles:
            self._full.append(segment)
            self._sealer.due(self)

    def _roll(self) -> None:
        """The next bundle begins a new segment. Called under the commit lock, with the view.

        Not while bundles that have their place in this one are still to be synced; then the next call does it.
        """
        if self._planner.placed == self._durable:
            self._planner.roll()
            self._complete()

    def _write_tail(self) -> None:
        if not self._keys.settled():
            return  # others would take a bundle that was lost for one that is there
        try:
            with self._tail_lock:
                self._tail.write(self._durable, self._sealed, self._topic.schema_count)
        except OSError as problem:  # a lower bound for others, nothing more: the data itself is durable
            _log.warning("tail could not be written; other processes read late", shard=self.name, error=str(problem))

    def _limit_backlog(self) -> None:
        """Hold appends back while too much waits to be sealed, or while the WAL is over its size."""
        backlog = len(self._full)
        over = self._wal.size > self.settings.wal.max_size
        if over and not backlog and self._open is not None:
            with self._committer.commit_lock, self._view:
                self._roll()
        if not over and backlog < MAX_UNSEALED_SEGMENTS:
            self._committer.block("backlog", None)
            return
        problem = self._seal_problem
        what = (
            f"{backlog} full segments wait to be sealed"
            if not over
            else f"the WAL is over {self.settings.wal.max_size} bytes"
        )
        why = f"; sealing fails: {problem}" if problem is not None else ""
        self._committer.block(
            "backlog", lambda: Backpressure(f"{self.name}: {what}{why}; try again later", retry_after=0.5)
        )

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
        segment = self._open  # read once, without the view: the sealer asks while it holds a lock of its own
        return None if segment is None else segment.opened + self.settings.segment.max_open_duration

    def relieve(self) -> None:
        """The disk runs short: seal what is open, so that its WAL can go, and keep no spare files."""
        self.roll()
        self._wal.drop_spares()

    @property
    def has_work(self) -> bool:
        """Is there anything for the sealer?"""
        return bool(self._full) or self._unretired

    def roll(self) -> None:
        """Make what is open full, so that it is sealed next."""
        with self._committer.commit_lock:
            self._committer.flush()
            with self._view:
                self._roll()

    def seal_next(self) -> bool:
        """Write the oldest full segment into its file. False when there is none; raises `OSError` and keeps it all.

        After `close` it does nothing: the folder may have another writer by then.

        1. Write, sync and rename the segment; sync its folder.   A crash before: the WAL still has every bundle.
        2. Show the file to readers in place of the bundles.
        3. Unlink the WAL files that segments cover.              A crash before: they are found to be covered.
        """
        with self._seal_lock:
            if self._closed:
                return False
            with self._view:
                segment = self._full[0] if self._full else None
            if segment is None:
                if self._unretired:
                    self._retire()
                    if self._unretired:
                        raise OSError(errno.EBUSY, "WAL files could not be deleted")
                return False
            try:
                self._keys.before_seal()
                facts = self._write_segment(segment)
            except Exception as problem:
                self._seal_problem = problem
                if isinstance(problem, OSError):
                    self._wal.drop_spares()  # in case it is room that is wanting
                self._limit_backlog()
                raise
            with self._view:
                self._full.popleft()
                name = SegmentName(segment.segment_seq, segment.first_offset)
                self._segments.append(name)
                self._segment_bytes[name] = facts.size
                self._sealed = segment.end
            with self.table_lock:
                if self._table is not None and not (self._table and self._table[-1].first >= facts.first):
                    self._table.append(facts)
            self._seal_problem = None
            self._write_tail()
            self._retire()
            if self.sealed_one is not None:
                self.sealed_one()
            return True

    def _write_segment(self, segment: OpenSegment) -> SegmentFacts:
        settings = self.settings.segment
        info = write_segment(
            self._files,
            self.folder / "segments",
            segment.bundles,
            shard_id=self._checkpoint.shard_id,
            compression=None if settings.compression == "none" else settings.compression,
            max_dictionary_size=settings.max_dictionary_size,
            signal=self._topic.slots.signal,
        )
        ingested = [bundle.ingestion_time_ns for bundle in segment.bundles]
        events = [bundle.event_time for bundle in segment.bundles if bundle.event_time is not None]
        event_time = (min(first for first, _ in events), max(last for _, last in events)) if events else None
        return SegmentFacts(segment.first_offset, segment.end, info.size, (min(ingested), max(ingested)), event_time)

    def _retire(self) -> None:
        """Unlink WAL files that nobody needs. What was lost is written down first: after this only that says so."""
        with self._view:
            dirty, self._checkpoint_dirty = self._checkpoint_dirty, False
            checkpoint, below = self._checkpoint, max(self._sealed, self._checkpoint.trimmed)
        if below >= self._durable and self._wal.size > self.settings.wal.max_size:
            with self._committer.commit_lock:
                self._wal.finish_file()  # even the current file must go
        retired = self._wal.take_retired(below)
        failed: list[LogFile] = []
        try:
            if dirty:
                checkpoint.write(self._files, self.folder)
        except OSError:
            self._checkpoint_dirty = True
            failed, retired = retired, []
        for file in retired:
            try:
                self._wal.discard(file)
            except OSError as problem:
                _log.warning(
                    "WAL file could not be deleted; tried again later",
                    file=str(file.name),
                    error=str(problem),
                )
                failed.append(file)
        self._unretired = bool(failed)
        if failed:
            self._wal.put_back(failed)
            self._sealer.due(self)
        self._limit_backlog()

    # -- read ---------------------------------------------------------------------------------------------------

    @property
    def durable(self) -> int:
        """One above the last offset that can be read."""
        return self._durable

    @property
    def start(self) -> int:
        """The lowest offset that may still be here."""
        return self._checkpoint.trimmed

    def span(self, position: int, end: int | None) -> Span | None:
        """What holds the first bundle at or above `position` and below `end`; `None` when there is none yet."""
        while True:
            with self._view:
                stop = self._durable if end is None else min(end, self._durable)
                position = max(position, self._checkpoint.trimmed)
                if position >= stop:
                    return None
                index = bisect.bisect_right(self._segments, position, key=lambda name: name.first_offset) - 1
                candidate = self._segments[index] if index >= 0 else None
                memory = self._in_memory(position)
                if memory is not None:
                    first = memory.first_offset
                    return MemorySpan(memory.bundles[position - first : min(stop, memory.end) - first])
                following = self._following(position, stop)
            if candidate is not None:
                try:
                    reader = self._readers.get(candidate)
                except FileNotFoundError:
                    if self._is_trimmed(candidate):
                        continue
                    raise DataLost(self.name, position, stop, f"{candidate} is not there") from None
                if position < reader.end_offset:
                    return SegmentSpan(reader, position, min(stop, reader.end_offset))
            if not self._is_lost(position, min(following, stop)):
                raise DataLost(self.name, position, following, "neither a segment nor the WAL holds them")
            position = following

    def _in_memory(self, position: int) -> OpenSegment | None:
        unsealed = [*self._full, self._open] if self._open is not None else self._full
        for segment in unsealed:
            if segment.first_offset <= position < segment.end:
                return segment
        return None

    def _following(self, position: int, stop: int) -> int:
        """The lowest first offset above `position` of anything that is here; `stop` if nothing is."""
        starts = [segment.first_offset for segment in (*self._full, *([self._open] if self._open else []))]
        index = bisect.bisect_right(self._segments, position, key=lambda name: name.first_offset)
        if index < len(self._segments):
            starts.append(self._segments[index].first_offset)
        return min((start for start in starts if start > position), default=stop)

    def _is_trimmed(self, name: SegmentName) -> bool:
        with self._view:
            return name not in self._segments

    def lost(self) -> Sequence[Range]:
        """Offsets that never held anything."""
        return self._checkpoint.lost

    def _is_lost(self, first: int, end: int) -> bool:
        return any(start <= first and end <= stop for start, stop in self._checkpoint.holes)

    # -- delete, truncate and close -----------------------------------------------------------------------------

    def truncate(self, before: int) -> int:
        """Delete everything below `before`, as far as it is durable. Returns where the shard now starts.

        1. Sync a record that says nothing below is needed, and which numbers were given out.
        2. Unlink segments and WAL files that lie wholly below. A crash before that: they are found to be trimmed.
        """
        with self._seal_lock:
            with self._committer.commit_lock:
                self._committer.flush()
                with self._view:
                    before = min(before, self._durable)
                    if before <= self._checkpoint.trimmed:
                        return self._checkpoint.trimmed
                    if self._open is not None and self._open.end <= before:
                        self._roll()
                    checkpoint = self._numbered(replace(self._checkpoint, trimmed=before).without(()))
                self._keys.before_seal()
                checkpoint.write(self._files, self.folder)
                with self._view:
                    self._checkpoint, self._checkpoint_dirty = checkpoint, False
                    while self._full and self._full[0].end <= before:
                        self._sealed = max(self._sealed, self._full.popleft().end)
                    gone = self._forget_deleted()
                if before >= self._durable:
                    self._wal.finish_file()
            self._unlink_segments(gone)
            self._write_tail()
            self._retire()
            return before

    def table(self) -> SegmentTable:
        """The facts of all sealed segments, oldest first. To be used, and marked, under `table_lock`."""
        with self.table_lock:
            if self._table is None:
                with self._view:
                    names = list(self._segments)
                self._table = table = SegmentTable()
                for name in breathe(names):
                    facts = self._look_at(name)
                    if facts is not None:
                        table.append(facts)
            return self._table

    def _look_at(self, name: SegmentName) -> SegmentFacts | None:
        """What is known of a segment that was here before; exactly, if its age counts."""
        try:
            if self.settings.retention.max_age is not None:
                return facts_of(SegmentReader(self._files, self.folder / "segments" / str(name)))
            return rough_facts(self._files, self.folder / "segments" / str(name))
        except (Corruption, NewerVersion, FileNotFoundError) as problem:  # it stays, and stops nothing else
            _log.warning("segment is left alone by retention", shard=self.name, segment=str(name), error=str(problem))
            return None

    def open_facts(self) -> SegmentFacts | None:
        """The oldest segment that is not sealed, as retention sees it."""
        with self._view:
            segment = self._full[0] if self._full else self._open
            if segment is None or not segment.bundles:
                return None
            return SegmentFacts(segment.first_offset, segment.end, *segment.tally())

    def delete(self, ranges: Sequence[Range]) -> list[Path]:
        """Give up these segments, wherever they stand; readers that are inside one finish it. Their files.

        1. Sync a record that says nothing of them is needed, and which numbers were given out.
        2. Take them out of the readers' view. The caller unlinks the files: a crash before that, and the next writer
           finds them to be deleted.
        """
        with self._seal_lock:
            if self._closed:
                return []
            with self._committer.commit_lock, self._view:
                checkpoint = self._numbered(self._checkpoint.without(ranges))
            self._keys.before_seal()
            checkpoint.write(self._files, self.folder)
            with self._view:
                # An append that failed meanwhile added to what is lost.
                self._checkpoint = checkpoint.with_lost(self._checkpoint.lost)
                self._checkpoint_dirty = self._checkpoint != checkpoint
                gone = self._forget_deleted()
            self._let_go(gone)
            self._write_tail()
            return [self.folder / "segments" / str(name) for name in gone]

    def _numbered(self, checkpoint: ShardCheckpoint) -> ShardCheckpoint:
        """With the numbers that were given out so far: soon nothing else may know them."""
        return replace(
            checkpoint,
            next_offset=max(checkpoint.next_offset, self._durable),
            next_segment_seq=max(checkpoint.next_segment_seq, self._planner.next_segment_seq),
        )

    def _forget_deleted(self) -> list[SegmentName]:
        """Take segments out of the readers' view that the checkpoint says are deleted."""
        names, checkpoint = self._segments, self._checkpoint
        follows = [*(name.first_offset for name in names[1:]), self._sealed]
        gone = [
            name for name, next_one in zip(names, follows, strict=False) if self._is_deleted(name, next_one, checkpoint)
        ]
        if gone:
            left = set(gone)
            self._segments = [name for name in self._segments if name not in left]
        return gone

    def _is_deleted(self, name: SegmentName, following: int, checkpoint: ShardCheckpoint) -> bool:
        """`following` is at or above the segment's end. Only if that does not tell is the file opened: readers and
        the committer wait meanwhile."""
        if any(first <= name.first_offset < end for first, end in checkpoint.deleted):
            return True
        if name.first_offset >= checkpoint.trimmed:
            return False
        return following <= checkpoint.trimmed or self._readers.get(name).end_offset <= checkpoint.trimmed

    def _let_go(self, names: Sequence[SegmentName]) -> None:
        for name in names:
            self._readers.forget(name)
            self._segment_bytes.pop(name, None)
        with self.table_lock:
            if self._table is not None:
                self._table.remove({name.first_offset for name in names})

    def _unlink_segments(self, names: Sequence[SegmentName]) -> None:
        self._let_go(names)
        for name in names:
            try:
                self._files.unlink(self.folder / "segments" / str(name))
            except FileNotFoundError:
                pass
            except OSError as problem:  # trimmed all the same; unlinked when the shard is next opened
                _log.warning("segment could not be deleted", shard=self.name, segment=str(name), error=str(problem))

    def close(self) -> None:
        """Commit, seal everything, and let go of the folder."""
        try:
            self._committer.close()
            with self._view:
                self._complete()
            try:
                while self.seal_next():
                    pass
            except OSError as problem:
                _log.warning("not everything could be sealed; the WAL keeps it", shard=self.name, error=str(problem))
            with self._seal_lock:
                self._close_files()
        finally:
            with self._seal_lock:
                self._closed = True
            self._lock.release()

    def _close_files(self) -> None:
        with contextlib.suppress(OSError):  # everything acknowledged is synced; this only tidies
            with self._committer.commit_lock:
                self._wal.finish_file()
            self._retire()
            self._wal.drop_spares()
        with contextlib.suppress(OSError):
            self._tail.close()
        self._readers.close()

    def facts(self) -> list[SegmentFacts]:
        """Of each sealed segment, oldest first."""
        with self.table_lock:
            return list(self.table())

    @property
    def segment_count(self) -> int:
        """Of sealed ones."""
        return len(self._segments)

    def unsealed_bytes(self) -> int:
        """Of bundles that are not in a segment file yet."""
        with self._view:
            unsealed = [*self._full, *([self._open] if self._open else [])]
            return sum(segment.tally()[0] for segment in unsealed)

    def statistics(self) -> ShardStatistics:
        commits = self._committer.statistics()
        with self._view:
            return ShardStatistics(
                self._checkpoint.trimmed, self._durable, self._sealed, len(self._segments),
                sum(self._segment_bytes.get(name, 0) for name in self._segments), self._wal.size,
                self._planner.bytes, len(self._full), commits,
            )  # fmt: skip
