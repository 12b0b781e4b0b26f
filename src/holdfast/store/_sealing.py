"""How a shard's bundles get from its WAL into segment files: when a segment is full, writing it, retiring the WAL."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import structlog

from holdfast.config import BufferSettings
from holdfast.errors import Backpressure
from holdfast.files import Files
from holdfast.retention import SegmentFacts
from holdfast.segment import write_segment
from holdfast.store._committer import Committer
from holdfast.store._contents import Contents
from holdfast.store._open_segment import OpenSegment, Planner
from holdfast.store.keys import KeyIndex
from holdfast.store.segments import SegmentName
from holdfast.store.topic_state import TopicState
from holdfast.wal import LogFile, WriteAheadLog

MAX_UNSEALED_SEGMENTS = 3  # full ones waiting for their file; with the open one, four times the target size in memory
_log = structlog.get_logger("holdfast.store")


class Sealing:
    """Of one shard. `due` tells the thread that seals that there is something for it."""

    def __init__(
        self,
        contents: Contents,
        wal: WriteAheadLog,
        planner: Planner,
        committer: Committer,
        keys: KeyIndex,
        settings: BufferSettings,
        *,
        name: str,
        folder: Path,
        files: Files,
        topic: TopicState,
        due: Callable[[], None],
    ) -> None:
        self._contents, self._wal, self._planner, self._committer = contents, wal, planner, committer
        self._keys, self._settings, self._topic = keys, settings, topic
        self._name, self._folder, self._files, self._due = name, folder, files, due
        self.lock = threading.Lock()  # one sealing or truncation at a time
        self.problem: Exception | None = None  # why the last attempt failed
        self._unretired = False  # WAL files that nobody needs could not be deleted

    @property
    def has_work(self) -> bool:
        """Is there anything for the sealer?"""
        return bool(self._contents.full) or self._unretired

    def complete(self) -> None:
        """Nothing more goes into the open segment. Called with the view."""
        contents = self._contents
        segment, contents.open = contents.open, None
        if segment is not None and segment.bundles:
            contents.full.append(segment)
            self._due()

    def roll(self) -> None:
        """The next bundle begins a new segment. Called under the commit lock, with the view.

        Not while bundles that have their place in this one are still to be synced; then the next call does it.
        """
        if self._planner.placed == self._contents.durable:
            self._planner.roll()
            self.complete()

    def limit_backlog(self) -> None:
        """Hold appends back while too much waits to be sealed, or while the WAL is over its size."""
        backlog = len(self._contents.full)
        over = self._wal.size > self._settings.wal.max_size
        if over and not backlog and self._contents.open is not None:
            with self._committer.commit_lock, self._contents.view:
                self.roll()
        if not over and backlog < MAX_UNSEALED_SEGMENTS:
            self._committer.block("backlog", None)
            return
        problem = self.problem
        what = (
            f"{backlog} full segments wait to be sealed"
            if not over
            else f"the WAL is over {self._settings.wal.max_size} bytes"
        )
        why = f"; sealing fails: {problem}" if problem is not None else ""
        self._committer.block(
            "backlog", lambda: Backpressure(f"{self._name}: {what}{why}; try again later", retry_after=0.5)
        )

    def seal_next(self) -> bool:
        """Write the oldest full segment into its file, and retire its WAL. Called with the lock.

        False when there is none; raises `OSError` and keeps it all.

        1. Write, sync and rename the segment; sync its folder.   A crash before: the WAL still has every bundle.
        2. Show the file to readers in place of the bundles.
        3. Unlink the WAL files that segments cover.              A crash before: they are found to be covered.
        """
        contents = self._contents
        with contents.view:
            segment = contents.full[0] if contents.full else None
        if segment is None:
            if self._unretired:
                self.retire()
                if self._unretired:
                    raise OSError(errno.EBUSY, "WAL files could not be deleted")
            return False
        try:
            self._keys.before_seal()
            facts = self._write(segment)
        except Exception as problem:
            self.problem = problem
            if isinstance(problem, OSError):
                self._wal.drop_spares()  # in case it is room that is wanting
            self.limit_backlog()
            raise
        with contents.view:
            contents.full.popleft()
            contents.segments.add(SegmentName(segment.segment_seq, segment.first_offset), facts.size)
            contents.sealed = segment.end
        contents.segments.enter(facts)
        self.problem = None
        contents.write_tail()
        self.retire()
        return True

    def _write(self, segment: OpenSegment) -> SegmentFacts:
        settings = self._settings.segment
        info = write_segment(
            self._files,
            self._folder / "segments",
            segment.bundles,
            shard_id=self._contents.checkpoint.shard_id,
            compression=None if settings.compression == "none" else settings.compression,
            max_dictionary_size=settings.max_dictionary_size,
            signal=self._topic.slots.signal,
        )
        ingested = [bundle.ingestion_time_ns for bundle in segment.bundles]
        events = [bundle.event_time for bundle in segment.bundles if bundle.event_time is not None]
        event_time = (min(first for first, _ in events), max(last for _, last in events)) if events else None
        return SegmentFacts(segment.first_offset, segment.end, info.size, (min(ingested), max(ingested)), event_time)

    def retire(self) -> None:
        """Unlink WAL files that nobody needs. What was lost is written down first: after this only that says so.

        Called with the lock.
        """
        contents = self._contents
        with contents.view:
            dirty, contents.checkpoint_dirty = contents.checkpoint_dirty, False
            checkpoint, below = contents.checkpoint, max(contents.sealed, contents.checkpoint.trimmed)
        if below >= contents.durable and self._wal.size > self._settings.wal.max_size:
            with self._committer.commit_lock:
                self._wal.finish_file()  # even the current file must go
        retired = self._wal.take_retired(below)
        failed: list[LogFile] = []
        try:
            if dirty:
                checkpoint.write(self._files, self._folder)
        except OSError:
            contents.checkpoint_dirty = True
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
            self._due()
        self.limit_backlog()
